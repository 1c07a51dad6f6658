"""Attacks that learn from scores, where scores and membership meet."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import records

import unseen
from unseen import attacks
from unseen.attacks.base import Attack
from unseen.errors import AccessError, ConfigError
from unseen.runs.config import StatisticsChoices
from unseen.runs.fused import FEWEST, is_learnt, obstacles, repeated, sources, widened
from unseen.runs.judge import Judge, Verdicts
from unseen.runs.plan import choose_attacks
from unseen.runs.results import Results
from unseen.runs.subjects import Scored, Subjects
from unseen.signals.base import Observations
from unseen.types import BoolArray, FloatArray, Scores

pytestmark = pytest.mark.slow


NAMES = ("loss", "zlib", "min_k", "reference", "wbc")
FUSIONS = ("fusion", "fusion[reference=False]")


def made(*specs: str) -> tuple[Attack, ...]:
    return tuple(map(attacks.create, specs))


def ids(n: int) -> tuple[str, ...]:
    return tuple(f"r{i:04d}" for i in range(n))


def scores_of(values: FloatArray, missing: Mapping[str, str] | None = None) -> Scores:
    gone = missing or {}
    kept = [i for i, id_ in enumerate(ids(len(values))) if id_ not in gone]
    return Scores(tuple(ids(len(values))[i] for i in kept), values[kept], gone)


def judge_of(member: BoolArray, **choices: Any) -> Judge:
    choices = {"bootstrap": 200, **choices}
    return Judge(StatisticsChoices(**choices), Subjects(ids(len(member)), member))


def judged(judge: Judge, given: Mapping[str, Scores], *fusions: str) -> Verdicts:
    run = made(*given, *fusions)
    return judge.judge(run, (), Observations(ids(sum(judge.n)), {}), given=Scored(given))


def noise(rng: np.random.Generator, n: int) -> dict[str, Scores]:
    return {name: scores_of(rng.normal(size=n)) for name in NAMES}


# --- from whose scores it learns ---------------------------------------------------------------


@dataclass(frozen=True)
class Learning:
    """An attack of somebody else that learns from known records."""

    access: ClassVar = attacks.create("loss").access
    paper: ClassVar[str] = "none"
    fitted: ClassVar[bool] = True

    def signals(self) -> tuple[Any, ...]:
        return attacks.create("loss").signals()


def test_it_learns_from_all_others_but_baselines_and_what_learns() -> None:
    run = (*made("bag_of_words", *NAMES, *FUSIONS), Learning())
    with_reference, without = made(*FUSIONS)
    assert sources(with_reference, run) == NAMES
    assert sources(without, run) == ("loss", "zlib", "min_k")


def test_too_few_scores_and_the_same_scores() -> None:
    assert obstacles(made("loss", "zlib", *FUSIONS)) == dict.fromkeys(
        FUSIONS, f"it learns from the scores of {FEWEST} or more other attacks, here are 2"
    )
    assert set(obstacles(made("loss", "zlib", "wbc", *FUSIONS))) == {FUSIONS[1]}
    same = made("loss", "zlib", "min_k", *FUSIONS)
    assert obstacles(same) == {}
    assert repeated(same) == {
        FUSIONS[1]: "it would be fusion: the scores to learn from are the same"
    }
    assert repeated(made(*NAMES, *FUSIONS)) == {}


# --- what it makes of them ---------------------------------------------------------------------


def test_weak_scores_that_know_different_things_add_up() -> None:
    rng = np.random.default_rng(0)
    member = np.arange(400) % 2 == 0
    given = {name: scores_of(rng.normal(size=400) + 0.7 * member) for name in NAMES}
    verdicts = judged(judge_of(member), given, *FUSIONS)
    aucs = {row.name: row.auc for row in verdicts.attacks}
    assert all(auc is not None for auc in aucs.values())
    best = max(aucs[name].value for name in NAMES)
    assert aucs["fusion"].value > best + 0.05
    assert best < aucs[FUSIONS[1]].value < aucs["fusion"].value
    assert verdicts.headline is not None
    assert verdicts.headline.chosen == ("fusion", "fusion"), "the choice is free to take it"
    assert [row.name for row in verdicts.attacks] == [*NAMES, *FUSIONS]


def test_the_label_of_a_record_has_no_say_in_its_own_score() -> None:
    rng = np.random.default_rng(1)
    n = 60
    member = np.arange(n) % 2 == 0
    given = noise(rng, n)
    # A score that nobody else has: what is learnt from this record's label alone would tell.
    given["loss"] = scores_of(np.where(np.arange(n) == 7, 50.0, given["loss"].values))
    turned = member.copy()
    turned[7] = not turned[7]
    as_is, other = judge_of(member), judge_of(turned)
    other._fit_folds = as_is._fit_folds
    a = judged(as_is, given, "fusion").scored.target["fusion"].values
    b = judged(other, given, "fusion").scored.target["fusion"].values
    fold = as_is._fit_folds
    assert fold is not None
    own = fold == fold[7]
    assert a[own].tolist() == b[own].tolist()
    assert (a[~own] != b[~own]).all()


def test_a_record_without_a_score_is_judged_by_the_others_and_one_without_any_is_not() -> None:
    rng = np.random.default_rng(2)
    n = 100
    member = np.arange(n) % 2 == 0
    first, second = ids(n)[:2]
    given = {}
    for name in NAMES:
        gone = {second: "too long"} | ({first: "too short"} if name == "loss" else {})
        given[name] = scores_of(rng.normal(size=n) + 2 * member, gone)
    scores = judged(judge_of(member), given, "fusion").scored.target["fusion"]
    assert set(ids(n)) - set(scores.ids) == {second}
    assert scores.unscored == {second: "no attack has scored this record"}


def test_too_few_records_to_learn_from() -> None:
    member = np.arange(8) % 2 == 0
    verdicts = judged(judge_of(member), noise(np.random.default_rng(3), 8), "fusion")
    assert set(verdicts.scored.target["fusion"].unscored.values()) == {
        "too few records to learn from in 5 folds"
    }


def covered(seeds: range, n: int) -> tuple[int, int, int, float]:
    """Of audits in which no score knows anything: intervals that miss 1/2 above and below, findings
    that are none, and the mean AUC of the fusion."""
    above, below, found, aucs = 0, 0, 0, []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        member = rng.permutation(np.arange(n) % 2 == 0)
        common = rng.normal(size=n)  # scores of one text resemble each other
        given = {name: scores_of(common + 0.5 * rng.normal(size=n)) for name in NAMES}
        verdicts = judged(judge_of(member, seed=seed), given, "fusion")
        auc = verdicts.attacks[-1].auc
        assert auc is not None
        above += auc.ci[0] > 0.5
        below += auc.ci[1] < 0.5
        assert not verdicts.attacks[-1].inverted
        found += verdicts.headline is not None and verdicts.headline.found
        aucs.append(auc.value)
    return above, below, found, float(np.mean(aucs))


def test_shuffled_labels_are_chance() -> None:
    above, _, found, mean = covered(range(12), 100)
    assert above <= 1
    assert found <= 1
    assert 0.4 < mean < 0.54


@pytest.mark.slow
def test_intervals_and_findings_hold_where_no_score_knows_anything() -> None:
    n = 120
    above, below, found, mean = covered(range(100, 100 + n), 120)
    # What learns from the other folds leans a little below 1/2. Of 120 intervals at 95 %, 3 may
    # miss on either side; 8 would be a chance of 1 in 80.
    assert 0.44 < mean < 0.51
    assert above < 8
    assert below < 8
    assert found < 8


def test_intervals_of_what_is_learnt_are_wider_by_the_root_of_two() -> None:
    rng = np.random.default_rng(4)
    member = np.arange(100) % 2 == 0
    scores = scores_of(rng.normal(size=100) + member)
    judge = judge_of(member, fpr=(0.1,))
    fixed = judge.row("loss", scores, kind="attack")
    learnt = judge.row("fusion", scores, kind="attack", attack=attacks.create("fusion"))
    assert judge.row("fusion", scores, kind="attack", learnt=True).auc == learnt.auc
    assert fixed.auc is not None
    assert learnt.auc is not None
    assert (fixed.auc.value, fixed.auc.confidence) == (learnt.auc.value, learnt.auc.confidence)
    widths = [np.ptp(np.log(np.array(one.auc.ci) / (1 - np.array(one.auc.ci)))) for one in
              (fixed, learnt)]  # fmt: skip
    assert widths[1] / widths[0] == pytest.approx(2**0.5, rel=0.03)
    assert (is_learnt(fixed), is_learnt(learnt)) == (False, True)
    assert {at.tpr.confidence for at in learnt.tpr_at_fpr if at.tpr} == {0.95}
    for confidence in (0.6, 0.95, 1 - 1e-9, 1 - 1e-15):
        assert confidence < widened(confidence) < 1 or confidence > 1 - 1e-12


def test_a_row_tells_whoever_judges_its_scores_again_that_they_are_learnt() -> None:
    rng = np.random.default_rng(5)
    member = np.arange(100) % 2 == 0
    given = {name: scores_of(rng.normal(size=100) + member) for name in NAMES}
    judge = judge_of(member)
    row = judged(judge, given, "fusion").attacks[-1]
    again = judge.row("fusion", judged(judge, given, "fusion").scored.target["fusion"],
                      kind="attack", learnt=is_learnt(row))  # fmt: skip
    assert again.auc == row.auc


# --- in a run ----------------------------------------------------------------------------------

CHEAP = ("loss", "zlib", "min_k", "reference")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return records.sides(tmp_path_factory.mktemp("data"), 40, plant=True)


@pytest.fixture
def audit(files: tuple[Path, Path], tmp_path: Path) -> Callable[..., unseen.Audit]:
    texts = [json.loads(line)["completion"] for line in files[0].read_text().splitlines()]

    def run(*specs: str, **choices: Any) -> unseen.Audit:
        given = {
            "members": str(files[0]),
            "nonmembers": str(files[1]),
            "attacks": specs,
            "run_dir": tmp_path / "run",
            "cache_dir": tmp_path / "cache",
            "bootstrap": 200,
            "fpr": (0.1,),
            "preflight": False,
        }
        target = unseen.FakeTarget(texts[:-5], strength=1.0)
        return unseen.audit_finetune(target, **(given | choices))

    return run


def without_times(results: Results) -> dict[str, Any]:
    dumped = results.model_dump(mode="json")
    for name in ("id", "created", "seconds"):
        dumped["run"].pop(name)
    return dumped


def test_scoring_again_learns_the_same_and_more_scores_are_learnt_from(
    audit: Callable[..., unseen.Audit],
) -> None:
    first = audit(*CHEAP, *FUSIONS, control="all")
    assert [row.name for row in first.results.control] == ["loss", "zlib", "min_k"]
    assert {row.name: row.n for row in first.results.attacks}["fusion"] == (40, 40)
    again = unseen.score_run(first.folder)
    assert without_times(again.results) == without_times(first.results)
    files = [path.name for path in (first.folder / "signals").iterdir()]
    assert not any("scores" in name for name in files), "they stand in records.parquet"


def test_a_finished_run_gets_a_fusion_without_its_model(
    audit: Callable[..., unseen.Audit],
) -> None:
    first = audit(*CHEAP)
    later = unseen.score_run(first.folder, FUSIONS)
    by_name = {row.name: row for row in later.results.attacks}
    assert set(by_name) >= {*CHEAP, *FUSIONS}
    assert by_name["fusion"].auc is not None
    table = later.to_pandas()
    given = {name: Scores(tuple(table["id"]), table[f"score.{name}"].to_numpy()) for name in CHEAP}
    judge = Judge(
        StatisticsChoices(bootstrap=200, fpr=(0.1,)),
        Subjects(tuple(table["id"]), table["member"].to_numpy()),
    )
    run = made(*CHEAP, "fusion")
    verdicts = judge.judge(run, (), Observations(tuple(table["id"]), {}), given=Scored(given))
    expected = verdicts.scored.target["fusion"].values
    assert table["score.fusion"].to_numpy().tolist() == expected.tolist()


def test_alone_it_learns_from_the_attacks_of_an_ordinary_audit() -> None:
    chosen = choose_attacks(("fusion",))
    assert chosen["fusion"][1]
    assert set(attacks.default()) <= set(chosen)
    assert not any(named for name, (_, named) in chosen.items() if name != "fusion")
    assert FUSIONS[1] not in choose_attacks(("loss", "zlib", "min_k", "fusion"))


def test_a_fusion_of_too_few_scores_is_refused(audit: Callable[..., unseen.Audit]) -> None:
    with pytest.raises(AccessError, match="fusion cannot be run: it learns from the scores of 3"):
        audit("loss", "fusion")
    with pytest.raises(ConfigError, match="fusion cannot be run: it learns from the scores of 3"):
        unseen.score_run(audit("loss", "zlib").folder, "fusion")


def test_without_a_reference_model_one_fusion_is_enough(
    audit: Callable[..., unseen.Audit],
) -> None:
    results = audit("loss", "zlib", "min_k", "fusion", reference="none").results
    assert [row.name for row in results.attacks if row.kind == "attack"] == [
        "loss",
        "zlib",
        "min_k",
        "fusion",
    ]
    assert results.control == ()
