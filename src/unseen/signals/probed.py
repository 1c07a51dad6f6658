"""Likelihood of a response after in-context probes made from the record itself (ICP-MIA-SP)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from unseen.errors import NO_ROOM, UnscorableError
from unseen.signals.base import JOINS, TARGET, Ask, Encoder, Join, Materials, one_request
from unseen.signals.checks import check_choice, check_count, check_share
from unseen.signals.masks import LEVELS, Level, Span, covered, drawn, units
from unseen.types import FloatArray, Record, Tokenizer, TokenStats, Turn

TOO_SHORT = "too short to mask a part of it"
NOTHING_TO_MASK = "no letter or digit in it that a mask could cover"


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


Aggregate = Literal["min", "mean", "median", "quantile"]
Unit = Literal["mean", "sum"]

_AGGREGATES: Mapping[str, Callable[[FloatArray], Any]] = {
    "min": np.min,
    "mean": np.mean,
    "median": np.median,
}


@dataclass(frozen=True)
class Aggregation:
    """How the K differences of a record become one score.

    score = A_j (LL(y | x) - LL(y | C_j, x)), A the aggregate (ICP-MIA, equation 8: the minimum).

    Attributes:
        aggregate: "min", "mean", "median", or the `quantile` of the K differences.
        quantile: which one, from 0 (the minimum) to 1, linear between two differences.
        unit: LL is the "mean" over tokens (nats per token) or their "sum" (nats).
    """

    aggregate: Aggregate = "min"
    quantile: float = 0.25
    unit: Unit = "mean"

    def __post_init__(self) -> None:
        check_choice("aggregate", self.aggregate, (*_AGGREGATES, "quantile"))
        if not 0 <= self.quantile <= 1:
            msg = f"got quantile={self.quantile}, expected a share from 0 to 1"
            raise ValueError(msg)
        if self.aggregate != "quantile" and self.quantile != type(self).quantile:
            msg = f"got quantile={self.quantile}, which says nothing without aggregate=quantile"
            raise ValueError(msg)
        if self.unit not in ("mean", "sum"):
            msg = f"got unit={self.unit!r}, expected 'mean' or 'sum'"
            raise ValueError(msg)

    def of(self, seen: ProbedLikelihoods) -> float:
        """The score of one record, not finite where a likelihood is not."""
        differences = seen.plain - seen.probed
        if self.aggregate == "quantile":
            value = float(np.quantile(differences, self.quantile))
        else:
            value = float(_AGGREGATES[self.aggregate](differences))
        return value / seen.n_tokens if self.unit == "mean" else value


def check_probes(probes: int, join: str = "turn") -> None:
    """Refuses a number of probes, or a place for them, that makes no sense.

    Raises:
        ValueError: with what was expected.
    """
    check_count("probes", probes)
    check_choice("join", join, JOINS)


def check_masks(rate: float, level: str = "word") -> None:
    """Refuses a share that is none, and a level that nobody knows.

    Raises:
        ValueError: with what was expected.
    """
    check_share("rate", rate)
    check_choice("level", level, LEVELS)


def after(record: Record, probe: Record, encoder: Encoder, join: Join, alone: Ask) -> Ask:
    """The request for a record after one probe.

    Raises:
        UnscorableError: where it does not fit, or other tokens would be scored than without it.
    """
    try:
        ask = one_request(encoder.encode(record, before=(probe,), join=join))
    except UnscorableError as error:
        if error.problem != NO_ROOM:
            raise
        reason = "does not fit into the context after a probe"
        raise UnscorableError(reason) from error
    if ask.scored != alone.scored:
        reason = "the template changes the response when a probe stands before it"
        raise UnscorableError(reason)
    return ask


def after_each(
    record: Record,
    probes: Iterable[Record],
    most: int,
    *,
    encoder: Encoder,
    join: Join,
    alone: Ask,
    problem: str,
) -> Ask:
    """K + 1 requests at most: without a probe, and after each of the first `most` that fit.

    Args:
        record: whose likelihood is asked.
        probes: the best first.
        most: K.
        encoder: of the model that is asked.
        join: where a probe stands.
        alone: the request without a probe.
        problem: why there is nothing to ask where there are no probes.

    Raises:
        UnscorableError: where none fits; the reason is the last one's.
    """
    asks: list[Ask] = []
    for probe in probes:
        try:
            asks.append(after(record, probe, encoder, join, alone))
        except UnscorableError as error:
            problem = error.problem
        if len(asks) == most:
            break
    if not asks:
        raise UnscorableError(problem)
    return joined(alone, asks)


def joined(alone: Ask, probed: Sequence[Ask]) -> Ask:
    """K + 1 requests as one `Ask`: without a probe, and after each."""
    return functools.reduce(Ask.then, probed, alone)


def sums(answers: Sequence[TokenStats]) -> ProbedLikelihoods:
    """What was answered without a probe and after each: sums of log-probabilities, in nats."""
    plain, *probed = (float(answer.logprob.sum(dtype=np.float64)) for answer in answers)
    return ProbedLikelihoods(len(answers[0].logprob), plain, np.array(probed))


@dataclass(frozen=True)
class MaskedProbes:
    """Probes C_j = (x, y with a share of its words replaced), shown before the record.

    The paper's random masking (section V-B2): `floor(rate * words)` words of the response, drawn
    without replacement, at least one and never all. A word here is what stands between white
    space and holds a letter or digit of any script; a response without two of them is masked
    letter by letter. At the level of tokens (the paper's) or characters, it is these that are
    drawn. A turn that is too short even for that stays as it is, as long as what is
    scored does not stay whole: a probe that gives all of it away would measure nothing. K masks
    that differ are drawn (fewer where there are fewer), each from the text, the seed and its own
    number, so that a record gets the same probes in any company.

    Attributes:
        of: the role of the model asked.
        probes: K, the most probes for a record.
        rate: share of the words, tokens or characters to mask, above 0; at 1, all but one.
        level: what is masked: "word", "token" (of the model that is asked) or "character".
        placeholder: what stands in place of each that is masked.
        seed: another seed, other masks.
        join: where a probe stands: in an earlier "turn", at the head of the "user" turn, or
            before the record as "plain" text. The likelihood without a probe is that of the same
            template, so that plain text is compared with plain text.
    """

    gives: ClassVar[type] = ProbedLikelihoods
    of: str = TARGET
    probes: int = 5
    rate: float = 0.5
    level: Level = "word"
    placeholder: str = "word"
    seed: int = 0
    join: Join = "turn"

    def __post_init__(self) -> None:
        check_probes(self.probes, self.join)
        check_masks(self.rate, self.level)

    def ask(self, record: Record, materials: Materials) -> Ask:
        """K + 1 requests: without a probe, and after each."""
        encoder = materials.encoder
        alone = one_request(encoder.encode(record, join=self.join))
        probes = [
            probe
            for probe in self.made_from(record, encoder.tokenizer)
            if not _gives_away(probe, record, alone, encoder, self.join)
        ]
        if not probes:
            raise UnscorableError(TOO_SHORT)
        return joined(alone, [after(record, probe, encoder, self.join, alone) for probe in probes])

    def observe(self, answers: Sequence[TokenStats]) -> ProbedLikelihoods:
        """Sums of log-probabilities."""
        return sums(answers)

    def made_from(self, record: Record, tokenizer: Tokenizer | None = None) -> list[Record]:
        """The record with its loss-bearing turns masked, up to K different times.

        Args:
            record: whose response is masked.
            tokenizer: whose tokens are masked, where it is tokens.

        Raises:
            UnscorableError: where no turn can be masked so that something of it stays, or its
                tokens cannot be found again in its text.
        """
        spans = [
            units(turn.content, self.level, tokenizer) if turn.is_response else []
            for turn in record.turns
        ]
        made: dict[tuple[Turn, ...], Record] = {}
        for j in range(4 * self.probes):
            turns = tuple(
                Turn(turn.role, self._masked(turn.content, j, of_turn)) if of_turn else turn
                for turn, of_turn in zip(record.turns, spans, strict=True)
            )
            if turns != record.turns:
                made.setdefault(turns, replace(record, turns=turns))
            if len(made) == self.probes:
                break
        if not made:
            raise UnscorableError(TOO_SHORT if any(spans) else NOTHING_TO_MASK)
        return list(made.values())

    def _masked(self, text: str, number: int, spans: list[Span]) -> str:
        """The text with some words replaced, white space kept; a text too short for it, as it is."""
        if len(spans) < 2:
            return text
        chosen = drawn(len(spans), self.rate, seed=self.seed, number=number, text=text)
        return covered(text, spans, chosen, self.placeholder)


def _gives_away(probe: Record, record: Record, alone: Ask, encoder: Encoder, join: Join) -> bool:
    """Whether all that is scored of the record stands in the probe: only some turns may count."""
    pairs = zip(record.turns, probe.turns, strict=True)
    if not any(turn.is_response and turn == masked for turn, masked in pairs):
        return False  # every turn is masked: the ids need not be looked at
    return one_request(encoder.encode(probe, join=join)).scored == alone.scored
