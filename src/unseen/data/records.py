"""Rows become records and, apart from them, membership. Nothing here logs what a record says."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, Literal

import numpy as np

from unseen.data.formats import Row, Schema, is_missing, kind_of, schema_of, shown
from unseen.data.read import HUB, name_of_source, open_file, read_rows
from unseen.errors import ConfigError, DataError, UnknownNameError, flag
from unseen.types import BoolArray, Membership, Record

Side = Literal["members", "nonmembers"]

_LONGEST_GROUP = 100  # characters in the name of a group
_FEW_GROUPS = 10  # groups that even a handful of records may have


@dataclass(frozen=True, slots=True)
class Source:
    """Where the records of a side came from.

    Attributes:
        path: the file or data set, as the user wrote it.
        n: records of this side that were read from it.
        sha256: of the file's bytes; of the rows where there is no single file.
    """

    path: str
    n: int
    sha256: str


@dataclass(frozen=True, eq=False)
class Records:
    """The records of both sides and, apart from them, which of them are members.

    Attributes:
        records: members first, each side in the order of its file.
        membership: ids in the same order, and which of them are members.
        sources: where "members" and "nonmembers" came from.
        format: the name of the record form.
        notes: what was decided on the way and the user should know; no text of records.
    """

    records: tuple[Record, ...]
    membership: Membership
    sources: Mapping[str, Source]
    format: str
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.ids != self.membership.ids:
            msg = "got records and membership with different ids or order, expected the same"
            raise ValueError(msg)
        if len(set(self.ids)) < len(self.ids):
            msg = "got the same id twice, expected an id of its own for each record"
            raise ValueError(msg)

    @classmethod
    def from_files(
        cls,
        members: str | os.PathLike[str],
        nonmembers: str | os.PathLike[str],
        *,
        format: str = "auto",  # noqa: A002
        column: Mapping[str, str] | None = None,
        id_column: str | None = None,
        cluster_by: str | None = None,
        slice_by: Sequence[str] = (),
        limit: int | None = None,
        seed: int = 0,
    ) -> Records:
        """Reads members from one source and non-members from another.

        Args:
            members: records that were in the data; see `read_rows` for what a source may be.
            nonmembers: records that were not.
            format: "auto", "text", "prompt-completion", "messages", "alpaca" or "sharegpt".
            column: role -> column, for example {"text": "body"}.
            id_column: column of ids; "id" where there is one, else file and line; "none" for
                file and line in any case.
            cluster_by: column of authors, documents or users, which are resampled whole.
            slice_by: columns for results by group.
            limit: keep a random sample of so many records of each side.
            seed: of that sample.

        Raises:
            DataError: where a source or a record is wrong, or both sides are the same source.
            UnknownNameError: where a format, role or column does not exist.
            ConfigError: where an argument is wrong.
        """
        options = _options(format, column, id_column, cluster_by, slice_by, limit)
        names = name_of_source(members), name_of_source(nonmembers)
        # Wrong paths are reported before anything is read, and equal bytes before all is read.
        streams = [read_rows(name) for name in names]
        sums = [_sha256(name) for name in names]
        if names[0] == names[1] or (sums[0] is not None and sums[0] == sums[1]):
            raise _same_source(*names)
        first = _gather(streams[0], names[0], options, sha256=sums[0])
        second = _gather(streams[1], names[1], options, sha256=sums[1], like=first)
        if first.sha256 == second.sha256:
            raise _same_source(*names)
        return _joined(first, second, limit=limit, seed=seed)

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        *,
        label_column: str,
        format: str = "auto",  # noqa: A002
        column: Mapping[str, str] | None = None,
        id_column: str | None = None,
        cluster_by: str | None = None,
        slice_by: Sequence[str] = (),
        limit: int | None = None,
        seed: int = 0,
    ) -> Records:
        """Reads both sides from one source with a column that says which is which.

        Args:
            path: the source; see `read_rows` for what it may be.
            label_column: column of 1/0, true/false, yes/no or member/nonmember.
            format: as for `from_files`; so are the other arguments.
            column: role -> column.
            id_column: column of ids.
            cluster_by: column of clusters.
            slice_by: columns for results by group.
            limit: keep a random sample of so many records of each side.
            seed: of that sample.

        Raises:
            DataError: where a record or label is wrong, or a side has no records.
            UnknownNameError: where a format, role or column does not exist.
            ConfigError: where an argument is wrong.
        """
        options = _options(format, column, id_column, cluster_by, slice_by, limit)
        name = name_of_source(path)
        rows = read_rows(name)
        part = _gather(rows, name, options, sha256=_sha256(name), label_column=label_column)
        sides = [
            replace(
                part,
                records=[
                    r for r, label in zip(part.records, part.labels, strict=True) if label is member
                ],
            )
            for member in (True, False)
        ]
        for side, what, other in zip(sides, ("members", "non-members"), ("0", "1"), strict=True):
            if not side.records:
                raise DataError(
                    f"has no {what}: every label says {'non-member' if other == '0' else 'member'}",
                    path=name,
                    field=label_column,
                    fix="add records of the other side, or name another column: --label-column COLUMN",
                )
        return _joined(*sides, limit=limit, seed=seed)

    @classmethod
    def from_texts(
        cls,
        members: Iterable[str | Mapping[str, Any]],
        nonmembers: Iterable[str | Mapping[str, Any]],
        *,
        format: str = "auto",  # noqa: A002
        column: Mapping[str, str] | None = None,
        id_column: str | None = None,
        cluster_by: str | None = None,
        slice_by: Sequence[str] = (),
        limit: int | None = None,
        seed: int = 0,
    ) -> Records:
        """Takes both sides from Python: texts, or mappings with the columns of a file.

        Args:
            members: records that were in the data.
            nonmembers: records that were not.
            format: as for `from_files`; so are the other arguments.
            column: role -> column.
            id_column: column of ids; without one, records are "members:1" and so on.
            cluster_by: column of clusters.
            slice_by: columns for results by group.
            limit: keep a random sample of so many records of each side.
            seed: of that sample.

        Raises:
            DataError: where a record is wrong, a side is empty or both are the same.
            UnknownNameError: where a format, role or column does not exist.
            ConfigError: where an argument is wrong.
        """
        options = _options(format, column, id_column, cluster_by, slice_by, limit)
        first = _gather(_python_rows(members, "members"), "members", options)
        second = _gather(_python_rows(nonmembers, "nonmembers"), "nonmembers", options, like=first)
        if first.sha256 == second.sha256:
            raise _same_source("members", "nonmembers")
        return _joined(first, second, limit=limit, seed=seed)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids, in order."""
        return tuple(record.id for record in self.records)

    @property
    def members(self) -> tuple[Record, ...]:
        """The records that were in the data."""
        return tuple(r for r, m in zip(self.records, self.membership.member, strict=True) if m)

    @property
    def nonmembers(self) -> tuple[Record, ...]:
        """The records that were not."""
        return tuple(r for r, m in zip(self.records, self.membership.member, strict=True) if not m)

    def __len__(self) -> int:
        return len(self.records)

    def keep(self, mask: BoolArray) -> Records:
        """The records where the mask, shape (len(self),), is true; a side may become empty."""
        kept = tuple(record for record, keep in zip(self.records, mask, strict=True) if keep)
        member = np.asarray(self.membership.member[np.asarray(mask, dtype=bool)], dtype=bool)
        membership = Membership(tuple(record.id for record in kept), member)
        return replace(self, records=kept, membership=membership)

    def sample(self, limit: int | None, *, seed: int) -> Records:
        """At most `limit` records of each side, drawn at random; all of them where it is None."""
        if limit is None:
            return self
        kept: set[str] = set()
        for at, side in enumerate((self.members, self.nonmembers)):
            drawn = _sample(list(side), limit, np.random.default_rng([seed, at]))
            kept |= {record.id for record in drawn}
        return self.keep(np.array([id_ in kept for id_ in self.ids], dtype=bool))

    def describe(self) -> dict[str, Any]:
        """Counts and hashes for the run record, as JSON values; no text, no ids."""
        counts = {"members": len(self.members), "nonmembers": len(self.nonmembers)}
        sides: dict[str, Any] = {
            side: {"n": counts[side], "path": s.path, "read": s.n, "sha256": s.sha256}
            for side, s in self.sources.items()
        }
        clusters = {record.cluster for record in self.records} - {None}
        slices = {name: {r.slices[name] for r in self.records} for name in self._slice_names()}
        return {
            "format": self.format,
            **sides,
            "clusters": len(clusters),
            "slices": {name: len(values) for name, values in slices.items()},
            "notes": list(self.notes),
        }

    def _slice_names(self) -> tuple[str, ...]:
        return tuple(self.records[0].slices) if self.records else ()


