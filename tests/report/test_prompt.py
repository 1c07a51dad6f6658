"""What a report says of a prompt, from numbers alone."""

import reports

from unseen.report import figures, markdown, prompt, summary
from unseen.report.sections import sections
from unseen.runs.results import AtThreshold, PromptFacts, Results, SettingResult, Shift

FACTS = PromptFacts(
    template="triage.txt", chat=False, n_labels=3, observed=False, n_pool=80, pool_sha256="p00l",
    trials=40, paired=False, shots=1, position="last", tokens=(10, 20, 30),
    unparsed={"strong": 0.25}, never={"strong": 0.4, "other": 1.0}, no_room={"strong": 0.1, "other": 0.0},
)  # fmt: skip


def setting(shots: int, position: str, value: float, defense: str = "none") -> SettingResult:
    return SettingResult(
        name=f"{shots}{position}{defense}",
        shots=shots,
        position=position,
        defense=defense,
        n=(40, 40),
        attacks=(reports.attack("strong", value), reports.attack("blind", 0.5, "blind")),
        control=(reports.attack("strong", 0.5, "control"),),
        differences=(Shift(attack="strong", difference=reports.number(value - 0.8)),),
    )


def found(**changes) -> Results:
    run = reports.results().run.model_copy(update={"scenario": "prompt"})
    settings = (
        setting(4, "last", 0.7),
        setting(4, "first", 0.6),
        setting(1, "last", 0.55, "instruction"),
    )
    parts = {"run": run, "prompt": FACTS, "settings": settings, "slices": ()}
    return reports.results(**(parts | changes))


def test_settings_stand_one_below_the_other_attack_by_attack() -> None:
    rows = prompt.lines(found())
    strong = [row for row in rows if row[3] == "strong"]
    assert [row[:3] for row in strong] == [
        ("1", "last", ""),
        ("4", "last", ""),
        ("4", "first", ""),
        ("1", "last", "instruction"),
    ]
    assert strong[0][5] == ""
    assert strong[1][5].startswith("−0.100")
    assert strong[1][7].startswith("0.500")
    assert len(prompt.aucs(found())) == len(rows)
    assert prompt.lines(found(settings=())) == []


def test_thresholds_of_papers_stand_beside_those_of_other_trials() -> None:
    assert prompt.advantages(found()) == []
    told = AtThreshold(threshold=0.85, advantage=reports.number(0.3))
    attacks = (
        reports.attack("weak", 0.6, advantage=reports.number(0.1)),
        reports.attack("strong", 0.8, advantage=reports.number(0.5), by_paper=told),
        reports.attack("blind", 0.5, "blind"),
    )
    rows = prompt.advantages(found(attacks=attacks))
    assert [row[0] for row in rows] == ["strong", "weak"]
    assert [row[2] for row in rows] == ["0.85", "–"]
    assert rows[0][1].startswith("0.500")
    assert rows[0][3].startswith("0.300")
    assert rows[1][3] == "–"


def test_series_leave_defences_out_and_need_two_points() -> None:
    shots, places = prompt.by_shots(found()), prompt.by_place(found())
    assert list(shots["strong"]) == ["1", "4"]
    assert list(places["strong"]) == ["last", "first"]
    one = found(settings=(setting(4, "last", 0.7),))
    assert prompt.by_place(one) == {}
    assert figures.settings(found(settings=())) is None


def test_the_figure_says_what_it_shows() -> None:
    drawing = figures.settings(found())
    assert drawing is not None
    assert drawing.svg.startswith("<svg ")
    assert "AUC by demonstrations: " in drawing.words
    assert "4 0.70 [" in drawing.words
    assert figures.settings(found()).svg == drawing.svg


def test_the_best_attacks_stand_beside_each_other() -> None:
    header, *rows = prompt.beside(found(), 1)
    assert header[0] == "setting"
    assert len(header) == 2
    assert [row[0] for row in rows] == [
        "1 demonstration, last",
        "4 demonstrations, last",
        "4 demonstrations, first",
        "1 demonstration, last, instruction",
    ]


def test_controls_are_called_by_what_they_stand_behind() -> None:
    labels = [summary.label(row) for row in summary.rows(found())]
    assert "control: strong behind an empty prompt" in labels
    assert "control: strong on the reference" in [
        summary.label(row) for row in summary.rows(reports.results())
    ]


def test_the_head_says_how_trials_were_drawn() -> None:
    facts = dict(pair for pair in summary.facts(found()) if pair[0])
    assert facts["prompt"].startswith("triage.txt, 1 demonstration, the record in question last")
    assert facts["data"].startswith("40 trials by coin, of 80 records")
    observed = FACTS.model_copy(update={"observed": True, "trials": None, "shots": None})
    facts = dict(pair for pair in summary.facts(found(prompt=observed, settings=())) if pair[0])
    assert facts["prompt"].startswith("at the other end, asked by triage.txt")
    assert "50 members" in facts["data"]


def test_sections_speak_of_prompts() -> None:
    ids = [one.id for one in sections(found(), reports.about())]
    assert ids.index("attacks") < ids.index("settings") < ids.index("records")
    assert "settings" not in [one.id for one in sections(reports.results(), reports.about())]
    text = markdown.render(found(), reports.about())
    for said in (
        "# Membership audit of a prompt",
        "rows behind an empty prompt",
        "answers to strong that could not be read: 25.0%",
        "wrong labels that other insisted on in vain: 100.0%",
        "wrong labels that strong insisted on in vain: 40.0%",
        "of all of them, for want of room: 10.0%",
        "unseen audit prompt --config",
        "a fair coin says which",
        "members and their prompts, sha256",
    ):
        assert said in text
    assert text.count("for want of room") == 1
    assert "training" not in text.replace(markdown.safe(reports.SENTENCE), "")


def test_invalid_evidence_withholds_settings_too() -> None:
    withheld = reports.invalid(
        run=found().run, prompt=FACTS, settings=found().settings, slices=(), headline=None
    )
    text = markdown.render(withheld, reports.about())
    assert "no evidence, neither that the prompt leaks" in text
    section = text.partition("## In which setting")[2].partition("## Which records")[0]
    assert "are no finding" in section


def test_groups_are_those_of_columns_and_of_settings() -> None:
    rows = summary.groups(found())
    assert {row["by"] for row in rows} == {"position", "shots"}
    assert [row["value"] for row in rows if row["by"] == "shots" and row["attack"] == "strong"] == [
        "1",
        "4",
    ]
    assert {row["by"] for row in summary.groups(reports.results())} == {"<b>"}
