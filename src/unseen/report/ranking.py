"""The records as a table for spreadsheets, the most exposed members first."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from unseen.errors import ConfigError
from unseen.report.sections import subject
from unseen.runs.folder import plain_cell

if TYPE_CHECKING:
    from unseen.runs.folder import RunFolder
    from unseen.runs.results import Results


def render(folder: RunFolder, results: Results, *, reveal: bool = False) -> str:
    """CSV: rank, id, side, score, population FPR, length and groups; text only to reveal it.

    Raises:
        ConfigError: where the evidence is invalid or no attack has scored, so that no order means
            anything; and where text is to be shown that the run has not kept.
    """
    attack = subject(results)
    if attack is None or results.invalid:
        raise ConfigError(
            "these records have no order: the evidence is invalid, or nothing was scored",
            fix=f"unseen report {folder.path} --format md says why",
        )
    columns = folder.read_table("records.parquet").to_pydict()
    if reveal and "text" not in columns:
        raise ConfigError("the run has not kept the records' text", fix="unseen audit … --reveal")
    groups = [name for name in columns if name.startswith("slice.")]
    more = ["n_tokens"] if "n_tokens" in columns else []
    shown = [*more, *groups, *(["text"] if reveal else [])]
    scores = columns[f"score.{attack.name}"]
    order = sorted(
        range(len(scores)),
        key=lambda at: (scores[at] is None, -(scores[at] or 0.0), columns["id"][at]),
    )
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    fpr = f"population_fpr.{attack.name}"
    writer.writerow(["rank", "id", "side", f"score.{attack.name}", fpr, *shown])
    for rank, at in enumerate(order, start=1):
        side = "member" if columns["member"][at] else "non-member"
        known = scores[at] is not None
        cells = [str(rank) if known else "", columns["id"][at], side]
        cells += [repr(scores[at]), repr(columns[fpr][at])] if known else ["", ""]
        own = [plain_cell(cells[1]), *(plain_cell(str(columns[name][at])) for name in shown)]
        writer.writerow([cells[0], own[0], *cells[2:], *own[1:]])
    return out.getvalue()
