"""ICP-Ref: what others ask and are told helps a member least, for it has little left to learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unseen.attacks.base import Known, likelihoods, score_each
from unseen.signals.base import Join, Observations, Signal
from unseen.signals.embedding import LETTERS
from unseen.signals.probed import Aggregate, Aggregation, Unit
from unseen.signals.retrieval import RetrievedProbes
from unseen.signals.similarity import Likelihood, Measure
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
        encoder: how prompts are compared: "tfidf" (runs of characters; needs no model), "minilm"
            (the paper's all-MiniLM-L6-v2), or a folder or name of another sentence encoder.
        join: where a demonstration stands: in an earlier "turn", at the head of the "user" turn, or
            before the record as "plain" text without any template.
        aggregate: how the differences become one score: "min" (the paper), "mean", "median" or
            "quantile".
        quantile: the share of the differences below the score, where the aggregate is a quantile.
        unit: LL is the "mean" over tokens, as in the published code, or their "sum", as in the
            paper's equations.
        likelihood: LL is what the "model" tells, or, for a target that tells its first choices alone,
            what "petal" makes of them with a surrogate's line for the text (section VII-A).
        similarity: how petal compares tokens: "letters", "minilm", or a folder or name.
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "ICP-MIA 2025, arXiv:2512.16292"

    probes: int = 10
    encoder: str = "tfidf"
    join: Join = "turn"
    aggregate: Aggregate = "min"
    quantile: float = 0.25
    unit: Unit = "mean"
    likelihood: Likelihood = "model"
    similarity: str = LETTERS

    def __post_init__(self) -> None:
        # All refuse what they cannot do.
        self._measure.signals()
        self._aggregation  # noqa: B018
        if self.likelihood == "petal":  # needs less, of this object alone
            object.__setattr__(self, "access", Access.LABEL)

    def signals(self) -> tuple[Signal, ...]:
        return self._measure.signals()

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        aggregation, measure = self._aggregation, self._measure
        return score_each(audited, lambda id_: aggregation.of(likelihoods(measure, audited, id_)))

    @property
    def _aggregation(self) -> Aggregation:
        return Aggregation(self.aggregate, self.quantile, self.unit)

    @property
    def _measure(self) -> Measure:
        probes = RetrievedProbes(probes=self.probes, encoder=self.encoder, join=self.join)
        return Measure(probes, self.likelihood, self.similarity)
