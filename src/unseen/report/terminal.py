"""A result in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from unseen.report.summary import footnotes, label, percent_rate, rows, shown_rates

if TYPE_CHECKING:
    from rich.console import Console

    from unseen.runs.results import Results

_STYLES = {"attack": "", "blind": "dim", "control": "dim", "chance": "dim"}


def show(results: Results, console: Console) -> None:
    """Prints facts, table, footnotes and finding."""
    for name, value in facts(results):
        console.print(Text(f"{name:<10}"), Text(value), sep="")
    console.print()
    console.print(_table(results))
    for note in footnotes(results):
        console.print(Text(f"  {note}", style="dim"))
    console.print()
    if results.headline is not None:
        console.print(f"[bold]FINDING[/bold]  {escape(results.headline.sentence)}")
    elif results.headline_note is not None:
        console.print(f"[bold]NO FINDING[/bold]  {escape(results.headline_note)}")


def facts(results: Results) -> list[tuple[str, str]]:
    """Who was asked, about what, with which access."""
    lines: list[tuple[str, str]] = []
    if results.target:
        about = results.target
        parts = [about.get("model", ""), about.get("dtype", ""), about.get("device", "")]
        lines.append(("target", f"{about.get('provider', '')} · " + ", ".join(filter(None, parts))))
    if results.reference:
        lines.append(("reference", results.reference.get("model", "")))
    data = results.data
    if data is not None:
        lines.append(
            (
                "data",
                f"{data.members.n_judged} members ({data.members.path}) · "
                f"{data.nonmembers.n_judged} non-members ({data.nonmembers.path}) · "
                f"{data.format}, loss on {data.loss_on}",
            )
        )
        left_out = [f"{n} {reason}" for reason, n in sorted(data.dropped.items())]
        if data.set_aside != (0, 0):
            left_out.append(f"{data.set_aside[0]} + {data.set_aside[1]} set aside as known")
        if data.truncated:
            left_out.append(f"{data.truncated} cut to fit the context")
        if left_out:
            lines.append(("", "; ".join(left_out)))
    if results.access:
        lines.append(("access", f"{results.access}: {len(results.attacks)} attacks and baselines"))
    return lines


def _table(results: Results) -> Table:
    table = Table(box=None, pad_edge=False, title_justify="left")
    table.add_column("")
    table.add_column("attack", overflow="fold")
    table.add_column("AUC", justify="right")
    for fpr in shown_rates(results):
        table.add_column(f"TPR @ {percent_rate(fpr)} FPR", justify="right")
    for row in rows(results):
        cells = [Text(cell) for cell in (label(row), row.auc, *row.tprs)]
        table.add_row(Text("►" if row.chosen else ""), *cells, style=_STYLES[row.kind])
    return table
