"""Neighborhood: a member is likelier than texts that say nearly the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unseen.attacks.base import Known, score_each
from unseen.signals.base import Observations, Signal
from unseen.signals.neighbours import NeighbourLikelihoods, SwappedLikelihoods
from unseen.targets.access import Access
from unseen.types import Scores


@dataclass(frozen=True)
class Neighborhood:
    """How much likelier the text is than neighbours with one other word.

    score = LL(x) - (1/N) sum_j LL(x_j), LL the mean log-probability of a token, x_j the N best swaps
    of one word, by p(other) / (1 - p(original)) of a masked language model that sees the word but
    dimly (Mattern et al. 2023). It asks N + 1 times as much as `loss`, so it is run
    where it is named.

    Attributes:
        neighbours: N.
        top_k: other words for each word that N are chosen from.
        filler: the folder or hub name of a masked language model, such as FacebookAI/roberta-base;
            "embeddings", the word embeddings of the target, which know nothing of grammar, or
            "embeddings:MODEL", those of another model.
        dropout: share of a word's embedding that the masked language model does not see.
        seed: another seed, another share.
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "Mattern et al. 2023, arXiv:2305.18462"
    on_request: ClassVar[bool] = True

    neighbours: int = 20
    top_k: int = 5
    filler: str = "embeddings"
    dropout: float = 0.7
    seed: int = 0

    def __post_init__(self) -> None:
        self.signals()  # refuses what it cannot measure

    def signals(self) -> tuple[Signal, ...]:
        return (self._swapped,)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        def formula(id_: str) -> float:
            seen: NeighbourLikelihoods = audited.get(self._swapped, id_)
            neighbours = seen.neighbours / seen.neighbour_tokens
            return seen.plain / seen.n_tokens - float(np.mean(neighbours))

        return score_each(audited, formula)

    @property
    def _swapped(self) -> SwappedLikelihoods:
        return SwappedLikelihoods(
            filler=self.filler,
            neighbours=self.neighbours,
            top_k=self.top_k,
            dropout=self.dropout,
            seed=self.seed,
        )
