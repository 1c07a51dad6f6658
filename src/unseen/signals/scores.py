"""What the other attacks of a run say of a record: for attacks that learn from scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unseen.signals.base import TARGET
from unseen.types import BoolArray, FloatArray, Scores


@dataclass(frozen=True)
class Said:
    """Scores of one record by k attacks, in the order of their names.

    Attributes:
        values: (k,) scores; 0 where there is none.
        scored: (k,) which attacks have scored the record; at least one.
    """

    values: FloatArray
    scored: BoolArray


@dataclass(frozen=True)
class Weights:
    """A logistic model over the scores of k attacks: numbers only, no record is in it.

    log-odds = intercept + sum_j coef_j (c_j - mean_j) / scale_j, where the columns c are the scores, a
    missing one being the median of its attack, and then, for each attack in `flagged`, a 1 where its
    score was missing.

    Attributes:
        median: (k,) of each attack's scores; an attack that had none has None, and no say.
        flagged: numbers of the attacks of which a missing score has a say.
        mean: of each column.
        scale: of each column.
        coef: of each column.
        intercept: log-odds where all columns are at their mean.
    """

    median: tuple[float | None, ...]
    flagged: tuple[int, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    coef: tuple[float, ...]
    intercept: float

    def log_odds(self, said: Sequence[Said]) -> FloatArray:
        """Log-odds of membership, shape (n,), of records that k attacks have scored."""
        if not said:
            return np.array([])
        used = [j for j, value in enumerate(self.median) if value is not None]
        median = np.array([self.median[j] for j in used], dtype=np.float64)
        values = np.array([one.values for one in said])[:, used]
        scored = np.array([one.scored for one in said])
        columns = np.hstack(
            [
                np.where(scored[:, used], values, median),
                ~scored[:, list(self.flagged)],
            ]
        )
        standard = (columns - np.array(self.mean)) / np.array(self.scale)
        # Row by row: a product of matrices rounds by how many rows there are.
        weighed: FloatArray = (standard * np.array(self.coef)).sum(axis=1) + self.intercept
        return weighed


@dataclass(frozen=True)
class Odds:
    """What another audit's weights say of a record.

    Attributes:
        log_odds: of membership.
    """

    log_odds: float


@dataclass(frozen=True)
class LentOdds:
    """The log-odds that weights learned in another audit give each record.

    They are made after the other attacks have scored, and never measured.

    Attributes:
        of: the role of the model that was attacked.
        reference: whether the weights count attacks that need a reference model.
    """

    gives: ClassVar[type] = Odds
    of: str = TARGET
    reference: bool = True

    def gather(
        self, scores: Mapping[str, Scores], weights: Weights | None = None
    ) -> dict[str, Odds]:
        """Log-odds of each record that any attack has scored.

        Args:
            scores: attack -> its scores, of the attacks that were weighed, all of them.
            weights: of the attacks, in the order of their names; without them nothing is said.
        """
        if weights is None:
            return {}
        said = AttackScores().gather(scores)
        odds = weights.log_odds(list(said.values())).tolist()
        return {id_: Odds(value) for id_, value in zip(said, odds, strict=True)}


@dataclass(frozen=True)
class AttackScores:
    """What every other attack of the run says of a record; baselines and what learns left out.

    It is made after the other attacks have scored (`unseen.runs.judge`), and never measured.

    Attributes:
        of: the role of the model that was attacked.
        reference: whether attacks that need a reference model or shadow models count.
        text_only: whether attacks that need more than text do not.
    """

    gives: ClassVar[type] = Said
    of: str = TARGET
    reference: bool = True
    text_only: bool = False

    def gather(self, scores: Mapping[str, Scores]) -> dict[str, Said]:
        """What is said of each record that any attack has scored."""
        by_attack = [
            dict(zip(scores[name].ids, scores[name].values.tolist(), strict=True))
            for name in sorted(scores)
        ]
        ids = dict.fromkeys(id_ for one in by_attack for id_ in one)
        return {
            id_: Said(
                np.array([one.get(id_, 0.0) for one in by_attack]),
                np.array([id_ in one for one in by_attack], dtype=bool),
            )
            for id_ in ids
        }


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
