"""ROC: how well scores tell members from non-members. Higher = more likely a member.

A record is flagged as a member iff `score >= threshold`. Equal scores fall together: no threshold
separates them, so they are flagged, or not, as one block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from unseen.metrics._checks import finite, rate
from unseen.types import FloatArray, IntArray

Status = Literal["reliable", "indicative", "unresolvable"]


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """What a threshold does to the records at hand.

    Attributes:
        tpr: share of members that are flagged.
        threshold: a record is flagged iff score >= threshold; +inf flags nothing.
        fpr: share of non-members that are flagged (the realised FPR).
    """

    tpr: float
    threshold: float
    fpr: float


@dataclass(frozen=True, slots=True)
class RocCurve:
    """All operating points, from the one that flags nothing to the one that flags everything.

    Attributes:
        fpr: (k,) ascending, from 0 to 1.
        tpr: (k,) ascending, from 0 to 1.
        threshold: (k,) descending, from +inf; a record is flagged iff score >= threshold.
    """

    fpr: FloatArray
    tpr: FloatArray
    threshold: FloatArray


@dataclass(frozen=True, slots=True)
class Resolution:
    """Whether so many non-members can tell anything about so small an FPR.

    Attributes:
        fpr: the false-positive rate that is asked for.
        n_nonmembers: non-members at hand.
        expected_false_positives: fpr * n_nonmembers.
        status: "reliable" from 10 expected false positives, "indicative" from 1, below that
            "unresolvable": no threshold on these records has that FPR, except the one of FPR 0.
        needs_nonmembers: non-members that the next better status needs; None where reliable.
    """

    fpr: float
    n_nonmembers: int
    expected_false_positives: float
    status: Status
    needs_nonmembers: int | None


def auc(members: ArrayLike, nonmembers: ArrayLike) -> float:
    """Area under the ROC curve: P(member > non-member) + P(member = non-member) / 2.

    The Mann-Whitney statistic over all m * n pairs, in O((m + n) log n).

    Args:
        members: (m,) finite scores of members.
        nonmembers: (n,) finite scores of non-members.

    Raises:
        ValueError: where a side is empty or a score is not finite.
    """
    members, nonmembers = finite(members, "member scores"), finite(nonmembers, "non-member scores")
    nonmembers = np.sort(nonmembers)
    below = np.searchsorted(nonmembers, members, side="left")
    upto = np.searchsorted(nonmembers, members, side="right")
    # Whole counts of half pairs: exact, so the same in any order of the records.
    return float(int(below.sum()) + int(upto.sum())) / (2 * members.size * nonmembers.size)


def allowed(n: int, fpr: float) -> int:
    """Most false positives among n non-members that keep FPR <= fpr: floor(n * fpr).

    Rounded at the ninth decimal first, so that 0.29 of 100 is 29.

    >>> allowed(100, 0.29)
    29
    """
    return int(np.floor(round(n * fpr, 9)))


def reach(members: FloatArray, nonmembers: FloatArray) -> IntArray:
    """Members that can be flagged with at most f false positives, for f = 0 ... n.

    Flagging at most f false positives, ties as a block, means a threshold above the (f+1)-th
    largest non-member: all members strictly above that one are flagged.

    Returns:
        (n + 1,) counts, ascending, the last one is m.
    """
    ordered = np.sort(members)
    falling = np.sort(nonmembers)[::-1]
    above = members.size - np.searchsorted(ordered, falling, side="right")
    return np.append(above, members.size)


def tpr_at_fpr(members: ArrayLike, nonmembers: ArrayLike, fpr: float) -> OperatingPoint:
    """The largest TPR over all thresholds whose FPR is at most `fpr`, on these records.

    The threshold is the lowest member score above the (floor(fpr * n) + 1)-th largest non-member
    score; flagged iff score >= threshold. Where no member lies above it, nothing can be flagged:
    TPR 0 at threshold +inf. The threshold is set on the records that it is judged on, so the
    FPR on new records is about (floor(fpr * n) + 1) / (n + 1): see `unseen.metrics.crossfit`
    for thresholds set on other records, and `tpr_interval` for the uncertainty.

    Args:
        members: (m,) finite scores of members.
        nonmembers: (n,) finite scores of non-members.
        fpr: between 0 and 1.

    Raises:
        ValueError: where a side is empty, a score is not finite or fpr is no rate.
    """
    members, nonmembers = finite(members, "member scores"), finite(nonmembers, "non-member scores")
    first_denied = np.sort(nonmembers)[::-1][allowed(nonmembers.size, rate(fpr, "fpr"))]
    flagged = members[members > first_denied]
    if flagged.size == 0:
        return OperatingPoint(tpr=0.0, threshold=float("inf"), fpr=0.0)
    threshold = float(flagged.min())
    realised = np.count_nonzero(nonmembers >= threshold) / nonmembers.size
    return OperatingPoint(flagged.size / members.size, threshold, realised)


def roc_curve(members: ArrayLike, nonmembers: ArrayLike) -> RocCurve:
    """The empirical ROC curve: one point for each distinct score, and (0, 0) at +inf.

    Args:
        members: (m,) finite scores of members.
        nonmembers: (n,) finite scores of non-members.

    Raises:
        ValueError: where a side is empty or a score is not finite.
    """
    members, nonmembers = finite(members, "member scores"), finite(nonmembers, "non-member scores")
    thresholds = np.unique(np.concatenate([members, nonmembers]))[::-1]
    tpr, fpr = (
        1 - np.searchsorted(np.sort(side), thresholds, side="left") / side.size
        for side in (members, nonmembers)
    )
    return RocCurve(
        fpr=np.insert(fpr, 0, 0.0),
        tpr=np.insert(tpr, 0, 0.0),
        threshold=np.insert(thresholds, 0, np.inf),
    )


def resolution(n_nonmembers: int, fpr: float) -> Resolution:
    """What n non-members can say about a false-positive rate.

    >>> resolution(500, 0.01)
    Resolution(fpr=0.01, n_nonmembers=500, expected_false_positives=5.0, status='indicative', needs_nonmembers=1000)
    """
    rate(fpr, "fpr")
    if n_nonmembers < 0:
        msg = f"n_nonmembers must not be negative, got {n_nonmembers}"
        raise ValueError(msg)
    expected = round(n_nonmembers * fpr, 9)
    status: Status = "unresolvable"
    wanted: int | None = 1
    if expected >= 10:
        status, wanted = "reliable", None
    elif expected >= 1:
        status, wanted = "indicative", 10
    needs = None if wanted is None else int(np.ceil(round(wanted / fpr, 9)))
    return Resolution(float(fpr), int(n_nonmembers), expected, status, needs)
