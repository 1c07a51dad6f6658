"""How common each token of a record is elsewhere: in a corpus like what the model has read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from unseen.errors import UnscorableError
from unseen.signals.base import TARGET, Materials
from unseen.signals.kept import Kept
from unseen.types import BoolArray, FloatArray, IntArray, Record, Tokenizer


class Corpus:
    """Texts, and how often each token occurs in them.

    Args:
        texts: at least one.
        cache: folder for counts, one file for each tokenizer and corpus; None keeps nothing.

    Attributes:
        sha256: hash of the texts.
        n: how many there are.
    """

    def __init__(self, texts: Sequence[str], cache: Path | None = None) -> None:
        self._texts = tuple(texts)
        self._kept = Kept(cache)
        self._counts: dict[str, IntArray] = {}
        self.n = len(self._texts)
        content = hashlib.sha256()
        for text in self._texts:
            content.update(hashlib.sha256(text.encode()).digest())
        self.sha256 = content.hexdigest()

    def counts(self, tokenizer: Tokenizer) -> IntArray:
        """How often each token id occurs, shape (size of the vocabulary,)."""
        name = tokenizer.fingerprint
        if name not in self._counts:
            kept = self._kept.get(name, self.sha256)
            fits = kept is not None and kept.shape == (tokenizer.size,) and kept.dtype == np.int64
            self._counts[name] = kept if fits else self._counted(tokenizer)
        return self._counts[name]

    def frequencies(self, tokenizer: Tokenizer) -> FloatArray:
        """(count + 1) / (N + V) of each id: no token is impossible."""
        counts = self.counts(tokenizer)
        smoothed: FloatArray = (counts + 1) / (counts.sum() + len(counts))
        return smoothed

    def _counted(self, tokenizer: Tokenizer) -> IntArray:
        counts: IntArray = np.zeros(tokenizer.size, dtype=np.int64)
        for text in self._texts:
            counts += np.bincount(tokenizer.encode(text), minlength=len(counts))
        self._kept.put(counts, tokenizer.fingerprint, self.sha256)
        return counts


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
