"""Directions of a file: read in four formats, checked against the model, and projected onto."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import records
import tiny
import torch
from safetensors.numpy import save_file

import unseen
from unseen.errors import AccessError, ConfigError, DataError
from unseen.runs.config import configure
from unseen.runs.inside.directed import MOST, check_width, read_directions
from unseen.signals.base import Observations
from unseen.signals.gradient_drift import GradientDrift

pytestmark = pytest.mark.slow  # whole audits

SIGNAL = GradientDrift(axis="given")
ROWS = np.array([[3.0, 0.0, 4.0], [0.0, 2.0, 0.0]])


def write(folder: Path, name: str) -> Path:
    """The rows in the format that the name ends in."""
    file = folder / name
    if file.suffix == ".npy":
        np.save(file, ROWS)
    elif file.suffix == ".safetensors":
        save_file({"v": ROWS}, file)
    elif file.suffix == ".csv":
        file.write_text("3,0,4\n0, 2.0 ,0\n\n")
    else:
        file.write_text("[3, 0, 4]\n[0, 2e0, 0]\n")
    return file


def read(file: Path | str, *signals: Any):
    return read_directions(configure(directions=str(file)), signals or (SIGNAL,))


@pytest.mark.parametrize("name", ["d.npy", "d.safetensors", "d.csv", "d.jsonl"])
def test_each_format_gives_unit_vectors(tmp_path, name: str) -> None:
    found = read(write(tmp_path, name))
    assert found is not None
    assert found.vectors.values == pytest.approx(np.array([[0.6, 0, 0.8], [0, 1, 0]]))
    assert (found.facts.n, found.facts.width) == (2, 3)
    assert found.facts.sha256 == found.vectors.digest == read(write(tmp_path, "d.npy")).facts.sha256
    assert read_directions(configure(), (SIGNAL,)) is None


def test_one_vector_is_a_direction_and_one_tensor_of_several_is_named(tmp_path) -> None:
    np.save(tmp_path / "one.npy", ROWS[0])
    assert read(tmp_path / "one.npy").facts.n == 1
    file = tmp_path / "two.safetensors"
    save_file({"first": ROWS, "second": ROWS[:1]}, file)
    assert read(f"{file}#second").facts.n == 1
    with pytest.raises(DataError, match="holds 2 tensors: which one") as raised:
        read(file)
    assert "first, second" in str(raised.value.fix)
    with pytest.raises(DataError, match="holds no tensor 'frist'") as raised:
        read(f"{file}#frist")
    assert "did you mean 'first'" in str(raised.value.fix)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("d.csv", "1,2\n1,x\n", "d.csv line 2: is no list of numbers"),
        ("d.csv", "1,2\n1\n", "line 2: has 1 numbers, and the first direction 2"),
        ("d.csv", "1,nan\n", "expected finite numbers"),
        ("d.csv", "0,0\n", "a direction of zeros"),
        ("d.csv", "\n", "holds no direction"),
        ("d.jsonl", '{"a": 1}\n', "line 1: is no list of numbers"),
        ("d.jsonl", "[1, 2\n", "line 1: is no list of numbers"),
        ("d.npy", "no array", "cannot be read"),
        ("d.safetensors", "no tensors", "cannot be read"),
        ("d.txt", "1", "unknown ending, expected one of .npy, .safetensors, .csv, .jsonl"),
        ("d.csv", "1\n" * (MOST + 1), "holds 257 directions, expected at most 256"),
        ("d.csv", None, "no such file"),
    ],
)
def test_what_holds_no_directions_is_explained(tmp_path, name, content, message) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message) as raised:
        read(tmp_path / name)
    assert raised.value.fix


def test_objects_in_an_array_are_not_unpickled(tmp_path) -> None:
    np.save(tmp_path / "d.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="allow_pickle"):
        read(tmp_path / "d.npy")


def test_directions_that_nobody_projects_onto_are_refused(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"--directions is read by g_drift\[axis=given\]"):
        read(write(tmp_path, "d.npy"), GradientDrift())


@pytest.fixture(scope="module")
def choices(tmp_path_factory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("directed")
    members, nonmembers = records.sides(folder / "data", 26)
    model = tiny.folder(folder / "model", dtype=torch.float32)
    return {
        "model": str(model), "members": str(members), "nonmembers": str(nonmembers), "fpr": (0.1,),
        "bootstrap": 200, "reference": "none", "cache_dir": folder / "cache", "preflight": False,
        "attacks": ("g_drift[axis=given]",),
    }  # fmt: skip


def test_states_are_projected_onto_them_and_other_directions_are_another_plan(
    choices, tmp_path
) -> None:
    rows = np.random.default_rng(0).normal(size=(2, 32))
    np.save(tmp_path / "d.npy", rows)
    given = choices | {"directions": str(tmp_path / "d.npy"), "run_dir": tmp_path / "run"}
    done = unseen.audit_finetune(**given)
    facts = done.results.data.directions
    assert (facts.n, facts.width) == (2, 32)
    (signal,) = unseen.attacks.create("g_drift[axis=given]").signals()
    seen: Observations = unseen.runs.folder.RunFolder(done.folder).read_observations(
        [signal], ["x"]
    )
    values = list(seen.values[signal].values())
    assert len(values) == 52
    assert all(one.projection.shape == (2,) for one in values)
    assert "2 of 32 numbers" in unseen.report_run(done.folder, "md")
    about = json.loads((done.folder / "run.json").read_text())
    assert about["data"]["directions"]["sha256"] == facts.sha256
    np.save(tmp_path / "d.npy", rows[::-1])
    with pytest.raises(ConfigError, match="holds another audit"):
        unseen.audit_finetune(**given)


def test_another_width_is_refused_with_both_and_none_is_asked_for(choices, tmp_path) -> None:
    file = write(tmp_path, "d.npy")
    with pytest.raises(DataError, match=r"have 3 numbers each, a state of the target .* has 32"):
        unseen.audit_finetune(**choices, directions=str(file), run_dir=tmp_path / "run")
    with pytest.raises(AccessError, match="--directions FILE"):
        unseen.audit_finetune(**choices, run_dir=tmp_path / "run")
    check_width(None, {}, (SIGNAL,))
