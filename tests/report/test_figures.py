from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import reports

from unseen.metrics.roc import roc_curve
from unseen.report import figures
from unseen.runs.results import Roc


def with_curve(name: str, kind: str = "attack", n: int = 400, gap: float = 1.5, auc: float = 0.85):
    rng = np.random.default_rng(3)
    curve = roc_curve(rng.normal(gap, 1, n), rng.normal(0, 1, n))
    roc = Roc(fpr=tuple(curve.fpr), tpr=tuple(curve.tpr))
    return reports.attack(name, auc if kind == "attack" else 0.5, kind, roc=roc)


@pytest.fixture
def results():
    return reports.results(
        attacks=(with_curve("strong"), with_curve("$x$ <b>"), with_curve("words", "blind", gap=0)),
        control=(with_curve("strong", "control", gap=0),),
    )


def texts(svg: str) -> list[str]:
    return [
        "".join(one.itertext()).strip()
        for one in ET.fromstring(svg).iter()
        if one.tag.endswith("text")
    ]


def test_curves_zones_and_chance_are_labelled(results) -> None:
    drawing = figures.roc(results)
    assert drawing is not None
    shown = texts(drawing.svg)
    for text in ("strong", "$x$ <b>", "blind: words", "control: strong", "chance", "not resolved",
                 "indicative", "100%", "non-members flagged (false-positive rate)"):  # fmt: skip
        assert text in shown, text
    assert "control" in drawing.words
    assert "AUC 0.850" in drawing.words


def test_lines_differ_in_more_than_colour(results) -> None:
    drawing = figures.roc(results)
    assert drawing is not None
    dashes = re.findall(r"stroke-dasharray: ([^;\"]+)", drawing.svg)
    assert len(set(dashes)) >= 4


def test_no_curves_no_figure() -> None:
    assert figures.roc(reports.results()) is None
    strong = reports.attack("strong", 0.9)
    assert figures.histogram(reports.results(), strong, np.array([]), np.array([1.0])) is None


def test_the_histogram_shows_the_threshold_and_counts(results) -> None:
    rng = np.random.default_rng(0)
    drawing = figures.histogram(
        results, results.attacks[0], rng.normal(2, 1, 300), rng.normal(0, 1, 200)
    )
    assert drawing is not None
    shown = texts(drawing.svg)
    for text in ("members (n = 300)", "non-members (n = 200)", "threshold at 10% FPR"):
        assert text in shown
    assert "members: median 1.92, middle half from 1.29 to 2.68" in drawing.words


def test_equal_scores_are_drawn_too(results) -> None:
    drawing = figures.histogram(results, results.attacks[0], np.ones(9), np.ones(9))
    assert drawing is not None


def test_nothing_comes_from_elsewhere_and_nothing_changes(results, monkeypatch) -> None:
    import matplotlib as mpl

    first = figures.roc(results)
    with mpl.rc_context({"lines.linewidth": 9, "font.size": 30}):
        second = figures.roc(results)
    assert first == second
    assert first is not None
    for word in (
        "<style",
        "<!--",
        "<metadata",
        "DejaVu",
        "@import",
        "http://www.w3.org/1999/xhtml",
    ):
        assert word not in first.svg
    ids = re.findall(r'\bid="([^"]+)"', first.svg)
    assert len(ids) == len(set(ids))
    assert all(one.startswith("roc-") for one in ids)
    assert {link[1:] for link in re.findall(r'href="([^"]+)"', first.svg)} <= set(ids)


def test_thinned_points_lie_on_the_curve() -> None:
    row = with_curve("strong", n=5000)
    assert row.roc is not None
    fpr, tpr = figures._thinned(row, 1e-4)
    assert len(fpr) <= 121
    assert (np.diff(fpr) > 0).all()
    for x, y in zip(fpr, tpr, strict=True):
        # Slowly: the highest point of the curve at no higher a rate.
        slow = max(t for f, t in zip(row.roc.fpr, row.roc.tpr, strict=True) if f <= x)
        assert y == max(slow, 1e-4)


def test_zones_follow_independent_records_not_rows(results) -> None:
    drawn = figures._drawn(results)
    assert figures._independent(drawn) == pytest.approx(40)  # 4 expected at a rate of 0.1


def test_at_most_four_attacks_get_a_curve_and_the_chosen_is_one() -> None:
    many = tuple(with_curve(f"a{i}", auc=0.9 - i / 100) for i in range(9))
    results = reports.results(attacks=(*many, with_curve("strong", auc=0.6)))
    names = [row.name for row, _ in figures._drawn(results)]
    assert names == ["strong", "a0", "a1", "a2"]
