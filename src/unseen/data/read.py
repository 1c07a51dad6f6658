"""Files, folders and hub data sets become rows: column -> value, and where each stands.

JSONL is read by an own line reader: schema inference breaks on ragged conversations, and an error
has to name its line. Nothing here keeps, logs or prints what a record says.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import json
import os
import shlex
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from io import BufferedReader
from pathlib import Path, PurePath
from typing import Any

from unseen.data.formats import Row, kind_of, listed, shown
from unseen.errors import ConfigError, DataError, UnknownNameError, need

HUB = "hf://datasets/"

_LONGEST_CELL = 2**31 - 1  # the standard library stops at 131,072 characters

# --- sources to rows ---------------------------------------------------------------------------


def read_rows(source: str | os.PathLike[str]) -> Iterator[Row]:
    """Streams the rows of a file, of a folder written by `datasets`, or of a hub data set.

    Args:
        source: `x.jsonl`, `x.json`, `x.csv`, `x.tsv`, `x.parquet`, `FOLDER#split` or
            `hf://datasets/ORG/NAME[@REVISION][/CONFIG]#split`.

    Raises:
        DataError: where the source or one of its lines cannot be read.
        MissingExtraError: where a data set needs the package `datasets`.
    """
    name = name_of_source(source)
    if name.startswith(HUB):
        return _hub_rows(name)
    path = Path(name).expanduser()
    try:
        if _is_folder(path):
            return _folder_rows(name)
        _check_file(path, name)
    except OSError as error:
        raise _unreadable(name, error) from error
    return _READERS[path.suffix.lower()](path, name)


def name_of_source(source: str | os.PathLike[str]) -> str:
    """The source as the user wrote it."""
    name = os.fspath(source) if isinstance(source, str | os.PathLike) else None
    if not isinstance(name, str) or not name:
        raise ConfigError(
            f"got {kind_of(source)}, expected the path of a file of records",
            fix="for texts in Python: Records.from_texts(members, nonmembers)",
        )
    return name


def _is_folder(path: Path) -> bool:
    """Whether the path names a data set in a folder: FOLDER, or FOLDER#split."""
    if path.exists():
        return path.is_dir()
    folder, mark, _ = str(path).rpartition("#")
    return bool(mark) and Path(folder).is_dir()


def _check_file(path: Path, name: str) -> None:
    """Refuses what is no readable file of a known kind, and says what was meant."""
    if not path.exists():
        raise DataError("no such file", path=name, fix=_neighbour(path))
    if not path.is_file():
        raise DataError(
            "is no regular file",
            path=name,
            fix="write the records to a file first: cat FIFO > records.jsonl",
        )
    if path.suffix.lower() not in _READERS:
        quoted = shlex.quote(name)
        if path.suffix.lower() in {".gz", ".zst", ".bz2", ".xz"}:
            tool = {".gz": "gunzip", ".zst": "unzstd", ".bz2": "bunzip2", ".xz": "unxz"}
            fix = f"decompress it first: {tool[path.suffix.lower()]} -k {quoted}"
        else:
            target = shlex.quote(str(PurePath(name).with_suffix(".jsonl")))
            fix = f"if it has one JSON object a line: mv {quoted} {target}"
        known = ", ".join(_READERS)
        raise DataError(f"has an unknown ending, expected one of {known}", path=name, fix=fix)
    if path.stat().st_size == 0:
        raise DataError("is an empty file", path=name, fix=_EMPTY[path.suffix.lower()])


def _neighbour(path: Path) -> str:
    """The file that a wrong path most likely means."""
    folder = path.parent
    if not folder.is_dir():
        return f"the folder {folder} does not exist either; the current one is {Path.cwd()}"
    files = sorted(f.name for f in folder.iterdir() if f.suffix.lower() in _READERS)
    close = difflib.get_close_matches(path.name, files, n=1, cutoff=0.5)
    if close:
        return f"did you mean {shlex.quote(str(folder / close[0]))}?"
    if files:
        return f"in {folder} there are {listed(files)}"
    return f"in {folder} there is no {', '.join(_READERS)} file"


def open_file(path: Path, name: str) -> BufferedReader:
    """The file, opened; a `DataError` where it cannot be."""
    try:
        return path.open("rb")
    except OSError as error:
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: OSError) -> DataError:
    return DataError(
        f"cannot be read: {error.strerror or type(error).__name__}",
        path=shown(name, 200),
        fix=f"check the path and your rights: ls -l {shlex.quote(shown(name, 200))}",
    )


