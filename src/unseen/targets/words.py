"""Words of a text in any script, and the words that a tokenizer knows."""

from __future__ import annotations

import functools
import unicodedata
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from unseen.types import IntArray

Span = tuple[int, int]

_STARTS = (
    "Ġ",
    "▁",
)  # how tokens of byte-level BPE and of sentencepiece write a space before a word
_CONTINUES = "##"  # how tokens of WordPiece say that there is none
# Scripts that put no spaces between words: a letter is as good as a word there.
_UNSPACED = (
    ("\u0e00", "\u0eff"), ("\u1000", "\u109f"), ("\u1780", "\u17ff"), ("\u3040", "\u30ff"),
    ("\u3400", "\u9fff"), ("\uf900", "\ufaff"), ("\U00020000", "\U0003ffff"),
)  # fmt: skip


def word_spans(text: str) -> list[Span]:
    """Where the words of a text are: (start, stop) of each, in order.

    A word is a run of letters and digits with the marks that are written on them, and with
    apostrophes between letters. In scripts without spaces every letter is one.

    >>> [slice(*span) and "It's 东京."[slice(*span)] for span in word_spans("It's 东京.")]
    ["It's", '东', '京']
    """
    spans: list[Span] = []
    start: int | None = None
    for i, letter in enumerate(text):
        own = is_unspaced(letter) and letter.isalnum()
        if start is not None and (own or not _goes_on(text, i)):
            spans.append((start, i))
            start = None
        if own or (start is None and letter.isalnum()):
            start = i
        elif start is not None and is_unspaced(text[start]) and letter.isalnum():
            spans.append((start, i))
            start = i
    if start is not None:
        spans.append((start, len(text)))
    return spans


def _goes_on(text: str, i: int) -> bool:
    """Whether a word that has begun goes on at i."""
    letter = text[i]
    if letter.isalnum() or unicodedata.category(letter).startswith("M"):
        return True
    return letter in "'’" and text[i - 1].isalpha() and text[i + 1 : i + 2].isalpha()


def is_unspaced(letter: str) -> bool:
    """Whether a letter is of a script that puts no spaces between words."""
    return letter > "\u0dff" and any(first <= letter <= last for first, last in _UNSPACED)


def cased_like(word: str, original: str) -> str:
    """The word in the case of another: all capitals, a capital first, or as it is.

    >>> cased_like("doctor", "NURSE"), cased_like("doctor", "Nurse"), cased_like("Paris", "nurse")
    ('DOCTOR', 'Doctor', 'Paris')
    """
    if len(original) > 1 and original.isupper():
        return word.upper()
    if original[:1].isupper():
        return word[:1].upper() + word[1:]
    return word


class Vocabulary:
    """The tokens of a tokenizer that are whole words.

    Args:
        tokenizer: of transformers.

    Attributes:
        ids: (w,) the tokens that are whole words.
        words: the word that each of them is, as it is written in the vocabulary.
    """

    def __init__(self, tokenizer: Any) -> None:
        n = len(tokenizer)
        raw = [str(token) for token in tokenizer.convert_ids_to_tokens(list(range(n)))]
        read = tokenizer.batch_decode([[i] for i in range(n)], clean_up_tokenization_spaces=False)
        spaced = sum(token.startswith(_STARTS) for token in raw) > n // 100
        special = set(tokenizer.all_special_ids)
        ids: list[int] = []
        words: list[str] = []
        for i, (token, shown) in enumerate(zip(raw, read, strict=True)):
            word = shown.strip()
            whole = token.startswith(_STARTS) if spaced else not token.startswith(_CONTINUES)
            if i in special or not word or not (whole or is_unspaced(word[0])):
                continue
            if "\N{REPLACEMENT CHARACTER}" not in word and word_spans(word) == [(0, len(word))]:
                ids.append(i)
                words.append(word)
        self.ids: IntArray = np.array(ids, dtype=np.int64)
        self.words = tuple(words)

    @functools.cached_property
    def folded(self) -> tuple[str, ...]:
        """The words without their case."""
        return tuple(word.casefold() for word in self.words)

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        places: dict[str, int] = {}
        for at, word in enumerate(self.words):
            places.setdefault(word, at)
        for at, word in enumerate(self.folded):  # where the word is known in another case only
            places.setdefault(word, at)
        return places

    def place(self, word: str) -> int | None:
        """Where a word is in `words`, in its own case or in another; None where it is not."""
        at = self._places.get(word)
        return self._places.get(word.casefold()) if at is None else at
