"""ICP-Ref: what others ask and are told helps a member least, for it has little left to learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unseen.attacks.base import Known, score_each
from unseen.signals.base import Join, Observations, Signal
from unseen.signals.probed import Aggregate, Aggregation, Unit
from unseen.signals.retrieval import RetrievedProbes
from unseen.targets.access import Access
from unseen.types import Scores


@dataclass(frozen=True)
class IcpRef:
    """In-context probing with demonstrations from a reference pool (ICP-MIA-Ref).

    score = min_j (LL(y | x) - LL(y | C_j, x)): minus the most that a demonstration C_j, one of
    those in the pool with the most similar prompts, raises the log-probability of the response
    (equations 5 to 8, section V-B1). The pool is --reference-pool FILE: records of the same form
    that nobody trained on.

    Attributes:
        probes: how many demonstrations.
        encoder: how prompts are compared: "tfidf" (runs of characters; needs no model), or a folder
            or name of sentence-transformers; the paper takes all-MiniLM-L6-v2.
        join: where a demonstration stands: in an earlier "turn", at the head of the "user" turn, or
            before the record as "plain" text without any template.
        aggregate: how the differences become one score: "min" (the paper), "mean", "median" or
            "quantile".
        quantile: the share of the differences below the score, where the aggregate is a quantile.
        unit: LL is the "mean" over tokens, as in the published code, or their "sum", as in the
            paper's equations.
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "ICP-MIA 2025, arXiv:2512.16292"

    probes: int = 10
    encoder: str = "tfidf"
    join: Join = "turn"
    aggregate: Aggregate = "min"
    quantile: float = 0.25
    unit: Unit = "mean"

    def __post_init__(self) -> None:
        # Both refuse what they cannot do.
        self.signals()
        self._aggregation  # noqa: B018

    def signals(self) -> tuple[Signal, ...]:
        return (self._probed,)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        aggregation = self._aggregation
        return score_each(audited, lambda id_: aggregation.of(audited.get(self._probed, id_)))

    @property
    def _aggregation(self) -> Aggregation:
        return Aggregation(self.aggregate, self.quantile, self.unit)

    @property
    def _probed(self) -> RetrievedProbes:
        return RetrievedProbes(probes=self.probes, encoder=self.encoder, join=self.join)
