"""What an adversary may see of a model: five rungs, each of which can do all that is below it.

A target is any object that satisfies one of the protocols; a signal says which rung it needs, and
the audit refuses by name what the target cannot give, before the first query.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from enum import IntEnum
from typing import Protocol, runtime_checkable

from unseen.targets.looks import Look, Seen
from unseen.types import (
    GREEDY,
    Batch,
    Encoded,
    FloatArray,
    IntArray,
    Passage,
    Request,
    Sampling,
    Tokenizer,
    TokenStats,
)


class Access(IntEnum):
    """The ladder TEXT < LABEL < LOGPROB < LOGIT < WHITE_BOX."""

    TEXT = 1
    """Generated text only."""
    LABEL = 2
    """Also the most likely next token."""
    LOGPROB = 3
    """Also the log-probability of given tokens."""
    LOGIT = 4
    """Also the whole next-token distribution: its moments, the rank of a token."""
    WHITE_BOX = 5
    """Also gradients, hidden states and weights."""

    @property
    def word(self) -> str:
        """What the user types for it, and every message and result says: text, …, weights."""
        return "weights" if self is Access.WHITE_BOX else self.name.lower()


class Withheld(IntEnum):
    """Why there is no text after a prompt: then this is the only id of the answer."""

    TOO_LONG = -1
    FILTERED = -2
    REFUSED = -3
    USED_UP = -4
    BEGUN = -5
    UNSENDABLE = -6
    REJECTED = -7

    @property
    def reason(self) -> str:
        """What is counted."""
        return _REASONS[self]


_REASONS = {
    Withheld.TOO_LONG: "the prompt does not fit into the context of the endpoint",
    Withheld.FILTERED: "a filter of the endpoint withheld the answer",
    Withheld.REFUSED: "the endpoint refused to answer",
    Withheld.USED_UP: "the tokens of the answer were used up before its first word",
    Withheld.BEGUN: "a chat does not go on with an answer that is begun",
    Withheld.UNSENDABLE: "the prompt holds half of a character, and cannot be sent",
    Withheld.REJECTED: "the endpoint rejects the request, and answers others",
}


@runtime_checkable
class TextTarget(Protocol):
    """A model that answers with text."""

    @property
    def name(self) -> str:
        """What the user calls it."""

    @property
    def access(self) -> Access:
        """The highest rung that this target gives."""

    @property
    def fingerprint(self) -> str:
        """Content hash of model, adapter, precision and access: the store's key."""

    def describe(self) -> dict[str, str]:
        """Facts for the run record: provider, model, dtype, device and the like."""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int,
        sampling: Sampling = GREEDY,
        numbers: Sequence[int] | None = None,
        stop: str = "",
        one_line: bool = False,
    ) -> list[list[int]]:
        """Continuations of token-id prompts, at most `max_new_tokens` tokens of the model each.

        An end-of-text or end-of-turn token ends one early, and is its last id; so does, where `stop`
        is given, the token at which the text of the continuation holds it. With `one_line`, the token
        that ends the first line with a letter or a digit may end it too. What is drawn for a prompt
        follows from its ids, the sampling and its number (0 where none are given), whatever else is
        asked. A prompt that cannot be answered has one id, a `Withheld`.

        Raises:
            OutOfMemoryError: where the prompts do not fit together; nothing is lost or kept.
        """


