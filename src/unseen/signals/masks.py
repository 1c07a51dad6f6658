"""What of a text a mask can cover: words, tokens or single characters, in any script.

A unit is a stretch of the text that holds a letter or a digit. A text without two units cannot be
masked: covering its only unit would leave nothing, and covering none would give it all away.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection
from typing import Literal

import numpy as np

from unseen.errors import UnscorableError
from unseen.types import Tokenizer

Level = Literal["word", "token", "character"]
Span = tuple[int, int]

LEVELS = ("word", "token", "character")

_WORDS = re.compile(r"\S+")
_BROKEN = "\N{REPLACEMENT CHARACTER}"


def units(text: str, level: Level, tokenizer: Tokenizer | None = None) -> list[Span]:
    """Where the units of a text are, without the white space around them.

    Args:
        text: the text.
        level: what is a unit. A text without two words or tokens is taken character by character.
        tokenizer: whose tokens are meant; needed for tokens only.

    Returns:
        (start, stop) of each, in the order of the text; none overlap.

    Raises:
        UnscorableError: where the tokens cannot be found again in the text.
    """
    if level == "token":
        if tokenizer is None:
            msg = "tokens need a tokenizer"
            raise AssertionError(msg)
        found = [(start, stop) for start, stop, _ in token_spans(text, tokenizer)]
    elif level == "word":
        found = [match.span() for match in _WORDS.finditer(text)]
    else:
        found = characters(text)
    spans = [span for span in (_stripped(text, *span) for span in found) if _says(text, *span)]
    return spans if len(spans) >= 2 else characters(text)


def characters(text: str) -> list[Span]:
    """Letters and digits, each with the marks that are written on it."""
    spans: list[Span] = []
    for i, letter in enumerate(text):
        if letter.isalnum():
            spans.append((i, i + 1))
        elif spans and spans[-1][1] == i and unicodedata.category(letter).startswith("M"):
            spans[-1] = (spans[-1][0], i + 1)
    return spans


def token_spans(text: str, tokenizer: Tokenizer) -> list[tuple[int, int, int]]:
    """Where the tokens of a text are: start, stop, and how many tokens share the stretch.

    Tokens that hold a part of a character each are one stretch with the rest of it.

    Raises:
        UnscorableError: where the tokens do not spell out the text.
    """
    ids = tokenizer.encode(text)
    spans: list[tuple[int, int, int]] = []
    at = 0
    # What a token stands for depends on what stands before it (a leading space, for example), so
    # each is read after the one before, as in streaming.
    before, read = 0, 0
    for i in range(1, len(ids) + 1):
        known = tokenizer.decode(ids[before:read])
        now = tokenizer.decode(ids[before:i])
        piece = now[len(known) :]
        if not piece or (piece.endswith(_BROKEN) and i < len(ids)):
            continue
        if not now.startswith(known) or not text.startswith(piece, at):
            break
        spans.append((at, at + len(piece), i - read))
        at += len(piece)
        before, read = read, i
    if at != len(text):
        reason = "the tokens of the response cannot be found again in its text"
        raise UnscorableError(reason)
    return spans


def how_many(rate: float, n_units: int) -> int:
    """floor(rate * n) of n units, at least one and never all."""
    return min(max(1, int(rate * n_units)), n_units - 1)


def generator(seed: int, number: int, text: str) -> np.random.Generator:
    """Random numbers that follow from a text, a seed and a number alone.

    So a record gets the same masks in any company.
    """
    digest = hashlib.blake2b(f"{seed}|{number}|{text}".encode(), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def drawn(n_units: int, rate: float, *, seed: int, number: int, text: str) -> set[int]:
    """Which units a random mask covers."""
    rng = generator(seed, number, text)
    return set(rng.choice(n_units, size=how_many(rate, n_units), replace=False).tolist())


def covered(text: str, spans: list[Span], chosen: Collection[int], placeholder: str) -> str:
    """The text with a placeholder where the chosen units were; everything else stays."""
    pieces, end = [], 0
    for start, stop in sorted(spans[i] for i in chosen):
        pieces += [text[end:start], placeholder]
        end = stop
    return "".join([*pieces, text[end:]])


def _stripped(text: str, start: int, stop: int) -> Span:
    part = text[start:stop]
    start += len(part) - len(part.lstrip())
    return start, start + len(part.strip())


def _says(text: str, start: int, stop: int) -> bool:
    return any(map(str.isalnum, text[start:stop]))
