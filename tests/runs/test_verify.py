from __future__ import annotations

import json
import shutil
from pathlib import Path

import folders
import pytest

import unseen
from unseen.cli.main import run as command
from unseen.errors import ConfigError, StoreError
from unseen.runs.folder import RunFolder
from unseen.runs.verify import finished, verify


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    scores, member = folders.binormal(30, 1.0, 0)
    return folders.write(tmp_path_factory.mktemp("runs") / "run", {"loss": scores}, member)


@pytest.fixture
def run(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def edit(run: Path, name: str, **changes) -> None:
    """Changes keys of a JSON file; None takes one away. The manifest is written anew."""
    file = run / name
    content = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))
    RunFolder(run).write_manifest()


def faults(run: Path) -> list[str]:
    return [f"{item.what}: {item.detail}" for item in verify(run).items if not item.ok]


def test_a_run_as_it_was_left(run) -> None:
    found = unseen.verify_run(run)
    assert found.ok
    assert {item.what for item in found.items} == {
        "run.json", "status", "choices", "manifest.sha256", "results.json", "records.parquet",
    }  # fmt: skip
    assert finished(run).results.run.id == "run"


@pytest.mark.parametrize(
    "name", ["run.json", "config.yaml", "results.json", "records.parquet", "report.md"]
)
def test_one_changed_byte_of_any_file_is_found(run, name) -> None:
    content = bytearray((run / name).read_bytes())
    content[len(content) // 2] ^= 1
    (run / name).write_bytes(bytes(content))
    assert any(fault.startswith(name) and "changed" in fault for fault in faults(run))
    with pytest.raises(StoreError):
        finished(run)


@pytest.mark.parametrize("name", ["config.yaml", "results.json", "records.parquet", "report.md"])
def test_a_missing_file_is_said_once(run, name) -> None:
    (run / name).unlink()
    assert [fault for fault in faults(run) if fault.startswith(name)] == [f"{name}: is missing"]


def test_added_files_and_a_missing_manifest(run) -> None:
    (run / "signals").mkdir()
    (run / "signals" / "more.parquet").write_bytes(b"x")
    assert faults(run) == ["signals/more.parquet: was added"]
    (run / "manifest.sha256").unlink()
    assert len(faults(run)) == 1
    assert "no readable manifest.sha256" in faults(run)[0]


def test_a_run_that_did_not_end(run) -> None:
    edit(run, "run.json", status="running")
    assert "is not finished" in faults(run)[0]
    with pytest.raises(StoreError, match="not finished"):
        finished(run)


@pytest.mark.parametrize("name", ["run.json", "results.json"])
def test_a_newer_major_schema_is_refused_with_a_message(run, name) -> None:
    edit(run, name, schema_version="2.0")
    assert any("has schema 2.0" in fault for fault in faults(run))
    with pytest.raises(StoreError, match=r"2\.0"):
        finished(run)


def test_files_of_an_older_1_x_load(run) -> None:
    """Everything that was not in the first version has a value for where it is not there."""
    edit(
        run, "results.json", checks=None, validity=None, threat_model=None, exposed=None,
        epsilon=None, slices=None, requests=None, out_of_scope=None, skipped=None,
        limitations=None, schema_version="1.0",
    )  # fmt: skip
    assert verify(run).ok


@pytest.mark.parametrize(
    "config", ["x", {"confidence": 7}, {"fpr": "x", "seed": -1}, {"bootstrap": None}, None]
)
def test_a_configuration_that_no_run_has(run, config) -> None:
    edit(run, "run.json", config=config)
    assert "configuration" in faults(run)[0]
    with pytest.raises(StoreError, match="configuration"):
        finished(run)


def test_a_table_of_other_records_is_found(run, made, tmp_path) -> None:
    scores, member = folders.binormal(20, 1.0, 0)
    other = folders.write(tmp_path / "other", {"loss": scores}, member)
    shutil.copy(other / "records.parquet", run / "records.parquet")
    RunFolder(run).write_manifest()
    said = faults(run)
    assert any("holds 20 members and 20 non-members" in fault for fault in said)
    assert any("results.json says" in fault for fault in said)


def test_results_that_the_scores_do_not_give_are_found(run) -> None:
    results = json.loads((run / "results.json").read_text())
    for row in results["attacks"]:
        row["auc"] |= {"value": 0.9, "ci": [0.85, 0.95]}
    edit(run, "results.json", attacks=results["attacks"])
    assert "results.json says 0.900" in faults(run)[0]


def test_files_of_nobody_are_named(run) -> None:
    (run / "notes.txt").write_text("mine")
    assert faults(run) == ["notes.txt: is no file of a run"]


def test_a_table_that_is_none(run) -> None:
    (run / "records.parquet").write_bytes(b"PAR1")
    RunFolder(run).write_manifest()
    assert len(faults(run)) == 1
    folder = RunFolder(run)
    folder.write_table("records.parquet", {"id": ["a"], "member": [True], "score.loss": ["x"]})
    folder.write_manifest()
    assert "damaged" in faults(run)[0]


def test_the_command_has_a_line_a_thing_and_a_message_a_fault(run, capsys, monkeypatch) -> None:
    monkeypatch.chdir(run.parent)
    assert command(["verify", "run"]) == 0
    assert "ok     manifest.sha256  5 files" in capsys.readouterr().out
    (run / "report.md").write_text("other")
    (run / "config.yaml").unlink()
    assert command(["verify", "run", "--json"]) == 2
    shown = capsys.readouterr()
    assert [item["ok"] for item in json.loads(shown.out)["items"]].count(False) == 2
    assert shown.err.count("error[store]") == 2
    assert "report.md was changed" in shown.err
    assert command(["verify", "nowhere"]) == 2
    assert "no run folder" in capsys.readouterr().err


def test_no_run_there(tmp_path) -> None:
    with pytest.raises(ConfigError, match="no run folder"):
        verify(tmp_path)
