"""Figures as inline SVG: no font, no script and no address from elsewhere, the same bytes each time."""

from __future__ import annotations

import io
import logging
import re
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unseen.report import defences, prompt
from unseen.report import language as say
from unseen.report.sections import label_of, subject
from unseen.report.summary import number, percent_rate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from unseen.runs.results import AttackResult, DriftShape, Number, Results
    from unseen.runs.studies.study import StudyResults
    from unseen.types import FloatArray

    Drawn = list[tuple[AttackResult, tuple[str, Any]]]

# Okabe and Ito: told apart with every kind of colour vision; each with a dash pattern of its own,
# for print in black.
_STYLES: tuple[tuple[str, Any], ...] = (
    ("#0072B2", "-"),
    ("#D55E00", (0, (6, 2))),
    ("#009E73", (0, (4, 1.5, 1, 1.5))),
    ("#CC79A7", (0, (1.5, 1.2))),
)
_MARKS = ("o", "s", "^", "D", "v", "P", "X", "<")
_BLIND, _CONTROL = ("#6b6b6b", (0, (8, 3))), ("#6b6b6b", (0, (1, 2)))
_MEMBER, _NONMEMBER = "#0072B2", "#D55E00"
_WASHES = ("#d9dde2", "#eff1f4")
_INK, _FAINT = "#1f2328", "#c9ced4"
_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_MOST_POINTS = 120
_BINS = 40


@dataclass(frozen=True)
class Drawing:
    """A figure and what it shows in words.

    Attributes:
        svg: the markup, with ids that no other figure has.
        words: for whoever does not see it.
    """

    svg: str
    words: str


def roc(results: Results) -> Drawing | None:
    """ROC curves on logarithmic axes, with the rates that these non-members cannot resolve.

    The chosen attack, the best others, and the baselines that must stay at chance (Carlini et al.
    2022, arXiv:2112.03570, section III: low false-positive rates are what matters, and only
    logarithmic axes show them).
    """
    drawn = _drawn(results)
    if not drawn:
        return None
    with _settings():
        svg = _svg(_roc_figure(drawn), "roc")
    return Drawing(svg, say.roc_in_words(row for row, _ in drawn))


def _roc_figure(drawn: Drawn) -> Figure:
    n = _independent(drawn)
    low = 0.4 / n
    figure, axes = _canvas()
    _zones(axes, n, low)
    grid = np.geomspace(low, 1, 60)
    axes.plot(grid, grid, color=_INK, linewidth=0.8, linestyle=(0, (1, 3)), label="chance")
    for row, (colour, dashes) in drawn:
        fpr, tpr = _thinned(row, low)
        strong = row.kind == "attack" and colour == _STYLES[0][0]
        axes.step(
            fpr, tpr, where="post", color=colour, linestyle=dashes,
            linewidth=2.2 if strong else 1.5, label=_brief(label_of(row), 33),
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlim=(low, 1), ylim=(low, 1.15))
    axes.set_xlabel("non-members flagged (false-positive rate)")
    axes.set_ylabel("members flagged (true-positive rate)")
    _percent_ticks(axes)
    _legend(axes)
    return figure


def histogram(
    results: Results, attack: AttackResult, members: FloatArray, nonmembers: FloatArray
) -> Drawing | None:
    """Scores of both sides by one attack, and where the threshold lies.

    Args:
        results: of the run; its finding says at which rate the threshold is.
        attack: the attack.
        members: (m,) scores.
        nonmembers: (n,) scores.
    """
    if not len(members) or not len(nonmembers):
        return None
    with _settings():
        figure = _histogram_figure(attack.name, members, nonmembers, _threshold(results, attack))
        svg = _svg(figure, "histogram")
    words = say.histogram_in_words(attack.name, _quartiles(members), _quartiles(nonmembers))
    return Drawing(svg, words)


