"""A deterministic little language model over bytes: for tests, documentation and users' own tests.

It behaves as the attacks expect of a model that remembers: sequences that it has memorised are
more likely, and so is what has already occurred in the context. It needs no weights and no
network, and it answers exactly alike for ever.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from unseen.errors import UsageError
from unseen.targets.access import Access
from unseen.targets.ending import Ending
from unseen.targets.sampling import chance, draw, largest_first
from unseen.types import (
    GREEDY,
    Batch,
    Encoded,
    FloatArray,
    IntArray,
    Request,
    Sampling,
    TokenStats,
    Turn,
)

_SPECIALS = ("<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
_BOS, _EOS = 256, 257
VOCABULARY = 256 + len(_SPECIALS)
_TABLE = 509
_MEMORY = 5
_ECHO = 4

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@dataclass(frozen=True)
class FakeTokenizer:
    """Bytes of UTF-8, and five special tokens for conversations.

    Attributes:
        bos: whether texts begin with the token for a beginning.
        chat: whether there is a chat template.
    """

    bos: bool = True
    chat: bool = True

    @property
    def fingerprint(self) -> str:
        return f"fake-bytes-{int(self.bos)}{int(self.chat)}"

    @property
    def size(self) -> int:
        return VOCABULARY

    @property
    def bos_id(self) -> int | None:
        return _BOS if self.bos else None

    @property
    def eos_id(self) -> int | None:
        return _EOS

    @property
    def chat_template(self) -> str | None:
        return CHAT_TEMPLATE if self.chat else None

    def encode(self, text: str) -> list[int]:
        """Bytes, with special tokens as one id each."""
        ids: list[int] = []
        for piece in re.split(f"({'|'.join(map(re.escape, _SPECIALS))})", text):
            ids += [256 + _SPECIALS.index(piece)] if piece in _SPECIALS else piece.encode()
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the bytes, special tokens left out."""
        return bytes(id_ for id_ in ids if id_ < 256).decode(errors="replace")

    def render(self, turns: tuple[Turn, ...], *, template: str, add_generation_prompt: bool) -> str:
        """The conversation, by a Jinja template."""
        messages = [{"role": turn.role, "content": turn.content} for turn in turns]
        try:
            return _compiled(template).render(
                messages=messages,
                add_generation_prompt=add_generation_prompt,
                bos_token=_SPECIALS[0],
                eos_token=_SPECIALS[1],
            )
        except TemplateError as error:
            raise UsageError(f"the chat template cannot be used: {error}") from error


@functools.lru_cache(maxsize=32)
def _compiled(template: str) -> Template:
    return ImmutableSandboxedEnvironment(autoescape=False).from_string(template)


