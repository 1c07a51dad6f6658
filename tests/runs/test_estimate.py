from __future__ import annotations

import json
from pathlib import Path

import pytest
import records
import tiny
import torch

import unseen
from unseen.cli import plan as command
from unseen.cli.main import run
from unseen.errors import ConfigError, OutOfMemoryError
from unseen.runs.estimate import Forecast, timing
from unseen.types import Batch

pytestmark = pytest.mark.slow

ATTACKS = ("loss", "lowercase", "recall", "reference", "icp_sp")


@pytest.fixture
def given(tmp_path, monkeypatch) -> dict:
    monkeypatch.chdir(tmp_path)
    members, nonmembers = records.sides(tmp_path / "data", 40)
    return {
        "members": str(members),
        "nonmembers": str(nonmembers),
        "attacks": ATTACKS,
        "cache_dir": tmp_path / "cache",
        "batch_tokens": 3000,
        "bootstrap": 200,
    }


class Counting(unseen.FakeTarget):
    """Keeps the batches that it was asked."""

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self.batches: list[Batch] = []

    def execute(self, batch: Batch):
        self.batches.append(batch)
        return super().execute(batch)


def test_it_is_what_the_audit_then_asks(given, tmp_path) -> None:
    forecast = unseen.plan(unseen.FakeTarget(["x"]), **given)
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "cache").exists()
    target = Counting(["x"])
    results = unseen.audit_finetune(target, **given, preflight=False).results
    asked = forecast.asked["target"]
    assert asked.distinct == results.requests["target"]
    assert asked.cached == 0
    assert asked.requests > asked.distinct  # icp_sp and loss ask the same of a record
    assert asked.batches == len(target.batches)
    slow, prefix = 0, None
    for batch in target.batches:  # a prefix is read once for all batches that follow each other
        own = sum(len(row.context + row.continuation) - len(batch.prefix) for row in batch.requests)
        slow += own + (len(batch.prefix) if batch.prefix != prefix else 0)
        prefix = batch.prefix
    assert asked.tokens == slow
    assert forecast.asked["reference"].distinct == results.requests["reference"]
    assert forecast.n == (results.data.members.n_judged, results.data.nonmembers.n_judged)
    assert forecast.set_aside == results.data.set_aside
    assert forecast.attacks == tuple(row.name for row in results.attacks)
    assert forecast.example == results.data.example
    again = unseen.plan(unseen.FakeTarget(["x"]), **given)
    assert (again.asked["target"].cached, again.asked["target"].batches) == (asked.distinct, 0)
    assert again.seconds is None
    assert command._time(again) == "nothing is left to ask"


def test_few_batches_are_run_and_none_is_kept(given) -> None:
    target = Counting(["x"])
    forecast = unseen.plan(target, **given)
    # Of each kind one to warm up and three that are timed, those that find their prefix read twice.
    kinds = [bool(batch.prefix) for batch in target.batches]
    assert kinds == sorted(kinds, reverse=True)
    assert 4 <= kinds.count(True) <= 11
    time = forecast.asked["target"].time
    assert time is not None
    assert time.bounds[0] <= time.seconds <= time.bounds[1]
    assert 3 <= time.batches <= 9
    assert time.tokens <= sum(batch.n_tokens for batch in target.batches)
    assert forecast.memory_bytes is None or forecast.memory_bytes > 10**6


def test_time_follows_from_tokens() -> None:
    assert timing([]) is None
    assert timing([(10, [])]) is None
    found = timing([(10_000, [(100, 0.5), (300, 0.5)]), (50, [(10, 1.0)])])
    assert found is not None
    assert found.seconds == pytest.approx(10_000 / (400 / 1.0) + 5)
    assert found.bounds == (pytest.approx(10_000 * 0.5 / 300 + 5, abs=0.1), 55.0)
    assert (found.batches, found.tokens) == (3, 410)


def test_batches_that_do_not_fit_are_reported(given) -> None:
    class Small(unseen.FakeTarget):
        too_many = 1
        reference = None

        def execute(self, batch: Batch):
            self.n_calls = getattr(self, "n_calls", 0) + 1
            if self.n_calls <= self.too_many:
                raise OutOfMemoryError("full")
            return super().execute(batch)

    given |= {"attacks": ("loss", "lowercase")}
    some = unseen.plan(Small(["x"]), **given)
    assert any("does not fit" in note for note in some.notes)
    assert some.asked["target"].time.batches >= 1
    Small.too_many = 10**6
    none = unseen.plan(Small(["x"]), **given)
    assert none.asked["target"].time is None
    assert "not known" in command._time(none)


