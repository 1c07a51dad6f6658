"""A study as a table: in the terminal, as Markdown, and with its figure as one HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rich.table import Table
from rich.text import Text

from unseen.errors import visible
from unseen.report import figures
from unseen.report.html import source, templates
from unseen.report.markdown import safe, table
from unseen.report.summary import number, percent_rate, rate

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from unseen.runs.studies.study import Cell, Row, StudyResults


INVALID = (
    "The evidence is invalid at every point: members and non-members differ by themselves, so that "
    "these numbers do not mean membership."
)
_MARKS = {"invalid": " †", "caution": " *"}
_WIDE = 4  # columns, above which numbers have two digits


def tables(study: StudyResults) -> list[tuple[str, list[tuple[str, ...]]]]:
    """AUC, and true-positive rates where there are any: title, and lines with the header first."""
    private = any(row.epsilon is not None for row in study.rows)
    header = (study.axis, *(("ε spent",) if private else ()), *study.columns)
    digits = 3 if len(study.columns) <= _WIDE else 2

    def auc(cell: Cell) -> str:
        return "–" if cell.auc is None else number(cell.auc, digits)

    def tpr(cell: Cell) -> str:
        return "–" if cell.tpr is None else rate(cell.tpr)

    def lines(shown: Callable[[Cell], str]) -> list[tuple[str, ...]]:
        return [header, *(_line(study, row, shown, private=private) for row in study.rows)]

    found = [("AUC", lines(auc))]
    if study.fpr is not None and any(cell.tpr for row in study.rows for cell in row.cells):
        found.append((f"TPR at {percent_rate(study.fpr)} FPR", lines(tpr)))
    return found


def _line(
    study: StudyResults, row: Row, shown: Callable[[Cell], str], *, private: bool
) -> tuple[str, ...]:
    by_column = {cell.column: cell for cell in row.cells}
    cells = [shown(by_column[name]) if name in by_column else "–" for name in study.columns]
    mark = _MARKS.get(row.verdict or "", "")
    epsilon = ("–" if row.epsilon is None else f"{row.epsilon:.3g}",) if private else ()
    return (row.name + mark, *epsilon, *cells)


def notes(study: StudyResults) -> list[str]:
    """What has to be known beside the numbers."""
    said = list(study.notes)
    reasons = dict.fromkeys(
        f"{cell.column}: {cell.note}"
        for row in study.rows
        for cell in row.cells
        if cell.note and row.failure is None
    )
    confidence = next(
        (cell.auc.confidence for row in study.rows for cell in row.cells if cell.auc), None
    )
    if confidence is not None:
        said.append(
            f"In brackets: {100 * confidence:g} % intervals of each number by itself. The points share "
            "records, so that two may differ though their intervals overlap."
        )
    return said + list(reasons)


def show(study: StudyResults, console: Console) -> None:
    """Prints a study."""
    console.print(Text(study.title, style="bold"))
    console.print(Text(study.paper, style="dim"))
    if study.invalid:
        console.print(Text(INVALID, style="bold red"), soft_wrap=True)
    for title, lines in tables(study):
        for part in _fitting(lines, console.width):
            grid = Table(box=None, pad_edge=False, title=title, title_justify="left")
            for at, name in enumerate(part[0]):
                side: Literal["left", "right"] = "left" if at == 0 else "right"
                grid.add_column(Text(visible(name)), justify=side, no_wrap=True)
            for line in part[1:]:
                grid.add_row(*(Text(visible(cell)) for cell in line))
            console.print()
            console.print(grid)
    for note in notes(study):
        console.print(Text(visible(note)), soft_wrap=True)


def _fitting(lines: list[tuple[str, ...]], width: int) -> list[list[tuple[str, ...]]]:
    """The table in parts that fit into lines of that width, each with the first column."""
    widths = [max(len(line[at]) for line in lines) + 2 for at in range(len(lines[0]))]
    parts: list[list[int]] = [[]]
    room = width - widths[0]
    for at in range(1, len(widths)):
        if parts[-1] and widths[at] > room:
            parts.append([])
            room = width - widths[0]
        parts[-1].append(at)
        room -= widths[at]
    return [[(line[0], *(line[at] for at in part)) for line in lines] for part in parts]


def markdown(study: StudyResults) -> str:
    """The study as Markdown."""
    parts = [f"# {safe(study.title)}", safe(f"{study.paper}. Written by {study.tool}.")]
    if study.invalid:
        parts.append(f"**{safe(INVALID)}**")
    for title, (header, *lines) in tables(study):
        parts += [f"## {safe(title)}", table(header, lines)]
    parts += [f"- {safe(note)}" for note in notes(study)]
    parts.append(
        "\n".join(
            f"- {safe(row.name)}: {safe(run)}/report.html" for row in study.rows for run in row.runs
        )
    )
    return "\n\n".join(parts) + "\n"


def page(study: StudyResults) -> str:
    """The study as one HTML page, with its figure; it asks for nothing."""
    environment = templates()
    return environment.get_template("study.html.j2").render(
        study=study,
        tables=tables(study),
        notes=notes(study),
        drawing=figures.sweep(study),
        style=source(environment, "report.css"),
        warning=INVALID if study.invalid else None,
    )
