"""Probes that the user gives: other responses to the audited records, by their ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unseen.data.formats import Row, is_missing
from unseen.data.read import read_rows
from unseen.errors import DataError
from unseen.runs.config import unread
from unseen.runs.results import GivenProbes
from unseen.signals.base import Signal, probes_needed
from unseen.signals.variants import folded
from unseen.types import Record

if TYPE_CHECKING:
    from unseen.runs.config import FinetuneAudit

_EXAMPLE = 'write one record a line: {"id": "...", "probes": ["...", "..."]}'


@dataclass(frozen=True)
class Given:
    """Probes that are ready.

    Attributes:
        probes: record id -> responses, in the order of the file.
        facts: what the results say of them.
        notes: what the user should know.
    """

    probes: Mapping[str, tuple[str, ...]]
    facts: GivenProbes
    notes: tuple[str, ...]


def read_probes(
    config: FinetuneAudit, records: Sequence[Record], signals: Sequence[Signal]
) -> Given | None:
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
    id_column = "id" if config.id_column in (None, "none") else str(config.id_column)
    found: dict[str, list[str]] = {}
    for row in read_rows(file):
        name = row.values.get(id_column)
        if is_missing(name) or not str(name).strip():
            raise row.fault("has no id: probes belong to a record", field=id_column, fix=_EXAMPLE)
        found.setdefault(str(name), []).extend(_probes_of(row))
    given = {record.id: tuple(found[record.id]) for record in records if found.get(record.id)}
    if not given:
        raise DataError(
            "holds probes of none of the audited records" if found else "holds no probes",
            path=file,
            fix="ids must be those of the records: give these a column of ids (--id-column COLUMN)"
            if found
            else _EXAMPLE,
        )
    copies = sum(
        folded(text) == folded(record.turns[-1].content)
        for record in records
        for text in given.get(record.id, ())
    )
    notes = []
    if len(given) < len(records):
        notes.append(f"{len(records) - len(given)} audited records have no probe in {file}")
    if copies:
        notes.append(f"{copies} probes in {file} repeat the response of their record: not shown")
    facts = GivenProbes(
        path=file,
        sha256=_content_hash(given),
        n_records=len(given),
        n_probes=sum(map(len, given.values())),
        n_copies=copies,
    )
    return Given(given, facts, tuple(notes))


def _probes_of(row: Row) -> list[str]:
    """All probes of a row.

    Raises:
        DataError: where there are none, or one is no text.
    """
    columns = [name for name in row.values if name == "probes" or name.startswith("probe")]
    said: list[str] = []
    for name in columns:
        value = row.values[name]
        if is_missing(value):
            continue
        for text in [value] if isinstance(value, str) else list(_listed(row, name, value)):
            if not isinstance(text, str):
                raise row.fault("is no text", field=name, fix=_EXAMPLE)
            if text.strip():
                said.append(text)
    if not columns:
        raise row.fault("has no column of probes", fix=_EXAMPLE)
    return said


def _listed(row: Row, name: str, value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise row.fault("is no list of texts", field=name, fix=_EXAMPLE)
    return value


def _content_hash(given: Mapping[str, tuple[str, ...]]) -> str:
    about = json.dumps(sorted(given.items()))
    return hashlib.sha256(about.encode()).hexdigest()