def read_side(source: str | os.PathLike[str]) -> list[Record]:
    """The records of one source alone, in whatever form they are.

    Raises:
        DataError: where the source or a record is wrong.
    """
    return list(read_source(source).records)


@dataclass(frozen=True, eq=False)
class Unsplit:
    """The records of one source, of which nobody has said yet who is a member.

    Attributes:
        records: in the order of the source.
        source: where they came from.
        format: the name of the record form.
        notes: what was decided on the way and the user should know; no text of records.
    """

    records: tuple[Record, ...]
    source: Source
    format: str
    notes: tuple[str, ...] = ()

    def split(self, members: BoolArray, nonmembers: BoolArray) -> Records:
        """The records of both sides.

        Args:
            members: (len(records),) who is a member.
            nonmembers: (len(records),) who is a non-member; who is neither is left out.
        """
        sides = [
            [record for record, inside in zip(self.records, mask, strict=True) if inside]
            for mask in (members, nonmembers)
        ]
        both = (*sides[0], *sides[1])
        _check_groups(both)
        member = np.arange(len(both)) < len(sides[0])
        member.flags.writeable = False
        names: tuple[Side, Side] = ("members", "nonmembers")
        return Records(
            records=both,
            membership=Membership(tuple(record.id for record in both), member),
            sources={
                side: replace(self.source, n=len(of_side))
                for side, of_side in zip(names, sides, strict=True)
            },
            format=self.format,
            notes=self.notes,
        )


