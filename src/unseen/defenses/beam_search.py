"""Beam search: the model answers with the likeliest text of several that it follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from unseen.defenses.base import Defense, Helper
from unseen.prompts.labels import Labels
from unseen.targets.access import LogprobTarget
from unseen.targets.defended import SampledTarget
from unseen.types import Sampling


@dataclass(frozen=True)
class BeamSearch(Defense):
    """Answers are those of a beam search, whatever the adversary asks for (section 6).

    Each question is searched by itself, to its full length, and what follows a stop is cut off
    afterwards: so an answer does not depend on what else is asked, and it costs several times as much.
    Needs a model that runs here. Probabilities are what they were.

    Attributes:
        beams: texts that are followed.
    """

    paper: ClassVar[str] = "Neighborhood Deviation Attack Against In-Context Learning, section 6"

    beams: int = 4

    def __post_init__(self) -> None:
        if self.beams <= 1:
            msg = f"got beams={self.beams}, expected 2 or more: one is what the model does anyway"
            raise ValueError(msg)

    def target(
        self,
        target: LogprobTarget,
        helpers: Mapping[str, Helper],  # noqa: ARG002
        labels: Labels | None = None,  # noqa: ARG002
    ) -> LogprobTarget:
        """The same model, whose answers are searched.

        Raises:
            AccessError: where it has no beam search.
        """
        return SampledTarget(target, Sampling(beams=self.beams))
