"""What the text alone says, without any model: its sizes, its words, and who reads all of it."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unseen.errors import UnscorableError
from unseen.signals.base import REFERENCE, TARGET, Encoder, Materials
from unseen.types import IntArray, Record

_WORD, _SPACED = re.compile(r"\w+"), re.compile(r"\S+")


@dataclass(frozen=True)
class Size:
    """Sizes of a text, in bytes of UTF-8.

    Attributes:
        n_bytes: as it is.
        n_compressed: after zlib at its default level.
    """

    n_bytes: int
    n_compressed: int


@dataclass(frozen=True)
class CompressedSize:
    """Bytes of the scored text, and bytes after zlib (Carlini et al. 2021, section 5.2)."""

    gives: ClassVar[type] = Size
    private: ClassVar[bool] = False
    of: str = TARGET

    def measure(
        self, records: Sequence[Record], materials: Materials
    ) -> list[Size | UnscorableError]:
        """Sizes of exactly the text whose tokens are scored."""
        return [self._of_one(record, materials) for record in records]

    def _of_one(self, record: Record, materials: Materials) -> Size | UnscorableError:
        try:
            text = materials.encoder.scored_text(record).encode()
        except UnscorableError as error:
            return error
        return Size(len(text), len(zlib.compress(text)))


@dataclass(frozen=True)
class CommonText:
    """The text that two models are scored on alike.

    Attributes:
        n_bytes: its size in UTF-8.
        same_tokens: whether it is also the same token ids for both, so that they may be compared
            token by token.
    """

    n_bytes: int
    same_tokens: bool = False


@dataclass(frozen=True)
class SameText:
    """Whether the model in a role is scored on the same text of a record as the target.

    It is not where one of them is cut earlier (another limit, other tokens), or has no token
    before the text, so that the first token of the text is context for it. Log-probabilities of
    two models are compared only where this signal has a value: what differs in text would look
    like membership. How many tokens the text is for either does not matter; whether they are the
    same is told.
    """

    gives: ClassVar[type] = CommonText
    private: ClassVar[bool] = False
    of: str = REFERENCE

    def measure(
        self, records: Sequence[Record], materials: Materials
    ) -> list[CommonText | UnscorableError]:
        """The size of the common text, or that there is none."""
        return [self._of_one(record, materials) for record in records]

    def _of_one(self, record: Record, materials: Materials) -> CommonText | UnscorableError:
        try:
            return common_text(record, materials)
        except UnscorableError as error:
            return error


def common_text(record: Record, materials: Materials) -> CommonText:
    """The text of a record that the model asked is scored on, just as the target is.

    Raises:
        UnscorableError: where they are scored on different texts, or one of them on none.
    """
    text, tokens = _read_by(materials.encoder, record)
    others, its_tokens = _read_by(materials.of_target or materials.encoder, record)
    if text != others:
        reason = "the two models read different parts of this record"
        raise UnscorableError(reason)
    return CommonText(len(text.encode()), same_tokens=tokens == its_tokens)


def _read_by(encoder: Encoder, record: Record) -> tuple[str, list[int]]:
    """The text that is scored, and its token ids."""
    encoded = encoder.encode(record)
    ids: list[int] = np.array(encoded.ids)[encoded.scored].tolist()
    if not encoded.left_out:  # some tokenizers do not give back quite the text that they were given
        return encoder.scored_text(record), ids
    return encoder.tokenizer.decode(ids), ids


@dataclass(frozen=True)
class Words:
    """How often each word occurs in one record.

    Attributes:
        columns: (w,) numbers of the words, shared by all records of one measurement.
        counts: (w,) how often each occurs.
    """

    columns: IntArray
    counts: IntArray


@dataclass(frozen=True)
class WordCounts:
    """Words of the whole record, prompt included, for the blind baseline.

    Word numbers follow the sorted vocabulary of all records, so that their order does not matter.
    The counts would give text away, so they are used and never kept. Text without word breaks
    counts by character.
    """

    gives: ClassVar[type] = Words
    private: ClassVar[bool] = True
    of: str = TARGET

    def measure(self, records: Sequence[Record], materials: Materials) -> list[Words]:  # noqa: ARG002
        """Word numbers and counts of each record."""
        counted = [Counter(words(record.text)) for record in records]
        vocabulary = {word: i for i, word in enumerate(sorted(set().union(*counted)))}
        return [_numbered(counter, vocabulary) for counter in counted]


def words(text: str) -> list[str]:
    """Lower-case words; letters one by one where words are not set apart by spaces.

    >>> words("Ein Kind, ein Hund")
    ['ein', 'kind', 'ein', 'hund']
    >>> words("東京は")
    ['東', '京', 'は']
    """
    folded = text.casefold()
    return [folded[start:stop] for start, stop in word_spans(folded)]


def is_unspaced(text: str) -> bool:
    """Whether a text has letters of a script that sets words apart by no spaces."""
    return any("\u3040" <= one <= "\u9fff" or "\u0e00" <= one <= "\u0eff" for one in text)


def word_spans(text: str, *, marks: bool = False) -> list[tuple[int, int]]:
    """Where the words of a text are, start and stop; letters where spaces do not set words apart.

    With `marks`, a word has all that stands between spaces.
    """
    found: list[tuple[int, int]] = []
    for match in (_SPACED if marks else _WORD).finditer(text):
        if is_unspaced(match[0]):
            found += [(at, at + 1) for at in range(*match.span())]
        else:
            found.append(match.span())
    return found


def _numbered(counter: Counter[str], vocabulary: dict[str, int]) -> Words:
    pairs = sorted((vocabulary[word], count) for word, count in counter.items())
    return Words(
        np.array([column for column, _ in pairs], dtype=np.int64),
        np.array([count for _, count in pairs], dtype=np.int64),
    )
