"""Fusion: what all other attacks say together, weighed by records that are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unseen.attacks.base import Known, lessons, measured, score_each, unscored
from unseen.errors import UnscorableError
from unseen.signals.base import Observations, Signal
from unseen.signals.scores import AttackScores, Said
from unseen.targets.access import Access
from unseen.types import BoolArray, FloatArray, Scores


@dataclass(frozen=True)
class Fusion:
    """One logistic model over the scores of all other attacks, fitted to known records.

    score = b + sum_j w_j z_j, the log-odds of membership (as Maini et al. 2024 weigh
    scores by a linear model). z_j is the score of attack j, standardised on the known records;
    where it is missing, their median stands for it, and one more z says that it was missing. w
    and b minimise the logistic loss plus |w|^2 / 2, both classes weighing alike, so that scores of
    folds with unequal shares of members compare. Nothing else is chosen.

    It learns from known records, so an attacker needs some; no record is judged by a model that
    was fitted to it. Baselines, and attacks that learn themselves, are left out: the scores of
    these already hold labels of the records that it would judge.

    Attributes:
        reference: whether scores count that compare the target with a reference model.
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "Maini et al. 2024, arXiv:2406.06443"
    fitted: ClassVar[bool] = True
    variants: ClassVar[tuple[str, ...]] = ("fusion[reference=False]",)

    reference: bool = True

    def signals(self) -> tuple[Signal, ...]:
        return (AttackScores(reference=self.reference),)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:
        (signal,) = self.signals()
        try:
            values = _judge(measured(audited, signal), known, signal)
        except UnscorableError as error:
            return unscored(audited.ids, error.problem)

        def formula(id_: str) -> float:
            audited.get(signal, id_)
            return values[id_]

        return score_each(audited, formula)


def _judge(audited: dict[str, Said], known: Known | None, signal: Signal) -> dict[str, float]:
    said, member = lessons(known, signal)
    if not audited:
        return {}
    values = _fitted(_matrix(said), member)(_matrix(audited))
    return dict(zip(audited, values.tolist(), strict=True))


def _matrix(said: dict[str, Said]) -> FloatArray:
    """Scores, shape (records, attacks), with NaN where there is none: the library's sign for it."""
    return np.array([np.where(one.scored, one.values, np.nan) for one in said.values()])


def _fitted(scores: FloatArray, member: BoolArray) -> Callable[[FloatArray], FloatArray]:
    """The log-odds that the known records teach: (n, attacks) -> (n,)."""
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    some = ~np.isnan(scores).all(axis=0)  # an attack that has scored none of them teaches nothing
    ready: Any = make_pipeline(
        SimpleImputer(strategy="median", add_indicator=True), StandardScaler()
    )
    columns = ready.fit_transform(scores[:, some])
    # The solver that ends at the minimum itself, not near it.
    model = LogisticRegression(
        class_weight="balanced", solver="newton-cholesky", tol=1e-9, max_iter=1000
    ).fit(columns, member)

    def log_odds(rows: FloatArray) -> FloatArray:
        ready_rows = np.ascontiguousarray(ready.transform(rows[:, some]))
        # Row by row: a product of matrices rounds by how many rows there are.
        weighed: FloatArray = (ready_rows * model.coef_[0]).sum(axis=1) + model.intercept_[0]
        return weighed

    return log_odds
