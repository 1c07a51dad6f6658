"""Likelihood of a response, and of neighbours of it: the same text with a few other words.

Another model, the filler, puts the words in. Only what is scored is changed; the prompt and the
template stay. A neighbour follows from the text, the filler and the choices alone, so that a record
has the same neighbours in any company, and the same for every model that is asked.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from unseen.errors import UnscorableError
from unseen.signals.base import TARGET, Ask, Encoder, Materials, one_request
from unseen.signals.masks import generator
from unseen.targets.fillers import EMBEDDINGS, UNKNOWN, Edit, Filler, Swap, edited
from unseen.targets.words import Span, word_spans
from unseen.types import FloatArray, IntArray, Record, TokenStats, Turn

# Part of every key: raise it when the same choices would make other neighbours.
_VERSION = 1
_SPARE = 4  # times as many swaps are kept as are wanted: some may lie where the text is cut off
_FEWEST = 2  # words of a beginning
_SPACED = re.compile(r"\S+")

Neighbour = tuple[Edit, ...]


@dataclass(frozen=True)
class NeighbourLikelihoods:
    """Log-likelihood of a text and of N neighbours of it, in nats.

    Attributes:
        n_tokens: scored tokens of the text.
        plain: sum of their log-probabilities.
        neighbour_tokens: (N,) scored tokens of each neighbour.
        neighbours: (N,) sum of their log-probabilities.
    """

    n_tokens: int
    plain: float
    neighbour_tokens: IntArray
    neighbours: FloatArray


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
    """One word of the beginning replaced, and a neighbour drawn for it at random (NDA, section 4.2).

    The whole text says which words fit, though only its beginning changes. Which word is replaced is
    drawn anew for each neighbour, among those that are no stop words (where there are any left); it
    takes the best other that no neighbour has taken.
    """

    filler: str
    neighbours: int
    top_k: int
    dropout: float
    prefix: float
    seed: int

    def made(self, text: str, filler: Filler) -> list[tuple[float, Neighbour]]:
        """So many swaps, in the order of the draws."""
        rng, end = generator(self.seed, 0, text), beginning(text, self.prefix)
        try:
            swaps = filler.swaps(text, top_k=self.top_k, dropout=self.dropout, rng=rng, until=end)
        except UnscorableError:
            return []
        left: dict[Span, list[Swap]] = {}
        for swap in swaps:
            left.setdefault((swap.edit.start, swap.edit.stop), []).append(swap)
        says = {span: _says(text[slice(*span)]) for span in left}
        seen = {text}
        made: list[tuple[float, Neighbour]] = []
        while left and len(made) < self.neighbours:
            spans = sorted(span for span in left if says[span]) or sorted(left)
            span = spans[int(rng.integers(len(spans)))]
            swap = left[span].pop(0)
            if not left[span]:
                del left[span]
            new = edited(text, (swap.edit,))
            if new not in seen:
                seen.add(new)
                made.append((swap.score, (swap.edit,)))
        return made


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


# --- signals --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SwappedLikelihoods:
    """Likelihoods of a record and of the N neighbours that differ from it by the best word swaps.

    Of all words of the scored turns and `top_k` others for each, the N best swaps (Mattern et al.
    2023). One that lies where the text is cut off gives its place to the next. A record
    may have fewer than N; with none it is unscored.

    Attributes:
        of: the role of the model asked.
        filler: what puts words in, as `unseen.targets.fillers.open_filler` reads it.
        neighbours: N.
        top_k: other words for each word.
        dropout: share of a word's embedding that a masked language model does not see.
        seed: another seed, another share.
    """

    gives: ClassVar[type] = NeighbourLikelihoods
    swaps_words: ClassVar[bool] = True
    of: str = TARGET
    filler: str = EMBEDDINGS
    neighbours: int = 20
    top_k: int = 5
    dropout: float = 0.7
    seed: int = 0

    def __post_init__(self) -> None:
        check_neighbours(self.filler, self.neighbours, self.top_k)
        if not 0 <= self.dropout < 1:
            msg = f"got dropout={self.dropout}, expected a share from 0 to below 1"
            raise ValueError(msg)

    def ask(self, record: Record, materials: Materials) -> Ask:
        """N + 1 requests at most: of the record, and of each neighbour."""
        making = Swapping(self.filler, self.neighbours, self.top_k, self.dropout, self.seed)
        return _asked(record, materials, making)

    def observe(self, answers: Sequence[TokenStats]) -> NeighbourLikelihoods:
        """Sums of log-probabilities."""
        return _sums(answers)


@dataclass(frozen=True)
class RefilledLikelihoods:
    """Likelihoods of a record and of N neighbours with stretches of words written anew.

    In each, about `rate` of the words of the scored turns are hidden in stretches of `span` words with
    `buffer` words between them, and filled in (Fu et al. 2024). Neighbours come in
    pairs with the same stretches: two samples of a language model, or, for word embeddings, the
    words that lie furthest along a random direction and against it, so that the pair is symmetric.

    Attributes:
        of: the role of the model asked.
        filler: what puts words in, as `unseen.targets.fillers.open_filler` reads it.
        neighbours: N.
        top_k: a word is drawn from so many (a T5 draws from all).
        span: words in a stretch.
        rate: share of the words that is hidden, in (0, 1).
        buffer: words that stay between two stretches.
        seed: another seed, other stretches and words.
    """

    gives: ClassVar[type] = NeighbourLikelihoods
    swaps_words: ClassVar[bool] = False
    of: str = TARGET
    filler: str = EMBEDDINGS
    neighbours: int = 10
    top_k: int = 10
    span: int = 2
    rate: float = 0.3
    buffer: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        check_neighbours(self.filler, self.neighbours, self.top_k)
        if self.span < 1 or self.buffer < 0:
            msg = f"got span={self.span}, buffer={self.buffer}, expected at least 1 and 0"
            raise ValueError(msg)
        if not 0 < self.rate < 1:
            msg = f"got rate={self.rate}, expected a share between 0 and 1"
            raise ValueError(msg)

    def ask(self, record: Record, materials: Materials) -> Ask:
        """N + 1 requests at most: of the record, and of each neighbour."""
        making = Refilling(
            self.filler, self.neighbours, self.top_k, self.span, self.rate, self.buffer, self.seed
        )
        return _asked(record, materials, making)

    def observe(self, answers: Sequence[TokenStats]) -> NeighbourLikelihoods:
        """Sums of log-probabilities."""
        return _sums(answers)


def check_neighbours(filler: str, neighbours: int, top_k: int) -> None:
    """Refuses numbers that would make no neighbours, and a filler without a name.

    Raises:
        ValueError: with what was expected.
    """
    if filler in ("", f"{EMBEDDINGS}:"):
        msg = f"got no filler, expected {EMBEDDINGS}, or a model that fills in words"
        raise ValueError(msg)
    for name, value in (("neighbours", neighbours), ("top_k", top_k)):
        if value < 1:
            msg = f"got {name}={value}, expected at least 1"
            raise ValueError(msg)


def fillers_needed(signals: Sequence[Any]) -> dict[str, bool]:
    """Names of the fillers that signals want, and whether they must know single words."""
    needed: dict[str, bool] = {}
    for signal in signals:
        name = getattr(signal, "filler", None)
        if isinstance(name, str):
            needed[name] = needed.get(name, False) or bool(getattr(signal, "swaps_words", False))
    return needed


def _asked(record: Record, materials: Materials, making: Swapping | Refilling) -> Ask:
    if materials.neighbourhood is None:
        reason = "there is no model that fills in words"
        raise UnscorableError(reason)
    encoder = materials.encoder
    alone = one_request(encoder.encode(record))
    cut = encoder.encode(record).left_out
    asked, scored = alone, {alone.scored[0]}
    for neighbour in _neighbours(record, encoder, materials.neighbourhood, making):
        encoded = encoder.encode(neighbour)
        ask = one_request(encoded)
        # Not scored where the text is cut off, or cut off itself: no neighbour as it is read.
        if ask.scored[0] in scored or (encoded.left_out > cut == 0):
            continue
        scored.add(ask.scored[0])
        asked = asked.then(ask)
        if len(scored) > making.neighbours:
            break
    if len(scored) == 1:
        reason = "no neighbour differs in what the model reads of it"
        raise UnscorableError(reason)
    return asked


def _neighbours(
    record: Record, encoder: Encoder, neighbourhood: Neighbourhood, making: Swapping | Refilling
) -> list[Record]:
    """Records with other words in their scored turns, the best first."""
    places = encoder.scored_turns(record)
    by_turn: dict[int, list[tuple[float, Neighbour]]] = {}
    problem = UNKNOWN
    for place in places:
        try:
            start, stop = _read_part(record, place, encoder) if len(places) == 1 else (0, None)
            made = neighbourhood.of(record.turns[place].content[start:stop], making)
            by_turn[place] = [(score, _moved(edits, start)) for score, edits in made]
        except UnscorableError as error:
            problem = error.problem
    if not by_turn:
        raise UnscorableError(problem)
    if isinstance(making, Swapping):  # one word of one turn: the best of all turns
        ranked = sorted(
            (
                (-score, place, i)
                for place, made in by_turn.items()
                for i, (score, _) in enumerate(made)
            )
        )
        changes = [{place: by_turn[place][i][1]} for _, place, i in ranked]
    else:  # a share of the words of every turn
        n = max(map(len, by_turn.values()))
        changes = [
            {place: made[i][1] for place, made in by_turn.items() if i < len(made)}
            for i in range(n)
        ]
    return [_changed(record, change) for change in changes]


def _read_part(record: Record, place: int, encoder: Encoder) -> Span:
    """Which part of the only scored turn is not cut off."""
    content = record.turns[place].content
    if not encoder.encode(record).left_out:
        return 0, len(content)
    shown = encoder.scored_text(record)
    first, last = _in_common(content, shown), _in_common(content[::-1], shown[::-1])
    return (0, first) if first >= last else (len(content) - last, len(content))


def _in_common(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _moved(edits: Neighbour, by: int) -> Neighbour:
    return tuple(Edit(edit.start + by, edit.stop + by, edit.put) for edit in edits)


def _changed(record: Record, change: Mapping[int, Neighbour]) -> Record:
    turns = list(record.turns)
    for place, edits in change.items():
        turns[place] = Turn(turns[place].role, edited(turns[place].content, edits))
    return replace(record, turns=tuple(turns))


def _sums(answers: Sequence[TokenStats]) -> NeighbourLikelihoods:
    plain, *others = answers
    return NeighbourLikelihoods(
        n_tokens=len(plain.logprob),
        plain=float(plain.logprob.sum(dtype=np.float64)),
        neighbour_tokens=np.array([len(answer.logprob) for answer in others], dtype=np.int64),
        neighbours=np.array([float(answer.logprob.sum(dtype=np.float64)) for answer in others]),
    )
