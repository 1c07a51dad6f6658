"""A study as a table: in the terminal, as Markdown, and with its figure as one HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from unseen.errors import visible
from unseen.report import figures
from unseen.report.html import source, templates
from unseen.report.markdown import safe, table
from unseen.report.summary import number, percent_rate, rate

if TYPE_CHECKING:
    from rich.console import Console

    from unseen.runs.study import Cell, Row, StudyResults


def tables(study: StudyResults) -> list[tuple[str, list[tuple[str, ...]]]]:
    """AUC, and true-positive rates where there are any: title, and lines with the header first."""
    header = (study.axis, *study.columns)
    private = any(row.epsilon is not None for row in study.rows)
    if private:
        header = (study.axis, "ε spent", *study.columns)
    found = [("AUC", [header, *(_line(study, row, _auc, private=private) for row in study.rows)])]
    if study.fpr is not None:
        title = f"TPR at {percent_rate(study.fpr)} FPR"
        lines = [header, *(_line(study, row, _tpr, private=private) for row in study.rows)]
        found.append((title, lines))
    return found


def _line(study: StudyResults, row: Row, shown_as: object, *, private: bool) -> tuple[str, ...]:
    by_column = {cell.column: cell for cell in row.cells}
    cells = [
        shown_as(by_column[column]) if column in by_column else "–"  # type: ignore[operator]
        for column in study.columns
    ]
    mark = " *" if row.verdict in ("invalid", "caution") else ""
    epsilon = ("–" if row.epsilon is None else f"{row.epsilon:.3g}",) if private else ()
    return (row.name + mark, *epsilon, *cells)


def _auc(cell: Cell) -> str:
    return "–" if cell.auc is None else number(cell.auc)


def _tpr(cell: Cell) -> str:
    return "–" if cell.tpr is None else rate(cell.tpr)


def notes(study: StudyResults) -> list[str]:
    """What has to be known beside the numbers."""
    said = [f"* {note}" for note in study.notes]
    reasons = dict.fromkeys(
        f"{cell.column}: {cell.note}" for row in study.rows for cell in row.cells if cell.note
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
    for title, (header, *lines) in tables(study):
        grid = Table(box=None, pad_edge=False, title=title, title_justify="left")
        for at, name in enumerate(header):
            grid.add_column(Text(visible(name)), justify="left" if at == 0 else "right")
        for line in lines:
            grid.add_row(*(Text(visible(cell)) for cell in line))
        console.print()
        console.print(grid)
    for note in notes(study):
        console.print(Text(visible(note)), soft_wrap=True)


def markdown(study: StudyResults) -> str:
    """The study as Markdown."""
    parts = [f"# {safe(study.title)}", safe(f"{study.paper}. Written by {study.tool}.")]
    for title, (header, *lines) in tables(study):
        parts += [f"## {safe(title)}", table(header, lines)]
    parts += [f"- {safe(note)}" for note in notes(study)]
    parts.append(
        "\n".join(f"- {safe(row.name)}: {safe(row.run)}/report.html" for row in study.rows)
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
    )
