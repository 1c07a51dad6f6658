"""Record forms: which columns of a row become which turns.

    text               text
    messages           messages: [{"role": system|user|assistant, "content": ...}, ...]
    sharegpt           conversations: [{"from": human|gpt|system, "value": ...}, ...]
    alpaca             instruction[, input][, system], output
    prompt-completion  prompt and completion (or response)

The names on the left are what `--format` takes; the names on the right are roles, which
`--column ROLE=COLUMN` points at the user's own columns. Messages name files, lines, columns and
ids, and never what a record says.
"""

from __future__ import annotations

import difflib
import json
import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import PurePath
from typing import Any
from uuid import UUID

import numpy as np

from unseen.errors import ConfigError, DataError, UnknownNameError
from unseen.types import Record, Turn

NO_VALUE = "(none)"
"""The slice of the records that have no value in the column."""

MADE_IDS = "none"
"""Given as the id column: number the records by file and line, whatever columns there are."""


def shown(name: str, most: int = 60) -> str:
    """A column name or id as messages show it.

    Names that are long or hold line breaks are described, not printed: a file without a header
    line has a record where its column names should be.
    """
    if len(name) <= most and name.isprintable():
        return name
    return f"(a name of {len(name)} characters)"


def listed(columns: Mapping[str, Any] | list[str]) -> str:
    """Column names for a message, at most twelve."""
    names = [shown(name) or "(unnamed)" for name in columns]
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ", ".join(names[:12]) + more if names else "no columns"


def is_missing(value: object) -> bool:
    """Whether a cell holds nothing: null, or the NaN that pandas writes for it."""
    return value is None or (isinstance(value, float) and math.isnan(value))


@dataclass(frozen=True, slots=True)
class Row:
    """One raw record and where it stands.

    Attributes:
        values: column -> value.
        path: the file, as the user wrote it.
        number: 1-based line (or row) where the record begins.
        unit: what is counted: "line", "row" or "record".
    """

    values: Mapping[str, Any]
    path: str
    number: int
    unit: str = "line"

    def fault(self, problem: str, *, field: str | None = None, fix: str | None = None) -> DataError:
        """The error that says what is wrong with this record."""
        field = None if field is None else shown(field)
        if self.unit == "line":
            return DataError(problem, path=self.path, line=self.number, field=field, fix=fix)
        place = f"{self.path} {self.unit} {self.number}"
        error = DataError(problem, path=place, field=field, fix=fix)
        error.path, error.line = self.path, self.number
        return error

    @property
    def removal(self) -> str:
        """How to take this record out of its file."""
        if self.path.endswith((".jsonl", ".ndjson", ".jsonlines")):
            return f"sed -i.bak '{self.number}d' {shlex.quote(self.path)}"
        return f"remove {self.unit} {self.number} from {self.path}"


@dataclass(frozen=True, slots=True)
class Cells:
    """One row, asked by role."""

    row: Row
    columns: Mapping[str, str]

    def column(self, role: str) -> str:
        """The user's name of the column that plays this role."""
        return self.columns.get(role, role)

    def value(self, role: str) -> Any:
        """What stands in the column, or None."""
        value = self.row.values.get(self.column(role))
        return None if is_missing(value) else value

    def text(self, role: str, *, may_be_blank: bool = False) -> str:
        """The text of a column that must have one."""
        column, value = self.column(role), self.value(role)
        if value is None:
            raise self._missing(column)
        if not isinstance(value, str):
            raise self.row.fault(
                f"holds {kind_of(value)}, expected a text",
                field=column,
                fix=f"write it as a text in quotes, or name another column: --column {role}=COLUMN",
            )
        check_text(self.row, column, value)
        if not may_be_blank and not value.strip():
            raise self.row.fault("is empty", field=column, fix=self.row.removal)
        return value

    def optional_text(self, role: str) -> str:
        """The text of a column that may be absent or empty."""
        return "" if self.value(role) is None else self.text(role, may_be_blank=True)

    def turns(self, role: str) -> tuple[Turn, ...]:
        """The turns of a column that holds a list of messages."""
        column, value = self.column(role), self.value(role)
        if value is None:
            raise self._missing(column)
        return turns_of(self.row, column, value)

    def _missing(self, column: str) -> DataError:
        if column in self.row.values:
            return self.row.fault("is null", field=column, fix=self.row.removal)
        return self.row.fault(
            f"is missing; there are {listed(self.row.values)}",
            field=column,
            fix=f"give the record that column, or take it out: {self.row.removal}",
        )


