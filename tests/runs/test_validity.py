from __future__ import annotations

import json

import numpy as np
import pytest

import unseen
from unseen.runs.judge import Judge
from unseen.runs.results import Check, DataFacts, Side
from unseen.runs.subjects import Scored, Subjects
from unseen.runs.validity import checks, concluded, of_preflight, power, verdict
from unseen.types import Scores

N = 100
IDS = tuple(map(str, range(2 * N)))
MEMBER = np.arange(2 * N) < N


def scores(effect: float, seed: int) -> Scores:
    return Scores(IDS, np.random.default_rng(seed).normal(size=2 * N) + effect * MEMBER)


def facts(**about) -> DataFacts:
    side = Side(path="x", sha256="0", n_read=N, n_judged=N)
    given = {"members": side, "nonmembers": side, "format": "text", "loss_on": "all"}
    return DataFacts(**given | {"template_sha256": "0"} | about)


def concluded_of(attack: Scores, blind: Scores | None, control: Scores | None = None, **about):
    judge = Judge(unseen.FinetuneAudit(bootstrap=200), Subjects(IDS, MEMBER))
    rows = [judge.row("loss", attack, kind="attack")]
    made = {"loss": attack}
    if blind is not None:
        rows.append(judge.row("words", blind, kind="blind"))
        made["words"] = blind
    controls = [] if control is None else [judge.row("loss", control, kind="control")]
    scored = Scored(made, {} if control is None else {"loss": control})
    fields = concluded(judge, judge.verdicts(rows, scored, controls), facts(**about))
    return fields, {check.id: check for check in fields["checks"]}


def test_an_attack_beside_a_blind_baseline_at_chance_is_valid() -> None:
    fields, by_id = concluded_of(scores(2, 0), scores(0, 1), scores(0, 2))
    assert fields["validity"].verdict == "valid"
    assert fields["headline"] is not None
    assert fields["exposed"] is not None
    assert {check.status for check in by_id.values()} <= {"pass", "skip"}


@pytest.mark.parametrize(
    ("attack", "baseline", "status"),
    [(2, 2, "fail"), (0.5, 0.5, "fail"), (9, 2, "fail"), (3, 0.45, "warn"), (2, 0.0, "pass")],
)
def test_a_baseline_above_chance_is_judged_by_how_far_and_by_what_the_attack_adds(
    attack, baseline, status
) -> None:
    fields, by_id = concluded_of(scores(attack, 0), scores(baseline, 1))
    assert by_id["blind_baseline"].status == status
    withheld = status == "fail"
    assert (fields["headline"] is None) == withheld
    assert (fields["validity"].verdict == "invalid") == withheld
    if withheld:
        assert fields["exposed"] is None
        assert "evidence is invalid" in fields["headline_note"]
    fields, by_id = concluded_of(scores(attack, 0), scores(0, 5), scores(baseline, 1))
    assert by_id["control"].status == status
    assert (fields["headline"] is None) == withheld


def test_no_blind_baseline_is_never_simply_valid() -> None:
    fields, by_id = concluded_of(scores(2, 0), None)
    assert by_id["blind_baseline"].status == "skip"
    assert fields["validity"].verdict == "caution"


@pytest.mark.parametrize(
    ("about", "id_"),
    [
        ({"truncated": 90}, "truncation"),
        ({"split_origin": "temporal"}, "split_origin"),
        (
            {
                "dropped": {"near_duplicate": 100},
                "members": Side(path="x", sha256="0", n_read=2 * N, n_judged=N),
            },
            "overlap",
        ),
    ],
)
def test_what_was_left_out_is_a_caution(about, id_) -> None:
    fields, by_id = concluded_of(scores(2, 0), scores(0, 1), **about)
    assert by_id[id_].status == "warn"
    assert by_id[id_].fix
    assert fields["validity"].verdict == "caution"
    assert fields["headline"] is not None


@pytest.mark.parametrize(("effect", "status"), [(-2, "fail"), (-0.45, "warn")])
def test_a_reference_that_knows_the_non_members_is_no_control(effect, status) -> None:
    fields, by_id = concluded_of(scores(2, 0), scores(0, 1), scores(effect, 2))
    assert by_id["control"].status == status
    assert "knows the non-members" in by_id["control"].detail
    assert (fields["headline"] is None) == (status == "fail")


def test_too_few_records_show_nothing_about_a_baseline() -> None:
    few = 12
    ids = tuple(map(str, range(2 * few)))
    member = np.arange(2 * few) < few
    judge = Judge(unseen.FinetuneAudit(bootstrap=200), Subjects(ids, member))
    made = {
        name: Scores(ids, np.random.default_rng(seed).normal(size=2 * few))
        for seed, name in enumerate(("loss", "words"))
    }
    rows = [
        judge.row("loss", made["loss"], kind="attack"),
        judge.row("words", made["words"], kind="blind"),
    ]
    found = checks(judge, judge.verdicts(rows, Scored(made), []), facts())
    assert found[0].status == "warn"
    assert "would not have been noticed" in found[0].detail


