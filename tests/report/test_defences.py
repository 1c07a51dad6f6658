"""What a report says of the defences of a prompt."""

import io
import re

import reports
from rich.console import Console

from unseen.report import defences, figures, markdown, terminal
from unseen.runs.results import Attacker, Defence, Defended, GuaranteeFacts, Results


def attacker(advantage: float) -> Attacker:
    return Attacker(
        auc=reports.number(0.5 + advantage / 2),
        advantage=reports.number(advantage),
        tpr=reports.number(advantage),
        fpr=reports.number(0.05),
    )


def against(name: str, before: float, fixed: float, known: float, shift: float) -> Defended:
    return Defended(
        attack=name,
        before=attacker(before),
        fixed=attacker(fixed),
        recalibrated=attacker(known),
        difference=reports.number(shift),
    )


GUARANTEE = GuaranteeFacts(
    epsilon=30.67, delta=1e-3, loss=31.46, sigma=0.69, releases=14, rate=1.0, n_private=1,
    accountant="exact Gaussian", degenerate=True,
)  # fmt: skip


def found() -> Results:
    accuracy = {"accuracy_before": reports.number(0.6), "accuracy": reports.number(0.5)}
    filtered = (against("repeat", 0.8, 0.1, 0.7, -0.15), against("gap", 0.1, 0.1, 0.1, 0.0))
    told = (against("repeat", 0.8, 0.9, 0.95, 0.2), against("gap", 0.1, 0.1, 0.1, 0.0))
    drawn = (against("repeat", 0.8, 0.0, 0.05, -0.05),)
    return reports.results().model_copy(
        update={
            "defences": (
                Defence(name="a", defense="rewrite_filter", shots=1, position="last", fpr=0.1,
                        similarity=reports.number(0.73), attacks=filtered, **accuracy),
                Defence(name="b", defense="instruction", shots=1, position="last", fpr=0.1,
                        attacks=told, **accuracy),
                Defence(name="c", defense="dp_demonstrations[sigma=0.69]", shots=1, position="last",
                        fpr=None, attacks=drawn, guarantee=GUARANTEE, notes=("not for production",),
                        **accuracy),
            )
        }
    )  # fmt: skip


def test_the_attack_that_gets_furthest_speaks_for_all() -> None:
    results = found()
    assert defences.followed(results) == ("repeat",)
    filtered, told, drawn = defences.sentences(results)
    assert filtered.startswith(
        "rewrite_filter: it leaks less. For who knows of it, the AUC of repeat"
    )
    assert "An advantage of 0.700" in filtered
    assert "0.100 [0.000, 0.200] for who does not know of it" in filtered
    assert told.startswith("instruction: it leaks more.")
    assert "no difference is resolved" in drawn
    assert drawn.startswith("dp_demonstrations[sigma=0.69]: ")


def test_beside_one_that_reads_probabilities_the_best_of_text_alone_is_followed() -> None:
    results = found()
    (row, *_) = results.attacks
    rows = tuple(
        row.model_copy(update={"name": name, "access": access})
        for name, access in (("repeat", "logprob"), ("gap", "text"))
    )
    results = results.model_copy(update={"attacks": rows})
    assert defences.followed(results) == ("repeat", "gap")
    assert [line[:2] for line in defences.in_lines(results)][:2] == [
        ("rewrite_filter", "repeat"),
        ("rewrite_filter", "gap"),
    ]
    drawing = figures.tradeoff(results)
    assert "Advantage of gap against right answers." in drawing.words
    assert drawing.svg.count("right answers about records") == 2


def test_other_settings_are_in_the_tables_alone() -> None:
    results = found()
    first, second, third = results.defences
    moved = second.model_copy(update={"shots": 3})
    results = results.model_copy(update={"defences": (first, moved, third)})
    assert len(defences.sentences(results)) == len(defences.in_lines(results)) == 2
    assert len(defences.leakage(results)) == 5
    assert any(line[0] == "instruction (3, last)" for line in defences.leakage(results))
    assert "instruction" not in figures.tradeoff(results).words


def test_no_number_is_without_its_interval() -> None:
    text = markdown.render(found())
    section = re.search(r"## What does a defence help\?\n(.*?)\n## ", text, re.DOTALL).group(1)
    for number in (r"0.900 \[0.800, 1.000\]", r"0.730 \[0.630, 0.830\]"):
        assert number in section
    assert "30.7 (delta 0.001)" in section
    assert "the privacy loss alone exceeds 31.5 as often" in section
    assert "not for production" in section
    assert section.count("| gap |") == 4


def test_a_terminal_shows_one_attack() -> None:
    screen = io.StringIO()
    terminal.show(found(), Console(file=screen, width=160))
    shown = screen.getvalue()
    assert "what a defence takes" in shown
    assert shown.count("repeat") >= 3
    assert "0.950 [0.850" in shown


def test_the_figure_holds_leakage_against_usefulness() -> None:
    drawing = figures.tradeoff(found())
    assert drawing is not None
    assert "advantage of repeat" in drawing.svg
    assert "right answers" in drawing.svg
    assert drawing.words.count("advantage") == 7
    assert drawing.words.startswith(
        "Advantage of repeat against right answers. without: advantage 0.80"
    )
    assert drawing.svg == figures.tradeoff(found()).svg
    assert figures.tradeoff(reports.results()) is None


def test_without_defences_nothing_is_said() -> None:
    assert "What does a defence help?" not in markdown.render(reports.results())


def test_where_the_evidence_is_invalid_nothing_is_concluded() -> None:
    from unseen.runs.results import Validity

    invalid = found().model_copy(update={"validity": Validity(verdict="invalid", reasons=("x",))})
    section = markdown.render(invalid).partition("What does a defence help?")[2]
    assert "it leaks less" not in section
