"""`unseen evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from unseen.cli.codes import of_results
from unseen.cli.output import out


def evaluate(
    scores: Path,
    *,
    label_column: str = "member",
    score_column: tuple[str, ...] = (),
    cluster_by: str | None = None,
    fpr: tuple[float, ...] = (),
    confidence: float | None = None,
    bootstrap: int | None = None,
    folds: int | None = None,
    seed: int | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Statistics for scores made elsewhere: a CSV, JSONL or Parquet file, a row a record.

    Args:
        scores: the file. Higher scores mean more likely a member.
        label_column: column that says member (1, true, member) or not (0, false, nonmember).
        score_column: columns with scores; default: every other column of numbers.
        cluster_by: column of clusters, which are resampled whole.
        fpr: false-positive rates to report.
        confidence: coverage of the intervals.
        bootstrap: bootstrap draws.
        folds: folds for thresholds and choice of attack.
        seed: of folds and bootstrap.
        json_: print JSON instead of the table.
    """
    from unseen.report.terminal import show
    from unseen.runs.scores import evaluate_file

    given = {
        "fpr": fpr or None,
        "confidence": confidence,
        "bootstrap": bootstrap,
        "folds": folds,
        "seed": seed,
    }
    changed = {name: value for name, value in given.items() if value is not None}
    results = evaluate_file(
        scores,
        label_column=label_column,
        score_columns=score_column,
        cluster_by=cluster_by,
        **changed,
    )
    if json_:
        print(results.model_dump_json(indent=1))
    else:
        show(results, out())
    return of_results(results)