def read_source(
    source: str | os.PathLike[str],
    *,
    format: str = "auto",  # noqa: A002
    column: Mapping[str, str] | None = None,
    id_column: str | None = None,
    cluster_by: str | None = None,
    slice_by: Sequence[str] = (),
) -> Unsplit:
    """Reads the records of one source alone. Arguments as those of `Records.from_files`.

    Raises:
        DataError: where the source or a record is wrong.
        UnknownNameError: where a format, role or column does not exist.
        ConfigError: where an argument is wrong.
    """
    options = _options(format, column, id_column, cluster_by, slice_by, None)
    name = name_of_source(source)
    part = _gather(read_rows(name), name, options, sha256=_sha256(name))
    where = Source(part.path, len(part.records), part.sha256)
    return Unsplit(tuple(part.records), where, part.schema.form.name, tuple(part.notes))


# --- building ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """One source, read."""

    path: str
    sha256: str
    schema: Schema
    records: list[Record]
    labels: list[bool]
    notes: list[str] = field(default_factory=list)


def _options(
    format_: str,
    column: Mapping[str, str] | None,
    id_column: str | None,
    cluster_by: str | None,
    slice_by: Sequence[str],
    limit: int | None,
) -> dict[str, Any]:
    """The arguments of `schema_of`, checked as far as no row is needed."""
    if column is not None and not isinstance(column, Mapping):
        raise ConfigError(
            f"got {kind_of(column)} as column, expected a mapping of roles to columns",
            fix="column={'text': 'body'}",
        )
    if isinstance(slice_by, str):
        raise ConfigError(
            f"got slice_by={slice_by!r}, expected a list of columns", fix=f"slice_by=[{slice_by!r}]"
        )
    if limit is not None and limit < 1:
        raise ConfigError(f"got limit={limit}, expected 1 or more", fix="leave it out to keep all")
    return {
        "format": format_,
        "column": column,
        "id_column": id_column,
        "cluster_by": cluster_by,
        "slice_by": tuple(slice_by),
    }


