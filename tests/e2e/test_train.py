"""`unseen train` as a process: what it prints, and what is left of one that was killed."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import records
import tiny
import torch

from unseen.cli.main import run


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tmp_path_factory.mktemp("base") / "base", dtype=torch.float32)


@pytest.fixture
def place(tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in list(os.environ):
        if name.startswith("UNSEEN_"):
            monkeypatch.delenv(name)
    shutil.copytree(base, tmp_path / "base")
    members, nonmembers = records.sides(tmp_path, 30, plant=True)
    (tmp_path / "all.jsonl").write_text(members.read_text() + nonmembers.read_text())
    return tmp_path


TARGET = ["train", "target", "--model", "base", "--data", "all.jsonl", "--learning-rate", "0.01"]


def test_train_and_audit_from_the_command_line(place: Path, capsys) -> None:
    assert run([*TARGET, "--out", "target", "--epochs", "1"]) == 0
    shown = capsys.readouterr()
    assert "trained   30 records, 30 held out" in shown.out
    assert "unseen audit finetune --run-of target" in shown.out
    assert "epoch 1 of 1: mean loss" in shown.err
    assert not any(records.planted(i) in shown.out + shown.err for i in range(records.N_PLANTED))
    words = ["audit", "finetune", "--run-of", "target", "--attacks", "loss", "--bootstrap", "200"]
    assert run([*words, "--no-preflight", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["data"]["members"]["n_judged"] == 30
    assert run(["train", "target", "--config", "target/config.yaml", "--json"]) == 0
    shown = capsys.readouterr()
    assert "trained already" in shown.err
    assert json.loads(shown.out)["status"] == "complete"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["prefix", "prompt", "ia3"])
def test_what_any_method_trained_is_audited(place: Path, capsys, method: str) -> None:
    words = [*TARGET, "--method", method, "--virtual-tokens", "4", "--epochs", "3"]
    assert run([*words, "--out", "target"]) == 0
    capsys.readouterr()
    words = ["audit", "finetune", "--run-of", "target", "--attacks", "loss,reference"]
    assert run([*words, "--bootstrap", "200", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    status = {check["id"]: check["status"] for check in results["checks"]}
    assert status["teacher_forced"] == status["adapter_effect"] == "pass"


def test_a_yaml_file_of_an_audit_is_not_read_unasked(place: Path, capsys) -> None:
    (place / "unseen.yaml").write_text("members: x.jsonl\nattacks: loss\n")
    assert run([*TARGET, "--out", "target", "--epochs", "1"]) == 0
    assert run([*TARGET, "--out", "target", "--epochs", "1", "--config", "unseen.yaml"]) == 2
    assert "members" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--out", "t", "--share", "1.5"], "--share"),
        (["--out", "t", "--epochs", "none"], "--epochs: got 'none', expected a valid integer"),
        (["--out", "t", "--method", "lorra"], "--method"),
        (["--out", "t", "--batch-size", "0"], "--batch-size: got '0', expected at least 1"),
        ([], "--out DIR"),
        (["--out", "t", "--model", "nowhere/at/all"], "there is no model folder"),
        (["--out", "t", "--data", "none.jsonl"], "none.jsonl"),
        (["--out", "t", "--template", "none.jinja"], "the path of a Jinja file"),
        (["--out", "t", "--delta", "0.1"], "epsilon"),
        (
            ["--out", "t", "--method", "prompt", "--virtual-tokens", "9999"],
            "leave no room for text",
        ),
        (["--out", "t", "--model", "tb2"], "there is no folder tb2, and"),
        (["--out", "t", "--epsilon", "0"], "--epsilon: got '0', expected a number above 0"),
        (["--out", "t", "--epsilon", "1e9"], "expected at most 1000: more protects nobody"),
        (["--out", "all.jsonl"], "--out all.jsonl is a file"),
    ],
)
def test_bad_input_is_one_message(place: Path, capsys, more, message) -> None:
    usual = {"--model": "base", "--data": "all.jsonl"}
    words = ["train", "target"]
    words += [w for flag, value in usual.items() if flag not in more for w in (flag, value)]
    assert run([*words, *more]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown
    assert not (place / "t" / "model").exists()


def _until_training(process: subprocess.Popen[str]) -> None:
    for line in process.stderr:
        if line.startswith("training "):
            return


@pytest.mark.slow
@pytest.mark.parametrize("method", ["full", "lora"])
def test_killed_at_any_moment_it_ends_with_the_same_weights(place: Path, method: str) -> None:
    words = [*TARGET, "--epochs", "8", "--method", method, "--save-every", "3", "--keep-epochs"]
    words += ["--dropout", "0.1"]
    assert run([*words, "--out", "whole"]) == 0
    rng = random.Random(method)
    command = [sys.executable, "-m", "unseen", *words, "--out", "killed"]
    kills = 0
    for _ in range(40):
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            _until_training(process)
            time.sleep(rng.random() * 0.5)
            process.send_signal(signal.SIGKILL)
            process.stderr.read()
        if process.returncode == 0 or kills >= 6:
            break
        kills += 1
    assert kills >= 3
    assert run([*words, "--out", "killed"]) == 0
    files = [
        {
            file.relative_to(where): file.read_bytes()
            for file in sorted(Path(where).rglob("*"))
            if re.fullmatch(r".*\.safetensors|losses.csv", file.name)
        }
        for where in ("whole", "killed")
    ]
    assert len(files[0]) == 9  # seven epochs, the model, and the losses
    assert files[0] == files[1]
    about = json.loads(Path("killed/run.json").read_text())
    assert len(about["attempts"]) >= kills
    assert about["attempts"][-1]["status"] == "complete"
    assert not Path("killed/checkpoint").exists()
    assert run(["verify", "killed"]) == 0, sorted(map(str, Path("killed").rglob("*")))


@pytest.mark.slow
def test_an_interrupted_training_says_that_it_continues(place: Path) -> None:
    command = [sys.executable, "-m", "unseen", *TARGET, "--out", "t", "--epochs", "200"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        _until_training(process)
        process.send_signal(signal.SIGTERM)
        assert "the same command continues" in process.stderr.read()
    assert process.returncode == 143


def test_a_full_disk_is_one_message(place: Path, capsys, monkeypatch) -> None:
    from safetensors import SafetensorError
    from safetensors import torch as of_torch

    def full(*_: object, **__: object) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(of_torch, "save_file", full)
    assert run([*TARGET, "--out", "t", "--epochs", "1"]) == 2
    shown = capsys.readouterr().err
    assert "No space left on device" in shown
    assert "run the same command: it continues" in shown