def _histogram_figure(
    attack: str, members: FloatArray, nonmembers: FloatArray, at: tuple[float, float] | None
) -> Figure:
    both = np.concatenate([members, nonmembers])
    low, high = np.quantile(both, [0.002, 0.998])
    if not high > low:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, _BINS + 1)
    figure, axes = _canvas()
    for values, colour, dashes, name in (
        (nonmembers, _NONMEMBER, (0, (4, 2)), f"non-members (n = {len(nonmembers):,})"),
        (members, _MEMBER, "-", f"members (n = {len(members):,})"),
    ):
        # What lies beyond is counted in the outermost bar, so that one outlier hides nothing.
        counts, _ = np.histogram(np.clip(values, low, high), edges)
        axes.stairs(counts / len(values), edges, fill=True, color=colour, alpha=0.18, linewidth=0)
        axes.stairs(counts / len(values), edges, color=colour, linestyle=dashes, linewidth=1.8,
                    label=name)  # fmt: skip
    if at is not None and low <= at[1] <= high:
        axes.axvline(at[1], color=_INK, linewidth=1.2, linestyle=(0, (5, 2)),
                     label=f"threshold at {percent_rate(at[0])} FPR")  # fmt: skip
    axes.set_xlim(low, high)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"score of {_brief(attack)} (higher = more likely a member)")
    axes.set_ylabel("share of the side's records")
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    _legend(axes)
    return figure


def shapes(results: Results) -> Drawing | None:
    """Cumulative distributions of what one step changes, of both sides; None where no step was taken."""
    if results.drift is None or not results.drift.shapes:
        return None
    with _settings():
        svg = _svg(_shapes_figure(results.drift.shapes), "drift")
    return Drawing(svg, say.shapes_in_words(results.drift.shapes))


def _shapes_figure(found: Sequence[DriftShape]) -> Figure:
    from matplotlib.figure import Figure as NewFigure

    n_rows = (len(found) + 1) // 2
    figure = NewFigure(figsize=(6.4, 2.5 * n_rows + 0.4))
    panels = figure.subplots(n_rows, 2, squeeze=False, sharey=True).ravel().tolist()
    for shape, axes in zip(found, panels, strict=False):
        for values, colour, dashes, name in (
            (shape.quantiles[1], _NONMEMBER, (0, (4, 2)), "non-members"),
            (shape.quantiles[0], _MEMBER, "-", "members"),
        ):
            levels = np.linspace(0, 1, len(values))
            axes.plot(values, levels, color=colour, linestyle=dashes, linewidth=1.8, label=name)
        axes.set(xlim=(0, 1), ylim=(0, 1.02))
        axes.set_xlabel(say.DRIFTS[shape.name])
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
        _plain(axes)
    for axes in panels[len(found) :]:
        axes.set_visible(False)
    panels[0].legend(loc="lower right", frameon=False, fontsize=9)
    figure.supylabel("share of the side's records", fontsize=10)
    figure.subplots_adjust(
        left=0.15, right=0.97, bottom=0.25 if n_rows == 1 else 0.11, top=0.98, hspace=0.36, wspace=0.12
    )  # fmt: skip
    return figure


def settings(results: Results) -> Drawing | None:
    """AUC by the number of demonstrations, and by place, of a prompt; None where each is one alone."""
    panels = [
        (name, series)
        for name, series in (
            ("demonstrations", prompt.by_shots(results)),
            ("place of the record in question", prompt.by_place(results)),
        )
        if series
    ]
    if not panels:
        return None
    with _settings():
        svg = _svg(_settings_figure(panels), "settings")
    words = ". ".join(
        f"AUC by {name}: "
        + "; ".join(
            f"{attack}: " + ", ".join(f"{at} {number(auc, 2)}" for at, auc in points.items())
            for attack, points in series.items()
        )
        for name, series in panels
    )
    return Drawing(svg, f"{words}.")


