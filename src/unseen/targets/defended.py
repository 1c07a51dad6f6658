"""Any target behind a defence that changes what it writes.

What the model tells of probabilities is not changed: whoever gives these out gives the text out too.
Hidden states and gradients are not shown: who has the weights meets no defence.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import cast

from unseen.errors import AccessError
from unseen.targets.access import (
    Access,
    LogprobTarget,
    NextTokenTarget,
    is_withheld,
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

Rewriter = Callable[[Sequence[str]], list[str]]
"""Other words for each of some texts."""


class DefendedTarget:
    """A target behind a defence; what it is asked, the model is asked.

    Args:
        inner: the target that is defended.
        about: what stands before it, exactly: another defence gives other answers.
    """

    whole_answers = True
    """An answer that may be longer can begin otherwise: it is kept as it comes, and never cut."""

    def __init__(self, inner: LogprobTarget, about: Sequence[object]) -> None:
        self._inner = inner
        self.access = min(inner.access, Access.LOGIT)
        digest = hashlib.blake2b(json.dumps(about).encode(), digest_size=8).hexdigest()
        self.fingerprint = f"{inner.fingerprint}+{digest}"

    @property
    def inner(self) -> LogprobTarget:
        """The target that is defended."""
        return self._inner

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
        return self._inner.generate(
            prompts,
            max_new_tokens=max_new_tokens,
            sampling=sampling,
            numbers=numbers,
            stop=stop,
            one_line=one_line,
        )

    def top_token(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """What the inner target says."""
        return self._inner.top_token(prompts)

    def execute(self, batch: Batch) -> list[TokenStats]:
        """What the inner target says."""
        return self._inner.execute(batch)

    def next_token_probabilities(
        self, prompts: Sequence[Sequence[int]], *, top: int = 100, among: IntArray | None = None
    ) -> tuple[IntArray, FloatArray]:
        """What the inner target says."""
        inner = cast("NextTokenTarget", self._inner)
        return inner.next_token_probabilities(prompts, top=top, among=among)


class SampledTarget(DefendedTarget):
    """A target whose answers are drawn, or searched, as its owner chose, whatever is asked for.

    Args:
        inner: the target that is defended.
        draws: how.

    Raises:
        AccessError: where beams are to be searched, and the target cannot.
    """

    def __init__(self, inner: LogprobTarget, draws: Sampling) -> None:
        about = ["sampled", draws.temperature, draws.top_k, draws.top_p, draws.seed]
        if draws.beams > 1:
            about = ["beams", draws.beams]
            if not searches_beams(inner):
                raise AccessError(
                    f"{inner.name} has no beam search",
                    fix="a model that runs here, or the defence sampling",
                )
        super().__init__(inner, about)
        self._draws = draws

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
        """Draws."""
        return super().generate(
            prompts,
            max_new_tokens=max_new_tokens,
            sampling=dataclasses.replace(self._draws, fewest=sampling.fewest),
            numbers=numbers,
            stop=stop,
            one_line=one_line,
        )


class RewrittenTarget(DefendedTarget):
    """A target whose answers are put into other words before anyone sees them.

    Of an answer, the text up to the string at which it was to stop is rewritten; that string, and
    spaces around the text, stay. Answers of few words stay too: a label, or a yes, in other words
    is another answer, or none.

    Args:
        inner: the target that is defended.
        rewrite: gives texts in other words.
        fewest: words from which on an answer is rewritten.
        about: what rewrites, exactly.
    """

    def __init__(
        self, inner: LogprobTarget, rewrite: Rewriter, *, fewest: int, about: Sequence[object]
    ) -> None:
        super().__init__(inner, ["rewritten", fewest, *about])
        self._rewrite = rewrite
        self._fewest = fewest

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int,
        sampling: Sampling = GREEDY,
        numbers: Sequence[int] | None = None,
        stop: str = "",
        one_line: bool = False,  # noqa: ARG002 (what comes later is rewritten too)
    ) -> list[list[int]]:
        """Answers in other words."""
        made = super().generate(
            prompts,
            max_new_tokens=max_new_tokens,
            sampling=sampling,
            numbers=numbers,
            stop=stop,
        )
        said = ["" if is_withheld(ids) else self.tokenizer.decode(ids) for ids in made]
        answers = [text.partition(stop or "\0") for text in said]
        wanted = [i for i, (text, _, _) in enumerate(answers) if self._is_long(text)]
        others = self._rewrite([answers[i][0].strip() for i in wanted])
        for i, other in zip(wanted, others, strict=True):
            text, mark, _ = answers[i]
            whole = text.replace(text.strip(), other, 1) + mark
            made[i] = self.tokenizer.encode(whole)
        return made

    def _is_long(self, text: str) -> bool:
        return len(text.split()) >= max(1, self._fewest)
