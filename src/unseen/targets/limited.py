"""Any target, seen by an adversary who sees less."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import numpy as np

from unseen.errors import AccessError, ConfigError
from unseen.targets.access import (
    Access,
    InsideTarget,
    LogprobTarget,
    NextTokenTarget,
    WhiteBoxTarget,
    is_adapted,
    searches_beams,
    tokens_read,
    tokens_remembered,
)
from unseen.targets.looks import Look, Seen, StepLook
from unseen.types import (
    GREEDY,
    Batch,
    Encoded,
    FloatArray,
    IntArray,
    Passage,
    Sampling,
    Tokenizer,
    TokenStats,
)


class LimitedTarget:
    """A target at a lower rung of the ladder: it withholds what the rung does not give.

    Args:
        inner: the target that is asked.
        access: the rung offered; at most the inner target's.

    Raises:
        ConfigError: where the rung is above the inner target's.
    """

    def __init__(self, inner: LogprobTarget, access: Access) -> None:
        if access > inner.access:
            raise ConfigError(
                f"got --access {access.word}, but {inner.name} gives {inner.access.word} at most",
                fix="--access caps what attacks may use; it cannot raise it",
            )
        self._inner = inner
        self.access = access

    @property
    def most(self) -> Access:
        """What the inner target would give."""
        return self._inner.access

    @property
    def name(self) -> str:
        """The inner target's name."""
        return self._inner.name

    @property
    def fingerprint(self) -> str:
        """Another rung gives other answers, so it has another fingerprint."""
        return f"{self._inner.fingerprint}@{self.access.name}"

    @property
    def tokenizer(self) -> Tokenizer:
        """The inner target's tokenizer."""
        return self._inner.tokenizer

    @property
    def max_length(self) -> int:
        """The inner target's context."""
        return self._inner.max_length

    @property
    def batch_tokens(self) -> int:
        """The inner target's batch size."""
        return self._inner.batch_tokens

    @property
    def n_read(self) -> int | None:
        """What the inner target has read of prompts, if it counts."""
        return tokens_read(self._inner)

    @property
    def searches_beams(self) -> bool:
        """Whether the inner target does."""
        return searches_beams(self._inner)

    @property
    def memory_tokens(self) -> int:
        """What the inner target remembers of prompts."""
        return tokens_remembered(self._inner)

    def describe(self) -> dict[str, str]:
        """The inner target's facts."""
        return self._inner.describe()

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
        """Text is on the lowest rung."""
        return self._inner.generate(
            prompts,
            max_new_tokens=max_new_tokens,
            sampling=sampling,
            numbers=numbers,
            stop=stop,
            one_line=one_line,
        )

    def top_token(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """Needs LABEL."""
        self._need(Access.LABEL)
        return self._inner.top_token(prompts)

    def execute(self, batch: Batch) -> list[TokenStats]:
        """Needs LABEL; there only the first choices are given, on LOGPROB no moments.

        Raises:
            AccessError: on the TEXT rung, or where the inner target does not tell first choices.
        """
        self._need(Access.LABEL)
        answers = self._inner.execute(batch)
        if self.access >= Access.LOGIT:
            return answers
        if self.access >= Access.LOGPROB:
            return [TokenStats(answer.logprob, argmax=answer.argmax) for answer in answers]
        if any(answer.argmax is None for answer in answers):
            raise AccessError(f"{self.name} does not tell its first choices")
        return [
            TokenStats(np.full_like(answer.logprob, np.nan), argmax=answer.argmax)
            for answer in answers
        ]

    def next_token_probabilities(
        self, prompts: Sequence[Sequence[int]], *, top: int = 100, among: IntArray | None = None
    ) -> tuple[IntArray, FloatArray]:
        """Needs LOGIT."""
        self._need(Access.LOGIT)
        inner = cast("NextTokenTarget", self._inner)
        return inner.next_token_probabilities(prompts, top=top, among=among)

    def after_step(
        self, examples: Sequence[Encoded], *, learning_rate: float
    ) -> AbstractContextManager[None]:
        """Needs the weights."""
        self._need(Access.WHITE_BOX)
        return cast("WhiteBoxTarget", self._inner).after_step(examples, learning_rate=learning_rate)

    @property
    def has_adapter(self) -> bool:
        """Whether the inner target is an adapter on a base."""
        return is_adapted(self._inner)

    @property
    def width(self) -> int:
        """The inner target's, where it shows its states."""
        return cast("InsideTarget", self._inner).width

    def check_step(self, look: StepLook, passage: Passage) -> Any:
        """Needs the weights."""
        self._need(Access.WHITE_BOX)
        return cast("Any", self._inner).check_step(look, passage)

    def look(self, looks: Sequence[Look], passages: Sequence[Passage]) -> list[list[Seen]]:
        """Needs the weights.

        Raises:
            AccessError: below, or where the inner target does not show its inside.
        """
        self._need(Access.WHITE_BOX)
        if not isinstance(self._inner, InsideTarget):
            raise AccessError(f"{self.name} does not show its states and gradients")
        return self._inner.look(looks, passages)

    def _need(self, access: Access) -> None:
        if self.access < access:
            raise AccessError(
                f"this needs {access.word} access, but {self.name} is limited to {self.access.word}"
            )