def kind_of(value: object) -> str:
    """What a value is, in JSON's words, without the value."""
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text"}
    names |= {list: "a list", dict: "an object", bytes: "bytes"}
    return names.get(type(value), f"a {type(value).__name__}")


def check_text(row: Row, column: str, value: str) -> None:
    """Refuses what no tokenizer and no file can carry.

    Raises:
        DataError: where the text holds U+0000 or half of a surrogate pair.
    """
    problem = not_carried(value)
    if problem is not None:
        raise row.fault(problem, field=column, fix=row.removal)


def not_carried(text: str) -> str | None:
    """What a text holds that no tokenizer and no file can carry, or None."""
    if "\0" in text:
        return "holds a NUL character (U+0000)"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds half of a surrogate pair (an escape from \\ud800 to \\udfff alone)"
    return None


def scalar(row: Row, column: str) -> str | None:
    """An id, cluster or slice value as a string; None where the cell is empty."""
    value = row.values.get(column)
    if isinstance(value, np.generic):
        value = value.item()
    if is_missing(value) or value == "":
        return None
    if isinstance(value, str):
        check_text(row, column, value)
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # a column of whole numbers that has gaps
    if isinstance(value, int | float | Decimal | date | datetime | time | UUID):
        return str(value)
    raise row.fault(
        f"holds {kind_of(value)}, expected a text or a number",
        field=column,
        fix=f"name another column; there are {listed(row.values)}",
    )


# --- conversations -----------------------------------------------------------------------------

_ROLES = {"system": "system", "user": "user", "assistant": "assistant"}
_SPEAKERS = _ROLES | {"human": "user", "gpt": "assistant"}
_TOOLS = {"tool", "function", "function_call", "function_response", "observation", "tool_call"}


