"""What a defence costs: answers that are no longer right, and text that says something else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from unseen.defenses.base import Combined, Defense
from unseen.defenses.rewrite_filter import RewriteFilter
from unseen.errors import UnscorableError
from unseen.metrics._checks import MIN_PER_SIDE
from unseen.metrics.correlation import mean
from unseen.metrics.interval import rate_interval
from unseen.runs.collect import prompts_of
from unseen.runs.results import Number
from unseen.scoring.generation import Generation
from unseen.signals.answered import Answer
from unseen.signals.base import TARGET, Observations, Signal
from unseen.signals.embedding import LETTERS, is_at_hand, likeness
from unseen.signals.labelled import LabelLikelihoods
from unseen.targets.ending import first_line

if TYPE_CHECKING:
    from unseen.runs.prompt.ready import Ready
    from unseen.runs.prompt.settings import Setting
    from unseen.scoring.asking import Budget
    from unseen.scoring.store import Store
    from unseen.types import Prompt

FREE_TEXT = "answers are free text: there are no labels to tell right from wrong by"
_ENCODER = "minilm"


def accuracy(
    signal: Signal | None, setting: Setting, observations: Observations, confidence: float
) -> Number | None:
    """Share of right answers about records outside the prompt; None for too few of them."""
    if signal is None:
        return None
    seen = observations.values.get(signal, {})
    asked = [case for case in setting.cases if not case.member and case.id in seen]
    right = np.array([_is_right(seen[case.id]) for case in asked], dtype=bool)
    if len(right) < MIN_PER_SIDE:
        return None
    # One record may be asked about in several trials.
    texts = {case.example.id: i for i, case in enumerate(asked)}
    clusters = np.array([texts[case.example.id] for case in asked])
    low, high = rate_interval(right, confidence=confidence, clusters=clusters)
    return Number(
        value=float(right.mean()),
        ci=(low, high),
        confidence=confidence,
        method="share of right answers, Clopper-Pearson",
        n=(0, len(right)),
    )


def _is_right(answer: Answer | LabelLikelihoods) -> bool:
    try:
        return bool(answer.right)
    except UnscorableError:
        return False


def similarity(start: Ready, setting: Setting, store: Store, budget: Budget) -> Number | None:
    """How like what the model wrote is what a filter made of it, about records outside the prompt.

    Of what attacks let the model write first, the mean cosine of the sentence embeddings; texts about one
    record count as one.

    Args:
        start: the audit.
        setting: one that has been measured.
        store: what is answered already.
        budget: what may still be asked.

    Returns:
        None where no filter rewrites, or it has rewritten too little.
    """
    filters = [part for part in _parts(setting.defense) if isinstance(part, RewriteFilter)]
    if not filters or setting.defense is None:
        return None
    fewest = min(part.fewest for part in filters)
    models, shown = start.of(setting)
    model, plain = models[TARGET], start.model.target
    for part in _parts(setting.defense):
        if not isinstance(part, RewriteFilter):
            plain = part.target(plain, start.helpers, setting.template.labels)
    about: dict[str, list[Prompt]] = {}
    for case in setting.cases:
        if not case.member:
            some = prompts_of(start.signals, [case.record], {TARGET: model}, shown=shown)[TARGET]
            about.setdefault(case.example.id, []).extend(some)
    asked = list(dict.fromkeys(prompt for some in about.values() for prompt in some))
    first, second = (Generation(one, store, budget=budget) for one in (plain, model.target))
    for writing in (first, second):
        writing.ensure(asked)
    decode = model.encoder.tokenizer.decode
    said = {one: (_said(first, one, decode), _said(second, one, decode)) for one in asked}
    long = {one: pair for one, pair in said.items() if len(pair[0].split()) >= fewest}
    encoder = _ENCODER if is_at_hand(_ENCODER) else LETTERS
    alike = dict(zip(long, likeness(encoder).of(list(long.values())).tolist(), strict=True))
    means = [
        np.mean(values)
        for some in about.values()
        if (values := [alike[one] for one in dict.fromkeys(some) if one in alike])
    ]
    if len(means) < MIN_PER_SIDE:
        return None
    found = mean(means, start.config.confidence, members=False)
    if found is None:
        return None
    number = Number.of(found)
    return number.model_copy(
        update={"method": f"mean cosine of a record's texts ({encoder}), Student"}
    )


def _said(writing: Generation, prompt: Prompt, decode: Callable[[Sequence[int]], str]) -> str:
    """What was written, up to where it was to stop."""
    try:
        text = decode(writing.answer(prompt))
    except UnscorableError:
        return ""
    text = text.partition(prompt.stop)[0] if prompt.stop else text
    return (first_line(text) if prompt.one_line else text).strip()


def _parts(defense: Defense | None) -> tuple[Defense, ...]:
    if defense is None:
        return ()
    return defense.parts if isinstance(defense, Combined) else (defense,)
