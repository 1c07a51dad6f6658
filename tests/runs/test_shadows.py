from __future__ import annotations

import json
import weakref
from pathlib import Path
from typing import Any

import pytest
import records

import unseen
from unseen.cli.main import run
from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import AccessError, ConfigError, DataError, PreflightError
from unseen.runs.audit import ready
from unseen.runs.collect import Model, Shadow, collect, questions
from unseen.runs.config import configure
from unseen.runs.shadows import digest
from unseen.scoring.store import Store
from unseen.signals.base import Shown
from unseen.signals.likelihoods import PopulationLikelihoods, TextLikelihood
from unseen.targets.fake import FakeTarget, FakeTokenizer
from unseen.types import Record, Turn

pytestmark = pytest.mark.slow  # whole audits

ATTACKS = ("loss", "lira", "rmia")


def texts_of(file: Path) -> list[str]:
    return [json.loads(line)["completion"] for line in file.read_text().splitlines()]


def model_of(target: FakeTarget, **layout: Any) -> Model:
    return Model(target, RecordEncoder(target.tokenizer, Layout(**layout), limit=target.max_length))


def shadow_of(target: FakeTarget, seen: frozenset[str] = frozenset(), opened: Any = None) -> Shadow:
    def load() -> Model:
        model = model_of(target)
        if opened is not None:
            opened.append(weakref.ref(model))
        return model

    return Shadow(target.name, target.fingerprint, {}, load, lambda record: record.id in seen)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return records.sides(tmp_path / "data", 40)


@pytest.fixture
def shadows(files, tmp_path) -> list[str]:
    """Three fake models; each has memorised others, and the second two members."""
    others, _ = records.sides(tmp_path / "others", 30, seed=7)
    names = []
    for i in range(3):
        lines = others.read_text().splitlines()[i::3]
        if i == 1:
            lines += files[0].read_text().splitlines()[:2]
        file = tmp_path / f"seen{i}.jsonl"
        file.write_text("\n".join(lines))
        names.append(f"fake/{file}={file}")
    return names


@pytest.fixture
def choices(files, shadows, tmp_path) -> dict[str, Any]:
    members, nonmembers = files
    return {
        "members": str(members),
        "nonmembers": str(nonmembers),
        "attacks": ATTACKS,
        "shadow": shadows,
        "run_dir": tmp_path / "run",
        "cache_dir": tmp_path / "cache",
        "bootstrap": 200,
        "fpr": (0.1,),
    }


def leaky(files: tuple[Path, Path]) -> FakeTarget:
    return FakeTarget(texts_of(files[0])[:-5], strength=1.0)


@pytest.mark.slow
def test_an_audit_with_shadows_finds_what_they_do_not_know(files, choices) -> None:
    said: list[str] = []
    result = unseen.audit_finetune(leaky(files), **choices, note=said.append)
    by_name = {row.name: row for row in result.results.attacks}
    for name in ("lira", "rmia"):
        assert by_name[name].auc.ci[0] > 0.7
        assert by_name[name].n == (40, 32), "eight of forty are set aside as population"
    assert {row.name for row in result.results.control} == {"loss", "lira", "rmia"}
    for row in result.results.control:
        assert row.auc.ci[0] < 0.5 < row.auc.ci[1], row.name
    about = json.loads((result.folder / "run.json").read_text())
    assert list(about["fingerprints"]) == [
        "target", "reference", "shadow 1", "shadow 2", "shadow 3",
    ]  # fmt: skip
    assert about["models"]["shadow 2"]["trained on"] == "12 records"
    assert len(result.results.shadows) == 3
    assert result.results.requests["shadow"] == 3 * (40 + 32 + 8)
    assert "3 shadow models" in result.results.threat_model.knows[-1]
    assert any("2 of 72 audited records were in its data" in sentence for sentence in said)
    again = unseen.score_run(result.folder, fpr=(0.2,))
    assert [row.auc.value for row in again.results.attacks] == [
        row.auc.value for row in result.results.attacks
    ]


@pytest.mark.slow
def test_the_plan_counts_what_the_audit_asks(files, choices) -> None:
    forecast = unseen.plan(leaky(files), **choices)
    results = unseen.audit_finetune(leaky(files), **choices).results
    for role in ("target", "reference", "shadow"):
        assert forecast.asked[role].distinct == results.requests[role]
    assert len(forecast.shadows) == 3


def test_without_shadows_they_are_left_out_and_nothing_is_set_aside(files, choices) -> None:
    said: list[str] = []
    target, config = leaky(files), configure(**(choices | {"shadow": (), "attacks": "default"}))
    start = ready(config, target=target, records=None, say=said.append)
    assert "--shadow MODEL" in start.plan.skipped["lira"]
    assert any(sentence.startswith("rmia is not run") for sentence in said)
    assert len(start.prepared.known.nonmembers) == 7, "those of recall"
    with pytest.raises(AccessError, match="lira cannot be run: it needs models trained as"):
        unseen.audit_finetune(leaky(files), **(choices | {"shadow": (), "attacks": ("lira",)}))


