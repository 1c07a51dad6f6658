"""`unseen`: reads the command line, and turns every expected error into one message.

Exit codes: 0 done, 1 something failed while running, 2 something that the user can mend,
130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from cyclopts import App, CycloptsError
from cyclopts.config import Env, Yaml

from unseen import __version__
from unseen.cli.output import err, show_error
from unseen.errors import ConfigError, StoreError, UnseenError, UsageError

FAILED, USAGE, INTERRUPTED = 1, 2, 130
_CONFIG_FLAG = "--config"
_CONFIG_FILE = "unseen.yaml"

app = App(
    name="unseen",
    version=__version__,
    help="Was it in? Measure what a language model gives away about its data.",
    help_on_error=False,
)
app.command(
    "unseen.cli.demo:demo", name="demo", help="A control that must be found, and one that must not."
)
app.command(
    "unseen.cli.audit:app", name="audit", help="Audit a model: was this record in its data?"
)
app.command("unseen.cli.score:score", name="score", help="Score a run again, without its model.")
app.command(
    "unseen.cli.evaluate:evaluate", name="evaluate", help="Statistics for scores made elsewhere."
)
app.command("unseen.cli.listing:app", name="ls", help="List what there is: attacks.")
app.command(
    "unseen.cli.schema:schema", name="schema", help="Print the JSON Schema of results.json."
)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs one command and leaves with its exit code."""
    sys.exit(run(list(sys.argv[1:] if argv is None else argv)))


def run(argv: list[str]) -> int:
    """Runs one command.

    Returns:
        The exit code.
    """
    # Threads that wait by spinning make small models several times slower on a busy machine. This
    # has to be said before torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    debug = "--debug" in argv or os.environ.get("UNSEEN_DEBUG", "") not in ("", "0")
    argv = [word for word in argv if word != "--debug"]
    try:
        return _dispatch(argv)
    except UnseenError as error:
        if debug:
            raise
        show_error(error)
        return USAGE if isinstance(error, UsageError | StoreError) else FAILED
    except KeyboardInterrupt:
        err().print("interrupted: the same command continues", markup=False)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has left; there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _dispatch(argv: list[str]) -> int:
    argv, file = _config_file(argv)
    configs: list[Env | Yaml] = [Env("UNSEEN_", command=False)]
    if argv[:1] == ["audit"]:
        configs.append(file)
    app.config = configs
    try:
        code = app(argv, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        if type(error.__cause__ or error).__module__.startswith("yaml"):
            raise ConfigError(f"{file.path} is no YAML: {_words(error)}") from error
        raise ConfigError(_words(error), fix=f"unseen {' '.join(argv[:2])} --help") from error
    return code if isinstance(code, int) else 0


def _config_file(argv: list[str]) -> tuple[list[str], Yaml]:
    """Takes `--config FILE` out of the arguments; unseen.yaml in this folder is read unasked."""
    given = os.environ.get("UNSEEN_CONFIG")
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        if word == _CONFIG_FLAG:
            given = next(words, None)
            if given is None:
                raise ConfigError(f"{_CONFIG_FLAG} needs the name of a file")
        elif word.startswith(f"{_CONFIG_FLAG}="):
            given = word.partition("=")[2]
        else:
            rest.append(word)
    if given is not None and not Path(given).is_file():
        raise ConfigError(f"there is no configuration file {given}")
    return rest, Yaml(
        given or _CONFIG_FILE,
        must_exist=given is not None,
        use_commands_as_keys=False,
        search_parents=False,
    )


def _words(error: CycloptsError) -> str:
    """What cyclopts or pydantic found, on one line."""
    from pydantic import ValidationError

    from unseen.runs.config import FinetuneAudit, explained

    cause = error.__cause__ or error.__context__
    if isinstance(cause, ValidationError):
        return explained(cause, FinetuneAudit.model_fields).problem
    return " ".join(str(error).split())
