"""How likely the text of a record is as a question to a model behind a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unseen.errors import UnscorableError
from unseen.signals.answered import behind_of, text_of
from unseen.signals.base import TARGET, Ask, Materials
from unseen.types import Record, Request, TokenStats


@dataclass(frozen=True)
class TextLikelihood:
    """How likely a text is where it is said.

    Attributes:
        n_tokens: tokens of the text.
        logprob: sum of their log-probabilities, in nats.
    """

    n_tokens: int
    logprob: float


@dataclass(frozen=True)
class Asked:
    """The likelihood of a record's text as a user's question, behind the prompt.

    Its tokens are those that it has where it is said: a space before it that merges with its first
    word counts with that. What a message has around it does not count.

    Attributes:
        of: the role of the model asked.
    """

    gives: ClassVar[type] = TextLikelihood
    of: str = TARGET

    def ask(self, record: Record, materials: Materials) -> Ask:
        """One request: the text after everything that stands before it.

        Raises:
            UnscorableError: where it does not fit, or no token of it has left context.
        """
        behind = behind_of(materials)
        said = behind.prompt(record.id, behind.begun(text_of(record)))
        without = behind.prompt(record.id, behind.begun(""))
        start = max(1, _alike(said, without))
        stop = len(said) - _alike(said[start:][::-1], without[start:][::-1])
        if start >= stop:
            reason = "no token to score"
            raise UnscorableError(reason)
        keep = np.ones(stop - start, dtype=bool)
        return Ask((Request(said[:start], said[start:stop]),), (keep,))

    def observe(self, answers: Sequence[TokenStats]) -> TextLikelihood:
        """Their number and their sum."""
        logprob = answers[0].logprob
        return TextLikelihood(len(logprob), float(logprob.sum(dtype=np.float64)))


def _alike(one: Sequence[int], other: Sequence[int]) -> int:
    """With how many equal ids both begin."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
