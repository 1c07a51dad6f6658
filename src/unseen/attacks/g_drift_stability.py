"""G-Drift under paraphrase: does a record's drift stay the same where its prompt is said in other words?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from unseen.attacks.base import Known, check_finite, score_each
from unseen.errors import UnscorableError
from unseen.signals.base import Observations, Signal
from unseen.signals.gradient_drift import Tokens
from unseen.signals.paraphrased import Drifts, ParaphrasedDrift
from unseen.signals.variants import Source
from unseen.targets.access import Access
from unseen.targets.looks import Axis, State, Weights
from unseen.types import Scores


@dataclass(frozen=True)
class ParaphraseStability:
    """How steady the drift of a record's projection is over paraphrases of its prompt.

    With a_j the drift (h' - h) . v of the record (j = 0) and of its k paraphrases, each with the same
    answer and a step of its own: score = -sd(a) / mean(|a|), the standard deviation over the k + 1 of
    them (k degrees of freedom), relative to how large they are (Table 3: members drift alike however
    they are asked for, non-members drift less, and less alike). The paper shows this of one fact. A
    record that is known so well that hardly a gradient is left drifts little, and what is left can be
    the less even for it: where members score lower, that is what was found.

    Attributes:
        eta: length of the step, in units of the gradient.
        tokens: y: the "first" token of the answer that is not blank (the paper's), or "all".
        state: h is read "after" the final norm, or "before" it.
        axis: v: a "random" unit vector (the paper's), "state" (along h), "given" (--directions).
        seed: of the random one.
        weights: "all" take the step, or the "adapter"'s alone.
        method: "batched" (exact, without copies of the weights), or "literal" (Algorithm 1).
        paraphrases: k, the most paraphrases of a record.
        source: of a "file" (--paraphrases FILE), or "generate" has a model write them (--generator
            MODEL, or the reference).
    """

    access: ClassVar[Access] = Access.WHITE_BOX
    paper: ClassVar[str] = "G-Drift 2026, arXiv:2604.00419"
    on_request: ClassVar[bool] = True

    eta: float = 1e-2
    tokens: Tokens = "first"
    state: State = "after"
    axis: Axis = "random"
    seed: int = 0
    weights: Weights = "all"
    method: Literal["batched", "literal"] = "batched"
    paraphrases: int = 2
    source: Source = "file"

    def __post_init__(self) -> None:
        self.signals()  # refuses what cannot be

    def signals(self) -> tuple[Signal, ...]:
        return (
            ParaphrasedDrift(
                eta=self.eta,
                tokens=self.tokens,
                state=self.state,
                axis=self.axis,
                seed=self.seed,
                weights=self.weights,
                method=self.method,
                paraphrases=self.paraphrases,
                source=self.source,
            ),
        )

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        (signal,) = self.signals()
        return score_each(audited, lambda id_: steadiness(audited.get(signal, id_)))


def steadiness(drifts: Drifts) -> float:
    """-sd / mean of the absolute value, of the drifts of one record.

    Raises:
        UnscorableError: where there are fewer than two, or none of them moves.
    """
    moved = drifts.moved
    check_finite(moved)
    size = float(np.abs(moved).mean()) if len(moved) > 1 else 0.0
    if not size:
        reason = "the step does not move the projection"
        raise UnscorableError(reason)
    return -float(moved.std(ddof=1)) / size
