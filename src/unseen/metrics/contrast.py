"""Do some records have more of something than the others?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from unseen.metrics.roc import auc
from unseen.metrics.slices import holm
from unseen.types import FloatArray


@dataclass(frozen=True, slots=True)
class Contrast:
    """How one feature differs between picked records and the others.

    Attributes:
        picked: median of the picked records.
        others: median of the others.
        auc: chance that a picked record has more of it than another one (ties: half).
        p: two-sided Mann-Whitney test; 1 where the feature is constant.
        p_holm: the same, corrected for all features (Holm).
    """

    picked: float
    others: float
    auc: float
    p: float
    p_holm: float


def contrasts(values: Mapping[str, FloatArray], picked: ArrayLike) -> dict[str, Contrast]:
    """Compares picked records with the others, feature by feature.

    Args:
        values: feature -> (n,) finite values.
        picked: (n,) which records are picked; both kinds have to occur.

    Returns:
        Feature -> contrast; none where a kind is missing.
    """
    mask = np.asarray(picked, dtype=bool)
    if mask.all() or not mask.any() or not values:
        return {}
    ps = [_p(one[mask], one[~mask]) for one in values.values()]
    return {
        name: Contrast(
            float(np.median(one[mask])),
            float(np.median(one[~mask])),
            auc(one[mask], one[~mask]),
            p,
            corrected,
        )
        for (name, one), p, corrected in zip(values.items(), ps, holm(ps), strict=True)
    }


def _p(first: FloatArray, second: FloatArray) -> float:
    from scipy.stats import mannwhitneyu

    if np.unique(np.concatenate([first, second])).size == 1:
        return 1.0
    return float(mannwhitneyu(first, second, alternative="two-sided").pvalue)
