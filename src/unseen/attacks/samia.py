"""SaMIA: given the beginning of a member, a model writes more of its very words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unseen.attacks.base import Known, score_each
from unseen.signals.base import Observations, Signal
from unseen.signals.recited import RecitedWords
from unseen.targets.access import Access
from unseen.types import FloatArray, Scores


@dataclass(frozen=True)
class Samia:
    """Words that a model's own continuations share with the rest of the text; needs text alone.

    score = mean over j = 1 .. n of ROUGE-1 recall(y_rest, candidate_j) [times the bytes of
    candidate_j after zlib], where candidate_j is drawn after the beginning of the response (Kaneko
    et al. 2024, section 3). Words are compared without case; letters are, where words are not set
    apart by spaces. A text of one word has no rest, and is unscored.

    Attributes:
        samples: n, the continuations of each record: the cost is n times writing the rest anew.
        prefix: share of the response's words that the model is given, in (0, 1).
        temperature: of sampling.
        top_k: the tokens that are drawn from, the likeliest k; 0 means all.
        longest: the most tokens of a continuation, which never has more than the rest.
        zlib: whether repetitive candidates count for less: their bytes after zlib as a factor.
        seed: another seed, other texts.
    """

    access: ClassVar[Access] = Access.TEXT
    paper: ClassVar[str] = "Kaneko et al. 2024, arXiv:2404.11262"
    on_request: ClassVar[bool] = True

    samples: int = 10
    prefix: float = 0.5
    temperature: float = 1.0
    top_k: int = 50
    longest: int = 1024
    zlib: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        self.signals()  # refuses what cannot be done

    def signals(self) -> tuple[Signal, ...]:
        return (self._recited,)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        def formula(id_: str) -> float:
            seen = audited.get(self._recited, id_)
            shared: FloatArray = seen.recall * seen.n_compressed if self.zlib else seen.recall
            return float(np.mean(shared))

        return score_each(audited, formula)

    @property
    def _recited(self) -> RecitedWords:
        return RecitedWords(
            samples=self.samples,
            prefix=self.prefix,
            temperature=self.temperature,
            top_k=self.top_k,
            longest=self.longest,
            seed=self.seed,
        )