def _settings_figure(panels: Sequence[tuple[str, prompt.Series]]) -> Figure:
    figure, drawn = _side_by_side(len(panels))
    names = list(dict.fromkeys(attack for _, series in panels for attack in series))
    for (axis, series), axes in zip(panels, drawn, strict=True):
        points = list(dict.fromkeys(at for found in series.values() for at in found))
        axes.axhline(0.5, color=_INK, linewidth=0.9, linestyle=(0, (4, 3)))
        for place, attack in enumerate(names):
            found = series.get(attack, {})
            # Intervals stand side by side, so that none hides another.
            moved = 0.5 * ((place + 0.5) / len(names) - 0.5)
            colour, dashes = _STYLES[place % len(_STYLES)]
            aucs = list(found.values())
            axes.errorbar(
                [points.index(at) + moved for at in found],
                [auc.value for auc in aucs],
                yerr=[
                    [max(0.0, auc.value - auc.ci[0]) for auc in aucs],
                    [max(0.0, auc.ci[1] - auc.value) for auc in aucs],
                ],
                color=colour, linestyle=dashes, marker=_MARKS[place % len(_MARKS)],
                markersize=4.5, linewidth=1.2, elinewidth=1.0, capsize=2.5, label=_brief(attack),
            )  # fmt: skip
        axes.set_xticks(range(len(points)), points)
        axes.set_xlabel(axis)
        _plain(axes)
    drawn[0].set_ylabel("AUC")
    _legend(drawn[0])
    return figure


def tradeoff(results: Results) -> Drawing | None:
    """Advantage against right answers, with and without defences; None where one of them is not known.

    Of the main setting: a panel for each attack that is followed.
    """
    panels = {
        attack: points
        for attack in defences.followed(results)
        if (points := _tradeoff_points(results, attack))
    }
    if not panels:
        return None
    with _settings():
        svg = _svg(_tradeoff_figure(panels), "defences")
    words = " ".join(
        f"Advantage of {attack} against right answers. "
        + "; ".join(
            f"{what}: advantage {number(y, 2)}, right answers {number(x, 2)}"
            for what, _, x, y in points
        )
        + "."
        for attack, points in panels.items()
    )
    return Drawing(svg, words)


_Point = tuple[str, str, "Number", "Number"]
"""What it is of, the defence, right answers and advantage."""


def _tradeoff_points(results: Results, attack: str) -> list[_Point]:
    points: list[_Point] = []
    for one in defences.of_main(results):
        for row in one.attacks:
            if row.attack != attack or one.accuracy is None or one.accuracy_before is None:
                continue
            for what, x, y in (
                ("without", one.accuracy_before, row.before.advantage),
                (f"{one.defense}, not known", one.accuracy, row.fixed.advantage),
                (one.defense, one.accuracy, row.recalibrated.advantage),
            ):
                if y is not None:
                    points.append((what, one.defense, x, y))
    return list({point[0]: point for point in points}.values())


def _tradeoff_figure(panels: Mapping[str, Sequence[_Point]]) -> Figure:
    figure, drawn = _side_by_side(len(panels))
    for (attack, points), axes in zip(panels.items(), drawn, strict=True):
        _tradeoff_panel(axes, points)
        axes.set_title(f"advantage of {_brief(attack)}", fontsize=10)
    figure.subplots_adjust(top=0.94)
    drawn[0].set_ylabel("advantage")
    _legend(drawn[0])
    return figure


def _tradeoff_panel(axes: Axes, points: Sequence[_Point]) -> None:
    axes.axhline(0.0, color=_INK, linewidth=0.9, linestyle=(0, (4, 3)))
    names = list(dict.fromkeys(defense for what, defense, _, _ in points if what != "without"))
    for what, defense, x, y in points:
        without, known = what == "without", what == defense
        place = names.index(defense) if defense in names else 0
        colour = _INK if without else _STYLES[place % len(_STYLES)][0]
        axes.errorbar(
            [x.value], [y.value],
            xerr=[[max(0.0, x.value - x.ci[0])], [max(0.0, x.ci[1] - x.value)]],
            yerr=[[max(0.0, y.value - y.ci[0])], [max(0.0, y.ci[1] - y.value)]],
            color=colour, marker="*" if without else _MARKS[place % len(_MARKS)],
            markersize=10 if without else 6, markerfacecolor=colour if without or known else "none",
            linestyle="none", elinewidth=0.9, capsize=2.5,
            label=_brief(what, 28) if without or known else None,
        )  # fmt: skip
    axes.set_xlabel("right answers about records outside the prompt")
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    _plain(axes)


