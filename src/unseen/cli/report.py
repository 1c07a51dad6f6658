"""`unseen report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from unseen.cli.output import say
from unseen.errors import ConfigError


def report(
    run: Path,
    *,
    format_: Annotated[
        Literal["html", "md", "json", "csv", "modelcard"] | None, Parameter(name="--format")
    ] = None,
    out: Path | None = None,
    reveal: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Render the report of a run again, from its folder alone.

    Without --out, html is written to report.html of the run folder; every other format is printed.

    Args:
        run: the run folder.
        format_: html, md, json, csv (the records, most exposed first), or modelcard (a section for
            a model card, with its model-index); default: what the ending of --out says, or html.
        out: the file to write.
        reveal: show the records' text, where the run kept it. Needs --out.
    """
    from unseen.api import ENDINGS, renew_report, report_run
    from unseen.runs.folder import writing

    chosen = format_ or (ENDINGS.get(out.suffix, "html") if out is not None else "html")
    if out is None and chosen == "html":
        if reveal:
            raise ConfigError(
                "a report with the records' text is not written into the run folder",
                fix=f"unseen report {run} --reveal --out FILE.html",
            )
        print(renew_report(run))
        return 0
    text = report_run(run, chosen, reveal=reveal)
    if out is None:
        print(text, end="")
        return 0
    with writing(out):
        out.write_text(text, encoding="utf-8")
    say(f"report   {out}")
    return 0
