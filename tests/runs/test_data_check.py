from __future__ import annotations

import json
from pathlib import Path

import pytest
import records

import unseen
from unseen.cli.main import run
from unseen.errors import ConfigError


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    return tuple(map(str, records.sides(tmp_path, 60, plant=True)))


def test_records_of_one_source_pass(files) -> None:
    found = unseen.check_data(members=files[0], nonmembers=files[1], bootstrap=200)
    assert [check.id for check in found.checks] == [
        "blind_baseline", "split_origin", "overlap", "truncation", "power",
    ]  # fmt: skip
    assert found.validity.verdict in ("valid", "caution")  # 60 non-members are few
    assert {row.kind for row in found.attacks} == {"blind"}
    assert found.headline is None
    assert not found.data.example


def test_a_model_is_asked_for_its_template_only(files) -> None:
    found = unseen.check_data(
        members=files[0], nonmembers=files[1], model="fake/", bootstrap=200, max_length=40
    )
    assert found.data.scored_tokens
    assert found.data.truncated
    example = found.data.example
    assert sum(part.n_tokens for part in example) == 40
    assert all(part.text is None for part in example if part.kind == "content")


def test_from_the_command_line(files, capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["check", *files, "--bootstrap", "200", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["run"]["scenario"] == "data"
    planted = [records.planted(i) for i in range(records.N_PLANTED)]
    assert not any(text in printed.out + printed.err for text in planted)
    swapped = tmp_path / "other.jsonl"
    rows = [{"prompt": "Say it.", "completion": f"entirely different words {i}"} for i in range(60)]
    records.write(swapped, rows)
    assert run(["check", files[0], str(swapped), "--bootstrap", "200"]) == 11
    assert "invalid" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["a", "b", "c"], "got 3 files"),
        ([], "no members are named"),
        (["a", "b", "--members", "c"], "given twice"),
        (["a"], "--label-column"),
        (["a", "b"], "no such file"),
    ],
)
def test_what_is_missing_is_said(args, says, capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["check", *args]) == 2
    assert says in capsys.readouterr().err


def test_records_twice() -> None:
    data = unseen.Records.from_texts(["a"], ["b"])
    with pytest.raises(ConfigError, match="twice"):
        unseen.check_data(data, members="x")
