"""SPV: a member stands on a peak of likelihood that a model without it does not have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unseen.attacks.base import Known, score_each
from unseen.errors import UnscorableError
from unseen.signals.base import REFERENCE, Observations, Signal
from unseen.signals.neighbours import NeighbourLikelihoods, RefilledLikelihoods
from unseen.signals.text import SameText
from unseen.targets.access import Access
from unseen.types import FloatArray, Scores


@dataclass(frozen=True)
class SelfPromptedVariation:
    """How much likelier the text is than rewritten neighbours, beyond what a reference says.

    score = (p(x) - (1/N) sum_j p(x_j)) - (p_ref(x) - (1/N) sum_j p_ref(x_j)), p = exp(LL), LL the mean
    log-probability of a token of the target (SPV-MIA, Fu et al. 2024). The paper's
    reference is self-prompted: the base model, trained on text that the target has written. Any
    reference will do here, and the results say which it was. It asks both models N + 1 times as much
    as `reference`, so it is run where it is named.

    Attributes:
        neighbours: N.
        log: LL in place of p, for texts so unlikely that exp makes nothing of their differences.
        filler: the folder or hub name of a T5, such as google-t5/t5-large, or of a masked language
            model; "embeddings", the word embeddings of the target, which know nothing of grammar, or
            "embeddings:MODEL", those of another model.
        span: words in a stretch that is written anew.
        rate: share of the words that is.
        buffer: words that stay between two stretches.
        top_k: a word is drawn from so many; a T5 draws from all.
        seed: another seed, other neighbours.
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "Fu et al. 2024, arXiv:2311.06062"
    on_request: ClassVar[bool] = True

    neighbours: int = 10
    log: bool = False
    filler: str = "embeddings"
    span: int = 2
    rate: float = 0.3
    buffer: int = 1
    top_k: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        self.signals()  # refuses what it cannot measure

    def signals(self) -> tuple[Signal, ...]:
        return (self._refilled(), self._refilled(REFERENCE), SameText(of=REFERENCE))

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        def formula(id_: str) -> float:
            target, reference, _ = (audited.get(signal, id_) for signal in self.signals())
            if len(target.neighbours) != len(reference.neighbours):
                reason = "the two models read different neighbours of this record"
                raise UnscorableError(reason)
            return self._peak(target, target) - self._peak(reference, target)

        return score_each(audited, formula)

    def _peak(self, seen: NeighbourLikelihoods, unit: NeighbourLikelihoods) -> float:
        """How far the text stands above its neighbours; means are over the tokens of `unit`."""
        plain = self._of(np.array([seen.plain / unit.n_tokens]))
        neighbours = self._of(seen.neighbours / unit.neighbour_tokens)
        return float(plain.item() - np.mean(neighbours))

    def _of(self, mean: FloatArray) -> FloatArray:
        if not np.isfinite(mean).all():
            reason = "a token has no finite value"
            raise UnscorableError(reason)
        return mean if self.log else np.exp(mean)

    def _refilled(self, of: str = "target") -> RefilledLikelihoods:
        return RefilledLikelihoods(
            of=of,
            filler=self.filler,
            neighbours=self.neighbours,
            top_k=self.top_k,
            span=self.span,
            rate=self.rate,
            buffer=self.buffer,
            seed=self.seed,
        )
