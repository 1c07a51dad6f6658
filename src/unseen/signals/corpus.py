"""Texts like what a model has read, and how often each token occurs in them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from unseen.signals.kept import Kept
from unseen.types import FloatArray, IntArray, Tokenizer


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
