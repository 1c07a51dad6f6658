"""A model of the same format that was trained on other records, and what it shows about the sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest
import records
import tiny
import torch

import unseen
from unseen.cli.main import run as command
from unseen.errors import ConfigError
from unseen.runs.compare import compare
from unseen.runs.judge import Judge
from unseen.runs.subjects import Scored, Subjects
from unseen.runs.validity import ALARM, concluded
from unseen.signals.base import CONTROL, REFERENCE, Observations, as_control, asked_of
from unseen.signals.likelihoods import TextLikelihood
from unseen.signals.token_stats import TokenStatistics
from unseen.targets.access import Access
from unseen.types import Scores

pytestmark = pytest.mark.slow  # whole audits

N = 60
IDS = tuple(map(str, range(2 * N)))
MEMBER = np.arange(2 * N) < N


@pytest.fixture
def choices(tmp_path: Path) -> dict[str, Any]:
    """A fake target that remembers, and a fake control model that remembers others."""
    members, nonmembers = records.sides(tmp_path / "data", 40)
    others, _ = records.sides(tmp_path / "others", 40, seed=9)
    return {
        "model": f"fake/{members}",
        "control_model": f"fake/{others}",
        "members": str(members),
        "nonmembers": str(nonmembers),
        "attacks": ("loss", "min_k[k=0.5]", "reference"),
        "run_dir": tmp_path / "run",
        "cache_dir": tmp_path / "cache",
        "bootstrap": 200,
        "fpr": (0.1,),
    }


# --- the role ---------------------------------------------------------------------------------


def test_a_control_model_is_seen_as_target_beside_the_same_reference() -> None:
    signals = [TokenStatistics(of=role) for role in ("target", "reference", "control", "shadow")]
    seen = Observations(("a",), {signal: {"a": signal.of} for signal in signals})
    moved = seen.seen_as_target(CONTROL)
    assert moved.values == {
        TokenStatistics(): {"a": "control"},
        TokenStatistics(of="reference"): {"a": "reference"},
        TokenStatistics(of="shadow"): {"a": "shadow"},
    }
    assert TokenStatistics(of="reference") not in seen.seen_as_target(REFERENCE).values
    assert as_control(TokenStatistics(), CONTROL) == asked_of(TokenStatistics(), CONTROL)
    assert as_control(TextLikelihood(of="reference"), CONTROL) == TextLikelihood(of="reference")


def test_an_audit_asks_it_every_attack_that_can_be_repeated(choices, tmp_path, capsys) -> None:
    found = unseen.audit_finetune(**choices)
    results = found.results
    rows = [(row.name, row.model) for row in results.control]
    assert rows == [
        ("loss", "reference"),
        ("min_k[k=0.5]", "reference"),
        ("loss", "control"),
        ("min_k[k=0.5]", "control"),
        ("reference", "control"),
    ]
    assert {row.kind for row in results.control} == {"control"}
    of_model = next(check for check in results.checks if check.id == "control_model")
    assert of_model.status != "fail", of_model.detail
    assert results.control_model["model"] == choices["control_model"]
    assert results.headline is not None
    assert results.requests["control"] == results.requests["reference"]

    about = json.loads((found.folder / "run.json").read_text())
    assert list(about["fingerprints"]) == ["target", "reference", "control"]
    table = pq.read_table(found.folder / "records.parquet")
    columns = set(table.column_names)
    assert {"control.loss", "control_model.loss", "control_model.reference"} <= columns
    assert "control.reference" not in columns
    assert table["control.loss"] != table["control_model.loss"]
    assert unseen.verify_run(found.folder).ok

    markdown = unseen.report_run(found.folder, "md")
    for words in ("control: loss", "control model: loss", "control model: reference"):
        assert words in markdown
    assert "must stay at chance too" in markdown
    page = unseen.report_run(found.folder, "html")
    assert "control model: min" in page
    assert command(["score", str(found.folder)]) in (0, 10, 11)
    assert "control: loss on the control model" in capsys.readouterr().out


@pytest.mark.slow
def test_scoring_again_and_comparing_know_it(choices, tmp_path) -> None:
    first = unseen.audit_finetune(**choices, keep_tokens=True)
    again = unseen.score_run(first.folder, ["wbc"])
    before, after = ({(r.name, r.model): r for r in one.results.control} for one in (first, again))
    assert {key: row for key, row in after.items() if key in before} == before
    assert set(after) - set(before) == {("wbc", "control")}, "it is compared with the reference"
    other = unseen.audit_finetune(
        **choices | {"control_model": None, "run_dir": tmp_path / "without", "attacks": ("loss",)}
    )
    differs = {one.what: one.values for one in compare([first.folder, other.folder]).differs}
    assert differs["control model"][1] == "–"
    assert "setting control_model" not in differs


@pytest.mark.slow
def test_the_plan_counts_what_it_is_asked(choices, capsys) -> None:
    forecast = unseen.plan(**{k: v for k, v in choices.items() if k != "run_dir"})
    results = unseen.audit_finetune(**choices).results
    assert forecast.asked["control"].distinct == results.requests["control"]
    assert forecast.repeated == ("loss", "min_k[k=0.5]", "reference")
    options = [
        word
        for name in ("model", "control_model", "members", "nonmembers")
        for word in (f"--{name.replace('_', '-')}", choices[name])
    ]
    assert command(["plan", *options, "--attacks", "loss", "--no-cache"]) == 0
    said = capsys.readouterr().out
    assert "on the control model: loss" in said
    assert choices["control_model"] in said


def test_a_control_model_that_knows_the_members_withholds_the_claim(choices) -> None:
    names = {"model": f"fake/{choices['members']}", "control_model": f"fake/{choices['members']}"}
    with pytest.raises(ConfigError, match="has the same weights as the target"):
        unseen.audit_finetune(**choices | names)
    half = Path(choices["members"]).with_name("half.jsonl")
    half.write_text("".join(Path(choices["members"]).read_text().splitlines(keepends=True)[:30]))
    results = unseen.audit_finetune(**choices | {"control_model": f"fake/{half}"}).results
    (check,) = (one for one in results.checks if one.id == "control_model")
    assert check.status == "fail"
    assert results.headline is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"control": "none"}, "--control none repeats none"),
        ({"control_model": "fake/"}, "has the same weights as the reference"),
        ({"control_model": ""}, "control_model"),
    ],
)
def test_what_would_show_nothing_is_refused(choices, change, message) -> None:
    with pytest.raises(ConfigError, match=message):
        unseen.audit_finetune(**choices | change)


def test_doctor_says_whether_it_reads_as_the_target_does(choices, tmp_path) -> None:
    named = {"control_model": choices["control_model"]}
    rows = {row.name: row for row in unseen.doctor(choices["model"], **named).model}
    assert rows["control model"].ok
    assert "control model" not in {row.name for row in unseen.doctor(choices["model"]).model}


@pytest.mark.slow
def test_an_attack_on_weights_is_repeated_on_it_and_other_tokens_are_said(tmp_path) -> None:
    members, nonmembers = records.sides(tmp_path / "data", 12)
    folders = [
        tiny.folder(tmp_path / str(seed), seed=seed, dtype=torch.float32) for seed in range(2)
    ]
    choices: dict[str, Any] = {
        "model": str(folders[0]), "control_model": str(folders[1]), "members": str(members),
        "nonmembers": str(nonmembers), "attacks": ("optimization_gap",), "bootstrap": 200,
        "fpr": (0.1,), "run_dir": tmp_path / "run", "cache_dir": tmp_path / "cache",
    }  # fmt: skip
    results = unseen.audit_finetune(**choices).results
    assert ("optimization_gap", "control") in {(row.name, row.model) for row in results.control}
    assert results.reference is None
    file = folders[1] / "tokenizer.json"
    tokens = json.loads(file.read_text())
    tokens["model"]["merges"] = tokens["model"]["merges"][:1]
    file.write_text(json.dumps(tokens))
    said: list[str] = []
    other = choices | {"run_dir": tmp_path / "other", "reference": str(folders[0])}
    tiny.folder(folders[0], seed=5, dtype=torch.float32)
    target = tiny.folder(tmp_path / "target", seed=7, dtype=torch.float32)
    results = unseen.audit_finetune(
        **other | {"model": str(target), "attacks": ("loss", "reference")}, note=said.append
    ).results
    assert any("does not read records as the target does" in sentence for sentence in said)
    assert "format" in results.control_model
    assert {row.name for row in results.control if row.model == "control"} == {"loss"}
    assert "reference is not repeated" in results.control_model_note


@pytest.mark.slow
def test_a_control_that_was_trained_on_audited_records_is_refused(tmp_path) -> None:
    base = tiny.folder(tmp_path / "base", dtype=torch.float32)
    members, nonmembers = records.sides(tmp_path / "data", 24)
    training = {"model": str(base), "epochs": 1, "learning_rate": 1e-2, "batch_size": 8}
    target = unseen.train(
        **training, members=str(members), nonmembers=str(nonmembers), out=tmp_path / "target"
    )
    others, _ = records.sides(tmp_path / "others", 24, seed=9)
    rows = others.read_text().splitlines()
    control = unseen.train(**training, members=str(others), out=tmp_path / "control")
    others.write_text("\n".join([*rows, members.read_text().splitlines()[0]]))
    informed = unseen.train(**training, members=str(others), out=tmp_path / "informed")
    choices: dict[str, Any] = {
        "run_of": str(target.folder), "attacks": ("loss",), "bootstrap": 200, "fpr": (0.1,),
        "cache_dir": tmp_path / "cache", "run_dir": tmp_path / "run",
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"the control model .* was trained on 1 of the audited"):
        unseen.audit_finetune(**choices, control_model=str(informed.folder))
    results = unseen.audit_finetune(**choices, control_model=str(control.folder)).results
    assert [row.model for row in results.control] == ["reference", "control"]
    assert results.control_model["model"] == str(control.folder / "model")


# --- what it shows ----------------------------------------------------------------------------


class _Fitted:
    """Stands for an attack that learns: the judge asks it for no more than what it is."""

    access: ClassVar[Access] = Access.LOGIT
    paper: ClassVar[str] = ""
    fitted: ClassVar[bool] = True

    def signals(self) -> tuple[Any, ...]:
        return ()


class _OnWeights(_Fitted):
    access: ClassVar[Access] = Access.WHITE_BOX
    fitted: ClassVar[bool] = False


def drawn(effect: float, seed: int) -> Scores:
    return Scores(IDS, np.random.default_rng(seed).normal(size=2 * N) + effect * MEMBER)


def concluded_of(model: str, kind: Any, *effects: float, beside: float = 0.0) -> dict[str, Any]:
    """Fields of a result where an attack of some kind separates the target by 3 and controls less."""
    judge = Judge(unseen.FinetuneAudit(bootstrap=500), Subjects(IDS, MEMBER))
    made = {"a": drawn(3, 0), "words": drawn(0, 2)}
    rows = [
        judge.row("a", made["a"], kind="attack", attack=kind),
        judge.row("words", made["words"], kind="blind"),
    ]
    control = {"a": drawn(effects[0], 1), "b": drawn(beside, 3)}
    controls = [
        judge.row("a", control["a"], kind="control", attack=kind, model=model),
        judge.row("b", control["b"], kind="control", model=model),
    ]
    scored = Scored(made, **{"control" if model == "reference" else "control_model": control})
    fields = concluded(judge, judge.verdicts(rows, scored, controls), None)
    id_ = "control" if model == "reference" else "control_model"
    return fields | {"check": next(check for check in fields["checks"] if check.id == id_)}


@pytest.mark.parametrize("model", ["reference", "control"])
@pytest.mark.parametrize("kind", [_OnWeights(), _Fitted()])
def test_a_strict_control_above_chance_withholds_the_claim_however_far_the_target_goes_beyond(
    model, kind
) -> None:
    found = concluded_of(model, kind, 0.8)
    assert found["check"].status == "fail"
    assert "this set also separates without membership" in found["check"].detail
    assert found["headline"] is None
    assert found["validity"].verdict == "invalid"
    assert concluded_of(model, None, 0.6)["check"].status == "warn", (
        "what is not learnt may go beyond"
    )
    quiet = concluded_of(model, kind, 0.0)
    assert quiet["check"].status == "pass"
    assert quiet["headline"] is not None


def test_a_strict_control_is_named_before_one_that_is_further_off() -> None:
    found = concluded_of("control", _OnWeights(), 0.8, beside=1.1)
    assert found["check"].detail.startswith("a reaches")
    assert found["check"].status == "fail"


def test_learnt_controls_have_the_wider_interval_and_cry_above_chance_alone() -> None:
    judge = Judge(unseen.FinetuneAudit(bootstrap=500), Subjects(IDS, MEMBER))
    found = concluded_of("control", _Fitted(), 0.8)["check"]
    wide = judge.auc(drawn(0.8, 1), 1 - ALARM / 2, learnt=True)
    assert found.ci == wide.ci
    assert np.diff(wide.ci) > np.diff(judge.auc(drawn(0.8, 1), 1 - ALARM / 2).ci)
    assert concluded_of("control", _Fitted(), -0.8)["check"].status == "pass"
    below = concluded_of("control", _OnWeights(), -0.8)["check"]
    assert below.status in ("warn", "fail")
    assert "knows the non-members" in below.detail


def test_without_a_control_model_an_attack_on_weights_says_what_is_missing() -> None:
    judge = Judge(unseen.FinetuneAudit(bootstrap=200), Subjects(IDS, MEMBER))
    made = {"a": drawn(3, 0)}
    for kind, expected in ((_OnWeights(), ["skip"]), (None, [])):
        rows = [judge.row("a", made["a"], kind="attack", attack=kind)]
        found = concluded(judge, judge.verdicts(rows, Scored(made), []), None)["checks"]
        of_model = [check for check in found if check.id == "control_model"]
        assert [check.status for check in of_model] == expected
        assert all("--control-model" in check.fix for check in of_model)
