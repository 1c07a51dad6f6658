"""Reference: a member is more likely than a model without it expects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unseen.attacks.base import Known, mean_logprob, score_each
from unseen.signals.base import REFERENCE, Observations, Signal
from unseen.signals.text import SameText
from unseen.signals.token_stats import TokenStatistics
from unseen.targets.access import Access
from unseen.types import Scores


@dataclass(frozen=True)
class Reference:
    """Log-likelihood ratio to a reference model, for each token of the target.

    score = (1/n) (sum_t log p(x_t | x_<t) - sum_s log p_ref(x_s | x_<s)), t over the n tokens
    that the text is for the target, s over those that it is for the reference (Carlini et al.
    2021, section 5.2; Mireshghallah et al. 2022). With one tokenizer it is the difference of the
    means. With two, means would be of unlike units, while the sums are still log-probabilities of
    the same text; a record of which the two models read different parts is unscored.
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "Mireshghallah et al. 2022, arXiv:2203.03929"

    def signals(self) -> tuple[Signal, ...]:
        return (TokenStatistics(), TokenStatistics(of=REFERENCE), SameText(of=REFERENCE))

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        def formula(id_: str) -> float:
            target = audited.get(TokenStatistics(), id_)
            reference = audited.get(TokenStatistics(of=REFERENCE), id_)
            audited.get(SameText(of=REFERENCE), id_)  # has its reason where they differ
            ratio = len(reference.logprob) / max(1, len(target.logprob))
            return mean_logprob(target) - ratio * mean_logprob(reference)

        return score_each(audited, formula)