def _sha256(name: str) -> str | None:
    """The hash of the one file behind a source; None for a data set."""
    path = Path(name).expanduser()
    if name.startswith(HUB) or not path.is_file():
        return None
    with open_file(path, name) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _same_source(members: str, nonmembers: str) -> DataError:
    same = "the same source" if members == nonmembers else f"the same content as {nonmembers}"
    return DataError(
        f"is {same} on both sides, so members and non-members cannot differ",
        path=members,
        fix="give records that were not in the data: --nonmembers heldout.jsonl",
    )


def _python_rows(records: Iterable[str | Mapping[str, Any]], name: Side) -> Iterator[Row]:
    if (
        not isinstance(records, Iterable)
        or isinstance(records, str | Mapping)
        or hasattr(records, "iterrows")
    ):
        raise ConfigError(
            f"{name}: got {kind_of(records)}, expected many texts or mappings",
            fix=f"{name}=[...], or DataFrame.to_dict('records')",
        )
    for number, record in enumerate(records, start=1):
        if isinstance(record, str):
            yield Row({"text": record}, name, number, "item")
        elif isinstance(record, Mapping):
            yield Row({str(key): value for key, value in record.items()}, name, number, "item")
        else:
            raise Row({}, name, number, "item").fault(
                f"is {kind_of(record)}, expected a text or a mapping",
                fix='write it as "..." or {"text": "..."}',
            )


def _gather(
    rows: Iterator[Row],
    name: str,
    options: Mapping[str, Any],
    *,
    sha256: str | None = None,
    like: _Part | None = None,
    label_column: str | None = None,
) -> _Part:
    """Reads one source to its end.

    Args:
        rows: its rows.
        name: what the user calls it.
        options: arguments of `schema_of`.
        sha256: of the file; None to hash the rows.
        like: the other side, whose form this one has to have.
        label_column: the column of labels, where both sides are in one source.
    """
    found: Schema | None = None
    records: list[Record] = []
    labels: list[bool] = []
    columns: dict[str, None] = {}
    lines: dict[str, int] = {}
    digest = hashlib.sha256()
    for row in rows:
        if found is None:
            given = options if like is None else {**options, "format": like.schema.form.name}
            found = schema_of(row, **given)
            _check_no_text(found, row)
            if label_column is not None and label_column not in row.values:
                raise _no_column("label_column", label_column, name, row.values)
        record = found.record(row)
        if record.id in lines:
            raise row.fault(
                f"has the id {shown(record.id)}, which {row.unit} {lines[record.id]} has already",
                field=found.id_column or "id",
                fix="make the ids unique, or number by file and line: --id-column none",
            )
        lines[record.id] = row.number
        records.append(record)
        columns.update(dict.fromkeys(row.values))
        if label_column is not None:
            labels.append(label_of(row, label_column))
        if sha256 is None:
            digest.update(_canonical(row))
    if found is None:
        raise DataError(
            "holds no records", path=name, fix='write one record a line: {"text": "..."}'
        )
    for column, option in found.named.items():
        if column not in columns:
            raise _no_column(option, column, name, columns)
    return _Part(
        path=name,
        sha256=sha256 or digest.hexdigest(),
        schema=found,
        records=records,
        labels=labels,
        notes=_notes(found, records, name, asked=options["format"]),
    )


def _check_no_text(found: Schema, row: Row) -> None:
    """Ids, clusters and groups are written to the run folder; the records' text must not be."""
    texts = {found.columns.get(role, role) for role in found.form.roles} & set(row.values)
    for column, option in found.named.items():
        if column in texts:
            raise ConfigError(
                f"got {option}={shown(column)!r}, which is the records' text in {row.path}: it would "
                "be written into the run folder",
                fix=f"name another column, or leave {flag(option)} out",
            )


