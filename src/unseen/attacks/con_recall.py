"""CON-ReCaLL: a prefix of non-members against a prefix of members."""

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
class ConRecall:
    """What known non-members cost the text, and known members do not.

    score = (LL(x | P_non) - gamma LL(x | P_mem)) / LL(x), LL the mean log-probability of the same
    tokens (Wang et al. 2025).

    Attributes:
        shots: how many known records make up each prefix.
        gamma: weight of the members' prefix, at least 0. At 0 this is `recall`.
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "Wang et al. 2025, arXiv:2409.03363"

    shots: int = 7
    gamma: float = 0.5

    def __post_init__(self) -> None:
        check_count("shots", self.shots)
        if not 0 <= self.gamma < float("inf"):
            msg = f"got gamma={self.gamma}, expected a number of at least 0"
            raise ValueError(msg)

    def signals(self) -> tuple[Signal, ...]:
        return (TokenStatistics(), self._after_nonmembers, self._after_members)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        def formula(id_: str) -> float:
            plain = mean_logprob(audited.get(TokenStatistics(), id_))
            nonmembers = mean_logprob(audited.get(self._after_nonmembers, id_))
            members = mean_logprob(audited.get(self._after_members, id_))
            return ratio_to(plain, nonmembers - self.gamma * members)

        return score_each(audited, formula)

    @property
    def _after_nonmembers(self) -> PrefixedStatistics:
        return PrefixedStatistics(known="nonmembers", shots=self.shots)

    @property
    def _after_members(self) -> PrefixedStatistics:
        return PrefixedStatistics(known="members", shots=self.shots)
