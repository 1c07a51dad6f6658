import contextlib
import csv
import json
from pathlib import Path

import demos
import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import roc_auc_score

import unseen
from unseen.attacks import create
from unseen.errors import (
    AccessError,
    BudgetError,
    ConfigError,
    PreflightError,
    TooFewRecordsError,
)
from unseen.metrics.interval import auc_interval
from unseen.runs.compare import compare
from unseen.runs.plan import Plan
from unseen.runs.prompt.judged import insisted
from unseen.runs.prompt.validity import _mended, _unparsed
from unseen.runs.results import PromptFacts
from unseen.runs.subjects import Subjects
from unseen.runs.validity import power
from unseen.signals.base import Observations
from unseen.signals.flipped import FlippedText, Flips
from unseen.targets.access import Access
from unseen.targets.fake import FakeTarget, FakeTokenizer
from unseen.targets.limited import LimitedTarget

pytestmark = pytest.mark.slow  # whole audits

ATTACKS = ("gap", "repeat[encoder=letters]")


def copying(**options) -> FakeTarget:
    return FakeTarget(**({"strength": 16.0} | options))


def choices(where: Path, **more) -> dict:
    if not (where / "sort.txt").is_file():
        demos.template(where / "sort.txt")
    given = {
        "template": str(where / "sort.txt"), "trials": 24, "attacks": ATTACKS, "bootstrap": 200,
        "fpr": 0.1, "cache_dir": where / "cache", "runs": where / "runs",
    }  # fmt: skip
    if not more.get("observed_prompt"):
        given["demos"] = str(demos.pool(where / "pool.jsonl", 60))
    else:
        del given["trials"]
    return given | more


def audit(where: Path, target=None, **more) -> unseen.Audit:
    return unseen.audit_prompt(target or copying(), **choices(where, **more))


def rows(found: unseen.Audit, kind: str = "attacks") -> dict:
    return {row.name: row for row in getattr(found.results, kind)}


# --- what it finds --------------------------------------------------------------------------------


def test_the_control_asks_the_same_behind_an_empty_prompt(tmp_path: Path) -> None:
    found = audit(tmp_path, paired=True)
    assert {row.name for row in found.results.control} == set(ATTACKS)
    for name in ATTACKS:
        assert rows(found)[name].auc.value > 0.8
        # One record is asked about both ways, and behind an empty prompt both are one question.
        assert rows(found, "control")[name].auc.value == 0.5
    (check,) = [one for one in found.results.checks if one.id == "control"]
    assert check.status == "pass"
    assert found.results.data.split_origin == "random"


@pytest.mark.parametrize(
    "choices", [{"paired": True}, {"demos": 24}, {}], ids=["paired", "again", "once"]
)
def test_records_that_are_asked_about_both_ways_are_drawn_for_both_sides(
    tmp_path: Path, choices: dict
) -> None:
    if "demos" in choices:
        choices = {"demos": str(demos.pool(tmp_path / "few.jsonl", choices["demos"]))}
    found = audit(tmp_path, attacks=ATTACKS[1:], shots=(1, 3), control="none", **choices)
    table = pq.read_table(found.folder / "records.parquet")
    assert ("on_both_sides" in table.column_names) == bool(choices)
    (row,) = [row for row in found.results.attacks if row.kind == "attack"]
    kept = [one for one in table.to_pylist() if one[f"score.{row.name}"] is not None]
    values = {
        side: [one[f"score.{row.name}"] for one in kept if one["member"] == side]
        for side in (True, False)
    }
    clusters = {
        side: [one["cluster"] for one in kept if one["member"] == side] for side in (True, False)
    }
    slow = auc_interval(
        values[True], values[False], rng=np.random.default_rng([0, 4]), draws=200,
        member_clusters=clusters[True], nonmember_clusters=clusters[False], together=bool(choices),
    )  # fmt: skip
    assert row.auc.ci == pytest.approx((slow.low, slow.high), abs=0.05)
    subjects, _ = Subjects.from_table(table)
    assert subjects.on_both_sides == bool(choices)
    again = unseen.score_run(found.folder, bootstrap=300)
    assert again.results.settings[0].differences


