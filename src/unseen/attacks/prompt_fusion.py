"""Prompt fusion: what all attacks that need text alone say together, weighed by known trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unseen.attacks.base import PROMPT, Known, weighed
from unseen.signals.base import Observations, Signal
from unseen.signals.scores import AttackScores
from unseen.targets.access import Access
from unseen.types import Scores


@dataclass(frozen=True)
class PromptFusion:
    """One logistic model over the scores of all attacks on a prompt that need text alone.

    score = b + sum_j w_j z_j, the log-odds of membership, made as those of `fusion` are (weighed as in
    Maini et al. 2024). It is for the adversary who knows who was in the prompt in some trials; no
    trial is judged by a model that was fitted to it. Attacks that learn themselves, and those that
    need more than text, are left out.
    """

    access: ClassVar[Access] = Access.TEXT
    paper: ClassVar[str] = "Maini et al. 2024, arXiv:2406.06443"
    scenario: ClassVar[str] = PROMPT
    fitted: ClassVar[bool] = True

    def signals(self) -> tuple[Signal, ...]:
        return (AttackScores(text_only=True),)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:
        return weighed(audited, known, *self.signals())
