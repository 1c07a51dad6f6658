"""Directions that the user gives to project states onto: vectors of a file, checked against the model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unseen.errors import DataError, first_line, need, suggestion
from unseen.runs.config import unread
from unseen.runs.results import GivenDirections
from unseen.signals.base import InsideSignal, Signal, directions_needed
from unseen.targets.access import InsideTarget
from unseen.targets.looks import Vectors

if TYPE_CHECKING:
    from unseen.runs.collect import Model
    from unseen.runs.config import FinetuneAudit
    from unseen.types import FloatArray

MOST = 256
"""Directions of a file: each is two features of every record, for a classifier to learn from."""

_EXAMPLE = "numpy.save('directions.npy', rows), an array of a row a direction"


@dataclass(frozen=True)
class Directed:
    """Directions that are ready.

    Attributes:
        vectors: of length 1 each.
        facts: what the results say of them.
    """

    vectors: Vectors
    facts: GivenDirections


def read_directions(config: FinetuneAudit, signals: Iterable[Signal]) -> Directed | None:
    """Reads the user's directions before a model is loaded.

    Args:
        config: names the file: .npy, .safetensors (FILE#NAME for one of several), .csv or .jsonl.
        signals: what will be measured.

    Returns:
        The directions, or None where none are named.

    Raises:
        DataError: where the file cannot be read, or holds no directions.
        ConfigError: where it is named and no attack would project onto them.
    """
    file = config.directions
    if file is None:
        return None
    if not directions_needed(signals):
        raise unread("directions", "g_drift[axis=given]")
    rows = np.atleast_2d(np.asarray(_read(file), dtype=np.float64))
    if len(rows) > MOST:
        raise DataError(
            f"holds {len(rows):,} directions, expected at most {MOST}",
            path=file,
            fix="choose some of them: numpy.save('directions.npy', rows[:8])",
        )
    try:
        vectors = Vectors(rows)
    except ValueError as error:
        raise DataError(str(error), path=file, fix=_EXAMPLE) from error
    n, width = vectors.values.shape
    return Directed(vectors, GivenDirections(path=file, sha256=vectors.digest, n=n, width=width))


def check_width(
    directed: Directed | None, models: Mapping[str, Model], signals: Iterable[Signal]
) -> None:
    """Refuses directions of another width than the states that they would be projected onto.

    Raises:
        DataError: with both widths.
    """
    if directed is None:
        return
    looking = [one for one in signals if isinstance(one, InsideSignal) and directions_needed([one])]
    for role in dict.fromkeys(signal.of for signal in looking):
        target = models[role].target
        if isinstance(target, InsideTarget) and target.width != directed.facts.width:
            raise DataError(
                f"the directions have {directed.facts.width} numbers each, a state of the {role} "
                f"({target.name}) has {target.width}",
                path=directed.facts.path,
                fix=f"give directions of {target.width} numbers, made of states of this model",
            )


def _read(file: str) -> Any:
    name, _, part = file.partition("#")
    path = Path(name).expanduser()
    if not path.is_file():
        raise DataError("no such file", path=name, fix=_EXAMPLE)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        known = ", ".join(_READERS)
        raise DataError(f"has an unknown ending, expected one of {known}", path=name, fix=_EXAMPLE)
    try:
        found = reader(path, part)
    except DataError:
        raise
    except Exception as error:  # of whatever reads the format
        raise DataError(
            f"cannot be read: {first_line(error)[:200]}", path=name, fix=_EXAMPLE
        ) from error
    if not len(found):
        raise DataError("holds no direction", path=name, fix=_EXAMPLE)
    return found


def _npy(path: Path, _: str) -> Any:
    return np.load(path, allow_pickle=False)


def _safetensors(path: Path, part: str) -> Any:
    tensors = need("safetensors", "hf").safe_open(path, framework="np")
    names = sorted(tensors.keys())
    if not part and len(names) == 1:
        part = names[0]
    if part not in names:
        raise DataError(
            f"holds {len(names)} tensors: which one?" if not part else f"holds no tensor {part!r}",
            path=path,
            fix=f"--directions {path}#NAME; {suggestion(part, names)}",
        )
    return tensors.get_tensor(part)


def _csv(path: Path, _: str) -> list[FloatArray]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return _rows(path, {n: line.split(",") for n, line in enumerate(lines, 1) if line.strip()})


def _jsonl(path: Path, _: str) -> list[FloatArray]:
    lines = path.read_text(encoding="utf-8").splitlines()
    rows: dict[int, Any] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                rows[number] = json.loads(line)
            except ValueError:
                rows[number] = None
    return _rows(path, rows)


def _rows(path: Path, rows: Mapping[int, Any]) -> list[FloatArray]:
    found: list[FloatArray] = []
    for number, row in rows.items():
        try:
            numbers = np.array([float(one) for one in row], dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(
                "is no list of numbers", path=path, line=number, fix="write a direction a line"
            ) from None
        if found and len(numbers) != len(found[0]):
            raise DataError(
                f"has {len(numbers)} numbers, and the first direction {len(found[0])}",
                path=path,
                line=number,
                fix="all directions are of one width: that of the model's states",
            )
        found.append(numbers)
    return found


_READERS = {".npy": _npy, ".safetensors": _safetensors, ".csv": _csv, ".jsonl": _jsonl}
