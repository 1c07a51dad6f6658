"""Any target, seen by an adversary who sees less."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import numpy as np

from unseen.errors import AccessError, ConfigError
from unseen.targets.access import Access, InsideTarget, LogprobTarget, WhiteBoxTarget, is_adapted
from unseen.targets.looks import Look, Seen, StepLook
from unseen.targets.wrapped import WrappedTarget
from unseen.types import Batch, Encoded, FloatArray, IntArray, Passage, TokenStats


class LimitedTarget(WrappedTarget):
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
        super().__init__(inner, access)

    @property
    def most(self) -> Access:
        """What the inner target would give."""
        return self._inner.access

    @property
    def fingerprint(self) -> str:
        """Another rung gives other answers, so it has another fingerprint."""
        return f"{self._inner.fingerprint}@{self.access.name}"

    def top_token(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """Needs LABEL."""
        self._need(Access.LABEL)
        return super().top_token(prompts)

    def execute(self, batch: Batch) -> list[TokenStats]:
        """Needs LABEL; there only the first choices are given, on LOGPROB no moments.

        Raises:
            AccessError: on the TEXT rung, or where the inner target does not tell first choices.
        """
        self._need(Access.LABEL)
        answers = super().execute(batch)
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
        return super().next_token_probabilities(prompts, top=top, among=among)

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