def turns_of(row: Row, column: str, value: Any) -> tuple[Turn, ...]:
    """The turns of a list of messages, of either spelling, without a check of who speaks.

    Args:
        row: where the list stands.
        column: its column.
        value: the list; or the same as JSON text (CSV), or as one object of lists (Arrow).

    Raises:
        DataError: where a message has no known role or no text, or calls tools.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise row.fault(
                "holds a text, expected a list of messages",
                field=column,
                fix=f"read it as plain text: --format text --column {shlex.quote(f'text={column}')}",
            ) from None
    if isinstance(value, dict) and value and all(isinstance(v, list) for v in value.values()):
        value = [
            dict(zip(value, items, strict=False)) for items in zip(*value.values(), strict=False)
        ]
    if not isinstance(value, list):
        raise row.fault(
            f"holds {kind_of(value)}, expected a list of messages",
            field=column,
            fix='write it as [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]',
        )
    return tuple(_turn(row, f"{column}[{i}]", message) for i, message in enumerate(value))


def _turn(row: Row, place: str, message: Any) -> Turn:
    if not isinstance(message, dict):
        raise row.fault(
            f"holds {kind_of(message)}, expected an object with role and content",
            field=place,
            fix='write every message as {"role": "user", "content": "..."}',
        )
    who, what, roles = ("role", "content", _ROLES)
    if "role" not in message and "from" in message:
        who, what, roles = ("from", "value", _SPEAKERS)
    role = message.get(who)
    calls = [key for key in ("tool_calls", "function_call") if message.get(key)]
    if calls or (isinstance(role, str) and role in _TOOLS):
        raise row.fault(
            "calls a tool, and conversations with tools are not supported",
            field=f"{place}.{calls[0] if calls else who}",
            fix=row.removal,
        )
    if not isinstance(role, str) or role not in roles:
        raise row.fault(
            f"is none of {', '.join(roles)}",
            field=f"{place}.{who}",
            fix=f'rename the role, for example "{who}": "{list(roles)[-1]}"',
        )
    return Turn(roles[role], _content(row, f"{place}.{what}", message.get(what)))


def _content(row: Row, place: str, content: Any) -> str:
    if isinstance(content, list):
        for part in content:
            if not (
                isinstance(part, dict)
                and part.get("type") == "text"
                and isinstance(part.get("text"), str)
            ):
                raise row.fault(
                    "has a part that is no text; images, audio and files are not supported",
                    field=place,
                    fix=row.removal,
                )
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise row.fault(
            f"holds {kind_of(content)}, expected a text",
            field=place,
            fix='write the content as "content": "..." or [{"type": "text", "text": "..."}]',
        )
    check_text(row, place, content)
    return content


# --- forms -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """One way to write a record.

    Attributes:
        name: what `--format` takes.
        required: roles that every record has.
        build: makes the turns of a row.
        optional: roles that are used where they are there.
    """

    name: str
    required: tuple[str, ...]
    build: Callable[[Cells], tuple[Turn, ...]]
    optional: tuple[str, ...] = ()

    @property
    def roles(self) -> tuple[str, ...]:
        """All roles, required ones first."""
        return self.required + self.optional


def _text(cells: Cells) -> tuple[Turn, ...]:
    return (Turn("text", cells.text("text")),)


def _prompt_completion(cells: Cells) -> tuple[Turn, ...]:
    sides = []
    for role, speaker in (("prompt", "user"), ("completion", "assistant")):
        if isinstance(cells.value(role), list):
            sides.append(cells.turns(role))
        else:
            text = cells.text(role, may_be_blank=True)
            sides.append((Turn(speaker, text),))
    _must_answer(cells, "completion", sides[1])
    return sides[0] + sides[1]


def _messages(cells: Cells) -> tuple[Turn, ...]:
    turns = cells.turns("messages")
    _must_answer(cells, "messages", turns)
    return turns


def _sharegpt(cells: Cells) -> tuple[Turn, ...]:
    turns = cells.turns("conversations")
    _must_answer(cells, "conversations", turns)
    return _with_system(cells, turns)


def _alpaca(cells: Cells) -> tuple[Turn, ...]:
    asked, given = cells.text("instruction"), cells.optional_text("input")
    if given.strip():
        asked = f"{asked}\n\n{given}"
    return _with_system(
        cells, (Turn("user", asked), Turn("assistant", cells.text("output", may_be_blank=True)))
    )


def _with_system(cells: Cells, turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    system = cells.optional_text("system")
    return (Turn("system", system), *turns) if system.strip() else turns


def _must_answer(cells: Cells, role: str, turns: tuple[Turn, ...]) -> None:
    # An empty response is counted: the record has no score. One without a response is no record.
    if not any(turn.role == "assistant" for turn in turns):
        raise cells.row.fault(
            "has no assistant turn, so there is no response to score",
            field=cells.column(role),
            fix=cells.row.removal,
        )


FORMS: tuple[Form, ...] = (
    Form("messages", ("messages",), _messages),
    Form("sharegpt", ("conversations",), _sharegpt, optional=("system",)),
    Form("alpaca", ("instruction", "output"), _alpaca, optional=("input", "system")),
    Form("prompt-completion", ("prompt", "completion"), _prompt_completion),
    Form("text", ("text",), _text),
)
"""All forms; `auto` takes the first that fits, so that a rendered `text` column loses."""

_LISTS = {"messages", "conversations"}

_SYNONYMS: dict[str, tuple[str, ...]] = {
    "text": (
        "content",
        "body",
        "document",
        "article",
        "passage",
        "sentence",
        "message",
        "abstract",
    ),
    "prompt": ("question", "query", "input", "instruction", "user", "source"),
    "completion": ("response", "answer", "output", "target", "reply", "assistant", "summary"),
    "instruction": ("prompt", "question", "query", "task"),
    "output": ("response", "answer", "completion", "target", "reply"),
    "messages": ("conversation", "dialog", "dialogue", "chat", "turns"),
    "conversations": ("conversation", "dialog", "dialogue"),
}


@dataclass(frozen=True)
class Schema:
    """How the rows of a source become records.

    Attributes:
        form: the record form.
        columns: role -> column, for roles whose column has another name.
        id_column: the user's column of ids, or None for the default.
        cluster_by: the column of authors, documents or users.
        slice_by: columns for results by group.
        others: further forms that the first row fits.
    """

    form: Form
    columns: Mapping[str, str]
    id_column: str | None
    cluster_by: str | None
    slice_by: tuple[str, ...]
    others: tuple[str, ...] = ()

    def record(self, row: Row) -> Record:
        """The record of a row.

        Raises:
            DataError: where the row does not hold what the form needs.
        """
        return Record(
            id=self._id(row),
            turns=self.form.build(Cells(row, self.columns)),
            cluster=None if self.cluster_by is None else scalar(row, self.cluster_by),
            slices={name: scalar(row, name) or NO_VALUE for name in self.slice_by},
        )

    def _id(self, row: Row) -> str:
        found = None if self.id_column == MADE_IDS else scalar(row, self.id_column or "id")
        if found is not None:
            return found
        if self.id_column not in (None, MADE_IDS):
            raise row.fault(
                "is missing, so the record has no id",
                field=self.id_column,
                fix=f"fill it in, or number the records by file and line: --id-column {MADE_IDS}",
            )
        return f"{PurePath(row.path).name}:{row.number}"

    @property
    def named(self) -> dict[str, str]:
        """Columns that the user named and that must be somewhere: column -> option."""
        named = dict.fromkeys(self.slice_by, "slice_by")
        if self.cluster_by is not None:
            named[self.cluster_by] = "cluster_by"
        if self.id_column not in (None, MADE_IDS):
            named[str(self.id_column)] = "id_column"
        return named


def schema_of(
    row: Row,
    *,
    format: str = "auto",  # noqa: A002
    column: Mapping[str, str] | None = None,
    id_column: str | None = None,
    cluster_by: str | None = None,
    slice_by: tuple[str, ...] = (),
) -> Schema:
    """Finds the form of a source from its first row.

    Args:
        row: the first row.
        format: the name of a form, or "auto".
        column: role -> column.
        id_column: the column of ids; "none" numbers the records by file and line.
        cluster_by: the column of authors, documents or users.
        slice_by: columns for results by group.

    Raises:
        UnknownNameError: where a format, role or mapped column does not exist.
        DataError: where no form fits, or the columns of the given one are not there.
    """
    forms = _wanted(format, column or {})
    mapped = dict(column or {})
    if "response" in mapped:
        mapped["completion"] = mapped.pop("response")
    for name in mapped.values():
        if name not in row.values:
            known = [shown(known) for known in row.values]
            raise UnknownNameError(
                f"column of {row.path} {row.unit} {row.number}", shown(name), known
            )
    columns = dict(mapped)
    if "completion" not in row.values and "response" in row.values:
        columns.setdefault("completion", "response")
    fitting = [
        form for form in forms if all(columns.get(r, r) in row.values for r in form.required)
    ]
    if not fitting:
        raise _nothing_fits(row, forms, columns, asked=None if format == "auto" else format)
    form = fitting[0]
    return Schema(
        form=form,
        columns={role: columns[role] for role in form.roles if role in columns},
        id_column=id_column,
        cluster_by=cluster_by,
        slice_by=slice_by,
        others=tuple(other.name for other in fitting[1:]),
    )


def _wanted(name: str, column: Mapping[str, str]) -> list[Form]:
    """The forms that the user's format and roles leave."""
    by_name = {form.name: form for form in FORMS}
    if name != "auto" and name not in by_name:
        raise UnknownNameError("format", name, ["auto", *by_name])
    forms = list(FORMS) if name == "auto" else [by_name[name]]
    roles = ["completion" if role == "response" else role for role in column]
    known = {role for form in forms for role in form.roles}
    for role in roles:
        if role not in known:
            raise UnknownNameError("role in column", shown(role), known)
    left = [form for form in forms if set(roles) <= set(form.roles)]
    if not left:
        pairs = "; ".join(f"{form.name}: {', '.join(form.roles)}" for form in forms)
        raise ConfigError(
            f"no format has the roles {', '.join(roles)} together", fix=f"the formats take {pairs}"
        )
    return left


