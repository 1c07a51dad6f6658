"""How far likely and unlikely tokens of a record lie apart, as it is and with words swapped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from unseen.errors import UnscorableError
from unseen.signals.base import TARGET, Ask, Materials, one_request
from unseen.signals.checks import check_count, check_share
from unseen.signals.masks import generator, units
from unseen.types import FloatArray, Record, TokenStats, Turn

_TRIES = 20
"""Times that words are drawn again, where swapping equal ones has changed nothing."""


@dataclass(frozen=True)
class Polarities:
    """Polarised distances of one record, in nats.

    Attributes:
        own: of the text as it is.
        swapped: (k,) of the text with words swapped.
    """

    own: float
    swapped: FloatArray


@dataclass(frozen=True)
class SwappedPolarity:
    """`Polarities`: mean of the likeliest tokens minus mean of the least likely (Ye et al. 2024).

    Words of the response change places in random pairs; text without word breaks swaps characters.
    The draws follow from the text and the seed, so that a record has the same in any company.

    Attributes:
        of: the role of the model asked.
        augments: how many swapped texts.
        swaps: pairs that change places, as a share of the words; at least one.
        top: share of the tokens that are the likeliest; at least one.
        bottom: share of the tokens that are the least likely; at least one.
        seed: of the draws.
    """

    gives: ClassVar[type] = Polarities
    of: str = TARGET
    augments: int = 5
    swaps: float = 0.3
    top: float = 0.05
    bottom: float = 0.3
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("augments", self.augments)
        for name in ("swaps", "top", "bottom"):
            check_share(name, getattr(self, name))

    def ask(self, record: Record, materials: Materials) -> Ask:
        """K + 1 requests: the record, and each text with words swapped."""
        ask = one_request(materials.encoder.encode(record))
        for number in range(self.augments):
            other = self.augmented(record, number)
            ask = ask.then(one_request(materials.encoder.encode(other)))
        return ask

    def augmented(self, record: Record, number: int) -> Record:
        """The record with words of its response swapped.

        Raises:
            UnscorableError: where no swap changes it.
        """
        rng = generator(self.seed, number, record.text)
        for _ in range(_TRIES):
            turns = tuple(
                Turn(turn.role, swapped(turn.content, self.swaps, rng))
                if turn.is_response
                else turn
                for turn in record.turns
            )
            if turns != record.turns:
                return replace(record, turns=turns)
        reason = "swapping words does not change this text"
        raise UnscorableError(reason)

    def observe(self, answers: Sequence[TokenStats]) -> Polarities:
        """The distances."""
        own, *others = (self.distance(answer.logprob) for answer in answers)
        return Polarities(own, np.array(others))

    def distance(self, logprob: FloatArray) -> float:
        """PD: the mean of the `top` highest minus the mean of the `bottom` lowest."""
        if not len(logprob):
            reason = "no token to score"
            raise UnscorableError(reason)
        ordered = np.sort(logprob.astype(np.float64))
        n_top, n_bottom = (max(1, int(share * len(ordered))) for share in (self.top, self.bottom))
        return float(ordered[-n_top:].mean() - ordered[:n_bottom].mean())


def swapped(text: str, share: float, rng: np.random.Generator) -> str:
    """The text with pairs of its words in each other's place; everything between them stays.

    Args:
        text: the text.
        share: pairs, as a share of the words; at least one.
        rng: draws them one after another: a word can move twice.

    >>> swapped("one, two", 0.3, np.random.default_rng(0))
    'two one,'
    """
    spans = units(text, "word")
    if len(spans) < 2:
        return text
    order = np.arange(len(spans))
    for _ in range(max(1, int(share * len(spans)))):
        i, j = rng.choice(len(spans), size=2, replace=False)
        order[[i, j]] = order[[j, i]]
    pieces, end = [], 0
    for (start, stop), at in zip(spans, order.tolist(), strict=True):
        pieces += [text[end:start], text[slice(*spans[at])]]
        end = stop
    return "".join([*pieces, text[end:]])
