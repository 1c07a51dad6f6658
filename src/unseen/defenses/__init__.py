"""What the owner of a prompt can do: one file each, and the file's name is the defence's name.

There is no registry: the folder is the list. Packages outside add theirs by the entry-point group
`unseen.defenses` (name = "package.module:Class").
"""

from __future__ import annotations

import re
from typing import cast

from unseen.defenses.base import Combined, Defense
from unseen.errors import ConfigError
from unseen.specs import Folder

UNDEFENDED = "none"
"""What a prompt without any defence is called."""

_PLUS = re.compile(r"\+(?![^\[\]]*\])")  # outside brackets


class BrokenDefenseError(ConfigError):
    """A defence's file cannot be loaded."""

    code = "config.defense"

    def __init__(self, place: str, why: str) -> None:
        super().__init__(
            f"{place} cannot be loaded: {why}",
            fix="mend it or move it away; unseen ls defenses lists the others",
        )


def _is_defense(cls: type) -> bool:
    return issubclass(cls, Defense)


_FOLDER = Folder(__name__, "defence", "defenses", _is_defense, BrokenDefenseError)


def names() -> list[str]:
    """Names of all defences: files of this folder, then entry points of other packages."""
    return _FOLDER.names()


def find(name: str) -> type[Defense]:
    """The class of a defence, by its name.

    Raises:
        UnknownNameError: where there is none; names the closest.
        BrokenDefenseError: where its file cannot be loaded.
    """
    return cast("type[Defense]", _FOLDER.find(name))


def create(spec: str) -> Defense:
    """A defence from what a user types: `name`, `name[field=value]`, or several joined by `+`.

    >>> create("shots[n=4]+placement[position=first]").parts
    (Shots(n=4), Placement(position='first'))

    Raises:
        ConfigError: for an unknown name or field, or a value that the defence refuses.
    """
    parts = tuple(cast("Defense", _FOLDER.create(part)) for part in _PLUS.split(spec))
    return parts[0] if len(parts) == 1 else Combined(parts)


def label(defense: Defense | None) -> str:
    """The defence as `create` reads it back; "none" for none."""
    if defense is None:
        return UNDEFENDED
    parts = defense.parts if isinstance(defense, Combined) else (defense,)
    return "+".join(map(_FOLDER.label, parts))
