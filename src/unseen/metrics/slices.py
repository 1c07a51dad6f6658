"""Results by group: which departments, languages or lengths leak, corrected for looking at many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from unseen.metrics._checks import (
    MIN_PER_SIDE,
    Labels,
    alike,
    codes,
    finite,
    labels,
    rate,
)
from unseen.metrics.evaluate import FPRS, TprAtFpr, tprs_at_fprs
from unseen.metrics.interval import LogitAuc, auc_logit
from unseen.types import BoolArray, Estimate, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class SliceResult:
    """One value of one column. Plain values: `asdict` is JSON.

    Attributes:
        by: the column.
        value: the group.
        n_members: members in the group.
        n_nonmembers: non-members in the group.
        auc: AUC within the group; None where it is too small.
        tpr_at_fpr: TPR at each FPR within the group, at the group's own thresholds; empty where
            it is too small.
        p: two-sided p-value of "the group's AUC is that of all other records"; None where either
            is too small.
        p_holm: the same, corrected by Holm for all groups of all columns that were tested.
        reason: why something is missing, or None.
    """

    by: str
    value: str
    n_members: int
    n_nonmembers: int
    auc: Estimate | None
    tpr_at_fpr: tuple[TprAtFpr, ...]
    p: float | None
    p_holm: float | None
    reason: str | None


def holm(pvalues: Sequence[float] | FloatArray) -> tuple[float, ...]:
    """Adjusted p-values that keep the chance of any false alarm (Holm 1979).

    The i-th smallest of k is multiplied by k - i + 1, at least its predecessor, at most 1.

    >>> holm([0.01, 0.04, 0.03])
    (0.03, 0.06, 0.06)

    Raises:
        ValueError: where a value is not between 0 and 1.
    """
    array = np.asarray(pvalues, dtype=np.float64)
    if not ((array >= 0) & (array <= 1)).all():
        msg = f"p-values must lie between 0 and 1, got {array.tolist()}"
        raise ValueError(msg)
    order = np.argsort(array, kind="stable")
    factors = array.size - np.arange(array.size)
    adjusted = np.empty_like(array)
    adjusted[order] = np.minimum(np.maximum.accumulate(array[order] * factors), 1.0)
    return tuple(adjusted.tolist())


def by_slice(
    scores: ArrayLike,
    member: ArrayLike,
    columns: Mapping[str, Sequence[str | None]],
    *,
    rng: np.random.Generator,
    fprs: Sequence[float] = FPRS,
    confidence: float = 0.95,
    bootstrap: int = 2000,
    clusters: Labels | None = None,
) -> tuple[SliceResult, ...]:
    """AUC and TPR within each group, and whether the group differs from the rest.

    The test compares logit AUCs of the group and of all records outside it, with the bootstrap
    errors of `auc_interval`: z = difference / sqrt(sum of squared errors).

    Args:
        scores: (n,) finite scores, higher = more likely a member.
        member: (n,) which records are members.
        columns: column -> (n,) value of each record; None: the record has none, and belongs to
            the rest of every group.
        rng: draws the bootstraps; the result does not depend on the order of the records.
        fprs: false-positive rates to report TPR at.
        confidence: between 0 and 1.
        bootstrap: draws.
        clusters: (n,) labels of records that belong together.

    Returns:
        One entry for each value of each column: columns as given, values sorted.

    Raises:
        ValueError: where lengths differ or a score is not finite.
    """
    values, member = finite(scores, "scores"), labels(member)
    alike(values.size, member.size, "labels")
    rate(confidence, "confidence")
    code = codes(clusters, values.size)
    results = []
    for by, column in columns.items():
        alike(values.size, len(column), f"values of {by!r}")
        for value in sorted({entry for entry in column if entry is not None}):
            inside = np.array([entry == value for entry in column])
            results.append(
                _slice(by, value, inside, values, member, code, fprs, confidence, bootstrap, rng)
            )
    tested = [i for i, result in enumerate(results) if result.p is not None]
    adjusted = holm([p for result in results if (p := result.p) is not None])
    for i, p in zip(tested, adjusted, strict=True):
        results[i] = replace(results[i], p_holm=p)
    return tuple(results)


def _slice(
    by: str,
    value: str,
    inside: BoolArray,
    scores: FloatArray,
    member: BoolArray,
    code: IntArray,
    fprs: Sequence[float],
    confidence: float,
    bootstrap: int,
    rng: np.random.Generator,
) -> SliceResult:
    """The entry of one group, its p-value not corrected yet."""
    result = SliceResult(
        by=by,
        value=value,
        n_members=int((inside & member).sum()),
        n_nonmembers=int((inside & ~member).sum()),
        auc=None,
        tpr_at_fpr=(),
        p=None,
        p_holm=None,
        reason=_too_small(inside, member, code),
    )
    if result.reason is not None:
        return result

    def logit_auc(of: BoolArray) -> LogitAuc:
        of_members, of_nonmembers = of & member, of & ~member
        return auc_logit(
            scores[of_members],
            scores[of_nonmembers],
            rng=rng,
            confidence=confidence,
            draws=bootstrap,
            member_clusters=code[of_members],
            nonmember_clusters=code[of_nonmembers],
        )

    here = logit_auc(inside)
    rates = tprs_at_fprs(
        scores[inside & member],
        scores[inside & ~member],
        fprs,
        confidence=confidence,
        member_clusters=code[inside & member],
        nonmember_clusters=code[inside & ~member],
    )
    result = replace(result, auc=here.estimate(), tpr_at_fpr=rates)
    missing = _too_small(~inside, member, code)
    if missing is not None:
        return replace(result, reason=f"not compared with the rest: {missing}")
    rest = logit_auc(~inside)
    z = (here.logit - rest.logit) / np.hypot(here.error, rest.error)
    return replace(result, p=float(2 * special.ndtr(-abs(z))))


def _too_small(of: BoolArray, member: BoolArray, code: IntArray) -> str | None:
    """Why these records cannot be estimated from, or None."""
    for kind, unit in (("records", np.arange(code.size)), ("clusters", code)):
        n_members, n_nonmembers = (np.unique(unit[of & side]).size for side in (member, ~member))
        if min(n_members, n_nonmembers) < MIN_PER_SIDE:
            return (
                f"{n_members} members and {n_nonmembers} non-members ({kind}), "
                f"fewer than {MIN_PER_SIDE} a side"
            )
    return None
