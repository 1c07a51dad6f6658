"""What an audit of a prompt will do, decided before a model is asked."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from unseen import __version__
from unseen.attacks import label
from unseen.attacks.base import PROMPT, Attack, is_blind, is_borrowing, is_fusing, needs_reference
from unseen.errors import AccessError, ConfigError, UsageError
from unseen.runs.config import ENDPOINT, unread
from unseen.runs.fused import obstacles, repeated, without
from unseen.runs.lent import borrower, refusal
from unseen.runs.plan import (
    Plan,
    changed,
    choose_attacks,
    content_hash,
    idle_of_endpoint,
    no_embeddings,
    why_untold,
)
from unseen.scoring.generation import EachAlone
from unseen.signals.base import SURROGATE, TARGET, access_needed, helpers_needed, key, known_needed
from unseen.signals.embedding import LETTERS, is_at_hand
from unseen.signals.neighbours import fillers_needed
from unseen.targets.fillers import EMBEDDINGS, HasWordEmbeddings

if TYPE_CHECKING:
    from unseen.runs.collect import Model
    from unseen.runs.lent import Lent
    from unseen.runs.prompt.config import PromptAudit
    from unseen.runs.prompt.settings import Setting
    from unseen.targets.access import LogprobTarget
    from unseen.targets.fillers import Filler

_OF_THE_GAME = ("shots", "position", "trials", "paired", "defenses")
_OF_OBSERVED = ("members", "nonmembers", "split_origin", "near_duplicates")
_OF_A_FILE = ("format", "column")
_NOT_OF_THE_PLAN = {
    "run_dir", "runs", "cache_dir", "cache", "offline", "batch_tokens", "threads", "reveal", "keep_tokens",
    "model", "adapter", "base_model", "surrogate", "template", "demos", "members", "nonmembers", "trained_from", "gate", *ENDPOINT,
}  # fmt: skip
_EXAMPLE = "unseen audit prompt --model MODEL --template trec --demos FILE"
_EXAMPLE_OBSERVED = "unseen audit prompt --model MODEL --template FILE --observed-prompt --members FILE --nonmembers FILE"


def check_inputs(config: PromptAudit, target: LogprobTarget | None, demos: object | None) -> None:
    """Refuses what is missing, given twice or without effect, all of it at once.

    Raises:
        ConfigError: with every fault.
    """
    faults = []
    if target is None and not config.model:
        faults.append("no model is named: --model MODEL")
    if target is not None and config.model:
        faults.append("the model is given twice: as an object and by its name")
    if config.template is None:
        faults.append("no template is named: --template trec, or a file with {demos} and {input}")
    faults += [f"{name} {why}" for name, why in idle_of_endpoint(config).items()]
    faults += _of_observed(config, demos) if config.observed_prompt else _of_game(config, demos)
    if faults:
        example = _EXAMPLE_OBSERVED if config.observed_prompt else _EXAMPLE
        raise ConfigError("; ".join(faults), fix=example)


def _of_game(config: PromptAudit, demos: object | None) -> list[str]:
    faults = []
    if demos is not None and config.demos is not None:
        faults.append("the demonstrations are given twice: as an object and by a file")
    if demos is None and config.demos is None:
        faults.append("no demonstrations are named: --demos FILE, with columns text and label")
    idle = changed(config, _OF_OBSERVED)
    if idle:
        faults.append(
            f"{', '.join(idle)} say who is in a prompt at the other end: --observed-prompt"
        )
    if demos is not None and changed(config, _OF_A_FILE):
        faults.append(
            "--format and --column say nothing of demonstrations that are given as an object"
        )
    return faults


def _of_observed(config: PromptAudit, demos: object | None) -> list[str]:
    faults = []
    if demos is not None or config.demos is not None:
        faults.append(
            "--demos says what is put into a prompt, and nothing is put into an observed one"
        )
    lacking = [name for name in ("members", "nonmembers") if getattr(config, name) is None]
    if lacking:
        named = " and ".join(f"--{name} FILE" for name in lacking)
        faults.append(f"who is in the observed prompt, and who is not, has to be said: {named}")
    idle = changed(config, _OF_THE_GAME)
    if idle:
        faults.append(
            f"{', '.join(idle)} without effect: prompts are drawn by it, and an observed one is not"
        )
    return faults


def chosen(config: PromptAudit, lent: Lent | None = None) -> dict[str, tuple[Attack, bool]]:
    """Label -> attack, and whether the user named it, each reading labels as the user wants.

    What another audit has learned is used beside what is learned here.

    Raises:
        ConfigError: where a name is none, or of an attack on something else.
    """
    found = [
        (attack if named else _at_hand(attack), named)
        for attack, named in choose_attacks(config.attacks, scenario=PROMPT).values()
    ]
    if config.mode != "text":
        if not any(hasattr(attack, "mode") for attack, _ in found):
            raise unread("mode", "gap")
        found = [(_reading(attack, config.mode), named) for attack, named in found]
    if lent is not None:
        found += [(borrower(one), named) for one, named in found if label(one) in lent.models]
    return {label(attack): (attack, named) for attack, named in found}


def _reading(attack: Attack, mode: str) -> Attack:
    """The attack as it reads labels in another way, if it reads any."""
    return (
        dataclasses.replace(cast("Any", attack), mode=mode) if hasattr(attack, "mode") else attack
    )


def _at_hand(attack: Attack) -> Attack:
    """The attack, with letters in place of a sentence encoder that is not here: none is fetched unasked."""
    if is_at_hand(getattr(attack, "encoder", LETTERS)):
        return attack
    return cast("Attack", dataclasses.replace(cast("Any", attack), encoder=LETTERS))


def plan_attacks(
    config: PromptAudit,
    attacks: Mapping[str, tuple[Attack, bool]],
    target: LogprobTarget,
    lent: Lent | None = None,
) -> Plan:
    """Which attacks the target allows, and which of them are repeated behind an empty prompt.

    Raises:
        AccessError: where an attack that the user named cannot be run, or none is left.
        ConfigError: where a surrogate is named that no attack would ask, or a run of whose learning none
            is used.
    """
    run: list[Attack] = []
    skipped: dict[str, str] = {}
    for name, (attack, named) in attacks.items():
        why = _obstacle(config, attack, target) or (
            refusal(lent, attack, ()) if is_borrowing(attack) else None
        )
        if why is None:
            run.append(attack)
        elif named:
            raise AccessError(
                f"attack {name} cannot be run: {why}",
                fix="--mode text"
                if config.mode != "text" and hasattr(attack, "mode")
                else "unseen ls attacks",
            )
        else:
            skipped[name] = why
    left_out = obstacles(run)
    for name, why in left_out.items():
        if attacks[name][1]:
            raise AccessError(
                f"attack {name} cannot be run: {why}", fix=f"--attacks 'default,{name}'"
            )
    left_out |= {name: why for name, why in repeated(run).items() if not attacks[name][1]}
    run = list(without(run, left_out))
    skipped |= left_out
    if all(is_blind(attack) for attack in run):
        why_none = "; ".join(f"{name}: {why}" for name, why in skipped.items())
        raise AccessError(f"no attack is left to run ({why_none})", fix="unseen ls attacks")
    needed = helpers_needed(signal for attack in run for signal in attack.signals())
    if config.surrogate is not None and SURROGATE not in needed:
        raise unread("surrogate", "neighbor_deviation[perplexity=True]")
    if lent is not None and not any(map(lent.takes, run)):
        raise ConfigError(
            f"the run {lent.run} has learned {lent.learned}, and none of these is run here",
            fix="--attacks with one of them, or leave --trained-from out",
        )
    control, note = _control(config, run)
    return Plan(tuple(run), control, skipped, note)


def _obstacle(config: PromptAudit, attack: Attack, target: LogprobTarget) -> str | None:
    own = helpers_needed(attack.signals())
    needed = [access_needed(signal) for signal in attack.signals() if signal.of not in own]
    most = max([attack.access, *(rung for rung in needed if rung is not None)])
    if most > target.access:
        return f"it needs {most.word} access, the target gives {target.access.word}"
    if isinstance(target, EachAlone) and (why := why_untold(attack)) is not None:
        return why
    if config.surrogate is None and SURROGATE in own:
        return "it needs a public model that tells its log-probabilities: --surrogate MODEL"
    if not isinstance(target, HasWordEmbeddings) and EMBEDDINGS in fillers_needed(attack.signals()):
        return no_embeddings(attack)
    if known_needed(attack.signals()) != (0, 0):
        return "it shows records that are known to be members, and a prompt has its own"
    if not _has_control(config) and needs_reference(attack):
        return "it compares with the same prompt without demonstrations: --control k0"
    return None


def _has_control(config: PromptAudit) -> bool:
    return config.control == "k0" and not config.observed_prompt


def _control(config: PromptAudit, run: Sequence[Attack]) -> tuple[tuple[Attack, ...], str | None]:
    if config.observed_prompt:
        return (), "nobody but its owner can take the demonstrations out of an observed prompt"
    if config.control == "none":
        return (), "switched off by --control none"
    able = tuple(
        attack
        for attack in run
        if not (is_blind(attack) or is_fusing(attack) or needs_reference(attack))
    )
    return able, None if able else "none of these attacks can be run behind an empty prompt"


def plan_id(
    config: PromptAudit,
    settings: Iterable[Setting],
    models: Mapping[str, Model],
    plan: Plan,
    fillers: Mapping[str, Filler],
    lent: Lent | None = None,
) -> str:
    """A hash of everything that the results depend on."""
    about: dict[str, Any] = {
        "version": __version__,
        "config": config.model_dump(mode="json", exclude=_NOT_OF_THE_PLAN),
        "settings": [
            [
                setting.name,
                repr(setting.template),
                [source.sha256 for source in setting.sources],
                content_hash(setting.records),
            ]
            for setting in settings
        ],
        "models": {name: model.target.fingerprint for name, model in models.items()},
        "trained_from": None if lent is None else lent.sha256,
        "fillers": {name: filler.fingerprint for name, filler in sorted(fillers.items())},
        "encoder": getattr(models[TARGET].encoder, "fingerprint", ""),
        "attacks": [label(attack) for attack in plan.attacks],
        "signals": [key(signal) for signal in plan.signals],
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]


class Faults:
    """Collects what is wrong, so that all of it is said at once."""

    def __init__(self) -> None:
        self._found: list[UsageError] = []

    def tried(self, make: Any) -> Any:
        """What `make()` gives, or None where that is refused."""
        try:
            return make()
        except UsageError as error:
            self._found.append(error)
            return None

    def refuse(self) -> None:
        """Raises what was found, if anything.

        Raises:
            UsageError: the only fault.
            ConfigError: all of several.
        """
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            fixes = dict.fromkeys(fault.fix for fault in self._found if fault.fix)
            raise ConfigError(
                "; ".join(fault.problem for fault in self._found), fix="\n  ".join(fixes) or None
            )
