"""Neighbours of a text: the same with a few other words, which another model, the filler, puts in.

A neighbour follows from the text, the filler and the choices alone, so that a record has the same
neighbours in any company, and the same for every model that is asked.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from unseen.errors import UnscorableError
from unseen.signals.masks import generator
from unseen.targets.edits import UNKNOWN, Edit, Swap, edited
from unseen.targets.fillers import Filler
from unseen.targets.words import Span, word_spans

# Part of every key: raise it when the same choices would make other neighbours.
_VERSION = 1
_SPARE = 4  # times as many swaps are kept as are wanted: some may lie where the text is cut off
_FEWEST = 2  # words of a beginning
_SPACED = re.compile(r"\S+")

Neighbour = tuple[Edit, ...]


class Notes(Protocol):
    """Where neighbours are kept and found again."""

    def note(self, key: bytes) -> bytes | None:
        """What was kept under a key, or None."""

    def keep_note(self, key: bytes, value: bytes) -> None:
        """Keeps something under a key."""


class Neighbourhood:
    """Makes neighbours of texts, each once.

    Args:
        fillers: name -> the model that puts words in.
        notes: where they are kept from run to run; None keeps them in memory alone. A note holds
            what was put where, hidden behind a key that follows from the text: who does not have the
            text can neither find nor read it.
    """

    def __init__(self, fillers: Mapping[str, Filler], notes: Notes | None = None) -> None:
        self._fillers = fillers
        self._notes = notes
        self._made: dict[bytes, list[tuple[float, Neighbour]]] = {}

    def of(self, text: str, making: Making) -> list[tuple[float, Neighbour]]:
        """Neighbours of a text, and how well each fits, the best first.

        Raises:
            UnscorableError: with the reason, where there is none.
        """
        filler = self._fillers.get(making.filler)
        if filler is None:
            reason = f"there is no model {making.filler} that fills in words"
            raise UnscorableError(reason)
        choices = json.dumps(dataclasses.asdict(making), sort_keys=True)
        about = f"{_VERSION}|{type(making).__name__}|{choices}|{filler.fingerprint}|{text}".encode()
        key = hashlib.blake2b(about, digest_size=16).digest()
        if key not in self._made:
            kept = None if self._notes is None else self._notes.note(key)
            if kept is None:
                self._made[key] = making.made(text, filler)
                if self._notes is not None:
                    self._notes.keep_note(key, _hidden(_written(self._made[key]), about))
            else:
                self._made[key] = _read(_hidden(kept, about))
        if not self._made[key]:
            raise UnscorableError(UNKNOWN)
        return self._made[key]


def _hidden(value: bytes, secret: bytes) -> bytes:
    """The value under a pad that follows from a secret; twice, it is the value again."""
    pad = hashlib.shake_256(b"neighbours|" + secret).digest(len(value))
    mixed = np.frombuffer(value, dtype=np.uint8) ^ np.frombuffer(pad, dtype=np.uint8)
    return mixed.tobytes()


def _written(made: Sequence[tuple[float, Neighbour]]) -> bytes:
    rows = [[score, [[e.start, e.stop, e.put] for e in edits]] for score, edits in made]
    return json.dumps(rows).encode()


def _read(value: bytes) -> list[tuple[float, Neighbour]]:
    return [(score, tuple(Edit(*edit) for edit in edits)) for score, edits in json.loads(value)]


@dataclass(frozen=True)
class Swapping:
    """One word replaced: the best swaps of all words (Mattern et al. 2023)."""

    filler: str
    neighbours: int
    top_k: int
    dropout: float
    seed: int

    def made(self, text: str, filler: Filler) -> list[tuple[float, Neighbour]]:
        """The best swaps that change the text, in order."""
        rng = generator(self.seed, 0, text)
        try:
            swaps = filler.swaps(text, top_k=self.top_k, dropout=self.dropout, rng=rng)
        except UnscorableError:
            return []
        seen = {text}
        made: list[tuple[float, Neighbour]] = []
        for swap in swaps:
            new = edited(text, (swap.edit,))
            if new not in seen:
                seen.add(new)
                made.append((swap.score, (swap.edit,)))
        return made[: _SPARE * self.neighbours]


@dataclass(frozen=True)
class EarlySwapping:
    """Words of the beginning replaced, and a neighbour drawn for them at random (NDA, section 4.2).

    The whole text says which words fit, though only its beginning changes. Which words are replaced is
    drawn anew for each neighbour, among those that are no stop words (where there are any left); each
    takes the best other that no neighbour has taken. A beginning with fewer words that the filler knows
    has all of them replaced.
    """

    filler: str
    neighbours: int
    top_k: int
    dropout: float
    prefix: float
    seed: int
    replacements: int = 1

    def made(self, text: str, filler: Filler) -> list[tuple[float, Neighbour]]:
        """So many neighbours, in the order of the draws; each fits as its words do in the mean."""
        rng, end = generator(self.seed, 0, text), beginning(text, self.prefix)
        try:
            swaps = filler.swaps(text, top_k=self.top_k, dropout=self.dropout, rng=rng, until=end)
        except UnscorableError:
            return []
        left: dict[Span, list[Swap]] = {}
        for swap in swaps:
            left.setdefault((swap.edit.start, swap.edit.stop), []).append(swap)
        says = {span: _says(text[slice(*span)]) for span in left}
        n = min(self.replacements, max(1, len(left)))
        seen = {text}
        made: list[tuple[float, Neighbour]] = []
        while len(left) >= n and len(made) < self.neighbours:
            swaps = [left[span].pop(0) for span in _drawn(left, says, n, rng)]
            left = {span: others for span, others in left.items() if others}
            edits = tuple(sorted((swap.edit for swap in swaps), key=lambda edit: edit.start))
            new = edited(text, edits)
            if new not in seen:
                seen.add(new)
                made.append((sum(swap.score for swap in swaps) / n, edits))
        return made


def _drawn(
    spans: Iterable[Span], says: Mapping[Span, bool], n: int, rng: np.random.Generator
) -> list[Span]:
    """So many different words, one after the other: those that say something first."""
    left, drawn = sorted(spans), []
    for _ in range(n):
        able = [span for span in left if says[span]] or left
        drawn.append(able[int(rng.integers(len(able)))])
        left.remove(drawn[-1])
    return drawn


def _says(word: str) -> bool:
    """Whether a word is more than a stop word (of English) or a number."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return word.isalpha() and word.casefold() not in ENGLISH_STOP_WORDS


