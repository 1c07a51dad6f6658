"""Likelihood of a response after in-context probes made from the record itself (ICP-MIA-SP)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from unseen.errors import UnscorableError
from unseen.signals.base import TARGET, Ask, Materials, one_request
from unseen.types import FloatArray, Record, TokenStats, Turn

_WORDS = re.compile(r"\S+")


@dataclass(frozen=True)
class ProbedLikelihoods:
    """Log-likelihood of the same tokens without and after each of K probes, in nats.

    Attributes:
        n_tokens: scored tokens, the same in every request.
        plain: sum of the log-probabilities without a probe.
        probed: (K,) the sum after each probe.
    """

    n_tokens: int
    plain: float
    probed: FloatArray


@dataclass(frozen=True)
class MaskedProbes:
    """Probes C_j = (x, y with a share of its words replaced), shown before the record.

    The paper's random masking (section V-B2): `floor(rate * words)` words of the response, drawn
    without replacement, at least one and never all. A word here is what stands between white
    space and holds a letter or digit of any script; a response without two of them is masked
    letter by letter. K different masks are drawn (fewer where there are fewer), each from the
    text, the seed and its own number, so that a record gets the same probes in any company.

    Attributes:
        of: the role of the model asked.
        probes: K, the most probes for a record.
        rate: share of the words to mask, in (0, 1).
        placeholder: what stands in place of a masked word.
        seed: another seed, other masks.
    """

    gives: ClassVar[type] = ProbedLikelihoods
    of: str = TARGET
    probes: int = 5
    rate: float = 0.5
    placeholder: str = "word"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.probes < 1:
            msg = f"got probes={self.probes}, expected at least 1"
            raise ValueError(msg)
        if not 0 < self.rate < 1:
            msg = f"got rate={self.rate}, expected a share between 0 and 1"
            raise ValueError(msg)

    def ask(self, record: Record, materials: Materials) -> Ask:
        """K + 1 requests: without a probe, and after each."""
        asks = [one_request(materials.encoder.encode(record))]
        asks += [
            one_request(materials.encoder.encode(record, before=(probe,)))
            for probe in self.made_from(record)
        ]
        if any(ask.scored != asks[0].scored for ask in asks):
            reason = "the template changes the response when a probe stands before it"
            raise UnscorableError(reason)
        return Ask(tuple(ask.requests[0] for ask in asks), tuple(ask.keep[0] for ask in asks))

    def observe(self, answers: Sequence[TokenStats]) -> ProbedLikelihoods:
        """Sums of log-probabilities."""
        plain, *probed = (float(answer.logprob.sum(dtype=np.float64)) for answer in answers)
        return ProbedLikelihoods(len(answers[0].logprob), plain, np.array(probed))

    def made_from(self, record: Record) -> list[Record]:
        """The record with its loss-bearing turns masked, up to K different times.

        Raises:
            UnscorableError: where nothing can be masked so that something stays.
        """
        made: dict[tuple[Turn, ...], Record] = {}
        for j in range(4 * self.probes):
            turns = tuple(
                Turn(turn.role, self.masked(turn.content, j))
                if turn.role in ("assistant", "text")
                else turn
                for turn in record.turns
            )
            made.setdefault(turns, replace(record, turns=turns))
            if len(made) == self.probes:
                break
        return list(made.values())

    def masked(self, text: str, number: int) -> str:
        """The text with some words replaced, white space kept as it is."""
        spans = [m.span() for m in _WORDS.finditer(text) if any(map(str.isalnum, m.group()))]
        if len(spans) < 2:
            spans = [(i, i + 1) for i, letter in enumerate(text) if letter.isalnum()]
        if len(spans) < 2:
            reason = "too short to mask a part of it"
            raise UnscorableError(reason)
        n_masked = min(max(1, int(self.rate * len(spans))), len(spans) - 1)
        digest = hashlib.blake2b(f"{self.seed}|{number}|{text}".encode(), digest_size=8).digest()
        rng = np.random.default_rng(int.from_bytes(digest, "little"))
        chosen = rng.choice(len(spans), size=n_masked, replace=False)
        pieces, end = [], 0
        for start, stop in sorted(spans[i] for i in chosen):
            pieces += [text[end:start], self.placeholder]
            end = stop
        return "".join([*pieces, text[end:]])
