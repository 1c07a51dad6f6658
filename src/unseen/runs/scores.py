"""Statistics for scores that were made elsewhere: no model, no records, only numbers and labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from unseen.data.formats import Row, is_missing, kind_of
from unseen.data.read import read_rows
from unseen.data.records import label_of
from unseen.errors import DataError, UnknownNameError, UsageError
from unseen.runs.config import configure_statistics
from unseen.runs.ending import facts_of_no_run
from unseen.runs.judge import Judge
from unseen.runs.results import Results
from unseen.runs.subjects import Scored, Subjects
from unseen.runs.validity import concluded
from unseen.types import BoolArray, Scores

_BOOKKEEPING = ("", "id", "index", "row", "fold", "n_tokens")

LIMITATIONS = (
    "The scores were made elsewhere; nothing here has checked what they mean.",
    "They mean membership only as far as members and non-members come from the same source.",
)


def evaluate_file(
    path: Path,
    *,
    label_column: str,
    score_columns: Sequence[str] = (),
    cluster_by: str | None = None,
    **choices: Any,
) -> Results:
    """Statistics of the score columns of a CSV, JSONL or Parquet file.

    Args:
        path: a row a record.
        label_column: says who is a member.
        score_columns: none means every other column with numbers that is not known to number records.
        cluster_by: column of clusters.
        **choices: fpr, confidence, bootstrap, folds, seed.

    Raises:
        DataError: where the file, a label or a score is wrong.
        UnknownNameError: where a column does not exist.
    """
    rows = list(read_rows(path))
    if not rows:
        raise DataError("holds no rows", path=path)
    known = list(dict.fromkeys(name for row in rows for name in row.values))
    for name in (label_column, *score_columns, *([cluster_by] if cluster_by else [])):
        if name not in known:
            raise UnknownNameError(f"column of {path}", name, known)
    labels = [label_of(row, label_column) for row in rows]
    if all(labels) or not any(labels):
        raise DataError(
            f"says {'member' if labels[0] else 'non-member'} of every row: both sides are needed",
            path=path,
            field=label_column,
            fix="add rows of the other side, or name another column: --label-column COLUMN",
        )
    names = list(score_columns) or [
        name
        for name in known
        if name not in (label_column, cluster_by)
        and not _is_bookkeeping(name)
        and any(_number(row.values.get(name)) is not None for row in rows)
    ]
    if not names:
        raise DataError("has no column of scores", path=path, fix="name one: --score-column COLUMN")
    scores = {name: [_score(row, name) for row in rows] for name in names}
    clusters = None if cluster_by is None else [_cluster(row, cluster_by) for row in rows]
    return evaluate_scores(scores, labels, clusters=clusters, **choices)


def evaluate_scores(
    scores: Mapping[str, ArrayLike],
    labels: ArrayLike,
    *,
    clusters: Sequence[Any] | None = None,
    **choices: Any,
) -> Results:
    """Statistics of scores by name.

    Args:
        scores: name -> (n,) finite scores, higher = more likely a member.
        labels: (n,) true or 1 for members.
        clusters: (n,) records of one cluster are resampled together; None stands alone.
        **choices: fpr, confidence, bootstrap, folds, seed.

    Raises:
        UsageError: where lengths differ, a score is not finite or a side is empty.
    """
    config = configure_statistics(**choices)
    if not scores:
        raise UsageError("got no scores", fix="unseen.evaluate(scores, labels)")
    member = _labels(labels)
    ids = tuple(str(i + 1) for i in range(len(member)))
    made = {str(name): _checked(str(name), values, ids) for name, values in scores.items()}
    groups = None if clusters is None else _column("clusters", clusters, object, len(member))
    subjects = Subjects(
        ids, member, None if groups is None else tuple(_alone(one) for one in groups.tolist())
    )
    judge = Judge(config, subjects)
    rows = [judge.row(name, one, kind="attack") for name, one in made.items()]
    verdicts = judge.verdicts(rows, Scored(made), [])
    return Results(
        run=facts_of_no_run("scores", config.seed),
        target={},
        access="",
        control_note="scores made elsewhere bring no control",
        **concluded(judge, verdicts, None),
        limitations=LIMITATIONS,
    )


def _labels(labels: ArrayLike) -> BoolArray:
    given = _column("labels", labels, object)
    wrong = [
        one
        for one in given.tolist()
        if not isinstance(one, bool | int | float) or one not in (0, 1)
    ]
    if wrong:
        raise UsageError(
            f"got the label {wrong[0]!r:.60}, expected true/false or 1/0",
            fix="labels=[name == 'member' for name in labels]",
        )
    member = given.astype(bool)
    if member.all() or not member.any():
        side = "non-members" if len(member) and member.all() else "members"
        raise UsageError(f"there are no {side}: both sides are needed")
    return member


def _checked(name: str, values: ArrayLike, ids: tuple[str, ...]) -> Scores:
    array = _column(name, values, np.float64, len(ids))
    wrong = np.flatnonzero(~np.isfinite(array))
    if len(wrong):
        raise UsageError(
            f"{name}: score {wrong[0] + 1} is {array[wrong[0]]}, expected a finite number",
            fix="leave records without a score out; a placeholder would count as a score",
        )
    return Scores(ids, array)


def _column(name: str, values: Any, dtype: Any, n: int | None = None) -> np.ndarray[Any, Any]:
    """Values from Python as an array of shape (n,)."""
    try:
        array = np.asarray(values)
        real = not np.iscomplexobj(array)
        array = np.asarray(values, dtype=dtype) if real else array
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            f"{name}: got {kind_of(values)} that holds no column of numbers"
        ) from error
    if not real:
        raise UsageError(f"{name}: got complex numbers, which have no order")
    if array.ndim != 1:
        shape = " x ".join(map(str, array.shape)) or "one value"
        raise UsageError(
            f"{name}: got {kind_of(values)} of shape {shape}, expected one value a record",
            fix="give one column: scores={'loss': [...]}, labels=[...]",
        )
    if n is not None and len(array) != n:
        raise UsageError(f"{name}: got {len(array)} for {n} labels, expected one for each")
    return array


def _alone(cluster: Any) -> Any:
    """The cluster, or None (stands alone) where nothing is written there."""
    return None if is_missing(cluster) or cluster == "" else cluster


def _cluster(row: Row, column: str) -> str | None:
    value = _alone(row.values.get(column))
    return None if value is None or not str(value).strip() else str(value)


def _is_bookkeeping(name: str) -> bool:
    """Whether a column numbers or describes records instead of scoring them."""
    plain = name.strip().lower()
    return plain in _BOOKKEEPING or plain.startswith(("population_fpr.", "unnamed:"))


def _number(value: Any) -> float | None:
    """The value as a number, or None where it is none."""
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _score(row: Row, name: str) -> float:
    value = _number(row.values.get(name))
    if value is None or not math.isfinite(value):
        raise row.fault(
            "is no finite number",
            field=name,
            fix="leave rows without a score out, or name other columns: --score-column COLUMN",
        )
    return value
