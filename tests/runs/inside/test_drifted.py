"""What one step shows, from drifts that are made by hand, so that what must be found is known."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import records
import reports
import tiny
import torch
from rich.console import Console

import unseen
from unseen.attacks.g_drift import FEATURES, GROUPS, GradientDriftAttack, table
from unseen.attacks.g_drift_stability import ParaphraseStability
from unseen.metrics.roc import auc
from unseen.metrics.splits import JUDGE, learnt_aucs, splits
from unseen.report import figures, html, markdown, terminal
from unseen.report import language as say
from unseen.runs.config import StatisticsChoices
from unseen.runs.inside.drifted import (
    ABLATION,
    ALL,
    CLASSIFIER,
    FIRST_LOSS,
    LOSS,
    MOST_MOVEMENT,
    OFFERED_MOVEMENT,
    drifted,
    stability,
)
from unseen.runs.judge import Judge
from unseen.runs.results import FeatureSet
from unseen.runs.subjects import Subjects
from unseen.signals.base import Observations
from unseen.signals.gradient_drift import Drift
from unseen.signals.paraphrased import Drifts, ParaphrasedDrift
from unseen.types import Scores

N = 60
IDS = tuple(f"r{i:03d}" for i in range(N))
MEMBER = np.arange(N) % 2 == 0
ATTACK = GradientDriftAttack()


def drift(rng: np.random.Generator, member: bool, moved: float = 0.02, **fields: float) -> Drift:
    """Non-members lose more and move further; the projection before the step says nothing."""
    loss = rng.normal(1.0 if member else 3.0, 1.0) ** 2
    at = rng.normal(size=1)
    given = {
        "loss": loss, "logit": 10 - loss + rng.normal(), "projection": at,
        "loss_after": loss + 0.1 * (1 + loss), "logit_after": 9 - loss, "projection_after": at,
        "drift": 40 * moved * (1 + 0.1 * loss), "norm": 40.0, "cosine": 0.999, "n_tokens": 1, "literal": 0,
    }  # fmt: skip
    return Drift(**(given | fields))


def made(*attacks: GradientDriftAttack, moved: float = 0.02, only: tuple[str, ...] = IDS, **fields):
    """Observations in which a step moves states in proportion to its length."""
    values = {}
    for attack in attacks or (ATTACK,):
        rng = np.random.default_rng(0)
        (signal,) = attack.signals()
        values[signal] = {
            id_: drift(rng, member, moved * attack.eta / 1e-2, **fields)
            for id_, member in zip(IDS, MEMBER.tolist(), strict=True)
            if id_ in only
        }
    return Observations(IDS, values)


def judge(**choices) -> Judge:
    clusters = choices.pop("clusters", None)
    return Judge(
        StatisticsChoices(**({"bootstrap": 200} | choices)), Subjects(IDS, MEMBER, clusters)
    )


def report(*attacks: GradientDriftAttack, **fields):
    run = attacks or (ATTACK,)
    return drifted(judge(), run, made(*run, **fields), {})


@pytest.fixture(autouse=True)
def few_fits(request, monkeypatch) -> None:
    """Few classifiers where they are not what is tested."""
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr("unseen.runs.inside.drifted.ABLATION", {})
        monkeypatch.setattr("unseen.runs.inside.drifted.N_SPLITS", 3)


@pytest.fixture
def two_rows(monkeypatch) -> None:
    monkeypatch.setattr("unseen.runs.inside.drifted.ABLATION", {ALL: "", "all but loss": "loss"})


# --- the step -----------------------------------------------------------------------------------


def test_a_step_is_told_by_its_medians_of_all_and_of_each_side() -> None:
    found = report(literal=1)
    assert found is not None
    (step,) = found.steps
    (values,) = made().values.values()
    of_all = [one.drift / one.norm for one in values.values()]
    of_members = [values[id_].loss_after - values[id_].loss for id_ in IDS[::2]]
    assert step.movement.all.median == pytest.approx(np.median(of_all))
    assert step.movement.all.half == pytest.approx(np.quantile(of_all, [0.25, 0.75]))
    assert step.ascent.members.median == pytest.approx(np.median(of_members))
    assert (step.ascent.members.n, step.ascent.nonmembers.n) == step.n == (30, 30)
    assert step.cosine.nonmembers.median == 0.999
    assert step.n_literal == 60
    assert step.rank is not None
    assert step.rank.value == pytest.approx(1), "the drift was made to follow the loss"
    assert step.small
    assert (step.offered, found.floor) == (None, None)


def test_a_step_that_is_not_small_is_offered_another_in_proportion() -> None:
    found = report(moved=1.0)
    assert found is not None
    (step,) = found.steps
    assert not step.small
    assert step.movement.all.median > MOST_MOVEMENT
    assert step.offered_by == "scaling"
    expected = 1e-2 * OFFERED_MOVEMENT / step.movement.all.median
    assert step.offered_eta == pytest.approx(expected, rel=0.05), "two digits of it"
    assert step.offered == f"g_drift[eta={step.offered_eta}]"
    turned = report(cosine=0.5)
    assert turned is not None
    assert not turned.steps[0].small


def test_between_steps_that_were_taken_the_offered_one_is_interpolated() -> None:
    etas = (1e-4, 1e-2, 1.0)
    attacks = tuple(GradientDriftAttack(eta=eta) for eta in etas)
    observations = made(*attacks, moved=0.5)
    for signal, power in zip(observations.values, (0.6, 0.8, 0.9), strict=True):
        values = observations.values[signal]
        for id_, one in values.items():
            values[id_] = replace(one, drift=one.norm * (one.drift / one.norm) ** power)
    found = drifted(judge(), attacks, observations, {})
    assert found is not None
    by_eta = {step.eta: step for step in found.steps}
    assert [by_eta[eta].small for eta in etas] == [True, False, False]
    low, high = (np.log(by_eta[eta].movement.all.median) for eta in etas[:2])
    share = (np.log(OFFERED_MOVEMENT) - low) / (high - low)
    for step in list(by_eta.values())[1:]:
        assert step.offered_eta == pytest.approx(
            np.exp(np.log(1e-4) + share * np.log(100)), rel=0.05
        )
        assert step.offered_by == "interpolation"


def test_a_step_of_no_length_is_the_floor_and_no_step_of_its_own_kind_is_mixed_with_others() -> (
    None
):
    none, one, other = (
        GradientDriftAttack(eta=0.0),
        GradientDriftAttack(eta=0.5),
        GradientDriftAttack(eta=0.5, tokens="all", without="drift"),
    )
    found = report(none, one, other, moved=0.02)
    assert found is not None
    assert found.floor == found.steps[0].movement.all.median == 0
    assert found.attack == "g_drift[eta=0.5]"
    assert [step.attack for step in found.steps[1:]] == [
        "g_drift[eta=0.5]",
        "g_drift[eta=0.5,tokens=all,without=drift]",
    ]
    assert {step.offered_by for step in found.steps[1:]} == {"scaling"}
    default = report(GradientDriftAttack(eta=1e-3), ATTACK, GradientDriftAttack(without="loss"))
    assert default is not None
    assert default.attack == "g_drift"
    assert len(default.steps) == 2, "one of two attacks that look at the same step"


def test_without_a_drift_on_both_sides_there_is_nothing_to_say() -> None:
    assert drifted(judge(), [ATTACK], made(only=IDS[::2]), {}) is None
    assert drifted(judge(), [], made(), {}) is None


# --- Table 2 ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("two_rows")
def test_what_was_scored_already_is_the_first_row_and_others_are_held_against_it() -> None:
    scores = judge().score(ATTACK, made())
    found = drifted(judge(), [ATTACK], made(), {"g_drift": scores})
    assert found is not None
    first, second = found.features
    assert first.auc == judge().row("g_drift", scores, kind="attack", attack=ATTACK).auc
    assert first.auc is not None
    assert first.auc.value > 0.8
    assert first.difference is None
    without = judge().score(GradientDriftAttack(without="loss"), made())
    assert second.auc == judge().row("x", without, kind="attack", attack=ATTACK).auc
    assert second.auc is not None
    assert second.difference is not None
    assert second.difference.value == pytest.approx(second.auc.value - first.auc.value)
    assert second.difference.ci[0] < second.difference.value < second.difference.ci[1]


@pytest.mark.slow
def test_every_row_of_table_2_is_there_and_says_where_the_signal_is() -> None:
    found = report()
    assert found is not None
    assert [row.without for row in found.features] == list(ABLATION.values())
    assert list(ABLATION.values())[1:13] == [*FEATURES, *GROUPS]
    aucs = {row.name: row.auc.value for row in found.features if row.auc is not None}
    assert len(aucs) == len(ABLATION)
    assert aucs["drift alone"] > 0.8
    assert aucs["loss before alone"] > 0.8
    assert aucs["projections alone"] < 0.65, "they were made to say nothing"
    differences = {row.name: row.difference for row in found.features}
    low, high = differences["all but projection"].ci  # type: ignore[union-attr]
    assert low < 0 < high


@pytest.mark.parametrize("name", ABLATION)
def test_each_row_leaves_in_what_its_name_says(name: str) -> None:
    left = GradientDriftAttack(without=ABLATION[name]).features
    alone = {
        "drift alone": ("drift",),
        "loss before alone": ("loss_before",),
        "projections alone": ("projection_before", "projection_after"),
    }
    if name in alone:
        assert left == alone[name]
    else:
        out = name.removeprefix("all but ").replace("what is ", "").replace(" ", "_")
        assert set(left) == set(FEATURES) - set(GROUPS.get(out, (out,)))


@pytest.mark.usefixtures("two_rows")
def test_with_too_few_known_records_the_table_says_why_it_is_empty() -> None:
    found = drifted(judge(), [ATTACK], made(only=IDS[:44]), {})
    assert found is not None
    (row,) = found.features
    assert row.auc is None
    assert "fewer than 20 known records" in row.note
    assert "fewer than 20 records of a side" in found.protocol.note
    assert found.protocol.rows == ()


# --- the paper's protocol -----------------------------------------------------------------------


def test_the_protocol_judges_classifier_and_loss_on_the_same_parts() -> None:
    (values,) = made().values.values()
    loss = Scores(IDS[1:], -np.array([values[id_].loss + 1 for id_ in IDS[1:]]))
    found = drifted(judge(), [ATTACK], made(), {LOSS: loss})
    assert found is not None
    assert found.protocol.n == (29, 30), "records without a loss are left out of it"
    rows = {row.name: row for row in found.protocol.rows}
    assert list(rows) == [CLASSIFIER, FIRST_LOSS, LOSS]
    assert rows[LOSS].auc == rows[FIRST_LOSS].auc, "it was made of it"
    member = MEMBER[1:]
    parts = splits(member, rng=np.random.default_rng([0, 20]), n=3)
    learnt = learnt_aucs(table([values[id_] for id_ in IDS[1:]]), member, parts)
    fixed = [
        auc(loss.values[member & (part == JUDGE)], loss.values[~member & (part == JUDGE)])
        for part in parts
    ]
    for row, expected in (
        (rows[CLASSIFIER].auc, learnt),
        (rows[LOSS].auc, np.array(fixed)),
        (rows[LOSS].difference, learnt - fixed),
    ):
        assert (row.mean, row.sd) == pytest.approx((np.mean(expected), np.std(expected, ddof=1)))
    assert rows[CLASSIFIER].difference is None
    without = report()
    assert without is not None
    assert [row.name for row in without.protocol.rows] == [CLASSIFIER, FIRST_LOSS]


def test_clusters_that_no_split_can_hold_are_a_reason() -> None:
    found = drifted(judge(clusters=tuple(i // 20 for i in range(N))), [ATTACK], made(), {})
    assert found is not None
    assert "clusters" in found.protocol.note


# --- Figure 3 -----------------------------------------------------------------------------------


def test_shapes_are_min_max_normalised_quantiles_and_means_of_each_side() -> None:
    found = report()
    assert found is not None
    assert [shape.name for shape in found.shapes] == ["loss", "logit", "state"], (
        "the projection moves all records alike"
    )
    (values,) = made().values.values()
    raw = [one.drift for one in values.values()]
    low, high = min(raw), max(raw)
    members = sorted((values[id_].drift - low) / (high - low) for id_ in IDS[::2])
    shape = found.shapes[-1]
    assert (shape.low, shape.high) == (low, high)
    assert len(shape.quantiles[0]) == len(shape.quantiles[1]) == 21
    assert shape.quantiles[0][0] == pytest.approx(members[0])
    assert shape.quantiles[0][-1] == pytest.approx(members[-1])
    for level, quantile in zip(np.linspace(0, 1, 21), shape.quantiles[0], strict=True):
        place = level * (len(members) - 1)
        below = int(place)
        above = min(below + 1, len(members) - 1)
        slow = members[below] + (place - below) * (members[above] - members[below])
        assert quantile == pytest.approx(slow)
    assert shape.members.value == pytest.approx(np.mean(members))
    assert shape.difference.value == pytest.approx(shape.members.value - shape.nonmembers.value)
    assert shape.difference.ci[1] < 0, "members drift less"


def test_the_order_of_the_records_has_no_say_in_the_step_and_the_shapes() -> None:
    turned = Judge(StatisticsChoices(bootstrap=200), Subjects(IDS[::-1], MEMBER[::-1]))
    there, back = (drifted(one, [ATTACK], made(), {}) for one in (judge(), turned))
    assert there is not None
    assert back is not None
    assert back.steps[0].movement == there.steps[0].movement
    for one, other in zip(there.shapes[-1].quantiles, back.shapes[-1].quantiles, strict=True):
        assert one == pytest.approx(other)


# --- what is read of it ---------------------------------------------------------------------------


def shown(found) -> tuple[str, str, str]:
    """The report as Markdown, as a page, and what a terminal shows."""
    results = reports.results(drift=found)
    console = Console(width=400, file=StringIO())
    terminal.show(results, console)
    page = html.render(reports.folder(Path(tempfile.mkdtemp()) / "run", results), results)
    return markdown.render(results), page, console.file.getvalue()  # type: ignore[attr-defined]


def test_the_report_tells_it() -> None:
    assert "What does one step show?" not in markdown.render(reports.results())
    found = report(GradientDriftAttack(eta=0.0), ATTACK, moved=1.0)
    assert found is not None
    auc = reports.number(0.8)
    row = FeatureSet(name="all but loss", without="loss", auc=auc, difference=auc)
    found = found.model_copy(update={"features": (row,)})
    for text in shown(found):
        assert "it is not small" in text
        assert f"eta={found.steps[1].offered_eta}" in text
    page, site, said = shown(found)
    for text in (page, site):
        for words in (
            "What does one step show?",
            "A step of length 0 moves the median state by 0 of its length",
            "all but loss",
            "no confidence interval",
            "min-max",
        ):
            assert words in text
    assert 'aria-label="Cumulative distributions' in site
    assert "on 3 random splits, as the paper judges" in said
    assert "A step of length 0" not in said
    assert say.WITHHELD in markdown.render(reports.invalid(drift=found))
    small = report()
    assert small is not None
    assert "is not small" not in shown(small)[0]
    assert "was tried" not in shown(small)[0]
    check = reports.check("gradient_step", "pass", limit="not at all", detail="they agree")
    tried = markdown.render(reports.results(drift=small, checks=(check,)))
    assert "was tried on one record" in tried
    assert "passed (not at all). They agree." in tried


def test_a_figure_of_three_drifts_is_drawn_too_and_none_of_none() -> None:
    found = report()
    assert found is not None
    assert len(found.shapes) == 3
    drawing = figures.shapes(reports.results(drift=found))
    assert drawing is not None
    assert drawing.svg.count("</svg>") == 1
    assert "state, |h' − h|: mean of members" in drawing.words
    assert drawing.svg == figures.shapes(reports.results(drift=found)).svg  # type: ignore[union-attr]
    assert figures.shapes(reports.results(drift=found.model_copy(update={"shapes": ()}))) is None


@pytest.mark.slow
def test_an_audit_steps_on_a_real_model_and_scoring_again_finds_the_same(tmp_path) -> None:
    members, nonmembers = records.sides(tmp_path / "data", 30)
    model = tiny.folder(tmp_path / "model", dtype=torch.float32)
    done = unseen.audit_finetune(
        model=str(model), members=str(members), nonmembers=str(nonmembers), bootstrap=200,
        attacks=("g_drift", "g_drift[eta=0]"), fpr=(0.1,), run_dir=tmp_path / "run",
        cache_dir=tmp_path / "cache", access="weights", reference="none",
    )  # fmt: skip
    found = done.results.drift
    assert found is not None
    assert [step.attack for step in found.steps] == ["g_drift", "g_drift[eta=0.0]"]
    assert found.steps[0].n == (30, 30)
    assert found.steps[0].n_literal == 0
    assert found.steps[0].ascent.all.median > 0
    assert found.floor < 1e-5
    assert found.attack == "g_drift"
    row = next(row for row in done.results.attacks if row.name == "g_drift")
    assert found.features[0].auc == row.auc
    assert [row.name for row in found.protocol.rows] == [CLASSIFIER, FIRST_LOSS, LOSS]
    assert unseen.score_run(done.folder).results.drift == found
    assert "What does one step show?" in unseen.report_run(done.folder, "md")


# --- under paraphrase -------------------------------------------------------------------------------


def steady(ids: tuple[str, ...] = IDS) -> Observations:
    """Members move alike however they are asked for, non-members do not."""
    rng = np.random.default_rng(0)
    values = {}
    for id_, member in zip(IDS, MEMBER.tolist(), strict=True):
        moved = rng.normal(scale=2.0) + rng.normal(scale=0.1 if member else 3.0, size=3)
        zero = np.zeros(3)
        values[id_] = Drifts(zero, zero, zero, moved, np.abs(moved), zero + 40)
    signal = ParaphrasedDrift()
    kept = {id_: values[id_] for id_ in ids}
    return Observations(IDS, {signal: kept}, {signal: dict.fromkeys(set(IDS) - set(ids), "none")})


def test_drifts_that_stay_the_same_in_other_words_are_told_by_side() -> None:
    attack = ParaphraseStability()
    found = stability(judge(), [ATTACK, attack], steady(IDS[2:]))
    assert found is not None
    assert (found.n, found.n_paraphrases, found.unscored) == ((29, 29), 116, {"none": 2})
    (values,) = steady().values.values()
    sizes = [float(np.abs(values[id_].moved).mean()) for id_ in IDS[2::2]]
    assert found.members.size.value == pytest.approx(np.mean(sizes))
    assert found.members.agreement.value > 0.95
    assert found.nonmembers.agreement.value < 0.6
    assert found.difference.spread.ci[1] < 0
    assert stability(judge(), [ATTACK], steady()) is None
    few = stability(judge(), [attack], steady(IDS[:10]))
    assert few is not None
    assert few.members is None
    assert "expected at least 10 of each" in few.note
    clustered = stability(judge(clusters=tuple(i // 4 for i in range(N))), [attack], steady())
    assert clustered is not None
    assert clustered.members.size.n == (30, 0)


def test_the_report_tells_it_by_side() -> None:
    found = stability(judge(), [ParaphraseStability()], steady(IDS[2:]))
    page = markdown.render(reports.results(stability=found))
    assert "What does one step show?" in page
    assert "Is the drift the same in other words?" in page
    assert "2 records without: none" in page
    assert "members − non-members" in page
    few = stability(judge(), [ParaphraseStability()], steady(IDS[:10]))
    assert "Not told: got 5 members" in markdown.render(reports.results(stability=few))


@pytest.mark.slow
@pytest.mark.parametrize("source", ["file", "generate"])
def test_an_audit_asks_in_other_words(tmp_path, source: str) -> None:
    members, nonmembers = records.sides(tmp_path / "data", 12)
    model = tiny.folder(tmp_path / "model", dtype=torch.float32)
    lines = [*members.read_text().splitlines(), *nonmembers.read_text().splitlines()]
    rows = list(map(json.loads, lines))
    texts = [{"id": row["id"], "paraphrase": f"Pray, {row['prompt']}"} for row in rows[1:]]
    file = tmp_path / "p.jsonl"
    file.write_text("\n".join(map(json.dumps, texts)))
    more = {"paraphrases": str(file)} if source == "file" else {"generator": str(model)}
    spec = "g_drift_stability" if source == "file" else "g_drift_stability[source=generate]"
    choices = {
        "model": str(model), "members": str(members), "nonmembers": str(nonmembers), "fpr": (0.1,),
        "bootstrap": 200, "attacks": (spec,), "reference": "none", "cache_dir": tmp_path / "cache",
    }  # fmt: skip
    done = unseen.audit_finetune(**choices, **more, run_dir=tmp_path / "run")
    found = done.results.stability
    assert found is not None
    assert found.attack == spec
    if source == "file":
        assert found.n == (11, 12)
        assert found.unscored == {"no paraphrase is given for this record": 1}
        assert done.results.data.paraphrases.n_records == 23
    assert found.members is not None
    assert unseen.score_run(done.folder).results.stability == found
    assert next(check for check in done.results.checks if check.id == "gradient_step")
    for kept in done.folder.rglob("*"):
        assert not kept.is_file() or b"Pray, " not in kept.read_bytes()
    with pytest.raises(unseen.UnseenError, match="--paraphrases FILE"):
        unseen.audit_finetune(**choices | {"attacks": ("g_drift_stability",)})
