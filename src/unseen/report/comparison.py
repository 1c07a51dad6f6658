"""A comparison of runs as rows and sentences, in the terminal and as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from unseen.errors import short, visible
from unseen.report.markdown import safe, table
from unseen.report.summary import INDICATIVE, percent, percent_rate

if TYPE_CHECKING:
    from rich.console import Console

    from unseen.runs.compare import Change, Comparison

_HEADER = ("", "run 1", "run {}", "difference", "p (Holm)", "smallest", "")


def facts(comparison: Comparison) -> list[tuple[str, str]]:
    """Which runs, what they share and what not."""
    lines = [
        (f"run {place}", f"{run.folder}   {run.model}")
        for place, run in enumerate(comparison.runs, start=1)
    ]
    if comparison.same:
        lines.append(("same", ", ".join(comparison.same)))
    if comparison.differs:
        lines += [
            ("differs" if at == 0 else "", f"{one.what}: {' → '.join(one.values)}")
            for at, one in enumerate(comparison.differs)
        ]
    else:
        lines.append(("differs", "nothing that numbers depend on"))
    lines += [
        ("paired", f"run 1 and run {place}: {n[0]:,} members and {n[1]:,} non-members")
        for place, n in enumerate(comparison.paired, start=2)
    ]
    return lines


def rows(comparison: Comparison, run: int) -> list[tuple[str, ...]]:
    """A line for each number that the first run and a later one share, as text.

    The attacks that were strongest in the first run come first.
    """
    changes = [change for change in comparison.changes if change.run == run]
    leak = {one.attack: -one.first.value for one in changes if one.metric == "auc"}
    return [
        (
            _name(change),
            _value(change, change.first.value),
            _value(change, change.second.value),
            _interval(change),
            _p(change.p_holm),
            _gap(change, change.smallest).lstrip("+") + _unit(change),
            change.verdict,
        )
        for change in sorted(changes, key=lambda one: (leak[one.attack], one.attack))
    ]


def notes(comparison: Comparison) -> list[str]:
    """How the table is to be read."""
    told = [
        f"difference: later run minus run 1, with its {100 * comparison.confidence:g}% interval, on "
        "the same records; rates in percentage points (pp)",
        f"smallest: the smallest true difference that this data finds with 80% chance (at "
        f"{100 * comparison.confidence:g}%, one test alone)",
    ]
    if any(change.resolution == "indicative" for change in comparison.changes):
        told.append(f"{INDICATIVE} fewer than 10 expected false positives: indicative only")
    told += dict.fromkeys(
        f"{change.attack}: {change.note}" for change in comparison.changes if change.note
    )
    return [*told, *comparison.notes]


def sentences(comparison: Comparison) -> list[str]:
    """What a reader takes home, a sentence a later run."""
    said = []
    for run in sorted({change.run for change in comparison.changes}):
        of_run = [change for change in comparison.changes if change.run == run]
        found = []
        for word in ("lower leakage", "higher leakage", "not comparable", "cannot be told apart"):
            n = sum(change.verdict == word for change in of_run)
            if n:
                found.append(f"{word} in {n} of {len(of_run)} numbers")
        best = max(
            (change for change in of_run if change.metric == "auc"), key=lambda one: one.first.value
        )
        said.append(
            f"run {run + 1} against run 1: {'; '.join(found)}. The strongest attack of run 1, "
            f"{best.attack}: AUC {best.first.value:.3f} → {best.second.value:.3f}, difference "
            f"{_interval(best)}, {best.verdict}."
        )
    return said


def show(comparison: Comparison, console: Console) -> None:
    """Prints facts, a table for each later run, notes and what was found."""
    for name, value in facts(comparison):
        console.print(Text(f"{name:<10}"), Text(visible(value)), sep="")
    for run in sorted({change.run for change in comparison.changes}):
        console.print()
        table = Table(box=None, pad_edge=False)
        for at, name in enumerate(_HEADER):
            table.add_column(
                name.format(run + 1), justify="left" if at in (0, len(_HEADER) - 1) else "right"
            )
        for row in rows(comparison, run):
            table.add_row(*(Text(short(visible(cell), 80)) for cell in row))
        console.print(table)
    for note in notes(comparison):
        console.print(Text(f"  {visible(note)}", style="dim"))
    console.print()
    for sentence in sentences(comparison):
        console.print(Text.assemble(("FINDING", "bold"), f"  {visible(sentence)}"))


def render(comparison: Comparison) -> str:
    """The same as Markdown."""
    parts = [
        "# Leakage of runs compared",
        "\n".join(f"- {safe(one)}" for one in sentences(comparison)),
    ]
    parts.append(
        "\n".join(f"- {safe(f'{name}: {value}' if name else value)}" for name, value in
                  facts(comparison))
    )  # fmt: skip
    for run in sorted({change.run for change in comparison.changes}):
        header = [name.format(run + 1) for name in _HEADER]
        parts += [f"## Run {run + 1} against run 1", table(header, rows(comparison, run))]
    parts.append("\n".join(f"- {safe(note)}" for note in notes(comparison)))
    return "\n\n".join(parts) + "\n"


def _name(change: Change) -> str:
    if change.metric == "auc":
        return f"AUC ({change.attack})"
    mark = f" {INDICATIVE}" if change.resolution == "indicative" else ""
    rate = percent_rate(float(change.metric.partition("=")[2]))
    return f"TPR @ {rate} FPR{mark} ({change.attack})"


def _value(change: Change, value: float) -> str:
    return f"{value:.3f}" if change.metric == "auc" else percent(value)


def _interval(change: Change) -> str:
    one = change.difference
    low, high = (_gap(change, end) for end in one.ci)
    return f"{_gap(change, one.value)} [{low}, {high}]{_unit(change)}"


def _unit(change: Change) -> str:
    return "" if change.metric == "auc" else " pp"


def _gap(change: Change, value: float) -> str:
    """A difference with its sign; none before a zero."""
    text = f"{value:+.3f}" if change.metric == "auc" else f"{100 * value:+.1f}"
    return text.replace("-", "−") if float(text) else text.lstrip("+-")


def _p(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"