def _check_groups(records: Sequence[Record]) -> None:
    """Refuses columns that hold no groups, but a text or a value of its own for each record."""
    for column in records[0].slices if records else ():
        values = {record.slices[column] for record in records}
        longest = max(map(len, values))
        if longest > _LONGEST_GROUP or len(values) > max(_FEW_GROUPS, len(records) / 2):
            raise ConfigError(
                f"got slice_by={shown(column)!r}, which has {len(values)} values, the longest of "
                f"{longest} characters, for {len(records)} records: these are no groups",
                fix="name a column with few values, each shared by many records",
            )


def _no_column(option: str, column: str, name: str, columns: Mapping[str, Any]) -> UnknownNameError:
    return UnknownNameError(f"column for {option} in {name}", shown(column), map(shown, columns))


def _canonical(row: Row) -> bytes:
    text = json.dumps(row.values, sort_keys=True, default=str) + "\n"
    return text.encode("utf-8", "surrogatepass")


def _notes(found: Schema, records: list[Record], name: str, *, asked: str) -> list[str]:
    notes = []
    if found.others and asked == "auto":
        notes.append(
            f"{name}: read as {found.form.name}; its columns also fit {', '.join(found.others)} (--format)"
        )
    alone = sum(record.cluster is None for record in records)
    if found.cluster_by is not None and alone:
        notes.append(
            f"{name}: {alone} records have no {shown(found.cluster_by)} and count as clusters of one"
        )
    return notes


_LABELS = {"1": True, "true": True, "yes": True, "member": True}
_LABELS |= {"0": False, "false": False, "no": False, "nonmember": False, "non-member": False}
_LABELS |= {"1.0": True, "0.0": False, "non_member": False, "non member": False}


def label_of(row: Row, column: str) -> bool:
    """Whether a row is a member, by its label column.

    Raises:
        DataError: where the label is missing or none of those that are known.
    """
    value = row.values.get(column)
    if isinstance(value, np.generic):
        value = value.item()
    key = str(value).strip().lower() if isinstance(value, str | bool | int | float) else ""
    if key not in _LABELS:
        problem = "is missing" if is_missing(value) or value == "" else "is no label"
        raise row.fault(
            f"{problem}, expected 1/0, true/false, yes/no or member/nonmember",
            field=column,
            fix="name another column: --label-column COLUMN, or write 1 for members and 0 for others",
        )
    return _LABELS[key]


def _joined(members: _Part, nonmembers: _Part, *, limit: int | None, seed: int) -> Records:
    """Both sides together, with ids that are unique over both."""
    parts: dict[Side, _Part] = {"members": members, "nonmembers": nonmembers}
    notes = list(dict.fromkeys([*members.notes, *nonmembers.notes]))
    sides = {side: part.records for side, part in parts.items()}
    clashes = {record.id for record in members.records} & {r.id for r in nonmembers.records}
    if clashes:
        files = [PurePath(part.path).name for part in parts.values()]
        names = files if files[0] != files[1] else list(parts)
        for (side, records), name in zip(sides.items(), names, strict=True):
            sides[side] = [replace(record, id=f"{name}/{record.id}") for record in records]
        notes.append(
            f"{len(clashes)} ids occur on both sides: every id now begins with {names[0]}/ or {names[1]}/"
        )
    if limit is not None:
        for at, side in enumerate(parts):
            sides[side] = _sample(sides[side], limit, np.random.default_rng([seed, at]))
    both = (*sides["members"], *sides["nonmembers"])
    _check_groups(both)
    member = np.arange(len(both)) < len(sides["members"])
    member.flags.writeable = False
    return Records(
        records=both,
        membership=Membership(tuple(record.id for record in both), member),
        sources={
            side: Source(part.path, len(part.records), part.sha256) for side, part in parts.items()
        },
        format=members.schema.form.name,
        notes=tuple(notes),
    )


def _sample(records: list[Record], limit: int, rng: np.random.Generator) -> list[Record]:
    """At most `limit` records, drawn without replacement, in their order."""
    if limit >= len(records):
        return records
    return [records[i] for i in np.sort(rng.choice(len(records), limit, replace=False))]
