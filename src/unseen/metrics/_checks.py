"""What every statistic asks of its arguments, with messages that say what came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unseen.errors import TooFewRecordsError
from unseen.types import BoolArray, FloatArray, IntArray

MIN_PER_SIDE: Final = 10
"""Members, and non-members, that an estimate needs at the least; the same for clusters."""

Labels = Sequence[Any] | NDArray[Any]
"""One label a record: strings, numbers, or None for a record that stands alone."""


def finite(scores: ArrayLike, what: str) -> FloatArray:
    """The scores as a float64 array of shape (n,), n >= 1."""
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim != 1:
        msg = f"{what} must be one-dimensional, got shape {array.shape}"
        raise ValueError(msg)
    if array.size == 0:
        msg = f"{what} are empty: both sides need at least one score"
        raise ValueError(msg)
    bad = int(np.count_nonzero(~np.isfinite(array)))
    if bad:
        msg = f"{what} must be finite, got {bad} of {array.size} that are not"
        raise ValueError(msg)
    return array


def labels(member: ArrayLike) -> BoolArray:
    """Membership as a bool array of shape (n,), with both sides present."""
    array = np.asarray(member)
    if array.ndim != 1 or (array.dtype != np.bool_ and not np.isin(array, (0, 1)).all()):
        msg = f"membership must be one-dimensional and boolean, got {array.dtype} {array.shape}"
        raise ValueError(msg)
    array = array.astype(bool)
    if array.all() or not array.any():
        msg = f"membership needs members and non-members, got {int(array.sum())} of {array.size}"
        raise ValueError(msg)
    return array


def alike(first: int, second: int, what: str) -> None:
    """Refuses arrays that should be of one length and are not."""
    if first != second:
        msg = f"got {second} {what} for {first} records, expected one each"
        raise ValueError(msg)


def rate(value: float, what: str) -> float:
    """A number strictly between 0 and 1."""
    if not 0 < value < 1:
        msg = f"{what} must lie between 0 and 1, got {value}"
        raise ValueError(msg)
    return float(value)


def enough(n_members: int, n_nonmembers: int, *, what: str = "records") -> None:
    """Refuses to estimate from fewer than `MIN_PER_SIDE` a side.

    Raises:
        TooFewRecordsError: with both counts and the number that is needed.
    """
    if min(n_members, n_nonmembers) < MIN_PER_SIDE:
        msg = (
            f"got {n_members} members and {n_nonmembers} non-members ({what}), "
            f"expected at least {MIN_PER_SIDE} of each"
        )
        raise TooFewRecordsError(msg, fix="give more records, or judge fewer groups")


def codes(clusters: Labels | None, n: int) -> IntArray:
    """Cluster labels as integers 0, 1, ... of shape (n,); None is a cluster of its own."""
    if clusters is None:
        return np.arange(n)
    alike(n, len(clusters), "cluster labels")
    known: dict[Any, int] = {}
    alone = (("alone", i) for i in range(n))
    keys = [next(alone) if label is None else ("cluster", label) for label in clusters]
    return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)


def in_order(
    scores: FloatArray, member: BoolArray, clusters: Labels | None
) -> tuple[FloatArray, BoolArray, IntArray]:
    """The same records sorted by side and score, with clusters numbered by what is in them.

    What is computed from the answer cannot depend on the order of the records, even where it
    draws random numbers.

    Returns:
        Scores, membership and cluster numbers, each of shape (n,).
    """
    code = codes(clusters, scores.size)
    content: list[list[tuple[bool, float]]] = [[] for _ in range(int(code.max()) + 1)]
    order = np.lexsort((scores, member))
    for i in order.tolist():
        content[code[i]].append((bool(member[i]), float(scores[i])))
    number = np.empty(len(content), dtype=np.int64)
    number[sorted(range(len(content)), key=lambda cluster: content[cluster])] = np.arange(
        len(content)
    )
    order = np.lexsort((number[code], scores, member))
    return scores[order], member[order], number[code][order]
