"""Attacks: one file each, and the file's name is the attack's name.

There is no registry: the folder is the list. Packages outside add theirs by the entry-point group
`unseen.attacks` (name = "package.module:Class"). Their classes are here too, as if they had been
imported: `unseen.attacks.GradNorm(weights="adapter")`.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.metadata
import inspect
import pkgutil
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from unseen.attacks.base import Attack, is_blind, is_on_request, is_with_weights
from unseen.errors import ConfigError, UnknownNameError

_SPEC = re.compile(r"(?P<name>[\w\-./]+)(?:\[(?P<params>.*)\])?$", re.DOTALL)
_COMMA = re.compile(r",(?=\s*\w+\s*=)")
_NO_ATTACKS = ("base",)


class BrokenAttackError(ConfigError):
    """An attack's file cannot be loaded."""

    code = "config.attack"

    def __init__(self, place: str, why: str) -> None:
        super().__init__(
            f"{place} cannot be loaded: {why}",
            fix="mend it or move it away; unseen ls attacks lists the others",
        )


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
    own = _own()
    return sorted(own) + sorted({entry.name for entry in _of_others()} - own.keys())


def find(name: str) -> type[Attack]:
    """The class of an attack, by its name.

    Raises:
        UnknownNameError: where there is none; names the closest.
        BrokenAttackError: where its file cannot be loaded.
    """
    typed, name = name.strip(), name.strip().replace("-", "_")
    if name not in _own():
        for entry in _of_others():
            if entry.name == name:
                with _loading(f"attack {name} ({entry.value})"):
                    return cast("type[Attack]", entry.load())
        raise UnknownNameError("attack", typed, names())
    place = _own()[name]
    with _loading(place):
        module = importlib.import_module(f"{__name__}.{name}")
    found = [
        value
        for _, value in inspect.getmembers(module, inspect.isclass)
        if value.__module__ == module.__name__
        and hasattr(value, "signals")
        and hasattr(value, "score")
    ]
    if len(found) != 1:
        raise BrokenAttackError(place, f"it holds {len(found)} attack classes, expected one")
    return cast("type[Attack]", found[0])


def create(spec: str) -> Attack:
    """An attack from what a user types: `name` or `name[field=value,field=value]`.

    >>> create("loss")
    Loss()

    Raises:
        ConfigError: for an unknown name or field, or a value that the attack refuses.
    """
    try:
        return _create(spec)
    except ConfigError as error:
        error.option = "attacks"
        raise


def _create(spec: str) -> Attack:
    match = _SPEC.match(spec.strip())
    if match is None:
        raise ConfigError(f"cannot read the attack {spec!r}", fix="write name or name[field=value]")
    cls = find(match["name"])
    known = {field.name: field for field in dataclasses.fields(cast("Any", cls))}
    given: dict[str, Any] = {}
    for pair in filter(None, _COMMA.split(match["params"] or "")):
        field, equals, value = map(str.strip, pair.partition("="))
        if not equals:
            raise ConfigError(f"cannot read {pair!r} in {spec!r}", fix="write field=value")
        if field not in known:
            raise UnknownNameError(f"field of {match['name']}", field, known)
        given[field] = value
    try:
        return cls(**{field: _read(known[field], value) for field, value in given.items()})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"attack {spec!r}: {error}") from error


def name_of(attack: Attack) -> str:
    """The attack's name: that of its file or entry point."""
    module = type(attack).__module__
    if module.startswith(f"{__name__}."):
        return module.rpartition(".")[2]
    for entry in _of_others():
        if entry.value == f"{module}:{type(attack).__qualname__}":
            return entry.name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(attack).__name__).lower()


def label(attack: Attack) -> str:
    """The attack as `create` reads it back: its name, and the fields that are not the default."""
    changed = {
        field.name: value
        for field in dataclasses.fields(cast("Any", attack))
        if (value := getattr(attack, field.name)) != field.default
    }
    inside = ",".join(f"{field}={value}" for field, value in changed.items())
    return f"{name_of(attack)}[{inside}]" if inside else name_of(attack)


def default(*, weights: bool = False) -> list[str]:
    """Specs of the attacks of an ordinary audit: all but those that have to be named.

    Args:
        weights: whether it also looks inside the model.
    """
    attacks = ((spec, create(spec)) for spec in everything())
    return [
        spec
        for spec, attack in attacks
        if not is_on_request(attack) or (weights and is_with_weights(attack))
    ]


def everything() -> list[str]:
    """Specs of every attack, and of the variants that it asks for."""
    return [spec for name in names() for spec in (name, *getattr(find(name), "variants", ()))]


def blind() -> list[Attack]:
    """The baselines that need no model. A broken file stops only whoever asks for its attack."""
    found: list[Attack] = []
    for name in names():
        with suppress(BrokenAttackError):
            cls = find(name)
            if is_blind(cls()):
                found += map(create, (name, *getattr(cls, "variants", ())))
    return found


def _own() -> dict[str, str]:
    """Name -> file of the attacks of this package."""
    return {
        module.name: str(Path(getattr(module.module_finder, "path", "")) / f"{module.name}.py")
        for module in pkgutil.iter_modules(__path__)
        if module.name not in _NO_ATTACKS and not module.name.startswith("_")
    }


@contextmanager
def _loading(place: str) -> Iterator[None]:
    """Names the file where an attack cannot be loaded, whatever the reason."""
    try:
        yield
    except SyntaxError as error:
        raise BrokenAttackError(place, f"line {error.lineno}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}"
        raise BrokenAttackError(place, why) from error


def _of_others() -> importlib.metadata.EntryPoints:
    return importlib.metadata.entry_points(group="unseen.attacks")


def _read(field: dataclasses.Field[Any], text: str) -> Any:
    """What the text means for a field: numbers and text after the field's default."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text
    if isinstance(field.default, bool) and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if isinstance(field.default, str):
        return value if isinstance(value, str) else text
    for kind, expected in ((bool, "True or False"), (int, "a whole number"), (float, "a number")):
        if isinstance(field.default, kind):
            if type(value) is kind or (kind is float and type(value) is int):
                return kind(value)
            msg = f"got {field.name}={text}, expected {expected}"
            raise ValueError(msg)
    return value
