"""How common each token of a record is elsewhere: in a corpus like what the model has read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unseen.errors import UnscorableError
from unseen.signals.base import TARGET, Materials
from unseen.types import BoolArray, FloatArray, Record


@dataclass(frozen=True)
class Frequencies:
    """How common the n scored tokens of one record are elsewhere.

    Attributes:
        first: (n,) whether the token has not occurred before among them.
        frequency: (n,) its share of the tokens of the corpus, smoothed.
    """

    first: BoolArray
    frequency: FloatArray


@dataclass(frozen=True)
class TokenFrequencies:
    """`Frequencies` of the tokens that `TokenStatistics` scores, in the same order.

    They would give text away, so they are used and never kept.

    Attributes:
        of: the role of the model whose tokens are meant.
    """

    gives: ClassVar[type] = Frequencies
    private: ClassVar[bool] = True
    needs_corpus: ClassVar[bool] = True
    of: str = TARGET

    def measure(
        self, records: Sequence[Record], materials: Materials
    ) -> list[Frequencies | UnscorableError]:
        """Frequencies in the corpus, or why there are none."""
        if materials.corpus is None:
            return [UnscorableError("there is no corpus to count tokens in") for _ in records]
        frequencies = materials.corpus.frequencies(materials.encoder.tokenizer)
        return [self._of_one(record, materials, frequencies) for record in records]

    def _of_one(
        self, record: Record, materials: Materials, frequencies: FloatArray
    ) -> Frequencies | UnscorableError:
        try:
            encoded = materials.encoder.encode(record)
        except UnscorableError as error:
            return error
        ids = np.array(encoded.ids)[encoded.scored]
        first = np.zeros(len(ids), dtype=bool)
        first[np.unique(ids, return_index=True)[1]] = True
        return Frequencies(first, frequencies[ids])
