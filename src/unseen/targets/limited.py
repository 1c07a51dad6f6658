"""Any target, seen by an adversary who sees less."""

from __future__ import annotations

from collections.abc import Sequence

from unseen.errors import AccessError, ConfigError
from unseen.targets.access import Access, LogprobTarget
from unseen.types import Batch, Tokenizer, TokenStats


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
                f"got access {access.name}, but {inner.name} gives {inner.access.name} at most",
                fix="--access caps what attacks may use; it cannot raise it",
            )
        self._inner = inner
        self.access = access

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

    def describe(self) -> dict[str, str]:
        """The inner target's facts."""
        return self._inner.describe()

    def generate(self, prompts: Sequence[Sequence[int]], *, max_new_tokens: int) -> list[list[int]]:
        """Text is on the lowest rung."""
        return self._inner.generate(prompts, max_new_tokens=max_new_tokens)

    def top_token(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """Needs LABEL."""
        self._need(Access.LABEL)
        return self._inner.top_token(prompts)

    def execute(self, batch: Batch) -> list[TokenStats]:
        """Needs LOGPROB; below LOGIT only the log-probabilities are given."""
        self._need(Access.LOGPROB)
        answers = self._inner.execute(batch)
        if self.access >= Access.LOGIT:
            return answers
        return [TokenStats(answer.logprob) for answer in answers]

    def _need(self, access: Access) -> None:
        if self.access < access:
            raise AccessError(
                f"this needs {access.name}, but {self.name} is limited to {self.access.name}"
            )
