"""The same step of G-Drift on a record and on paraphrases of its prompt: is its drift a property of the fact?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unseen.errors import UnscorableError
from unseen.signals.base import GENERATOR, Materials, Signal
from unseen.signals.checks import check_count
from unseen.signals.gradient_drift import GradientDrift, asked_about, drift_of, paraphrased
from unseen.signals.variants import Source, WrittenParaphrases, folded, last_prompt, written_for
from unseen.targets.looks import Seen
from unseen.types import FloatArray, Passage, Record


@dataclass(frozen=True)
class Drifts:
    """What a step on each of k + 1 passages changes: the record's own, then its paraphrases'.

    Attributes:
        loss: (k + 1,) mean negative log-likelihood of the tokens, in nats, before the step.
        loss_after: (k + 1,) the same after it.
        projection: (k + 1,) h . v along the first axis, before the step.
        projection_after: (k + 1,) the same after it.
        drift: (k + 1,) |h' - h|.
        norm: (k + 1,) |h|.
    """

    loss: FloatArray
    loss_after: FloatArray
    projection: FloatArray
    projection_after: FloatArray
    drift: FloatArray
    norm: FloatArray

    @property
    def moved(self) -> FloatArray:
        """Delta alpha of Table 3: (h' - h) . v, (k + 1,)."""
        return self.projection_after - self.projection


@dataclass(frozen=True)
class ParaphrasedDrift(GradientDrift):
    """`GradientDrift` of a record and of its prompt in other words, with the same answer (Table 3).

    Paraphrases are those that the user gives for each record's id, or those of `WrittenParaphrases`. One that repeats the prompt, or another one, is left out: it would show a steadiness that is none. A record without any is unscored.

    Attributes:
        paraphrases: k, the most paraphrases of a record.
        source: "file" or "generate".
    """

    gives: ClassVar[type] = Drifts
    paraphrases: int = 2
    source: Source = "file"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("paraphrases", self.paraphrases)
        if self.source not in ("file", "generate"):
            msg = f"got source={self.source!r}, expected 'file' or 'generate'"
            raise ValueError(msg)

    @property
    def built_on(self) -> tuple[Signal, ...]:
        """What the generator writes."""
        return () if self.source == "file" else (WrittenParaphrases(GENERATOR, self.paraphrases),)

    @property
    def needs_paraphrases(self) -> bool:
        """Whether the user gives the paraphrases."""
        return self.source == "file"

    def passages(self, record: Record, materials: Materials) -> tuple[Passage, ...]:
        """The record, then each of its paraphrases, up to the last token that the loss is over."""
        texts = self._texts(record, materials)
        asked = (record, *(paraphrased(record, text) for text in texts))
        return tuple(asked_about(one, materials, self.tokens) for one in asked)

    def see(self, seen: Sequence[Seen]) -> Any:
        """The features of each passage."""
        found = [drift_of(one) for one in seen]

        def of_each(name: str) -> FloatArray:
            return np.array([np.ravel(getattr(one, name))[0] for one in found], dtype=np.float64)

        return Drifts(**{name: of_each(name) for name in Drifts.__dataclass_fields__})

    def _texts(self, record: Record, materials: Materials) -> Sequence[str]:
        own = last_prompt(record)
        for writing in self.built_on:
            if materials.foreseeing:  # for a plan: as many, and about as long
                return [f"{own} {'.' * j}" for j in range(1, self.paraphrases + 1)]
            return written_for(record, writing, materials)
        given = (materials.paraphrases or {}).get(record.id, ())
        different = {folded(text): text for text in given if folded(text) not in ("", folded(own))}
        if not different:
            reason = "no paraphrase is given for this record"
            if given:
                reason = "every paraphrase that is given repeats the prompt"
            raise UnscorableError(reason)
        return list(different.values())[: self.paraphrases]
