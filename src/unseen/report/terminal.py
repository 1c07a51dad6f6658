"""A result in the terminal."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from unseen.errors import short, visible
from unseen.report import defences, prompt
from unseen.report import language as say
from unseen.report.summary import (
    APART_HEADER,
    apart,
    evidence,
    facts,
    footnotes,
    gains,
    label,
    mends,
    percent_rate,
    rows,
    shown_rates,
)
from unseen.runs.results import IN_A_LINE

if TYPE_CHECKING:
    from rich.console import Console

    from unseen.runs.results import Apart, Results

_ATTACKS_BESIDE = 3
"""Attacks whose settings are shown: more do not fit beside each other."""

_STYLES = {"attack": "", "blind": "dim", "control": "dim", "chance": "dim"}


def show(results: Results, console: Console) -> None:
    """Prints facts, table, footnotes and finding."""
    for name, value in facts(results):
        console.print(Text(f"{name:<10}"), Text(visible(value)), sep="")
    console.print()
    if results.checks:
        console.print(_checks(results))
        console.print()
    console.print(_table(results))
    for one in results.apart:
        console.print()
        console.print(_apart(one))
        if one.separates:
            console.print(Text(f"  {visible(say.separates(one.separates))}", style="bold"))
    if results.apart or results.settings:
        console.print()
    if results.settings:
        console.print(_settings(results))
        console.print()
    if results.defences:
        console.print(_defences(results))
        console.print()
    for pair, difference, means in gains(results):
        console.print(Text(f"  {visible(f'{pair} {difference}: {means}')}"))
    for line in say.steps_in_lines(results):
        console.print(Text(f"  {visible(line)}"))
    for note in footnotes(results):
        console.print(Text(f"  {visible(note)}", style="dim"))
    console.print()
    if results.headline is not None:
        console.print(Text.assemble(("FINDING", "bold"), f"  {visible(results.headline.sentence)}"))
    elif results.headline_note is not None:
        console.print(Text.assemble(("NO FINDING", "bold"), f"  {visible(results.headline_note)}"))
    if results.validity is not None:
        console.print(Text.assemble(("EVIDENCE", "bold"), f" {visible(evidence(results))}"))
    for mend in mends(results):
        console.print(Text.assemble(("fix", "bold"), f"      {visible(mend)}"))


def as_text(results: Results) -> str:
    """What `show` prints, without colours."""
    from rich.console import Console

    out = io.StringIO()
    show(results, Console(file=out, width=140, highlight=False, no_color=True))
    return out.getvalue()


def _settings(results: Results) -> Table:
    """Settings one below the other, and the best attacks beside each other; the report has them all."""
    title = Text("AUC of the best attacks, of the same trials in other settings")
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    header, *lines = prompt.beside(results, _ATTACKS_BESIDE)
    for at, name in enumerate(header):
        heading = Text(visible(name))
        table.add_column(heading, overflow="fold", justify="left" if at < 1 else "right")
    for line in lines:
        table.add_row(*(Text(short(visible(cell), 80)) for cell in line))
    return table


def _defences(results: Results) -> Table:
    title = Text(
        "what a defence takes from who does not know of it and who does, and what it costs"
    )
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for at, name in enumerate(defences.TERMINAL_HEADER):
        table.add_column(name, overflow="fold", justify="left" if at < 2 else "right")
    for line in defences.in_lines(results):
        table.add_row(*(Text(short(visible(cell), 80)) for cell in line))
    return table


def _apart(one: Apart) -> Table:
    title = f"members against {say.KINDS_OF_NONMEMBERS[one.kind]}, judged apart"
    table = Table(box=None, pad_edge=False, title=Text(title), title_justify="left")
    for at, name in enumerate(APART_HEADER):
        table.add_column(name, overflow="fold", justify="right" if 0 < at < 5 else "left")
    for row in apart(one):
        table.add_row(*(Text(short(visible(cell), 80)) for cell in row))
    return table


def _checks(results: Results) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in results.checks:
        style = {"fail": "bold", "warn": "bold", "skip": "dim"}.get(check.status, "")
        cells = (check.title, IN_A_LINE[check.status], check.detail)
        table.add_row(*(Text(short(visible(cell), 400)) for cell in cells), style=style)
    return table


def _table(results: Results) -> Table:
    table = Table(box=None, pad_edge=False, title_justify="left")
    table.add_column("")
    table.add_column("attack", overflow="fold")
    table.add_column("AUC", justify="right")
    for fpr in shown_rates(results):
        table.add_column(f"TPR @ {percent_rate(fpr)} FPR", justify="right")
    for row in rows(results):
        cells = [Text(short(visible(cell), 80)) for cell in (label(row), row.auc, *row.tprs)]
        table.add_row(Text("►" if row.chosen else ""), *cells, style=_STYLES[row.kind])
    return table
