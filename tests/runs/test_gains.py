"""What attacks on weights, and attacks that learn, add to the likelihood of the answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import records
import reports
import tiny
import torch

import unseen
from unseen.attacks import create, label
from unseen.report import language as say
from unseen.report import markdown
from unseen.report.summary import gains
from unseen.runs.judge import Judge
from unseen.runs.plan import choose_attacks
from unseen.runs.results import Gain, Number
from unseen.runs.subjects import Scored, Subjects
from unseen.signals.base import Observations
from unseen.targets.access import Access
from unseen.types import Scores

N = 50
IDS = tuple(map(str, range(2 * N)))
MEMBER = np.arange(2 * N) < N


@dataclass(frozen=True)
class Named:
    """An attack whose scores are given: only what it is is asked."""

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = ""

    def signals(self) -> tuple[Any, ...]:
        return ()


@dataclass(frozen=True)
class OnWeights(Named):
    access: ClassVar[Access] = Access.WHITE_BOX


@dataclass(frozen=True)
class Learns(Named):
    fitted: ClassVar[bool] = True


def drawn(effect: float, seed: int, shared: float = 0.0) -> Scores:
    common = np.random.default_rng(100).normal(size=2 * N)
    own = np.random.default_rng(seed).normal(size=2 * N)
    return Scores(IDS, effect * MEMBER + shared * common + (1 - shared) * own)


def auc_by_pairs(scores: Scores, ids: list[str]) -> float:
    """The share of pairs in which the member scores higher; ties count half."""
    of = dict(zip(scores.ids, scores.values.tolist(), strict=True))
    members = [of[id_] for id_ in ids if MEMBER[int(id_)]]
    others = [of[id_] for id_ in ids if not MEMBER[int(id_)]]
    return float(np.mean([(m > n) + (m == n) / 2 for m in members for n in others]))


def judged(*attacks: Any, made: dict[str, Scores]) -> tuple[Gain, ...]:
    judge = Judge(unseen.FinetuneAudit(bootstrap=500), Subjects(IDS, MEMBER))
    given = {name: made[name] for name in map(label, attacks)}
    empty = Observations(IDS, {})
    return judge.judge(tuple(attacks), (), empty, given=Scored(given)).gains


LOSS, MIN_K = create("loss"), create("min_k")


def test_a_gain_is_the_difference_of_both_aucs_on_the_records_that_both_have_scored() -> None:
    weights, learns = OnWeights(), Learns()
    part = drawn(1.0, 2)
    part = Scores(IDS[7:], part.values[7:], dict.fromkeys(IDS[:7], "too short"))
    made = {
        "loss": drawn(0.5, 0),
        "min_k": part,
        "on_weights": drawn(1.5, 1),
        "learns": drawn(1, 3),
    }
    found = judged(LOSS, MIN_K, weights, learns, made=made)
    assert [(gain.attack, gain.baseline) for gain in found] == [
        ("on_weights", "loss"), ("on_weights", "min_k"), ("learns", "loss"), ("learns", "min_k"),
    ]  # fmt: skip
    for gain in found:
        ids = sorted(set(made[gain.attack].ids) & set(made[gain.baseline].ids), key=int)
        first, second = (auc_by_pairs(made[name], ids) for name in (gain.baseline, gain.attack))
        assert gain.difference.value == pytest.approx(second - first)
        assert gain.difference.ci[0] < gain.difference.value < gain.difference.ci[1]
        assert sum(gain.difference.n) == len(ids)


def test_what_learns_has_the_wider_interval_and_pairs_make_it_shorter() -> None:
    made = {"loss": drawn(1, 0, 0.8), "on_weights": drawn(1, 1, 0.8), "learns": drawn(1, 1, 0.8)}
    fixed, learnt = judged(LOSS, OnWeights(), Learns(), made=made)
    widths = [float(np.diff(gain.difference.ci)[0]) for gain in (fixed, learnt)]
    assert widths[1] > 1.25 * widths[0]
    made = {"loss": drawn(1, 0), "on_weights": drawn(1, 1)}
    (apart,) = judged(LOSS, OnWeights(), made=made)
    assert float(np.diff(apart.difference.ci)[0]) > 1.5 * widths[0]


def test_others_are_not_held_against_the_answers() -> None:
    made = {"loss": drawn(1, 0), "named": drawn(1, 1), "on_weights": drawn(1, 2)}
    assert judged(LOSS, Named(), made=made) == ()
    assert judged(OnWeights(), made=made) == ()


def test_too_few_records_are_said() -> None:
    for ids in (IDS[:3], IDS[N - 1 : N + 1]):
        out = dict.fromkeys(set(IDS) - set(ids), "too short")
        few = Scores(ids, np.arange(float(len(ids))), out)
        (found,) = judged(LOSS, OnWeights(), made={"loss": drawn(1, 0), "on_weights": few})
        assert found.difference is None
        assert found.note


def test_attacks_on_weights_bring_the_baselines_that_they_are_held_against() -> None:
    found = choose_attacks(("optimization_gap",))
    assert {"loss", "min_k"} <= set(found)
    assert not found["loss"][1], "left out where it cannot be run, and no fault"
    assert "loss" not in choose_attacks(("zlib",))
    assert choose_attacks(("optimization_gap", "loss"))["loss"][1]


def test_a_report_claims_no_gain_without_one() -> None:
    def one(*ci: float) -> Number:
        return Number(value=sum(ci) / 2, ci=ci, confidence=0.95, method="m", n=(9, 9))

    given = (
        Gain(attack="g", baseline="loss", difference=one(-0.02, 0.04)),
        Gain(attack="g", baseline="min_k", difference=one(0.01, 0.05)),
        Gain(attack="h", baseline="loss", difference=one(-0.2, -0.1)),
        Gain(attack="h", baseline="min_k", note="too few"),
    )
    results = reports.results(gains=given)
    assert gains(results) == [
        ("g − loss", "+0.010 [−0.020, +0.040]", "no gain is shown"),
        ("g − min_k", "+0.030 [+0.010, +0.050]", "a gain"),
        ("h − loss", "−0.150 [−0.200, −0.100]", "less than the answers say"),
        ("h − min_k", "–", "too few"),
    ]
    text = markdown.render(results)
    assert say.GAINS.rpartition(": ")[2] in text
    assert "| g − loss | +0.010" in text


@pytest.mark.slow
def test_an_audit_shows_them_and_keeps_them_when_it_is_scored_again(tmp_path: Path) -> None:
    members, nonmembers = records.sides(tmp_path / "data", 12)
    model = tiny.folder(tmp_path / "model", dtype=torch.float32)
    found = unseen.audit_finetune(
        str(model), members=str(members), nonmembers=str(nonmembers), attacks=("optimization_gap",),
        bootstrap=200, fpr=(0.1,), run_dir=tmp_path / "run", cache_dir=tmp_path / "cache",
    )  # fmt: skip
    assert [gain.baseline for gain in found.results.gains] == ["loss", "min_k"]
    assert unseen.score_run(found.folder).results.gains == found.results.gains
    assert "optimization_gap − loss" in unseen.report_run(found.folder, "html")
