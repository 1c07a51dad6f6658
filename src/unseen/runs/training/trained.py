"""A train run that has ended: which records it was trained on and which were held out.

The folder knows ids and keyed hashes, and no text. Records are read again from where they came from,
and each is compared with its hash.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from unseen.data.records import Records, read_source
from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import ConfigError, DataError, StoreError, UnscorableError
from unseen.runs.folder import RunFolder, check_version
from unseen.runs.training.config import TrainRun

if TYPE_CHECKING:
    from unseen.types import Encoded, Record

MANIFEST = "trained.parquet"
MODEL = "model"
TRAIN, SHADOWS = "train", "shadows"  # scenarios
PARTITION = "partition"
LAYOUT = ("template", "loss_on", "truncation", "max_length", "end_of_turn")
"""Choices of the template."""
_TOLD = 3  # ids in a message


@dataclass(frozen=True)
class Row:
    """What a train run keeps of one record.

    Attributes:
        id: the record's.
        trained: whether it was trained on; else it was held out.
        times: how often it was seen; None where private steps drew it at random.
        partition: the part of an epoch that it stands in, from 0; None where there is one.
        text: keyed hash of what it says.
        tokens: keyed hash of its token ids and of which of them count; None where it has none.
        reason: why it has none.
    """

    id: str
    trained: bool
    times: int | None
    partition: int | None
    text: str
    tokens: str | None
    reason: str | None = None


def digest_of_text(record: Record, key: bytes) -> str:
    """Keyed hash of who says what in a record; its id has no part in it."""
    turns = [[turn.role, turn.content] for turn in record.turns]
    return _keyed(json.dumps(turns).encode(), key)


def digest_of_tokens(encoded: Encoded, key: bytes) -> str:
    """Keyed hash of token ids, and of which of them count."""
    ids = np.asarray(encoded.ids, dtype="<i8").tobytes()
    return _keyed(ids + b"|" + np.packbits(encoded.scored).tobytes(), key)


def _keyed(content: bytes, key: bytes) -> str:
    return hashlib.blake2b(content, key=key, digest_size=16).hexdigest()


def encoded_or_reason(encoder: RecordEncoder, record: Record) -> tuple[Encoded | None, str | None]:
    """A record's token ids, or why it has none."""
    try:
        return encoder.encode(record), None
    except UnscorableError as error:
        return None, error.problem


def noted(name: str, folder: Path) -> dict[str, str | None]:
    """A file or model as the user wrote it and, where it is here, as seen from a run folder."""
    place = Path(name).expanduser()
    beside = os.path.relpath(place.resolve(), folder.resolve()) if place.exists() else None
    return {"name": name, "from_here": beside}


def runs_in(path: Path) -> list[TrainedRun]:
    """The train run in a folder, or all of them where it holds shadow models.

    Raises:
        ConfigError: where there is none.
        StoreError: where one is unfinished, changed or damaged.
    """
    about = RunFolder.existing(path).read_json("run.json")
    if about.get("scenario") != SHADOWS:
        return [TrainedRun(path)]
    _check_ended(about, f"the training of the shadows {path}")
    return [TrainedRun(file.parent) for file in sorted(path.glob("shadow-*/run.json"))]


def runs_named(name: str) -> list[TrainedRun]:
    """The train runs that a folder holds, as `runs_in`; none where it is no run but a model.

    Raises:
        StoreError: where one is unfinished, changed or damaged.
        ConfigError: where it is a run of another kind.
    """
    folder = Path(name).expanduser()
    return runs_in(folder) if (folder / "run.json").is_file() else []