def sweep(study: StudyResults) -> Drawing | None:
    """AUC of each column at each point, with intervals; None where nothing was estimated."""
    series = []
    ordered = all(row.x is not None for row in study.rows)
    for column in study.columns:
        found = [
            (row.x if ordered and row.x is not None else at, cell.auc)
            for at, row in enumerate(study.rows)
            for cell in row.cells
            if cell.column == column and cell.auc is not None
        ]
        if found:
            series.append((column, found))
    if not series:
        return None
    with _settings():
        figure, axes = _canvas()
        axes.axhline(0.5, color=_FAINT, linewidth=1.2, linestyle=(0, (2, 2)))
        for at, (column, found) in enumerate(series):
            color, dash = _STYLES[at % len(_STYLES)]
            # Intervals stand side by side where points have no order.
            moved = 0.0 if ordered else 0.5 * ((at + 0.5) / len(series) - 0.5)
            xs = [x + moved for x, _ in found]
            axes.errorbar(
                xs,
                [auc.value for _, auc in found],
                yerr=[
                    [max(0.0, auc.value - auc.ci[0]) for _, auc in found],
                    [max(0.0, auc.ci[1] - auc.value) for _, auc in found],
                ],
                color=color, linestyle=dash if ordered else "none", marker=_MARKS[at % len(_MARKS)],
                markersize=4.5, linewidth=1.5, elinewidth=1.0, capsize=2.5, label=_brief(column),
            )  # fmt: skip
        if not ordered:
            axes.set_xticks(range(len(study.rows)), [_brief(row.name, 14) for row in study.rows])
        axes.set_xlabel(study.axis)
        axes.set_ylabel("AUC")
        _legend(axes)
        svg = _svg(figure, "sweep")
    words = "; ".join(
        f"{column}: " + ", ".join(f"{auc.value:.2f}" for _, auc in found)
        for column, found in series
    )
    return Drawing(svg, f"AUC by {study.axis}. {words}.")


def _drawn(results: Results) -> Drawn:
    """Rows that get a curve: too many curves show nothing."""
    able = [row for row in results.attacks if row.roc is not None and row.auc is not None]
    attacks = sorted((row for row in able if row.kind == "attack"), key=_auc, reverse=True)
    first = subject(results)
    attacks.sort(key=lambda row: first is None or row.name != first.name)
    drawn = list(zip(attacks, _STYLES, strict=False))
    blind = max((row for row in able if row.kind == "blind"), key=_auc, default=None)
    if blind is not None:
        drawn.append((blind, _BLIND))
    controls = [row for row in results.control if row.roc is not None and row.auc is not None]
    names = [row.name for row, _ in drawn]
    control = max(controls, key=lambda row: (row.name in names, _auc(row)), default=None)
    if control is not None:
        drawn.append((control, _CONTROL))
    return drawn


def _auc(row: AttackResult) -> float:
    return -1.0 if row.auc is None else row.auc.value


def _independent(drawn: Drawn) -> float:
    """Non-members that resolve rates: fewer than were scored where they come in clusters."""
    counts = [
        at.expected_false_positives / at.fpr for row, _ in drawn for at in row.tpr_at_fpr
    ] or [float(row.n[1]) for row, _ in drawn]
    return max(*counts, 2.0)


def _zones(axes: Axes, n: float, low: float) -> None:
    """Rates with less than one, and with less than ten, expected false positives."""
    one, ten = min(1 / n, 1.0), min(10 / n, 1.0)
    axes.axvspan(low, one, color=_WASHES[0], linewidth=0)
    axes.axvspan(one, ten, color=_WASHES[1], linewidth=0)
    for left, right, text, wash in (
        (low, one, "not resolved", _WASHES[0]),
        (one, ten, "indicative", _WASHES[1]),
    ):
        if right / left > 1.4:
            axes.text(
                np.sqrt(left * right), 0.04, text, ha="center", va="bottom", fontsize=8.5,
                rotation="vertical", color="#57606a", transform=axes.get_xaxis_transform(),
                bbox={"facecolor": wash, "edgecolor": "none", "pad": 1.5}, zorder=5,
            )  # fmt: skip


