"""How much an audit of a prompt would ask, counted from the very questions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unseen.runs.collect import (
    Model,
    later_prompts_of,
    later_questions,
    prompts_of,
    questions,
)
from unseen.scoring.engine import Engine
from unseen.scoring.generation import Generation
from unseen.scoring.planner import n_tokens

if TYPE_CHECKING:
    from unseen.scoring.store import Store
    from unseen.signals.base import Shown, Signal
    from unseen.types import Prompt, Record, Request

Asking = tuple[Sequence["Record"], dict[str, Model], "Shown"]
"""Records, models by role, and the prompts that these stand behind."""


@dataclass(frozen=True)
class Total:
    """Questions of all settings together, each counted once.

    Attributes:
        left: that have to be asked.
        at_most: the same with those that answers can lead to.
        cached: that are answered already.
        tokens: to read and, at most, to write, for those that are left.
    """

    left: int
    at_most: int
    cached: int
    tokens: int


def total(signals: Sequence[Signal], settings: Iterable[Asking], store: Store) -> Total:
    """What is left to ask of all settings.

    Args:
        signals: what is measured.
        settings: records, models and prompts of each.
        store: what is answered already.
    """
    left = at_most = cached = tokens = 0
    prompts: dict[int, tuple[Model, list[Prompt], list[Prompt]]] = {}
    requests: dict[int, tuple[Model, list[Request], list[Request]]] = {}
    for records, models, shown in settings:
        later = later_prompts_of(signals, records, models, shown=shown)
        for role, some in prompts_of(signals, records, models, shown=shown).items():
            _, first, more = prompts.setdefault(id(models[role].target), (models[role], [], []))
            first += some
            more += later[role]
        following = later_questions(signals, records, models, shown=shown)
        for role, asked in questions(signals, records, models, shown=shown).items():
            _, now, then = requests.setdefault(id(models[role].target), (models[role], [], []))
            now += asked
            then += following[role]
    for model, first, more in prompts.values():
        writing = Generation(model.target, store)
        distinct, sheets = writing.remaining(first)
        n = sum(len(sheet.prompts) for sheet in sheets)
        left, cached = left + n, cached + len(distinct) - n
        tokens += writing.to_read(sheets) + sum(sheet.to_write for sheet in sheets)
        at_most += sum(len(sheet.prompts) for sheet in writing.remaining([*first, *more])[1])
    for model, now, then in requests.values():
        engine = Engine(model.target, store)
        wanted, batches = engine.remaining(now)
        n = sum(len(batch.requests) for batch in batches)
        left, cached = left + n, cached + len(wanted) - n
        tokens += n_tokens(batches)
        at_most += sum(len(batch.requests) for batch in engine.remaining([*now, *then])[1])
    return Total(left, at_most, cached, tokens)
