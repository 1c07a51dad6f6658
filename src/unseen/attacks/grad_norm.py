"""Gradient norm: what a model has learned, it has little left to learn from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unseen.attacks.base import Known, score_each
from unseen.errors import UnscorableError
from unseen.signals.base import Observations, Signal
from unseen.signals.gradient_drift import Tokens
from unseen.signals.gradient_norm import GradientNorm, Norm
from unseen.targets.access import Access
from unseen.targets.looks import Weights
from unseen.types import Scores


@dataclass(frozen=True)
class GradNorm:
    """Minus the log of the norm of a record's own gradient.

    score = -log ||grad_theta L(x, y)||_2, L the mean negative log-likelihood of the tokens: the
    gradient norm of Wang et al. 2024, a part of the white-box features of Nasr et al. 2019. Its log
    orders records alike, and is a score that others can weigh.

    It needs no step, so half precision and quantised layers beside an adapter will do. In bfloat16
    a norm is rounded by a percent, and now and then by many; what is compared should be measured in
    float32.

    Attributes:
        weights: the gradient of "all" weights, or of the "adapter"'s alone.
        tokens: L is over "all" scored tokens, or the "first" of them that is not blank.
    """

    access: ClassVar[Access] = Access.WHITE_BOX
    paper: ClassVar[str] = "Wang et al. 2024, arXiv:2402.17012"
    on_request: ClassVar[bool] = True
    with_weights: ClassVar[bool] = True

    weights: Weights = "all"
    tokens: Tokens = "all"

    def __post_init__(self) -> None:
        self.signals()  # refuses what cannot be

    def signals(self) -> tuple[Signal, ...]:
        return (GradientNorm(tokens=self.tokens, weights=self.weights),)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        (signal,) = self.signals()

        def formula(id_: str) -> float:
            seen: Norm = audited.get(signal, id_)
            if seen.norm == 0:
                reason = "the gradient is zero"
                raise UnscorableError(reason)
            return -float(np.log(seen.norm))

        return score_each(audited, formula)
