"""DC-PDD: rare tokens that the model finds likely speak for membership, common ones do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unseen.attacks.base import Known, check_finite, score_each
from unseen.errors import UnscorableError
from unseen.signals.base import Observations, Signal
from unseen.signals.frequencies import TokenFrequencies
from unseen.signals.token_stats import TokenStatistics
from unseen.targets.access import Access
from unseen.types import Scores


@dataclass(frozen=True)
class DivergenceCalibrated:
    """Cross-entropy of the model's probabilities with those of a corpus (DC-PDD).

    score = mean over the first occurrence t of each token of min(a, p_t log(1 / f_t)), p_t its
    probability under the model, f_t = (count + 1) / (N + V) its smoothed frequency among the N
    tokens of a corpus, V the size of the vocabulary (Zhang et al. 2024). The corpus is
    --corpus FILE, texts like those that the model was pre-trained on, or else the texts of the
    --reference-pool.

    Attributes:
        a: most that one token counts, in nats. The paper tunes it for each model.
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "Zhang et al. 2024, arXiv:2409.14781"

    a: float = 0.01

    def __post_init__(self) -> None:
        if not self.a > 0:
            msg = f"got a={self.a}, expected a number above 0"
            raise ValueError(msg)

    def signals(self) -> tuple[Signal, ...]:
        return (TokenStatistics(), TokenFrequencies())

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        def formula(id_: str) -> float:
            stats, tokens = (audited.get(signal, id_) for signal in self.signals())
            logprob = stats.logprob.astype(np.float64)
            if not len(logprob):
                reason = "no token to score"
                raise UnscorableError(reason)
            check_finite(logprob)
            divergence = -np.exp(logprob) * np.log(tokens.frequency)
            return float(np.minimum(divergence, self.a)[tokens.first].mean())

        return score_each(audited, formula)
