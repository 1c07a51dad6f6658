"""Which records a training learns, and which are held out: drawn at random, and apart from other runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unseen.data.duplicates import inseparable, repeats_in
from unseen.data.records import Records, read_source
from unseen.errors import ConfigError, DataError

if TYPE_CHECKING:
    from unseen.data.records import Unsplit
    from unseen.runs.training.config import TrainRun
    from unseen.runs.training.trained import TrainedRun
    from unseen.types import BoolArray, Record


@dataclass(frozen=True)
class Sides:
    """Who is trained on, and who is held out; the latter may be nobody.

    Attributes:
        trained: learned, in the order of their file.
        held_out: never seen.
        described: counts and hashes of the files, without text.
        notes: what the user should know.
    """

    trained: tuple[Record, ...]
    held_out: tuple[Record, ...]
    described: dict[str, Any]
    notes: tuple[str, ...] = ()


def draw(config: TrainRun, others: Sequence[TrainedRun]) -> Sides:
    """Reads the records, and draws who is trained on and who is held out.

    Args:
        config: names the records and how many are trained on; its seed draws them.
        others: train runs none of whose records may be used.

    Raises:
        DataError: where the records cannot be read.
        ConfigError: where there are too few.
    """
    if config.members is not None and config.nonmembers is not None:
        both = Records.from_files(config.members, config.nonmembers, **config.reading)
        answered = _answered(both.records, f"{config.members} and {config.nonmembers}")
        both = replace(both.keep(answered), notes=(*both.notes, *_empty(answered)))
        sides = Sides(both.members, both.nonmembers, both.describe(), both.notes)
        _refuse_others(sides.trained, others, config)
        return sides
    found = read_source(config.members or config.data or "", **config.reading)
    nobody = np.zeros(len(found.records), dtype=bool)
    answered = _answered(found.records, config.members or config.data or "")
    if config.members is not None:
        _refuse_others(found.records, others, config)
        records = found.split(answered, nobody)
        said = (*records.notes, *_empty(answered))
        return Sides(records.members, (), records.describe(), said)
    free = not_in(found.records, others, config.near_duplicates)
    trained, held_out = _drawn(config, found, free & answered)
    records = found.split(trained, held_out)
    notes = [*records.notes, *_empty(answered)]
    if others:
        notes.append(
            f"{int((~free).sum())} of {len(free)} records occur in {', '.join(config.not_in)}, alike or "
            "nearly so, and are left out"
        )
    notes.append(f"{int(trained.sum())} records are trained on, {int(held_out.sum())} held out")
    return Sides(records.members, records.nonmembers, records.describe(), tuple(notes))


def _answered(records: Sequence[Record], file: str) -> BoolArray:
    """Which records have a response: nothing can be learned from an empty one.

    Raises:
        DataError: where all are empty.
    """
    answered = np.array([record.is_answered for record in records], dtype=bool)
    if not answered.any():
        raise DataError("holds empty responses only: there is nothing to learn", path=file)
    return answered


def _empty(answered: BoolArray) -> list[str]:
    """What the user should know of the records that are left out."""
    n = int((~answered).sum())
    return [f"{n} records have an empty response, and are left out"] if n else []


def not_in(records: Sequence[Record], others: Sequence[TrainedRun], threshold: float) -> BoolArray:
    """Which records say what no record of the other runs says, nor nearly so."""
    free = np.ones(len(records), dtype=bool)
    for run in others:
        for places in repeats_in(records, run.records(held_out=False).records, threshold).values():
            free[list(places)] = False
    return free


def _refuse_others(
    records: Sequence[Record], others: Sequence[TrainedRun], config: TrainRun
) -> None:
    taken = int((~not_in(records, others, config.near_duplicates)).sum())
    if taken:
        raise ConfigError(
            f"{taken} of {len(records)} records of {config.members} occur in "
            f"{', '.join(config.not_in)}, alike or nearly so",
            fix="leave them out of the file, or draw others: --data FILE instead of --members",
        )


def _drawn(config: TrainRun, found: Unsplit, free: BoolArray) -> tuple[BoolArray, BoolArray]:
    """Who is trained on and who is held out, each shape (len(found.records),).

    Records of one cluster, or with the same text, stay on one side.
    """
    rng = np.random.default_rng([config.recipe.seed, 2])
    n_free = int(free.sum())
    file = config.data
    if len(found.records) == 1:
        raise ConfigError(
            f"{file} holds one record, and a part of it cannot be held out",
            fix="give more records, or train on all of a file: --members FILE",
        )
    wanted = config.n if config.n is not None else round(config.share * n_free)
    if wanted < 1:
        raise ConfigError(
            f"--share {config.share:g} of {n_free} records is none", fix="--share 0.5, or --n N"
        )
    if wanted > n_free or (wanted == n_free and not config.not_in):
        left = " are not in " + ", ".join(config.not_in) if config.not_in else ""
        raise ConfigError(
            f"{wanted} records are to be trained on, and {n_free} of {file}{left}"
            + ("" if left else " leave none to hold out"),
            fix=f"--n {max(1, n_free // 2)}, or a file with more records: --data FILE"
            + ("; a run that holds fewer out leaves more: --held-out" if left else ""),
        )
    groups = [group for group in inseparable(found.records) if all(free[place] for place in group)]
    order = rng.permutation(len(groups)).tolist()
    trained = _filled(groups, order, wanted, len(free))
    if not trained.any():
        smallest = min(map(len, groups), default=0)
        what = "have one text" if config.cluster_by is None else "are one cluster, or have one text"
        last = n_free if config.not_in else n_free - 1
        fits = 0 < smallest <= last
        raise ConfigError(
            f"no {wanted} records can be taken: those that {what} stay on one side, and the smallest "
            f"such group holds {smallest} of {n_free}",
            fix=f"--n {smallest}, or more" if fits else f"a file with other texts too, not {file}",
        )
    rest = [at for at in order if not trained[groups[at][0]]]
    room = len(free) if config.held_out is None else config.held_out
    return trained, _filled(groups, rest, room, len(free))


def _filled(
    groups: Sequence[Sequence[int]], order: Sequence[int], wanted: int, n: int
) -> BoolArray:
    """Whole groups in the given order, as long as they fit."""
    taken = np.zeros(n, dtype=bool)
    for at in order:
        if len(groups[at]) <= wanted:
            taken[list(groups[at])] = True
            wanted -= len(groups[at])
        if not wanted:
            break
    return taken


def partitions(n: int, count: int, seed: int, stream: int) -> list[int] | None:
    """A fixed part of the epoch for each of n records, equal in size; None where there is one part."""
    if count == 1:
        return None
    dealt = np.empty(n, dtype=int)
    dealt[np.random.default_rng([seed, stream]).permutation(n)] = np.arange(n) * count // max(n, 1)
    return [int(part) for part in dealt]
