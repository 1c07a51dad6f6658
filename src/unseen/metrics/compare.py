"""Did one model give away less than another? Paired differences on the same records.

The same records are scored by two models (or before and after a change), so most of what makes
one sample of records differ from another is in both, and cancels in the difference: a paired
interval is much shorter than what the two intervals apart suggest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from unseen.metrics._checks import Labels, alike, codes, enough, finite, labels, rate
from unseen.metrics.interval import drawn_weights
from unseen.metrics.roc import Status, auc, resolution, tpr_at_fpr
from unseen.types import BoolArray, Estimate, FloatArray, IntArray

POWER = 0.8
"""Chance with which the smallest detectable difference is found."""

# What so few records cannot show, in records. Where no record was ranked differently, up to about
# 3.7 / u of them may be (exactly: 1 - 0.025^(1 / u) with 95 % confidence), which two standard
# errors of 2 / u cover. Such a record moves a rate by a whole one, and an AUC by its rank.
_UNSEEN_IN_RATE, _UNSEEN_IN_AUC = 2.0, 0.5

_CELLS = 2_000_000
"""Numbers that a bootstrap holds in memory at a time."""


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """How one number changed from the first scores to the second.

    Attributes:
        metric: "auc", or "tpr@fpr=0.01" and the like.
        fpr: the false-positive rate of a TPR; None for the AUC.
        first: the number of the first scores.
        second: the number of the second scores.
        difference: second - first, with its paired interval.
        error: standard error of the difference.
        p: two-sided p-value of "there is no difference": the smallest 1 - confidence at which
            the interval leaves 0 out, at the standard error that the interval has.
        smallest: minimum detectable difference: the true difference that is found with
            probability `POWER` by one test alone at this standard error.
        resolution: what the non-members resolve of the rate; "reliable" for the AUC.
    """

    metric: str
    fpr: float | None
    first: float
    second: float
    difference: Estimate
    error: float
    p: float
    smallest: float
    resolution: Status


def paired_differences(
    first: ArrayLike,
    second: ArrayLike,
    member: ArrayLike,
    *,
    rng: np.random.Generator,
    fprs: Sequence[float] = (),
    confidence: float = 0.95,
    draws: int = 2000,
    clusters: Labels | None = None,
    wider: float = 1.0,
    together: bool = False,
) -> tuple[PairedDifference, ...]:
    """AUC and TPR differences of two scores of the same records, with a paired bootstrap.

    A draw takes records, whole clusters at a time, members and non-members apart, and computes
    both numbers on the very records that it took; thresholds are set anew in every draw. With u =
    the smaller number of records (or clusters) of the two sides, the interval is the difference
    plus and minus standard errors times Student's quantile at u - 1 degrees of freedom. The
    standard error is that of the draws, times sqrt(u / (u - 1)), and together (by squares) with
    what so few records cannot show: a difference that nobody has seen is not known to be zero.

    Exchanging the two changes the sign, and nothing else.

    Args:
        first: (n,) finite scores, higher = more likely a member.
        second: (n,) finite scores of the same records, on a scale of their own.
        member: (n,) which records are members.
        rng: draws the bootstrap.
        fprs: false-positive rates to compare the TPR at; those that cannot be resolved are left out.
        confidence: between 0 and 1.
        draws: bootstrap draws, at least 2.
        clusters: (n,) labels of records that belong together.
        wider: factor on the bootstrap standard error, for scores that are less certain than fixed
            ones, such as scores that were learnt from the other records.
        together: whether clusters with records of both sides are drawn for both at once.

    Returns:
        The AUC, then a TPR for each rate, ascending.

    Raises:
        ValueError: where lengths differ, a score is not finite or a rate is none.
        TooFewRecordsError: below `MIN_PER_SIDE` records, or clusters, a side.
    """
    values = (finite(first, "first scores"), finite(second, "second scores"))
    member = labels(member)
    alike(values[0].size, values[1].size, "second scores")
    alike(values[0].size, member.size, "labels")
    rate(confidence, "confidence")
    if draws < 2:
        msg = f"draws must be at least 2, got {draws}"
        raise ValueError(msg)
    code = codes(clusters, member.size)
    enough(int(member.sum()), int((~member).sum()))
    units = (_numbered(code[member]), _numbered(code[~member]))
    fewest = min(int(one.max()) + 1 for one in units)
    enough(*(int(one.max()) + 1 for one in units), what="clusters")

    rates = [fpr for fpr in sorted(set(fprs)) if _status(member, fpr) != "unresolvable"]
    together = together and clusters is not None
    if together:
        whole = _numbered(code)
        units = (whole[member], whole[~member])
    drawn = _bootstrap(values, member, units, rates, draws, rng, together=together)
    points = [_numbers(one[member], one[~member], rates) for one in values]
    spread = (drawn[1] - drawn[0]).std(axis=0, ddof=1) * np.sqrt(fewest / (fewest - 1)) * wider

    found = []
    for at, fpr in enumerate([None, *rates]):
        unseen = (_UNSEEN_IN_AUC if fpr is None else _UNSEEN_IN_RATE) / fewest
        error = float(np.hypot(spread[at], unseen))
        a, b = points[0][at], points[1][at]
        width = float(special.stdtrit(fewest - 1, 1 - (1 - confidence) / 2)) * error
        found.append(
            PairedDifference(
                metric="auc" if fpr is None else f"tpr@fpr={fpr:g}",
                fpr=fpr,
                first=a,
                second=b,
                difference=Estimate(
                    value=b - a,
                    low=max(b - a - width, -1.0),
                    high=min(b - a + width, 1.0),
                    confidence=confidence,
                    method=f"difference, paired stratified bootstrap ({draws} draws)",
                    n_members=int(member.sum()),
                    n_nonmembers=int((~member).sum()),
                ),
                error=error,
                p=float(2 * special.stdtr(fewest - 1, -abs(b - a) / error)),
                smallest=width + float(special.stdtrit(fewest - 1, POWER)) * error,
                resolution="reliable" if fpr is None else _status(member, fpr),
            )
        )
    return tuple(found)


def other_nonmembers(
    members: tuple[ArrayLike, ArrayLike],
    nonmembers: tuple[ArrayLike, ArrayLike],
    *,
    rng: np.random.Generator,
    confidence: float = 0.95,
    draws: int = 2000,
    clusters: tuple[Labels | None, Labels | None, Labels | None] = (None, None, None),
    wider: float = 1.0,
) -> Estimate:
    """AUC against a second set of non-members minus AUC against a first: the members are the same.

    A draw takes members once for both, and each set of non-members by itself; clusters are taken
    whole. The interval is made as that of `paired_differences`, with u = the smallest number of
    records (or clusters) of the three. Where the two sets of non-members hang together, as answers
    to the same questions do, it is longer than it would have to be.

    Args:
        members: (m,) finite scores of the members beside the first set, and beside the second: of a
            fixed score the same twice, of one that is learnt from each set its own.
        nonmembers: (n,) and (k,) finite scores of the two sets.
        rng: draws the bootstrap.
        confidence: between 0 and 1.
        draws: bootstrap draws, at least 2.
        clusters: labels of records that belong together: of members and of both sets.
        wider: as of `paired_differences`.

    Raises:
        ValueError: where lengths differ or a score is not finite.
        TooFewRecordsError: below `MIN_PER_SIDE` records, or clusters, a side.
    """
    sides = [finite(one, "scores of members") for one in members]
    others = [finite(one, "scores of non-members") for one in nonmembers]
    alike(sides[0].size, sides[1].size, "second scores of members")
    rate(confidence, "confidence")
    sizes = (sides[0].size, others[0].size, others[1].size)
    enough(sizes[0], min(sizes[1:]))
    units = [_numbered(codes(one, n)) for one, n in zip(clusters, sizes, strict=True)]
    counts = [int(one.max()) + 1 for one in units]
    enough(counts[0], min(counts[1:]), what="clusters")
    moved = np.empty(draws)
    rows = max(1, _CELLS // sum(sizes))
    for start in range(0, draws, rows):
        some = min(rows, draws - start)
        weights, *against = (
            _draw(n, some, rng)[:, code] for n, code in zip(counts, units, strict=True)
        )
        first, second = (
            weighted_numbers(*one, weights, drawn, ())[:, 0]
            for one, drawn in zip(zip(sides, others, strict=True), against, strict=True)
        )
        moved[start : start + some] = second - first
    fewest = min(counts)
    spread = float(moved.std(ddof=1)) * np.sqrt(fewest / (fewest - 1)) * wider
    error = float(np.hypot(spread, _UNSEEN_IN_AUC / fewest))
    width = float(special.stdtrit(fewest - 1, 1 - (1 - confidence) / 2)) * error
    value = auc(sides[1], others[1]) - auc(sides[0], others[0])
    return Estimate(
        value=value,
        low=max(value - width, -1.0),
        high=min(value + width, 1.0),
        confidence=confidence,
        method=f"difference, the same members, stratified bootstrap ({draws} draws)",
        n_members=sizes[0],
        n_nonmembers=sum(sizes[1:]),
    )


def _status(member: BoolArray, fpr: float) -> Status:
    return resolution(int((~member).sum()), fpr).status


def _numbered(code: IntArray) -> IntArray:
    """The same clusters, numbered 0, 1, ... without gaps in the order in which they come."""
    _, first, number = np.unique(code, return_index=True, return_inverse=True)
    order = np.empty(first.size, dtype=np.int64)
    order[np.argsort(first)] = np.arange(first.size)
    return order[number]


def _numbers(members: FloatArray, nonmembers: FloatArray, rates: Sequence[float]) -> list[float]:
    return [
        auc(members, nonmembers),
        *(tpr_at_fpr(members, nonmembers, fpr).tpr for fpr in rates),
    ]


def _bootstrap(
    values: tuple[FloatArray, FloatArray],
    member: BoolArray,
    units: tuple[IntArray, IntArray],
    rates: Sequence[float],
    draws: int,
    rng: np.random.Generator,
    *,
    together: bool = False,
) -> FloatArray:
    """Both scores' numbers in every draw, shape (2, draws, 1 + rates)."""
    sides = [(one[member], one[~member]) for one in values]
    found = np.empty((2, draws, 1 + len(rates)))
    rows = max(1, _CELLS // member.size)
    for start in range(0, draws, rows):
        some = min(rows, draws - start)
        weights, against = drawn_weights(
            *units, partial(_draw, draws=some, rng=rng), together=together
        )
        for which, (members, nonmembers) in enumerate(sides):
            found[which, start : start + some] = weighted_numbers(
                members, nonmembers, weights, against, rates
            )
    return found


def _draw(n: int, draws: int, rng: np.random.Generator) -> IntArray:
    """How often each of n is drawn when n are drawn with replacement, shape (draws, n)."""
    drawn = rng.integers(0, n, size=(draws, n)) + n * np.arange(draws)[:, None]
    return np.bincount(drawn.ravel(), minlength=draws * n).reshape(draws, n)


def weighted_numbers(
    members: FloatArray,
    nonmembers: FloatArray,
    weights: IntArray,
    against: IntArray,
    rates: Sequence[float],
) -> FloatArray:
    """AUC, and TPR at each rate, where records count as often as they were drawn.

    The same as `auc` and `tpr_at_fpr` of records that are repeated so often.

    Args:
        members: (m,) finite scores of members.
        nonmembers: (n,) finite scores of non-members.
        weights: (draws, m) how often each member counts; a row's sum is at least 1.
        against: (draws, n) the same for non-members.
        rates: false-positive rates.

    Returns:
        (draws, 1 + rates).
    """
    order, others = np.argsort(members, kind="stable"), np.argsort(nonmembers, kind="stable")
    ranked, against_ranked = members[order], nonmembers[others]
    weights = weights[:, order]
    # Running sums over ascending scores: what was drawn below a place is read there.
    upto_member, below = _running(weights), _running(against[:, others])
    n_members, n_nonmembers = upto_member[:, -1], below[:, -1]
    lower = below[:, np.searchsorted(against_ranked, ranked, side="left")]
    lower = lower + below[:, np.searchsorted(against_ranked, ranked, side="right")]
    found = np.empty((len(weights), 1 + len(rates)))
    found[:, 0] = np.einsum("dm,dm->d", weights, lower) / (2 * n_members * n_nonmembers)
    above = np.searchsorted(ranked, against_ranked, side="right")
    for at, fpr in enumerate(rates):
        may = np.floor(np.round(fpr * n_nonmembers, 9))
        # The highest non-member that may not be flagged: with it, too many would be.
        denied = np.count_nonzero(n_nonmembers[:, None] - below > may[:, None], axis=1) - 1
        missed = np.take_along_axis(upto_member, above[denied][:, None], axis=1)[:, 0]
        found[:, 1 + at] = (n_members - missed) / n_members
    return found


def _running(weights: IntArray) -> IntArray:
    """Sums of what comes before each place, shape (draws, n + 1)."""
    running = np.zeros((len(weights), weights.shape[1] + 1), dtype=np.int64)
    np.cumsum(weights, axis=1, out=running[:, 1:])
    return running
