"""PAC: swapping words drives a member's likely and unlikely tokens further apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unseen.attacks.base import Known, check_finite, score_each
from unseen.signals.base import Observations, Signal
from unseen.signals.swapped import SwappedPolarity
from unseen.targets.access import Access
from unseen.types import Scores


@dataclass(frozen=True)
class PolarizedAugment:
    """Polarised distance, calibrated by texts with words swapped (PAC).

    score = mean_j PD(x_j) - PD(x), PD = mean of the 5 % likeliest tokens - mean of the 30 % least
    likely, x_j = x with random pairs of words of the response swapped (Ye et al. 2024). A member
    has few unlikely tokens as it is, and many once it is disturbed. It asks six questions of a
    record, so it is run where it is named.

    Attributes:
        augments: how many texts x_j.
        swaps: pairs of words that change places, as a share of the words.
        top: share of the tokens that are the likeliest.
        bottom: share of the tokens that are the least likely.
        seed: of the draws, which follow from it and from the text.
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "Ye et al. 2024, arXiv:2405.11930"
    on_request: ClassVar[bool] = True

    augments: int = 5
    swaps: float = 0.3
    top: float = 0.05
    bottom: float = 0.3
    seed: int = 0

    def __post_init__(self) -> None:
        self.signals()  # refuses what makes no sense

    def signals(self) -> tuple[Signal, ...]:
        return (self._swapped,)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        def formula(id_: str) -> float:
            polarities = audited.get(self._swapped, id_)
            check_finite(polarities.own, polarities.swapped)
            return float(polarities.swapped.mean()) - float(polarities.own)

        return score_each(audited, formula)

    @property
    def _swapped(self) -> SwappedPolarity:
        return SwappedPolarity(
            augments=self.augments,
            swaps=self.swaps,
            top=self.top,
            bottom=self.bottom,
            seed=self.seed,
        )
