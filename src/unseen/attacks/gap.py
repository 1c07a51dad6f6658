"""GAP: a model answers its own demonstrations more often right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from unseen.attacks.base import PROMPT, Known, score_each
from unseen.signals.answered import Answered
from unseen.signals.base import Observations, Signal
from unseen.signals.checks import check_choice
from unseen.signals.labelled import Labelled
from unseen.targets.access import Access
from unseen.types import Scores

Mode = Literal["text", "choice"]


@dataclass(frozen=True)
class RightAnswer:
    """1 where the model behind the prompt gives the record its own label, else 0.

    score = 1[the model answers y to x] (Wen et al. 2024, section 4.1). An answer that is no label
    counts as wrong; how many there were is reported.

    Attributes:
        mode: the answer is what the model writes ("text"), or the likeliest label ("choice").
        longest: the most tokens of a text; 0 means those of the longest label, and a few more.
    """

    access: ClassVar[Access] = Access.TEXT
    paper: ClassVar[str] = "Wen et al. 2024, arXiv:2409.01380"
    scenario: ClassVar[str] = PROMPT
    threshold: ClassVar[float] = 1.0

    mode: Mode = "text"
    longest: int = 0

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, ("text", "choice"))
        self.signals()  # refuses what cannot be done
        if self.mode == "choice":  # needs more, of this object alone
            object.__setattr__(self, "access", Access.LOGPROB)

    def signals(self) -> tuple[Signal, ...]:
        return (Answered(longest=self.longest),) if self.mode == "text" else (Labelled(),)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        (signal,) = self.signals()
        return score_each(audited, lambda id_: float(audited.get(signal, id_).right))
