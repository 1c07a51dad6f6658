"""How much of a record a model writes by itself, when it is given the beginning."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unseen.errors import UnscorableError
from unseen.signals.base import TARGET, Materials
from unseen.signals.checks import check_count
from unseen.signals.text import word_spans, words
from unseen.targets.characters import tokens_of
from unseen.types import FloatArray, IntArray, Prompt, Record, Sampling


@dataclass(frozen=True)
class Recited:
    """What n continuations of the beginning of a response have in common with the rest of it.

    Attributes:
        recall: (n,) ROUGE-1 recall: the share of the rest's words that each holds, with repetitions.
        n_compressed: (n,) bytes of each after zlib.
    """

    recall: FloatArray
    n_compressed: IntArray


@dataclass(frozen=True)
class RecitedWords:
    """Words of the rest of a response in what a model writes after its beginning (SaMIA).

    The response is cut after a share of its words (letters, where words are not set apart by
    spaces), at least one and never all; what the record says before it stays. A continuation has
    as many tokens as the rest, at most. What is written is used, and only counts of it are kept.

    Attributes:
        of: the role of the model asked.
        samples: n, the continuations of each record.
        prefix: share of the words that the model is given, in (0, 1).
        temperature: of sampling; 0 writes the likeliest text, of which there is one.
        top_k: tokens to draw from; 0 means all.
        longest: the most tokens of a continuation.
        seed: another seed, other texts.
    """

    gives: ClassVar[type] = Recited
    private: ClassVar[bool] = False
    of: str = TARGET
    samples: int = 10
    prefix: float = 0.5
    temperature: float = 1.0
    top_k: int = 50
    longest: int = 1024
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("samples", self.samples)
        check_count("longest", self.longest)
        if not 0 < self.prefix < 1:
            msg = f"got prefix={self.prefix}, expected a share between 0 and 1"
            raise ValueError(msg)
        if not self.temperature and self.samples > 1:
            msg = (
                f"got temperature=0 with samples={self.samples}, expected samples=1: all are alike"
            )
            raise ValueError(msg)
        self._sampling  # noqa: B018 (it refuses what makes no sense)

    def prompts(self, record: Record, materials: Materials) -> tuple[Prompt, ...]:
        """As many draws after the beginning as there are samples."""
        said, rest = self.cut(record)
        ids = materials.encoder.prompt(record.turns[:-1], said)
        tokenizer = materials.encoder.tokenizer
        wanted = tokens_of(tokenizer, len(tokenizer.encode(rest)))
        room = materials.encoder.max_length - len(ids)
        longest = max(1, min(wanted, room, self.longest))
        return tuple(Prompt(ids, longest, self._sampling, j) for j in range(self.samples))

    def observe(
        self,
        record: Record,
        materials: Materials,  # noqa: ARG002
        texts: Sequence[str],
    ) -> Recited:
        """Counts of common words."""
        _, rest = self.cut(record)
        expected = words(rest)
        return Recited(
            np.array([recall(words(text), expected) for text in texts]),
            np.array([len(zlib.compress(text.encode())) for text in texts], dtype=np.int64),
        )

    def cut(self, record: Record) -> tuple[str, str]:
        """The beginning of the last response, up to the end of a word, and its rest.

        Raises:
            UnscorableError: where it is not the last that is said, or has fewer than two words.
        """
        last = record.turns[-1]
        if not last.is_response:
            reason = "the record does not end with a response"
            raise UnscorableError(reason)
        spans = word_spans(last.content)
        if len(spans) < 2:
            reason = "too short to be continued: it has fewer than two words"
            raise UnscorableError(reason)
        given = min(max(1, int(self.prefix * len(spans))), len(spans) - 1)
        end = spans[given - 1][1]
        return last.content[:end], last.content[end:]

    @property
    def _sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_k, 1.0, self.seed)


def recall(found: Sequence[str], expected: Sequence[str]) -> float:
    """ROUGE-1 recall: the share of the expected words that were found, each as often as found.

    >>> recall(["a", "b", "b"], ["a", "a", "b", "c"])
    0.5
    """
    common = Counter(found) & Counter(expected)
    return common.total() / len(expected)
