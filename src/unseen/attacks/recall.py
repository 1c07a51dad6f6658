"""ReCaLL: a prefix of non-members disturbs members more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unseen.attacks.base import Known, mean_logprob, ratio_to, score_each
from unseen.signals.base import Observations, Signal
from unseen.signals.checks import check_count
from unseen.signals.prefixed import PrefixedStatistics
from unseen.signals.token_stats import TokenStatistics
from unseen.targets.access import Access
from unseen.types import Scores


@dataclass(frozen=True)
class Recall:
    """How many times worse the text is predicted after known non-members.

    score = LL(x | P) / LL(x), LL the mean log-probability of the same tokens, P = known
    non-members (Xie et al. 2024). Both are negative; a member loses more.

    Attributes:
        shots: how many known non-members make up P.
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "Xie et al. 2024, arXiv:2406.15968"

    shots: int = 7

    def __post_init__(self) -> None:
        check_count("shots", self.shots)

    def signals(self) -> tuple[Signal, ...]:
        return (TokenStatistics(), self._prefixed)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        def formula(id_: str) -> float:
            plain = mean_logprob(audited.get(TokenStatistics(), id_))
            return ratio_to(plain, mean_logprob(audited.get(self._prefixed, id_)))

        return score_each(audited, formula)

    @property
    def _prefixed(self) -> PrefixedStatistics:
        return PrefixedStatistics(known="nonmembers", shots=self.shots)
