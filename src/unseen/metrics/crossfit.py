"""Cross-fitting: thresholds and attacks are chosen on some records and judged on others.

The records are split into folds. For each fold, everything that is chosen is chosen on the other
folds; the verdicts on all folds are then pooled, so that every record is judged once, and none by
a choice that it took part in. A record with a negative fold is never judged: it only helps to
choose. With a calibration part of its own, that part is fold -1 and all else is fold 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from unseen.errors import TooFewRecordsError
from unseen.metrics._checks import Labels, alike, codes, enough, finite, labels, rate
from unseen.metrics.interval import rate_interval
from unseen.metrics.roc import Resolution, allowed, auc, resolution
from unseen.types import BoolArray, Estimate, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Judged:
    """How well choices made on other records did, pooled over the folds.

    Attributes:
        target_fpr: the FPR that thresholds were set for.
        chosen: the attack of each judged fold, in the order of the folds.
        thresholds: the threshold of each judged fold; a record is flagged iff it has a score and
            score >= threshold. None: the other folds have too few non-members for that FPR, and
            nothing in this fold was flagged.
        tpr: share of members that were flagged.
        fpr: share of non-members that were flagged: the FPR that the thresholds really have.
        unscored_members: judged members that the chosen attack has no score for; they count as
            not flagged.
        unscored_nonmembers: the same for non-members.
        resolution: what the fewest non-members that any threshold was set on can resolve.
    """

    target_fpr: float
    chosen: tuple[str, ...]
    thresholds: tuple[float | None, ...]
    tpr: Estimate
    fpr: Estimate
    unscored_members: int
    unscored_nonmembers: int
    resolution: Resolution


def folds(
    member: ArrayLike, *, n: int = 2, rng: np.random.Generator, clusters: Labels | None = None
) -> IntArray:
    """Splits records into folds with the same share of members and of non-members each.

    Clusters are never split: they are dealt out largest first, in random order among equals,
    each to the fold that it leaves most even. Without clusters, folds differ by at most one
    member and one non-member.

    Args:
        member: (r,) which records are members.
        n: number of folds, at least 2.
        rng: decides who goes where.
        clusters: (r,) labels of records that belong together.

    Returns:
        (r,) fold of each record, 0 ... n - 1.

    Raises:
        ValueError: where n < 2 or the labels are no labels.
        TooFewRecordsError: where a fold would be left without members or without non-members.
    """
    member = labels(member)
    if n < 2:
        msg = f"n must be at least 2 folds, got {n}"
        raise ValueError(msg)
    code = codes(clusters, member.size)
    sides = (member, ~member)
    sizes = np.stack([np.bincount(code[side], minlength=code.max() + 1) for side in sides])
    shares = (sizes / sizes.sum(axis=1, keepdims=True)).T
    dealt = rng.permutation(len(shares))
    dealt = dealt[np.argsort(-sizes.sum(axis=0)[dealt], kind="stable")]

    load = [(0.0, 0.0)] * n
    fold_of = np.empty(len(shares), dtype=np.int64)
    for cluster in dealt.tolist():
        a, b = shares[cluster].tolist()
        # Least growth of the squared loads, then least load; rounding keeps equal ones equal.
        fold_of[cluster] = lightest = min(
            range(n),
            key=lambda f: (round(load[f][0] * a + load[f][1] * b, 12), round(sum(load[f]), 12)),
        )
        load[lightest] = (load[lightest][0] + a, load[lightest][1] + b)

    fold = fold_of[code]
    for side, what in zip(sides, ("members", "non-members"), strict=True):
        if np.unique(fold[side]).size < n:
            kind = "records" if clusters is None else "clusters"
            msg = f"{n} folds leave one without {what}: got {np.unique(code[side]).size} {kind}"
            raise TooFewRecordsError(msg, fix="use fewer folds, or give more records")
    return fold


def fitted_threshold(nonmembers: ArrayLike, fpr: float) -> float:
    """The lowest threshold at which a new non-member is flagged with chance at most `fpr`.

    Just above the k-th largest of n non-members, k = floor(fpr * (n + 1)): a new one, exchangeable
    with them, scores that high with chance k / (n + 1) (less where scores tie). The same as
    flagging conformal p-values of at most `fpr` (Bates et al. 2023). The largest TPR on these
    records, as `tpr_at_fpr` has it, would mean (k + 1) / (n + 1) on new ones.

    Args:
        nonmembers: (n,) finite scores of non-members.
        fpr: between 0 and 1.

    Returns:
        The threshold (flagged iff score >= threshold), or +inf where k = 0.
    """
    falling = np.sort(finite(nonmembers, "non-member scores"))[::-1]
    k = allowed(falling.size + 1, rate(fpr, "fpr"))
    if k == 0:
        return float("inf")
    return float(np.nextafter(falling[k - 1], np.inf))


def tpr_at_fitted_threshold(
    scores: ArrayLike,
    member: ArrayLike,
    fold: ArrayLike,
    fpr: float,
    *,
    confidence: float = 0.95,
    clusters: Labels | None = None,
    name: str = "attack",
    chosen_on: ArrayLike | None = None,
) -> Judged:
    """TPR and realised FPR of one attack at thresholds set on the other folds.

    As `choose_and_judge` with nothing to choose from.

    Args:
        scores: (n,) finite scores.
        member: (n,) which records are members.
        fold: (n,) fold of each record; negative: never judged.
        fpr: the FPR that thresholds are set for, by `fitted_threshold`.
        confidence: between 0 and 1.
        clusters: (n,) labels of records that belong together.
        name: what the attack is called in the answer.
        chosen_on: (n,) other scores of the same records, that thresholds are set on instead: those that
            an attacker had before something was changed.
    """
    return choose_and_judge(
        {name: scores},
        member,
        fold,
        fpr,
        confidence=confidence,
        clusters=clusters,
        chosen_on=None if chosen_on is None else {name: chosen_on},
    )


def choose_and_judge(
    scores: Mapping[str, ArrayLike],
    member: ArrayLike,
    fold: ArrayLike,
    fpr: float,
    *,
    scored: Mapping[str, ArrayLike] | None = None,
    confidence: float = 0.95,
    clusters: Labels | None = None,
    chosen_on: Mapping[str, ArrayLike] | None = None,
) -> Judged:
    """TPR and realised FPR of the attack that looks best on the other folds, at their threshold.

    For each fold: on the other folds, take the attack with the largest AUC (the first name in
    the alphabet among equals) and set its threshold with `fitted_threshold`; flag this fold.
    Flags of all folds are pooled, with Clopper-Pearson intervals, which are right here because
    thresholds do not come from the records that are counted.

    An attack need not have scored all records. Those without a score rank below all others when
    attacks are chosen and thresholds set, and are not flagged when judged: a missed member, or no
    false positive. So an attack with few scores can be chosen, and pays for what it cannot say.

    Args:
        scores: attack -> (n,) scores, finite where `scored`; other positions are not read.
        member: (n,) which records are members.
        fold: (n,) fold of each record; negative: never judged, only chosen on.
        fpr: the FPR that thresholds are set for.
        scored: attack -> (n,) which records it scored; an attack left out scored all of them.
        confidence: between 0 and 1.
        clusters: (n,) labels of records that belong together.
        chosen_on: attack -> (n,) other scores of the same records, that attacks are chosen and thresholds
            set on instead.

    Raises:
        ValueError: where lengths differ, a score is not finite, no attack scored anything, or
            a fold leaves no members or no non-members to choose on.
        TooFewRecordsError: below `MIN_PER_SIDE` judged records a side.
    """
    member, fold = labels(member), np.asarray(fold)
    alike(member.size, fold.size, "folds")
    rate(fpr, "fpr")
    rate(confidence, "confidence")
    known = _known(scores, scored or {}, member.size)
    before = known if chosen_on is None else _known(chosen_on, scored or {}, member.size)
    judged = fold >= 0
    enough(int((judged & member).sum()), int((judged & ~member).sum()))

    flagged, missing = np.zeros(member.size, bool), np.zeros(member.size, bool)
    chosen, thresholds, fewest = [], [], member.size
    for this in np.unique(fold[judged]).tolist():
        here, other = fold == this, fold != this
        fit_members, fit_nonmembers = other & member, other & ~member
        if not fit_members.any() or not fit_nonmembers.any():
            msg = f"fold {this} leaves no members or no non-members to choose on"
            raise ValueError(msg)
        name = max(
            sorted(before),
            key=lambda name: auc(before[name][0][fit_members], before[name][0][fit_nonmembers]),
        )
        values, has_score = known[name]
        threshold = fitted_threshold(before[name][0][fit_nonmembers], fpr)
        flagged |= here & has_score & (values >= threshold)
        missing |= here & ~has_score
        chosen.append(name)
        thresholds.append(threshold if np.isfinite(threshold) else None)
        fewest = min(fewest, int(fit_nonmembers.sum()))

    where = f"threshold set on other folds for FPR {fpr:g}, Clopper-Pearson"
    return Judged(
        target_fpr=float(fpr),
        chosen=tuple(chosen),
        thresholds=tuple(thresholds),
        tpr=pooled(f"TPR, {where}", flagged, judged, member, member, confidence, clusters),
        fpr=pooled(f"FPR, {where}", flagged, judged, ~member, member, confidence, clusters),
        unscored_members=int((missing & member).sum()),
        unscored_nonmembers=int((missing & ~member).sum()),
        resolution=resolution(fewest, fpr),
    )


def _known(
    scores: Mapping[str, ArrayLike], scored: Mapping[str, ArrayLike], n: int
) -> dict[str, tuple[FloatArray, BoolArray]]:
    """Attack -> (values, has a score), with values below all others where there is no score."""
    strange = sorted(set(scored) - set(scores))
    if strange:
        msg = f"got masks for {strange}, which have no scores"
        raise ValueError(msg)
    known = {}
    for name, given in scores.items():
        has_score = np.asarray(scored.get(name, np.ones(n, bool)), dtype=bool)
        values = np.asarray(given, dtype=np.float64)
        alike(n, has_score.size, f"entries in the mask of {name!r}")
        alike(n, values.size, f"scores of {name!r}")
        if has_score.any():
            lowest = finite(values[has_score], f"scores of {name!r}").min()
            known[name] = (np.where(has_score, values, np.nextafter(lowest, -np.inf)), has_score)
    if not known:
        msg = "got no attack with a score"
        raise ValueError(msg)
    return known


def pooled(
    method: str,
    flagged: BoolArray,
    judged: BoolArray,
    side: BoolArray,
    member: BoolArray,
    confidence: float,
    clusters: Labels | None,
) -> Estimate:
    """The share of flagged records among the judged ones of one side."""
    some = judged & side
    code = None if clusters is None else codes(clusters, len(flagged))[some]
    low, high = rate_interval(flagged[some], confidence=confidence, clusters=code)
    return Estimate(
        value=float(np.mean(flagged[some])),
        low=low,
        high=high,
        confidence=confidence,
        method=method,
        n_members=int((judged & member).sum()),
        n_nonmembers=int((judged & ~member).sum()),
    )