def test_what_makes_no_sense_is_refused(files, choices, tmp_path) -> None:
    def refused(kind: type[Exception], match: str, **changed: Any) -> None:
        with pytest.raises(kind, match=match):
            unseen.audit_finetune(leaky(files), **(choices | changed))

    first = choices["shadow"][0]
    refused(ConfigError, "which is among the attacks|none of which is among", attacks=("loss",))
    refused(ConfigError, "have the same weights", shadow=(first, first))
    refused(DataError, "missing.jsonl", shadow=f"{first.partition('=')[0]}=missing.jsonl")
    refused(unseen.errors.ModelError, "no model folder", shadow="./missing")
    model = f"fake/{files[0]}"
    with pytest.raises(ConfigError, match="the same weights as the target"):
        unseen.audit_finetune(**(choices | {"model": model, "shadow": model}))


def test_a_shadow_that_answers_as_the_target_is_refused(files, choices, monkeypatch) -> None:
    """Equal answers under another fingerprint: a copy, or an adapter without effect."""
    target = leaky(files)
    target.fingerprint = "other"
    file = Path(choices["run_dir"]).parent / "copy.jsonl"
    file.write_text("\n".join(files[0].read_text().splitlines()[:-5]))
    monkeypatch.setattr("unseen.runs.models.FakeTarget", lambda *_, **__: leaky(files))
    with pytest.raises(PreflightError, match="says exactly what the target says"):
        unseen.audit_finetune(target, **(choices | {"shadow": f"fake/{file}"}))


