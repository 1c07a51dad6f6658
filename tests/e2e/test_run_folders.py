"""Every command that reads a run folder, on folders that somebody has damaged, cut or mixed up."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import records

import unseen
from unseen.cli.main import run
from unseen.runs.folder import RunFolder

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Two runs on the same records, one on others, and one on too few."""
    where = tmp_path_factory.mktemp("made")
    for name, n, seed in (("one", 40, 0), ("two", 40, 1), ("far", 41, 0), ("few", 5, 0)):
        members, nonmembers = records.sides(where / f"data{n}", n)
        texts = [json.loads(line)["completion"] for line in members.read_text().splitlines()]
        unseen.audit_finetune(
            unseen.FakeTarget(texts, strength=1.0),
            members=str(members),
            nonmembers=str(nonmembers),
            attacks=("loss",),
            run_dir=where / name,
            cache=False,
            bootstrap=200,
            seed=seed,
            fpr=(0.1,),
        )
    return where


@pytest.fixture
def here(made, tmp_path, monkeypatch) -> Path:
    for name in ("one", "two", "far", "few"):
        shutil.copytree(made / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rewrite(name: str, change: Callable[[dict], None], *, seal: bool = True) -> None:
    """Changes a JSON file of the run `one`, and its manifest with it."""
    file = Path("one") / name
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    if seal:
        RunFolder(Path("one")).write_manifest()


def without_scores() -> None:
    file = Path("one/records.parquet")
    table = pq.read_table(file)
    pq.write_table(table.select(["id", "member"]), file)
    RunFolder(Path("one")).write_manifest()


def without_members() -> None:
    file = Path("one/records.parquet")
    pq.write_table(pq.read_table(file).drop(["member"]), file)
    RunFolder(Path("one")).write_manifest()


def hostile_table() -> None:
    pq.write_table(pa.table({"id": ["\x1b]0;x\x07"], "member": [True]}), "one/records.parquet")


READS = (["score"], ["report"], ["gate", "--max", "auc=0.9"], ["compare"])

DAMAGE: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "nothing there": (lambda: shutil.rmtree("one"), ("no run.json",)),
    "an empty folder": (
        lambda: (shutil.rmtree("one"), Path("one").mkdir()),
        ("no run.json",),
    ),
    "a file": (
        lambda: (shutil.rmtree("one"), Path("one").write_text("x")),
        ("one",),
    ),
    "not finished": (
        lambda: rewrite("run.json", lambda about: about.update(status="running")),
        ("not finished", "continues"),
    ),
    "no manifest": (lambda: Path("one/manifest.sha256").unlink(), ("manifest.sha256",)),
    "an edited result": (
        lambda: rewrite("results.json", lambda r: r.update(access="text"), seal=False),
        ("results.json was changed",),
    ),
    "an edited table": (hostile_table, ("records.parquet was changed",)),
    "a lost table": (lambda: Path("one/records.parquet").unlink(), ("records.parquet is missing",)),
    "a lost result": (lambda: Path("one/results.json").unlink(), ("results.json is missing",)),
    "no JSON": (lambda: Path("one/run.json").write_text("{"), ("run.json", "damaged")),
    "a newer schema": (
        lambda: rewrite("results.json", lambda r: r.update(schema_version="2.0")),
        ("schema 2.0", "pip install --upgrade unseen"),
    ),
    "no schema": (
        lambda: rewrite("results.json", lambda r: r.pop("schema_version")),
        ("of no version",),
    ),
    "another shape": (
        lambda: rewrite("results.json", lambda r: r.update(attacks="none")),
        ("results.json does not fit",),
    ),
    "no members": (without_members, ("no column member",)),
}


@pytest.mark.parametrize("command", READS, ids=lambda command: command[0])
@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_run_is_one_message(case, command, here, capsys) -> None:
    damage, words = DAMAGE[case]
    damage()
    runs = ["one", "two"] if command[0] == "compare" else ["one"]
    if case == "no members" and command[0] == "report":
        pytest.skip("the report of a run names who was a member by its scores")
    assert run([command[0], *runs, *command[1:]]) == 2
    one_message(capsys, words)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["compare", "one", "far"], ("--force",)),
        (["compare", "one"], ("unseen compare",)),
        (["compare", "one", "one", "--markdown", "none/x.md"], ("none/x.md",)),
        (["gate", "one"], ("--max",)),
        (["gate", "one", "--max", "auc"], ("auc",)),
        (["gate", "one", "--max", "auc=high"], ("high",)),
        (["gate", "one", "--max", "aux=0.5"], ("aux", "auc")),
        (["gate", "one", "--max", "auc@lost=0.5"], ("lost", "loss")),
        (["gate", "one", "--max", "auc=1.5"], ("1.5",)),
        (["gate", "one", "--max", "auc=0.6", "--junit", "none/x.xml"], ("none/x.xml",)),
        (["report", "one", "--format", "pdf"], ("pdf", "html")),
        (["report", "one", "--reveal", "--out", "x.html"], ("--reveal",)),
        (["report", "one", "--out", "none/x.html"], ("none/x.html",)),
        (["score", "one", "--attacks", "los"], ("los", "loss")),
        (["score", "one", "--attacks", "recall"], ("not kept",)),
        (["verify", "none"], ("no run.json",)),
        (["verify"], ("RUN",)),
    ],
    ids=" ".join,
)
def test_what_a_run_cannot_answer_is_one_message(args, words, here, capsys) -> None:
    assert run(args) == 2
    one_message(capsys, words)


def one_message(capsys, words) -> None:
    message = " ".join(capsys.readouterr().err.split())
    assert message.count("error[") == 1, message
    assert "Traceback" not in message
    assert "\x1b" not in message
    assert len(message) < 2500
    for word in words:
        assert word in message, message


def test_the_same_runs_unharmed_are_read(here, capsys) -> None:
    assert run(["score", "one"]) == 0
    assert run(["report", "one"]) == 0
    assert run(["compare", "one", "two"]) == 0
    assert run(["compare", "one", "one"]) == 0
    assert run(["verify", "one"]) == 0
    assert run(["gate", "one", "--max", "auc=0.9999"]) in (0, 11)
    assert run(["gate", "one", "--max", "auc=0.6"]) == 10


def test_too_few_records_decide_no_gate(here, capsys) -> None:
    assert run(["gate", "few", "--max", "auc=0.9"]) == 11
    assert run(["report", "few", "--format", "md"]) == 0
    assert run(["verify", "few"]) == 0
