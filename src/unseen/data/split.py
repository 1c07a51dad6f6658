"""Records that an attack may learn from, set aside before anything is judged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unseen.data.duplicates import inseparable
from unseen.data.records import Records
from unseen.errors import ConfigError

JUDGED_PER_KNOWN = 4
"""At least so many records of a side are judged for each one that is set aside."""


@dataclass(frozen=True)
class Split:
    """Records that are judged, and records whose membership an attack may know.

    Attributes:
        audited: judged, and never seen by a fitted attack with their labels.
        known: set aside, and never judged; a side may be empty.
        reasons: why fewer records than asked for were set aside.
    """

    audited: Records
    known: Records
    reasons: tuple[str, ...] = ()


def set_aside(
    records: Records, *, members: int, nonmembers: int, rng: np.random.Generator
) -> Split:
    """Draws records that are not judged, for prefixes and fitted attacks.

    Records of one cluster stay together, and so do records with the same text: a judged record
    must not stand in the prefix that it is judged with.

    Args:
        records: both sides.
        members: how many members to set aside.
        nonmembers: how many non-members to set aside.
        rng: draws them.

    Returns:
        The split. A side with fewer than four judged records for each one set aside keeps all of
        them, with a reason.

    Raises:
        ConfigError: where a count is negative.
    """
    wanted = {"members": members, "nonmembers": nonmembers}
    reasons = []
    sizes = {"members": len(records.members), "nonmembers": len(records.nonmembers)}
    room = dict(wanted)
    for side, count in wanted.items():
        if count < 0:
            raise ConfigError(f"got {side}={count}, expected 0 or more", fix=f"{side}=0")
        needed = (1 + JUDGED_PER_KNOWN) * count
        if count and sizes[side] < needed:
            room[side] = 0
            reasons.append(
                f"no {side} set aside: there are {sizes[side]}, and to set {count} aside takes {needed}"
            )
    taken = _draw(records, room["members"], room["nonmembers"], rng)
    for side, of_side in (("members", True), ("nonmembers", False)):
        got = int(np.sum(taken & (records.membership.member == of_side)))
        if got < room[side]:
            reasons.append(
                f"{got} of {room[side]} {side} set aside: no more without splitting a cluster"
            )
    return Split(records.keep(~taken), records.keep(taken), tuple(reasons))


def _draw(
    records: Records, members: int, nonmembers: int, rng: np.random.Generator
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which records are taken, shape (len(records),): whole groups in random order, while they fit."""
    taken = np.zeros(len(records), dtype=bool)
    if not members and not nonmembers:
        return taken
    groups = inseparable(records.records)
    for at in rng.permutation(len(groups)):
        group = groups[at]
        m = int(np.sum(records.membership.member[group]))
        n = len(group) - m
        if m <= members and n <= nonmembers:
            taken[group] = True
            members, nonmembers = members - m, nonmembers - n
        if not members and not nonmembers:
            break
    return taken
