import csv
import os
from pathlib import Path

import pytest

from unseen.errors import ConfigError
from unseen.runs.folder import RunFolder


def test_a_table_steers_neither_spreadsheet_nor_terminal(tmp_path: Path) -> None:
    rows = [("=1+1", "+1"), ("-1", "@a"), ("\x1b[2J", "a\r\nb"), ("plain", "x" * 5000)]
    RunFolder(tmp_path).write_rows("data/dropped.csv", ("id", "other"), rows)
    with (tmp_path / "data" / "dropped.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["id", "other"],
            ["'=1+1", "'+1"],
            ["'-1", "'@a"],
            ["\\x1b[2J", "a\\r\\nb"],
            ["plain", "x" * 5000],
        ]


def test_audits_are_offered_in_place_of_a_run_that_is_not_there(tmp_path: Path) -> None:
    for at, (name, audit) in enumerate(
        [("z", True), ("y", True), ("b", True), ("a", True), ("train", False)]
    ):
        (tmp_path / name).mkdir()
        if audit:
            (tmp_path / name / "results.json").write_text("{}")
        (tmp_path / name / "run.json").write_text("{}")
        os.utime(tmp_path / name / "run.json", (at, at))
    with pytest.raises(ConfigError) as caught:
        RunFolder.existing(tmp_path / "missing")
    assert str(caught.value.fix).endswith(": y, b, a"), "the newest last"