@runtime_checkable
class LabelTarget(TextTarget, Protocol):
    """Also tells the most likely next token: after a prompt, or at each place of a text."""

    def top_token(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """The id of the most likely token after each prompt."""


@runtime_checkable
class LogprobTarget(LabelTarget, Protocol):
    """Also tells the log-probability of given tokens; LOGIT targets fill in the moments.

    On the LABEL rung its `execute` tells the first choice at each place (`argmax`), and NaN as
    log-probabilities; on the TEXT rung it refuses.
    """

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that its token ids come from."""

    @property
    def max_length(self) -> int:
        """The longest sequence, in tokens, that the model can read."""

    @property
    def batch_tokens(self) -> int:
        """Padded tokens a batch that suits the device."""

    def execute(self, batch: Batch) -> list[TokenStats]:
        """Statistics of every continuation token, a request each, in the batch's order.

        Raises:
            OutOfMemoryError: where the batch does not fit; nothing of it is lost or kept.
        """


class LogitTarget(LogprobTarget, Protocol):
    """A `LogprobTarget` whose `execute` fills in mean, sd, rank and argmax."""


@runtime_checkable
class NextTokenTarget(LogprobTarget, Protocol):
    """Also gives the next-token distribution itself, as far as it is asked for."""

    def next_token_probabilities(
        self, prompts: Sequence[Sequence[int]], *, top: int = 100, among: IntArray | None = None
    ) -> tuple[IntArray, FloatArray]:
        """Probabilities of tokens after each of n prompts, one by one as in any company.

        Args:
            prompts: token ids.
            top: how many of the likeliest tokens are given.
            among: (n, k) ids whose probabilities are asked for instead.

        Returns:
            (n, k) ids, and their probabilities under the whole vocabulary.

        Raises:
            OutOfMemoryError: where a prompt does not fit into memory.
        """


@runtime_checkable
class WhiteBoxTarget(LogprobTarget, Protocol):
    """Also lets its weights be changed for a while."""

    def after_step(
        self, examples: Sequence[Encoded], *, learning_rate: float
    ) -> AbstractContextManager[None]:
        """As long as the context lasts, it is the model that one step on the examples leaves.

        The step is AdamW's first, without weight decay, on the mean loss of all scored tokens of
        the examples. Afterwards everything is as before, bit for bit, whatever happened within.

        Raises:
            TargetError: where a step would be none: weights in half precision, or quantised ones.
            OutOfMemoryError: where the examples do not fit into memory together.
        """


@runtime_checkable
class InsideTarget(LogprobTarget, Protocol):
    """Also shows its hidden states and gradients."""

    @property
    def width(self) -> int:
        """Numbers of a hidden state."""

    def look(self, looks: Sequence[Look], passages: Sequence[Passage]) -> list[list[Seen]]:
        """What is seen of each passage: for each look a list, in the order of the passages.

        Args:
            looks: that are taken `together`.
            passages: in one batch; none has a say in what is seen of another.

        Raises:
            TargetError: where the model cannot be looked at like this.
            OutOfMemoryError: where the passages do not fit together; nothing is lost or kept.
        """


def is_withheld(ids: Sequence[int]) -> bool:
    """Whether token ids stand for no text, but for the reason that there is none."""
    return bool(ids) and ids[0] < 0


def tokens_read(target: object) -> int | None:
    """Tokens of prompts that it has read so far, to go on after them; None where it does not count them.

    A target that remembers some, and reads less than it is given, says so by a property `n_read`.
    """
    return getattr(target, "n_read", None)


def read_since(target: object, before: int | None) -> int | None:
    """Tokens that it has read since `tokens_read` said so many; None where it does not count them."""
    after = tokens_read(target)
    return None if after is None else after - (before or 0)


def tokens_remembered(target: object) -> int:
    """Tokens of prompts that it can remember for others that begin alike: its property `memory_tokens`."""
    return int(getattr(target, "memory_tokens", 0))


def searches_beams(target: object) -> bool:
    """Whether it has a beam search; it, or what it stands before, then says so by `searches_beams`."""
    return bool(getattr(target, "searches_beams", False))


def is_adapted(target: LogprobTarget) -> bool:
    """Whether the target is an adapter on a base; it then says so by a property `has_adapter`."""
    return bool(getattr(target, "has_adapter", False))


def stats_of_one(target: LogprobTarget, request: Request) -> TokenStats:
    """Asks one request alone: for checks and tests, not for speed."""
    return target.execute(Batch((), (request,)))[0]
