"""Fusion: what all other attacks say together, weighed by records that are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unseen.attacks.base import Known, weighed
from unseen.signals.base import Observations, Signal
from unseen.signals.scores import AttackScores
from unseen.targets.access import Access
from unseen.types import Scores


@dataclass(frozen=True)
class Fusion:
    """One logistic model over the scores of all other attacks, fitted to known records.

    score = b + sum_j w_j z_j, the log-odds of membership (as Maini et al. 2024 weigh
    scores by a linear model). z_j is the score of attack j, standardised on the known records;
    where it is missing, their median stands for it, and one more z says that it was missing. w
    and b minimise the logistic loss plus |w|^2 / 2, both classes weighing alike, so that scores of
    folds with unequal shares of members compare. Nothing else is chosen.

    It learns from known records, so an attacker needs some; no record is judged by a model that
    was fitted to it. Baselines, and attacks that learn themselves, are left out: the scores of
    these already hold labels of the records that it would judge. Named alone it learns from the
    attacks of an ordinary audit; beside others, from these: `--attacks default,fusion,loss`.

    Attributes:
        reference: whether scores count that compare the target with a reference model.
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "Maini et al. 2024, arXiv:2406.06443"
    fitted: ClassVar[bool] = True
    variants: ClassVar[tuple[str, ...]] = ("fusion[reference=False]",)

    reference: bool = True

    def signals(self) -> tuple[Signal, ...]:
        return (AttackScores(reference=self.reference),)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:
        return weighed(audited, known, *self.signals())
