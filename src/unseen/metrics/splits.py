"""A classifier judged on split after split of the same records, as papers do.

Each split gives seven tenths of the records to learn from, one to choose a penalty by and two to judge,
of members and non-members alike (G-Drift 2026, section 4.3). Splits of the same records overlap: how far
their numbers lie apart says how much the draw of a split matters, and nothing about other records. It
is no confidence interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from unseen.metrics._checks import Labels, finite, labels
from unseen.metrics.crossfit import folds
from unseen.metrics.roc import auc
from unseen.types import BoolArray, FloatArray, IntArray

LEARN, CHOOSE, JUDGE = range(3)
"""What a record is for."""

PENALTIES: tuple[float, ...] = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1e3)
"""C of a logistic regression, the strongest penalty first."""


def splits(
    member: ArrayLike, *, rng: np.random.Generator, n: int = 20, clusters: Labels | None = None
) -> list[IntArray]:
    """Random splits by 7 : 1 : 2, with the same share of members in each part.

    Args:
        member: (r,) which records are members.
        rng: decides who goes where.
        n: number of splits.
        clusters: (r,) labels of records that belong together; none is split.

    Returns:
        A split each, (r,) of `LEARN`, `CHOOSE` and `JUDGE`.

    Raises:
        TooFewRecordsError: where a tenth of the records would be left without one side.
    """
    tenths = (folds(member, n=10, rng=rng, clusters=clusters) for _ in range(n))
    return [np.select([tenth < 7, tenth < 8], [LEARN, CHOOSE], JUDGE) for tenth in tenths]


def learnt_aucs(rows: FloatArray, member: ArrayLike, parts: Sequence[IntArray]) -> FloatArray:
    """AUC of a standardised logistic regression on the judged part of each split, shape (splits,).

    It is fitted to the learning part with each of `PENALTIES`; the one with the smallest log-loss on the
    choosing part is judged (the stronger penalty among equals).

    Args:
        rows: (r, columns) finite features.
        member: (r,) which records are members.
        parts: of `splits`.
    """
    of = labels(member)
    return np.array([_learnt_auc(rows, of, part) for part in parts])


def fixed_aucs(scores: ArrayLike, member: ArrayLike, parts: Sequence[IntArray]) -> FloatArray:
    """AUC of scores that are not learnt on the judged part of each split, shape (splits,).

    Args:
        scores: (r,) finite scores, higher = more likely a member.
        member: (r,) which records are members.
        parts: of `splits`.
    """
    values, of = finite(scores, "scores"), labels(member)
    return np.array([_auc(values, of, part == JUDGE) for part in parts])


def _learnt_auc(rows: FloatArray, member: BoolArray, part: IntArray) -> float:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    learn, choose, judge = (part == use for use in (LEARN, CHOOSE, JUDGE))

    def fitted(penalty: float) -> Any:
        model = LogisticRegression(C=penalty, solver="newton-cholesky", tol=1e-9, max_iter=1000)
        return make_pipeline(StandardScaler(), model).fit(rows[learn], member[learn])

    def loss(model: Any) -> float:
        return float(log_loss(member[choose], model.predict_proba(rows[choose])[:, 1]))

    best = min(map(fitted, PENALTIES), key=loss)
    odds = np.zeros(len(rows))
    odds[judge] = best.decision_function(rows[judge])
    return _auc(odds, member, judge)


def _auc(scores: FloatArray, member: BoolArray, some: BoolArray) -> float:
    return auc(scores[some & member], scores[some & ~member])