@pytest.mark.slow
def test_the_command_line_takes_several(files, choices, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    members, nonmembers = files
    monkeypatch.setenv("UNSEEN_SHADOW", ",".join(choices["shadow"][:2]))
    argv = ["plan", "--model", f"fake/{members}", "--members", str(members),
            "--nonmembers", str(nonmembers), "--attacks", "lira", "--json"]  # fmt: skip
    assert run(argv) == 0
    assert len(json.loads(capsys.readouterr().out)["shadows"]) == 2
    flags = [part for name in choices["shadow"] for part in ("--shadow", name)]
    assert run([*argv, *flags]) == 0
    assert len(json.loads(capsys.readouterr().out)["shadows"]) == 3


# --- collecting ---------------------------------------------------------------------------------

JUDGED = [Record(f"r{i}", (Turn("text", text),)) for i, text in enumerate(["One text.", "Two!"])]
ASIDE = tuple(Record(f"z{i}", (Turn("text", f"Aside {i}"),)) for i in range(4))
SIGNALS = [
    TextLikelihood(),
    TextLikelihood(of="shadow"),
    PopulationLikelihoods(of="shadow", size=3),
]


def measured(shadows: list[Shadow]) -> Any:
    models = {"target": model_of(FakeTarget())}
    with Store() as store:
        return collect(
            SIGNALS,
            JUDGED,
            models,
            store=store,
            shadows=shadows,
            shown=Shown(known_nonmembers=ASIDE),
        )


def test_every_shadow_is_asked_once_and_freed_before_the_next() -> None:
    opened: list[Any] = []

    class Watching(FakeTarget):
        def execute(self, batch):
            assert sum(ref() is not None for ref in opened) == 1, "one at a time"
            return super().execute(batch)

    targets = [Watching([f"text {i}"], name=f"s{i}") for i in range(3)]
    seen, cost = measured([shadow_of(target, opened=opened) for target in targets])
    assert [target.n_executed for target in targets] == [2 + 3] * 3
    assert cost.requests == {"target": 2, "shadow": 15}
    assert len(opened) == 3
    value = seen.get(SIGNALS[1], "r0")
    for place in range(3):
        model = model_of(FakeTarget([f"text {place}"]))
        with Store() as store:
            alone, _ = collect([SIGNALS[0]], JUDGED, {"target": model}, store=store)
        assert value.logprob[place] == alone.get(SIGNALS[0], "r0").logprob[0]
    rows = seen.get(SIGNALS[2], "r1")
    assert rows.text.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert rows.model.tolist() == [1, 2, 3] * 3


def test_who_was_trained_on_what_is_told() -> None:
    shadows = [shadow_of(FakeTarget(["a"]), frozenset({"r1", "z2"})), shadow_of(FakeTarget(["b"]))]
    seen, _ = measured(shadows)
    assert seen.get(SIGNALS[1], "r0").inside.tolist() == [False, False]
    assert seen.get(SIGNALS[1], "r1").inside.tolist() == [True, False]
    assert seen.get(SIGNALS[2], "r0").inside.tolist() == [False] * 4 + [True, False]


def test_a_shadow_that_reads_other_text_is_left_out_for_that_record() -> None:
    plain = FakeTarget(["a"])
    headless = FakeTarget(["b"], tokenizer=FakeTokenizer(bos=False))  # the first byte is context
    seen, _ = measured([shadow_of(plain), shadow_of(headless)])
    assert seen.get(SIGNALS[1], "r0").model.tolist() == [1]
    seen, _ = measured([shadow_of(headless)])
    assert "different parts" in seen.missing[SIGNALS[1]]["r0"]


def test_questions_are_those_of_one_shadow() -> None:
    models = {"target": model_of(FakeTarget())}
    shadow = model_of(FakeTarget(["a"]))
    asked = questions(SIGNALS, JUDGED, models, shadow=shadow, shown=Shown(known_nonmembers=ASIDE))
    assert {role: len(requests) for role, requests in asked.items()} == {"shadow": 5}


def test_a_text_is_known_again_in_another_form() -> None:
    one = Record("a", (Turn("user", "Who?"), Turn("assistant", "Mina  Okafor")))
    other = Record("b", (Turn("user", "who? "), Turn("assistant", "Mina Okafor")))
    assert digest(one) == digest(other)
    assert digest(one) != digest(Record("c", (Turn("user", "Who?"), Turn("assistant", "Mina"))))


# --- models of unseen train ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Any:
    """A base, and two models that know what they were trained on."""
    import tiny
    import torch

    where = tmp_path_factory.mktemp("trained")
    base = tiny.folder(where / "base", dtype=torch.float32)
    members, nonmembers = records.sides(where, 24)
    choices = {"model": str(base), "epochs": 1, "learning_rate": 1e-2, "batch_size": 8}
    target = unseen.train(
        **choices, members=str(members), nonmembers=str(nonmembers), out=where / "target"
    )
    others, _ = records.sides(where / "others", 12, seed=9)
    others.write_text(others.read_text() + members.read_text().splitlines()[0] + "\n")
    other = unseen.train(**choices, members=str(others), seed=1, out=where / "other")
    return target.folder, other.folder, members, nonmembers


@pytest.mark.slow
def test_a_train_run_says_what_it_has_learned(trained, tmp_path) -> None:
    target, other, _, _ = trained
    said: list[str] = []
    choices: dict[str, Any] = {
        "run_of": str(target), "attacks": ("loss", "lira", "rmia"), "bootstrap": 200, "fpr": (0.1,),
        "cache_dir": tmp_path / "cache", "run_dir": tmp_path / "run", "preflight": False,
    }  # fmt: skip
    second = f"{other}/model=" + str(other.parent / "others" / "members.jsonl")
    with pytest.raises(ConfigError, match="have the same weights"):
        unseen.audit_finetune(**choices, shadow=(str(other), second))
    result = unseen.audit_finetune(**choices, shadow=(str(other),), note=said.append)
    assert any("1 of 44 audited records were in its data" in sentence for sentence in said)
    assert result.results.shadows[0]["trained on"] == "13 records"
    unscored = {row.name: row.unscored for row in result.results.attacks}
    assert sum(unscored["rmia"].values()) == 1
    assert any("one shadow shows no spread" in why for why in unscored["lira"])


@pytest.mark.slow
def test_a_trained_reference_must_not_know_the_records(trained, tmp_path) -> None:
    target, other, members, nonmembers = trained
    choices: dict[str, Any] = {
        "model": str(target / "model"), "attacks": ("loss", "reference"), "bootstrap": 200,
        "cache_dir": tmp_path / "cache", "run_dir": tmp_path / "run", "preflight": False,
        "nonmembers": str(nonmembers), "fpr": (0.1,),
    }  # fmt: skip
    with pytest.raises(ConfigError, match="was trained on 1 of the audited records"):
        unseen.audit_finetune(**choices, members=str(members), reference=str(other))
    rest = tmp_path / "rest.jsonl"
    rest.write_text("".join(members.read_text().splitlines(keepends=True)[1:]))
    result = unseen.audit_finetune(**choices, members=str(rest), reference=str(other))
    assert result.results.reference["model"] == str(other / "model")
    assert {row.n for row in result.results.attacks} == {(23, 24)}


@pytest.mark.slow
def test_a_reference_with_other_tokens_is_said_to_be_compared_as_text(trained, tmp_path) -> None:
    import tiny
    import torch

    target, _, members, nonmembers = trained
    other = tiny.folder(tmp_path / "bytes", dtype=torch.float32)
    file = other / "tokenizer.json"
    tokens = json.loads(file.read_text())
    tokens["model"]["merges"] = tokens["model"]["merges"][:1]
    file.write_text(json.dumps(tokens))
    said: list[str] = []
    result = unseen.audit_finetune(
        str(target / "model"), members=str(members), nonmembers=str(nonmembers), preflight=False,
        reference=str(other), attacks=("reference", "wbc"), bootstrap=200, fpr=(0.1,),
        cache_dir=tmp_path / "cache", run_dir=tmp_path / "run", note=said.append,
    )  # fmt: skip
    assert any("another tokenizer" in sentence for sentence in said)
    assert "whole texts are compared" in result.results.reference["tokens"]
    rows = {row.name: row for row in result.results.attacks}
    assert sum(rows["reference"].unscored.values()) == 0
    assert list(rows["wbc"].unscored) == ["the two models cut this record into other tokens"]
    assert "another tokenizer" in (result.folder / "report.html").read_text()
