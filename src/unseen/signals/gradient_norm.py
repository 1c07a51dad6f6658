"""How hard a record would still pull at the weights: the norm of its own gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unseen.errors import UnscorableError
from unseen.signals.base import TARGET, Materials
from unseen.signals.checks import check_choice
from unseen.signals.gradient_drift import TOKENS, Tokens, asked_about
from unseen.targets.looks import WEIGHTS, Look, NormLook, Seen, Weights
from unseen.types import Passage, Record


@dataclass(frozen=True)
class Norm:
    """The size of a record's own gradient.

    Attributes:
        norm: its Euclidean norm, in nats per unit of the weights.
        n_tokens: how many tokens the loss is a mean over.
        literal: whether the record was differentiated by itself; else in a batch.
    """

    norm: float
    n_tokens: int
    literal: int


@dataclass(frozen=True)
class GradientNorm:
    """||grad L||_2, L the mean negative log-likelihood of the tokens of a record that count.

    Attributes:
        of: the role of the model whose gradient it is.
        tokens: "all" scored tokens, or the "first" of them that is not blank.
        weights: the gradient of "all" weights, or of the "adapter"'s alone.
    """

    gives: ClassVar[type] = Norm
    private: ClassVar[bool] = False
    of: str = TARGET
    tokens: Tokens = "all"
    weights: Weights = "all"

    def __post_init__(self) -> None:
        for name, choices in (("tokens", TOKENS), ("weights", WEIGHTS)):
            check_choice(name, getattr(self, name), choices)

    def look(self, materials: Materials) -> Look:  # noqa: ARG002
        """One norm."""
        return NormLook(self.weights)

    def passages(self, record: Record, materials: Materials) -> tuple[Passage, ...]:
        """The record up to the last token that counts."""
        return (asked_about(record, materials, self.tokens),)

    def see(self, seen: Sequence[Seen]) -> Norm:
        """The norm, where it is a number."""
        (one,) = seen
        if not np.isfinite(one["norm"]):
            reason = "the gradient has no finite norm"
            raise UnscorableError(reason)
        return Norm(float(one["norm"]), int(one["n_tokens"]), int(one["literal"]))
