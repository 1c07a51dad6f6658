import csv
from pathlib import Path

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
