"""Before an audit that takes gradient steps: can they be batched, and do two equal passes agree?

On one record the batched step is held against Algorithm 1, which really changes the weights. Where
they differ, or the model has layers that the batched step does not know, every step is taken
literally: slower, and never a silent wrong number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from unseen.errors import TargetError, UnscorableError
from unseen.runs.collect import Model
from unseen.runs.results import Check, Status
from unseen.signals.base import Materials, Signal
from unseen.signals.gradient_drift import TakesSteps, asked_about
from unseen.targets.access import InsideTarget
from unseen.targets.looks import StepLook
from unseen.types import Passage, Record

ID = "gradient_step"
TITLE = "gradient steps, batched = literal"
LIMIT = "the state moves alike (within 0.2 %), and not at all where the step has no length"

_STILL = 1e-4
"""|h'-h| / |h| of a step of no length, at most: more is chance in the model, as of dropout."""

_DAMAGED = "its weights may be damaged, or a gradient overflows: try a smaller eta"


def step_check(
    signals: Iterable[Signal], models: dict[str, Model], records: Sequence[Record]
) -> Check | None:
    """The row of an audit's gradient steps; None where it takes none.

    Args:
        signals: of all attacks.
        models: role -> model.
        records: judged ones; the first that can be asked about is tried.
    """
    said: list[str] = []
    status: Status = "pass"
    value: float | None = None
    fix: str | None = None
    for role, look, passage in _tried(signals, models, records):
        target: Any = models[role].target
        try:
            found = target.check_step(look, passage)
        except TargetError as error:
            return _row("fail", f"{role}: {error.problem}", fix=error.fix)
        if not np.isfinite([found.floor, found.difference or 0.0]).all():
            detail = f"{role}: a gradient step gives numbers that are not finite"
            return _row("fail", detail, fix=_DAMAGED)
        if found.floor > _STILL:
            detail = f"a step of no length moves the state of the {role} by {found.floor:.1%}"
            return _row("fail", detail, fix="is there chance in the model's own code?")
        if found.reason is not None:
            status, fix = "warn", "it is exact, but slower: each record has passes of its own"
            said.append(f"{role}: steps are taken one by one: {found.reason}")
        else:
            value = max(value or 0.0, found.difference)
            said.append(f"{role}: batched and literal differ by {found.difference:.1e}")
    return _row(status, "; ".join(said), value, fix) if said else None


def _row(status: Status, detail: str, value: float | None = None, fix: str | None = None) -> Check:
    return Check(
        id=ID, title=TITLE, status=status, value=value, limit=LIMIT, detail=detail, fix=fix
    )


def _tried(
    signals: Iterable[Signal], models: dict[str, Model], records: Sequence[Record]
) -> list[tuple[str, StepLook, Passage]]:
    """A look and a passage for each model and choice of weights that takes steps."""
    found: dict[tuple[str, str], tuple[str, StepLook, Passage]] = {}
    for signal in signals:
        model = models.get(signal.of)
        if not isinstance(signal, TakesSteps) or model is None:
            continue
        if not isinstance(model.target, InsideTarget) or (signal.of, signal.weights) in found:
            continue
        materials = Materials(model.encoder)
        for record in records:
            try:
                passage = asked_about(record, materials, signal.tokens)
            except UnscorableError:
                continue
            look = StepLook(eta=signal.eta, weights=signal.weights)
            found[signal.of, signal.weights] = (signal.of, look, passage)
            break
    return list(found.values())
