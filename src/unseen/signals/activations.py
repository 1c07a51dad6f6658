"""What every layer of a model makes of a record: its hidden states, averaged over tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from unseen.errors import UnscorableError
from unseen.signals.base import TARGET, Materials
from unseen.signals.checks import check_choice
from unseen.targets.looks import Look, Seen, StatesLook
from unseen.types import FloatArray, Passage, Record

Pooled = Literal["all", "response"]
POOLED: tuple[Pooled, ...] = get_args(Pooled)


@dataclass(frozen=True)
class States:
    """Mean hidden states.

    Attributes:
        states: (layers + 1, width) float32; row 0 is the embedding's output.
    """

    states: FloatArray


@dataclass(frozen=True)
class Activations:
    """Hidden states of every layer, as means over the tokens of a record.

    Text can be read back from hidden states, so they stay in the cache, and never reach a run folder.

    Attributes:
        of: the role of the model that is looked into.
        tokens: "all" tokens but the first, which is the same whatever follows and in many models of
            quite another size; or those of the "response", which are scored.
    """

    gives: ClassVar[type] = States
    private: ClassVar[bool] = True
    of: str = TARGET
    tokens: Pooled = "all"

    def __post_init__(self) -> None:
        check_choice("tokens", self.tokens, POOLED)

    def look(self, materials: Materials) -> Look:  # noqa: ARG002
        """All layers at once."""
        return StatesLook()

    def passages(self, record: Record, materials: Materials) -> tuple[Passage, ...]:
        """The whole record."""
        encoded = materials.encoder.encode(record)
        every = range(1, len(encoded.ids))
        places = [place for place in every if self.tokens == "all" or encoded.scored[place]]
        if not places:
            reason = "no token to read"
            raise UnscorableError(reason)
        return (Passage(encoded.ids, tuple(places)),)

    def see(self, seen: Sequence[Seen]) -> States:
        """The states, where they are numbers."""
        (one,) = seen
        if not np.isfinite(one["states"]).all():
            reason = "a hidden state is not finite"
            raise UnscorableError(reason)
        return States(one["states"])
