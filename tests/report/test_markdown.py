from __future__ import annotations

import pytest
import reports

from unseen.report.markdown import render, safe
from unseen.report.summary import footnotes, percent_rate, rows, shown_rates


@pytest.fixture
def results():
    return reports.results()


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
    for words in ("# Membership audit", reports.SENTENCE, "strong", "only these records"):
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


def test_the_same_sections_as_the_page(results) -> None:
    text = render(results, reports.about())
    titles = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert titles == [
        "Leakage found, with caution", "Is the evidence valid?", "How well do the attacks work?",
        "Which records are exposed?", "Which groups?", "What does it mean?", "Cost and coverage",
        "Provenance", "Limits",
    ]  # fmt: skip
    for part in (
        "overlap: what overlap found", "| warning | overlap |", "look at &lt;b&gt;dropped.csv",
        "6 of 50 members score above", "| scored tokens | 90 | 41 | 0.80 |", "AML.T0024.000",
        "unseen compare RUN_BEFORE RUN_AFTER",
        "@misc{doe2027270100001", "tokens read by the target: 777", "⟨content, 31 tokens, scored⟩",
        "unseen audit finetune --config runs/r/config.yaml",
    ):  # fmt: skip
        assert part in text, part


def test_a_refusal_has_no_headline() -> None:
    text = render(reports.invalid(epsilon=reports.bound()), reports.about())
    assert "## Refused: the evidence is invalid" in text
    assert "the two files differ without any model" in text
    for part in (reports.SENTENCE, "►", "score above every", "ε ≥", "How the finding was made"):
        assert part not in text, part


def test_a_bound_on_epsilon_says_that_it_is_one() -> None:
    assert "ε ≥ 2.30 (lower bound" in render(reports.results(epsilon=reports.bound()))
    other = render(reports.results(epsilon=reports.bound("indicative")))
    assert "2.30 (indicative, not a bound" in other


def test_nothing_closes_a_fence() -> None:
    about = reports.about()
    about["config"]["model"] = "a\n```\n<script>"
    text = render(reports.results(), about)
    block = text[text.index("folds: 2") :]
    assert block[: block.index("````")].count("```") == 1


def test_scores_from_elsewhere_have_a_report_too() -> None:
    bare = reports.results(
        run=reports.results().run.model_copy(update={"scenario": "scores", "id": ""}), target={},
        access="", data=None, checks=(), validity=None, threat_model=None, exposed=None, slices=(),
        control=(), skipped={},
    )  # fmt: skip
    assert "# Membership scores" in render(bare)
