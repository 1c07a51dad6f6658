from __future__ import annotations

import pytest

from unseen.report.markdown import render, safe
from unseen.report.summary import footnotes, percent_rate, rows, shown_rates
from unseen.runs.results import (
    AttackResult,
    Headline,
    Number,
    Results,
    RunFacts,
    Slice,
    TprAtFpr,
)


def number(value: float) -> Number:
    return Number(
        value=value, ci=(value - 0.1, value + 0.1), confidence=0.95, method="m", n=(50, 40)
    )


def attack(name: str, auc: float, kind: str = "attack", **more) -> AttackResult:
    at = (
        TprAtFpr(
            fpr=0.01, expected_false_positives=0.4, resolution="unresolvable", needs_nonmembers=100
        ),
        TprAtFpr(
            fpr=0.1,
            tpr=number(0.4),
            threshold=1.0,
            expected_false_positives=4,
            resolution="indicative",
            needs_nonmembers=100,
        ),
    )
    given = {"n": (50, 40), "auc": number(auc), "tpr_at_fpr": at} | more
    return AttackResult(name=name, kind=kind, **given)


@pytest.fixture
def results() -> Results:
    return Results(
        run=RunFacts(
            id="r", created="2026-01-01", tool="unseen", scenario="finetune", seed=0, plan="p",
            seconds=1.0,
        ),
        target={"model": "m|<script>alert(1)</script>", "provider": "hf"},
        access="logit",
        attacks=(
            attack("weak", 0.55, unscored={"too short": 3}),
            attack("strong", 0.9),
            attack("words", 0.5, "blind"),
            attack("upside_down", 0.2, inverted=True),
        ),
        control=(attack("strong", 0.5, "control"),),
        skipped={"other": "it needs logits"},
        headline=Headline(
            metric="tpr@fpr=0.1", fpr=0.1, chosen=("strong", "strong"), tpr=number(0.4),
            realised_fpr=number(0.1), found=True, sentence="40% are identified.",
        ),
        slices=(Slice(by="<b>", value="x|y", attack="strong", n=(5, 5), note="too few"),),
        limitations=("only these records",),
    )  # fmt: skip


def test_best_first_then_baselines_then_chance(results) -> None:
    assert [row.name for row in rows(results)] == [
        "strong", "weak", "upside_down", "words", "strong", "chance",
    ]  # fmt: skip
    assert [row.chosen for row in rows(results)] == [True] + [False] * 5


def test_only_rates_that_are_resolved_are_shown(results) -> None:
    assert shown_rates(results) == (0.1,)


def test_footnotes_say_what_the_table_cannot(results) -> None:
    notes = " ".join(footnotes(results))
    for words in (
        "1% FPR cannot be resolved", "it takes 100", "indicative", "3 × too short",
        "other was not run",
    ):  # fmt: skip
        assert words in notes


def test_every_part_is_there_and_nothing_is_markup(results) -> None:
    text = render(results)
    for words in ("# Membership audit", "40% are identified", "strong", "only these records"):
        assert words in text
    assert "<script>" not in text
    assert "<b>" not in text
    table = next(part for part in text.split("\n\n") if "| strong |" in part)
    assert len({line.count(" | ") for line in table.splitlines()}) == 1


def test_no_control_says_why(results) -> None:
    without = results.model_copy(update={"control": (), "control_note": "no reference model"})
    assert "no reference model" in render(without)


def test_no_finding_says_why(results) -> None:
    without = results.model_copy(update={"headline": None, "headline_note": "too few records"})
    assert "Too few records." in render(without)


def test_safe_keeps_text_text() -> None:
    assert safe("a*b_c`d[e]f|g\nh") == r"a\*b\_c\`d\[e\]f\|g h"


def test_rates_are_short() -> None:
    assert [percent_rate(rate) for rate in (0.001, 0.01, 0.05)] == ["0.1%", "1%", "5%"]
