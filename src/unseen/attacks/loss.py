"""Loss: members are more likely under the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unseen.attacks.base import Known, mean_logprob, score_each
from unseen.signals.base import Observations, Signal
from unseen.signals.token_stats import TokenStatistics
from unseen.targets.access import Access
from unseen.types import Scores


@dataclass(frozen=True)
class Loss:
    """Mean log-probability of the scored tokens.

    score = LL(x) = (1/n) sum_t log p(x_t | x_<t), in nats per token (Yeom et al. 2018,
    section 3.3).
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "Yeom et al. 2018, arXiv:1709.01604"

    def signals(self) -> tuple[Signal, ...]:
        return (TokenStatistics(),)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        return score_each(audited, lambda id_: mean_logprob(audited.get(TokenStatistics(), id_)))