def test_settings_are_judged_by_themselves_and_held_against_the_main_one(tmp_path: Path) -> None:
    found = audit(tmp_path, shots=(1, 4), defenses="shots[n=2]")
    assert [(one.shots, one.defense) for one in found.results.settings] == [
        (4, "none"),
        (1, "shots[n=2]"),
        (4, "shots[n=2]"),
    ]
    main = pq.read_table(found.folder / "records.parquet").to_pydict()
    for one in found.results.settings:
        table = pq.read_table(found.folder / "settings" / f"{one.name}.parquet").to_pydict()
        assert table["id"] == main["id"]
        for row in one.attacks:
            kept = [at for at, v in enumerate(table[f"score.{row.name}"]) if v is not None]
            member = [table["member"][at] for at in kept]
            auc = roc_auc_score(member, [table[f"score.{row.name}"][at] for at in kept])
            assert row.auc.value == pytest.approx(auc)
        by_name = {shift.attack: shift.difference for shift in one.differences}
        own = {row.name: row for row in one.attacks}
        assert by_name["gap"].value == pytest.approx(
            own["gap"].auc.value - rows(found)["gap"].auc.value
        )
    assert found.results.settings[1].attacks == found.results.settings[2].attacks, "both show two"


def test_a_list_of_labels_stops_attacks_on_longer_text_and_no_others(tmp_path: Path) -> None:
    found = audit(tmp_path, attacks=(*ATTACKS, "brainwash[cap=3]"), defenses="label_filter")
    (defence,) = found.results.defences
    changes = {one.attack: one.difference.value for one in defence.attacks}
    assert changes["repeat[encoder=letters]"] < -0.2
    assert changes["gap"] == changes["brainwash[cap=3]"] == 0
    assert defence.accuracy == defence.accuracy_before


def test_a_place_drawn_anew_gives_groups(tmp_path: Path) -> None:
    found = audit(tmp_path, shots=2, position="random", trials=60, defenses=())
    assert {one.value for one in found.results.slices} == {"1", "2"}
    assert {row["value"] for row in found.slices("position")} >= {"1", "2"}
    with pytest.raises(unseen.UnseenError, match="unknown groups 'colour'"):
        found.slices("colour")


def test_which_case_is_about_which_record_is_kept_by_id(tmp_path: Path) -> None:
    found = audit(tmp_path)
    with (found.folder / "data" / "cases.csv").open() as file:
        listed = list(csv.DictReader(file))
    table = pq.read_table(found.folder / "records.parquet").to_pydict()
    assert [row["case"] for row in listed] == table["id"]
    assert [row["member"] == "1" for row in listed] == table["member"]
    assert {row["record"] for row in listed} <= {row["id"] for row in demos.rows(60)}


def test_text_is_kept_only_where_it_is_to_be_revealed(tmp_path: Path) -> None:
    hidden, shown = audit(tmp_path), audit(tmp_path, reveal=True, run_dir=tmp_path / "shown")
    assert "text" not in pq.read_table(hidden.folder / "records.parquet").column_names
    texts = pq.read_table(shown.folder / "records.parquet")["text"].to_pylist()
    assert {text.partition("\n")[0] for text in texts} <= {r["text"] for r in demos.rows(60)}


def test_answers_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    found = audit(tmp_path, FakeTarget(strength=0.1), attacks="gap")
    assert found.results.prompt.unparsed["gap"] > 0.9
    (check,) = [one for one in found.results.checks if one.id == "unparsed"]
    assert check.status == "warn"
    assert check.value == pytest.approx(1 - found.results.prompt.unparsed["gap"])


def test_an_attack_is_judged_by_the_threshold_of_its_paper_too(tmp_path: Path) -> None:
    names = (*ATTACKS, "brainwash[cap=4]", "brainwash[cap=3]", "hybrid[encoder=letters,cap=4]")
    found = audit(tmp_path, attacks=names)
    table = pq.read_table(found.folder / "records.parquet").to_pydict()
    rules = dict(zip(names, (1, None, 3.5, None, 0), strict=True))
    for name, row in rows(found).items():
        if rules.get(name) is None:
            assert row.by_paper is None, "none is named, or no count can be above it"
            continue
        flagged = {True: [], False: []}
        for member, score in zip(table["member"], table[f"score.{name}"], strict=True):
            flagged[member].append(score >= rules[name])
        told = row.by_paper
        assert told.threshold == rules[name]
        assert told.advantage.value == pytest.approx(
            np.mean(flagged[True]) - np.mean(flagged[False])
        )
        assert ("sqrt(2)" in told.advantage.method) == name.startswith("hybrid")
    text = unseen.report_run(found.folder, "md")
    assert "As the papers count" in text
    assert "its paper's threshold" in text