def _lines(path: Path, name: str) -> Iterator[tuple[int, str]]:
    """Numbered lines with their ends, decoded one by one; without the byte order mark."""
    quoted, new = shlex.quote(name), shlex.quote(f"utf8-{PurePath(name).name}")
    with open_file(path, name) as stream:
        for number, raw in enumerate(stream, start=1):
            if number == 1:
                if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    fix = f"iconv -f UTF-16 -t UTF-8 {quoted} > {new}"
                    raise DataError("is UTF-16, expected UTF-8", path=name, line=1, fix=fix)
                raw = raw.removeprefix(codecs.BOM_UTF8)  # noqa: PLW2901
            if b"\0" in raw:
                fix = f"tr -d '\\000' < {quoted} > {new}"
                raise DataError("holds a NUL byte", path=name, line=number, fix=fix)
            try:
                yield number, raw.decode()
            except UnicodeDecodeError as error:
                raise DataError(
                    f"is no valid UTF-8 (byte {error.start + 1} of the line)",
                    path=name,
                    line=number,
                    fix=f"iconv -f WINDOWS-1252 -t UTF-8 {quoted} > {new}",
                ) from None


def _jsonl_rows(path: Path, name: str) -> Iterator[Row]:
    for number, line in _lines(path, name):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(
                f"is no valid JSON: {_reason(error)} (column {error.colno})",
                path=name,
                line=number,
                fix=_jsonl_fix(name, number, line),
            ) from None
        except (ValueError, RecursionError):
            raise DataError(
                "is no usable JSON: nested too deep, or a number too long",
                path=name,
                line=number,
                fix=f"sed -i.bak '{number}d' {shlex.quote(name)}",
            ) from None
        if not isinstance(values, dict):
            raise DataError(
                f"is {kind_of(values)}, expected an object",
                path=name,
                line=number,
                fix=_jsonl_fix(name, number, line),
            )
        yield Row(values, name, number)


def _reason(error: json.JSONDecodeError) -> str:
    """What is wrong, in the words of the standard library, without any character of the text."""
    return error.msg.partition(":")[0].lower()


def _jsonl_fix(name: str, number: int, line: str) -> str:
    if line.lstrip().startswith("[") and number == 1:
        target = PurePath(name).with_suffix(".json")
        return f"if it is one JSON list: mv {shlex.quote(name)} {shlex.quote(str(target))}"
    if line.lstrip().startswith("{'"):
        return "JSON needs double quotes: write every line with json.dumps(record)"
    return f"look at it: sed -n '{number}p' {shlex.quote(name)} | python -m json.tool"


def _json_rows(path: Path, name: str) -> Iterator[Row]:
    """The items of one JSON list, decoded one by one."""
    text = "".join(line for _, line in _lines(path, name))
    decoder, at, number = json.JSONDecoder(), _past_space(text, 0), 0
    if not text[at:]:
        raise DataError("holds no records", path=name, fix='write [{"text": "..."}, ...]')
    if text[at] != "[":
        raise DataError("is no list of records", path=name, line=1, fix=_json_fix(text, name))
    at = _past_space(text, at + 1)
    more = text[at : at + 1] != "]"
    while more:
        number += 1
        try:
            values, at = decoder.raw_decode(text, at)
            at = _past_space(text, at)
            if text[at : at + 1] not in (",", "]"):
                raise json.JSONDecodeError("Expecting ',' delimiter", text, at)  # noqa: TRY301
        except json.JSONDecodeError as error:
            raise DataError(
                f"is no valid JSON: {_reason(error)} (column {error.colno}, in record {number})",
                path=name,
                line=error.lineno,
                fix=f"look at it: python -m json.tool {shlex.quote(name)}",
            ) from None
        except (ValueError, RecursionError):
            raise DataError(
                f"is no usable JSON in record {number}: nested too deep, or a number too long",
                path=name,
                fix=f"remove record {number}",
            ) from None
        row = Row(values, name, number, "record")
        if not isinstance(values, dict):
            raise row.fault(
                f"is {kind_of(values)}, expected an object", fix='write [{"text": "..."}, ...]'
            )
        yield row
        more = text[at] == ","
        if more:
            at = _past_space(text, at + 1)
    if text[_past_space(text, at + 1) :]:
        raise DataError(
            "goes on after the end of the list",
            path=name,
            line=text.count("\n", 0, at) + 1,
            fix=f"look at it: python -m json.tool {shlex.quote(name)}",
        )


