"""The run folder: everything about one audit, readable without the model, and without any text.

    run.json          what was asked, of whom, on which data, by which versions, in which attempts
    config.yaml       the resolved configuration: `unseen audit … --config FILE` repeats it
    results.json      every estimate
    records.parquet   a row a record: id, membership, scores
    signals/          what was measured, a file a signal
    data/dropped.csv  records left out, by id, and why
    data/cases.csv    which case of a prompt's audit is about which record, by id
    data/sketch.json  how many records fall into each of a few thousand buckets, to know sets again
    apart/            the same of further sets of non-members
    settings/         the same of further settings of a prompt
    report.md         the same for people
    report.html       the same with figures, and the records by score: one file that asks for nothing
    manifest.sha256   a hash of every file

A training leaves instead of the middle ones (`runs/training/train`):

    trained.parquet   a row a record: id, whether and how often it was trained on, hashes, no text
    losses.csv        the loss of every step
    model/, epoch-N/  the model, and with --keep-epochs those before

Log-probabilities of single tokens are kept only where the user asks for it: with them and the
model, the text can be spelt out. Files are written whole and put in place by renaming: none is ever half there.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from unseen.errors import ConfigError, StoreError, visible
from unseen.runs.results import SCHEMA_VERSION, Results
from unseen.signals.base import LentSignal, Observations, Signal, key
from unseen.targets.gguf import UNFINISHED
from unseen.types import TokenStats

if TYPE_CHECKING:
    import pyarrow as pa

# The model's first choices, and where its ranking had the true token, would spell out the text.
_NOT_KEPT = ("argmax", "rank")
_MANIFEST = "manifest.sha256"
LOCK = ".lock"
_CORE = ("run.json", "config.yaml", "results.json", "records.parquet", "report.md", "report.html",
         "trained.parquet", "losses.csv", "learned.json", "borrowed.json")  # fmt: skip
_MODELS = ("model", "epoch-*")


class RunFolder:
    """Reads and writes one run folder.

    Args:
        path: the folder, made where it is missing.
        flag: the option that names it.

    Raises:
        StoreError: where it cannot be made or written.
    """

    def __init__(self, path: Path, *, flag: str = "--run-dir") -> None:
        self.path = path
        self.flag = flag
        self._flags = "--run-dir or --runs" if flag == "--run-dir" else flag

    @classmethod
    def existing(cls, path: Path) -> RunFolder:
        """A run folder that is there.

        Raises:
            ConfigError: where it is not, or has no run in it.
        """
        if not (path / "run.json").is_file():
            near = cls._newest(path.parent)
            raise ConfigError(
                f"{path} is no run folder: it has no run.json",
                fix=f"the newest in {path.parent}: {', '.join(near)}"
                if near
                else "name the folder that an audit or a training has left (--run-dir, --out)",
            )
        return cls(path)

    @staticmethod
    def _newest(folder: Path) -> list[str]:
        """Names of the last audits in a folder, the newest last; of trainings where there are none."""
        dated: dict[bool, list[tuple[float, str]]] = {True: [], False: []}
        for file in folder.glob("*/run.json"):
            with suppress(OSError):
                if not file.parent.is_symlink():
                    found = (file.stat().st_mtime, file.parent.name)
                    dated[(file.parent / "results.json").is_file()].append(found)
        return [name for _, name in sorted(dated[True] or dated[False])[-3:]]

    def read_json(self, name: str) -> dict[str, Any]:
        """A JSON file of the folder.

        Raises:
            StoreError: where it is missing or damaged.
        """
        file = self.path / name
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise StoreError(f"cannot read {file}: {error.strerror}") from error
        except ValueError as error:
            raise StoreError(f"{file} is damaged: {error}", fix="run the audit again") from error
        if not isinstance(content, dict):
            raise StoreError(f"{file} is damaged: it holds no object")
        return content

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """A JSON file, whole or not at all."""
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
        self.write_text(name, text + "\n")

    def write_text(self, name: str, text: str) -> None:
        """A text file, whole or not at all."""
        self._write(name, text.encode())

    def write_rows(self, name: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """A CSV file, whole or not at all; cells are text to spreadsheets and terminals too."""
        out = io.StringIO()
        writer = csv.writer(out)
        writer.writerow(header)
        writer.writerows([plain_cell(cell) for cell in row] for row in rows)
        self.write_text(name, out.getvalue())

    def write_table(
        self, name: str, columns: Mapping[str, Any], metadata: Mapping[str, str] | None = None
    ) -> None:
        """A Parquet file, whole or not at all."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table(dict(columns))
        if metadata:
            table = table.replace_schema_metadata(dict(metadata))
        out = io.BytesIO()
        pq.write_table(table, out, compression="zstd")
        self._write(name, out.getvalue())

    def read_table(self, name: str) -> pa.Table:
        """A Parquet file.

        Raises:
            StoreError: where it is missing or damaged.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        file = self.path / name
        try:
            return pq.read_table(file)
        except OSError as error:
            raise StoreError(f"cannot read {file}: {error}") from error
        except pa.ArrowException as error:
            raise StoreError(f"{file} is damaged: {error}", fix="run the audit again") from error

    def write_observations(self, observations: Observations, *, tokens: bool = False) -> None:
        """What was measured, a file a signal; what would give text away is left out.

        Args:
            observations: of all records.
            tokens: keep values of single tokens too.
        """
        for signal, values in observations.values.items():
            if getattr(signal, "private", False) or isinstance(signal, LentSignal):
                continue
            if signal.gives is TokenStats and not tokens:
                continue
            columns = _columns(signal, observations.ids, values, observations.missing[signal])
            self.write_table(_file_of(signal), columns, {"unseen.signal": key(signal)})

    def read_results(self) -> Results:
        """results.json.

        Raises:
            StoreError: where it is missing, damaged or of another version.
        """
        content = self.read_json("results.json")
        check_version(self.path / "results.json", content)
        try:
            return Results.model_validate(content)
        except ValidationError as error:
            raise StoreError(
                f"{self.path / 'results.json'} does not fit this version of unseen "
                f"({error.error_count()} faults)",
                fix="run the audit again with this version",
            ) from error

    def read_observations(self, signals: Iterable[Signal], ids: Sequence[str]) -> Observations:
        """Measurements of the given records; signals that are not in the folder are left out."""
        values: dict[Signal, dict[str, Any]] = {}
        missing: dict[Signal, dict[str, str]] = {}
        for signal in signals:
            if (self.path / _file_of(signal)).is_file():
                values[signal], missing[signal] = _values(signal, self.read_table(_file_of(signal)))
        return Observations(tuple(ids), values, missing)

    def write_manifest(self) -> None:
        """A hash of every file of the run, for whoever must know that none was changed.

        What a killed process has left half written goes before.
        """
        for left in self.path.rglob(f".*{UNFINISHED}"):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)
        lines = [
            f"{_sha256(file)}  {file.relative_to(self.path).as_posix()}\n"
            for file in sorted(self._files())
        ]
        self.write_text(_MANIFEST, "".join(lines))

    def unsealed(self) -> None:
        """Takes the manifest away, for files are about to change."""
        (self.path / _MANIFEST).unlink(missing_ok=True)

    def altered(self) -> list[str]:
        """What is not as the run left it, a sentence a file; empty where everything is.

        Raises:
            StoreError: where there is no manifest to compare with, or it cannot be read.
        """
        file = self.path / _MANIFEST
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise StoreError(
                f"{self.path} has no readable {_MANIFEST}: the run did not end, or it was changed",
                fix="run the command that began it again: what was measured is kept",
            ) from error
        expected = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
        found = {file.relative_to(self.path).as_posix(): file for file in self._files()}
        faults = [f"{name} is missing" for name in sorted(set(expected) - set(found))]
        faults += [f"{name} was added" for name in sorted(set(found) - set(expected))]
        faults += [
            f"{name} was changed"
            for name in sorted(set(found) & set(expected))
            if _sha256(found[name]) != expected[name]
        ]
        return faults

    def foreign(self) -> list[str]:
        """Files that no run writes."""
        own = {*self._files(), self.path / _MANIFEST, self.path / LOCK}
        found = (file for file in self.path.rglob("*") if file.is_file() and file not in own)
        return sorted(file.relative_to(self.path).as_posix() for file in found)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps every other process out of the folder; a lock ends with the process that has it.

        Raises:
            ConfigError: where another process is working in it.
        """
        from filelock import FileLock, Timeout

        file = self.path / LOCK
        lock = FileLock(file, blocking=False)
        with writing(file, self._flags):
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire()
            except Timeout as error:
                raise ConfigError(
                    f"another process is working in {self.path}",
                    fix=f"wait until it has ended, or name another folder: {self.flag} DIR",
                ) from error
        try:
            yield
        finally:
            lock.release()

    def _files(self) -> Iterator[Path]:
        yield from (self.path / name for name in _CORE if (self.path / name).is_file())
        for folder in ("signals", "data", "apart", "settings"):
            yield from (self.path / folder).glob("*.*")
        for pattern in _MODELS:
            for model in self.path.glob(pattern):
                yield from (file for file in model.rglob("*") if file.is_file())

    def _write(self, name: str, content: bytes) -> None:
        file = self.path / name
        with writing(file, self._flags):
            file.parent.mkdir(parents=True, exist_ok=True)
            handle, draft = tempfile.mkstemp(
                dir=file.parent, prefix=f".{file.name}.", suffix=UNFINISHED
            )
            try:
                with os.fdopen(handle, "wb") as stream:
                    stream.write(content)
                Path(draft).chmod(0o644)
                Path(draft).replace(file)
            except BaseException:
                Path(draft).unlink(missing_ok=True)
                raise