def test_labels_that_are_insisted_on_in_vain_are_counted(tmp_path: Path) -> None:
    names = ("brainwash[cap=3]", "hybrid[encoder=letters,cap=3]")
    found = audit(tmp_path, attacks=names, trials=12, max_length=250)
    table = pq.read_table(found.folder / "records.parquet").to_pydict()["score.brainwash[cap=3]"]
    about = found.results.prompt
    assert set(about.never) == set(about.no_room) == {names[0]}, "each question is counted once"
    # No prompt has room for two more demonstrations: whoever is not convinced by one never is.
    assert about.no_room == about.never
    in_vain = [score * 2 >= 3 for score in table]  # of two labels, one or both
    assert sum(in_vain) / len(table) >= about.never[names[0]] > 0
    assert "insisted on in vain" in unseen.report_run(found.folder, "md")


def test_insisting_in_vain_is_told_of_each_label() -> None:
    rng = np.random.default_rng(0)
    flips = {
        f"t{i}": Flips(0, rng.integers(5, size=3), rng.random(3) < 0.6, rng.random(3) < 0.2)
        for i in range(9)
    }
    attacks = (create("brainwash"), create("hybrid"), create("brainwash[calibrate=True]"))
    seen = Observations(tuple(flips), {FlippedText(): flips}, {})
    told = insisted(Plan(attacks, (), {}, None), seen)
    for name, field in (("never", "censored"), ("no_room", "cut")):
        n = sum(bool(flag) for one in flips.values() for flag in getattr(one, field))
        assert told[name] == {"brainwash": pytest.approx(n / 27)}


def test_where_the_finding_rests_on_other_answers_unread_ones_are_told_and_do_no_harm() -> None:
    facts = PromptFacts.model_construct(unparsed={"gap": 0.1, "inquiry": 1.0})
    (check,) = _unparsed(facts, ["gap"])
    assert check.status == "pass"
    assert "inquiry says little, and the finding does not rest on it" in check.detail


@pytest.mark.parametrize(
    ("facts", "fix"),
    [
        ({"trials": 6, "n_pool": 120}, "more --trials: these records are enough for 60"),
        ({"trials": 60, "n_pool": 120}, "more records in --demos, and more --trials"),
        ({"trials": None, "n_pool": None, "observed": True}, "give at least 10 members"),
    ],
)
def test_a_prompt_gets_more_records_to_judge_by_more_trials(facts: dict, fix: str) -> None:
    prompt = PromptFacts.model_construct(**({"observed": False} | facts))
    few = power(6, (0.1,), enough=False)
    found = _mended(few, prompt)
    assert found.fix is not None
    assert found.fix.startswith(fix)
    assert found.model_copy(update={"fix": few.fix}) == few


def test_audits_of_other_prompts_from_the_same_records_are_said_to_be(tmp_path: Path) -> None:
    one, other = audit(tmp_path, attacks="gap"), audit(tmp_path, attacks="gap", shots=4)
    with pytest.raises(ConfigError, match="drawn otherwise, although from the same rec") as raised:
        compare([one.folder, other.folder])
    assert "the same --shots" in str(raised.value.fix)
    assert "files" not in str(raised.value)


def test_a_prompt_at_the_other_end_is_asked_with_nothing_before(tmp_path: Path) -> None:
    members, others = demos.rows(60)[:30], demos.rows(30, seed=5)
    for name, side in (("in.jsonl", members), ("out.jsonl", others)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in side))
    # The deployed prompt stands behind the model: it knows what is in it, whatever it is asked.
    target = copying(
        strength=64.0, memorised=[f"Note: {row['text']}\nKind: {row['label']}\n" for row in members]
    )
    found = audit(
        tmp_path, target, observed_prompt=True, members=str(tmp_path / "in.jsonl"),
        nonmembers=str(tmp_path / "out.jsonl"),
    )  # fmt: skip
    assert rows(found)["repeat[encoder=letters]"].auc.ci[0] > 0.5
    assert not found.results.control
    assert "observed" in found.results.control_note
    assert found.results.prompt.observed
    assert found.results.data.split_origin == "unknown"
    statuses = {check.id: check.status for check in found.results.checks}
    assert (statuses["control"], statuses["split_origin"]) == ("skip", "skip")
    assert set(pq.read_table(found.folder / "records.parquet")["id"].to_pylist()) == {
        f"{side}/{i + 1}" for side in ("members", "nonmembers") for i in range(30)
    }


