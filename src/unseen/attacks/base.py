"""What an attack is: arithmetic on what was measured.

An attack is a frozen dataclass in a file of its own; the file's name is the attack's name. Its
fields are hyperparameters, its arguments are data. It sees neither a model nor the membership of
a record that it judges. It inherits nothing: any class of this shape will do.

    @dataclass(frozen=True)
    class Loss:
        \"\"\"One line that `unseen ls attacks` shows.\"\"\"

        access: ClassVar[Access] = Access.LOGPROB
        paper: ClassVar[str] = "Yeom et al. 2018, arXiv:1709.01604"

        def signals(self) -> tuple[Signal, ...]: ...
        def score(self, audited: Observations, known: Known | None = None) -> Scores: ...

An attack that learns from known records also says `fitted: ClassVar[bool] = True`; it is then
cross-fitted, so that it never learns from a record that it judges. How many of each side it takes to
learn anything, it says by `fewest: ClassVar[int]`. One that needs no model at all
(a blind baseline) says `blind: ClassVar[bool] = True`; one that asks so much that it is run only
where it is named says `on_request: ClassVar[bool] = True`, and one that is also run where the user
asks for all that weights can show (`--access weights`), `with_weights: ClassVar[bool] = True`; one whose score of a record depends on
who is measured with it, `in_company: ClassVar[bool] = True`. One on prompts, not on training data,
says `scenario: ClassVar[str] = "prompt"`. One whose paper names the score from which on a record is called
a member says `threshold: ClassVar[float]`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import numpy as np

from unseen.errors import UnscorableError
from unseen.signals.base import (
    REFERENCE,
    SHADOW,
    LentSignal,
    Observations,
    ScoreSignal,
    Signal,
)
from unseen.signals.probed import ProbedLikelihoods
from unseen.signals.scores import learned
from unseen.signals.similarity import Measure
from unseen.signals.text import CommonText
from unseen.targets.access import Access
from unseen.types import BoolArray, FloatArray, Scores, TokenStats

_CERTAIN = 1e-6
"""Nats per token: below ten times what single precision resolves of a probability near 1."""


FINETUNE, PROMPT = "finetune", "prompt"
"""What is audited."""

_FLAT = 1e-9
"""Log-similarities that differ by less are all alike."""


@dataclass(frozen=True)
class Known:
    """Records whose membership the attacker knows; none of them is judged.

    Attributes:
        observations: what was measured of them.
        member: (len(observations.ids),) their membership.
    """

    observations: Observations
    member: BoolArray


@runtime_checkable
class Attack(Protocol):
    """The shape of every attack."""

    access: ClassVar[Access]
    paper: ClassVar[str]

    def signals(self) -> tuple[Signal, ...]:
        """What has to be measured."""

    def score(self, audited: Observations, known: Known | None = None) -> Scores:
        """A score for each record, higher = more likely a member, or the reason for none."""


def score_each(observations: Observations, formula: Callable[[str], float]) -> Scores:
    """Applies a formula to every record, and keeps the reasons where it has no value.

    Args:
        observations: what was measured.
        formula: record id -> score; raises UnscorableError where there is none.

    Returns:
        Finite scores; what came out infinite or undefined is unscored too.
    """
    ids: list[str] = []
    values: list[float] = []
    unscored: dict[str, str] = {}
    for id_ in observations.ids:
        try:
            with np.errstate(all="ignore"):
                value = float(formula(id_))
        except UnscorableError as error:
            unscored[id_] = error.problem
            continue
        if np.isfinite(value):
            ids.append(id_)
            values.append(value)
        else:
            unscored[id_] = "the formula has no finite value here"
    return Scores(tuple(ids), np.array(values, dtype=np.float64), unscored)


def unscored(ids: Iterable[str], reason: str) -> Scores:
    """No score for any record, and why."""
    return Scores((), np.array([]), dict.fromkeys(ids, reason))


def measured(observations: Observations, signal: Signal) -> dict[str, Any]:
    """Values by record id, sorted, so that the order of the records has no say."""
    values = observations.values.get(signal, {})
    return {id_: values[id_] for id_ in sorted(observations.ids) if id_ in values}


def lessons(known: Known | None, signal: Signal) -> tuple[dict[str, Any], BoolArray]:
    """What an attack that learns can learn from: values by record id, and their membership.

    Raises:
        UnscorableError: where nobody is known, or one side only.
    """
    if known is None:
        reason = "no records of known membership to learn from"
        raise UnscorableError(reason)
    values = measured(known.observations, signal)
    labels = dict(zip(known.observations.ids, known.member.tolist(), strict=True))
    member = np.array([labels[id_] for id_ in values], dtype=bool)
    _check_sides(member, "none of them was measured")
    return values, member


def _check_sides(member: BoolArray, why_none: str) -> None:
    """Refuses to learn from one side only, and says why there is nobody, where there is nobody."""
    if not member.size:
        reason = f"there is no known record to learn from: {why_none}"
        raise UnscorableError(reason)
    if member.all() or not member.any():
        reason = "the known records are all members or all non-members"
        raise UnscorableError(reason)


def examples(
    known: Known | None, row: Callable[[Observations, str], FloatArray]
) -> tuple[FloatArray, BoolArray]:
    """What an attack that learns from numbers of each record can learn from.

    Args:
        known: whom to learn from.
        row: observations and record id -> its numbers, shape (d,); raises UnscorableError where there
            are none.

    Returns:
        (n, d) numbers of the records that have them, sorted by id, and (n,) their membership.

    Raises:
        UnscorableError: where nobody is known, or one side only.
    """
    if known is None:
        reason = "no records of known membership to learn from"
        raise UnscorableError(reason)
    labels = dict(zip(known.observations.ids, known.member.tolist(), strict=True))
    rows: dict[str, FloatArray] = {}
    reasons: Counter[str] = Counter()
    for id_ in sorted(labels):
        try:
            rows[id_] = row(known.observations, id_)
        except UnscorableError as error:
            reasons[error.problem] += 1
    member = np.array([labels[id_] for id_ in rows], dtype=bool)
    _check_sides(
        member, max(reasons, key=lambda reason: reasons[reason], default="nobody is known")
    )
    return np.array(list(rows.values())), member


def weighed(audited: Observations, known: Known | None, signal: Signal) -> Scores:
    """What other attacks say, weighed by one logistic model that is fitted to known records.

    Args:
        audited: whom to score.
        known: whom to learn from.
        signal: which attacks are weighed.

    Returns:
        The log-odds of membership.
    """
    try:
        said, member = lessons(known, signal)
    except UnscorableError as error:
        return unscored(audited.ids, error.problem)
    values = measured(audited, signal)
    odds = learned(list(said.values()), member).log_odds(list(values.values())).tolist()
    by_id = dict(zip(values, odds, strict=True))

    def formula(id_: str) -> float:
        audited.get(signal, id_)
        return float(by_id[id_])

    return score_each(audited, formula)


def mean_logprob(stats: TokenStats) -> float:
    """LL: the mean log-probability of the scored tokens, in nats per token.

    Raises:
        UnscorableError: where no token is scored.
    """
    if not len(stats.logprob):
        reason = "no token to score"
        raise UnscorableError(reason)
    return float(stats.logprob.mean(dtype=np.float64))


def ratio_to(logprob: float, value: float) -> float:
    """`value / logprob`, for a mean log-probability `logprob`.

    Raises:
        UnscorableError: where `logprob` is too close to 0 to divide by, or is not finite: a ratio
            to it would be noise, or a 0 that means nothing.
    """
    if not np.isfinite(logprob):
        reason = "a token is impossible under the model"
        raise UnscorableError(reason)
    if logprob > -_CERTAIN:
        reason = "the model is certain of every token: a ratio to its log-probability is noise"
        raise UnscorableError(reason)
    return value / logprob


def gains(target: TokenStats, reference: TokenStats, common: CommonText) -> FloatArray:
    """How much likelier each token is for the target than for the reference, in nats, shape (n,).

    Raises:
        UnscorableError: where the two have other tokens for the text, so that theirs cannot be
            told against each other, where there is no token, or one that is impossible.
    """
    if not common.same_tokens or len(target.logprob) != len(reference.logprob):
        reason = "the two models cut this record into other tokens"
        raise UnscorableError(reason)
    if not len(target.logprob):
        reason = "no token to score"
        raise UnscorableError(reason)
    gain: FloatArray = target.logprob.astype(np.float64) - reference.logprob
    if not np.isfinite(gain).all():
        reason = "a token has no finite value"
        raise UnscorableError(reason)
    return gain


def line(similarity: FloatArray, logprob: FloatArray) -> tuple[float, float]:
    """The least-squares line l = a s + b through the tokens of one text: a and b (PETAL).

    Args:
        similarity: (n,) log-similarities s of a model's first choices.
        logprob: (n,) the log-probabilities l that the same model gives, in nats.

    Raises:
        UnscorableError: where no line can be drawn.
    """
    if len(similarity) != len(logprob) or not len(logprob):
        reason = "no token to score"
        raise UnscorableError(reason)
    if not (np.isfinite(similarity).all() and np.isfinite(logprob).all()):
        reason = "a token has no finite value"
        raise UnscorableError(reason)
    away = similarity - similarity.mean()
    if float(np.abs(away).max()) < _FLAT:
        reason = "the surrogate's first choices are all equally like the text: no line can be drawn"
        raise UnscorableError(reason)
    slope = float(away @ logprob.astype(np.float64) / (away @ away))
    return slope, float(logprob.mean(dtype=np.float64) - slope * similarity.mean())


def likelihoods(measure: Measure, observations: Observations, id_: str) -> ProbedLikelihoods:
    """Log-likelihoods of one record without and after probes, told or guessed.

    Guessed, LL = sum_t (a s_t + b), with the line of the text alone, under the surrogate: what the
    probes change is the similarity of the target's first choices.

    Raises:
        UnscorableError: with the reason, where something is missing, or no line can be drawn.
    """
    seen, *rest = (observations.get(signal, id_) for signal in measure.signals())
    if not rest:
        return cast("ProbedLikelihoods", seen)
    surrogate, stats, _ = rest
    slope, intercept = line(surrogate.values, stats.logprob)
    return ProbedLikelihoods(
        seen.n_tokens,
        slope * seen.plain + intercept * seen.n_tokens,
        slope * seen.probed + intercept * seen.n_tokens,
    )


def check_finite(*values: FloatArray | float) -> None:
    """Refuses what no comparison can be made with.

    Raises:
        UnscorableError: where a value is infinite or undefined.
    """
    if not all(np.isfinite(value).all() for value in values):
        reason = "a text has no finite likelihood"
        raise UnscorableError(reason)


def mean_of_lowest(values: FloatArray, k: float) -> float:
    """Mean of the max(1, floor(k * n)) lowest of n values, shape (n,).

    Raises:
        UnscorableError: where there is no value, or one that is not finite.
    """
    if not len(values):
        reason = "no token to score"
        raise UnscorableError(reason)
    if not np.isfinite(values).all():
        reason = "a token has no finite value"
        raise UnscorableError(reason)
    n = max(1, int(k * len(values)))
    return float(np.sort(values)[:n].mean(dtype=np.float64))


def is_fitted(attack: Attack) -> bool:
    """Whether the attack learns from known records."""
    return bool(getattr(attack, "fitted", False))


def fewest_known(attack: Attack) -> int:
    """How many known records of each side the attack takes to learn from."""
    return int(getattr(attack, "fewest", 0))


def is_fusing(attack: Attack) -> bool:
    """Whether the attack learns from the scores of others, and so comes after them."""
    return any(isinstance(signal, ScoreSignal) for signal in attack.signals())


def is_borrowing(attack: Attack) -> bool:
    """Whether the attack uses what it has learned in another audit."""
    return any(isinstance(signal, LentSignal) for signal in attack.signals())


def threshold_of(attack: Attack) -> float | None:
    """The score from which on the attack's paper calls a record a member, where it names one."""
    threshold = getattr(attack, "threshold", None)
    return None if threshold is None else float(threshold)


def needs_weights(attack: Attack) -> bool:
    """Whether the attack uses the weights of the model."""
    return attack.access >= Access.WHITE_BOX


def needs_reference(attack: Attack) -> bool:
    """Whether the attack compares the target with a reference model."""
    return any(signal.of == REFERENCE for signal in attack.signals())


def is_on_request(attack: Attack) -> bool:
    """Whether the attack is run only where it is named, or all are asked for."""
    return bool(getattr(attack, "on_request", False))


def is_with_weights(attack: Attack) -> bool:
    """Whether the attack is run, unnamed, where white-box access is asked for."""
    return bool(getattr(attack, "with_weights", False))


def scenario_of(attack: Attack | type[Attack]) -> str:
    """What is audited: "finetune" (who was trained on), or "prompt" (who is in the prompt)."""
    return str(getattr(attack, "scenario", FINETUNE))


def needs_shadows(attack: Attack) -> bool:
    """Whether the attack compares the target with shadow models."""
    return any(signal.of == SHADOW for signal in attack.signals())


def is_blind(attack: Attack) -> bool:
    """Whether the attack asks no model: a baseline that must stay at chance."""
    return bool(getattr(attack, "blind", False))
