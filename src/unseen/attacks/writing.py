"""Writing: do members and non-members differ in how they are written? It asks no model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unseen.attacks.base import Known, score_each
from unseen.signals.base import Observations, Signal
from unseen.signals.form import Form, WritingForm
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
        if known is None:
            return _none(audited, "no records of known membership to learn from")
        learned = _measured(known.observations)
        labels = dict(zip(known.observations.ids, known.member.tolist(), strict=True))
        member = np.array([labels[id_] for id_ in learned], dtype=bool)
        if member.all() or not member.any():
            return _none(audited, "the known records are all members or all non-members")
        matrix = np.stack([form.values for form in learned.values()])
        if not np.ptp(matrix, axis=0).any():
            return _none(audited, "the known records are all written alike")
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


def _measured(observations: Observations) -> dict[str, Form]:
    """Features by record id, sorted, so that the order of the records has no say."""
    values = observations.values.get(WritingForm(), {})
    return {id_: values[id_] for id_ in sorted(observations.ids) if id_ in values}


def _none(audited: Observations, reason: str) -> Scores:
    return Scores((), np.array([]), dict.fromkeys(audited.ids, reason))
