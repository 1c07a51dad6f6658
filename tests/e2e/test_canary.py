"""`unseen canary` in this process: from making to the bound, and what it says of bad input."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from unseen.cli.main import run


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in list(os.environ):
        if name.startswith("UNSEEN_"):
            monkeypatch.delenv(name)


def test_from_canaries_to_a_bound(capsys) -> None:
    assert run(["canary", "make", "--n", "60", "--out", "c", "--kind", "random-digits"]) == 0
    shown = capsys.readouterr().out
    for words in ("60, of which", "sha256", "unseen canary audit --key c/key.json", "at most"):
        assert words in shown
    audit = ["canary", "audit", "--key", "c/key.json", "--model", "fake/c/canaries.jsonl"]
    assert run([*audit, "--bootstrap", "200", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["run"]["scenario"] == "canary"
    assert results["epsilon"]["kind"] == "bound"
    assert results["epsilon"]["lower"] > 0.5
    assert run([*audit, "--bootstrap", "200"]) == 0
    shown = capsys.readouterr()
    assert "EPSILON" in shown.out
    assert "run folder runs/" in shown.err


def test_a_known_seed_is_said_and_json_is_json(capsys) -> None:
    assert run(["canary", "make", "--n", "40", "--seed", "0", "--json"]) == 0
    shown = capsys.readouterr()
    made = json.loads(shown.out)
    assert (made["n"], made["key"], made["seed"]) == (40, "canaries/key.json", 0)
    assert 0 < made["n_included"] < 40
    assert "whoever knows it knows the coins" in shown.err


def test_a_file_of_the_user_gives_the_form(capsys) -> None:
    Path("train.jsonl").write_text('{"q": "a", "a": "b"}\n')
    like = ["--like", "train.jsonl", "--column", "prompt=q,completion=a"]
    assert run(["canary", "make", "--n", "40", *like]) == 0
    row = json.loads(Path("canaries/canaries.jsonl").read_text().splitlines()[0])
    assert set(row) == {"q", "a"}


BAD = {
    "too few": (["make", "--n", "3"], ("n=3", "20")),
    "no number": (["make", "--n", "many"], ("--n", "whole number")),
    "unknown kind": (["make", "--kind", "secret"], ("kind",)),
    "unknown form": (["make", "--format", "poem"], ("poem", "messages")),
    "no such file": (["make", "--like", "x.jsonl"], ("x.jsonl",)),
    "bad column": (["make", "--column", "prompt"], ("role=column",)),
    "unknown option": (["make", "--sed", "1"], ("--sed",)),
    "no key": (["audit", "--model", "fake/"], ("--key",)),
    "no such key": (["audit", "--model", "fake/", "--key", "k.json"], ("k.json",)),
    "no model": (["audit", "--key", "c"], ("--model",)),
    "members too": (["audit", "--key", "c", "--model", "fake/", "--members", "m"], ("--members",)),
    "an attack that learns": (
        ["audit", "--key", "c", "--model", "fake/", "--attacks", "bag_of_words"],
        ("bag_of_words",),
    ),
    "a delta too large": (
        ["audit", "--key", "c", "--model", "fake/", "--delta", "0.5"],
        ("delta=0.5",),
    ),
    "again": (["make", "--out", "c"], ("c/key.json", "not overwritten")),
    "unknown command": (["insert"], ("insert", "make")),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_message(case, capsys) -> None:
    words, expected = BAD[case]
    assert run(["canary", "make", "--n", "40", "--out", "c"]) == 0
    capsys.readouterr()
    assert run(["canary", *words]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert message.count("error[") == 1
    assert "Traceback" not in message
    for word in expected:
        assert word in message, message
