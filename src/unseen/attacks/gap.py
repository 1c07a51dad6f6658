"""GAP: a model answers its own demonstrations more often right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unseen.attacks.base import PROMPT, Known, score_each
from unseen.signals.answered import Answer, Answered
from unseen.signals.base import Observations, Signal
from unseen.targets.access import Access
from unseen.types import Scores


@dataclass(frozen=True)
class RightAnswer:
    """1 where the model behind the prompt gives the record its own label, else 0 (section 4.1).

    An answer that is no label counts as wrong; how many there were is reported.

    Attributes:
        longest: the most tokens of an answer.
    """

    access: ClassVar[Access] = Access.TEXT
    paper: ClassVar[str] = "Wen et al. 2024, arXiv:2409.01380"
    scenario: ClassVar[str] = PROMPT

    longest: int = 10

    def signals(self) -> tuple[Signal, ...]:
        return (Answered(longest=self.longest),)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        (signal,) = self.signals()

        def formula(id_: str) -> float:
            answer: Answer = audited.get(signal, id_)
            return float(answer.right)

        return score_each(audited, formula)
