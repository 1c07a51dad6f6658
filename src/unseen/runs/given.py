"""Texts that the user gives for the audited records, by their ids: probes, and paraphrases of prompts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from unseen.data.formats import Row, is_missing
from unseen.data.read import read_rows
from unseen.errors import DataError, UnscorableError
from unseen.runs.config import unread
from unseen.runs.results import GivenParaphrases, GivenProbes
from unseen.signals.base import Signal, paraphrases_needed, probes_needed
from unseen.signals.paraphrased import ParaphrasedDrift
from unseen.signals.variants import folded, last_prompt, response_of
from unseen.types import Record

if TYPE_CHECKING:
    from unseen.runs.config import FinetuneAudit

Facts = TypeVar("Facts", GivenProbes, GivenParaphrases)


@dataclass(frozen=True)
class Given(Generic[Facts]):
    """Texts that are ready.

    Attributes:
        texts: record id -> texts, in the order of the file; also of records that are judged apart.
        facts: what the results say of them.
        notes: what the user should know.
    """

    texts: Mapping[str, tuple[str, ...]]
    facts: Facts
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Column:
    """What a file holds beside ids.

    Attributes:
        one: name of a column with one text, and of numbered ones.
        many: name of a column with a list of texts.
    """

    one: str
    many: str

    @property
    def example(self) -> str:
        """A line of such a file."""
        return f'write one record a line: {{"id": "...", "{self.many}": ["...", "..."]}}'


_PROBES = _Column("probe", "probes")
_PARAPHRASES = _Column("paraphrase", "paraphrases")


def read_probes(
    config: FinetuneAudit, records: Sequence[Record], signals: Sequence[Signal]
) -> Given[GivenProbes] | None:
    """Reads the user's probes, and everything that can go wrong with them, before a model is loaded.

    A row is an id with a list of probes, with columns probe, probe_1 and so on, or both; rows of
    one id add up.

    Args:
        config: names the file.
        records: the judged records.
        signals: what will be measured.

    Returns:
        The probes, or None where none are named.

    Raises:
        DataError: where the file cannot be read, or holds no probes of these records.
        ConfigError: where it is named and no attack would show it.
    """
    file = config.probes
    if file is None:
        return None
    if not probes_needed(signals):
        raise unread("probes", "icp_sp[source=file]")
    texts, given, notes = _read(file, config, records, _PROBES)
    copies = _copies(given, records, response_of)
    if copies:
        notes.append(f"{copies} probes in {file} repeat the response of their record: not shown")
    facts = GivenProbes(
        path=file,
        sha256=_content_hash(texts),
        n_records=len(given),
        n_probes=sum(map(len, given.values())),
        n_copies=copies,
    )
    return Given(texts, facts, tuple(notes))


def read_paraphrases(
    config: FinetuneAudit, records: Sequence[Record], signals: Sequence[Signal]
) -> Given[GivenParaphrases] | None:
    """Reads the user's paraphrases of prompts as `read_probes` does probes: columns paraphrase(s).

    Raises:
        DataError: where the file cannot be read, or holds no paraphrases of these records.
        ConfigError: where it is named and no attack would look at them.
    """
    file = config.paraphrases
    if file is None:
        return None
    if not paraphrases_needed(signals):
        raise unread("paraphrases", "g_drift_stability")
    texts, given, notes = _read(file, config, records, _PARAPHRASES)
    copies = _copies(given, records, last_prompt)
    if copies:
        notes.append(f"{copies} paraphrases in {file} repeat the prompt: they are left out")
    wanted = max(
        one.paraphrases
        for one in signals
        if isinstance(one, ParaphrasedDrift) and one.needs_paraphrases
    )
    most = max(map(len, given.values()))
    if most > wanted:
        notes.append(
            f"{file} has up to {most} paraphrases of a record, and {wanted} of each are looked at: "
            f"g_drift_stability[paraphrases={most}] looks at all"
        )
    facts = GivenParaphrases(
        path=file,
        sha256=_content_hash(texts),
        n_records=len(given),
        n_paraphrases=sum(map(len, given.values())),
        n_copies=copies,
    )
    return Given(texts, facts, tuple(notes))


def _read(
    file: str, config: FinetuneAudit, records: Sequence[Record], column: _Column
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]], list[str]]:
    """Texts of all records in the file, those of the judged ones, and what the user should know.

    Raises:
        DataError: where the file cannot be read, or holds none of these records.
    """
    id_column = "id" if config.id_column in (None, "none") else str(config.id_column)
    found: dict[str, list[str]] = {}
    for row in read_rows(file):
        name = row.values.get(id_column)
        if is_missing(name) or not str(name).strip():
            problem = f"has no id: {column.many} belong to a record"
            raise row.fault(problem, field=id_column, fix=column.example)
        found.setdefault(str(name), []).extend(_texts_of(row, column))
    texts = {id_: tuple(said) for id_, said in found.items() if said}
    given = {record.id: texts[record.id] for record in records if record.id in texts}
    if not given:
        raise DataError(
            f"holds {column.many} of none of the audited records"
            if found
            else f"holds no {column.many}",
            path=file,
            fix="ids must be those of the records: give these a column of ids (--id-column COLUMN)"
            if found
            else column.example,
        )
    notes = []
    if len(given) < len(records):
        notes.append(f"{len(records) - len(given)} audited records have no {column.one} in {file}")
    return texts, given, notes


def _copies(
    given: Mapping[str, Sequence[str]], records: Sequence[Record], own: Callable[[Record], str]
) -> int:
    """How many of the texts say what the record says itself."""
    n = 0
    for record in records:
        with suppress(UnscorableError):  # where it says nothing
            n += [folded(text) for text in given.get(record.id, ())].count(folded(own(record)))
    return n


def _texts_of(row: Row, column: _Column) -> list[str]:
    """All texts of a row.

    Raises:
        DataError: where there are none, or one is no text.
    """
    columns = [name for name in row.values if name.startswith(column.one)]
    said: list[str] = []
    for name in columns:
        value = row.values[name]
        if is_missing(value):
            continue
        for text in [value] if isinstance(value, str) else list(_listed(row, name, value, column)):
            if not isinstance(text, str):
                raise row.fault("is no text", field=name, fix=column.example)
            if text.strip():
                said.append(text)
    if not columns:
        raise row.fault(f"has no column of {column.many}", fix=column.example)
    return said


def _listed(row: Row, name: str, value: object, column: _Column) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise row.fault("is no list of texts", field=name, fix=column.example)
    return value


def _content_hash(given: Mapping[str, tuple[str, ...]]) -> str:
    about = json.dumps(sorted(given.items()))
    return hashlib.sha256(about.encode()).hexdigest()
