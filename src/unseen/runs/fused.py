"""Attacks that learn from the scores of others: from whose, and how sure their numbers are.

A score that is learnt from the records beside those that it judges is less certain than one that is
fixed beforehand. Two records of different folds judge each other: what the one teaches about the
other is what the other teaches about the one, so that every pair counts twice. Where no score
knows anything, the AUC scatters sqrt(2) times as far as that of a fixed score; its intervals are
wider by that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from unseen.attacks import label
from unseen.attacks.base import (
    Attack,
    is_blind,
    is_fitted,
    is_fusing,
    needs_reference,
    needs_shadows,
)
from unseen.signals.base import LentSignal, Observations, ScoreSignal, Signal
from unseen.signals.scores import LentOdds
from unseen.targets.access import Access

if TYPE_CHECKING:
    from unseen.runs.lent import Lent
    from unseen.runs.results import AttackResult, AtThreshold, Number
    from unseen.types import Scores

FEWEST = 3
"""Attacks to learn from: of fewer, each says more by itself."""

LEARNT = 2**0.5
"""How many times as far as that of a fixed score the AUC of a learnt one scatters."""

WIDER = "wider by sqrt(2), for a learnt score"
"""Ends the name of the method of an interval that is."""


def sources(fusing: Attack, attacks: Iterable[Attack]) -> tuple[str, ...]:
    """Labels of the attacks whose scores an attack learns from.

    Baselines say nothing about the model. What learns is left out too: the scores of other records
    hold the label of the record that is judged.
    """
    wanted = [signal for signal in fusing.signals() if isinstance(signal, ScoreSignal)]
    compared = all(signal.reference for signal in wanted)
    text_only = any(getattr(signal, "text_only", False) for signal in wanted)
    return tuple(
        label(attack)
        for attack in attacks
        if not is_blind(attack)
        and not is_fitted(attack)
        and not is_fusing(attack)
        and (attack.access <= Access.TEXT or not text_only)
        and (compared or not (needs_reference(attack) or needs_shadows(attack)))
    )


def obstacles(attacks: Sequence[Attack]) -> dict[str, str]:
    """Label -> why not, of attacks that would learn from too few scores."""
    found = {}
    for attack in filter(_learns, attacks):
        n = len(sources(attack, attacks))
        if n < FEWEST:
            found[label(attack)] = (
                f"it learns from the scores of {FEWEST} or more other attacks, here are {n}"
            )
    return found


def repeated(attacks: Sequence[Attack]) -> dict[str, str]:
    """Label -> why not, of attacks that would learn from the very scores that another learns from."""
    found: dict[str, str] = {}
    first: dict[tuple[str, ...], str] = {}
    for attack in filter(_learns, attacks):
        name, same = label(attack), first.setdefault(sources(attack, attacks), label(attack))
        if same != name:
            found[name] = f"it would be {same}: the scores to learn from are the same"
    return found


def _learns(attack: Attack) -> bool:
    return is_fusing(attack) and is_fitted(attack)


def without(attacks: Sequence[Attack], names: Iterable[str]) -> tuple[Attack, ...]:
    """The attacks but those named."""
    left_out = set(names)
    return tuple(attack for attack in attacks if label(attack) not in left_out)


def gathered(
    fusing: Attack,
    attacks: Iterable[Attack],
    made: Mapping[str, Scores],
    observations: Observations,
    lent: Lent | None = None,
) -> Observations:
    """What was measured, and beside it the scores that an attack learns from.

    Args:
        fusing: the attack.
        attacks: all attacks of the run on one model.
        made: label -> scores; those of attacks that the attack learns from are needed.
        observations: what was measured, seen as of the target.
        lent: what another audit has learned, for an attack that uses that.
    """
    borrowed = None if lent is None else lent.of(fusing)
    names = sources(fusing, attacks) if borrowed is None else borrowed.attacks
    scores = {name: made[name] for name in names}
    values, missing = dict(observations.values), dict(observations.missing)
    for signal in fusing.signals():
        if isinstance(signal, ScoreSignal):
            if isinstance(signal, LentOdds):
                weights = None if borrowed is None else borrowed.weights
                values[signal] = said = signal.gather(scores, weights)
            else:
                values[signal] = said = signal.gather(scores)
            missing[signal] = {
                id_: "no attack has scored this record"
                for id_ in observations.ids
                if id_ not in said
            }
    return dataclasses.replace(observations, values=values, missing=missing)


def with_lent(attack: Attack, observations: Observations, lent: Lent | None) -> Observations:
    """What was measured, and beside it what an attack borrows of another audit."""
    model = None if lent is None else lent.model(attack)
    if model is None:
        return observations
    borrowed: dict[Signal, Mapping[str, Any]] = {
        signal: dict.fromkeys(observations.ids, model)
        for signal in attack.signals()
        if isinstance(signal, LentSignal)
    }
    return dataclasses.replace(observations, values={**observations.values, **borrowed})


def widened(confidence: float) -> float:
    """The level at which an interval of a fixed score is wider by sqrt(2).

    >>> round(widened(0.95), 4)
    0.9944
    """
    normal = NormalDist()
    reach = LEARNT * normal.inv_cdf((1 + confidence) / 2)
    return min(2 * normal.cdf(reach) - 1, 1 - 1e-12)


def restated(number: Number, confidence: float) -> Number:
    """A number whose interval was made at the level `widened`, with the level that it has."""
    method = f"{number.method}, {WIDER}"
    return number.model_copy(update={"confidence": confidence, "method": method})


def of_learnt(row: AttackResult, confidence: float) -> AttackResult:
    """A row whose intervals were made at the level `widened`, with the level that they have.

    What learns cannot be inverted: its sign is that of the records that it learns from.
    """

    def again(number: Number | None) -> Number | None:
        return None if number is None else restated(number, confidence)

    rates = tuple(at.model_copy(update={"tpr": again(at.tpr)}) for at in row.tpr_at_fpr)
    return row.model_copy(
        update={
            "auc": again(row.auc),
            "advantage": again(row.advantage),
            "by_paper": _again_at(row.by_paper, confidence),
            "tpr_at_fpr": rates,
            "inverted": False,
        }
    )


def _again_at(at: AtThreshold | None, confidence: float) -> AtThreshold | None:
    if at is None:
        return None
    return at.model_copy(update={"advantage": restated(at.advantage, confidence)})


def is_learnt(row: AttackResult) -> bool:
    """Whether the row is of an attack that learns from other records."""
    return row.auc is not None and row.auc.method.endswith(WIDER)
