"""The values that everything else is made of: frozen, typed, without I/O.

A record never carries its label. Membership is kept apart, and only `unseen.metrics` (and the
fitted attacks, for records that are not being judged) ever see the two together.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class Turn:
    """One part of a record: who says it, and what.

    `role` is "system", "user" or "assistant" in a conversation, and "text" for a document
    that is no conversation. A prompt and its completion are a user and an assistant turn.
    """

    role: str
    content: str

    @property
    def is_response(self) -> bool:
        """Whether a trainer computes loss on it: what an assistant says, or a document."""
        return self.role in ("assistant", "text")


@dataclass(frozen=True, slots=True)
class Record:
    """One record whose membership is asked for. It has no label.

    Attributes:
        id: the user's own id, or one made from file and line.
        turns: at least one turn.
        cluster: author, document or user; clusters are resampled whole.
        slices: column name -> value, for results by group.
    """

    id: str
    turns: tuple[Turn, ...]
    cluster: str | None = None
    slices: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All contents, joined by line breaks: for what reads the text without a model."""
        return "\n".join(turn.content for turn in self.turns)

    @property
    def response(self) -> str:
        """The contents that a trainer computes loss on: assistant turns, or the whole text."""
        said = [turn.content for turn in self.turns if turn.is_response]
        return "\n".join(said) if said else self.text

    @property
    def is_answered(self) -> bool:
        """Whether the response says anything; a record with an empty one has no score."""
        return bool(self.response.strip())


@dataclass(frozen=True)
class Membership:
    """Which records are members: ids and a boolean array of the same length."""

    ids: tuple[str, ...]
    member: BoolArray

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.member):
            msg = f"got {len(self.ids)} ids and {len(self.member)} labels, expected as many of each"
            raise ValueError(msg)

    def of(self, ids: tuple[str, ...]) -> BoolArray:
        """Labels of the given ids, in their order, shape (len(ids),)."""
        known = dict(zip(self.ids, self.member.tolist(), strict=True))
        return np.array([known[id_] for id_ in ids], dtype=bool)


@dataclass(frozen=True)
class Encoded:
    """A record as token ids, for one model.

    Attributes:
        ids: all token ids, from the first one that the model reads.
        scored: (len(ids),) which tokens count for the record (loss tokens with left context).
        shared: how many of the first ids are those of records before it (shots, probes).
        truncated: how many tokens were cut off to fit the model.
        left_out: how many tokens that count are not scored: cut off, or without left context.
    """

    ids: tuple[int, ...]
    scored: BoolArray
    shared: int = 0
    truncated: int = 0
    left_out: int = 0


@dataclass(frozen=True)
class Request:
    """One question to a model: how likely is each continuation token after this context?"""

    context: tuple[int, ...]
    continuation: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.context or not self.continuation:
            msg = "a request needs at least one context token and one continuation token"
            raise ValueError(msg)

    @property
    def length(self) -> int:
        """Tokens that the model reads for this request alone."""
        return len(self.context) + len(self.continuation)


@dataclass(frozen=True)
class Batch:
    """Requests that are run together; all of them begin with the same `prefix` ids.

    Attributes:
        prefix: what is read once for all; it may be empty.
        requests: whole, with the prefix.
        growing: whether they go on from what was asked before: there is no prefix then, and a target
            that remembers what it has read finds out itself what is new.
    """

    prefix: tuple[int, ...]
    requests: tuple[Request, ...]
    growing: bool = False

    @property
    def n_tokens(self) -> int:
        """Tokens that a model reads for it, without padding, the prefix once."""
        own = sum(row.length - len(self.prefix) for row in self.requests)
        return len(self.prefix) + own


