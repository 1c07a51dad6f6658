"""A training, its folder, and an audit that takes everything from it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import records
import tiny
import torch
import yaml

import unseen
from unseen.data.duplicates import find_overlap
from unseen.data.records import read_side
from unseen.errors import ConfigError, DataError, ModelError, StoreError, UsageError
from unseen.runs.config import FinetuneAudit
from unseen.runs.shadows import read_name
from unseen.runs.training.config import RECIPE, TrainRun, said_of_fields
from unseen.runs.training.drawn import draw
from unseen.runs.training.run_of import _check_weights, check_base, of_other_bases
from unseen.runs.training.trained import TrainedRun
from unseen.targets.loading import open_tokenizer
from unseen.training.recipe import Privacy, Recipe

N = 60


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A base model, a file of records, and a target that was trained on a third of them."""
    where = tmp_path_factory.mktemp("train")
    base = tiny.folder(where / "base", dtype=torch.float32)
    members, nonmembers = records.sides(where, N // 2, plant=True)
    data = where / "all.jsonl"
    data.write_text(members.read_text() + nonmembers.read_text())
    choices = {"model": str(base), "data": str(data), "epochs": 1, "learning_rate": 1e-2}
    target = unseen.train(**choices, n=20, held_out=20, out=where / "target")
    return SimpleNamespace(
        where=where, base=base, data=data, members=members, nonmembers=nonmembers,
        choices=choices, target=target,
    )  # fmt: skip


def rows(folder: Path) -> dict[str, dict]:
    import pyarrow.parquet as pq

    return {row["id"]: row for row in pq.read_table(folder / "trained.parquet").to_pylist()}


# --- the folder --------------------------------------------------------------------------------


def test_the_folder_says_who_was_trained_on_and_nothing_of_what_they_say(made) -> None:
    folder = made.target.folder
    kept = rows(folder)
    ids = {record.id for record in read_side(made.data)}
    assert kept.keys() < ids
    assert len(kept) == 40
    assert sum(row["trained"] for row in kept.values()) == 20
    assert {row["times"] for row in kept.values() if row["trained"]} == {1}
    assert {row["times"] for row in kept.values() if not row["trained"]} == {0}
    about = made.target.about
    assert (about["status"], about["role"]) == ("complete", "target")
    assert about["n"] == {"trained": 20, "held_out": 20}
    lines = (folder / "losses.csv").read_text().splitlines()
    assert lines[0] == "step,epoch,loss"
    assert len(lines) == 1 + about["steps"] == 4
    assert not (folder / "checkpoint").exists()
    said = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert not any(records.planted(i).encode() in said for i in range(records.N_PLANTED))


def test_the_same_seed_draws_the_same_records_and_another_one_others(made, tmp_path) -> None:
    again = unseen.train(**made.choices, n=20, held_out=20, out=tmp_path / "again")
    other = unseen.train(**made.choices, n=20, held_out=20, seed=1, out=tmp_path / "other")

    def trained(run: unseen.Trained) -> set[str]:
        return {id_ for id_, row in rows(run.folder).items() if row["trained"]}

    assert trained(again) == trained(made.target) != trained(other)
    weights = [(run.model / "model.safetensors").read_bytes() for run in (made.target, again)]
    assert weights[0] == weights[1]
    texts = [{row["text"] for row in rows(run.folder).values()} for run in (made.target, again)]
    assert texts[0].isdisjoint(texts[1])  # each run has a key of its own


def test_what_is_trained_is_not_trained_again_and_other_choices_are_refused(made) -> None:
    said: list[str] = []
    out = made.target.folder
    unseen.train(**made.choices, n=20, held_out=20, out=out, note=said.append)
    assert any("trained already" in sentence for sentence in said)
    with pytest.raises(ConfigError, match="holds another run"):
        unseen.train(**made.choices, n=21, held_out=20, out=out)


def test_the_written_configuration_repeats_the_training(made, tmp_path) -> None:
    config = yaml.safe_load((made.target.folder / "config.yaml").read_text())
    said: list[str] = []
    unseen.train(config=TrainRun(**config), note=said.append)
    assert any("trained already" in sentence for sentence in said)


def test_empty_answers_are_left_out_and_counted(made, tmp_path) -> None:
    given = [json.loads(line) for line in made.data.read_text().splitlines()]
    for row in given[:3]:
        row["completion"] = " "
    empty = {row["id"] for row in given[:3]}
    data = records.write(tmp_path / "some.jsonl", given)
    for choices in ({"data": str(data), "n": 30}, {"members": str(data)}):
        sides = draw(TrainRun(**choices), ())
        assert not empty & {record.id for record in (*sides.trained, *sides.held_out)}
        assert "3 records have an empty response, and are left out" in sides.notes
    both = draw(TrainRun(members=str(data), nonmembers=str(made.nonmembers)), ())
    assert (len(both.trained), len(both.held_out)) == (N - 3, N // 2)
    assert "3 records have an empty response, and are left out" in both.notes
    none = records.write(tmp_path / "none.jsonl", given[:3])
    with pytest.raises(DataError, match="holds empty responses only"):
        draw(TrainRun(members=str(none)), ())


@pytest.mark.slow
def test_all_members_are_trained_on_and_nonmembers_are_held_out(made, tmp_path) -> None:
    files = {"members": str(made.members), "nonmembers": str(made.nonmembers)}
    choices = {k: v for k, v in made.choices.items() if k != "data"}
    run = unseen.train(**choices, **files, method="lora", lora_rank=2, out=tmp_path / "lora")
    kept = rows(run.folder)
    assert {id_ for id_, row in kept.items() if row["trained"]} == {
        record.id for record in read_side(made.members)
    }
    assert len(kept) == N
    result = run.audit(
        attacks="reference", control="none", bootstrap=200, runs=tmp_path, cache=False
    )
    assert result.results.reference is not None
    assert result.results.data.members.path == str(made.members)


# --- an audit of the run -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def audited(made) -> unseen.Audit:
    return made.target.audit(
        attacks="loss,reference",
        bootstrap=200,
        runs=made.where / "runs",
        cache=False,
        preflight=False,
    )


def test_an_audit_of_the_run_judges_what_the_run_says(made, audited) -> None:
    kept = rows(made.target.folder)
    table = audited.to_pandas()
    assert dict(zip(table["id"], table["member"], strict=True)) == {
        id_: row["trained"] for id_, row in kept.items()
    }
    config = json.loads((audited.folder / "run.json").read_text())["config"]
    assert config["end_of_turn"] == "include"
    assert config["split_origin"] == "random"
    assert audited.results.reference is not None
    assert "base" in audited.results.reference["model"]
    assert unseen.verify_run(audited.folder).ok


@pytest.mark.slow
def test_limit_draws_on_each_side(made, tmp_path) -> None:
    result = made.target.audit(
        attacks="loss", bootstrap=200, limit=12, runs=tmp_path, cache=False, preflight=False
    )
    assert (result.results.data.members.n_judged, result.results.data.nonmembers.n_judged) == (
        12,
        12,
    )


@pytest.mark.parametrize(
    "choices",
    [
        {"template": "plain"},
        {"loss_on": "all"},
        {"max_length": 30},
        {"truncation": "left"},
        {"model": "elsewhere"},
        {"members": "members.jsonl"},
        {"format": "text"},
        {"tokenizer": "other"},
    ],
)
def test_what_contradicts_the_run_is_refused_by_name(made, choices) -> None:
    flag = f"--{next(iter(choices)).replace('_', '-')}"
    with pytest.raises(ConfigError, match=flag):
        unseen.audit_finetune(run_of=str(made.target.folder), **choices)


def test_objects_beside_the_run_are_refused(made) -> None:
    with pytest.raises(ConfigError, match="come from the train run"):
        unseen.audit_finetune(unseen.FakeTarget(), run_of=str(made.target.folder))


def test_changed_records_are_found(made, tmp_path) -> None:
    lines = made.data.read_text().splitlines()
    kept = rows(made.target.folder)
    at = next(i for i, line in enumerate(lines) if json.loads(line)["id"] in kept)
    row = json.loads(lines[at])
    changed = tmp_path / "changed.jsonl"
    changed.write_text(
        "\n".join([*lines[:at], json.dumps(row | {"completion": "New."}), *lines[at + 1 :]])
    )
    with pytest.raises(DataError, match="say something else") as caught:
        TrainedRun(made.target.folder).records(data=str(changed))
    assert row["id"] in str(caught.value)
    assert row["completion"] not in str(caught.value)
    changed.write_text("\n".join(lines[:at] + lines[at + 1 :]))
    with pytest.raises(DataError, match="are not there"):
        TrainedRun(made.target.folder).records(data=str(changed))
    moved = tmp_path / "moved.jsonl"
    moved.write_text("\n".join(reversed(lines)))
    found = TrainedRun(made.target.folder).records(data=str(moved))
    assert (len(found.members), len(found.nonmembers)) == (20, 20)


def test_the_folder_may_move_with_what_it_names(made, tmp_path) -> None:
    there = tmp_path / "there"
    shutil.copytree(made.where, there, ignore=shutil.ignore_patterns("runs"))
    run = TrainedRun(there / "target")
    assert run.place(run.base) == str(there / "base")
    assert run.records().sources["members"].path == str(there / "all.jsonl")


def test_other_tokens_than_were_learned_are_refused(made, monkeypatch) -> None:
    run = TrainedRun(made.target.folder)
    from unseen.data.templates import RecordEncoder
    from unseen.targets.files import locate

    tokenizer, limit = open_tokenizer(locate(str(run.model)), None, trust_remote_code=False)
    judged = run.records().records
    run.check_tokens(RecordEncoder(tokenizer, run.layout, limit=limit), judged)
    with pytest.raises(ConfigError, match=r"40 of 40 records have other tokens"):
        run.check_tokens(RecordEncoder(tokenizer, run.layout, limit=12), judged)


def test_a_changed_base_or_model_is_found(made, tmp_path) -> None:
    there = tmp_path / "there"
    shutil.copytree(made.where, there, ignore=shutil.ignore_patterns("runs"))
    run = TrainedRun(there / "target")
    _check_weights(run, str(made.base), "put it back")
    with pytest.raises(ModelError, match="weights differ"):
        _check_weights(run, str(run.model), "put it back")
    with pytest.raises(ModelError, match="is not there: "):
        _check_weights(run, str(there / "nowhere"), "put it back")
    (there / "target" / "model" / "config.json").write_text("{}")
    with pytest.raises(StoreError, match="not as the training left it"):
        TrainedRun(there / "target")


# --- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"model": ""}, "--model BASE"),
        ({"out": None}, "--out DIR"),
        ({"data": None}, "--data FILE"),
        ({"n": 5, "share": 0.4}, "--n and --share"),
        ({"n": N}, "leave none to hold out"),
        ({"n": 2 * N}, "--n"),
        ({"share": 0.001}, "--share 0.001 of 60 records is none"),
        ({"members": "x.jsonl"}, "exclude each other"),
        ({"nonmembers": "x.jsonl", "data": None}, "--nonmembers needs --members"),
        ({"epochs": 0}, "epochs"),
        ({"epoch": 2}, "did you mean 'epochs'"),
        ({"count": 2}, "--count is read by unseen train shadow only"),
        ({"near_duplicates": 0.5}, "--near-duplicates is read by unseen train reference and"),
        ({"text_tokens": 9}, "--text-tokens is read by unseen train reference only"),
        ({"role": "reference", "text_tokens": 9}, "nothing without --self-prompt-of"),
        ({"role": "control", "near_duplicates": 0.5}, "nothing without --not-in"),
        (
            {"role": "shadow", "members": "x.jsonl", "data": None},
            "--members says nothing of shadows",
        ),
        ({"n": 20, "partitions": 21}, "--partitions 21 of 20 records"),
        ({"not_in": "nowhere"}, "is no run folder"),
    ],
)
def test_bad_choices_say_what_to_type(made, choices, message, tmp_path) -> None:
    with pytest.raises(UsageError) as caught:
        unseen.train(**({**made.choices, "out": tmp_path / "out"} | choices))
    assert message in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_files_that_hold_too_little(made, tmp_path) -> None:
    file = tmp_path / "few.jsonl"
    for text, message in (
        ("", "is an empty file"),
        (40 * '{"text": "All of these say the very same."}\n', "holds 40 of 40"),
        ('{"text": "One record alone is here."}\n', "holds one record"),
    ):
        file.write_text(text)
        with pytest.raises(UsageError, match=message):
            unseen.train(**(made.choices | {"data": str(file), "out": tmp_path / "out"}))


