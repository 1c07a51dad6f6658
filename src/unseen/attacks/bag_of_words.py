"""Bag of words: do members and non-members differ by themselves? It asks no model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from unseen.attacks.base import Known, lessons, measured, score_each, unscored
from unseen.errors import UnscorableError
from unseen.signals.base import Observations, Signal
from unseen.signals.text import WordCounts, Words
from unseen.targets.access import Access
from unseen.types import BoolArray, FloatArray, IntArray, Scores

TREES = 100


@dataclass(frozen=True)
class BagOfWords:
    """What a classifier of the words alone says, fitted to known records.

    Where it beats chance on records that it was not fitted to, members and non-members are
    different texts, and no attack on them shows what the model remembers.

    "forest": score = P(member) by a random forest of 100 trees of depth 2, at least 5 records a
    leaf, on word counts (Meeus et al. 2025). "logistic": score = log-odds of membership by a
    logistic regression on TF-IDF weights, which adds up many small differences. Both weigh the
    two classes alike, so that scores of folds with unequal shares of members compare.

    Attributes:
        model: "forest" or "logistic".
        min_df: share of the known records that a word occurs in, at least, to count; in [0, 1).
    """

    access: ClassVar[Access] = Access.TEXT
    paper: ClassVar[str] = "Meeus et al. 2025, arXiv:2406.17975"
    fitted: ClassVar[bool] = True
    blind: ClassVar[bool] = True
    variants: ClassVar[tuple[str, ...]] = ("bag_of_words[model=logistic]",)

    model: Literal["forest", "logistic"] = "forest"
    min_df: float = 0.05

    def __post_init__(self) -> None:
        if self.model not in ("forest", "logistic"):
            msg = f"got model={self.model!r}, expected 'forest' or 'logistic'"
            raise ValueError(msg)
        if not 0 <= self.min_df < 1:
            msg = f"got min_df={self.min_df}, expected a share of at least 0 and below 1"
            raise ValueError(msg)

    def signals(self) -> tuple[Signal, ...]:
        return (WordCounts(),)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:
        try:
            values = self._judge(measured(audited, WordCounts()), known)
        except UnscorableError as error:
            return unscored(audited.ids, error.problem)

        def formula(id_: str) -> float:
            audited.get(WordCounts(), id_)
            return values[id_]

        return score_each(audited, formula)

    def _judge(self, audited: dict[str, Words], known: Known | None) -> dict[str, float]:
        counted, member = lessons(known, WordCounts())
        columns = _frequent(counted, self.min_df)
        if not len(columns):
            reason = f"no word occurs in a share of {self.min_df} of the known records"
            raise UnscorableError(reason)
        if not audited:
            return {}
        fit = _forest if self.model == "forest" else _logistic
        values = fit(_matrix(counted, columns), member)(_matrix(audited, columns))
        return dict(zip(audited, values.tolist(), strict=True))


def _frequent(counted: dict[str, Words], min_df: float) -> IntArray:
    """Numbers of the words that occur in a share of `min_df` of the records, sorted."""
    columns, n = np.unique(
        np.concatenate([words.columns for words in counted.values()]), return_counts=True
    )
    frequent: IntArray = columns[n >= min_df * len(counted)]
    return frequent


def _matrix(counted: dict[str, Words], columns: IntArray) -> Any:
    """Sparse counts of the given words, shape (len(counted), len(columns))."""
    from scipy.sparse import csr_array

    numbers, counts, starts = [], [], [0]
    for words in counted.values():
        keep = np.isin(words.columns, columns)
        numbers.append(np.searchsorted(columns, words.columns[keep]))
        counts.append(words.counts[keep].astype(np.float64))
        starts.append(starts[-1] + int(keep.sum()))
    # Trees take 32-bit indices only.
    indices, ends = np.concatenate(numbers).astype(np.int32), np.array(starts, dtype=np.int32)
    return csr_array((np.concatenate(counts), indices, ends), shape=(len(counted), len(columns)))


def _forest(matrix: Any, member: BoolArray) -> Callable[[Any], FloatArray]:
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(
        TREES, max_depth=2, min_samples_leaf=5, class_weight="balanced", random_state=0
    )
    forest.fit(matrix, member)
    return lambda rows: np.asarray(forest.predict_proba(rows)[:, 1])


def _logistic(matrix: Any, member: BoolArray) -> Callable[[Any], FloatArray]:
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegression

    weights = TfidfTransformer().fit(matrix)
    model = LogisticRegression(class_weight="balanced", max_iter=1000)
    model.fit(weights.transform(matrix), member)
    return lambda rows: np.asarray(model.decision_function(weights.transform(rows)))
