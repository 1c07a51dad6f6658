"""`unseen compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from unseen.cli.output import out, progress, say


def compare(
    run: Path,
    other: Path,
    *more: Path,
    force: bool = False,
    markdown: Path | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Does one run leak less than another? Differences on the same records, with intervals.

    Args:
        run: the run folder that the others are compared with.
        other: another run folder.
        more: further run folders.
        force: compare runs that are not alike, on the ids that they share.
        markdown: also write the comparison to this file.
        json_: print JSON instead of the table.
    """
    from unseen.api import compare_runs
    from unseen.report.comparison import show

    with progress() as tell:
        compared = compare_runs(run, other, *more, force=force, progress=tell)
    if json_:
        print(compared.comparison.model_dump_json(indent=1))
    else:
        show(compared.comparison, out())
    if markdown is not None:
        say(f"written  {compared.report(markdown)}")
    return 0
