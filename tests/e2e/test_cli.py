"""The command line, in this process: what it prints, and what it says of bad input."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
import records
import tiny

from unseen import attacks
from unseen.cli.main import run
from unseen.data.synthetic import people


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


def test_empty_answers_are_counted_and_nothing_more(files, capsys) -> None:
    for number, completion in ((4, "  "), (5, "")):
        replace_row("members.jsonl", number, completion=completion)
    capsys.readouterr()
    assert audit(files, "--run-dir", "mine", "--attacks", "loss,zlib", "--json") in (0, 11)
    made = json.loads(capsys.readouterr().out)
    assert len(made["attacks"]) > 3, "baselines too"
    for row in made["attacks"]:
        assert (row["n"], row["unscored"]) == ([28, 30], {"the response is empty": 2}), row["name"]
    assert run(["score", "mine", "--json"]) in (0, 11)
    assert json.loads(capsys.readouterr().out)["attacks"] == made["attacks"]
    assert run(["check", "--members", files[0], "--nonmembers", files[1], "--json"]) in (0, 11)
    checked = json.loads(capsys.readouterr().out)["attacks"]
    assert {tuple(row["unscored"].items()) for row in checked} == {(("the response is empty", 2),)}


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
    assert run(["ls", "defenses"]) == 0
    assert "rewrite_filter" in capsys.readouterr().out
    assert run(["ls", "defenses", "--explain"]) == 0
    assert "sigma" in capsys.readouterr().out
    assert run(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Results"


def test_what_was_not_measured_is_measured_by_the_command_of_the_message(files, capsys) -> None:
    Path("the runs").mkdir()
    rows = [records.row(record) for record in people(9, 77)]
    records.write(Path("corpus.jsonl"), rows)
    more = ("--attacks", "loss,dc_pdd", "--corpus", "corpus.jsonl")
    assert audit(files, "--run-dir", "the runs/a", *more) == 0
    for expected in ("a-2", "a-3"):
        capsys.readouterr()
        assert run(["score", "the runs/a", "--attacks", "wbc,min_k[k=0.5]"]) == 2
        message = " ".join(capsys.readouterr().err.split())
        command = message[message.index("unseen audit") : message.index(" (what is in the cache")]
        assert run([*shlex.split(command)[1:], "--bootstrap", "200"]) == 0
        made = json.loads(Path(f"the runs/{expected}/results.json").read_text())
        assert {"loss", "dc_pdd", "wbc"} <= {row["name"] for row in made["attacks"]}


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
    assert code == 11  # 14 non-members are too few for a finding
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    report = Path("mine/report.md").read_text()
    assert "<script>" not in report
    assert "<b>" not in report
    results = json.loads(Path("mine/results.json").read_text())
    assert results["data"]["truncated"] == 1


def test_exit_codes_say_whether_something_was_found_out(tmp_path) -> None:
    rows = [f"{i % 2},{i / 10 + 10 * (i % 2)}" for i in range(24)]
    Path("few.csv").write_text("\n".join(["member,s", *rows]))
    assert run(["evaluate", "few.csv", "--bootstrap", "200"]) == 11
    rows = [f"{i % 2},{i / 10 + 10 * (i % 2)}" for i in range(100)]
    Path("enough.csv").write_text("\n".join(["member,s", *rows]))
    assert run(["evaluate", "enough.csv", "--bootstrap", "200"]) == 0


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
    "null text": (
        lambda: replace_row("members.jsonl", 4, completion=7),
        (),
        ("members.jsonl line 5", "completion"),
    ),
    "same file": (lambda: None, ("--nonmembers", "members.jsonl"), ("members.jsonl",)),
    "label without column": (lambda: None, ("--data", "members.jsonl"), ("exclude",)),
    "unknown slice": (lambda: None, ("--slice-by", "fil"), ("fil", "file")),
    "unknown attack": (lambda: None, ("--attacks", "min-l"), ("min-l", "min_k")),
    "attack in capitals": (lambda: None, ("--attacks", "ICP_SP"), ("did you mean 'icp_sp'",)),
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
    "unknown tag": (
        lambda: broken("c.yaml", "\nseed: !!python/object:os.system x\n"),
        ("--config", "c.yaml"),
        ("c.yaml line 2", "python/object"),
    ),
    "key is a number": (lambda: broken("c.yaml", "1: x\n"), ("--config", "c.yaml"), ("key 1",)),
    "key twice": (
        lambda: broken("c.yaml", "seed: 1\nseed: 2\n"),
        ("--config", "c.yaml"),
        ("c.yaml line 2", "seed", "twice"),
    ),
    "number as long as a line": (
        lambda: broken("c.yaml", f"seed: {'9' * 5000}\n"),
        ("--config", "c.yaml"),
        ("c.yaml",),
    ),
    "nested too deep": (
        lambda: broken("c.yaml", "seed: " + "[" * 5000),
        ("--config", "c.yaml"),
        ("c.yaml", "deep"),
    ),
    "contains itself": (
        lambda: broken("c.yaml", "fpr: &a [*a]\n"),
        ("--config", "c.yaml"),
        ("c.yaml", "fpr"),
    ),
    "YAML is a folder": (lambda: Path("c").mkdir(), ("--config", "c"), ("c: is a folder",)),
    "YAML is not UTF-8": (
        lambda: broken("c.yaml", b"seed: 1\nmodel: \xff\n"),
        ("--config", "c.yaml"),
        ("c.yaml line 2", "UTF-8", "iconv"),
    ),
    "YAML holds a list": (lambda: broken("c.yaml", "- a"), ("--config", "c.yaml"), ("a list",)),
    "YAML holds a word": (lambda: broken("c.yaml", "a"), ("--config", "c.yaml"), ("single value",)),
    "YAML under a command": (
        lambda: broken("c.yaml", "audit:\n  finetune:\n    seed: 1\n"),
        ("--config", "c.yaml"),
        ("c.yaml: audit", "top"),
    ),
    "value in YAML": (
        lambda: broken("c.yaml", "folds: many\n"),
        ("--config", "c.yaml"),
        ("folds in c.yaml: got 'many'",),
    ),
    "list in YAML": (
        lambda: broken("c.yaml", "fpr: [a, 0.1]\n"),
        ("--config", "c.yaml"),
        ("fpr in c.yaml: got 'a'", "fpr: [0.01, 0.1]"),
    ),
    "no list at all": (
        lambda: broken("c.yaml", "fpr: []\n"),
        ("--config", "c.yaml"),
        ("fpr in c.yaml: got nothing",),
    ),
    "list for one value": (
        lambda: broken("c.yaml", "device: [cpu, cuda]\n"),
        ("--config", "c.yaml"),
        ("device in c.yaml: got a list",),
    ),
    "two ways to write a key": (
        lambda: broken("c.yaml", "max-length: 2\nmax_length: 3\n"),
        ("--config", "c.yaml"),
        ("max_length stands twice",),
    ),
    "no name of a file": (lambda: None, ("--config=",), ("--config unseen.yaml",)),
    "two files": (lambda: None, ("--config", "a", "--config", "b"), ("twice",)),
    "too many draws": (lambda: None, ("--bootstrap", "1000000000000"), ("1000000", "--bootstrap")),
    "no whole number": (lambda: None, ("--bootstrap", "1e12"), ("--bootstrap: got '1e12'",)),
    "too many threads": (lambda: None, ("--threads", "99999999999"), ("--threads",)),
    "list of rates": (lambda: None, ("--fpr", "x,0.1"), ("--fpr: got 'x'", "--fpr 0.01,0.1")),
    "list in brackets": (lambda: None, ("--fpr", "[0.1"), ("--fpr", "JSON")),
    "a word too many": (lambda: None, ("extra",), ("'extra'",)),
    "no value": (lambda: None, ("--seed",), ("--seed needs a value",)),
    "model of a name too long": (lambda: None, ("--model", "x" * 9000), ("--model: got 'xxx",)),
    "folder of a name too long": (lambda: None, ("--run-dir", "x" * 9000), ("--run-dir: got",)),
    "cache of a name too long": (lambda: None, ("--cache-dir", "x" * 300), ("--cache-dir: got",)),
    "NUL in a name": (
        lambda: broken("c.yaml", 'template: "a\\0b"\n'),
        ("--config", "c.yaml"),
        ("template in c.yaml", "NUL"),
    ),
    "empty CSV": (lambda: broken("e.csv", ""), ("--members", "e.csv"), ("header line",)),
    "sides of two forms": (
        lambda: broken("t.jsonl", '{"text": "some words"}\n'),
        ("--nonmembers", "t.jsonl"),
        ("t.jsonl line 1", "write both sides as text"),
    ),
    "label column of nothing": (lambda: None, ("--label-column", "id"), ("--data FILE",)),
    "precision of a fake model": (lambda: None, ("--dtype", "float16"), ("leave out --dtype",)),
    "shadow that nobody asks": (
        lambda: None,
        ("--shadow", "fake/nonmembers.jsonl"),
        ("--shadow is read by lira and rmia", "leave out --shadow, or add --attacks lira,rmia"),
    ),
    "corpus that nobody counts in": (
        lambda: None,
        ("--corpus", "nonmembers.jsonl"),
        ("--corpus is read by dc_pdd", "leave out --corpus"),
    ),
    "pool that nobody shows": (
        lambda: None,
        ("--reference-pool", "nonmembers.jsonl"),
        ("--reference-pool is read by icp_ref and dc_pdd", "leave out --reference-pool"),
    ),
    "generator that nobody asks": (
        lambda: None,
        ("--generator", "fake/nonmembers.jsonl"),
        ("--generator is read by", "--attacks 'icp_sp[source=generate],g_drift_stability"),
    ),
    "surrogate that nobody asks": (
        lambda: None,
        ("--surrogate", "fake/nonmembers.jsonl"),
        ("--surrogate is read by petal", "add --attacks petal"),
    ),
    "probes that nobody shows": (
        lambda: None,
        ("--probes", "nonmembers.jsonl"),
        ("--probes is read by", "--attacks 'icp_sp[source=file]'"),
    ),
    "no shadow": (lambda: None, ("--attacks", "lira"), ("lira cannot be run", "--shadow MODEL")),
    "shadow is no model": (
        lambda: Path("d").mkdir(),
        ("--attacks", "lira", "--shadow", "d"),
        ("cannot load the shadow: d is no model folder", "save_pretrained"),
    ),
    "shadow is the target": (
        lambda: None,
        ("--attacks", "lira", "--shadow", "fake/members.jsonl"),
        ("the same weights as the target",),
    ),
    "shadow without file": (
        lambda: None,
        ("--attacks", "lira", "--shadow", "fake/nonmembers.jsonl="),
        ("names no file", "--shadow MODEL=FILE"),
    ),
    "shadow of a file alone": (
        lambda: None,
        ("--attacks", "lira", "--shadow", "=members.jsonl"),
        ("names no model", "--shadow MODEL=FILE"),
    ),
    "beyond the user's own cap": (
        lambda: None,
        ("--attacks", "icp_sp", "--access", "label"),
        (
            "it needs logprob access, the target gives label",
            "--attacks 'icp_sp[likelihood=petal]', or --access logprob, or leave out --access label",
        ),
    ),
    "beyond what the target gives": (
        lambda: None,
        ("--attacks", "optimization_gap"),
        ("it needs weights access", "--attacks"),
    ),
    "no corpus": (lambda: None, ("--attacks", "dc_pdd"), ("dc_pdd cannot", "--corpus FILE")),
    "corpus is not there": (
        lambda: None,
        ("--attacks", "dc_pdd", "--corpus", "membrs.jsonl"),
        ("membrs.jsonl: no such file", "members.jsonl"),
    ),
    "no pool": (lambda: None, ("--attacks", "icp_ref"), ("--reference-pool FILE",)),
    "empty pool": (
        lambda: broken("e.jsonl", ""),
        ("--attacks", "icp_ref", "--reference-pool", "e.jsonl"),
        ("e.jsonl: is an empty file",),
    ),
    "generator is not there": (
        lambda: None,
        ("--attacks", "icp_sp[source=generate]", "--generator", "nowhere"),
        ("cannot load the generator: there is no folder nowhere",),
    ),
    "surrogate is not there": (
        lambda: None,
        ("--attacks", "petal", "--surrogate", "./nowhere"),
        ("cannot load the surrogate: there is no model folder",),
    ),
    "reference is not there": (
        lambda: None,
        ("--attacks", "reference", "--reference", "./nowhere"),
        ("cannot load the reference: there is no model folder",),
    ),
    "no probes": (lambda: None, ("--attacks", "icp_sp[source=file]"), ("--probes FILE",)),
    "probes without probes": (
        lambda: None,
        ("--attacks", "icp_sp[source=file]", "--probes", "members.jsonl"),
        ("members.jsonl line 1: has no", '"probes": ['),
    ),
    "no fusion": (lambda: None, ("--attacks", "transferred"), ("--trained-from RUN",)),
    "fusion of no run": (
        lambda: Path("d").mkdir(),
        ("--attacks", "transferred", "--trained-from", "d"),
        ("d has no learned.json", "--trained-from RUN"),
    ),
    "fusion is no fusion": (
        lambda: broken("learned.json", "{}"),
        ("--attacks", "transferred", "--trained-from", "learned.json"),
        ("learned.json is no learned.json of this version", "run its audit again"),
    ),
    "run of no run": (
        lambda: Path("d").mkdir(),
        ("--run-of", "d"),
        ("d is no run folder", "--out"),
    ),
    "no filler": (
        lambda: None,
        ("--attacks", "neighborhood"),
        ("shows no word embeddings", "neighborhood[filler=MODEL]"),
    ),
    "filler without a name": (
        lambda: None,
        ("--attacks", "neighborhood[filler=embeddings:]"),
        ("got no filler", "expected embeddings"),
    ),
    "filler is no model": (
        lambda: Path("d").mkdir(),
        ("--attacks", "spv[filler=d]"),
        ("cannot load the filler: d is no model folder", "google-t5/t5-large"),
    ),
    **{
        f"{name} without a name": (lambda: None, (f"--{name}", ""), (f"--{name}: got ''",))
        for name in (
            "shadow",
            "corpus",
            "reference-pool",
            "generator",
            "surrogate",
            "probes",
            "trained-from",
            "run-of",
            "members",
        )
    },
    "long option": (lambda: None, ("--" + "x" * 9000, "1"), ("characters)",)),
    "long column": (lambda: None, ("--slice-by", "x" * 9000), ("9000 characters",)),
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
    assert len(message) < 2500
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


def test_lists_are_written_with_commas(files, monkeypatch) -> None:
    monkeypatch.setenv("UNSEEN_FPR", "0.1, 0.2")
    monkeypatch.setenv("UNSEEN_SLICE_BY", '["file"]')
    assert audit(files, "--attacks", "zlib,min_k[k=0.5]", "--run-dir", "mine", "--json") == 0
    config = json.loads(Path("mine/run.json").read_text())["config"]
    assert config["attacks"] == ["zlib", "min_k[k=0.5]"]
    assert (config["fpr"], config["slice_by"]) == ([0.1, 0.2], ["file"])


VARIABLES = {
    "value": ("UNSEEN_FOLDS", "many", "UNSEEN_FOLDS: got 'many'"),
    "list": ("UNSEEN_FPR", "x", "UNSEEN_FPR=0.01,0.1"),
    "misspelt": ("UNSEEN_BOOSTRAP", "300", "did you mean UNSEEN_BOOTSTRAP?"),
    "unknown": ("UNSEEN_WEATHER", "fine", "unset UNSEEN_WEATHER"),
    "word": ("UNSEEN_ATTACKS", "loss,zlip", "UNSEEN_ATTACKS: unknown attack 'zlip'"),
    "file": ("UNSEEN_CONFIG", "none.yaml", "none.yaml"),
}


@pytest.mark.parametrize("case", VARIABLES)
def test_faults_name_the_variable(case: str, files, monkeypatch, capsys) -> None:
    name, value, expected = VARIABLES[case]
    monkeypatch.setenv(name, value)
    members, nonmembers = files
    words = ["--model", f"fake/{members}", "--members", members, "--nonmembers", nonmembers]
    assert run(["audit", "finetune", *words]) == 2
    assert expected in " ".join(capsys.readouterr().err.split())


def test_a_variable_of_another_command_is_no_fault(monkeypatch, capsys) -> None:
    monkeypatch.setenv("UNSEEN_MODEL", "x")
    monkeypatch.setenv("UNSEEN_DEBUG", "0")
    assert run(["schema"]) == 0


@pytest.mark.parametrize("args", [("--fpr", "7"), ("--bootstrap", "3"), ("--folds", "many")])
def test_faults_point_to_the_command(args: tuple[str, str], files, monkeypatch, capsys) -> None:
    rows = [f"{i % 2},{(i % 2) + i % 7 / 5}" for i in range(60)]
    Path("scores.csv").write_text("\n".join(["member,mine", *rows]))
    assert audit(files, "--run-dir", "mine") == 0
    for words in (("evaluate", "scores.csv"), ("score", "mine")):
        capsys.readouterr()
        assert run([*words, *args]) == 2
        shown = capsys.readouterr().err
        assert f"{args[0]}: got" in shown
        assert f"unseen {words[0]} --help" in shown
    assert run(["score", "mine", "--config", "c.yaml"]) == 2


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["audti"], ("'audti'", "'audit'", "evaluate", "unseen --help")),
        (["audit", "x"], ("'x'", "finetune", "unseen audit --help")),
        (["--foo"], ("'--foo'", "audit", "unseen --help")),
        (["evaluate"], ("SCORES is missing", "unseen evaluate --help")),
    ],
)
def test_unknown_words_list_the_known(args: list[str], words: tuple[str, ...], capsys) -> None:
    assert run(args) == 2
    shown = capsys.readouterr().err
    for word in words:
        assert word in shown, shown


def test_a_broken_attack_stops_only_who_asks_for_it(files, tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "toy.py").write_text("def (")
    monkeypatch.setattr(attacks, "__path__", [*attacks.__path__, str(tmp_path / "more")])
    assert run(["ls", "attacks"]) == 2
    shown = capsys.readouterr()
    assert "min_k_pp" in shown.out
    assert "toy.py cannot be loaded: line 1" in shown.err
    assert run(["schema"]) == 0
    assert audit(files, "--attacks", "default") == 2
    assert capsys.readouterr().err.count("toy.py cannot be loaded") == 1


STEERING = "a\x1b[31m\x07b\u202ec"


def test_nothing_from_outside_steers_the_terminal(files, capsys) -> None:
    members, nonmembers = files
    Path(nonmembers).rename(f"{STEERING}.jsonl")
    files = (members, f"{STEERING}.jsonl")
    assert audit(files, "--run-dir", f"r{STEERING}") == 0
    numbers = [f"{i % 2},{i % 7}" for i in range(60)]
    Path("scores.csv").write_text("\n".join([f"member,{STEERING}", *numbers]))
    assert run(["evaluate", "scores.csv"]) == 0
    Path("long.csv").write_text("\n".join([f"member,{'y' * 9000}", *numbers]))
    assert run(["evaluate", "long.csv"]) == 0
    for args in (
        ["evaluate", STEERING],
        ["evaluate", "scores.csv", "--label-column", STEERING],
        ["score", STEERING],
        ["score", "x" * 9000],
        [STEERING],
        ["audit", "finetune", f"--{STEERING}", "1"],
    ):
        assert run(args) == 2
    assert audit(files, "--attacks", STEERING) == 2
    assert audit(files, "--slice-by", STEERING) == 2
    assert audit((f"{STEERING}2.jsonl", members)) == 2
    shown = capsys.readouterr()
    everything = shown.out + shown.err + Path(f"r{STEERING}/report.md").read_text()
    assert all(char.isprintable() or char == "\n" for char in everything)
    assert "a\\x1b[31m\\x07b\\u202ec" in shown.out
    assert max(map(len, everything.splitlines())) < 1500


def test_the_folder_of_all_runs_lists_them(files, capsys) -> None:
    assert audit(files) == 0
    capsys.readouterr()
    assert run(["score", "runs"]) == 2
    (made,) = (path for path in Path("runs").iterdir() if not path.is_symlink())
    assert f"unseen score runs/{made.name}" in capsys.readouterr().err
