"""Fusion: what all other attacks say together, weighed by records that are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unseen.attacks.base import Known, lessons, measured, score_each, unscored
from unseen.errors import UnscorableError
from unseen.signals.base import Observations, Signal
from unseen.signals.scores import AttackScores, Said, Weights
from unseen.targets.access import Access
from unseen.types import BoolArray, Scores


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
    these already hold labels of the records that it would judge. Named alone it learns from the
    attacks of an ordinary audit; beside others, from these: `--attacks default,fusion,loss`.

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
    odds = learned(list(said.values()), member).log_odds(list(audited.values()))
    return dict(zip(audited, odds.tolist(), strict=True))


def learned(said: Sequence[Said], member: BoolArray) -> Weights:
    """The weights that minimise the loss on known records.

    Args:
        said: what k attacks say of each of n records.
        member: (n,) their membership, both kinds.
    """
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    # Scores, shape (records, attacks), with NaN where there is none: the library's sign for it.
    scores = np.array([np.where(one.scored, one.values, np.nan) for one in said])
    some = np.flatnonzero(~np.isnan(scores).all(axis=0))  # what has scored none teaches nothing
    filled = SimpleImputer(strategy="median", add_indicator=True)
    scaled = StandardScaler()
    columns: Any = make_pipeline(filled, scaled).fit_transform(scores[:, some])
    # The solver that ends at the minimum itself, not near it.
    model = LogisticRegression(
        class_weight="balanced", solver="newton-cholesky", tol=1e-9, max_iter=1000
    ).fit(columns, member)
    median: list[float | None] = [None] * scores.shape[1]
    for place, value in zip(some.tolist(), filled.statistics_.tolist(), strict=True):
        median[place] = value
    return Weights(
        tuple(median),
        tuple(some[filled.indicator_.features_].tolist()),
        tuple(scaled.mean_.tolist()),
        tuple(scaled.scale_.tolist()),
        tuple(model.coef_[0].tolist()),
        float(model.intercept_[0]),
    )
