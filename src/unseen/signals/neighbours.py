"""Likelihood of a response, and of neighbours of it: the same text with a few other words.

Only what is scored is changed; the prompt and the template stay. How neighbours are made, and that
they are the same for every model that is asked: `unseen.signals.neighbourhood`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from unseen.errors import UnscorableError
from unseen.signals.base import TARGET, Ask, Encoder, Materials, one_request
from unseen.signals.checks import check_count
from unseen.signals.neighbourhood import Neighbour, Neighbourhood, Refilling, Swapping
from unseen.targets.edits import UNKNOWN, Edit, edited
from unseen.targets.fillers import EMBEDDINGS
from unseen.targets.words import Span
from unseen.types import FloatArray, IntArray, Record, TokenStats, Turn


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
        check_count(name, value)


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
