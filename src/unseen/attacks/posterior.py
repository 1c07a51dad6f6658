"""Posterior: behind a prompt that holds a record, its label and its text are more likely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from unseen.attacks.base import PROMPT, Known, check_finite, score_each
from unseen.signals.asked import Asked, TextLikelihood
from unseen.signals.base import Observations, Signal
from unseen.signals.checks import check_choice
from unseen.signals.labelled import Labelled, LabelLikelihoods
from unseen.targets.access import Access
from unseen.types import Scores

Part = Literal["x", "y"]


@dataclass(frozen=True)
class Posterior:
    """The log-probability of a record's text, or of its label, behind the prompt, in nats.

    score = mean_t log p(x_t | prompt, x_<t), or log p(y | prompt, x), the label as a whole (Duan et
    al. 2023 take the label's). It needs what an endpoint that only writes does not give: a yardstick
    for attacks that need text alone.

    Attributes:
        of: "x", the text, or "y", the label.
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "Duan et al. 2023, arXiv:2305.15594"
    scenario: ClassVar[str] = PROMPT
    variants: ClassVar[tuple[str, ...]] = ("posterior[of=y]",)

    of: Part = "x"

    def __post_init__(self) -> None:
        check_choice("of", self.of, ("x", "y"))

    def signals(self) -> tuple[Signal, ...]:
        return (Asked(),) if self.of == "x" else (Labelled(),)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        (signal,) = self.signals()

        def formula(id_: str) -> float:
            seen: TextLikelihood | LabelLikelihoods = audited.get(signal, id_)
            check_finite(seen.logprob)
            if isinstance(seen, TextLikelihood):
                return seen.logprob / seen.n_tokens
            return float(seen.logprob[seen.own])

        return score_each(audited, formula)