def _thinned(row: AttackResult, low: float) -> tuple[FloatArray, FloatArray]:
    """Points of a curve that can be told apart on logarithmic axes."""
    assert row.roc is not None  # noqa: S101 (rows without a curve are not drawn)
    fpr = np.maximum(np.array(row.roc.fpr, dtype=np.float64), low)
    tpr = np.array(row.roc.tpr, dtype=np.float64)
    # Of points at one rate the last is the highest; the first of a rate would draw nothing.
    last = np.append(np.diff(fpr) > 0, True)
    fpr, tpr = fpr[last], tpr[last]
    if len(fpr) > _MOST_POINTS:
        wanted = np.geomspace(fpr[0], 1, _MOST_POINTS)
        keep = np.unique(np.searchsorted(fpr, wanted, side="right") - 1)
        fpr, tpr = fpr[keep], tpr[keep]
    return fpr, np.maximum(tpr, low)


def _threshold(results: Results, attack: AttackResult) -> tuple[float, float] | None:
    """Rate and threshold: that of the finding, or else the largest rate that has one."""
    found = say.headline(results)
    having = {at.fpr: at.threshold for at in attack.tpr_at_fpr if at.threshold is not None}
    if not having:
        return None
    fpr = found.fpr if found is not None and found.fpr in having else max(having)
    return fpr, having[fpr]


def _quartiles(values: FloatArray) -> tuple[float, float, float]:
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    return low, median, high


def _percent_ticks(axes: Axes) -> None:
    from matplotlib.ticker import NullFormatter

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
        axis.set_minor_formatter(NullFormatter())


def _brief(name: str, most: int = 34) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


@contextmanager
def _settings() -> Iterator[None]:
    """Matplotlib as it comes, whatever the user has changed, and then as we want it."""
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)  # that fonts are looked for, once, is of no interest here
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(
            {
                "svg.fonttype": "none",
                "svg.hashsalt": "unseen",
                "font.family": "DejaVu Sans",  # comes with matplotlib: it is the same everywhere
                "font.size": 10,
                "text.color": _INK,
                "text.parse_math": False,  # names are names, also with a dollar sign
                "axes.edgecolor": "#57606a",
                "axes.labelcolor": _INK,
                "xtick.color": _INK,
                "ytick.color": _INK,
            }
        )
        try:
            yield
        finally:
            logger.setLevel(level)


def _canvas() -> tuple[Figure, Axes]:
    """An empty figure; nothing of pyplot, whose state others may use."""
    from matplotlib.figure import Figure as NewFigure

    # Fixed margins, so that figures side by side have their axes on one line.
    figure = NewFigure(figsize=(5.6, 4.9))
    figure.subplots_adjust(left=0.14, right=0.965, bottom=0.315, top=0.985)
    axes = figure.add_subplot()
    _plain(axes)
    return figure, axes


def _side_by_side(n: int) -> tuple[Figure, list[Axes]]:
    """A figure of n panels with one vertical axis, and room for a legend below the first."""
    from matplotlib.figure import Figure as NewFigure

    figure = NewFigure(figsize=(4.9 * n + 0.9, 4.9))
    drawn = figure.subplots(1, n, squeeze=False, sharey=True).ravel().tolist()
    figure.subplots_adjust(left=0.14 / n + 0.01, right=0.965, bottom=0.315, top=0.985, wspace=0.08)
    return figure, drawn


def _plain(axes: Axes) -> None:
    """A grid behind what is drawn, and no frame."""
    axes.grid(visible=True, color=_FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _legend(axes: Axes) -> None:
    axes.legend(
        loc="upper left", bbox_to_anchor=(-0.02, -0.185), ncols=2, frameon=False, fontsize=9,
        borderaxespad=0, handlelength=3.4, columnspacing=1.6,
    )  # fmt: skip


def _svg(figure: Figure, name: str) -> str:
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    out = io.StringIO()
    nothing: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the reader's fonts have it
        FigureCanvasSVG(figure).print_figure(out, format="svg", metadata=nothing, facecolor="none")
    return _inline(out.getvalue(), name)


def _inline(svg: str, name: str) -> str:
    """An SVG file as a part of a page: ids are its own, its style reaches nothing else."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    svg = svg.replace("'DejaVu Sans'", _FONTS.replace("'", "&#39;"))
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    return re.sub(r"<svg ", '<svg aria-hidden="true" focusable="false" class="plot" ', svg, count=1)
