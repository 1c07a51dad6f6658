"""What an audit of a prompt would take, before it is begun. Writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unseen.attacks import label
from unseen.runs.answers import answers_so_far
from unseen.runs.collect import Model, Progress, prompts_of, questions
from unseen.runs.estimate import Asked, Forecast, asked_of, memory_of, resolved, texts_of
from unseen.runs.header import Note
from unseen.runs.metered import endpoint_of
from unseen.runs.prompt.asked import total
from unseen.runs.prompt.ready import Ready, in_words, ready
from unseen.scoring.store import Store
from unseen.signals.base import REFERENCE, TARGET

if TYPE_CHECKING:
    from unseen.prompts.templates import PromptTemplate
    from unseen.runs.prompt.config import PromptAudit
    from unseen.runs.prompt.demos import Given
    from unseen.runs.prompt.settings import Setting
    from unseen.targets.access import LogprobTarget
    from unseen.types import Prompt, Request


def estimate(
    config: PromptAudit,
    *,
    target: LogprobTarget | None = None,
    demos: Given | None = None,
    template: PromptTemplate | None = None,
    progress: Progress | None = None,
    note: Note | None = None,
) -> Forecast:
    """What an audit with these choices would take.

    Args:
        config: every choice.
        target: a target that the caller has made, instead of `config.model`.
        demos: labelled records that the caller has.
        template: a template that the caller has made.
        progress: told how far preparing is.
        note: told what the user should know.

    Raises:
        UnseenError: for every fault that the audit itself would find before it asks the model.
    """
    say = note or (lambda _: None)
    start = ready(config, target=target, demos=demos, template=template, say=say)
    notes: list[str] = []
    with answers_so_far(config) as store:
        asked = _asked(start, store, notes, progress)
        each = ((one.records.records, *start.of(one)) for one in start.settings)
        whole = total(start.signals, each, store)
    if whole.at_most > whole.left:
        notes.append(
            f"answers may lead to more questions: up to {whole.at_most:,} in all are left to ask"
        )
    memory, basis = memory_of(start.model)
    records = start.main.records
    n = (len(records.members), len(records.nonmembers))
    return Forecast(
        target=start.model.target.describe(),
        access=start.model.target.access.word,
        n=n,
        settings=tuple(map(in_words, start.settings)),
        requests_to_send=None if endpoint_of(start.models) is None else whole.left,
        max_requests=config.max_requests,
        set_aside=(0, 0),
        dropped=len(start.dropped),
        attacks=tuple(label(attack) for attack in start.plan.attacks),
        control=tuple(label(attack) for attack in start.plan.control),
        control_note=start.plan.control_note,
        skipped=start.plan.skipped,
        asked=asked,
        memory_bytes=memory,
        memory_basis=basis,
        fpr=resolved(n[1], config.fpr),
        notes=tuple(notes),
    )


def _asked(
    start: Ready, store: Store, notes: list[str], progress: Progress | None
) -> dict[str, Asked]:
    """What is asked behind prompts, and behind empty ones, of all settings together."""
    prompts: dict[str, tuple[Model, list[Prompt]]] = {}
    requests: dict[str, list[Request]] = {}
    for setting in start.settings:
        models, shown = start.of(setting)
        records = setting.records.records
        written = prompts_of(start.signals, records, models, shown=shown)
        asked = questions(start.signals, records, models, shown=shown, progress=progress)
        for role, model in models.items():
            name = _name(role, setting)
            prompts.setdefault(name, (model, []))[1].extend(written[role])
            requests.setdefault(name, []).extend(asked[role])
    found = {}
    for name, (model, some) in prompts.items():
        one = asked_of(model, requests[name], store, notes, config=start.config)
        texts = texts_of(model, some, store, notes, config=start.config)
        found[name] = one.model_copy(update={"texts": texts})
    return found


def _name(role: str, setting: Setting) -> str:
    """Whom it asks: models behind defences are others."""
    if role not in (TARGET, REFERENCE):
        return role
    where = "behind an empty prompt" if role == REFERENCE else "behind the prompt"
    return where if setting.defense is None else f"{where}, {setting.defended}"
