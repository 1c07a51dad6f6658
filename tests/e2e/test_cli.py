"""The command line, in this process: what it prints, and what it says of bad input."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import records
import tiny

from unseen.cli.main import run


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in list(os.environ):
        if name.startswith("UNSEEN_"):
            monkeypatch.delenv(name)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    members, nonmembers = records.sides(tmp_path, 30)
    return members.name, nonmembers.name


def audit(files: tuple[str, str], *more: str, model: str = "") -> int:
    """Runs an audit; what `more` says stands in place of the usual."""
    members, nonmembers = files
    usual = {
        "--model": model or f"fake/{members}",
        "--members": members,
        "--nonmembers": nonmembers,
        "--attacks": "loss",
        "--bootstrap": "200",
    }
    given = [word for flag, value in usual.items() if flag not in more for word in (flag, value)]
    return run(["audit", "finetune", *given, *more])


def test_an_audit_from_the_command_line(files, capsys) -> None:
    assert audit(files, "--fpr", "0.1") == 0
    shown = capsys.readouterr()
    for word in ("target", "loss", "bag_of_words", "chance", "TPR @ 10% FPR", "FINDING"):
        assert word in shown.out, word
    assert "run folder runs/" in shown.err
    assert "Traceback" not in shown.err


def test_json_goes_to_stdout_alone(files, capsys) -> None:
    assert audit(files, "--json") == 0
    assert json.loads(capsys.readouterr().out)["attacks"][0]["name"] == "loss"


def test_flag_beats_variable_beats_file(files, monkeypatch, capsys, tmp_path) -> None:
    (tmp_path / "unseen.yaml").write_text("confidence: 0.8\nseed: 3\nfolds: 4\n")
    monkeypatch.setenv("UNSEEN_SEED", "5")
    monkeypatch.setenv("UNSEEN_FOLDS", "3")
    assert audit(files, "--folds", "2", "--run-dir", "mine", "--json") == 0
    config = json.loads(Path("mine/run.json").read_text())["config"]
    assert (config["confidence"], config["seed"], config["folds"]) == (0.8, 5, 2)


def test_a_resolved_configuration_repeats_the_audit(files, capsys) -> None:
    assert audit(files, "--run-dir", "first", "--json") == 0
    first = json.loads(capsys.readouterr().out)
    text = Path("first/config.yaml").read_text().replace("run_dir: first", "run_dir: second")
    Path("again.yaml").write_text(text)
    assert run(["audit", "finetune", "--config", "again.yaml", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert first["attacks"] == again["attacks"]
    assert first["run"]["plan"] == again["run"]["plan"]


def test_score_evaluate_ls_schema(files, capsys) -> None:
    assert audit(files, "--run-dir", "mine", "--keep-tokens") == 0
    capsys.readouterr()
    assert run(["score", "mine", "--attacks", "min_k[k=0.5]", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["attacks"][0]["name"] == "min_k[k=0.5]"
    rows = [f"{i % 2},{(i % 2) + i % 7 / 5}" for i in range(60)]
    Path("scores.csv").write_text("\n".join(["member,mine", *rows]))
    assert run(["evaluate", "scores.csv"]) == 0
    assert "mine" in capsys.readouterr().out
    assert run(["ls", "attacks"]) == 0
    assert "min_k_pp" in capsys.readouterr().out
    assert run(["ls", "attacks", "--explain"]) == 0
    assert "arXiv" in capsys.readouterr().out
    assert run(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Results"


HOSTILE = "<script>alert(1)</script>" + "x" * 10_000


def test_hostile_ids_and_texts_are_just_strings(tmp_path, capsys) -> None:
    members, nonmembers = records.sides(tmp_path, 14)
    rows = [json.loads(line) for line in members.read_text().splitlines()]
    rows[0] |= {"id": HOSTILE, "completion": "مرحبا بالعالم, שלום 東京 " * 3}
    rows[1] |= {"id": "\u202egnp|`*", "completion": "Yes", "file": "<b>|x|</b>"}
    rows[2] |= {"id": "long", "completion": "lots of words " * 4_000}
    records.write(members, rows)
    code = audit(
        (members.name, nonmembers.name), "--run-dir", "mine", "--slice-by", "file",
        "--max-length", "2000", model="fake/",
    )  # fmt: skip
    assert code == 0
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    report = Path("mine/report.md").read_text()
    assert "<script>" not in report
    assert "<b>" not in report
    results = json.loads(Path("mine/results.json").read_text())
    assert results["data"]["truncated"] == 1


def broken(name: str, content: str | bytes) -> None:
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)


def replace_row(file: str, number: int, **fields: object) -> None:
    rows = [json.loads(line) for line in Path(file).read_text().splitlines()]
    rows[number] = {k: v for k, v in (rows[number] | fields).items() if v is not None}
    records.write(Path(file), rows)


BAD = {
    "no file": (lambda: None, ("--members", "membrs.jsonl"), ("membrs.jsonl", "members.jsonl")),
    "a folder": (lambda: Path("d").mkdir(), ("--members", "d"), ("d",)),
    "empty file": (lambda: broken("e.jsonl", ""), ("--members", "e.jsonl"), ("e.jsonl",)),
    "no JSON": (
        lambda: broken("j.jsonl", '{"text": "a"}\n{"text": \n'),
        ("--members", "j.jsonl"),
        ("j.jsonl line 2",),
    ),
    "NUL": (
        lambda: broken("n.jsonl", b'{"text": "a"}\n{"text": "b\\u0000"}\n'),
        ("--members", "n.jsonl"),
        ("n.jsonl line 2", "text"),
    ),
    "not UTF-8": (
        lambda: broken("u.jsonl", b'{"text": "\xff"}\n'),
        ("--members", "u.jsonl"),
        ("u.jsonl line 1",),
    ),
    "ragged": (
        lambda: broken("r.csv", "text,a\nx,1\ny\n"),
        ("--members", "r.csv", "--nonmembers", "r2.csv"),
        ("r",),
    ),
    "wrong columns": (
        lambda: broken("c.jsonl", '{"body": "some words"}\n'),
        ("--members", "c.jsonl"),
        ("body", "--column"),
    ),
    "empty text": (
        lambda: replace_row("members.jsonl", 4, completion="  "),
        (),
        ("members.jsonl line 5", "completion"),
    ),
    "same file": (lambda: None, ("--nonmembers", "members.jsonl"), ("members.jsonl",)),
    "label without column": (lambda: None, ("--data", "members.jsonl"), ("exclude",)),
    "unknown slice": (lambda: None, ("--slice-by", "fil"), ("fil", "file")),
    "unknown attack": (lambda: None, ("--attacks", "min-l"), ("min-l", "min_k")),
    "unknown field": (lambda: None, ("--attacks", "min_k[q=1]"), ("q", "k")),
    "bad field": (lambda: None, ("--attacks", "min_k[k=7]"), ("k=7",)),
    "unknown flag": (lambda: None, ("--modle", "x"), ("--modle", "--model")),
    "bad choice": (lambda: None, ("--access", "everything"), ("access",)),
    "bad number": (lambda: None, ("--bootstrap", "many"), ("bootstrap",)),
    "bad rate": (lambda: None, ("--fpr", "7"), ("fpr",)),
    "bad column": (lambda: None, ("--column", "text"), ("role=column",)),
    "no model folder": (lambda: None, ("--model", "./out"), ("./out",)),
    "no weights": (
        lambda: (Path("m").mkdir(), broken("m/config.json", "{}")),
        ("--model", "m"),
        ("m", "weights"),
    ),
    "no config": (lambda: Path("m").mkdir(), ("--model", "m"), ("config.json",)),
    "no base": (
        lambda: (
            Path("a").mkdir(),
            broken("a/adapter_config.json", '{"base_model_name_or_path": "./gone"}'),
            broken("a/adapter_model.safetensors", "x"),
        ),
        ("--model", "a"),
        ("./gone", "--base-model"),
    ),
    "no hub": (lambda: None, ("--model", "nobody/nothing"), ("nobody/nothing",)),
    "no template file": (lambda: None, ("--template", "t.jinja"), ("t.jinja",)),
    "needs reference": (
        lambda: None,
        ("--attacks", "reference", "--reference", "none"),
        ("--reference",),
    ),
    "no configuration": (lambda: None, ("--config", "c.yaml"), ("c.yaml",)),
    "no YAML": (lambda: broken("c.yaml", "a: [1"), ("--config", "c.yaml"), ("c.yaml",)),
    "unknown key": (lambda: broken("c.yaml", "modle: x\n"), ("--config", "c.yaml"), ("modle",)),
    "run folder is a file": (lambda: broken("f", "x"), ("--run-dir", "f/run"), ("f",)),
    "cache is a file": (lambda: broken("f", "x"), ("--cache-dir", "f/c"), ("f",)),
    "not a store": (
        lambda: (Path("c").mkdir(), broken("c/answers.sqlite", "nonsense" * 2000)),
        ("--cache-dir", "c"),
        ("answers.sqlite",),
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_message(case: str, files, capsys) -> None:
    prepare, more, words = BAD[case]
    prepare()
    assert audit(files, *more) == 2
    shown = capsys.readouterr()
    message = " ".join(shown.err.split())
    assert message.count("error[") == 1
    assert "Traceback" not in message
    for word in words:
        assert word in message, message


def test_a_tokenizer_without_chat_template(files, tmp_path, capsys) -> None:
    tiny.folder(tmp_path / "m", chat=False)
    capsys.readouterr()
    assert audit(files, model="m") == 2
    assert "--template" in capsys.readouterr().err
    assert audit(files, "--template", "plain", model="m") == 0


def test_debug_shows_the_traceback(files) -> None:
    with pytest.raises(Exception, match="members"):
        audit(files, "--members", "none.jsonl", "--debug")


@pytest.mark.parametrize("args", [["score", "nothing"], ["evaluate", "nothing.csv"], ["audti"], []])
def test_other_commands_explain_too(args: list[str], capsys) -> None:
    code = run(args)
    shown = capsys.readouterr()
    assert code == (2 if args else 0)
    assert "Traceback" not in shown.err
