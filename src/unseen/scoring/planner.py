"""Which requests run together: equal ones once, shared prefixes once, and little padding.

Pure: no model, no store. The same set of requests gives the same batches in whatever order it
comes, so that a run that was stopped continues with the batches that it would have had.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from unseen.types import Batch, Request

G = TypeVar("G")
R = TypeVar("R")

# A prefix is read apart only where it saves more than it costs.
MIN_PREFIX = 16
# Cached prefixes are copied for every row; this bounds their share of a batch's memory.
MAX_PREFIX_SHARE = 8
# What a pass costs however short it is, as a share of the tokens of a full batch.
_A_PASS = 1 / 32


def plan(requests: Iterable[Request], batch_tokens: int) -> list[Batch]:
    """Cuts requests into batches by padded tokens.

    Requests whose contexts begin alike (shots, a system turn, the probes of one record) are put
    together where reading their common prefix once costs less than reading it in every row.

    Args:
        requests: in any order, with repetitions.
        batch_tokens: the most tokens, padding included, that a batch of more than one row holds.

    Returns:
        Batches; within each prefix the longest rows come first, so that a batch that does not
        fit into memory shows at once. Every distinct request is in exactly one batch.
    """
    if batch_tokens < 1:
        msg = f"got batch_tokens={batch_tokens}, expected at least 1"
        raise ValueError(msg)
    rows = sorted(set(requests), key=lambda row: (row.context, row.continuation))
    groups, loose = _shared_prefixes(rows, batch_tokens)
    shared = [(rows[of[0]].context[:length], of) for length, of in groups]
    batches: list[Batch] = []
    for prefix, of in [*sorted(shared, key=lambda group: (-len(group[0]), group[0])), ((), loose)]:
        batches += _cut(prefix, [rows[i] for i in of], batch_tokens)
    return batches


def plan_growing(requests: Iterable[Request], batch_tokens: int) -> list[Batch]:
    """Batches for a target that remembers what it has read: what begins alike is near, whatever is new.

    Args:
        requests: in any order, with repetitions.
        batch_tokens: the padded tokens that are read at once.
    """
    rows = sorted(set(requests), key=lambda row: (row.context, row.continuation))
    batches: list[Batch] = []
    start = 0
    while start < len(rows):
        stop, longest = start + 1, rows[start].length
        while stop < len(rows):
            longest = max(longest, rows[stop].length)
            if (stop + 1 - start) * longest > MAX_PREFIX_SHARE * batch_tokens:
                break
            stop += 1
        batches.append(Batch((), tuple(rows[start:stop]), growing=True))
        start = stop
    return batches


def unfinished(
    whole: Sequence[G], rows_of: Callable[[G], Sequence[R]], missing: Collection[R]
) -> list[G] | None:
    """The parts of a plan that are still to do, if all others are done.

    A stopped run left whole parts behind; continuing with the parts that it would have had gives the
    same numbers to the last bit.

    Args:
        whole: the plan of everything.
        rows_of: the rows of a part.
        missing: the rows that have no answer.

    Returns:
        Parts none of whose rows has an answer; None where some rows of a part have one and others not.
    """
    left = set(missing)
    n_missing = [sum(row in left for row in rows_of(part)) for part in whole]
    pairs = list(zip(whole, n_missing, strict=True))
    if any(0 < n < len(rows_of(part)) for part, n in pairs):
        return None
    return [part for part, n in pairs if n]


_Group = tuple[int, list[int]]
"""The length of a prefix, and the rows that are read after it."""


@dataclass
class _Stretch:
    """Neighbouring rows with a common prefix, while their end is looked for.

    Attributes:
        length: tokens of the prefix.
        groups: the best groups of rows in it, so far.
        cost: of reading these, in tokens.
        loose: rows in none of them.
    """

    length: int
    groups: list[_Group] = field(default_factory=list)
    cost: float = 0.0
    loose: list[int] = field(default_factory=list)

    def take(self, other: _Stretch) -> None:
        self.groups += other.groups
        self.cost += other.cost
        self.loose += other.loose


def _shared_prefixes(rows: Sequence[Request], batch_tokens: int) -> tuple[list[_Group], list[int]]:
    """Groups of rows that are cheaper to read after their prefix, and the rows in none of them.

    Neighbours in sorted order have the longest common prefixes, and stretches of rows with one are
    nested. From the inside out, a stretch stays as the stretches within it have left it, or its
    loose rows are read after its prefix, or all of its rows are, whichever costs least.
    """
    a_pass = _A_PASS * batch_tokens

    def alone(of: Sequence[int]) -> float:
        return sum(rows[i].length for i in of) * (1 + _A_PASS)

    def together(length: int, of: Sequence[int]) -> float:
        own = sum(rows[i].length - length for i in of)
        return length + a_pass + own + a_pass * -(-own // batch_tokens)

    def closed(stretch: _Stretch) -> _Stretch:
        length, loose = stretch.length, stretch.loose
        if length < MIN_PREFIX:
            return stretch
        whole = sorted([*loose, *(i for _, of in stretch.groups for i in of)])
        ways = [
            (stretch.cost + alone(loose), stretch),
            (
                stretch.cost + together(length, loose),
                _Stretch(
                    length,
                    [*stretch.groups, (length, loose)],
                    stretch.cost + together(length, loose),
                ),
            ),
            (together(length, whole), _Stretch(length, [(length, whole)], together(length, whole))),
        ]
        return min(ways if len(loose) > 1 else [ways[0], ways[2]], key=lambda way: way[0])[1]

    open_ = [_Stretch(0)]
    for i, length in enumerate(_common(rows)):
        # The row belongs to the innermost stretch on either side of it.
        if length > open_[-1].length:
            open_.append(_Stretch(length, loose=[i]))
            continue
        open_[-1].loose.append(i)
        while open_[-1].length > length:
            inner = closed(open_.pop())
            if open_[-1].length < length:
                open_.append(_Stretch(length))
            open_[-1].take(inner)
    return open_[0].groups, sorted(open_[0].loose)


def _common(rows: Sequence[Request]) -> Iterator[int]:
    """How many tokens each row's context shares with the next one's; 0 after the last.

    The last context token stays with the row: it predicts the first continuation token.
    """
    for one, other in itertools.pairwise(rows):
        n = 0
        for a, b in zip(one.context[:-1], other.context[:-1], strict=False):
            if a != b:
                break
            n += 1
        yield n
    if rows:
        yield 0


def n_read(batch: Batch, before: tuple[int, ...]) -> int:
    """Tokens that a target reads for a batch, after one with the prefix `before`: it keeps that."""
    return batch.n_tokens - (len(batch.prefix) if batch.prefix == before else 0)


def n_tokens(batches: Iterable[Batch]) -> int:
    """Tokens that a target reads for batches in this order, without padding."""
    total = 0
    prefix: tuple[int, ...] = ()
    for batch in batches:
        total += n_read(batch, prefix)
        prefix = batch.prefix
    return total


def _cut(prefix: tuple[int, ...], requests: list[Request], batch_tokens: int) -> list[Batch]:
    rows = sorted(requests, key=lambda row: (-row.length, row.context, row.continuation))
    batches: list[Batch] = []
    start = 0
    while start < len(rows):
        longest = rows[start].length - len(prefix)
        n_rows = max(1, batch_tokens // longest)
        if prefix:
            room = MAX_PREFIX_SHARE * batch_tokens // (len(prefix) + longest)
            n_rows = max(1, min(n_rows, room))
        batches.append(Batch(prefix, tuple(rows[start : start + n_rows])))
        start += n_rows
    return batches