def test_members_that_score_lower_are_a_caution() -> None:
    fields, by_id = concluded_of(scores(-2, 0), scores(0, 1))
    assert by_id["sign"].status == "warn"
    assert "loss" in by_id["sign"].detail
    assert fields["validity"].verdict == "caution"


def test_records_without_a_score_are_a_caution() -> None:
    some = scores(2, 0)
    part = Scores(IDS[20:], some.values[20:], dict.fromkeys(IDS[:20], "too short"))
    _, by_id = concluded_of(part, scores(0, 1))
    assert by_id["coverage"].status == "warn"
    assert by_id["coverage"].value == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("n", "status", "words"),
    [
        (5000, "pass", "1% reliable, 0.1% indicative only; a reliable 0.1% takes 10000"),
        (10_000, "pass", "0.1% reliable"),
        (50, "warn", "10% is not reliable"),
        (5, "fail", "none of the rates"),
    ],
)
def test_the_smallest_rate_that_may_be_claimed(n, status, words) -> None:
    found = power(n, (0.001, 0.01, 0.1))
    assert found.status == status
    if status != "warn":
        assert words in found.detail
    else:
        assert "10% indicative only" in found.detail
        assert "100 non-members" in found.detail


def test_too_few_to_judge_anything_fails() -> None:
    found = power(5000, (0.01,), enough=False)
    assert found.status == "fail"


def check(id_: str, status: str) -> Check:
    return Check(id=id_, title=id_, status=status, detail="because")


def test_the_verdict_is_that_of_the_worst_check() -> None:
    rows = [check("a", "pass"), check("b", "skip")]
    assert verdict(rows).verdict == "valid"
    assert verdict([*rows, check("c", "warn")]).verdict == "caution"
    found = verdict([check("c", "warn"), check("d", "fail"), *rows])
    assert found.verdict == "invalid"
    assert found.reasons == ("d: because", "c: because")
    assert of_preflight([check("sign", "pass"), check("template", "pass")])[0].id == "template"


def test_sets_that_do_not_differ_are_hardly_ever_called_different() -> None:
    """All checks together, over sets without any difference and attacks that know nothing."""
    cried = 0
    for seed in range(60):
        judge = Judge(unseen.FinetuneAudit(bootstrap=200, seed=seed), Subjects(IDS, MEMBER))
        made = {name: scores(0, 10 * seed + i) for i, name in enumerate("abcw")}
        rows = [judge.row(n, made[n], kind="blind" if n == "w" else "attack") for n in made]
        control = {name: scores(0, 10 * seed + 5 + i) for i, name in enumerate("abc")}
        controls = [judge.row(n, control[n], kind="control") for n in control]
        found = checks(judge, judge.verdicts(rows, Scored(made, control), controls), facts())
        cried += verdict(found).verdict != "valid"
    assert cried <= 6  # 3 % of 60 are 1.8; more than 6 has probability below 0.005


@pytest.mark.slow
@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_wikimia_is_invalid_whatever_the_model_knows(tmp_path, real_data, strength) -> None:
    rows = [json.loads(line) for line in (real_data / "wikimia_64.jsonl").read_text().splitlines()]
    sides = [[row["text"] for row in rows if row["label"] == side] for side in (1, 0)]
    found = unseen.audit_finetune(
        unseen.FakeTarget(sides[0] if strength else (), strength=strength or 0.5),
        unseen.Records.from_texts(*sides),
        attacks=("loss",),
        run_dir=tmp_path / "run",
        cache=False,
        bootstrap=200,
    )
    assert found.results.validity.verdict == "invalid"
    assert found.headline is None
    assert found.results.data.n_telling_words > 2


@pytest.mark.slow
def test_random_halves_of_one_set_are_valid(tmp_path, real_data) -> None:
    rows = [json.loads(line) for line in (real_data / "tofu_full.jsonl").read_text().splitlines()]
    texts = [f"{row['prompt']} {row['response']}" for row in rows]
    valid = 0
    for seed in range(20):
        drawn = np.random.default_rng(seed).permutation(len(texts))[:600]
        found = unseen.audit_finetune(
            unseen.FakeTarget([texts[i] for i in drawn[400:]], strength=1.0),  # of a third part
            unseen.Records.from_texts(
                [texts[i] for i in drawn[:200]], [texts[i] for i in drawn[200:400]]
            ),
            attacks=("loss", "zlib", "min_k"),
            run_dir=tmp_path / str(seed),
            cache=False,
            bootstrap=200,
            seed=seed,
        )
        valid += found.results.validity.verdict == "valid"
    assert valid >= 19