class TrainedRun:
    """Reads a train run.

    Args:
        path: its folder.

    Raises:
        ConfigError: where there is no train run.
        StoreError: where it is unfinished, changed or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = RunFolder.existing(path)
        self.about = self.folder.read_json("run.json")
        self._refuse_others()
        check_version(path / "run.json", self.about)
        _check_ended(self.about, f"the train run {path}")
        faults = self.folder.altered()
        if faults:
            raise StoreError(
                f"{path} is not as the training left it: {'; '.join(faults[:3])}",
                fix=f"unseen verify {path} lists every file",
            )
        try:
            self.config = TrainRun(**self.about["config"])
            self.key = bytes.fromhex(self.about["key"])
            self.base: dict[str, Any] = dict(self.about["base"])
        except (KeyError, TypeError, ValueError, ValidationError) as error:
            raise StoreError(f"{path / 'run.json'} is damaged: it names no training") from error

    def _refuse_others(self) -> None:
        scenario = self.about.get("scenario")
        if scenario == TRAIN:
            return
        fix = "give the folder that unseen train made (--out)"
        if scenario == SHADOWS:
            first = next(iter(sorted(self.path.glob("shadow-*/run.json"))), None)
            if first is not None:
                fix = f"name one of its models: {first.parent}"
        raise ConfigError(f"{self.path} is no run of one training", fix=fix)

    @property
    def model(self) -> Path:
        """The folder of the trained model."""
        return self.path / MODEL

    def place(self, kept: Mapping[str, str | None]) -> str:
        """Where something is now that the run has noted down: as seen from its folder, or as written."""
        beside = kept.get("from_here")
        if beside is not None and (self.path / beside).exists():
            found = os.path.normpath(self.path / beside)
            return found if os.sep in found else os.path.join(os.curdir, found)  # noqa: PTH118 (no keyword)
        return kept["name"] or ""

    def file(self, option: str) -> str | None:
        """Where the file of an option is now, or None where it was not given."""
        kept = self.about.get("files", {}).get(option)
        return None if kept is None else self.place(kept)

    @property
    def layout(self) -> Layout:
        """How records became token ids."""
        return Layout(**{name: getattr(self.config, name) for name in LAYOUT})

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """What is kept of every record."""
        table = self.folder.read_table(MANIFEST)
        try:
            return tuple(Row(**row) for row in table.to_pylist())
        except TypeError as error:
            raise StoreError(f"{self.path / MANIFEST} is damaged: other columns") from error

    @cached_property
    def _learned(self) -> frozenset[str]:
        return frozenset(row.text for row in self.rows if row.trained)

    def has_learned(self, record: Record) -> bool:
        """Whether a record with just this text was trained on."""
        return digest_of_text(record, self.key) in self._learned

    @property
    def n_trained(self) -> int:
        """How many records it was trained on."""
        return sum(row.trained for row in self.rows)

    def records(
        self,
        *,
        data: str | None = None,
        members: str | None = None,
        nonmembers: str | None = None,
        cluster_by: str | None = None,
        slice_by: Sequence[str] = (),
        held_out: bool = True,
    ) -> Records:
        """Reads the records again, and compares each with what was trained on.

        Args:
            data: where the file is now, if it was moved; the same for the others.
            members: see data.
            nonmembers: see data; where the run held nothing out, any file.
            cluster_by: column of clusters, if another than the run's.
            slice_by: columns for results by group, if others than the run's.
            held_out: whether non-members are needed.

        Returns:
            Members are what was trained on, non-members what was held out.

        Raises:
            ConfigError: where there are no non-members.
            DataError: where a record is not there any more, or says something else.
        """
        config = self.config
        options: dict[str, Any] = {
            **config.reading,
            "cluster_by": cluster_by or config.cluster_by,
            "slice_by": tuple(slice_by) or config.slice_by,
        }
        if config.data is not None:
            return self._of_one_file(data or self.file("data") or "", options)
        paths = members or self.file("members") or "", nonmembers or self.file("nonmembers")
        if paths[1] is None:
            if not held_out:
                return self._of_one_file(paths[0], options, flag="--members")
            raise ConfigError(
                f"{self.path} held no records out",
                fix="name some of the same source: --nonmembers FILE",
            )
        found = Records.from_files(paths[0], paths[1], **options)
        sides = [(True, found.members, paths[0], "--members")]
        if config.nonmembers is not None:
            sides.append((False, found.nonmembers, paths[1], "--nonmembers"))
        for trained, records, path, flag in sides:
            rows = [row for row in self.rows if row.trained is trained]
            self._check(records, rows, path, flag)
        return found

    def _of_one_file(self, path: str, options: dict[str, Any], flag: str = "--data") -> Records:
        """Both sides of one file; what a record says decides, for files are renamed and sorted."""
        found = read_source(path, **options)
        self._check(found.records, self.rows, path, flag)
        trained = {row.text: row.trained for row in self.rows}
        sides = [trained.get(digest_of_text(record, self.key)) for record in found.records]
        return found.split(
            np.array([side is True for side in sides], dtype=bool),
            np.array([side is False for side in sides], dtype=bool),
        )

    def _check(self, records: Sequence[Record], rows: Iterable[Row], path: str, flag: str) -> None:
        """Everything that the run knows is still said by some record."""
        here = {digest_of_text(record, self.key) for record in records}
        ids = {record.id for record in records}
        changed = [row.id for row in rows if row.text not in here and row.id in ids]
        gone = [row.id for row in rows if row.text not in here and row.id not in ids]
        said = [
            f"{len(those)} of its records {what} ({_some(those)})"
            for those, what in ((changed, "say something else"), (gone, "are not there"))
            if those
        ]
        if said:
            raise DataError(
                f"is not the file that {self.path} was trained with: {'; '.join(said)}",
                path=path,
                fix=f"give that file: {flag} FILE",
            )

    def with_partitions(self, records: Records) -> Records:
        """The records, with the part of an epoch that each stands in as a slice, if there are parts."""
        if self.config.partitions == 1:
            return records
        by_id = {(row.id, row.text): row.partition for row in self.rows}
        by_text = {row.text: row.partition for row in self.rows}
        width = len(str(self.config.partitions))

        def marked(record: Record) -> Record:
            text = digest_of_text(record, self.key)
            at = by_id.get((record.id, text), by_text.get(text))
            if at is None:
                return record
            value = f"{at + 1:0{width}d} of {self.config.partitions}"
            return replace(record, slices={**record.slices, PARTITION: value})

        return replace(records, records=tuple(map(marked, records.records)))

    def check_tokens(self, encoder: RecordEncoder, records: Sequence[Record]) -> None:
        """Compares the token ids that are scored with those that were learned, record by record.

        Raises:
            ConfigError: where one differs.
        """
        if encoder.layout.end_of_turn != self.layout.end_of_turn:
            tokenizer, limit = encoder.tokenizer, encoder.max_length
            encoder = RecordEncoder(tokenizer, self.layout, limit=limit)
        known = {row.text: row.tokens for row in self.rows}
        others = []
        for record in records:
            text = digest_of_text(record, self.key)
            if text not in known:
                continue
            encoded, _ = encoded_or_reason(encoder, record)
            now = None if encoded is None else digest_of_tokens(encoded, self.key)
            if now != known[text]:
                others.append(record.id)
        if others:
            raise ConfigError(
                f"{len(others)} of {len(records)} records have other tokens now than {self.path} was "
                f"trained on ({_some(others)}): the "
                "tokenizer, its template or the library that renders it has changed",
                fix=f"compare the packages with those in {self.path / 'run.json'}, or train again",
            )


def _check_ended(about: Mapping[str, Any], what: str) -> None:
    if about.get("status") != "complete":
        raise StoreError(
            f"{what} has not ended", fix="run the command that began it again: it continues"
        )


def _some(ids: Sequence[str]) -> str:
    return ", ".join(ids[:_TOLD]) + (", …" if len(ids) > _TOLD else "")