def test_rates_that_cannot_be_resolved_are_named(given) -> None:
    forecast = unseen.plan(unseen.FakeTarget(), **(given | {"attacks": ("loss",)}), fpr=(0.01, 0.2))
    assert [(one.fpr, one.resolution, one.needs_nonmembers) for one in forecast.fpr] == [
        (0.01, "unresolvable", 100),
        (0.2, "indicative", 50),
    ]


def test_the_faults_are_those_of_the_audit(given) -> None:
    with pytest.raises(ConfigError, match="no model"):
        unseen.plan(**given)
    with pytest.raises(ConfigError, match="config and also"):
        unseen.plan(config=unseen.FinetuneAudit(), seed=1)


def words(given: dict) -> list[str]:
    return [
        "--members", given["members"], "--nonmembers", given["nonmembers"],
        "--model", "fake/" + given["members"], "--attacks", "loss,recall", "--cache-dir", "c",
    ]  # fmt: skip


def test_on_the_command_line(given, capsys, tmp_path) -> None:
    assert run(["plan", *words(given)]) == 0
    shown = capsys.readouterr()
    for word in ("target", "example", "requests", "time", "FPR", "loss, recall", "set aside"):
        assert word in shown.out, word
    assert run(["plan", *words(given), "--json"]) == 0
    first = Forecast.model_validate_json(capsys.readouterr().out)
    assert run(["audit", "finetune", *words(given), "--dry-run", "--json"]) == 0
    second = Forecast.model_validate_json(capsys.readouterr().out)
    assert first.asked["target"].tokens == second.asked["target"].tokens
    assert not (tmp_path / "runs").exists()
    assert run(["plan", "--members", "gone.jsonl", *words(given)[2:]]) == 2
    assert capsys.readouterr().err.count("error[") == 1


def test_options_come_from_the_file_as_for_the_audit(given, capsys) -> None:
    Path("unseen.yaml").write_text(f"fpr: [0.2]\nmembers: {given['members']}\n")
    assert run(["plan", *words(given)[2:], "--json"]) == 0
    assert [one["fpr"] for one in json.loads(capsys.readouterr().out)["fpr"]] == [0.2]


def test_looks_inside_are_counted_as_the_audit_takes_them_and_timed(tmp_path, capsys) -> None:
    members, nonmembers = records.sides(tmp_path / "data", 30)
    rows = [json.loads(line) for line in members.read_text().splitlines()]
    others = tmp_path / "p.jsonl"
    texts = [{"id": row["id"], "paraphrase": f"Pray, {row['prompt']}"} for row in rows]
    others.write_text("\n".join(map(json.dumps, texts)))
    choices = {
        "model": str(tiny.folder(tmp_path / "m", dtype=torch.float32)), "reference": "none",
        "members": str(members), "nonmembers": str(nonmembers), "paraphrases": str(others),
        "attacks": ("g_drift", "g_drift[eta=0.001]", "g_drift_stability"), "bootstrap": 200,
        "cache_dir": tmp_path / "cache", "batch_tokens": 300, "fpr": (0.1,),
    }  # fmt: skip
    asked = unseen.plan(**choices).asked["target"]
    looked = asked.looked
    assert looked is not None
    assert looked.looks == 2 * 60 + 2 * 30
    assert looked.distinct == looked.looks - 30, "a record is itself among its paraphrases"
    assert looked.passages == 60 + 30
    assert looked.cached == 0
    assert 4 * looked.tokens < looked.read < 6 * looked.tokens, "two lengths of a step share a pass"
    assert looked.time is not None
    assert looked.time.batches <= 3
    results = unseen.audit_finetune(**choices, run_dir=tmp_path / "run").results
    assert results.requests["target"] == asked.distinct + looked.distinct
    again = unseen.plan(**choices)
    assert again.asked["target"].looked.cached == looked.distinct
    assert again.seconds is None
    lines = dict(command.lines(again))
    assert "left: 0 passages of 0 tokens in 0 batches" in lines["looks"]
    assert lines["time"] == "nothing is left to ask"
