"""How far two scores order records alike, and by how much two means differ."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from unseen.metrics._checks import alike, finite, rate
from unseen.types import Estimate, FloatArray

FEWEST = 10
"""Records: of fewer, the interval of a correlation means nothing."""


def spearman(
    first: ArrayLike, second: ArrayLike, member: ArrayLike, confidence: float = 0.95
) -> Estimate | None:
    """Spearman's rank correlation of two scores of the same records, members and non-members together.

    The interval is symmetric on the scale of Fisher's z, with the variance (1 + r^2 / 2) / (n - 3)
    of Bonett and Wright (2000).

    Args:
        first: (n,) finite scores.
        second: (n,) finite scores.
        member: (n,) membership, for the counts.
        confidence: between 0 and 1.

    Returns:
        The estimate; None for fewer than ten records, or where one score is the same for all.

    Raises:
        ValueError: where lengths differ or a score is not finite.
    """
    from scipy.stats import spearmanr

    of = np.asarray(member, dtype=bool)
    if len(of) < FEWEST:
        return None
    one, other = finite(first, "first"), finite(second, "second")
    alike(len(one), len(other), "scores")
    alike(len(one), len(of), "labels")
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return None
    r = float(spearmanr(one, other).statistic)
    z = NormalDist().inv_cdf((1 + rate(confidence, "confidence")) / 2)
    reach = z * math.sqrt((1 + r * r / 2) / (len(one) - 3))
    center = math.atanh(max(-1 + 1e-12, min(1 - 1e-12, r)))
    n = int(of.sum())
    return Estimate(
        r,
        math.tanh(center - reach),
        math.tanh(center + reach),
        confidence,
        "Spearman; Fisher's z, Bonett and Wright",
        n,
        len(of) - n,
    )


def mean(values: ArrayLike, confidence: float = 0.95, *, members: bool) -> Estimate | None:
    """The mean of one side, with Student's interval; None for fewer than two values.

    Args:
        values: (n,) finite values.
        confidence: between 0 and 1.
        members: whose values they are, for the counts.
    """
    found = finite(values, "values")
    if len(found) < 2:
        return None
    from scipy.stats import ttest_1samp

    low, high = ttest_1samp(found, 0.0).confidence_interval(rate(confidence, "confidence"))
    n = (len(found), 0) if members else (0, len(found))
    return Estimate(float(found.mean()), float(low), float(high), confidence, "Student", *n)


def difference(
    members: ArrayLike, nonmembers: ArrayLike, confidence: float = 0.95
) -> Estimate | None:
    """Mean of the members minus mean of the non-members, with Welch's interval.

    Args:
        members: (n,) finite values.
        nonmembers: (m,) finite values.
        confidence: between 0 and 1.

    Returns:
        The estimate; None where a side has fewer than two values.
    """
    one: FloatArray = finite(members, "members")
    other: FloatArray = finite(nonmembers, "nonmembers")
    if min(len(one), len(other)) < 2:
        return None
    from scipy.stats import ttest_ind

    test = ttest_ind(one, other, equal_var=False)
    low, high = test.confidence_interval(rate(confidence, "confidence"))
    value = float(one.mean() - other.mean())
    return Estimate(value, float(low), float(high), confidence, "Welch", len(one), len(other))
