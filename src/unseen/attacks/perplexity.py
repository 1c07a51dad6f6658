"""Perplexity: the loss on the scale that language modellers read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unseen.attacks.base import Known, mean_logprob, score_each
from unseen.signals.base import Observations, Signal
from unseen.signals.token_stats import TokenStatistics
from unseen.targets.access import Access
from unseen.types import Scores


@dataclass(frozen=True)
class Perplexity:
    """Minus the perplexity of the scored tokens; ranks records as `loss` does.

    score = -exp(-LL(x)), LL the mean log-probability (Carlini et al. 2021, section 4.2).
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "Carlini et al. 2021, arXiv:2012.07805"

    def signals(self) -> tuple[Signal, ...]:
        return (TokenStatistics(),)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        def formula(id_: str) -> float:
            return float(-np.exp(-mean_logprob(audited.get(TokenStatistics(), id_))))

        return score_each(audited, formula)