def _nothing_fits(
    row: Row, forms: list[Form], columns: Mapping[str, str], *, asked: str | None
) -> DataError:
    """The error for a first row that fits none of the forms, with the flags that make it fit."""
    guesses = {form: guess for form in forms if (guess := _guess(row, form, columns)) is not None}
    if asked is not None:
        form = forms[0]
        absent = [role for role in form.required if columns.get(role, role) not in row.values]
        # The form is that of --format, or the one that the other side has.
        problem = f"format {asked} also needs {', '.join(absent)}"
        fitting = [other.name for other in FORMS if all(r in row.values for r in other.required)]
        flags = _flags(guesses[form]) if form in guesses else ""
        fixes = [f"map columns:  {flags or ' '.join(f'--column {role}=COLUMN' for role in absent)}"]
        fixes += [
            f"or write both sides as {name}, which these columns fit, without --format {asked}"
            for name in fitting[:1]
        ]
        return _unfitting(row, problem, fixes)
    names = [form.name for form in forms]
    fixes = []
    likely = [form for form in guesses if form.name != "text"]
    if likely:
        best = max(likely, key=lambda form: (_own(guesses[form]), form.name == "prompt-completion"))
        flags = " ".join(["--format", best.name, _flags(guesses[best])]).rstrip()
        fixes.append(f"this looks like {best.name}:  {flags}")
    text = next((guess["text"] for form, guess in guesses.items() if form.name == "text"), None)
    text = text or longest_text(row)
    if text is not None and "text" in names:
        flag = f"--column {shlex.quote(f'text={text}')}"
        fixes.append(f"{'or map' if fixes else 'map'} a column:  {flag}")
    if not fixes:
        fixes.append('write records with a column of text, for example {"text": "..."}')
    return _unfitting(row, f"no columns for {' or '.join(names)}", fixes)


