"""All that is said of one attack from its scores and the labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from unseen.metrics._checks import Labels, alike, enough, finite, in_order, labels
from unseen.metrics.advantage import advantage
from unseen.metrics.crossfit import folds
from unseen.metrics.interval import auc_interval, tpr_interval
from unseen.metrics.roc import RocCurve, Status, resolution, roc_curve, tpr_at_fpr
from unseen.types import BoolArray, Estimate, FloatArray, IntArray

FPRS = (0.001, 0.01, 0.05, 0.1)
"""The false-positive rates that are reported."""


@dataclass(frozen=True, slots=True)
class TprAtFpr:
    """TPR at one FPR, or why there is none.

    Attributes:
        fpr: the false-positive rate that is asked for.
        estimate: the largest TPR with FPR <= fpr; None where unresolvable.
        threshold: a record is flagged iff score >= threshold; None where unresolvable, and where
            no threshold below infinity has so low an FPR.
        realised_fpr: FPR at that threshold, on these records; None where unresolvable.
        expected_false_positives: fpr * non-members.
        resolution: "reliable", "indicative" or "unresolvable".
        needs_nonmembers: non-members that the next better resolution needs; None where reliable.
    """

    fpr: float
    estimate: Estimate | None
    threshold: float | None
    realised_fpr: float | None
    expected_false_positives: float
    resolution: Status
    needs_nonmembers: int | None


@dataclass(frozen=True, slots=True)
class RocPoints:
    """Points of a ROC curve for a figure: true points of it, from (0, 0) to (1, 1)."""

    fpr: tuple[float, ...]
    tpr: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class AttackResult:
    """What the scores of one attack say about membership. Plain values: `asdict` is JSON.

    Attributes:
        n_members: members with a score.
        n_nonmembers: non-members with a score.
        confidence: coverage that all intervals aim at.
        auc: area under the ROC curve.
        inverted: the AUC interval lies wholly below 1/2: the score ranks non-members higher,
            which means a wrong sign, or members and non-members that differ by themselves.
        tpr_at_fpr: one entry for each FPR, ascending.
        advantage: TPR - FPR at a threshold set on other records.
        roc: at most 200 points of the curve, dense where the FPR is small.
    """

    n_members: int
    n_nonmembers: int
    confidence: float
    auc: Estimate
    inverted: bool
    tpr_at_fpr: tuple[TprAtFpr, ...]
    advantage: Estimate
    roc: RocPoints


def evaluate(
    scores: ArrayLike,
    member: ArrayLike,
    *,
    rng: np.random.Generator,
    fprs: Sequence[float] = FPRS,
    confidence: float = 0.95,
    bootstrap: int = 2000,
    clusters: Labels | None = None,
    together: bool = False,
) -> AttackResult:
    """AUC, TPR at small FPRs, advantage and ROC curve of one attack, each with its interval.

    The same for the same records and seed, in whatever order the records come.

    Args:
        scores: (n,) finite scores, higher = more likely a member; records without a score are
            left out before.
        member: (n,) which of these records are members.
        rng: draws the bootstrap and the two folds for the advantage.
        fprs: false-positive rates to report TPR at.
        confidence: between 0 and 1.
        bootstrap: draws.
        clusters: (n,) labels of records that belong together; resampled and split whole.
        together: whether the AUC's bootstrap draws clusters for both sides at once, as in `auc_interval`.

    Raises:
        ValueError: where lengths differ or a score is not finite.
        TooFewRecordsError: below `MIN_PER_SIDE` records, or clusters, a side.
    """
    values, member, code = _ready(scores, member, clusters)
    members, nonmembers = values[member], values[~member]
    of_members, of_nonmembers = (None, None) if clusters is None else (code[member], code[~member])
    found = auc_interval(
        members,
        nonmembers,
        rng=rng,
        confidence=confidence,
        draws=bootstrap,
        member_clusters=of_members,
        nonmember_clusters=of_nonmembers,
        together=together,
    )
    return AttackResult(
        n_members=members.size,
        n_nonmembers=nonmembers.size,
        confidence=confidence,
        auc=found,
        inverted=found.high < 0.5,
        tpr_at_fpr=tprs_at_fprs(
            members,
            nonmembers,
            fprs,
            confidence=confidence,
            member_clusters=of_members,
            nonmember_clusters=of_nonmembers,
        ),
        advantage=advantage(
            values,
            member,
            folds(member, rng=rng, clusters=code),
            confidence=confidence,
            clusters=None if clusters is None else code,
        ),
        roc=thin(roc_curve(members, nonmembers)),
    )


def auc_of(
    scores: ArrayLike,
    member: ArrayLike,
    *,
    rng: np.random.Generator,
    confidence: float = 0.95,
    bootstrap: int = 2000,
    clusters: Labels | None = None,
    together: bool = False,
) -> Estimate:
    """The AUC alone, with its interval; arguments and errors as of `evaluate`."""
    values, member, code = _ready(scores, member, clusters)
    whole = clusters is not None
    return auc_interval(
        values[member],
        values[~member],
        rng=rng,
        confidence=confidence,
        draws=bootstrap,
        member_clusters=code[member] if whole else None,
        nonmember_clusters=code[~member] if whole else None,
        together=together,
    )


def _ready(
    scores: ArrayLike, member: ArrayLike, clusters: Labels | None
) -> tuple[FloatArray, BoolArray, IntArray]:
    """Checked, and in an order that is that of the records alone: scores, membership, clusters."""
    values, member = finite(scores, "scores"), labels(member)
    alike(values.size, member.size, "labels")
    enough(int(member.sum()), int((~member).sum()))
    return in_order(values, member, clusters)


def tprs_at_fprs(
    members: FloatArray,
    nonmembers: FloatArray,
    fprs: Sequence[float],
    *,
    confidence: float = 0.95,
    member_clusters: Labels | None = None,
    nonmember_clusters: Labels | None = None,
) -> tuple[TprAtFpr, ...]:
    """TPR at each FPR that the non-members resolve, ascending; arguments as of `tpr_interval`."""
    entries = []
    for fpr in sorted(set(fprs)):
        resolved = resolution(len(nonmembers), fpr)
        estimate = threshold = realised = None
        if resolved.status != "unresolvable":
            estimate = tpr_interval(
                members,
                nonmembers,
                fpr,
                confidence=confidence,
                member_clusters=member_clusters,
                nonmember_clusters=nonmember_clusters,
            )
            point = tpr_at_fpr(members, nonmembers, fpr)
            threshold = point.threshold if np.isfinite(point.threshold) else None
            realised = point.fpr
        entries.append(
            TprAtFpr(
                fpr=resolved.fpr,
                estimate=estimate,
                threshold=threshold,
                realised_fpr=realised,
                expected_false_positives=resolved.expected_false_positives,
                resolution=resolved.status,
                needs_nonmembers=resolved.needs_nonmembers,
            )
        )
    return tuple(entries)


def thin(curve: RocCurve, points: int = 200) -> RocPoints:
    """At most `points` points of a curve, half of them even along it, half even in log FPR.

    Args:
        curve: from `roc_curve`.
        points: at least 4.
    """
    size = curve.fpr.size
    if size <= points:
        kept: IntArray = np.arange(size)
    else:
        way = curve.fpr + curve.tpr
        along = np.searchsorted(way, np.linspace(0, 2, points - points // 2))
        smallest = curve.fpr[curve.fpr > 0].min()
        low = np.searchsorted(curve.fpr, np.geomspace(smallest, 1, points // 2 - 2), side="right")
        kept = np.unique(np.concatenate([[0, size - 1], along, low - 1]).clip(0, size - 1))
    return RocPoints(tuple(curve.fpr[kept].tolist()), tuple(curve.tpr[kept].tolist()))
