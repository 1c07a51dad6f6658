"""Membership advantage at a threshold that other records chose."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from unseen.metrics._checks import Labels, alike, enough, finite, labels, rate
from unseen.metrics.crossfit import pooled
from unseen.metrics.roc import roc_curve
from unseen.types import BoolArray, Estimate, FloatArray


def best_threshold(members: ArrayLike, nonmembers: ArrayLike) -> float:
    """The threshold with the largest TPR - FPR on these records (Youden 1950).

    The highest one among equals; +inf where none does better than flagging nothing.

    Args:
        members: (m,) finite scores of members.
        nonmembers: (n,) finite scores of non-members.

    Returns:
        The threshold: a record is flagged iff score >= threshold.
    """
    curve = roc_curve(members, nonmembers)
    gain: FloatArray = np.round(curve.tpr - curve.fpr, 12)  # equal counts must be equal gains
    return float(curve.threshold[np.argmax(gain)])


def advantage(
    scores: ArrayLike,
    member: ArrayLike,
    fold: ArrayLike,
    *,
    confidence: float = 0.95,
    clusters: Labels | None = None,
    chosen_on: ArrayLike | None = None,
) -> Estimate:
    """Membership advantage: 2 * (balanced accuracy - 1/2) = TPR - FPR (Yeom et al. 2018).

    For each fold the threshold is the best one on the other folds; flags are pooled. A threshold
    chosen on the records that it is judged on would find an advantage in noise. Negative where
    the threshold does worse than chance.

    The interval combines the Clopper-Pearson intervals of both rates by squares (Newcombe 1998,
    method 10; "MOVER").

    Args:
        scores: (n,) finite scores, higher = more likely a member.
        member: (n,) which records are members.
        fold: (n,) fold of each record, as from `folds`; negative: never judged.
        confidence: between 0 and 1.
        clusters: (n,) labels of records that belong together.
        chosen_on: (n,) other scores of the same records, that thresholds are chosen on instead: those
            that an attacker had before something was changed.

    Raises:
        ValueError: where lengths differ, a score is not finite, or a fold leaves a side empty.
        TooFewRecordsError: below `MIN_PER_SIDE` judged records a side.
    """
    values, member, fold = finite(scores, "scores"), labels(member), np.asarray(fold)
    alike(values.size, member.size, "labels")
    alike(values.size, fold.size, "folds")
    rate(confidence, "confidence")
    judged = fold >= 0
    enough(int((judged & member).sum()), int((judged & ~member).sum()))

    before = values if chosen_on is None else finite(chosen_on, "scores to choose on")
    alike(values.size, before.size, "scores to choose on")

    flagged = np.zeros(values.size, bool)
    for this in np.unique(fold[judged]).tolist():
        other = fold != this
        threshold = best_threshold(before[other & member], before[other & ~member])
        flagged |= (fold == this) & (values >= threshold)
    return _of_flags(
        flagged, judged, member, confidence, clusters, "TPR - FPR, threshold set on other folds"
    )


def advantage_at(
    scores: ArrayLike,
    member: ArrayLike,
    threshold: float,
    *,
    confidence: float = 0.95,
    clusters: Labels | None = None,
) -> Estimate:
    """Membership advantage at a threshold that was fixed beforehand, such as that of a paper.

    A record is flagged iff score >= threshold; the interval is that of `advantage`.

    Args:
        scores: (n,) finite scores, higher = more likely a member.
        member: (n,) which records are members.
        threshold: of no record's choosing.
        confidence: between 0 and 1.
        clusters: (n,) labels of records that belong together.

    Raises:
        ValueError: where lengths differ, or a score is not finite.
        TooFewRecordsError: below `MIN_PER_SIDE` records a side.
    """
    values, member = finite(scores, "scores"), labels(member)
    alike(values.size, member.size, "labels")
    rate(confidence, "confidence")
    enough(int(member.sum()), int((~member).sum()))
    judged = np.ones(values.size, bool)
    method = f"TPR - FPR at {threshold:g}, fixed beforehand"
    return _of_flags(values >= threshold, judged, member, confidence, clusters, method)


def _of_flags(
    flagged: BoolArray,
    judged: BoolArray,
    member: BoolArray,
    confidence: float,
    clusters: Labels | None,
    method: str,
) -> Estimate:
    """TPR - FPR of the judged records, with its interval."""
    tpr, fpr = (
        pooled("rate", flagged, judged, side, member, confidence, clusters)
        for side in (member, ~member)
    )
    value = tpr.value - fpr.value
    return Estimate(
        value=value,
        low=max(value - float(np.hypot(tpr.value - tpr.low, fpr.high - fpr.value)), -1.0),
        high=min(value + float(np.hypot(tpr.high - tpr.value, fpr.value - fpr.low)), 1.0),
        confidence=confidence,
        method=f"{method}, Newcombe interval",
        n_members=tpr.n_members,
        n_nonmembers=tpr.n_nonmembers,
    )
