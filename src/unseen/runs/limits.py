"""Limits on leakage as they are written, on the command line, in YAML or in Python."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from unseen.errors import ConfigError, short

EXAMPLE = "auc=0.6, tpr@fpr=0.01=0.05, advantage=0.1, headline=0.1; of one attack: auc@loss=0.6"
_HOW = f"write METRIC=VALUE, for example {EXAMPLE}"
_LIMIT = re.compile(r"(.+)[=:]([^=:]+)")
_METRIC = re.compile(r"(auc|advantage|headline|tpr)(?:@fpr=([^@\[\]]+))?(?:@(.+))?")

HEADLINE = "headline"


@dataclass(frozen=True)
class Limit:
    """What a number must not exceed.

    Attributes:
        name: the metric as it was written, for example tpr@fpr=0.01.
        kind: auc, tpr, advantage or headline.
        at_most: the limit.
        fpr: the false-positive rate of a TPR, else None.
        attack: the attack that is meant, or None: the worst of all.
    """

    name: str
    kind: str
    at_most: float
    fpr: float | None = None
    attack: str | None = None


def parse(limits: Mapping[str, float] | Iterable[str]) -> tuple[Limit, ...]:
    """Limits as they are written on the command line, in YAML or in Python.

    >>> [(one.kind, one.fpr, one.attack, one.at_most) for one in parse(["tpr@fpr=0.01@loss=0.05"])]
    [('tpr', 0.01, 'loss', 0.05)]

    Raises:
        ConfigError: all faults at once.
    """
    pairs: list[tuple[str, str]] = []
    faults: list[str] = []
    if isinstance(limits, Mapping):
        pairs = [(str(name).strip(), str(value)) for name, value in limits.items()]
    else:
        for text in limits:
            match = _LIMIT.fullmatch(str(text).strip())
            if match is None:
                faults.append(f"{short(str(text))!r} holds no limit")
            else:
                pairs.append((match[1].strip(), match[2]))
    found: list[Limit] = []
    for name, value in pairs:
        try:
            found.append(_limit(name, value))
        except ValueError as error:
            faults.append(f"{short(name)}: {error}")
    names = [one.name for one in found]
    faults += [f"{name} stands twice" for name in sorted(set(names)) if names.count(name) > 1]
    if faults:
        raise ConfigError(f"the gate is wrong: {'; '.join(faults)}", fix=_HOW)
    return tuple(found)


def _limit(name: str, value: str) -> Limit:
    """One limit; ValueError says in a few words what is wrong with it."""
    match = _METRIC.fullmatch(name)
    if match is None:
        msg = "expected auc, tpr@fpr=RATE, advantage or headline, and @ATTACK for one attack alone"
        raise ValueError(msg)
    kind, rate, attack = match.groups()
    at_most = _number_in(value, "limit")
    if kind == "tpr" and rate is None:
        msg = "a TPR is one at a false-positive rate: tpr@fpr=0.01=0.05"
        raise ValueError(msg)
    if kind != "tpr" and rate is not None:
        msg = "only tpr has a false-positive rate"
        raise ValueError(msg)
    if kind == HEADLINE and attack is not None:
        msg = "the headline chooses its attack by itself"
        raise ValueError(msg)
    fpr = None if rate is None else _number_in(rate, "rate")
    if fpr is not None and not 0 < fpr < 1:
        msg = f"got the rate {rate}, expected one between 0 and 1"
        raise ValueError(msg)
    chance = {"auc": 0.5, "tpr": fpr or 0.0}.get(kind, 0.0)
    if not chance < at_most < 1:
        msg = (
            f"got the limit {at_most:g}, expected one above {chance:g} and below 1: a limit that "
            "nothing or everything keeps is none"
        )
        raise ValueError(msg)
    name = kind if fpr is None else f"tpr@fpr={fpr:g}"
    return Limit(name if attack is None else f"{name}@{attack}", kind, at_most, fpr, attack)


def _number_in(text: str, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        msg = f"got the {what} {short(text)!r}, expected a number"
        raise ValueError(msg)
    return number
