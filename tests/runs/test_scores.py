from __future__ import annotations

from pathlib import Path

import pytest

from unseen.errors import DataError
from unseen.runs.scores import evaluate_file


def file(path: Path, header: str, rows: list[str]) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_row_numbers_and_bookkeeping_are_no_attacks(tmp_path: Path) -> None:
    rows = [f"{i},{i % 2},{i % 7},{i}" for i in range(60)]
    found = evaluate_file(
        file(tmp_path / "s.csv", ",member,score,id", rows), label_column="member", bootstrap=200
    )
    assert [row.name for row in found.attacks] == ["score"]


def test_a_gap_in_a_column_of_scores_is_an_error(tmp_path: Path) -> None:
    rows = [f"{i % 2},{'' if i == 5 else i % 7}" for i in range(60)]
    with pytest.raises(DataError, match="line 7"):
        evaluate_file(file(tmp_path / "s.csv", "member,score", rows), label_column="member")
