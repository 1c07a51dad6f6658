"""`unseen gate`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from unseen.cli.codes import DONE, GATE_FAILED, INCONCLUSIVE
from unseen.cli.output import say
from unseen.errors import StoreError

if TYPE_CHECKING:
    from unseen.runs.gate import GateResult

_CODES = {"pass": DONE, "fail": GATE_FAILED, "inconclusive": INCONCLUSIVE}
_SUMMARY = "GITHUB_STEP_SUMMARY"


def gate(
    run: Path,
    *,
    max_: Annotated[tuple[str, ...], Parameter(name="--max")] = (),
    confidence: float | None = None,
    junit: Path | None = None,
    summary: Path | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Hold a run against limits: passed (exit 0), failed (10), or not decided by this data (11).

    A limit is passed where the whole interval lies at or below it, and failed where the whole
    interval lies above it. METRIC is auc, tpr@fpr=RATE, advantage or headline; it means the worst
    of all attacks, or one: auc@loss.

    Args:
        run: the run folder.
        max_: METRIC=VALUE, for example tpr@fpr=0.01=0.05; without any, the gate of the audit.
        confidence: coverage of the intervals; that of the run, if not given.
        junit: write a JUnit XML file.
        summary: append Markdown to this file; the variable GITHUB_STEP_SUMMARY names one too.
        json_: print JSON instead of lines.
    """
    from unseen.api import gate_run

    result = gate_run(run, max_, confidence=confidence)
    if json_:
        print(result.model_dump_json(indent=1))
    return announce(result, quiet=json_, junit=junit, summary=summary)


def announce(
    result: GateResult,
    *,
    quiet: bool = False,
    junit: Path | None = None,
    summary: Path | None = None,
) -> int:
    """Prints a gate, writes it where builds look for it, and returns its exit code.

    Args:
        result: what was found.
        quiet: standard output is taken by something else: print to standard error.
        junit: a JUnit file to write.
        summary: a Markdown file to append to.
    """
    from unseen.report import gate as report

    for line in report.lines(result):
        if quiet:
            say(line)
        else:
            print(line)
    if junit is not None:
        with _writing(junit, f"--junit {junit.name}"):
            junit.write_text(report.junit(result), encoding="utf-8")
    place = summary or (Path(os.environ[_SUMMARY]) if os.environ.get(_SUMMARY) else None)
    if place is not None:
        fix = f"--summary {place.name}" if summary else f"unset {_SUMMARY}"
        with _writing(place, fix), place.open("a", encoding="utf-8") as stream:
            stream.write(report.markdown(result))
    return _CODES[result.outcome]


@contextmanager
def _writing(file: Path, fix: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot write {file}: {error.strerror}", fix=fix) from error
