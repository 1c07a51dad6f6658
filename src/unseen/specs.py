"""Folders whose files are what a user can name: a file a thing, and its name is the file's name.

There is no registry: the folder is the list. Packages outside add theirs by an entry-point group of
the folder's own name (name = "package.module:Class"). What a user types is `name`, or
`name[field=value,field=value]`, and is read by the fields of a dataclass.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.metadata
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from unseen.errors import ConfigError, UnknownNameError

_SPEC = re.compile(r"(?P<name>[\w\-./]+)(?:\[(?P<params>.*)\])?$", re.DOTALL)
_COMMA = re.compile(r",(?=\s*\w+\s*=)")
_NO_THINGS = ("base",)


@dataclass(frozen=True)
class Folder:
    """A package, each of whose files is a thing that a user can name.

    Attributes:
        package: its name, and that of the entry-point group.
        kind: what one of them is called.
        option: the flag that names them.
        is_one: whether a class is one, of those that its file holds.
        broken: makes the error of a file that cannot be loaded, from the place and the reason.
    """

    package: str
    kind: str
    option: str
    is_one: Callable[[type], bool]
    broken: Callable[[str, str], ConfigError]

    def names(self) -> list[str]:
        """Names of all: files of the folder, then entry points of other packages."""
        own = self._own()
        return sorted(own) + sorted({entry.name for entry in self._of_others()} - own.keys())

    def find(self, name: str) -> type[Any]:
        """A class by its name.

        Raises:
            UnknownNameError: where there is none; names the closest.
            ConfigError: where its file cannot be loaded.
        """
        typed, name = name.strip(), name.strip().replace("-", "_")
        if name not in self._own():
            for entry in self._of_others():
                if entry.name == name:
                    with self._loading(f"{self.kind} {name} ({entry.value})"):
                        return cast("type[Any]", entry.load())
            raise UnknownNameError(self.kind, typed, self.names())
        place = self._own()[name]
        with self._loading(place):
            module = importlib.import_module(f"{self.package}.{name}")
        found = [
            value
            for _, value in inspect.getmembers(module, inspect.isclass)
            if value.__module__ == module.__name__ and self.is_one(value)
        ]
        if len(found) != 1:
            raise self.broken(place, f"it holds {len(found)} {self.kind} classes, expected one")
        return found[0]

    def create(self, spec: str) -> Any:
        """One of them, from what a user types.

        Raises:
            ConfigError: for an unknown name or field, or a value that is refused.
        """
        try:
            return self._create(spec)
        except ConfigError as error:
            error.option = self.option
            raise

    def _create(self, spec: str) -> Any:
        match = _SPEC.match(spec.strip())
        if match is None:
            raise ConfigError(
                f"cannot read the {self.kind} {spec!r}", fix="write name or name[field=value]"
            )
        cls = self.find(match["name"])
        known = {field.name: field for field in dataclasses.fields(cls)}
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
            raise ConfigError(f"{self.kind} {spec!r}: {error}") from error

    def name_of(self, one: Any) -> str:
        """The name of one: that of its file or entry point."""
        module = type(one).__module__
        if module.startswith(f"{self.package}."):
            return module.rpartition(".")[2]
        for entry in self._of_others():
            if entry.value == f"{module}:{type(one).__qualname__}":
                return entry.name
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(one).__name__).lower()

    def label(self, one: Any) -> str:
        """It as `create` reads it back: its name, and the fields that are not the default."""
        changed = {
            field.name: value
            for field in dataclasses.fields(one)
            if (value := getattr(one, field.name)) != field.default
        }
        inside = ",".join(f"{field}={value}" for field, value in changed.items())
        return f"{self.name_of(one)}[{inside}]" if inside else self.name_of(one)

    def _own(self) -> dict[str, str]:
        """Name -> file of those of this package."""
        return {
            module.name: str(Path(getattr(module.module_finder, "path", "")) / f"{module.name}.py")
            for module in pkgutil.iter_modules(sys.modules[self.package].__path__)
            if module.name not in _NO_THINGS and not module.name.startswith("_")
        }

    @contextmanager
    def _loading(self, place: str) -> Iterator[None]:
        """Names the file where one cannot be loaded, whatever the reason."""
        try:
            yield
        except SyntaxError as error:
            raise self.broken(place, f"line {error.lineno}: {error.msg}") from error
        except (Exception, SystemExit) as error:
            raise self.broken(place, f"{type(error).__name__}: {error}") from error

    def _of_others(self) -> importlib.metadata.EntryPoints:
        return importlib.metadata.entry_points(group=self.package)


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
