"""Labelled records that demonstrations are drawn from: of a file, or from Python."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unseen.data.formats import Cells, Row, listed, longest_text, schema_of, shown
from unseen.data.read import name_of_source, read_rows
from unseen.data.records import Source, read_source
from unseen.errors import ConfigError, DataError, UnknownNameError, UsageError
from unseen.prompts.labels import Labels
from unseen.prompts.templates import Example
from unseen.types import Record

TEXT, LABEL = "text", "label"
_ROLES = 2
_MOST_LABELS = 50
"""Different answers above which they are no labels, but free text."""
_MOST_NAMED = 5

Given = str | os.PathLike[str] | Iterable[Any]
"""A file, or labelled records: pairs, mappings with text and label, records with a question and an answer, or
a table with such columns (as of pandas)."""


@dataclass(frozen=True)
class Demos:
    """Labelled records, and where each came from.

    Attributes:
        examples: in the order of the source.
        places: where each stands there, as messages name it.
        source: the file.
    """

    examples: tuple[Example, ...]
    places: tuple[str, ...]
    source: Source

    @property
    def labels(self) -> tuple[str, ...]:
        """Different labels, sorted."""
        return tuple(sorted({example.label for example in self.examples}))


def read_demos(given: Given, *, format_: str, column: Mapping[str, str], option: str) -> Demos:
    """Labelled records.

    Args:
        given: a file with columns for text and label, or of prompts and completions; or the records.
        format_: form of the records, "auto" to see it.
        column: role -> column.
        option: what names the file, for messages.

    Raises:
        DataError: where it cannot be read, or a record has no text or no label.
    """
    if not isinstance(given, str | os.PathLike):
        return _from_python(given, option)
    name = name_of_source(given)
    rows = list(read_rows(name))
    if not rows:
        raise DataError("holds no records", path=name, fix='{"text": "...", "label": "..."}')
    there = dict.fromkeys(column for row in rows for column in row.values)
    columns = {role: column.get(role, role) for role in (TEXT, LABEL)}
    if format_ != "auto" or not set(columns.values()) <= set(there):
        _check_named(name, column, there)
        return _of_pairs(name, format_, column, rows[0])
    examples = tuple(_example(Cells(row, columns)) for row in rows)
    places = tuple(f"{row.unit} {row.number}" for row in rows)
    _check_ids(name, examples, places)
    return Demos(examples, places, Source(name, len(examples), _digest(examples)))


def _check_named(name: str, column: Mapping[str, str], there: Iterable[str]) -> None:
    """Refuses columns for text and label that no record has.

    Raises:
        UnknownNameError: where one was named.
    """
    known = [shown(one) for one in there]
    for role in (TEXT, LABEL):
        if role in column and column[role] not in there:
            raise UnknownNameError(f"column of {name}", shown(column[role]), known)


def _check_ids(name: str, examples: Sequence[Example], places: Sequence[str]) -> None:
    """Refuses records that share an id: results name records by it.

    Raises:
        DataError: with where the first two stand.
    """
    first: dict[str, str] = {}
    for example, place in zip(examples, places, strict=True):
        if example.id in first:
            raise DataError(
                f"{first[example.id]} and {place} have the same id",
                path=name,
                fix="give each record an id of its own, or leave the ids out: records are then numbered",
            )
        first[example.id] = place


def _example(cells: Cells) -> Example:
    label = cells.value(LABEL)
    # A label may be a number.
    said = str(label) if isinstance(label, bool | int | float) else cells.text(LABEL)
    id_ = cells.row.values.get("id")
    return Example(
        f"{cells.row.number}" if id_ is None else str(id_), cells.text(TEXT), said.strip()
    )


def _of_pairs(name: str, format_: str, column: Mapping[str, str], first: Row) -> Demos:
    """Prompts and completions, whatever form they are written in."""
    if format_ == "auto" and not _are_pairs(first, column):
        raise _unlabelled(first, column)
    try:
        found = read_source(name, format=format_, column=column or None)
    except ConfigError as error:
        raise ConfigError(error.problem, fix=error.fix or _FIX) from error
    examples = tuple(_example_of(record, name, at) for at, record in enumerate(found.records))
    places = tuple(f"{first.unit} {number}" for number in range(1, len(examples) + 1))
    return Demos(examples, places, Source(name, len(examples), _digest(examples)))


def _are_pairs(first: Row, column: Mapping[str, str]) -> bool:
    """Whether a record is of a form that has an answer, or is to be read as one."""
    if LABEL in column:
        return False
    if set(column) - {TEXT}:
        return True  # what is wrong with other roles is said where they are read
    try:
        return schema_of(first, column=column).form.name != TEXT
    except UsageError:
        return False


def _unlabelled(first: Row, column: Mapping[str, str]) -> DataError:
    """The error for columns of which none is a text, or none its label, with the flags that name them."""
    text = column.get(TEXT) or (TEXT if TEXT in first.values else longest_text(first))
    label = column.get(LABEL) or (LABEL if LABEL in first.values else None)
    others = [one for one in first.values if one not in (text, "id") and shown(one) == one]
    if label is None and len(others) == 1:
        (label,) = others
    lacking = [role for role in (TEXT, LABEL) if column.get(role, role) not in first.values]
    flags = (
        shlex.quote(f"{role}={place or 'COLUMN'}") for role, place in ((TEXT, text), (LABEL, label))
    )
    return first.fault(
        f"has columns {listed(first.values)}, and none for {' and '.join(lacking)}",
        fix=f"name the columns: {' '.join(f'--column {flag}' for flag in flags)}",
    )


_FIX = "name the columns: --column text=COLUMN --column label=COLUMN"


def _example_of(record: Record, name: str, at: int) -> Example:
    if [turn.role for turn in record.turns] != ["user", "assistant"]:
        raise DataError(
            f"record {at + 1} is no text with a label, nor a prompt with its completion",
            path=name,
            fix=_FIX,
        )
    asked, answer = record.turns
    return Example(record.id, asked.content, answer.content.strip())


def _from_python(given: Iterable[Any], option: str) -> Demos:
    rows = _rows(given)
    examples = tuple(_example_from(one, at, option) for at, one in enumerate(rows))
    if not examples:
        raise DataError("holds no records", path=option, fix='[("text", "label"), …]')
    places = tuple(f"record {at}" for at in range(1, len(examples) + 1))
    _check_ids(option, examples, places)
    return Demos(examples, places, Source(option, len(examples), _digest(examples)))


def _rows(given: Iterable[Any]) -> Iterable[Any]:
    """What is given, row by row: a table goes through its columns by itself."""
    to_dict: Callable[..., list[Any]] | None = getattr(given, "to_dict", None)
    return given if to_dict is None or not hasattr(given, "columns") else to_dict("records")


def _example_from(one: Any, at: int, option: str) -> Example:
    if isinstance(one, Example):
        return one
    if isinstance(one, Record):
        return _example_of(one, option, at)
    if isinstance(one, Mapping) and {TEXT, LABEL} <= set(one):
        values = (one[TEXT], one[LABEL])
        id_ = one.get("id", at + 1)
    elif isinstance(one, Sequence) and not isinstance(one, str) and len(one) == _ROLES:
        values, id_ = (one[0], one[1]), at + 1
    else:
        raise DataError(
            f"record {at + 1} is no text with a label",
            path=option,
            fix='write ("text", "label"), or {"text": …, "label": …}',
        )
    cells = Cells(Row(dict(zip((TEXT, LABEL), values, strict=True)), option, at + 1, "record"), {})
    return replace(_example(cells), id=str(id_))


def _digest(examples: Iterable[Example]) -> str:
    digest = hashlib.sha256()
    for example in examples:
        digest.update(json.dumps([example.id, example.text, example.label]).encode())
    return digest.hexdigest()


# --- labels ---------------------------------------------------------------------------------------


def labels_of(
    pool: Sequence[Demos],
    words: Sequence[str],
    synonyms: Mapping[str, Sequence[str]],
    of_template: Labels | None,
) -> Labels | None:
    """The words that answer: those that are named, the template's, or those of the records.

    Returns:
        None where answers are free text: records that have hardly a label in common.

    Raises:
        ConfigError: where two would be read alike, or there are too few.
    """
    if words:
        return Labels.of(words, synonyms)
    if of_template is not None:
        return Labels.of(of_template.words, dict(of_template.synonyms) | dict(synonyms))
    n = sum(len(one.examples) for one in pool)
    found = sorted({label for one in pool for label in one.labels})
    if len(found) == 1:
        raise ConfigError(
            f"all {n} records have the same label, and an attack on a prompt needs two at least",
            fix="give records of other labels too",
        )
    if len(found) > min(_MOST_LABELS, n / 2):
        return None
    return Labels.of(found, synonyms)


def labelled(demos: Demos, labels: Labels | None) -> Demos:
    """The same records, each with its label as the list has it.

    Raises:
        ConfigError: where some have labels that are not in the list: where those stand, not what they say.
    """
    if labels is None:
        return demos
    words = {
        spelling.strip().casefold(): word
        for word, others in ((word, dict(labels.synonyms).get(word, ())) for word in labels.words)
        for spelling in (word, *others)
    }
    found = [words.get(example.label.casefold()) for example in demos.examples]
    strange = [place for place, word in zip(demos.places, found, strict=True) if word is None]
    if strange:
        more = f" and {len(strange) - _MOST_NAMED} more" if len(strange) > _MOST_NAMED else ""
        raise ConfigError(
            f"{len(strange)} records of {demos.source.path} have a label that is none of "
            f"{', '.join(labels.words)} ({', '.join(strange[:_MOST_NAMED])}{more})",
            fix="--labels with all of them, or --synonyms LABEL=WORD|WORD",
        )
    examples = (
        replace(example, label=word)
        for example, word in zip(demos.examples, found, strict=True)
        if word is not None
    )
    return replace(demos, examples=tuple(examples))
