"""Where the value of an option comes from: a flag, a variable UNSEEN_X, or a key of a YAML file.

Flags win over variables, and variables over the file. Faults name the place that they came from.
"""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, get_origin

from unseen.errors import ConfigError, UnknownNameError, flag, short

if TYPE_CHECKING:
    from cyclopts import App
    from cyclopts.argument import Argument, ArgumentCollection

    from unseen.cli.yaml_file import YamlFile
    from unseen.runs.config import ChoicesError

PREFIX = "UNSEEN_"
# Read by the program itself; the second group is of the test suite.
_OTHERS = ("DEBUG", "CONFIG", "TEST_DATA")
_FLAG, _VARIABLE = "cli", "env"
_EXAMPLES = {
    "fpr": "0.01,0.1",
    "attacks": "loss,zlib",
    "shadow": "shadow1,shadow2",
    "gate": "auc=0.6,advantage=0.1",
    "max": "auc=0.6,advantage=0.1",
    "column": "prompt=question,completion=reply",
    "labels": "Number,Location",
    "synonyms": "Abbreviation=Ab|Abbr",
    "shots": "1,4,16",
    "position": "first,last",
    "nonmembers_apart": "counterfactual=made_up.jsonl",
}


class Sources:
    """Fills the options of one command, and remembers where each value stood.

    Args:
        environment: variables.
        file: the YAML file, where the command reads one.
        app: the program, all of whose options may stand in the environment.
    """

    def __init__(self, environment: Mapping[str, str], file: YamlFile | None, app: App) -> None:
        self._environment = environment
        self._file = file
        self._app = app
        self._places: dict[str, str] = {}
        self._lists: set[str] = set()

    def __call__(
        self, _app: App, _commands: tuple[str, ...], arguments: ArgumentCollection
    ) -> None:
        """What cyclopts calls after it has read the flags."""
        options = {name_of(argument): argument for argument in arguments if not argument.children}
        self._lists = {name for name, argument in options.items() if _is_list(argument)}
        self._from_flags(options)
        self._from_variables(options)
        if self._file is not None:
            self._from_file(options, self._file)

    def place(self, name: str, source: str | None = None) -> str:
        """The option as it stands where its value came from."""
        if source == _VARIABLE:
            return f"{PREFIX}{name.upper()}"
        return self._places.get(name, flag(name))

    def placed(self, error: ChoicesError, fix: str) -> ConfigError:
        """The faults, each with the place of its value and how a list is written there."""
        lines = [
            f"{self.place(name)}: {problem}{self._how(name)}" if name else problem
            for name, problem in error.faults
        ]
        return ConfigError("; ".join(lines), fix=fix)

    def _how(self, name: str) -> str:
        if name not in self._lists:
            return ""
        example, place = _EXAMPLES.get(name, "one,two"), self.place(name)
        if place.startswith("--"):
            return f" (several: {place} {example})"
        if place.startswith(PREFIX):
            return f" (several: {place}={example})"
        return f" (several: {name}: [{example.replace(',', ', ')}])"

    def _from_flags(self, options: Mapping[str, Argument]) -> None:
        for name, argument in options.items():
            if argument.tokens and name in self._lists:
                texts = [
                    (token, text)
                    for token in argument.tokens
                    for text in self._split(name, token.value)
                ]
                argument.tokens[:] = [
                    token.evolve(value=text, index=index)
                    for index, (token, text) in enumerate(texts)
                ]

    def _from_variables(self, options: Mapping[str, Argument]) -> None:
        from cyclopts import Token

        for variable in sorted(self._environment):
            name = variable.removeprefix(PREFIX).lower()
            if not variable.startswith(PREFIX) or name.upper() in _OTHERS:
                continue
            if name not in options:
                self._check_known(variable, name)
                continue
            argument = options[name]
            if argument.tokens:
                continue
            self._places[name] = variable
            value = self._environment[variable]
            values = self._split(name, value) if name in self._lists else [value]
            for index, text in enumerate(values):
                argument.append(Token(keyword=variable, value=text, source=_VARIABLE, index=index))

    def _check_known(self, variable: str, name: str) -> None:
        known = options_of_all(self._app)
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
            meant = f"did you mean {PREFIX}{close[0].upper()}? If not: " if close else ""
            raise ConfigError(
                f"the variable {short(variable)} is no option",
                fix=f"{meant}unset {short(variable)}",
            )

    def _from_file(self, options: Mapping[str, Argument], file: YamlFile) -> None:
        from cyclopts import Token

        for name, value in file.options().items():
            if name not in options or name == "json":
                raise UnknownNameError(
                    f"key of {file.path}", name, [one for one in options if one != "json"]
                )
            argument = options[name]
            if isinstance(value, list) and name not in self._lists:
                raise ConfigError(
                    f"{name} in {file.path}: got a list, expected one value", fix=f"{name}: VALUE"
                )
            if argument.tokens or value is None:
                continue
            self._places[name] = f"{name} in {file.path}"
            if isinstance(value, str) and name in self._lists:
                values = self._split(name, value)
            else:
                values = value if isinstance(value, list) else [value]
            if not values:  # none is another thing than the default
                argument.append(
                    Token(keyword=f"[{name}]", source=str(file.path), implicit_value=())
                )
            for index, one in enumerate(values):
                argument.append(
                    Token(keyword=f"[{name}]", value=str(one), source=str(file.path), index=index)
                )

    def _split(self, name: str, text: str) -> list[str]:
        from unseen.runs.config import split_list

        if not text.lstrip().startswith("["):
            return split_list(text)
        try:
            values = json.loads(text)
        except ValueError as error:
            example = json.dumps(_EXAMPLES.get(name, "one,two").split(","))
            raise ConfigError(
                f"{self.place(name)}: begins like a JSON list, and is none",
                fix=f"write {_EXAMPLES.get(name, 'one,two')} or {shlex.quote(example)}",
            ) from error
        return [value if isinstance(value, str) else json.dumps(value) for value in values]


def name_of(argument: Argument) -> str:
    """The option's name as a variable, a key and a Python argument have it."""
    return argument.name.lstrip("-").replace("-", "_").lower()


def options_of_all(app: App) -> set[str]:
    """Names of the options of every command."""
    names: set[str] = set()
    for command in _commands(app):
        for argument in command.assemble_argument_collection():
            if not argument.children:
                names.add(name_of(argument))
    return names


def _commands(app: App) -> Iterable[App]:
    if app.default_command is not None:
        yield app
    for word in app:
        if not word.startswith("-"):
            yield from _commands(app[word])


def _is_list(argument: Argument) -> bool:
    return get_origin(argument.hint) is tuple
