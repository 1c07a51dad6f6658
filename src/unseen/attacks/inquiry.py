"""Inquiry: a model that is asked whether it has seen a sentence says yes to its demonstrations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unseen.attacks.base import PROMPT, Known, score_each
from unseen.signals.base import Observations, Signal
from unseen.signals.inquired import Inquired
from unseen.targets.access import Access
from unseen.types import Scores


@dataclass(frozen=True)
class Inquiry:
    """1 where the model, asked whether it has seen the record, says yes first, else 0.

    score = 1[the first word of the reply is yes] (Wen et al. 2024, section 4.2). What says neither
    yes nor no is no yes; how many there were is reported.

    Attributes:
        wording: the question, with "{input}" for the record.
        cue: whether "Answer:" follows, for models that go on with a text.
        longest: the most tokens of a reply.
    """

    access: ClassVar[Access] = Access.TEXT
    paper: ClassVar[str] = "Wen et al. 2024, arXiv:2409.01380"
    scenario: ClassVar[str] = PROMPT
    threshold: ClassVar[float] = 1.0

    wording: str = "Have you seen this sentence before: {input}?"
    cue: bool = False
    longest: int = 10

    def __post_init__(self) -> None:
        self.signals()  # refuses what cannot be done

    def signals(self) -> tuple[Signal, ...]:
        return (Inquired(wording=self.wording, cue=self.cue, longest=self.longest),)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        (signal,) = self.signals()
        return score_each(audited, lambda id_: float(audited.get(signal, id_).agreed))