class FakeTarget:
    """A fake model that remembers the texts it is given.

    The logits of the next byte are fixed pseudo-random numbers of the two bytes before it, plus
    `strength` where a memorised text continues so after the same five bytes, plus half of it
    where the context itself has continued so after the same four. The memory is trusted as far as
    it has been right about what was just read: unfamiliar context weakens it.

    Args:
        memorised: texts that the model has "seen in training".
        strength: how strongly it remembers, in nats.
        seed: another seed, another model.
        access: the highest rung that it offers.
        tokenizer: how texts become ids.
        max_length: its context, in tokens.
        name: what it is called.

    Attributes:
        n_executed: how many requests it was asked.
        n_generated: how many texts it was asked for.
    """

    def __init__(
        self,
        memorised: Iterable[str] = (),
        *,
        strength: float = 2.0,
        seed: int = 0,
        access: Access = Access.LOGIT,
        tokenizer: FakeTokenizer | None = None,
        max_length: int = 8192,
        name: str = "fake",
    ) -> None:
        texts = list(memorised)
        self.name = name
        self.access = access
        self.tokenizer = tokenizer or FakeTokenizer()
        self.max_length = max_length
        self.batch_tokens = 16_384
        self.n_executed = 0
        self.n_generated = 0
        self._strength = strength
        self._seed = seed
        self._table = np.random.default_rng(seed).normal(size=(_TABLE, VOCABULARY))
        self._texts = [self.tokenizer.encode(text) for text in texts]
        self._memory = _memory_of(self._texts)
        about = [texts, strength, seed, int(access), self.tokenizer.fingerprint]
        digest = hashlib.blake2b(json.dumps(about).encode(), digest_size=16)
        self.fingerprint = f"fake-{digest.hexdigest()}"

    @property
    def reference(self) -> FakeTarget:
        """The same model before it remembered anything."""
        return FakeTarget(
            strength=self._strength,
            seed=self._seed,
            tokenizer=self.tokenizer,
            max_length=self.max_length,
            access=self.access,
            name=f"{self.name} (base)",
        )

    def describe(self) -> dict[str, str]:
        """Provider, model and access."""
        return {"provider": "fake", "model": self.name, "dtype": "float64", "device": "cpu"}

    def logits(self, ids: Sequence[int], start: int = 0) -> FloatArray:
        """Logits of the token after each position from `start` on.

        Returns:
            (len(ids) - start, VOCABULARY) logits.
        """
        tokens = np.array(ids, dtype=np.int64)
        before = np.concatenate([[0], tokens[:-1]])
        logits: FloatArray = self._table[(31 * before[start:] + tokens[start:]) % _TABLE]
        places, remembered = self._remembered(tokens)
        right = np.append(tokens[1:], -1)[places] == remembered
        known = np.bincount(places[right], minlength=len(tokens)).astype(np.float64)
        trust = (1 + np.cumsum(known) - known) / (1 + np.arange(len(tokens)))
        here = places >= start
        np.add.at(
            logits,
            (places[here] - start, remembered[here]),
            self._strength * trust[places[here]],
        )
        places, echoed = _echoes(tokens)
        here = places >= start
        logits[places[here] - start, echoed[here]] += self._strength / 2
        return logits

    def _remembered(self, tokens: IntArray) -> tuple[IntArray, IntArray]:
        """Positions, and what memorised texts say comes next there; several at a place, or none."""
        keys = _keys(tokens, _MEMORY)
        first = np.searchsorted(self._memory[0], keys, side="left")
        n_found = np.searchsorted(self._memory[0], keys, side="right") - first
        places = np.repeat(np.arange(len(keys)), n_found)
        nth = np.arange(len(places)) - np.repeat(np.cumsum(n_found) - n_found, n_found)
        return places + _MEMORY - 1, self._memory[1][np.repeat(first, n_found) + nth]

    def execute(self, batch: Batch) -> list[TokenStats]:
        """Statistics of every continuation token; moments from the LOGIT rung on."""
        self.n_executed += len(batch.requests)
        return [self._answer(request) for request in batch.requests]

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
        """Continuations; the end token, or the one that completes `stop` or the line, ends one early."""
        self.n_generated += len(prompts)
        ending = Ending(frozenset({_EOS}), stop, self.tokenizer.decode, one_line)
        return [
            self._continue(list(prompt), max_new_tokens, sampling, number, ending)
            for prompt, number in zip(prompts, numbers or [0] * len(prompts), strict=True)
        ]

    def top_token(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """The most likely next token of each prompt."""
        return [int(self.logits(prompt, len(prompt) - 1)[0].argmax()) for prompt in prompts]

    def next_token_probabilities(
        self, prompts: Sequence[Sequence[int]], *, top: int = 100, among: IntArray | None = None
    ) -> tuple[IntArray, FloatArray]:
        """Probabilities of the likeliest next tokens, or of those that are named."""
        rows = np.stack([self.logits(prompt, len(prompt) - 1)[0] for prompt in prompts])
        p = np.exp(rows - np.logaddexp.reduce(rows, axis=1, keepdims=True))
        if among is None:
            among = np.argsort(-p, axis=1, kind="stable")[:, :top]
        return among, np.take_along_axis(p, among, axis=1)

    @contextlib.contextmanager
    def after_step(
        self,
        examples: Sequence[Encoded],
        *,
        learning_rate: float,  # noqa: ARG002 (it learns by heart, or not at all)
    ) -> Iterator[None]:
        """As long as the context lasts, it remembers the examples too."""
        before = self._memory
        self._memory = _memory_of([*self._texts, *(example.ids for example in examples)])
        try:
            yield
        finally:
            self._memory = before

    def _continue(
        self, ids: list[int], max_new_tokens: int, sampling: Sampling, number: int, ending: Ending
    ) -> list[int]:
        start = len(ids)
        chances = chance(ids, sampling, number)
        for logits in self._step_by_step(ids, min(max_new_tokens, self.max_length - start)):
            if len(ids) - start < sampling.fewest:
                logits[_EOS] = -np.inf
            if sampling.temperature:
                order = largest_first(logits, sampling.top_k)
                ids.append(int(order[draw(logits[order], sampling, float(chances.random()))]))
            else:
                ids.append(int(logits.argmax()))
            if ending.is_at(ids[start:]):
                break
        return ids[start:]

    def _step_by_step(self, ids: list[int], n: int) -> Iterator[FloatArray]:
        """`logits` after the last id, n times, while the caller appends to the ids.

        What the earlier ids say is kept from step to step.
        """
        places, remembered = self._remembered(np.array(ids))
        followed = np.append(ids[1:], -1)[places]
        n_right = int((followed == remembered).sum())
        echoes: dict[tuple[int, ...], set[int]] = {}
        for at in range(_ECHO, len(ids)):
            echoes.setdefault(tuple(ids[at - _ECHO : at]), set()).add(ids[at])
        for _ in range(n):
            before = ids[-2] if len(ids) > 1 else 0
            logits: FloatArray = self._table[(31 * before + ids[-1]) % _TABLE].copy()
            _, found = self._remembered(np.array(ids[-_MEMORY:]))
            np.add.at(logits, found, self._strength * (1 + n_right) / len(ids))
            run = tuple(ids[-_ECHO:])
            for token in echoes.get(run, ()):
                logits[token] += self._strength / 2
            yield logits
            n_right += int((found == ids[-1]).sum())
            if len(run) == _ECHO:
                echoes.setdefault(run, set()).add(ids[-1])

    def _answer(self, request: Request) -> TokenStats:
        ids = request.context + request.continuation
        logits = self.logits(ids, len(request.context) - 1)[:-1]
        logprobs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        tokens = np.array(request.continuation)
        own = logprobs[np.arange(len(tokens)), tokens]
        argmax = logprobs.argmax(axis=1).astype(np.int32)
        if self.access < Access.LOGPROB:
            return TokenStats(np.full_like(own, np.nan), argmax=argmax)
        if self.access < Access.LOGIT:
            return TokenStats(own, argmax=argmax)
        p = np.exp(logprobs)
        mean = (p * logprobs).sum(axis=1)
        variance = (p * (logprobs - mean[:, None]) ** 2).sum(axis=1)
        return TokenStats(
            logprob=own,
            mean=mean,
            sd=np.sqrt(variance),
            rank=(logprobs > own[:, None]).sum(axis=1).astype(np.int32),
            argmax=argmax,
        )


def _keys(tokens: IntArray, width: int) -> IntArray:
    """A number for each run of `width` tokens, shape (max(0, len(tokens) - width + 1),)."""
    n = max(0, len(tokens) - width + 1)
    keys = np.zeros(n, dtype=np.int64)
    for i in range(width):
        keys = keys * 512 + tokens[i : i + n]
    return keys


def _memory_of(texts: Sequence[Sequence[int]]) -> tuple[IntArray, IntArray]:
    """Runs of tokens and what follows them, sorted, each pair once."""
    pairs = [np.zeros((0, 2), dtype=np.int64)]
    for ids in texts:
        tokens = np.array(ids, dtype=np.int64)
        pairs.append(np.stack([_keys(tokens[:-1], _MEMORY), tokens[_MEMORY:]], axis=1))
    unique = np.unique(np.concatenate(pairs), axis=0)
    return unique[:, 0], unique[:, 1]


def _echoes(tokens: IntArray) -> tuple[IntArray, IntArray]:
    """Positions, and what has come next before after the same run; each pair once."""
    keys = _keys(tokens, _ECHO)
    order = np.argsort(keys, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(keys[order])) + 1)
    found: list[tuple[int, int]] = []
    for group in groups:
        seen: set[int] = set()
        for run in group.tolist():
            found += [(run + _ECHO - 1, token) for token in sorted(seen)]
            if run + _ECHO < len(tokens):
                seen.add(int(tokens[run + _ECHO]))
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]
