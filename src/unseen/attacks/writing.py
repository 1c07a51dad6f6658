"""Writing: do members and non-members differ in how they are written? It asks no model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unseen.attacks.base import Known, lessons, score_each, unscored
from unseen.errors import UnscorableError
from unseen.signals.base import Observations, Signal
from unseen.signals.form import WritingForm
from unseen.targets.access import Access
from unseen.types import Scores


@dataclass(frozen=True)
class Writing:
    """What a classifier of case, white space, punctuation and length says, fitted to known records.

    Two exports of one source can differ by a trailing line break or by lower case alone: words do
    not show it, and a model sees it in every token. score = log-odds of membership by a logistic
    regression on standardised features (after the blind baselines of Das et al. 2024, which take
    words and dates). Where it beats chance, the two files were written by different hands.
    """

    access: ClassVar[Access] = Access.TEXT
    paper: ClassVar[str] = "Das et al. 2024, arXiv:2406.16201"
    fitted: ClassVar[bool] = True
    blind: ClassVar[bool] = True

    def signals(self) -> tuple[Signal, ...]:
        return (WritingForm(),)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:
        try:
            learned, member = lessons(known, WritingForm())
        except UnscorableError as error:
            return unscored(audited.ids, error.problem)
        matrix = np.stack([form.values for form in learned.values()])
        if not np.ptp(matrix, axis=0).any():
            return unscored(audited.ids, "the known records are all written alike")
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        model = make_pipeline(
            StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=1000)
        )
        model.fit(matrix, member)

        def formula(id_: str) -> float:
            values = audited.get(WritingForm(), id_).values
            return float(model.decision_function(values[None])[0])

        return score_each(audited, formula)
