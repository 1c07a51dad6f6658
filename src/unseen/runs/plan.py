"""What an audit will do, decided before a model is asked: attacks, control, and the plan's identity."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from unseen import __version__
from unseen.attacks import blind, create, default, everything, label, name_of
from unseen.attacks.base import (
    FINETUNE,
    PROMPT,
    Attack,
    is_blind,
    is_fusing,
    needs_reference,
    needs_shadows,
    needs_weights,
    scenario_of,
)
from unseen.data.templates import RecordEncoder
from unseen.errors import AccessError, ConfigError, flag
from unseen.runs.config import ENDPOINT, unread
from unseen.runs.fused import obstacles, repeated, without
from unseen.runs.judge import ANSWER_ONLY
from unseen.runs.lent import lacking, refusal
from unseen.runs.models import is_endpoint, is_fake, one_format
from unseen.scoring.generation import EachAlone
from unseen.signals.base import (
    CONTROL,
    GENERATOR,
    REFERENCE,
    SHADOW,
    SURROGATE,
    TARGET,
    ContinuationSignal,
    InsideSignal,
    LikelihoodSignal,
    PopulationSignal,
    ScoreSignal,
    Signal,
    as_control,
    corpus_needed,
    directions_needed,
    helpers_needed,
    key,
    needs_adapter,
    paraphrases_needed,
    pool_needed,
    probes_needed,
)
from unseen.signals.likelihoods import TextLikelihood
from unseen.signals.neighbours import fillers_needed
from unseen.signals.similarity import TokenSimilarity
from unseen.signals.token_stats import TokenStatistics
from unseen.targets.access import Access, InsideTarget, is_adapted
from unseen.targets.fillers import EMBEDDINGS, HasWordEmbeddings
from unseen.targets.limited import LimitedTarget

if TYPE_CHECKING:
    from unseen.data.records import Records
    from unseen.runs.collect import Model, Shadow
    from unseen.runs.config import AuditChoices, FinetuneAudit
    from unseen.runs.lent import Lent
    from unseen.targets.access import LogprobTarget
    from unseen.targets.fillers import Filler

_NOT_OF_THE_PLAN = {
    "run_dir", "runs", "cache_dir", "cache", "offline", "batch_tokens", "threads", "reveal", "keep_tokens",
    "members", "nonmembers", "data", "reference_pool", "model", "adapter", "base_model", "reference",
    "shadow", "control_model", "nonmembers_apart", "corpus", "surrogate", "generator", "probes",
    "paraphrases", "directions", "gate", "run_of", "trained_from", *ENDPOINT,
}  # fmt: skip

_HELPERS = {
    SURROGATE: "it needs a surrogate, a model that tells its log-probabilities",
    GENERATOR: "it needs a generator, a model that says things in other words",
}
_OF_A_MODEL = ("adapter", "base_model", "revision", "tokenizer")
_OF_EVERY_MODEL = ("dtype", "device", "attn_implementation", "trust_remote_code")
_OF_FILES = ("format", "column", "id_column", "label_column", "cluster_by", "slice_by", "limit")


@dataclass(frozen=True)
class Plan:
    """What will be measured, after every fault that can be known without asking a model.

    Attributes:
        attacks: run on the target.
        control: repeated on the reference.
        skipped: default attacks that cannot be run, and why.
        control_note: why there is no control, or not of every attack that could be repeated.
        control_model: repeated on the control model.
        control_model_note: why not every attack is repeated on the control model that is named.
    """

    attacks: tuple[Attack, ...]
    control: tuple[Attack, ...]
    skipped: dict[str, str]
    control_note: str | None
    control_model: tuple[Attack, ...] = ()
    control_model_note: str | None = None

    @property
    def signals(self) -> tuple[Signal, ...]:
        """Everything that has to be measured, once."""
        wanted = [signal for attack in self.attacks for signal in attack.signals()]
        wanted += [as_control(signal) for attack in self.control for signal in attack.signals()]
        wanted += [
            as_control(signal, CONTROL)
            for attack in self.control_model
            for signal in attack.signals()
        ]
        return tuple(dict.fromkeys(s for s in wanted if not isinstance(s, ScoreSignal)))


def choose_attacks(
    specs: tuple[str, ...], *, weights: bool = False, scenario: str = FINETUNE
) -> dict[str, tuple[Attack, bool]]:
    """Label -> attack, and whether the user named it; every fault at once.

    Args:
        specs: as the user names them.
        weights: whether an ordinary audit also looks inside the model.
        scenario: what is audited.
    """
    usual = default(weights=weights, scenario=scenario)
    found: dict[str, tuple[Attack, bool]] = {}
    faults: list[ConfigError] = []
    for spec in specs:
        named = spec not in ("default", "all")
        for one in (spec,) if named else everything(scenario) if spec == "all" else usual:
            try:
                attack = of_scenario(create(one), scenario)
            except ConfigError as error:
                faults.append(error)
                continue
            found.setdefault(label(attack), (attack, named))
    if found and all(is_fusing(attack) for attack, _ in found.values()):
        for attack in map(create, usual):  # somebody has to say what it learns from
            found.setdefault(label(attack), (attack, False))
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise ConfigError("; ".join(fault.problem for fault in faults), fix=faults[0].fix)
    if any(needs_weights(attack) for attack, _ in found.values()):
        for attack in map(create, ANSWER_ONLY):  # what weights add is told against these
            found.setdefault(label(attack), (attack, False))
    for attack in blind():  # in every audit
        found.setdefault(label(attack), (attack, False))
    return found


_ON = {FINETUNE: "training data (unseen audit finetune)", PROMPT: "prompts (unseen audit prompt)"}


def of_scenario(attack: Attack, scenario: str) -> Attack:
    """The attack, if it can say anything about what is audited.

    Raises:
        ConfigError: where it is one on something else.
    """
    if is_blind(attack) or is_fusing(attack) or scenario_of(attack) == scenario:
        return attack
    error = ConfigError(
        f"attack {label(attack)} is one on {_ON[scenario_of(attack)]}",
        fix=f"--attacks default, or of these: {', '.join(_not_blind(scenario))}",
    )
    error.option = "attacks"
    raise error


def _not_blind(scenario: str) -> list[str]:
    return [spec for spec in everything(scenario) if not is_blind(create(spec))]


def check_inputs(
    config: FinetuneAudit, target: LogprobTarget | None, records: Records | None
) -> None:
    """Refuses what is missing, given twice or without effect, all of it at once.

    Raises:
        ConfigError: with every fault.
    """
    faults: list[str] = []
    if target is None and not config.model:
        faults.append("no model is named: --model MODEL")
    if target is not None and config.model:
        faults.append("the model is given twice: as an object and by its name")
    faults += record_faults(config, records)
    idle = _without_effect(config, target, records)
    if faults or idle:
        raise ConfigError(
            "; ".join([*faults, *(f"{flag} {why}" for flag, why in idle.items())]),
            fix="unseen audit finetune --model MODEL --members FILE --nonmembers FILE"
            if faults
            else f"leave out {' '.join(idle)}",
        )


def check_run_of(
    config: FinetuneAudit, target: LogprobTarget | None, records: Records | None
) -> None:
    """Refuses a model or records as objects where a train run names both.

    Raises:
        ConfigError: with every fault.
    """
    twice = [what for what, one in (("model", target), ("records", records)) if one is not None]
    if twice:
        raise ConfigError(
            f"the {' and the '.join(twice)} come from the train run {config.run_of}, and are given as "
            "an object too",
            fix="leave out one of them",
        )


def record_faults(config: FinetuneAudit, records: Records | None) -> list[str]:
    """What is missing or given twice of the records."""
    pair = config.members is not None or config.nonmembers is not None
    if records is not None:
        twice = pair or config.data is not None
        return ["records are given twice: as an object and as files"] if twice else []
    if config.data is not None and pair:
        return ["--data and --members/--nonmembers exclude each other"]
    if config.data is not None:
        lacking = config.label_column is None
        return ["--data needs --label-column, which says who is a member"] if lacking else []
    named = {"members": config.members, "nonmembers": config.nonmembers}
    says = {
        "members": "no members are named: --members FILE",
        "nonmembers": "no non-members are named: --nonmembers FILE (same source, held out)",
    }
    return [says[side] for side, file in named.items() if file is None]


def _without_effect(
    config: FinetuneAudit, target: LogprobTarget | None, records: Records | None
) -> dict[str, str]:
    """Options that the user has given and nothing would read, and why."""
    idle: dict[str, str] = {}
    fake, endpoint = is_fake(config.model), is_endpoint(config.model)
    # A reference that has a name of its own is loaded as they say.
    named = config.reference not in ("auto", "base", "none")
    if target is not None or fake or endpoint:
        what = (
            "a target object" if target is not None else "a fake model" if fake else "an endpoint"
        )
        local = named and not (is_fake(config.reference) or is_endpoint(config.reference))
        options = _OF_A_MODEL if local else (*_OF_A_MODEL, *_OF_EVERY_MODEL)
        idle |= dict.fromkeys(changed(config, options), f"says nothing of {what}")
    elif config.revision is not None:
        base = config.base_model or config.model
        if _is_local(base) and not _is_local(f"{base}/adapter_config.json"):
            idle["--revision"] = f"is of a hub name, and {base} is a local model"
    others = (config.reference, config.control_model, config.surrogate, config.generator)
    if not any(name is not None and is_endpoint(name) for name in (config.model, *others)):
        why = "is of an endpoint, --model openai/NAME"
        idle |= dict.fromkeys(changed(config, ENDPOINT), why)
    if records is not None:
        why = "says nothing of records that are given as an object"
        idle |= dict.fromkeys(changed(config, _OF_FILES), why)
    elif config.label_column is not None and config.data is None:
        idle["--label-column"] = "is a column of --data FILE, which is not given"
    return idle


def idle_of_endpoint(config: AuditChoices) -> dict[str, str]:
    """Options of an audit with one model that say nothing of it, and why."""
    if is_endpoint(config.model):
        idle = changed(config, (*_OF_A_MODEL, *_OF_EVERY_MODEL))
        return dict.fromkeys(idle, "says nothing of an endpoint")
    ours = tuple(name for name in ENDPOINT if name != "max_requests")
    return dict.fromkeys(changed(config, ours), "is of an endpoint, --model openai/NAME")


def _is_local(name: str) -> bool:
    return os.path.exists(os.path.expanduser(name))  # noqa: PTH110, PTH111 (a Path refuses some names)


def changed(config: AuditChoices, names: tuple[str, ...]) -> list[str]:
    """Flags of the choices that are not as they are where nothing is said."""
    fields = type(config).model_fields
    return [flag(name) for name in names if getattr(config, name) != fields[name].default]


def plan_attacks(
    config: FinetuneAudit,
    attacks: dict[str, tuple[Attack, bool]],
    models: dict[str, Model],
    lent: Lent | None = None,
    short: Mapping[str, str] | None = None,
) -> Plan:
    """Which attacks models and records allow, and which of them the reference can repeat as control.

    Raises:
        AccessError: where an attack that the user named cannot be run.
        ConfigError: where shadow models are named that no attack would ask.
    """
    run: list[Attack] = []
    skipped: dict[str, str] = {}
    for name, (attack, named) in attacks.items():
        why = obstacle_of(config, attack, models)
        if why is None and short and name in short:
            skipped[name] = short[name]  # it would have a reason for every record, and no score
        elif why is None:
            run.append(attack)
        elif named:
            raise AccessError(
                f"attack {name} cannot be run: {why}", fix=_fix(config, attack, models)
            )
        else:
            skipped[name] = why
    labels = {label(attack) for attack in run}
    borrowing = {label(attack): refusal(lent, attack, labels) for attack in run}
    too_few = obstacles(run) | {name: why for name, why in borrowing.items() if why}
    idle = lent is not None and all(borrowing[label(one)] for one in run if lent.of(one))
    for name, why in too_few.items():
        if attacks[name][1] or (idle and borrowing[name]):
            fix = f"--attacks 'default,{name}', or '{name}' alone, which then learns from the default ones"
            if borrowing[name]:
                more = lacking(lent, attacks[name][0], labels)
                given = [*config.attacks, *(one for one in more if one not in config.attacks)]
                fix = f"--attacks {shlex.quote(','.join(given))}" if more else "--trained-from RUN"
            raise AccessError(f"attack {name} cannot be run: {why}", fix=fix)
    left_out = too_few | {n: why for n, why in repeated(run).items() if not attacks[n][1]}
    skipped |= left_out
    run = list(without(run, left_out))
    if all(is_blind(attack) for attack in run):
        why_none = "; ".join(f"{name}: {why}" for name, why in (short or {}).items())
        raise AccessError(
            "no attack is left to run" + (f" ({why_none})" if why_none else ""),
            fix=_able(config, models),
        )
    if config.shadow and not any(map(needs_shadows, run)) and not short:
        raise unread("shadow", "lira", "rmia")
    if lent is not None and not any(map(lent.of, run)):
        raise unread("trained_from", "transferred")
    _refuse_idle_helpers(config, run)
    control, control_note = _control(config, run, models)
    return Plan(tuple(run), control, skipped, control_note, *_control_model(config, run, models))


def _refuse_idle_helpers(config: FinetuneAudit, run: Sequence[Attack]) -> None:
    """Refuses models that are named and nobody would ask.

    Raises:
        ConfigError: with what would ask them.
    """
    needed = helpers_needed(signal for attack in run for signal in attack.signals())
    writing = ("icp_sp[source=generate]", "g_drift_stability[source=generate]")
    for role, who in ((SURROGATE, ("petal",)), (GENERATOR, writing)):
        if getattr(config, role) is not None and role not in needed:
            raise unread(role, *who)


def _fix(config: FinetuneAudit, attack: Attack, models: dict[str, Model]) -> str:
    """What to type where an attack that the user named cannot be run."""
    target = models[TARGET].target
    if attack.access <= target.access:
        return "unseen ls attacks"
    fixes = [f"--attacks '{label(one)}'" for one in _by_labels(attack, target.access)]
    # The user's own cap, where it is no more than that.
    if isinstance(target, LimitedTarget) and target.most >= attack.access:
        fixes.append(f"--access {attack.access.word}, or leave out --access {config.access}")
    return ", or ".join(fixes) or _able(config, models)


def _by_labels(attack: Attack, access: Access) -> list[Attack]:
    """The attack as it is for a target that tells its first choices alone, where there is one."""
    if not hasattr(attack, "likelihood") or access < Access.LABEL:
        return []
    with suppress(ValueError):
        return [dataclasses.replace(cast("Any", attack), likelihood="petal")]
    return []


def _able(config: FinetuneAudit, models: dict[str, Model]) -> str:
    """What to type where no attack is left: one that can be run, or the list of all."""
    known = list(map(create, everything()))
    for attack in (*known, *(told(attack) for attack in known if _untold(attack))):
        if not (is_blind(attack) or is_fusing(attack)) and not obstacle_of(config, attack, models):
            return f"--attacks {label(attack)}"
    return "unseen ls attacks --explain"


def obstacle_of(config: FinetuneAudit, attack: Attack, models: dict[str, Model]) -> str | None:
    """Why an attack cannot be run with these choices and models, or None where it can."""
    return obstacle(
        attack,
        models[TARGET].target.access,
        reference=REFERENCE in models,
        pool=config.reference_pool is not None,
        corpus=(config.corpus or config.reference_pool) is not None,
        shadows=bool(config.shadow),
        embeddings=isinstance(models[TARGET].target, HasWordEmbeddings),
        helpers=[role for role in (SURROGATE, GENERATOR) if role in models],
        probes=config.probes is not None,
        paraphrases=config.paraphrases is not None,
        directions=config.directions is not None,
        inside=isinstance(models[TARGET].target, InsideTarget),
        adapter=is_adapted(models[TARGET].target),
        endpoint=isinstance(models[TARGET].target, EachAlone),
    )


def obstacle(
    attack: Attack,
    access: Access,
    *,
    reference: bool,
    pool: bool,
    corpus: bool,
    shadows: bool,
    embeddings: bool,
    helpers: Collection[str],
    probes: bool,
    paraphrases: bool,
    directions: bool,
    inside: bool,
    adapter: bool,
    endpoint: bool = False,
) -> str | None:
    """Why an attack cannot be run, or None where it can.

    Args:
        attack: the attack.
        access: what the target gives.
        reference: whether there is a reference model.
        pool: whether there is a reference pool.
        corpus: whether there is a corpus, or a reference pool that is one.
        shadows: whether there are shadow models.
        embeddings: whether the target shows its word embeddings.
        helpers: roles of the attacker's own models that there are: surrogate, generator.
        probes: whether the user gives probes.
        paraphrases: whether the user gives paraphrases of prompts.
        directions: whether the user gives directions.
        inside: whether the target shows its states and gradients.
        adapter: whether the target is an adapter on a base.
        endpoint: whether the target is an endpoint, which cannot be told all of how text is drawn.
    """
    if attack.access > access:
        return f"it needs {attack.access.word} access, the target gives {access.word}"
    if endpoint and (why := why_untold(attack)) is not None:
        return why
    if not inside and any(isinstance(signal, InsideSignal) for signal in attack.signals()):
        return "it looks at states and gradients, which this target does not show"
    if not adapter and needs_adapter(attack.signals()):
        return "it looks at the weights of an adapter, and the target has none"
    if not reference and needs_reference(attack):
        return "it needs a reference model: --reference MODEL"
    if not shadows and needs_shadows(attack):
        return "it needs models trained as the target was, on other records: --shadow MODEL"
    for role in sorted(helpers_needed(attack.signals()) - set(helpers)):
        return f"{_HELPERS[role]}: --{role} MODEL, or --reference MODEL, which then serves as one"
    if not probes and probes_needed(attack.signals()):
        return "it needs responses to probe with: --probes FILE"
    if not paraphrases and paraphrases_needed(attack.signals()):
        return "it needs prompts in other words: --paraphrases FILE"
    if not directions and directions_needed(attack.signals()):
        return "it needs directions to project states onto: --directions FILE"
    if not pool and pool_needed(attack.signals()):
        return "it needs demonstrations of others: --reference-pool FILE"
    if not corpus and corpus_needed(attack.signals()):
        return "it needs texts to count tokens in: --corpus FILE, or --reference-pool FILE"
    if not embeddings and EMBEDDINGS in fillers_needed(attack.signals()):
        return no_embeddings(attack)
    return None


_UNTOLD = ("top_k", "fewest")


def _untold(attack: Attack) -> str | None:
    """What an attack says of how text is drawn, and endpoints do not take, or None."""
    writing = [s for s in attack.signals() if isinstance(s, ContinuationSignal) and s.of == TARGET]
    return next((name for name in _UNTOLD for s in writing if getattr(s, name, 0)), None)


def why_untold(attack: Attack) -> str | None:
    """Why an attack cannot be run on an endpoint that could answer it, or None."""
    untold = _untold(attack)
    if untold is None:
        return None
    spec = label(told(attack))
    return f"it says how text is drawn, and an endpoint takes no {untold}: --attacks '{spec}'"


def told(attack: Attack) -> Attack:
    """The attack without what an endpoint does not take."""
    if _untold(attack) is None:
        return attack
    fields = {field.name for field in dataclasses.fields(cast("Any", attack))}
    plain = {name: 0 for name in _UNTOLD if name in fields}
    return cast("Attack", dataclasses.replace(cast("Any", attack), **plain))


def no_embeddings(attack: Attack) -> str:
    """Why an attack has no neighbours to compare with, where it makes them of word embeddings."""
    return (
        "it needs a model that puts other words in, and the target shows no word embeddings: "
        f"--attacks '{name_of(attack)}[filler=MODEL]'"
    )


def _control(
    config: FinetuneAudit, attacks: list[Attack], models: dict[str, Model]
) -> tuple[tuple[Attack, ...], str | None]:
    if config.control == "none":
        return (), "switched off by --control none"
    if REFERENCE not in models:
        return (), "there is no model from before fine-tuning to compare with: --reference MODEL"
    able = [
        attack
        for attack in attacks
        if not (is_blind(attack) or is_fusing(attack) or needs_reference(attack))
        and (is_adapted(models[REFERENCE].target) or not needs_adapter(attack.signals()))
    ]
    if config.control == "shared":
        able = [attack for attack in able if all(map(_is_shared, attack.signals()))]
    # A surrogate's line through its own similarities gives back its own likelihood, whatever they are.
    own = [attack for attack in able if config.surrogate is None and _is_of_first_choices(attack)]
    able = [attack for attack in able if attack not in own]
    if own:
        names = " and ".join(map(label, own))
        return tuple(able), (
            f"{names} is not repeated on the reference: this is its own surrogate, and its row would be "
            "that of loss"
        )
    return tuple(able), None if able else "none of these attacks can be run on the reference"


def _control_model(
    config: FinetuneAudit, attacks: list[Attack], models: dict[str, Model]
) -> tuple[tuple[Attack, ...], str | None]:
    """What is repeated on the control model, and why that is not all: it is named to be asked."""
    if CONTROL not in models:
        return (), None
    able = [attack for attack in attacks if not (is_blind(attack) or is_fusing(attack))]
    given = models[CONTROL].target.access
    why = f"the control model gives {given.word} access"
    left_out = {label(attack): why for attack in able if attack.access > given}
    if not is_adapted(models[CONTROL].target):
        why = "the control model is no adapter"
        left_out |= {label(one): why for one in able if needs_adapter(one.signals())}
    if not one_format(models, CONTROL):
        why = "the control model does not read records as the target does"
        left_out |= {label(attack): why for attack in able if needs_reference(attack)}
    if config.surrogate == config.control_model:
        why = "the control model is its own surrogate"
        left_out |= {label(attack): why for attack in able if _is_of_first_choices(attack)}
    note = "; ".join(f"{name} is not repeated: {why}" for name, why in left_out.items())
    return without(able, left_out), note or None


def refuse_idle_control(config: FinetuneAudit) -> None:
    """Refuses a control model on which nothing is to be repeated.

    Raises:
        ConfigError: where both is said.
    """
    if config.control_model is not None and config.control == "none":
        raise ConfigError(
            "--control-model names a model to repeat attacks on, and --control none repeats none",
            fix="leave out one of them",
        )


def _is_of_first_choices(attack: Attack) -> bool:
    """Whether all of an attack is the text's likelihood, as a surrogate's line guesses it."""
    signals = attack.signals()
    return TokenSimilarity in {type(one) for one in signals if one.of == TARGET} and any(
        one.of == SURROGATE for one in signals
    )


def _is_shared(signal: Signal) -> bool:
    """Whether measuring the signal of the reference too costs nothing, next to nothing, or must be.

    What is seen inside a model means nothing until it is known what is seen where nothing was learned.
    """
    if isinstance(signal, InsideSignal):
        return True
    if signal.of == SHADOW or isinstance(signal, PopulationSignal):
        return True
    if isinstance(signal, ContinuationSignal):
        return False
    if signal.of == SURROGATE or isinstance(signal, TokenSimilarity):
        return True  # what others are asked anyway
    return not isinstance(signal, LikelihoodSignal) or signal in (
        TokenStatistics(),
        TextLikelihood(),
    )


def plan_id(
    config: FinetuneAudit,
    judged: Records,
    known: Records,
    models: dict[str, Model],
    plan: Plan,
    pool: str | None = None,
    corpus: str | None = None,
    shadows: Sequence[Shadow] = (),
    fillers: Mapping[str, Filler] | None = None,
    lent: Lent | None = None,
    *,
    probes: str | None = None,
    paraphrases: str | None = None,
    directions: str | None = None,
    apart: Mapping[str, Records] | None = None,
) -> str:
    """A hash of everything that the results depend on."""
    about: dict[str, Any] = {
        "version": __version__,
        "config": config.model_dump(mode="json", exclude=_NOT_OF_THE_PLAN),
        "records": content_hash(judged) + content_hash(known),
        "models": {role: model.target.fingerprint for role, model in models.items()},
        "encoders": {
            role: model.encoder.fingerprint
            for role, model in models.items()
            if isinstance(model.encoder, RecordEncoder)
        },
        "attacks": [label(attack) for attack in plan.attacks],
        "signals": [key(signal) for signal in plan.signals],
    }
    if pool is not None:
        about["reference_pool"] = pool
    if corpus is not None:
        about["corpus"] = corpus
    if fillers:
        about["fillers"] = {name: filler.fingerprint for name, filler in fillers.items()}
    if lent is not None:
        about["trained_from"] = lent.sha256
    if probes is not None:
        about["probes"] = probes
    if paraphrases is not None:
        about["paraphrases"] = paraphrases
    if directions is not None:
        about["directions"] = directions
    if apart:
        about["apart"] = {kind: content_hash(records) for kind, records in apart.items()}
    if shadows:
        everybody = (*judged.records, *known.records)
        about["shadows"] = [
            [shadow.fingerprint, [record.id for record in everybody if shadow.inside(record)]]
            for shadow in shadows
        ]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]


def content_hash(records: Records) -> str:
    """A hash of what records say, and of who is a member."""
    digest = hashlib.sha256()
    for record, member in zip(records.records, records.membership.member.tolist(), strict=True):
        turns = [(turn.role, turn.content) for turn in record.turns]
        about = [record.id, turns, record.cluster, dict(record.slices), member]
        digest.update(json.dumps(about, sort_keys=True).encode())
    return digest.hexdigest()
