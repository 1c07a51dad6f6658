"""The run folder: everything about one audit, readable without the model, and without any text.

    run.json          what was asked, of whom, on which data, by which versions, in which attempts
    config.yaml       the resolved configuration: `unseen audit finetune --config FILE` repeats it
    results.json      every estimate
    records.parquet   a row a record: id, membership, scores
    signals/          what was measured, a file a signal
    data/dropped.csv  records left out, by id, and why
    report.md         the same for people
    manifest.sha256   a hash of every file

Files are written whole and put in place by renaming: none is ever half there.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unseen.errors import ConfigError, StoreError
from unseen.signals.base import Observations, Signal, TextSignal, key

if TYPE_CHECKING:
    import pyarrow as pa

# The model's first choices, and where its ranking had the true token, would spell out the text.
_NOT_KEPT = ("argmax", "rank")
_CORE = ("run.json", "config.yaml", "results.json", "records.parquet", "report.md")


class RunFolder:
    """Reads and writes one run folder.

    Args:
        path: the folder, made where it is missing.

    Raises:
        StoreError: where it cannot be made or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def existing(cls, path: Path) -> RunFolder:
        """A run folder that is there.

        Raises:
            ConfigError: where it is not, or has no run in it.
        """
        if not (path / "run.json").is_file():
            near = sorted(p.parent.name for p in path.parent.glob("*/run.json"))[-3:]
            raise ConfigError(
                f"{path} is no run folder: it has no run.json",
                fix=f"the newest in {path.parent}: {', '.join(near)}" if near else None,
            )
        return cls(path)

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
        """A CSV file, whole or not at all."""
        out = io.StringIO()
        writer = csv.writer(out)
        writer.writerow(header)
        writer.writerows(rows)
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

    def write_observations(self, observations: Observations) -> None:
        """What was measured, a file a signal; signals that would give text away are left out."""
        for signal, values in observations.values.items():
            if isinstance(signal, TextSignal) and signal.private:
                continue
            columns = _columns(signal, observations.ids, values, observations.missing[signal])
            self.write_table(_file_of(signal), columns, {"unseen.signal": key(signal)})

    def read_observations(self, signals: Iterable[Signal], ids: Sequence[str]) -> Observations:
        """Measurements of the given records; signals that are not in the folder are left out."""
        values: dict[Signal, dict[str, Any]] = {}
        missing: dict[Signal, dict[str, str]] = {}
        for signal in signals:
            if (self.path / _file_of(signal)).is_file():
                values[signal], missing[signal] = _values(signal, self.read_table(_file_of(signal)))
        return Observations(tuple(ids), values, missing)

    def write_manifest(self) -> None:
        """A hash of every file of the run, for whoever must know that none was changed."""
        lines = []
        for file in sorted(self._files()):
            with file.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            lines.append(f"{digest}  {file.relative_to(self.path).as_posix()}\n")
        self.write_text("manifest.sha256", "".join(lines))

    def _files(self) -> Iterator[Path]:
        yield from (self.path / name for name in _CORE if (self.path / name).is_file())
        for folder in ("signals", "data"):
            yield from (self.path / folder).glob("*.*")

    def _write(self, name: str, content: bytes) -> None:
        file = self.path / name
        with writing(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            handle, draft = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
            try:
                with os.fdopen(handle, "wb") as stream:
                    stream.write(content)
                Path(draft).chmod(0o644)
                Path(draft).replace(file)
            except BaseException:
                Path(draft).unlink(missing_ok=True)
                raise


@contextmanager
def writing(file: Path) -> Iterator[None]:
    """Says what cannot be written, and why, instead of a bare OSError."""
    try:
        yield
    except OSError as error:
        full = error.errno == 28
        raise StoreError(
            f"cannot write {file}: {'the disk is full' if full else error.strerror}",
            fix="free some space and run the same command: what was measured is kept"
            if full
            else "choose another folder with --run-dir or --runs",
        ) from error


def find_unfinished(runs: Path, plan: str) -> Path | None:
    """The newest folder in which the same plan was begun and not finished."""
    for file in sorted(runs.glob("*/run.json"), reverse=True):
        if file.parent.is_symlink():  # `latest` is another name of a folder in this list
            continue
        with suppress(OSError, ValueError):
            about = json.loads(file.read_text(encoding="utf-8"))
            if about.get("plan") == plan and about.get("status") != "complete":
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
