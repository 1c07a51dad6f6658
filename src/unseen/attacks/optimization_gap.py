"""The optimization gap itself: who has learned a record gains little from one more step on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unseen.attacks.base import Known, score_each
from unseen.signals.base import Observations, Signal
from unseen.signals.one_step import OneStep, StepGain
from unseen.targets.access import Access
from unseen.types import Scores


@dataclass(frozen=True)
class OptimizationGap:
    """Minus what one real optimizer step gains, in nats per token (ICP-MIA, section IV).

    score = LL(y | x; M) - LL(y | x; M'), M' the model after one step of AdamW on a batch that holds
    the record (equation 4; LL is the mean over tokens). In-context probing stands in for it where
    weights cannot be changed; here they can, so it is the oracle that probing is held against
    (Figure 4).

    Attributes:
        batch: the most records in a step.
        learning_rate: of the step.
        seed: another seed, other batches.
    """

    access: ClassVar[Access] = Access.WHITE_BOX
    paper: ClassVar[str] = "ICP-MIA 2025, arXiv:2512.16292"
    on_request: ClassVar[bool] = True
    in_company: ClassVar[bool] = True

    batch: int = 16
    learning_rate: float = 2e-4
    seed: int = 0

    def __post_init__(self) -> None:
        self.signals()  # refuses what cannot be

    def signals(self) -> tuple[Signal, ...]:
        return (OneStep(batch=self.batch, learning_rate=self.learning_rate, seed=self.seed),)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        (signal,) = self.signals()

        def formula(id_: str) -> float:
            seen: StepGain = audited.get(signal, id_)
            return (seen.before - seen.after) / seen.n_tokens

        return score_each(audited, formula)