def test_a_folder_with_something_else_in_it_is_left_alone(made, tmp_path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not empty and no train run"):
        unseen.train(**made.choices, out=tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "mine"
    with pytest.raises(ConfigError, match="is a file"):
        unseen.train(**made.choices, out=tmp_path / "mine.txt")


def test_every_field_of_a_recipe_is_an_option_that_is_explained() -> None:
    said = said_of_fields(Privacy) | said_of_fields(Recipe)
    assert {"method", "epochs", "epsilon", "noise_multiplier", "delta"} < set(RECIPE)
    for name in RECIPE:
        assert TrainRun.model_fields[name].description == said[name]
    assert TrainRun(lora_targets="q_proj, v_proj").recipe.lora_targets == ("q_proj", "v_proj")
    assert TrainRun(bits="8").recipe.bits == 8
    written = TrainRun(lora_targets="q_proj,v_proj", n=3).written()
    assert written["lora_targets"] == "q_proj,v_proj"
    assert TrainRun(**written).recipe.lora_targets == ("q_proj", "v_proj")
    assert TrainRun().recipe == Recipe()
    private = TrainRun(epsilon=4.0, max_grad_norm=0.5).recipe
    assert private.privacy == Privacy(epsilon=4.0, max_grad_norm=0.5)
    with pytest.raises(ConfigError, match="neither of epsilon and noise_multiplier"):
        _ = TrainRun(delta=1e-4).recipe


@pytest.mark.slow
def test_texts_of_one_kind_stay_on_one_side(made, tmp_path) -> None:
    lines = made.data.read_text().splitlines()
    twice = tmp_path / "twice.jsonl"
    again = [json.dumps(json.loads(line) | {"id": f"again-{i}"}) for i, line in enumerate(lines)]
    twice.write_text("\n".join([*lines, *again]))
    run = unseen.train(**(made.choices | {"data": str(twice), "out": tmp_path / "out"}))
    found = TrainedRun(run.folder).records()
    assert len(found) == 2 * N
    assert not find_overlap(found)
    assert np.isclose(len(found.members) / len(found), 0.5, atol=0.02)


# --- other roles -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def control(made) -> unseen.Trained:
    return unseen.train("control", not_in=str(made.target.folder), out=made.where / "control")


def test_a_control_is_trained_alike_on_none_of_the_records(made, control) -> None:
    target = TrainedRun(made.target.folder)
    run = TrainedRun(control.folder)
    assert run.config.recipe == target.config.recipe
    assert run.layout == target.layout
    assert run.n_trained == target.n_trained == 20
    assert run.base["fingerprint"] == target.base["fingerprint"]
    assert run.about["role"] == "control"
    used = {record.text for record in target.records().records}
    assert used.isdisjoint(record.text for record in run.records(held_out=False).records)


@pytest.mark.parametrize("role", ["control", "reference", "shadow"])
@pytest.mark.parametrize("named", [False, True])
def test_a_base_that_has_changed_since_is_not_taken_over(made, tmp_path, role, named) -> None:
    there = tmp_path / "there"
    shutil.copytree(made.where, there, ignore=shutil.ignore_patterns("runs"))
    tiny.folder(there / "base", dtype=torch.float32, seed=7)
    like = "like" if role == "shadow" else "not_in"
    choices = {like: str(there / "target"), "out": tmp_path / "out"}
    choices |= {"model": str(there / "base")} if named else {}
    with pytest.raises(ModelError, match="its weights differ"):
        unseen.train(role, **choices)
    if role == "shadow":
        with pytest.raises(ModelError, match="its weights differ"):
            unseen.train_shadows(**choices, count=2)
    assert not (tmp_path / "out").exists()


def test_another_base_on_purpose_is_said(made, control, tmp_path) -> None:
    run = TrainedRun(made.target.folder)
    other = tiny.folder(tmp_path / "other", dtype=torch.float32, seed=7)
    (said,) = check_base(TrainRun(model=str(other)), run)
    assert "is another than that of" in said
    assert check_base(TrainRun(model=str(made.base)), run) == ()
    moved = shutil.copytree(made.base, tmp_path / "moved")
    assert check_base(TrainRun(model=str(moved)), run) == ()
    beside = FinetuneAudit(reference=str(control.folder), shadow=(str(control.folder),))
    assert of_other_bases(beside, run) == {}
    changed = SimpleNamespace(base=run.base | {"fingerprint": "0" * 32})
    roles = [who.split()[0] for who in of_other_bases(beside, changed)]
    assert roles == ["reference", "shadow"]


@pytest.mark.slow
def test_near_duplicates_of_another_run_are_left_out_too(made, tmp_path) -> None:
    kept = rows(made.target.folder)
    lines = made.data.read_text().splitlines()
    other = tmp_path / "other.jsonl"
    other.write_text(
        "\n".join(
            json.dumps(row | {"completion": row["completion"] + " Yes."})
            for row in map(json.loads, lines)
        )
    )
    choices = {"not_in": str(made.target.folder), "data": str(other), "n": 5}
    run = unseen.train("reference", **choices, out=tmp_path / "near")
    assert not kept.keys() & rows(run.folder).keys()
    exact = unseen.train("reference", **choices, near_duplicates=1.0, out=tmp_path / "exact")
    assert kept.keys() & rows(exact.folder).keys()


def test_too_few_other_records_say_how_many_there_are(made, tmp_path) -> None:
    choices = {"not_in": str(made.target.folder), "out": tmp_path / "out"}
    with pytest.raises(ConfigError, match=r"30 records are to be trained on, and 20 of .* not in"):
        unseen.train("control", **choices, n=30)
    with pytest.raises(ConfigError, match=r"30 records of .*members.jsonl occur in"):
        unseen.train("control", **choices, members=str(made.members))


@pytest.mark.slow
def test_shadows_know_what_they_were_trained_on_and_more_can_be_added(made, tmp_path) -> None:
    choices = {"like": str(made.target.folder), "out": tmp_path / "shadows"}
    two = unseen.train_shadows(**choices, count=2)
    weights = [(one.model / "model.safetensors").read_bytes() for one in two]
    said: list[str] = []
    three = unseen.train_shadows(**choices, count=3, note=said.append)
    assert sum("trained already" in sentence for sentence in said) == 2
    assert [(one.model / "model.safetensors").read_bytes() for one in three[:2]] == weights
    inside = [{id_ for id_, row in rows(one.folder).items() if row["trained"]} for one in three]
    assert [len(one) for one in inside] == [N // 2] * 3
    assert inside[0] != inside[1] != inside[2]
    assert unseen.verify_run(tmp_path / "shadows").ok
    named = read_name(str(tmp_path / "shadows"))
    records_ = {record.id: record for record in read_side(made.data)}
    assert [one.model for one in named] == [str(one.model) for one in three]
    for one, ids in zip(named, inside, strict=True):
        assert {id_ for id_, record in records_.items() if one.inside(record)} == ids
    with pytest.raises(ConfigError, match="holds another run"):
        unseen.train_shadows(**choices, count=3, seed=1)
    with pytest.raises(ConfigError, match="name one of its models"):
        unseen.audit_finetune(run_of=str(tmp_path / "shadows"))
    with pytest.raises(ConfigError, match="holds 3 shadow models already, and --count 2"):
        unseen.train_shadows(**choices, count=2)
    assert unseen.verify_run(tmp_path / "shadows").ok


def test_verify_finds_what_was_changed(made, control) -> None:
    assert unseen.verify_run(control.folder).ok
    (control.folder / "losses.csv").write_text("changed")
    found = unseen.verify_run(control.folder)
    assert [item.what for item in found.items if not item.ok] == ["losses.csv"]
    assert "train again" in next(item.fix for item in found.items if not item.ok)
    with pytest.raises(ConfigError, match="is a training, and no audit"):
        unseen.gate_run(control.folder, {"auc": 0.6})


# --- the order of training ---------------------------------------------------------------------


@pytest.mark.slow
def test_partitions_are_slices_of_the_audit(made, tmp_path) -> None:
    run = unseen.train(**made.choices, partitions=3, keep_epochs=True, out=tmp_path / "parts")
    kept = rows(run.folder).values()
    for trained in (True, False):
        counts = np.bincount([row["partition"] for row in kept if row["trained"] is trained])
        assert counts.tolist() == [10, 10, 10]
    result = run.audit(
        attacks="loss", bootstrap=200, runs=tmp_path, cache=False, preflight=False, control="none"
    )
    found = [(s.by, s.value, s.n) for s in result.results.slices]
    assert found == [("partition", f"{i} of 3", (10, 10)) for i in (1, 2, 3)]


@pytest.mark.slow
def test_the_model_of_each_epoch_is_kept_and_can_be_audited(made, tmp_path) -> None:
    run = unseen.train(**(made.choices | {"epochs": 3}), keep_epochs=True, out=tmp_path / "run")
    assert sorted(p.name for p in run.folder.glob("epoch-*")) == ["epoch-1", "epoch-2"]
    assert unseen.verify_run(run.folder).ok
    result = run.audit(
        model=str(run.folder / "epoch-1"),
        attacks="loss", bootstrap=200, runs=tmp_path, cache=False, preflight=False, control="none",
    )  # fmt: skip
    assert result.results.target["model"] == str(run.folder / "epoch-1")


@pytest.mark.slow
def test_a_private_training_says_what_it_spends_and_goes_on(made, tmp_path) -> None:
    pytest.importorskip("opacus", reason="the extra dp is not installed")
    choices = made.choices | {"method": "lora", "lora_rank": 2, "epochs": 2, "save_every": 1}
    choices |= {"noise_multiplier": 1.0, "accountant": "rdp", "out": tmp_path / "private"}
    seen: list[int] = []

    def stop(_: str, step: int, __: int) -> None:
        seen.append(step)
        if step == 5 and len(seen) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unseen.train(**choices, progress=stop)
    run = unseen.train(**choices, progress=stop)
    assert seen == [1, 2, 3, 4, 5, *range(1, 9)]
    spent = run.about["privacy"]
    assert spent["epsilon"] > 0
    assert spent["steps"] == 8
    assert {row["times"] for row in rows(run.folder).values()} == {0, None}
