"""Fake models with one fault each, of the kinds that have turned whole audits into noise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from unseen.targets.fake import CHAT_TEMPLATE, FakeTarget, FakeTokenizer
from unseen.types import Batch, Request, TokenStats


class Broken(FakeTarget):
    """A fake model under a fingerprint of its own, so that no store confuses it with a sound one."""

    def __init__(self, memorised: Iterable[str] = (), **options) -> None:
        super().__init__(memorised, **options)
        self.fingerprint += f"-{type(self).__name__}"


class Zero(Broken):
    """Ignores that log-probabilities of a prompt are asked for."""

    def execute(self, batch: Batch) -> list[TokenStats]:
        return [
            replace(answer, logprob=np.zeros_like(answer.logprob))
            for answer in super().execute(batch)
        ]


class Constant(Broken):
    """Says the same of every token."""

    def execute(self, batch: Batch) -> list[TokenStats]:
        return [
            TokenStats(np.full(answer.logprob.shape, -1.5)) for answer in super().execute(batch)
        ]


class Rolled(Broken):
    """Gives to each token what belongs to the one after it, within a request."""

    def execute(self, batch: Batch) -> list[TokenStats]:
        return [
            TokenStats(
                **{
                    name: None if part is None else np.roll(part, -1)
                    for name, part in vars(answer).items()
                }
            )
            for answer in super().execute(batch)
        ]


class Late(Broken):
    """Reads each token before it says how likely it is: every position is one too late."""

    def _answer(self, request: Request) -> TokenStats:
        logits = self.logits(request.context + request.continuation, len(request.context))
        logprobs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        tokens = np.array(request.continuation)
        own = logprobs[np.arange(len(tokens)), tokens]
        sound = super()._answer(request)
        if sound.argmax is None:
            return TokenStats(own)
        return TokenStats(own, argmax=logprobs.argmax(axis=1).astype(np.int32))


class OtherWhenGenerating(Broken):
    """Generates with its memory, and scores without: an adapter that is left out of one path."""

    reference = None

    def __init__(self, memorised: Iterable[str] = (), **options) -> None:
        super().__init__(memorised, strength=8.0, **options)

    def execute(self, batch: Batch) -> list[TokenStats]:
        return FakeTarget(access=self.access).execute(batch)


class NoEffect(Broken):
    """Remembers, and so does what is said to be its base: an adapter that does nothing."""

    @property
    def reference(self) -> FakeTarget:
        same = NoEffect()
        same._memory, same._strength, same._table = self._memory, self._strength, self._table
        same.access = self.access
        same.fingerprint = f"{self.fingerprint}-base"
        return same


class ByCompany(Broken):
    """Says less likely of every token for each record that is in the same batch."""

    PENALTY = 0.01

    def execute(self, batch: Batch) -> list[TokenStats]:
        penalty = self.PENALTY * (len(batch.requests) - 1)
        return [
            replace(answer, logprob=answer.logprob - penalty) for answer in super().execute(batch)
        ]


class _TwiceInTemplate(FakeTokenizer):
    @property
    def chat_template(self) -> str | None:
        return "{{ bos_token }}{{ bos_token }}" + CHAT_TEMPLATE if self.chat else None


class _BeforeEachPiece(FakeTokenizer):
    def encode(self, text: str) -> list[int]:
        return [256, *super().encode(text)]


class TwoBeginnings(Broken):
    """Template and tokenizer both write the token for a beginning of text."""

    def __init__(self, memorised: Iterable[str] = (), **options) -> None:
        super().__init__(memorised, tokenizer=_TwiceInTemplate(), **options)


class ManyBeginnings(Broken):
    """The tokenizer adds its special token to every piece of a text."""

    def __init__(self, memorised: Iterable[str] = (), **options) -> None:
        super().__init__(memorised, tokenizer=_BeforeEachPiece(), **options)


STOPPED_BY = {
    Zero: "logprobs_real",
    Constant: "logprobs_real",
    Rolled: "teacher_forced",
    Late: "teacher_forced",
    OtherWhenGenerating: "teacher_forced",
    NoEffect: "adapter_effect",
    ByCompany: "batch_invariance",
    TwoBeginnings: "template",
    ManyBeginnings: "template",
}
"""Which check is made for which fault."""
