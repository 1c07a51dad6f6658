"""Repeat: given the first words of a demonstration, a model writes the rest of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unseen.attacks.base import PROMPT, Known, score_each
from unseen.signals.base import Observations, Signal
from unseen.signals.checks import check_choice
from unseen.signals.completed import COMPARE, Compare, Completed, Completion
from unseen.signals.embedding import LETTERS
from unseen.targets.access import Access
from unseen.types import Scores


@dataclass(frozen=True)
class Repeat:
    """How much what a model writes after the first words of a record is like the record.

    score = cos(E(x), E(x')), where x' is the first words of x and what the model wrote after them (Wen
    et al. 2024, equation 1); the paper puts the threshold between 0.8 and 0.9. With
    compare="completion" both are without the first words, which records of either kind share with
    what is written. A record of no more words has no rest, and is unscored.

    Attributes:
        words: how many words the model is given.
        compare: "full" or "completion".
        longest: the most tokens that it writes.
        fewest: the tokens before which it does not end.
        encoder: E: "letters", "minilm", or a folder or name of a sentence encoder.
    """

    access: ClassVar[Access] = Access.TEXT
    paper: ClassVar[str] = "Wen et al. 2024, arXiv:2409.01380"
    scenario: ClassVar[str] = PROMPT
    threshold: ClassVar[float | None] = 0.85
    variants: ClassVar[tuple[str, ...]] = ("repeat[compare=completion]",)

    words: int = 3
    compare: Compare = "full"
    longest: int = 64
    fewest: int = 0
    encoder: str = "minilm"

    def __post_init__(self) -> None:
        check_choice("compare", self.compare, COMPARE)
        self.signals()  # refuses what cannot be done
        # The paper's is of what whole texts mean.
        if self.compare != "full" or self.encoder == LETTERS:
            object.__setattr__(self, "threshold", None)

    def signals(self) -> tuple[Signal, ...]:
        return (
            Completed(
                words=self.words, longest=self.longest, fewest=self.fewest, encoder=self.encoder
            ),
        )

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        (signal,) = self.signals()

        def formula(id_: str) -> float:
            seen: Completion = audited.get(signal, id_)
            return seen.by(self.compare)

        return score_each(audited, formula)
