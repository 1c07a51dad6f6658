"""What cyclopts and pydantic find wrong with a command line, in one sentence and with a fix."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from cyclopts import CoercionError, MissingArgumentError, UnknownCommandError, UnusedCliTokensError

from unseen.cli.sources import name_of
from unseen.errors import ConfigError, UnknownNameError, short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cyclopts import App, CycloptsError

    from unseen.cli.sources import Sources

_KINDS: dict[object, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Path: "a path",
}


def _one_of(kind: object) -> str:
    """The words that an option takes, where it takes only some."""
    choices = [str(one) for one in get_args(kind) if isinstance(one, str)]
    return f"one of {', '.join(choices)}" if choices else "another value"


def explain(
    error: CycloptsError | ConfigError, argv: Sequence[str], app: App, sources: Sources
) -> ConfigError:
    """The error as the user of this command should read it.

    Args:
        error: what was found while the command line was read, or while its choices were checked.
        argv: the command line.
        app: the program.
        sources: where the values came from.
    """
    from pydantic import ValidationError

    from unseen.runs.config import ChoicesError, explained

    words, command = _command(argv, app)
    fix = f"{shlex.join(words)} --help lists every option"
    cause = error.__cause__ or error.__context__
    if isinstance(error, ChoicesError):
        return sources.placed(error, fix)
    if isinstance(error, ConfigError):
        return _at(error, sources)
    if isinstance(cause, ConfigError):
        return _at(cause, sources)
    if isinstance(cause, ValidationError):
        return sources.placed(explained(cause), fix)
    if isinstance(error, UnknownCommandError) and error.unused_tokens:
        known = [word for word in command if not word.startswith("-")]
        word = error.unused_tokens[0]
        unknown = UnknownNameError("option" if word.startswith("-") else "command", word, known)
        if word.startswith("-"):
            unknown.fix = f"name a command first: {', '.join(known)}"
        return ConfigError(
            unknown.problem, fix=f"{unknown.fix}\n  {shlex.join(words)} --help explains them"
        )
    if isinstance(error, CoercionError) and error.argument is not None and error.token is not None:
        place = sources.place(name_of(error.argument), error.token.source)
        expected = _KINDS.get(error.target_type) or _one_of(error.target_type)
        return ConfigError(
            f"{place}: got {short(error.token.value)!r}, expected {expected}", fix=fix
        )
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        name = error.argument.name
        typed = any(word.partition("=")[0] == name for word in argv)
        what = f"{name} needs a value" if typed else f"{name.lstrip('-').upper()} is missing"
        return ConfigError(what, fix=fix)
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        extra = ", ".join(repr(short(word)) for word in error.unused_tokens[:12])
        return ConfigError(f"got {extra}, which belongs to no option", fix=fix)
    return ConfigError(" ".join(str(error).split()), fix=fix)


def _at(error: ConfigError, sources: Sources) -> ConfigError:
    """The error, with the place of its value where that is not the command line."""
    if error.option is not None and not (place := sources.place(error.option)).startswith("--"):
        error.problem = f"{place}: {error.problem}"
    return error


def _command(argv: Sequence[str], app: App) -> tuple[list[str], App]:
    """The words of the command line that name a command, and that command."""
    words, command = ["unseen"], app
    for word in argv:
        if word.startswith("-") or word not in command:
            break
        command = command[word]
        words.append(word)
    return words, command