def _unfitting(row: Row, problem: str, fixes: list[str]) -> DataError:
    return row.fault(f"has columns {listed(row.values)}: {problem}", fix="\n  ".join(fixes))


def _own(guess: Mapping[str, str]) -> int:
    """How many roles are played by a column of their own name, in any case."""
    return sum(role == name.lower() for role, name in guess.items())


def _guess(row: Row, form: Form, columns: Mapping[str, str]) -> dict[str, str] | None:
    """Which column may play each required role, or None where one finds no player."""
    found: dict[str, str] = {}
    for role in form.required:
        kinds = (list, dict) if role in _LISTS else (str,)
        free = [
            name
            for name, value in row.values.items()
            if isinstance(value, kinds) and name not in found.values() and shown(name) == name
        ]
        lower = {name.lower(): name for name in reversed(free)}
        given = columns.get(role)
        names = [role, *_SYNONYMS.get(role, ())] if given is None else [given]
        close = difflib.get_close_matches(role, lower, n=1, cutoff=0.75)
        player = next(
            (lower[name.lower()] for name in [*names, *close] if name.lower() in lower), None
        )
        if player is None:
            return None
        found[role] = player
    return found


def _flags(guess: Mapping[str, str]) -> str:
    pairs = [f"{role}={name}" for role, name in guess.items() if role != name]
    return " ".join(f"--column {shlex.quote(pair)}" for pair in pairs)


def longest_text(row: Row) -> str | None:
    """The column that holds the longest text of a row, ids apart; None where there is none."""
    texts = {
        name: len(value)
        for name, value in row.values.items()
        if isinstance(value, str) and value.strip() and shown(name) == name and name != "id"
    }
    return max(texts, key=texts.__getitem__) if texts else None
