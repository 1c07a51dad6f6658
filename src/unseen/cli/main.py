"""`unseen`: reads the command line, and turns every expected error into one message.

Exit codes: 0 done, 1 something failed while running, 2 something that the user can mend, 10 a gate
failed, 11 inconclusive (invalid evidence, too little of it, or a failed preflight), 12 incomplete (as
much was asked as may be), 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cyclopts import App, CycloptsError

from unseen import __version__
from unseen.cli import streams
from unseen.cli.codes import FAILED, INCOMPLETE, INCONCLUSIVE, INTERRUPTED, TERMINATED, USAGE
from unseen.cli.explain import explain
from unseen.cli.output import err, show_error
from unseen.cli.sources import Sources
from unseen.cli.yaml_file import YamlFile
from unseen.errors import (
    BudgetError,
    ConfigError,
    PreflightError,
    StoreError,
    UnseenError,
    UsageError,
)

_CONFIG_FLAG = "--config"
_CONFIG_FILE = "unseen.yaml"
_CONFIGURED = ("audit", "plan", "train", "study")
_UNASKED = ("audit", "plan")  # unseen.yaml is about an audit
_CONTINUED = ("audit", "demo", "canary", "train", "study")

app = App(
    name="unseen",
    version=__version__,
    help="Was it in? Measure what a language model gives away about its data.",
    help_on_error=False,
    suppress_keyboard_interrupt=False,  # an interruption is reported here
)
app.command(
    "unseen.cli.demo:demo", name="demo", help="A control that must be found, and one that must not."
)
app.command(
    "unseen.cli.audit:app", name="audit", help="Audit a model: was this record in its data?"
)
app.command(
    "unseen.cli.canary:app",
    name="canary",
    help="Random records, trained on by coin: a lower bound on epsilon.",
)
app.command(
    "unseen.cli.train:app", name="train", help="Train a model, and note what it was trained on."
)
app.command(
    "unseen.cli.study:app", name="study", help="One question at several points: table and plot."
)
app.command(
    "unseen.cli.doctor:doctor", name="doctor", help="What do this machine and a model allow?"
)
app.command("unseen.cli.plan:app", name="plan", help="What would an audit take?")
app.command(
    "unseen.cli.check:check", name="check", help="Can membership be measured with these records?"
)
app.command("unseen.cli.score:score", name="score", help="Score a run again, without its model.")
app.command("unseen.cli.report:report", name="report", help="Render the report of a run again.")
app.command(
    "unseen.cli.compare:compare", name="compare", help="Does one run leak less than another?"
)
app.command("unseen.cli.gate:gate", name="gate", help="Hold a run against limits, for builds.")
app.command(
    "unseen.cli.verify:verify", name="verify", help="Is a run folder whole, and as it was left?"
)
app.command(
    "unseen.cli.evaluate:evaluate", name="evaluate", help="Statistics for scores made elsewhere."
)
app.command("unseen.cli.listing:app", name="ls", help="List what there is: attacks.")
app.command(
    "unseen.cli.schema:schema", name="schema", help="Print the JSON Schema of results.json."
)


class _Terminated(KeyboardInterrupt):
    """SIGTERM, on the same way out as Ctrl-C."""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs one command and leaves with its exit code."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        streams.hold()
    except StoreError as error:
        show_error(error)
        code = USAGE
    else:
        code = run(list(sys.argv[1:] if argv is None else argv))
    streams.let_go()
    sys.exit(code)


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
        code = _dispatch(argv)
        sys.stdout.flush()
    except UnseenError as error:
        if debug:
            raise
        show_error(error)
        return _code_of(error)
    except KeyboardInterrupt as reason:
        more = ": the same command continues" if argv[:1] and argv[0] in _CONTINUED else ""
        err().print(f"interrupted{more}", markup=False)
        return TERMINATED if isinstance(reason, _Terminated) else INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has left; there is nobody to tell.
        streams.drop()
        return FAILED
    except OSError as error:
        if debug:
            raise
        show_error(_of_the_system(error))
        return USAGE
    return code


def _code_of(error: UnseenError) -> int:
    if isinstance(error, PreflightError):
        return INCONCLUSIVE
    if isinstance(error, BudgetError):
        return INCOMPLETE
    return USAGE if isinstance(error, UsageError | StoreError) else FAILED


def _of_the_system(error: OSError) -> StoreError:
    """What the system refused where nothing closer to it has said so."""
    name = "" if error.filename is None else f"{error.filename}: "
    why = error.strerror or type(error).__name__
    return StoreError(f"{name}{why}", fix="check the path, your rights and the space on the disk")


def _dispatch(argv: list[str]) -> int:
    argv, file = _config_file(argv)
    reads = _CONFIGURED if file.must_exist else _UNASKED
    sources = Sources(os.environ, file if argv[:1] and argv[0] in reads else None, app)
    before, app.config = app.config, [sources]  # of this command, and no other
    try:
        code = app(argv, exit_on_error=False, print_error=False, result_action="return_value")
    except (CycloptsError, ConfigError) as error:
        raise explain(error, argv, app, sources) from error
    finally:
        app.config = before
    return code if isinstance(code, int) else 0


def _config_file(argv: list[str]) -> tuple[list[str], YamlFile]:
    """Takes `--config FILE` out of the arguments; unseen.yaml in this folder is read unasked."""
    given: list[str] = []
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        if word == _CONFIG_FLAG:
            given.append(next(words, ""))
        elif word.startswith(f"{_CONFIG_FLAG}="):
            given.append(word.partition("=")[2])
        else:
            rest.append(word)
    if len(given) > 1:
        raise ConfigError(f"{_CONFIG_FLAG} is given twice", fix="put all options into one file")
    if given and not given[0]:
        raise ConfigError(
            f"{_CONFIG_FLAG} needs the name of a file", fix=f"{_CONFIG_FLAG} {_CONFIG_FILE}"
        )
    if given and rest[:1] and rest[0] not in _CONFIGURED:
        raise ConfigError(
            f"{_CONFIG_FLAG} is read by unseen audit, plan, train and study alone",
            fix=f"leave {_CONFIG_FLAG} out",
        )
    named = given[0] if given else os.environ.get("UNSEEN_CONFIG")
    return rest, YamlFile(Path(named or _CONFIG_FILE), must_exist=bool(named))


def _terminate(*_: Any) -> None:
    raise _Terminated
