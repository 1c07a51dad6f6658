"""Probes that cover what the model itself finds least, or most, likely (ICP-MIA-SP, section V-B2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from unseen.errors import UnscorableError
from unseen.signals.base import TARGET, Ask, Join, Materials, one_request
from unseen.signals.masks import Level, Span, covered, how_many, token_spans, units
from unseen.signals.probed import (
    TOO_SHORT,
    MaskedProbes,
    ProbedLikelihoods,
    after,
    check_masks,
    check_probes,
    sums,
)
from unseen.types import FloatArray, Record, Tokenizer, TokenStats, Turn

Strategy = Literal["min_k", "max_k"]
Valued = tuple[Span, Sequence[float | None]]
"""A stretch of a text, and the log-probability of each of its tokens, None where it was not scored."""

_LOST = "the tokens of the response cannot be found again in its text"


@dataclass(frozen=True)
class GuidedProbes:
    """The one probe C = (x, y with the least or most likely share of its units replaced).

    A unit's likelihood is the mean log-probability of its tokens in y after x, without a probe:
    what the plain request answers. So the probe is asked for in a second round. Turns that are not
    scored stay as they are.

    Attributes:
        of: the role of the model asked.
        strategy: "min_k" covers the `floor(rate * n)` least likely units, "max_k" the most likely.
        rate: share of the units to mask, in (0, 1).
        level: what is a unit: "word", "token" or "character".
        placeholder: what stands in place of each that is masked.
        join: where the probe stands, as in `MaskedProbes`.
    """

    gives: ClassVar[type] = ProbedLikelihoods
    of: str = TARGET
    strategy: Strategy = "min_k"
    rate: float = 0.5
    level: Level = "word"
    placeholder: str = "word"
    join: Join = "turn"

    def __post_init__(self) -> None:
        check_probes(1, self.join)
        check_masks(self.rate, self.level)
        if self.strategy not in ("min_k", "max_k"):
            msg = f"got strategy={self.strategy!r}, expected 'min_k' or 'max_k'"
            raise ValueError(msg)

    def ask(self, record: Record, materials: Materials) -> Ask:
        """The request without a probe."""
        return one_request(materials.encoder.encode(record, join=self.join))

    def follow(
        self, record: Record, materials: Materials, ask: Ask, answers: Sequence[TokenStats]
    ) -> Ask:
        """The request after the probe that these answers make.

        Raises:
            UnscorableError: where no probe can be made, or the record does not fit after it.
        """
        probe = self.made_from(record, materials.encoder.tokenizer, ask.scored[0], answers[0])
        return after(record, probe, materials.encoder, self.join, ask)

    def foreseen(self, record: Record, materials: Materials) -> Ask:
        """A request as long as that of `follow`, or nearly so, before anything is answered."""
        blind = MaskedProbes(
            probes=1,
            rate=self.rate,
            level=self.level,
            placeholder=self.placeholder,
            join=self.join,
        )
        (probe,) = blind.made_from(record, materials.encoder.tokenizer)
        alone = self.ask(record, materials)
        return after(record, probe, materials.encoder, self.join, alone)

    def observe(self, answers: Sequence[TokenStats]) -> ProbedLikelihoods:
        """Sums of log-probabilities."""
        return sums(answers)

    def made_from(
        self, record: Record, tokenizer: Tokenizer, scored: Sequence[int], stats: TokenStats
    ) -> Record:
        """The record with the chosen units of its scored turns replaced.

        Args:
            record: whose response is masked.
            tokenizer: of the model that was asked.
            scored: the ids of the tokens that were scored.
            stats: what it said of them, in the same order.

        Raises:
            UnscorableError: where there is no such mask.
        """
        if not np.isfinite(stats.logprob).all():
            reason = "a token has no finite value"
            raise UnscorableError(reason)
        turns = list(record.turns)
        for place, values in _of_turns(record, tokenizer, tuple(scored), stats.logprob):
            text = turns[place].content
            turns[place] = Turn(turns[place].role, self.masked(text, tokenizer, values))
        if tuple(turns) == record.turns:
            raise UnscorableError(TOO_SHORT)
        return replace(record, turns=tuple(turns))

    def masked(self, text: str, tokenizer: Tokenizer, values: Sequence[Valued]) -> str:
        """The text with units replaced; a text too short for it, as it is.

        Args:
            text: the text.
            tokenizer: whose tokens are meant, at the level of tokens.
            values: stretches of the text, each with the log-probabilities of its tokens.
        """
        spans = units(text, self.level, tokenizer)
        likely = [_mean_within(span, values) for span in spans]
        known = [i for i, value in enumerate(likely) if value is not None]
        if len(spans) < 2 or not known:
            return text
        sign = 1 if self.strategy == "min_k" else -1
        ranked = sorted(known, key=lambda i: (sign * (likely[i] or 0.0), i))
        return covered(text, spans, ranked[: how_many(self.rate, len(spans))], self.placeholder)


def _mean_within(span: Span, values: Sequence[Valued]) -> float | None:
    """Mean over the tokens that share a character with the span; None where one has no value."""
    found = [
        value
        for (start, stop), of_tokens in values
        if start < span[1] and span[0] < stop
        for value in of_tokens
    ]
    known = [value for value in found if value is not None]
    return sum(known) / len(known) if known and len(known) == len(found) else None


def _of_turns(
    record: Record, tokenizer: Tokenizer, scored: tuple[int, ...], logprob: FloatArray
) -> list[tuple[int, list[Valued]]]:
    """Each scored turn, and the stretches of its text with the log-probabilities of their tokens.

    Raises:
        UnscorableError: where the scored tokens are not those of the last turn or of all.
    """
    said = [i for i, turn in enumerate(record.turns) if turn.is_response]
    for turns in (said[-1:], said):
        at, found = 0, []
        for place in turns:
            for text, offset, ids, skipped in _forms(record.turns[place].content, tokenizer):
                if scored[at : at + len(ids) - skipped] == ids[skipped:]:
                    values = [None] * skipped + logprob[at : at + len(ids) - skipped].tolist()
                    found.append((place, _stretches(text, offset, tokenizer, values)))
                    at += len(ids) - skipped
                    break
            else:
                break
        # One more may be scored: the token that ends the turn.
        if len(found) == len(turns) and len(scored) - at <= 1:
            return found
    raise UnscorableError(_LOST)


def _forms(said: str, tokenizer: Tokenizer) -> Iterator[tuple[str, int, tuple[int, ...], int]]:
    """Forms of a content that a template may write: text, where it begins, ids, unscored ids.

    The first token of a text without a beginning-of-text token has no context and is not scored.
    """
    texts = dict.fromkeys((said + "\n", said, said.rstrip(), said.lstrip(), said.strip()))
    for text in filter(None, texts):
        offset = 0 if said.startswith(text.rstrip("\n")) else len(said) - len(said.lstrip())
        ids = tuple(tokenizer.encode(text))
        for skipped in (0, 1):
            if len(ids) > skipped:
                yield text, offset, ids, skipped


def _stretches(
    text: str, offset: int, tokenizer: Tokenizer, values: Sequence[float | None]
) -> list[Valued]:
    """Stretches of the content, each with the values of its tokens."""
    found: list[Valued] = []
    at = 0
    for start, stop, n in token_spans(text, tokenizer):
        found.append(((start + offset, stop + offset), values[at : at + n]))
        at += n
    return found
