"""Attacks: one file each, and the file's name is the attack's name.

There is no registry: the folder is the list. Packages outside add theirs by the entry-point group
`unseen.attacks` (name = "package.module:Class"). Their classes are here too, as if they had been
imported: `unseen.attacks.GradNorm(weights="adapter")`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import cast

from unseen.attacks.base import (
    FINETUNE,
    Attack,
    is_blind,
    is_on_request,
    is_with_weights,
    scenario_of,
)
from unseen.errors import ConfigError
from unseen.specs import Folder


class BrokenAttackError(ConfigError):
    """An attack's file cannot be loaded."""

    code = "config.attack"

    def __init__(self, place: str, why: str) -> None:
        super().__init__(
            f"{place} cannot be loaded: {why}",
            fix="mend it or move it away; unseen ls attacks lists the others",
        )


def _is_attack(cls: type) -> bool:
    return hasattr(cls, "signals") and hasattr(cls, "score")


_FOLDER = Folder(__name__, "attack", "attacks", _is_attack, BrokenAttackError)


def __getattr__(name: str) -> type[Attack]:
    """The class of an attack, by its own name. A broken file stops only whoever asks for its attack."""
    for one in names() if name[:1].isupper() else ():
        with suppress(BrokenAttackError):
            cls = find(one)
            if cls.__name__ == name:
                return cls
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def names() -> list[str]:
    """Names of all attacks: files of this folder, then entry points of other packages."""
    return _FOLDER.names()


def find(name: str) -> type[Attack]:
    """The class of an attack, by its name.

    Raises:
        UnknownNameError: where there is none; names the closest.
        BrokenAttackError: where its file cannot be loaded.
    """
    return cast("type[Attack]", _FOLDER.find(name))


def create(spec: str) -> Attack:
    """An attack from what a user types: `name` or `name[field=value,field=value]`.

    >>> create("loss")
    Loss()

    Raises:
        ConfigError: for an unknown name or field, or a value that the attack refuses.
    """
    return cast("Attack", _FOLDER.create(spec))


def name_of(attack: Attack) -> str:
    """The attack's name: that of its file or entry point."""
    return _FOLDER.name_of(attack)


def label(attack: Attack) -> str:
    """The attack as `create` reads it back: its name, and the fields that are not the default."""
    return _FOLDER.label(attack)


def default(*, weights: bool = False, scenario: str = FINETUNE) -> list[str]:
    """Specs of the attacks of an ordinary audit: all but those that have to be named.

    Args:
        weights: whether it also looks inside the model.
        scenario: what is audited.
    """
    attacks = ((spec, create(spec)) for spec in everything(scenario))
    return [
        spec
        for spec, attack in attacks
        if not is_on_request(attack) or (weights and is_with_weights(attack))
    ]


def everything(scenario: str = FINETUNE) -> list[str]:
    """Specs of every attack of an audit, and of the variants that it asks for.

    Args:
        scenario: what is audited; baselines that ask no model belong to all.
    """
    return [
        spec
        for name in names()
        if scenario_of(find(name)) == scenario or is_blind(cast("Attack", find(name)))
        for spec in (name, *getattr(find(name), "variants", ()))
    ]


def blind() -> list[Attack]:
    """The baselines that need no model. A broken file stops only whoever asks for its attack."""
    found: list[Attack] = []
    for name in names():
        with suppress(BrokenAttackError):
            cls = find(name)
            if is_blind(cls()):
                found += map(create, (name, *getattr(cls, "variants", ())))
    return found
