"""Transferred fusion: the scores of all attacks, weighed as another audit has learned to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unseen.attacks.base import Known, score_each
from unseen.signals.base import Observations, Signal
from unseen.signals.scores import LentOdds
from unseen.targets.access import Access
from unseen.types import Scores


@dataclass(frozen=True)
class Transferred:
    """The logistic model of another audit's `fusion`, applied to the scores of this one.

    score = b + sum_j w_j z_j, the log-odds of membership, with the weights w, b and the
    standardisation z of the audit that --trained-from RUN names (weighed as in Maini et al. 2024). It
    is for the attacker who has no records of known membership of this model, but of another one: a
    shadow of it, or an earlier release. No label of this audit has a say in it.

    Attributes:
        reference: whether scores count that compare the target with a reference model.
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "Maini et al. 2024, arXiv:2406.06443"
    variants: ClassVar[tuple[str, ...]] = ("transferred[reference=False]",)

    reference: bool = True

    def signals(self) -> tuple[Signal, ...]:
        return (LentOdds(reference=self.reference),)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        (signal,) = self.signals()
        return score_each(audited, lambda id_: audited.get(signal, id_).log_odds)
