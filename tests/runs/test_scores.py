from __future__ import annotations

from pathlib import Path

import pytest

import unseen
from unseen.errors import ConfigError, DataError, UsageError
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


def test_records_without_a_cluster_stand_alone(tmp_path: Path) -> None:
    rows = [f"{i % 2},{i % 7}," for i in range(60)]
    found = evaluate_file(
        file(tmp_path / "s.csv", "member,score,author", rows),
        label_column="member",
        cluster_by="author",
        bootstrap=200,
    )
    assert found.attacks[0].auc is not None


LABELS = [0, 1] * 30


@pytest.mark.parametrize(
    ("scores", "labels", "says"),
    [
        (None, LABELS, "score: got null"),
        ([[0.0] * 60], LABELS, "shape 1 x 60"),
        ([10**400] * 60, LABELS, "holds no column of numbers"),
        ([0.5] * 100, LABELS, "got 100 for 60 labels"),
        ({}, LABELS, "no scores"),
        ([1j] * 60, LABELS, "complex"),
        ([float("nan")] * 60, LABELS, "expected a finite number"),
        ([0.5] * 60, None, "labels: got null"),
        ([0.5] * 60, [2] * 60, "got the label 2"),
        ([0.5] * 60, ["a"] * 60, "got the label 'a'"),
        ([0.5] * 60, [1] * 60, "no non-members"),
    ],
)
def test_what_is_no_column_of_scores_is_explained(scores, labels, says) -> None:
    with pytest.raises(UsageError, match=says):
        unseen.evaluate(scores, labels)


def test_a_table_of_pandas_is_taken_by_column() -> None:
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"a": range(60), "b": [1.0] * 60})
    found = unseen.evaluate(table, pd.Series(LABELS), bootstrap=200)
    assert [row.name for row in found.attacks] == ["a", "b"]


def test_options_that_nothing_would_read_are_refused() -> None:
    with pytest.raises(ConfigError, match="model: there is no such option") as caught:
        unseen.evaluate([0.5] * 60, LABELS, model="x")
    assert "adapter" not in str(caught.value)
    assert unseen.evaluate([0.5] * 60, LABELS, fpr=0.1, bootstrap=200).attacks


def test_one_class_is_a_fault_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"s\.csv field 'member': says member of every row"):
        evaluate_file(file(tmp_path / "s.csv", "member,score", ["1,2"] * 30), label_column="member")


@pytest.mark.parametrize("n", [10, 12, 14])
def test_a_gap_between_few_records_is_no_all_clear(n: int) -> None:
    labels = [1] * n + [0] * n
    found = unseen.evaluate([10 + i / 100 for i in range(2 * n)], labels[::-1], bootstrap=200)
    assert found.headline is None
    found = unseen.evaluate([10.0] * n + [0.1 * i for i in range(n)], labels, bootstrap=200)
    assert found.headline is None or found.headline.found
    assert found.headline is not None or "cannot resolve" in found.headline_note


def test_few_clusters_decide_nothing() -> None:
    clusters = [f"c{i % 2}{label}" for i, label in enumerate(LABELS)]
    found = unseen.evaluate(
        [float(i % 7) for i in range(60)], LABELS, clusters=clusters, bootstrap=200
    )
    assert found.validity.verdict == "invalid"
    assert found.headline is None