def beginning(text: str, share: float) -> int:
    """Where the first share of the words of a text ends: at least two words, and never all.

    Words are what spaces set apart; in a text with no more than two of these, letters of scripts
    without spaces count as words.

    >>> "What films featured Popeye Doyle?"[: beginning("What films featured Popeye Doyle?", 0.2)]
    'What films'

    Raises:
        UnscorableError: where nothing is left after two words.
    """
    spans = [match.span() for match in _SPACED.finditer(text)]
    if len(spans) <= _FEWEST:
        spans = word_spans(text)
    if len(spans) <= _FEWEST:
        reason = f"too short to be continued: it has {_FEWEST} words or fewer"
        raise UnscorableError(reason)
    given = min(max(_FEWEST, int(share * len(spans))), len(spans) - 1)
    return spans[given - 1][1]


@dataclass(frozen=True)
class Refilling:
    """A share of the words hidden in short stretches and written anew (Fu et al. 2024)."""

    filler: str
    neighbours: int
    top_k: int
    span: int
    rate: float
    buffer: int
    seed: int

    def made(self, text: str, filler: Filler) -> list[tuple[float, Neighbour]]:
        """Two for each choice of stretches; they are as good as each other."""
        words = word_spans(text)
        if not words:
            return []
        seen = {text}
        made: list[tuple[float, Neighbour]] = []
        for number in range(2 * self.neighbours):
            rng = generator(self.seed, number, text)
            spans = stretches(words, span=self.span, rate=self.rate, buffer=self.buffer, rng=rng)
            try:
                pair = filler.refills(text, spans, ways=2, top_k=self.top_k, rng=rng)
            except UnscorableError:  # it knows other words perhaps
                continue
            for edits in pair:
                new = edited(text, edits)
                if new not in seen and len(made) < self.neighbours:
                    seen.add(new)
                    made.append((0.0, edits))
            if len(made) == self.neighbours:
                break
        return made


Making = Swapping | EarlySwapping | Refilling
"""How neighbours are made."""


def stretches(
    words: Sequence[Span], *, span: int, rate: float, buffer: int, rng: np.random.Generator
) -> list[Span]:
    """Stretches of words to hide, drawn at random, in the order of the text.

    Args:
        words: (start, stop) of each word.
        span: words in a stretch; where there are fewer words, all of them.
        rate: stretches are added until this share of the words is hidden, but at least one.
        buffer: words that stay between two stretches.
        rng: draws.
    """
    length = min(span, len(words))
    wanted = max(1, math.floor(rate * len(words) / length))
    chosen: list[int] = []
    for first in rng.permutation(len(words) - length + 1).tolist():
        if all(abs(first - other) >= length + buffer for other in chosen):
            chosen.append(first)
        if len(chosen) == wanted:
            break
    return [(words[first][0], words[first + length - 1][1]) for first in sorted(chosen)]
