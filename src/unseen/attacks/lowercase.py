"""Lowercase: what was learned by heart suffers when its capitals are taken away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unseen.attacks.base import Known, mean_logprob, ratio_to, score_each
from unseen.signals.base import Observations, Signal
from unseen.signals.token_stats import TokenStatistics
from unseen.targets.access import Access
from unseen.types import Scores


@dataclass(frozen=True)
class Lowercase:
    """How many times worse the text is predicted in lower case.

    score = LL(lower(x)) / LL(x), LL the mean log-probability (Carlini et al. 2021, section 5.2).
    Text that lower case does not change has no score.
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "Carlini et al. 2021, arXiv:2012.07805"

    def signals(self) -> tuple[Signal, ...]:
        return (TokenStatistics(), TokenStatistics(case="lower"))

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        def formula(id_: str) -> float:
            lower = mean_logprob(audited.get(TokenStatistics(case="lower"), id_))
            return ratio_to(mean_logprob(audited.get(TokenStatistics(), id_)), lower)

        return score_each(audited, formula)
