"""Demonstrations of others, and which of them are most like a record in their prompts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from unseen.errors import UnscorableError
from unseen.signals.embedding import text_encoder
from unseen.signals.kept import Kept
from unseen.types import FloatArray, Record

TFIDF = "tfidf"
"""The encoder that needs no model."""


class Index(Protocol):
    """The prompts of a pool, ready to be compared with another."""

    def similarities(self, prompt: str) -> FloatArray:
        """Cosine similarity to each prompt of the pool, shape (n,)."""


class Pool:
    """Demonstrations: records of others that a probe may show.

    Args:
        records: at least one; none of them is judged.
        alike: id of a judged record -> places of demonstrations that repeat it, or nearly so. Those
            with the very same text are found without it.
        cache: folder for the vectors of prompts, one file for each pool and encoder; None keeps
            nothing.

    Attributes:
        records: as given.
    """

    def __init__(
        self,
        records: Sequence[Record],
        alike: Mapping[str, Collection[int]] | None = None,
        cache: Path | None = None,
    ) -> None:
        self.records = tuple(records)
        self._kept = Kept(cache)
        self._alike = alike or {}
        self._texts = [_folded(record.text) for record in self.records]
        self._indexes: dict[str, Index] = {}

    def index(self, encoder: str) -> Index:
        """The prompts as an encoder sees them; made once.

        Raises:
            ModelError: where the encoder cannot be loaded.
            MissingExtraError: where it needs a package that is not installed.
        """
        if encoder not in self._indexes:
            prompts = [prompt_of(record) for record in self.records]
            self._indexes[encoder] = (
                _Tfidf(prompts) if encoder == TFIDF else _Sentences(prompts, encoder, self._kept)
            )
        return self._indexes[encoder]

    def nearest(self, record: Record, encoder: str) -> list[int]:
        """Places of all demonstrations but those that repeat the record, most similar first.

        Equal ones stand in the order of the pool.

        Raises:
            UnscorableError: where the record has no prompt.
        """
        prompt = prompt_of(record)
        if not prompt.strip():
            reason = "there is no prompt to find demonstrations by"
            raise UnscorableError(reason)
        order = np.argsort(-self.index(encoder).similarities(prompt), kind="stable").tolist()
        own, alike = _folded(record.text), self._alike.get(record.id, ())
        return [at for at in order if at not in alike and self._texts[at] != own]


def prompt_of(record: Record) -> str:
    """What demonstrations are compared by: the user's turns, or the whole of a document.

    The response must not choose its own probes: what is similar in x says nothing of y.
    """
    if record.turns[0].role == "text":
        return record.text
    return "\n".join(turn.content for turn in record.turns if turn.role == "user")


class _Tfidf:
    """TF-IDF over runs of two to four characters within words, so that any script will do."""

    def __init__(self, prompts: Sequence[str]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self._vectors = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True)
        try:
            self._matrix: Any = self._vectors.fit_transform(prompts)
        except ValueError:  # nothing but white space in any of them: all are equally unlike
            self._matrix = None
        self._n = len(prompts)

    def similarities(self, prompt: str) -> FloatArray:
        if self._matrix is None:
            return np.zeros(self._n)
        found: FloatArray = (self._matrix @ self._vectors.transform([prompt]).T).toarray()[:, 0]
        # Rounding depends on the order of sums: what is equal must not be told apart by it.
        return found.round(12)


class _Sentences:
    """A sentence encoder, by its folder or name."""

    def __init__(self, prompts: Sequence[str], encoder: str, kept: Kept) -> None:
        self._encoder = text_encoder(encoder)
        content = hashlib.sha256(json.dumps(prompts).encode()).hexdigest()
        made_of = ("prompts", self._encoder.fingerprint, content)
        found: FloatArray | None = kept.get(*made_of)
        if found is None or len(found) != len(prompts):
            found = self._encoder.vectors(list(prompts))
            kept.put(found, *made_of)
        self._matrix = found

    def similarities(self, prompt: str) -> FloatArray:
        found: FloatArray = self._matrix @ self._encoder.vectors([prompt])[0]
        return found


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
