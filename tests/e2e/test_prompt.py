"""An audit of a prompt through the command, from the first word to a report of another day."""

import json
from pathlib import Path

import demos
import pytest

from unseen.cli.main import run
from unseen.runs.prompt import demo

CHOICES = [
    "--trials", "30", "--bootstrap", "200", "--fpr", "0.1", "--attacks", "gap,repeat[encoder=letters]",
]  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNSEEN_CACHE_DIR", str(tmp_path / "cache"))
    demos.pool(tmp_path / "pool.jsonl")
    demos.template(tmp_path / "sort.txt")
    return tmp_path


def audit(*more: str) -> int:
    return run(
        ["audit", "prompt", "--model", "fake/copies", "--template", "sort.txt", "--demos", "pool.jsonl",
         *CHOICES, *more]
    )  # fmt: skip


def results(folder: Path) -> dict:
    return json.loads((folder / "results.json").read_text())


def test_a_prompt_that_leaks_is_found_and_an_empty_one_is_clear(here: Path, capsys) -> None:
    assert audit("--run-dir", "run", "--shots", "1,3") == 0
    shown = capsys.readouterr()
    assert "about to ask" in shown.err
    found = results(here / "run")
    assert found["run"]["scenario"] == "prompt"
    (gap,) = [row for row in found["attacks"] if row["name"] == "gap"]
    assert gap["auc"]["ci"][0] > 0.5
    (control,) = [row for row in found["control"] if row["name"] == "gap"]
    assert control["auc"]["ci"][0] <= 0.5 <= control["auc"]["ci"][1]
    assert [one["shots"] for one in found["settings"]] == [3]
    assert "records in the prompt" in found["headline"]["sentence"]
    assert run(["verify", "run"]) == 0


def test_no_text_of_a_record_is_in_the_run_folder(here: Path) -> None:
    assert audit("--run-dir", "run", "--shots", "1,3") == 0
    texts = [row["text"] for row in demos.rows(60)]
    words = {word for text in texts for word in text.rstrip(".").split()}
    for file in (here / "run").rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert not [word for word in words if word.encode() in content], file


def test_the_same_again_is_compared_with_it(here: Path, capsys) -> None:
    assert audit("--run-dir", "one") == 0
    assert audit("--run-dir", "two", "--no-cache") == 0
    assert run(["compare", "one", "two", "--json"]) == 0
    said = json.loads(capsys.readouterr().out.partition("{\n")[2].join(("{\n", "")))
    assert all(change["difference"]["value"] == 0 for change in said["changes"])


def test_a_run_is_scored_again_without_its_model(here: Path) -> None:
    assert audit("--run-dir", "run", "--shots", "1,3") == 0
    before = results(here / "run")
    assert run(["score", "run", "--confidence", "0.9"]) == 0
    after = results(here / "run")
    assert after["attacks"][0]["auc"]["confidence"] == 0.9
    assert after["settings"][0]["attacks"][0]["auc"]["confidence"] == 0.9
    assert [row["auc"]["value"] for row in after["attacks"]] == [
        row["auc"]["value"] for row in before["attacks"]
    ]
    assert [check["id"] for check in after["checks"]] == [check["id"] for check in before["checks"]]
    assert after["prompt"] == before["prompt"]
    assert run(["verify", "run"]) == 0


def test_every_fault_is_said_at_once(here: Path, capsys) -> None:
    assert run(["audit", "prompt"]) == 2
    shown = capsys.readouterr().err
    for what in ("no model is named", "no template is named", "no demonstrations are named"):
        assert what in shown


def test_the_demonstration_finds_notes_in_the_prompt_and_nobody_behind_an_empty_one(
    here: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "unseen.runs.prompt.demo.CHOICES",
        {**demo.CHOICES, "trials": 40, "shots": (1,), "bootstrap": 200, "fpr": 0.1},
    )
    assert run(["demo", "--prompt", "--runs", "runs"]) == 0
    shown = capsys.readouterr().out
    assert "as it should be" in shown
    assert "unseen audit prompt --model fake/copies" in shown


def test_a_plan_says_what_it_would_take_and_leaves_nothing(here: Path, capsys) -> None:
    words = ["--model", "fake/copies", "--template", "sort.txt", "--demos", "pool.jsonl", *CHOICES]
    assert run(["plan", "prompt", *words, "--shots", "1,2"]) == 0
    first = capsys.readouterr().out
    assert "behind an empty prompt" in first
    assert "2 demonstrations, last" in first
    assert audit("--shots", "1,2", "--dry-run") == 0
    assert not (here / "runs").exists()


def test_a_budget_that_is_too_small_is_refused_with_a_code_of_its_own(here: Path, capsys) -> None:
    assert audit("--max-requests", "10") == 12
    assert "--max-requests" in capsys.readouterr().err


def test_the_report_speaks_of_prompts(here: Path) -> None:
    assert audit("--run-dir", "run", "--shots", "1,3", "--position", "last,first") == 0
    page = (here / "run" / "report.html").read_text()
    text = (here / "run" / "report.md").read_text()
    for said in (
        "Membership audit of a prompt",
        "In which setting does it leak?",
        "behind an empty prompt",
    ):
        assert said in page
        assert said in text
    assert "AUC by demonstrations" in page  # the figure, in words
    for training in ("training records", "fine-tun", "held-out"):
        assert training not in text.replace("shows the effect of a change on the same records", "")


def test_options_come_from_a_file_and_from_the_environment(
    here: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "unseen.yaml").write_text(
        "model: fake/copies\ntemplate: sort.txt\ndemos: pool.jsonl\ntrials: 20\nbootstrap: 200\n"
        "synonyms: {Amber: [yellow, gold]}\nfpr: 0.1\nrun_dir: run\n"
    )
    monkeypatch.setenv("UNSEEN_SHOTS", "1,2")
    assert run(["audit", "prompt", "--attacks", "gap"]) == 0
    config = json.loads((here / "run" / "run.json").read_text())["config"]
    assert (config["shots"], config["synonyms"]) == ([1, 2], ["Amber=yellow|gold"])
    assert run(["audit", "prompt", "--config", "run/config.yaml", "--run-dir", "again"]) == 0
    assert results(here / "again")["attacks"] == results(here / "run")["attacks"]
