"""Any target behind something that stands before it: what it is asked, the model is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from unseen.targets.access import (
    Access,
    LogprobTarget,
    NextTokenTarget,
    searches_beams,
    tokens_read,
    tokens_remembered,
)
from unseen.types import (
    GREEDY,
    Batch,
    FloatArray,
    IntArray,
    Sampling,
    Tokenizer,
    TokenStats,
)


class WrappedTarget:
    """What stands before a target and passes everything on; a class of it says what it changes.

    Such a class has a `fingerprint` of its own, where it gives other answers. Hidden states and
    gradients are not shown, nor are weights changed, unless it has the methods for that.

    Args:
        inner: the target that is asked.
        access: the rung that is offered.
    """

    def __init__(self, inner: LogprobTarget, access: Access) -> None:
        self._inner = inner
        self.access = access

    @property
    def name(self) -> str:
        """The inner target's name."""
        return self._inner.name

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
    def memory_tokens(self) -> int:
        """What the inner target remembers of prompts."""
        return tokens_remembered(self._inner)

    @property
    def searches_beams(self) -> bool:
        """Whether the inner target does."""
        return searches_beams(self._inner)

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
        """What the inner target writes."""
        made = self._inner.generate(
            list(map(self._sent, prompts)),
            max_new_tokens=max_new_tokens,
            sampling=self._drawn(sampling),
            numbers=numbers,
            stop=stop,
            one_line=one_line,
        )
        return self._told(made, stop, one_line=one_line)

    def top_token(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """What the inner target says."""
        return self._inner.top_token(list(map(self._sent, prompts)))

    def execute(self, batch: Batch) -> list[TokenStats]:
        """What the inner target says."""
        return self._inner.execute(batch)

    def next_token_probabilities(
        self, prompts: Sequence[Sequence[int]], *, top: int = 100, among: IntArray | None = None
    ) -> tuple[IntArray, FloatArray]:
        """What the inner target says."""
        inner = cast("NextTokenTarget", self._inner)
        return inner.next_token_probabilities(list(map(self._sent, prompts)), top=top, among=among)

    def _sent(self, prompt: Sequence[int]) -> Sequence[int]:
        """What the inner target reads where this is asked."""
        return prompt

    def _drawn(self, sampling: Sampling) -> Sampling:
        """How the inner target draws where this is asked for."""
        return sampling

    def _told(self, made: list[list[int]], stop: str, *, one_line: bool) -> list[list[int]]:  # noqa: ARG002
        """What is given out of what the inner target has written."""
        return made