def test_a_target_of_text_alone_is_enough(tmp_path: Path) -> None:
    whole = audit(tmp_path)
    text = audit(tmp_path, LimitedTarget(copying(), Access.TEXT), run_dir=tmp_path / "text")
    assert text.results.access == "text"
    assert rows(text)["gap"].auc == rows(whole)["gap"].auc


def test_labels_are_read_by_choice_where_it_is_asked_for(tmp_path: Path) -> None:
    found = audit(tmp_path, attacks="gap", mode="choice")
    assert "gap[mode=choice]" in rows(found)
    assert {check.id for check in found.results.checks} >= {"answers", "logprobs_real"}
    with pytest.raises(ConfigError, match="--mode is read by gap"):
        audit(tmp_path, attacks="repeat[encoder=letters]", mode="choice")
    with pytest.raises(AccessError, match="needs logprob access"):
        audit(tmp_path, LimitedTarget(copying(), Access.TEXT), attacks="gap[mode=choice]")


# --- what it asks ---------------------------------------------------------------------------------


class Stopping(FakeTarget):
    """Stops as a killed process does, after so many texts."""

    left = 10**9

    def generate(self, prompts, **options):
        if self.left < len(prompts):
            raise KeyboardInterrupt
        self.left -= len(prompts)
        return super().generate(prompts, **options)


def test_a_run_that_was_stopped_goes_on_without_asking_twice(tmp_path: Path) -> None:
    whole = copying()
    expected = audit(tmp_path, whole, shots=(1, 2), batch_tokens=400)
    again = {
        "cache_dir": tmp_path / "other",
        "run_dir": tmp_path / "run",
        "shots": (1, 2),
        "batch_tokens": 400,
    }
    asked = 0
    for left in (30, 60, 10**9):
        target = Stopping(strength=16.0)
        target.left = left
        with contextlib.suppress(KeyboardInterrupt):
            found = audit(tmp_path, target, **again)
        asked += target.n_generated
    # The checks before are made once, as long as they were made to their end.
    assert asked == whole.n_generated
    assert found.results.attacks == expected.results.attacks
    assert found.results.settings == expected.results.settings
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert len(about["attempts"]) == 3
    paid = sum(n for one in about["attempts"] for n in one["requests_scored"].values())
    assert paid == sum(
        n
        for one in json.loads((expected.folder / "run.json").read_text())["attempts"]
        for n in one["requests_scored"].values()
    )


def test_what_would_be_too_much_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    target = copying()
    with pytest.raises(BudgetError, match="--max-requests allows 20: nothing was asked"):
        audit(tmp_path, target, max_requests=20)
    assert target.n_generated == 0


def test_a_budget_is_for_all_attempts_together(tmp_path: Path) -> None:
    run = {"run_dir": tmp_path / "run", "batch_tokens": 400}
    target = Stopping(strength=16.0)
    target.left = 60
    with pytest.raises(KeyboardInterrupt):
        audit(tmp_path, target, **run)
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    (spent,) = about["attempts"][0]["requests_scored"].values()
    assert spent > 0
    plan = unseen.plan(copying(), config=unseen.PromptAudit(**choices(tmp_path, **run)))
    texts = [one.texts for one in plan.asked.values()]
    left = sum(one.distinct - one.cached for one in texts)
    with pytest.raises(
        BudgetError, match=f"{left} questions are left to ask at least, {spent} were"
    ):
        audit(tmp_path, copying(), max_requests=left + spent - 1, **run)
    found = audit(tmp_path, copying(), max_requests=left + spent, **run)
    assert found.results.requests["target"] > 0


def test_a_plan_counts_what_is_asked(tmp_path: Path) -> None:
    forecast = unseen.plan(copying(), config=unseen.PromptAudit(**choices(tmp_path, shots=(1, 2))))
    target = copying()
    found = audit(tmp_path, target, shots=(1, 2), preflight=False)
    asked = sum(one.texts.distinct for one in forecast.asked.values())
    assert asked == target.n_generated
    assert forecast.n == (24, 24)
    assert len(forecast.settings) == 2
    assert found.results.requests["target"] <= asked


