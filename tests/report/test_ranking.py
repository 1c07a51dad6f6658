from __future__ import annotations

import csv
import io
import json

import pytest
import records

import unseen
from unseen.errors import ConfigError


@pytest.fixture
def audited(tmp_path):
    def run(**choices):
        members, nonmembers = records.sides(tmp_path / "data", 40)
        rows = [json.loads(line) for line in members.read_text().splitlines()]
        rows[0]["id"] = '=HYPERLINK("x")'
        records.write(members, rows)
        return unseen.audit_finetune(
            unseen.FakeTarget([row["completion"] for row in rows], strength=1.0),
            members=str(members),
            nonmembers=str(nonmembers),
            attacks=("loss",),
            slice_by=("file",),
            run_dir=tmp_path / "run",
            cache=False,
            bootstrap=200,
            fpr=(0.1,),
            **choices,
        )

    return run


def test_the_most_exposed_come_first_and_nothing_runs_in_a_spreadsheet(audited) -> None:
    done = audited()
    text = unseen.report_run(done.folder, "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 80
    scores = [float(row["score.loss"]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert rows[0]["side"] == "member"
    assert {row["slice.file"] for row in rows} == {"health", "work"}
    assert all(not row["id"].startswith("=") for row in rows)
    by_id = dict(zip(done.to_pandas()["id"], done.to_pandas()["score.loss"], strict=True))
    assert float(rows[5]["score.loss"]) == by_id[rows[5]["id"]]
    assert "text" not in rows[0]
    with pytest.raises(ConfigError, match="not kept"):
        unseen.report_run(done.folder, "csv", reveal=True)


def test_text_is_there_where_it_was_kept_and_asked_for(audited, tmp_path) -> None:
    done = audited(reveal=True)
    assert "text" not in unseen.report_run(done.folder, "csv").splitlines()[0]
    assert "text" in unseen.report_run(done.folder, "csv", reveal=True).splitlines()[0]
    assert done.report(tmp_path / "r.csv").read_text().startswith("rank,id,side,score.loss")


def test_records_of_invalid_evidence_have_no_order(tmp_path) -> None:
    sides = [[f"{year} words {i} of some length" for i in range(40)] for year in (2013, 2023)]
    done = unseen.audit_finetune(
        unseen.FakeTarget(sides[0], strength=1.0),
        unseen.Records.from_texts(*sides),
        attacks=("loss",),
        run_dir=tmp_path / "run",
        cache=False,
        bootstrap=200,
    )
    assert done.results.validity.verdict == "invalid"
    with pytest.raises(ConfigError, match="no order"):
        unseen.report_run(done.folder, "csv")
