"""Every error that `unseen` raises on purpose.

    UnseenError                 something that the message explains; no traceback is shown
    ├── UsageError              the user can mend it
    │   ├── ConfigError         a flag, variable, YAML key or argument is wrong
    │   │   └── UnknownNameError    an attack, column or option that does not exist (with a suggestion)
    │   ├── DataError           a file, line or field of the records is wrong
    │   ├── AccessError         an attack needs more access than the target gives
    │   ├── ModelError          a model, adapter or tokenizer cannot be loaded or used
    │   ├── MissingExtraError   an optional dependency is not installed
    │   └── TooFewRecordsError  statistics refuse: fewer records on a side than they need
    ├── TargetError             the model failed while it was being asked
    │   └── OutOfMemoryError    a batch did not fit; the engine retries with smaller ones
    ├── PreflightError          the model's numbers are not what they should be; nothing was measured
    ├── BudgetError             as much was asked as may be; what was answered is kept
    ├── GateError               a limit is not known to be kept (Python only: the command has exit codes)
    ├── StoreError              measurements or results cannot be written or read
    └── UnscorableError         one record has no score, and why; counted, never shown as a failure

Each carries the problem in one sentence and, where there is one, `fix`: what to type or change.
"""

from __future__ import annotations

import difflib
import importlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import ModuleType


class UnseenError(Exception):
    """An error whose message is enough: the command line shows it without a traceback.

    Args:
        problem: one sentence that says what came and what was expected.
        fix: what the user can type or change, or None where nothing is known to help.
    """

    code: str = "error"

    def __init__(self, problem: str, *, fix: str | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.fix = fix

    def __str__(self) -> str:
        return self.problem if self.fix is None else f"{self.problem}\n  {self.fix}"


class UsageError(UnseenError):
    """The user can mend it."""

    code = "usage"


class ConfigError(UsageError):
    """A flag, environment variable, YAML key or Python argument is wrong.

    `option` is its name, where whoever raises the error knows it but not where its value stood.
    """

    code = "config"
    option: str | None = None


class UnknownNameError(ConfigError):
    """A name that does not exist, with the closest one that does."""

    code = "config.name"

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        super().__init__(f"unknown {kind} {short(name)!r}", fix=suggestion(name, sorted(known)))


class DataError(UsageError):
    """A file of records is wrong: names the file and, where known, line and field.

    Args:
        problem: what is wrong, without the place.
        path: the file.
        line: 1-based line (or row) number.
        field: the column or key.
        fix: what to type or change.
    """

    code = "data"

    def __init__(
        self,
        problem: str,
        *,
        path: Path | str | None = None,
        line: int | None = None,
        field: str | None = None,
        fix: str | None = None,
    ) -> None:
        place = "" if path is None else str(path)
        if line is not None:
            place += f" line {line}"
        if field is not None:
            place += f" field {field!r}"
        super().__init__(f"{place.strip()}: {problem}" if place else problem, fix=fix)
        self.path = path
        self.line = line
        self.field = field


class AccessError(UsageError):
    """An attack needs more access than the target gives."""

    code = "access"


class ModelError(UsageError):
    """A model, adapter or tokenizer cannot be loaded or used."""

    code = "model"


class MissingExtraError(UsageError):
    """An optional dependency is not installed."""

    code = "extra"

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(
            f"this needs the package {module!r}, which is not installed",
            fix=f'pip install "unseen[{extra}]"',
        )


class TooFewRecordsError(UsageError):
    """Statistics refuse: fewer records on a side than they need."""

    code = "data.too_few"


class TargetError(UnseenError):
    """The model failed while it was being asked."""

    code = "target"


class OutOfMemoryError(TargetError):
    """A batch did not fit into memory."""

    code = "target.memory"


class PreflightError(UnseenError):
    """The model's numbers are not what they should be, so none of them would mean anything."""

    code = "preflight"


class BudgetError(UnseenError):
    """As much was asked of the models as the user allows; what was answered is kept."""

    code = "budget"


class GateError(UnseenError):
    """A limit on leakage is exceeded, or is not known to be kept.

    Args:
        problem: every limit that is not passed, and why.
        outcome: "fail" or "inconclusive".
    """

    code = "gate"

    def __init__(self, problem: str, outcome: str) -> None:
        super().__init__(problem)
        self.outcome = outcome


class StoreError(UnseenError):
    """Measurements or results cannot be written or read."""

    code = "store"


NO_ROOM = "does not fit into the context after the records before it"
"""Why a record has no score of an attack that shows others first."""

UNANSWERED = "the response is empty"
"""Why a record has no score of any attack, baselines included."""


class UnscorableError(UnseenError):
    """One record cannot be measured or scored; its message becomes the counted reason."""

    code = "record.unscored"


_MOST_NAMES = 60
_LONGEST_WORD = 300
_LONGEST_TEXT = 3000


def short(name: str, most: int = 60) -> str:
    """A name that fits into a message.

    >>> short("x" * 100, 10)
    'xxxxxxx… (100 characters)'
    """
    return name if len(name) <= most else f"{name[: most - 3]}… ({len(name)} characters)"


def visible(text: str, *, lines: bool = False, whole: bool = False) -> str:
    r"""Text for a terminal: what steers it is shown as an escape, and nothing fills the screen.

    Names of files, columns and records come from elsewhere, and may hold anything.

    Args:
        text: the text.
        lines: keep its line breaks.
        whole: shorten nothing.

    >>> visible("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    kept = "".join(
        char
        if char.isprintable() or (lines and char == "\n")
        else char.encode("unicode_escape", "backslashreplace").decode("ascii")
        for char in text
    )
    if whole:
        return kept
    kept = re.sub(rf"\S{{{_LONGEST_WORD + 1},}}", lambda match: short(match[0]), kept)
    return short(kept, _LONGEST_TEXT)


def flag(name: str) -> str:
    """A choice as the command line writes it.

    >>> flag("near_duplicates")
    '--near-duplicates'
    """
    return f"--{name.replace('_', '-')}"


def first_line(error: Exception) -> str:
    r"""What an error of another package says first, or else what it is called.

    >>> first_line(ValueError("no weights\nlook here")), first_line(KeyError())
    ('no weights', 'KeyError')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def suggestion(name: str, choices: Iterable[str]) -> str:
    """Says which known name is meant, or lists all of them.

    >>> suggestion("min-k", ["loss", "min_k"])
    "did you mean 'min_k'? known: loss, min_k"
    """
    known = list(choices)
    close = difflib.get_close_matches(name.casefold().replace("-", "_"), known, n=1, cutoff=0.5)
    more = f" and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    listed = ", ".join(short(one) for one in known[:_MOST_NAMES]) + more
    listed = f"known: {listed}" if known else "none are known"
    return f"did you mean {short(close[0])!r}? {listed}" if close else listed


def need(module: str, extra: str) -> ModuleType:
    """Imports an optional dependency, or says in one line how to install it.

    Args:
        module: the module to import, for example "torch".
        extra: the extra of this package that brings it.

    Raises:
        MissingExtraError: where the module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        top = module.partition(".")[0]
        if error.name is not None and error.name.partition(".")[0] != top:
            raise
        raise MissingExtraError(top, extra) from error
