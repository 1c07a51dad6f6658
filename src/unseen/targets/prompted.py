"""Any target behind a fixed prompt: as its owner has deployed it, tried without deploying it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from unseen.errors import ConfigError
from unseen.targets.access import LogprobTarget
from unseen.targets.defended import DefendedTarget
from unseen.types import Batch, TokenStats

_WORD = "Question"


class PromptedTarget(DefendedTarget):
    """A target that reads a fixed text before whatever it is asked.

    For a prompt that is one text. It stands where a deployed one would: an audit of an observed prompt
    sends what an adversary sends, and nothing comes before that. The model reads prompt and question as one
    text: where one ends and the other begins, that has other tokens than the two by themselves (of most
    tokenizers, a blank line is one token at the end of a text, and two before a word). Messages of a chat
    cannot be put behind a text; the game of `unseen.audit_prompt` writes such prompts itself.

    Args:
        inner: the model.
        prompt: what it reads first, demonstrations and all.

    Raises:
        ConfigError: where the prompt leaves no room in the context, or is empty.
    """

    whole_answers = False

    def __init__(self, inner: LogprobTarget, prompt: str) -> None:
        super().__init__(inner, ["prompted", hashlib.sha256(prompt.encode()).hexdigest()])
        encode, begin = inner.tokenizer.encode, inner.tokenizer.bos_id
        self._prompt = prompt
        self._begin = () if begin is None else (begin,)
        alone = encode(prompt)
        self._before = (*self._begin, *alone)
        seam = len(encode(prompt + _WORD)) - len(alone) - len(encode(_WORD))
        self._n_before = len(self._before) + max(0, seam)
        if not prompt or len(self._before) >= inner.max_length:
            raise ConfigError(
                "the prompt is empty" if not prompt else
                f"the prompt has {len(self._before)} tokens, and {inner.name} reads {inner.max_length}",
                fix="name the model itself where there is no prompt" if not prompt else
                "a shorter prompt, or a model with a longer context",
            )  # fmt: skip

    @property
    def max_length(self) -> int:
        """What is left of the inner target's context."""
        return self._inner.max_length - self._n_before

    def execute(self, batch: Batch) -> list[TokenStats]:
        """Statistics behind the prompt, which is read once a batch."""
        rows = tuple(replace(row, context=self._sent(row.context)) for row in batch.requests)
        prefix = () if batch.growing else self._sent(batch.prefix)
        if any(row.context[: len(prefix)] != prefix for row in rows):
            prefix = ()  # it ends inside a word of theirs
        return super().execute(replace(batch, prefix=prefix, requests=rows))

    def _sent(self, prompt: Sequence[int]) -> tuple[int, ...]:
        """All that the model reads: the text begins once.

        What is no text as its tokenizer writes it comes after the prompt as it is.
        """
        n = len(self._begin)
        sent = list(prompt[n:] if tuple(prompt[:n]) == self._begin else prompt)
        text = self.tokenizer.decode(sent)
        if self.tokenizer.encode(text) != sent:
            return (*self._before, *sent)
        return (*self._begin, *self.tokenizer.encode(self._prompt + text))