# --- what it refuses ------------------------------------------------------------------------------


class Moody(FakeTarget):
    """Answers otherwise each time."""

    def generate(self, prompts, **options):
        made = super().generate(prompts, **options)
        return [[(one + self.n_generated) % 256 for one in ids] for ids in made]


def test_a_model_that_answers_otherwise_each_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="answers differ, asked alone and then together"):
        audit(tmp_path, Moody(strength=16.0), run_dir=tmp_path / "run")
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["status"] == "refused"
    assert not (tmp_path / "cache" / "answers.sqlite").exists()


def test_faults_of_template_records_and_attacks_are_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        audit(tmp_path, template="trek", attacks="loss", labels="Amber,Birch")
    message = str(raised.value)
    for what in ("attack loss is one on training data", "unknown template 'trek'"):
        assert what in message
    with pytest.raises(ConfigError, match=r"have a label that is none of Amber, Birch \(line "):
        audit(tmp_path, labels="Amber,Birch")
    with pytest.raises(ConfigError, match="are both read as"):
        audit(tmp_path, labels="Amber,Birch,Cobalt,amber ")


def test_a_pool_that_is_too_small_or_of_one_label_is_refused(tmp_path: Path) -> None:
    few = [(row["text"], row["label"]) for row in demos.rows(5)]
    given = choices(tmp_path)
    del given["demos"], given["template"]
    game = {"template": tmp_path / "sort.txt", "trials": given.pop("trials")}
    with pytest.raises(TooFewRecordsError, match="holds 5 different records"):
        unseen.audit_prompt(copying(), unseen.PromptGame(demos=few, shots=4, **game), **given)
    same = [(text, "Amber") for text, _ in few]
    with pytest.raises(ConfigError, match="all 5 records have the same label"):
        unseen.audit_prompt(copying(), unseen.PromptGame(demos=same, **game), **given)


def test_prompts_that_do_not_fit_are_counted_and_refused_where_none_fits(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no prompt of 1 demonstration fits"):
        audit(tmp_path, max_length=60)
    lengths = pq.read_table(audit(tmp_path).folder / "records.parquet")["n_tokens"].to_pylist()
    found = audit(tmp_path, max_length=max(lengths), attacks="gap", run_dir=tmp_path / "r")
    n = sum(found.results.prompt.n_too_long)
    assert n == lengths.count(max(lengths))
    assert rows(found)["gap"].unscored == {"there is no room in the context for an answer": n}
    (check,) = [one for one in found.results.checks if one.id == "prompts_fit"]
    assert check.status == "warn"


def test_a_chat_needs_a_chat_template(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--chat-template"):
        audit(tmp_path, copying(tokenizer=FakeTokenizer(chat=False)), chat=True)
    found = audit(tmp_path, chat=True, attacks="gap")
    assert found.results.prompt.chat


def test_attacks_on_prompts_are_none_on_training_data(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="attack gap is one on prompts"):
        unseen.audit_finetune(FakeTarget(), members="a", nonmembers="b", attacks="gap")


def test_a_pool_with_fewer_pairs_than_trials_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    unseen.audit_prompt(copying(), **choices(tmp_path, trials=40, attacks="gap"), note=said.append)
    assert any("40 trials ask about 60 records" in one for one in said)


def test_two_files_that_differ_by_themselves_are_no_evidence(tmp_path: Path) -> None:
    members = demos.rows(30)
    others = [row | {"text": f"THEN {row['text'].upper()}"} for row in demos.rows(30, seed=5)]
    for name, side in (("in.jsonl", members), ("out.jsonl", others)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in side))
    found = audit(
        tmp_path, observed_prompt=True, members=str(tmp_path / "in.jsonl"),
        nonmembers=str(tmp_path / "out.jsonl"), attacks="gap",
    )  # fmt: skip
    (check,) = [one for one in found.results.checks if one.id == "blind_baseline"]
    assert check.status == "fail"
    assert "demonstrations that are drawn: --demos FILE" in check.fix
    assert found.headline is None
    assert "This run is no evidence" in (found.folder / "report.md").read_text()


def test_an_audit_can_be_printed(tmp_path: Path) -> None:
    said = audit(tmp_path, shots=(1, 2)).table()
    assert "control: gap behind an empty prompt" in said
    assert "2 demonstrations, last" in said