@dataclass(frozen=True, slots=True)
class Sampling:
    """How text is drawn from a model's next-token distributions.

    Attributes:
        temperature: 0 takes the most likely token each time, and nothing else has a say.
        top_k: draw from the k most likely tokens only; 0 draws from all.
        top_p: of these, from the fewest whose probability reaches this share, above 0 to 1.
        seed: another seed, other texts.
        fewest: tokens before which no token ends a text; what a prompt stops at still does.
        beams: texts that a beam search follows, where nothing is drawn; 1 takes the likeliest token each time.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    fewest: int = 0
    beams: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < np.inf:
            msg = f"got temperature={self.temperature}, expected 0 or more"
            raise ValueError(msg)
        if self.top_k < 0:
            msg = f"got top_k={self.top_k}, expected 0 (all tokens) or more"
            raise ValueError(msg)
        if self.fewest < 0:
            msg = f"got fewest={self.fewest}, expected 0 or more tokens"
            raise ValueError(msg)
        if self.beams < 1 or (self.beams > 1 and self.temperature):
            msg = f"got beams={self.beams}, expected 1, or more where temperature=0"
            raise ValueError(msg)
        if not 0 < self.top_p <= 1:
            msg = f"got top_p={self.top_p}, expected a share above 0 and at most 1"
            raise ValueError(msg)


GREEDY = Sampling()
"""The most likely token each time."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question for text: how does the model go on after these ids?

    Attributes:
        ids: token ids, at least one.
        max_new_tokens: the most tokens of the answer.
        sampling: how it is drawn.
        number: another number, another draw of the same prompt.
        stop: the answer ends with the token at which its text holds this; "" ends nothing.
        one_line: the answer may end with the token that ends its first line with a letter or a
            digit: of what comes later, nothing is read.
    """

    ids: tuple[int, ...]
    max_new_tokens: int
    sampling: Sampling = GREEDY
    number: int = 0
    stop: str = ""
    one_line: bool = False

    def __post_init__(self) -> None:
        if not self.ids or self.max_new_tokens < 1:
            msg = "a prompt needs at least one token, and room for one more"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Passage:
    """Token ids for a look inside a model, and the places of those that count.

    Attributes:
        ids: token ids.
        places: of the tokens that count, rising; each is foretold from those before it.
    """

    ids: tuple[int, ...]
    places: tuple[int, ...]

    def __post_init__(self) -> None:
        bounds = (0, *self.places, len(self.ids))
        if not self.places or any(a >= b for a, b in itertools.pairwise(bounds)):
            msg = "expected rising places, after the first token and before the end"
            raise ValueError(msg)


@dataclass(frozen=True)
class TokenStats:
    """What the model says about n scored tokens; every array has shape (n,). Units: nats.

    Attributes:
        logprob: log p(token | everything before).
        mean: mean of the log-probabilities under the model's own distribution, sum p log p.
        sd: their standard deviation under the same distribution.
        rank: how many tokens of the vocabulary are more likely (0 = the model's first choice).
        argmax: the id of the model's first choice.

    Targets below the LOGIT rung give `logprob` and `argmax` alone, those of somebody else perhaps no
    `argmax`; the rest is None. On the LABEL rung `logprob` is not told: all of it is NaN.
    """

    logprob: FloatArray
    mean: FloatArray | None = None
    sd: FloatArray | None = None
    rank: IntArray | None = None
    argmax: IntArray | None = None

    @property
    def entropy(self) -> FloatArray | None:
        """Entropy of the next-token distribution, in nats: minus `mean`."""
        return None if self.mean is None else -self.mean

    def at(self, keep: BoolArray) -> TokenStats:
        """The same statistics for the tokens where `keep`, shape (n,), is true."""
        return TokenStats(
            logprob=self.logprob[keep],
            mean=None if self.mean is None else self.mean[keep],
            sd=None if self.sd is None else self.sd[keep],
            rank=None if self.rank is None else self.rank[keep],
            argmax=None if self.argmax is None else self.argmax[keep],
        )


@dataclass(frozen=True)
class Scores:
    """What an attack says of each record: finite values, higher = more likely a member.

    Attributes:
        ids: the records that were scored, in the order of `values`.
        values: (len(ids),) finite scores.
        unscored: id -> why there is no score. Never NaN, never 0.
    """

    ids: tuple[str, ...]
    values: FloatArray
    unscored: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.values):
            msg = f"got {len(self.ids)} ids and {len(self.values)} scores, expected as many of each"
            raise ValueError(msg)
        if not np.isfinite(self.values).all():
            msg = "scores must be finite: a record without a score belongs in `unscored`"
            raise ValueError(msg)


@dataclass(frozen=True)
class Estimate:
    """A number with its interval and its counts: no number goes without.

    Attributes:
        value: the point estimate.
        low: lower end of the interval.
        high: upper end of the interval.
        confidence: coverage that the interval aims at, for example 0.95.
        method: the estimator, by name.
        n_members: members that entered.
        n_nonmembers: non-members that entered.
    """

    value: float
    low: float
    high: float
    confidence: float
    method: str
    n_members: int
    n_nonmembers: int


class Tokenizer(Protocol):
    """The part of a tokenizer that scoring needs."""

    @property
    def fingerprint(self) -> str:
        """Content hash: equal for tokenizers that encode alike."""

    @property
    def size(self) -> int:
        """How many token ids there are."""

    @property
    def bos_id(self) -> int | None:
        """The id that the tokenizer itself puts in front of a text, or None."""

    @property
    def eos_id(self) -> int | None:
        """The id that ends a text, or None."""

    @property
    def chat_template(self) -> str | None:
        """The Jinja chat template that came with the tokenizer, or None."""

    def encode(self, text: str) -> list[int]:
        """Token ids of the text alone; nothing is added."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids, special tokens left out."""

    def render(self, turns: tuple[Turn, ...], *, template: str, add_generation_prompt: bool) -> str:
        """The conversation as the one string that the template makes of it.

        Raises:
            UsageError: where the template refuses the conversation.
        """
