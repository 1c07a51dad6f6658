"""Min-K%: a member has few tokens that surprise the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unseen.attacks.base import Known, mean_of_lowest, score_each
from unseen.signals.base import Observations, Signal
from unseen.signals.checks import check_share
from unseen.signals.token_stats import TokenStatistics
from unseen.targets.access import Access
from unseen.types import Scores


@dataclass(frozen=True)
class MinK:
    """Mean log-probability of the least likely tokens.

    score = mean of the max(1, floor(k n)) lowest log p(x_t | x_<t) (Shi et al. 2024).

    Attributes:
        k: share of the tokens, in (0, 1]. At 1 this is `loss`.
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "Shi et al. 2024, arXiv:2310.16789"

    k: float = 0.2

    def __post_init__(self) -> None:
        check_share("k", self.k)

    def signals(self) -> tuple[Signal, ...]:
        return (TokenStatistics(),)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        def formula(id_: str) -> float:
            return mean_of_lowest(audited.get(TokenStatistics(), id_).logprob, self.k)

        return score_each(audited, formula)