@contextmanager
def writing(file: Path, flags: str = "--run-dir or --runs") -> Iterator[None]:
    """Says what cannot be written, and why, instead of a bare OSError; `flags` choose the place."""
    try:
        yield
    except OSError as error:
        full = error.errno == 28
        raise StoreError(
            f"cannot write {file}: {'the disk is full' if full else error.strerror}",
            fix="free some space and run the same command: what was measured is kept"
            if full
            else f"choose another folder with {flags}",
        ) from error


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_version(file: Path, content: Mapping[str, Any]) -> None:
    """Refuses a file of another major version of the schema.

    Raises:
        StoreError: with both versions.
    """
    version = str(content.get("schema_version", ""))
    if version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        raise StoreError(
            f"{file} has schema {version or 'of no version'}, this version of unseen reads "
            f"{SCHEMA_VERSION}",
            fix="pip install --upgrade unseen",
        )


def find_unfinished(runs: Path, plan: str) -> Path | None:
    """The newest folder in which the same plan was begun and not finished."""
    for file in sorted(runs.glob("*/run.json"), reverse=True):
        if file.parent.is_symlink():  # `latest` is another name of a folder in this list
            continue
        with suppress(OSError, ValueError):
            about = json.loads(file.read_text(encoding="utf-8"))
            ended = about.get("status") == "complete" and (file.parent / _MANIFEST).is_file()
            if about.get("plan") == plan and not ended:
                return file.parent
    return None