def _past_space(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t", "\n", "\r"):
        at += 1
    return at


def _json_fix(text: str, name: str) -> str:
    """What to do with a .json file that is no list."""
    quoted, target = shlex.quote(name), shlex.quote(str(PurePath(name).with_suffix(".jsonl")))
    with suppress(ValueError, RecursionError):
        whole = json.loads(text)
        if isinstance(whole, dict):
            for key, value in whole.items():
                if isinstance(value, list) and shown(key) == key:
                    inner = shlex.quote(f".[{json.dumps(key)}][]")
                    return f"take the list out: jq -c {inner} {quoted} > {target}"
    return f"if it has one JSON object a line: mv {quoted} {target}"


def _csv_rows(path: Path, name: str) -> Iterator[Row]:
    """Rows under a header line; separated by commas, or by what the header has instead."""
    at = 0

    def lines() -> Iterator[str]:
        nonlocal at
        for at, line in _lines(path, name):  # noqa: B007
            yield line

    stream = lines()
    first = next(stream, "")
    marks = "\t" if path.suffix.lower() == ".tsv" else ",\t;"
    mark = next((mark for mark in marks if mark in first), marks[0])
    limit = csv.field_size_limit(_LONGEST_CELL)
    try:
        reader = csv.reader(_again(first, stream), delimiter=mark, strict=True)
        columns: list[str] | None = None
        found = False
        while True:
            start = reader.line_num + 1
            try:
                cells = next(reader, None)
            except csv.Error as error:
                raise _csv_fault(error, name, start, at) from None
            if cells is None:
                if not found:
                    raise DataError("holds no records", path=name, fix=_EMPTY[".csv"])
                return
            if not cells:
                continue
            if columns is None:
                columns = _header(cells, name, start)
                continue
            if len(cells) != len(columns):
                raise DataError(
                    f"has {len(cells)} columns, expected {len(columns)} ({listed(columns)})",
                    path=name,
                    line=start,
                    fix='put a text with commas, quotes or line breaks in quotes: "She said ""yes"", twice"',
                )
            found = True
            yield Row(dict(zip(columns, cells, strict=True)), name, start)
    finally:
        csv.field_size_limit(limit)


def _again(first: str, rest: Iterator[str]) -> Iterator[str]:
    if first:
        yield first
    yield from rest


def _header(cells: list[str], name: str, line: int) -> list[str]:
    columns = [cell.strip() for cell in cells]
    twice = next((c for i, c in enumerate(columns) if c in columns[:i]), None)
    if twice is not None:
        raise DataError(
            f"has the column {shown(twice)!r} twice",
            path=name,
            line=line,
            fix="give every column a name of its own in the header line",
        )
    return columns


def _csv_fault(error: csv.Error, name: str, start: int, end: int) -> DataError:
    if "end of data" in str(error):
        problem = f"opens a quote that is not closed by the end of the file (line {end})"
    elif "new-line" in str(error):
        problem = "has a carriage return outside of quotes"
    else:
        problem = f"has text right after a closing quote (up to line {end})"
    return DataError(
        problem,
        path=name,
        line=start,
        fix='put a text with commas, quotes or line breaks in quotes: "She said ""yes"", twice"',
    )


def _parquet_rows(path: Path, name: str) -> Iterator[Row]:
    import pyarrow as pa
    from pyarrow import parquet

    with open_file(path, name) as stream:
        try:
            with parquet.ParquetFile(stream) as file:
                if not file.metadata.num_rows:
                    raise DataError("holds no records", path=name, fix=_EMPTY[".parquet"])
                yield from _table_rows(file.iter_batches(batch_size=1024), name)
        except (pa.ArrowException, OSError) as error:
            raise DataError(
                "is no readable Parquet file (damaged, or cut off)",
                path=name,
                fix="write it again, for example with DataFrame.to_parquet",
            ) from error


def _table_rows(batches: Iterable[Any], name: str) -> Iterator[Row]:
    """Rows of Arrow record batches or tables; dates and times become strings."""
    import pyarrow as pa

    number = 0
    for batch in batches:
        names = batch.schema.names
        if len(set(names)) < len(names):
            twice = next(n for i, n in enumerate(names) if n in names[:i])
            raise DataError(
                f"has the column {shown(twice)!r} twice", path=name, fix="rename one of them"
            )
        columns = [
            column.cast(pa.string()) if pa.types.is_temporal(column.type) else column
            for column in batch.columns
        ]
        for values in zip(*(column.to_pylist() for column in columns), strict=True):
            number += 1
            yield Row(dict(zip(names, values, strict=True)), name, number, "row")


# --- data sets ---------------------------------------------------------------------------------


def _folder_rows(name: str) -> Iterator[Row]:
    """A data set in a folder: by `save_to_disk`, or a folder of Parquet, JSONL or CSV files."""
    path = Path(name).expanduser()
    head, _, tail = str(path).rpartition("#")
    folder, split = (path, "") if path.is_dir() else (Path(head), tail)
    saved = any((folder / file).is_file() for file in ("state.json", "dataset_dict.json"))
    if not split and not (folder / "state.json").is_file():
        files = sorted(file.name for file in folder.iterdir() if file.suffix.lower() in _READERS)
        fixes = [str(Path(name) / files[0])] if files else []
        fixes.append(f"{name.rstrip('/')}#train")
        raise DataError(
            "is a folder, expected a file",
            path=name,
            fix=f"name a file or a split: {' or '.join(map(shlex.quote, fixes))}",
        )
    datasets = need("datasets", "hf")
    # The cache is gone after reading: what a folder says is not copied to the user's own cache.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        bars = datasets.is_progress_bar_enabled()
        datasets.disable_progress_bars()
        try:
            if saved:
                data = _one_split(datasets.load_from_disk(str(folder)), split, name)
            else:
                data = datasets.load_dataset(str(folder), split=split, cache_dir=cache)
        except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
            raise _unloaded(name, str(folder), None, split, error) from error
        finally:
            if bars:
                datasets.enable_progress_bars()
        yield from _dataset_rows(data, name)
        del data


def _one_split(data: Any, split: str, name: str) -> Any:
    if isinstance(data, dict):
        if split not in data:
            raise UnknownNameError(f"split of {name}", split, data)
        return data[split]
    if split and data.split is not None and str(data.split) != split:
        raise UnknownNameError(f"split of {name}", split, [str(data.split)])
    return data


def _hub_rows(name: str) -> Iterator[Row]:
    """A data set of the hub, or of the hub's cache where there is no network."""
    repository, revision, config, split = _hub_parts(name)
    datasets = need("datasets", "hf")
    try:
        data = datasets.load_dataset(repository, config, split=split, revision=revision)
    except Exception as error:
        raise _unloaded(name, repository, config, split, error) from error
    yield from _dataset_rows(data, name)


def _dataset_rows(data: Any, name: str) -> Iterator[Row]:
    return _table_rows(data.with_format("arrow").iter(batch_size=1024), name)


def _hub_parts(name: str) -> tuple[str, str | None, str | None, str]:
    """ORG/NAME[@REVISION][/CONFIG]#SPLIT as repository, revision, config and split."""
    place, _, split = name.removeprefix(HUB).partition("#")
    parts = place.strip("/").split("/")
    if not split or not all(parts) or len(parts) > 3:
        whole = (
            f"{HUB}{'/'.join(part for part in parts[:3] if part) or 'ORG/NAME'}#{split or 'train'}"
        )
        raise ConfigError(
            f"{name}: expected {HUB}ORG/NAME[/CONFIG]#SPLIT",
            fix=f"for example {shlex.quote(whole)}",
        )
    repository, _, revision = "/".join(parts[:2]).partition("@")
    return repository, revision or None, parts[2] if len(parts) > 2 else None, split


def _unloaded(
    name: str, repository: str, config: str | None, split: str, error: Exception
) -> DataError | UnknownNameError:
    """One message for whatever the loading of a data set ran into."""
    datasets = need("datasets", "hf")
    if isinstance(error, ConnectionError):
        return DataError(
            "the hub cannot be reached, and the data set is not in the local cache",
            path=name,
            fix=f"fetch it where there is a network: hf download {shlex.quote(repository)} --repo-type dataset",
        )
    if isinstance(error, datasets.exceptions.DatasetNotFoundError):
        return DataError(
            "no such data set, or it is private or gated", path=name, fix="log in: hf auth login"
        )
    with suppress(Exception):
        configs = datasets.get_dataset_config_names(repository)
        if config not in (None, *configs):
            return UnknownNameError(f"configuration of {name}", str(config), configs)
        splits = datasets.get_dataset_split_names(repository, config)
        if split not in splits:
            return UnknownNameError(f"split of {name}", split, splits)
        if config is None and len(configs) > 1:
            return DataError(
                f"has several configurations: {listed(configs)}",
                path=name,
                fix=f"name one: {shlex.quote(f'{HUB}{repository}/{configs[0]}#{split}')}",
            )
    return DataError(
        f"cannot be loaded by the package datasets ({type(error).__name__})",
        path=name,
        fix="download its files and give one of them: --members train.parquet",
    )


_LINES = 'write one record a line: {"text": "..."}'
_EMPTY = {
    ".jsonl": _LINES,
    ".ndjson": _LINES,
    ".jsonlines": _LINES,
    ".json": 'write [{"text": "..."}, ...]',
    ".csv": "write a header line with the names of the columns, then one record a line",
    ".tsv": "write a header line with the names of the columns, then one record a line",
    ".parquet": "write it again with a row a record, for example with DataFrame.to_parquet",
}
"""What to write into a file that holds nothing."""

_READERS: dict[str, Callable[[Path, str], Iterator[Row]]] = {
    ".jsonl": _jsonl_rows,
    ".ndjson": _jsonl_rows,
    ".jsonlines": _jsonl_rows,
    ".json": _json_rows,
    ".csv": _csv_rows,
    ".tsv": _csv_rows,
    ".parquet": _parquet_rows,
}
