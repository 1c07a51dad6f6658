"""Hybrid: what a model completes of a record and how firmly it holds its label, weighed by known trials."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from unseen.attacks.base import PROMPT, Known, check_finite, examples, score_each, unscored
from unseen.errors import UnscorableError
from unseen.signals.base import Observations, Signal
from unseen.signals.checks import check_choice
from unseen.signals.completed import COMPARE, Compare, Completed
from unseen.signals.flipped import FlippedChoice, FlippedText
from unseen.signals.learned import Training, learn
from unseen.targets.access import Access
from unseen.types import FloatArray, Scores

Model = Literal["net", "logistic"]
Mode = Literal["text", "choice"]

_TRAINING = Training((16,), learning_rate=1e-2, weight_decay=1e-4, epochs=500, batch=0)


@dataclass(frozen=True)
class Hybrid:
    """A classifier of two numbers: the similarity of `repeat` and the count of `brainwash`.

    score = f(similarity, count), the log-odds of membership, where f is a net of one hidden layer of 16
    units that learns from known trials (Wen et al. 2024, section 6, who leave its settings open: ReLU,
    Adam at 0.01, weight decay 0.0001, 500 epochs of all records at once, both numbers standardised), or a
    logistic model. No trial is judged by a model that has learned from it. A record that either
    attack leaves out is left out.

    Attributes:
        model: f: "net" or "logistic".
        words: how many words the model is given, as in `repeat`.
        compare: "full" or "completion", as there.
        encoder: how texts are compared, as there.
        mode: "text" or "choice", as in `brainwash`.
        cap: as there.
        seed: of the net's first weights.
    """

    access: ClassVar[Access] = Access.TEXT
    paper: ClassVar[str] = "Wen et al. 2024, arXiv:2409.01380"
    scenario: ClassVar[str] = PROMPT
    threshold: ClassVar[float] = 0.0
    fitted: ClassVar[bool] = True

    model: Model = "net"
    words: int = 3
    compare: Compare = "full"
    encoder: str = "minilm"
    mode: Mode = "text"
    cap: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("model", self.model, ("net", "logistic"))
        check_choice("compare", self.compare, COMPARE)
        check_choice("mode", self.mode, ("text", "choice"))
        self.signals()  # refuses what cannot be done
        if self.mode == "choice":  # needs more, of this object alone
            object.__setattr__(self, "access", Access.LOGPROB)

    def signals(self) -> tuple[Signal, ...]:
        flipped = FlippedText(cap=self.cap) if self.mode == "text" else FlippedChoice(cap=self.cap)
        return (Completed(words=self.words, encoder=self.encoder), flipped)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:
        training = dataclasses.replace(_TRAINING, seed=self.seed)
        try:
            learned = learn(*examples(known, self._row), self.model, training)
        except UnscorableError as error:
            return unscored(audited.ids, error.problem)

        def formula(id_: str) -> float:
            return float(learned.score(self._row(audited, id_)[None]).item())

        return score_each(audited, formula)

    def _row(self, seen: Observations, id_: str) -> FloatArray:
        """Similarity and count of one record, shape (2,)."""
        completion, flips = (seen.get(signal, id_) for signal in self.signals())
        row = np.array([completion.by(self.compare), flips.counts.mean()])
        check_finite(row)
        return row
