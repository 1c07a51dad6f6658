"""`unseen score`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from unseen.cli.codes import of_results
from unseen.cli.output import out, say
from unseen.errors import ConfigError


def score(
    run: Path,
    *,
    attacks: tuple[str, ...] = (),
    trained_from: str | None = None,
    fpr: tuple[float, ...] = (),
    confidence: float | None = None,
    bootstrap: int | None = None,
    folds: int | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Score and judge a run again from what was measured, without its model.

    Args:
        run: the run folder.
        attacks: attacks to add to those of the run, for example 'min_k[k=0.1]'.
        trained_from: another run, or its learned.json, whose weights the attack transferred uses.
        fpr: false-positive rates to report.
        confidence: coverage of the intervals.
        bootstrap: bootstrap draws.
        folds: folds for thresholds and choice of attack.
        json_: print results.json instead of the table.
    """
    from unseen.api import score_run
    from unseen.report.terminal import show

    given = {
        "trained_from": trained_from,
        "fpr": fpr or None,
        "confidence": confidence,
        "bootstrap": bootstrap,
        "folds": folds,
    }
    changed = {name: value for name, value in given.items() if value is not None}
    _check_one(run)
    result = score_run(run, attacks, **changed)
    if json_:
        print(result.results.model_dump_json(indent=1))
    else:
        show(result.results, out())
    say(f"run      {result.folder}")
    return of_results(result.results)


def _check_one(folder: Path) -> None:
    """Says which runs there are where the folder of all of them is named."""
    if not folder.is_dir():
        return
    runs = [file.parent for file in folder.glob("*/run.json") if not file.parent.is_symlink()]
    if runs and not (folder / "run.json").is_file():
        newest = sorted(runs, key=lambda run: run.stat().st_mtime)[-3:]
        raise ConfigError(
            f"{folder} is a folder of {len(runs)} runs, expected one run",
            fix="the newest last:\n  "
            + "\n  ".join(f"unseen score {shlex.quote(str(run))}" for run in newest),
        )