def point_latest(folder: Path) -> None:
    """Lets `latest`, beside the folder, point to it; where links cannot be made, nothing happens."""
    link = folder.parent / "latest"
    with suppress(OSError):
        if link.is_symlink() or not link.exists():
            draft = folder.parent / f".latest-{os.getpid()}"
            draft.unlink(missing_ok=True)
            draft.symlink_to(folder.name)
            draft.replace(link)


def plain_cell(text: str) -> str:
    r"""A cell that no spreadsheet computes and that steers no terminal.

    >>> plain_cell("=1+1"), plain_cell("a\x1b")
    ("'=1+1", 'a\\x1b')
    """
    shown = visible(text, whole=True)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@")) else shown


def slug(name: str, length: int = 40) -> str:
    """A name that any file system takes.

    >>> slug("./out/My model")
    'My-model'
    """
    last = name.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9.]+", "-", last).strip("-.")[:length] or "model"


def _file_of(signal: Signal) -> str:
    digest = hashlib.blake2b(key(signal).encode(), digest_size=4).hexdigest()
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(signal).__name__).lower()
    return f"signals/{name}-{signal.of}-{digest}.parquet"


def _columns(
    signal: Signal, ids: Sequence[str], values: Mapping[str, Any], missing: Mapping[str, str]
) -> dict[str, Any]:
    names = [f.name for f in dataclasses.fields(signal.gives) if f.name not in _NOT_KEPT]
    columns: dict[str, Any] = {"id": list(ids)}
    for name in names:
        columns[name] = [getattr(values[id_], name) if id_ in values else None for id_ in ids]
    columns["reason"] = [missing.get(id_) for id_ in ids]
    return columns


def _values(signal: Signal, table: pa.Table) -> tuple[dict[str, Any], dict[str, str]]:
    names = [f.name for f in dataclasses.fields(signal.gives) if f.name in table.column_names]
    values: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for row in range(table.num_rows):
        id_, reason = table["id"][row].as_py(), table["reason"][row].as_py()
        if reason is not None:
            missing[id_] = reason
        else:
            values[id_] = signal.gives(**{name: _unboxed(table[name][row]) for name in names})
    return values, missing


def _unboxed(scalar: Any) -> Any:
    """A list as an array of the type that was written, anything else as itself."""
    parts = getattr(scalar, "values", None)
    return scalar.as_py() if parts is None else parts.to_numpy(zero_copy_only=False)
