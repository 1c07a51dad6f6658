"""Sampling: the model does not answer with its likeliest tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from unseen.defenses.base import Defense, Helper
from unseen.prompts.labels import Labels
from unseen.targets.access import LogprobTarget
from unseen.targets.defended import SampledTarget
from unseen.types import Sampling as Draws


@dataclass(frozen=True)
class Sampling(Defense):
    """Answers are drawn, whatever the adversary asks for: top-k, top-p, temperature (section 6).

    One question draws one answer however often it is asked: the seed decides, so that a run can be
    repeated. Probabilities, where the model gives them, are what they were.

    Attributes:
        temperature: of the draws.
        top_k: the tokens to draw from; 0 means all.
        top_p: of these, the fewest whose probability reaches this share.
        seed: another seed, other answers.
    """

    paper: ClassVar[str] = "Neighborhood Deviation Attack Against In-Context Learning, section 6"

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.temperature:
            msg = "got temperature=0.0, expected more: at 0 nothing is drawn"
            raise ValueError(msg)
        self._draws  # noqa: B018 (it refuses what makes no sense)

    def target(
        self,
        target: LogprobTarget,
        helpers: Mapping[str, Helper],  # noqa: ARG002
        labels: Labels | None = None,  # noqa: ARG002
    ) -> LogprobTarget:
        """The same model, whose answers are drawn."""
        return SampledTarget(target, self._draws)

    @property
    def _draws(self) -> Draws:
        return Draws(self.temperature, self.top_k, self.top_p, self.seed)
