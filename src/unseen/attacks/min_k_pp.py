"""Min-K%++: a member's tokens are likely, as tokens at their places go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unseen.attacks.base import Known, mean_of_lowest, score_each
from unseen.errors import UnscorableError
from unseen.signals.base import Observations, Signal
from unseen.signals.checks import check_share
from unseen.signals.token_stats import TokenStatistics
from unseen.targets.access import Access
from unseen.types import Scores, TokenStats

_EPS = 1e-6


@dataclass(frozen=True)
class MinKPlusPlus:
    """Mean z-score of the tokens that lie lowest in the model's own distribution.

    z_t = (log p(x_t | x_<t) - mu_t) / sigma_t, where mu_t and sigma_t are mean and standard
    deviation of log p(v | x_<t) over v ~ p(. | x_<t);
    score = mean of the max(1, floor(k n)) lowest z_t (Zhang et al. 2025).
    sigma_t is at least 1e-6, so that a place where the model is certain does not divide by 0.

    Attributes:
        k: share of the tokens, in (0, 1]. At 1 this is the mean z-score of all tokens.
    """

    access: ClassVar[Access] = Access.LOGIT
    paper: ClassVar[str] = "Zhang et al. 2025, arXiv:2404.02936"

    k: float = 0.2

    def __post_init__(self) -> None:
        check_share("k", self.k)

    def signals(self) -> tuple[Signal, ...]:
        return (TokenStatistics(),)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        def formula(id_: str) -> float:
            stats: TokenStats = audited.get(TokenStatistics(), id_)
            if stats.mean is None or stats.sd is None:
                reason = "the target gives no moments of its distribution"
                raise UnscorableError(reason)
            z = (stats.logprob - stats.mean) / np.maximum(stats.sd, _EPS)
            return mean_of_lowest(z, self.k)

        return score_each(audited, formula)
