"""Studies: one question at several points, on fake and tiny real models."""

import json
from pathlib import Path

import numpy as np
import pytest
import records
import tiny

import unseen
from unseen.data.synthetic import people
from unseen.errors import ConfigError, UnknownNameError, UnseenError
from unseen.report import study as shown
from unseen.runs.studies.kinds import STUDIES
from unseen.runs.studies.study import read_study

pytestmark = pytest.mark.slow


def asked(where: Path, n: int = 24, **more) -> dict:
    members, nonmembers = records.sides(where, n)
    given = {
        "model": f"fake/{members}",
        "members": str(members),
        "nonmembers": str(nonmembers),
        "out": where / "study",
        "bootstrap": 200,
        "cache": False,
        "fpr": (0.1,),
        "preflight": False,
    }
    return given | more


def test_points_that_differ_in_attacks_alone_share_an_audit(tmp_path: Path) -> None:
    given = asked(tmp_path, values="1,2,5")
    done = unseen.study("probes", **given)
    assert [row.name for row in done.results.rows] == ["K = 1", "K = 2", "K = 5"]
    assert done.results.columns == ("icp_sp",)
    assert len(list((tmp_path / "study" / "runs").glob("0*"))) == 1
    assert {row.runs for row in done.results.rows} == {("runs/01-K-1-to-K-5",)}
    own = json.loads((tmp_path / "study" / "runs" / "01-K-1-to-K-5" / "results.json").read_text())
    aucs = {row["name"]: row["auc"]["value"] for row in own["attacks"] if row["auc"]}
    assert [row.cells[0].auc.value for row in done.results.rows] == [
        aucs["icp_sp[probes=1]"], aucs["icp_sp[probes=2]"], aucs["icp_sp"],
    ]  # fmt: skip
    assert read_study(done.folder) == done.results
    page = (done.folder / "study.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "probes per record, K" in page
    assert "| K = 5" in (done.folder / "study.md").read_text(encoding="utf-8")
    # The same call continues; another study is refused in its folder.
    again = unseen.study("probes", **given)
    assert again.results.rows == done.results.rows
    assert unseen.verify_run(done.folder).ok
    other = done.results.model_dump(mode="json")
    other["rows"][0]["cells"][0]["auc"]["value"] += 0.01
    (done.folder / "study.json").write_text(json.dumps(other))
    (done.folder / "runs" / "01-K-1-to-K-5" / "results.json").write_text("{")
    faults = {one.what for one in unseen.verify_run(done.folder).items if not one.ok}
    assert faults == {"runs/01-K-1-to-K-5", "numbers"}
    unseen.study("probes", **given)
    with pytest.raises(ConfigError, match="holds another study"):
        unseen.study("probes", **given | {"values": "1,2"})


def test_pools_are_audits_of_their_own(tmp_path: Path) -> None:
    pools = []
    for seed in (5, 6):
        rows = [records.row(record) for record in people(12, seed)]
        pools.append(str(records.write(tmp_path / f"pool{seed}.jsonl", rows)))
    done = unseen.study("pools", **asked(tmp_path, values=pools, attacks="icp_ref[probes=2]"))
    assert [row.name for row in done.results.rows] == ["pool5.jsonl", "pool6.jsonl"]
    assert len({row.runs for row in done.results.rows}) == 2
    first, second = (row.cells[0].auc.value for row in done.results.rows)
    assert first != second


def test_pretraining_texts_stand_in_for_non_members(tmp_path: Path) -> None:
    rows = [records.row(record) for record in people(30, 9)]
    pile = records.write(tmp_path / "pile.jsonl", rows)
    given = asked(tmp_path, values="0,0.5,1", attacks="loss", pretraining=str(pile))
    done = unseen.study("residual", **given)
    assert [row.cells[0].n for row in done.results.rows] == [(24, 24)] * 3
    ids = []
    for row in done.results.rows:
        table = unseen.report_run(done.folder / row.runs[0], "csv")
        ids.append(sum("pretraining:" in line for line in table.splitlines()))
    assert ids == [0, 12, 24]
    with pytest.raises(ConfigError, match="has 30 records, and 40 are needed"):
        unseen.study(
            "residual", **asked(tmp_path / "more", 40, values="0,1", pretraining=str(pile))
        )


def test_what_is_wrong_at_any_point_is_found_before_anything_is_run(tmp_path: Path) -> None:
    rows = [records.row(record) for record in people(12, 5)]
    pool = str(records.write(tmp_path / "pool.jsonl", rows))
    given = asked(tmp_path, attacks="icp_ref[probes=2]")
    with pytest.raises(UnseenError, match="nopool"):
        unseen.study("pools", **given, values=(pool, str(tmp_path / "nopool.jsonl")))
    assert not (tmp_path / "study").exists()
    # So the corrected study takes the folder that the wrong one named.
    assert len(unseen.study("pools", **given, values=(pool,)).results.rows) == 1


def test_a_point_that_fails_leaves_the_others(tmp_path: Path) -> None:
    rows = [records.row(record) for record in people(12, 5)]
    pool = str(records.write(tmp_path / "pool.jsonl", rows))
    other = records.write(tmp_path / "texts.jsonl", [{"text": "No prompt, only text."}] * 9)
    done = unseen.study(
        "pools", **asked(tmp_path, values=(pool, str(other)), attacks="icp_ref[probes=2]")
    )
    good, bad = done.results.rows
    assert good.failure is None
    assert bad.failure
    assert bad.cells[0].auc is None
    assert "texts.jsonl failed:" in shown.markdown(done.results)
    with pytest.raises(UnseenError):
        unseen.study(
            "pools",
            **asked(tmp_path, out=tmp_path / "all", values=(str(other),), attacks="icp_ref"),
        )
    assert not (tmp_path / "all" / "plan.json").exists()


def test_wide_tables_are_cut_into_parts() -> None:
    lines = [("point", "a" * 30, "b" * 30, "c"), ("1", "2", "3", "4")]
    assert shown._fitting(lines, 50) == [
        [("point", "a" * 30), ("1", "2")],
        [("point", "b" * 30, "c"), ("1", "3", "4")],
    ]
    assert shown._fitting(lines, 200) == [lines]


@pytest.mark.parametrize(
    ("name", "given", "problem"),
    [
        ("probes", {"values": "1"}, "needs two points"),
        ("probes", {"values": "1,x"}, "takes a whole number from 1 to 1000, got 'x'"),
        ("mask-rate", {"values": "0.5,2"}, "takes a number from 0.01 to 1, got '2'"),
        ("masking", {"values": "random,best"}, "takes random, min_k, max_k, got 'best'"),
        ("sources", {"values": "mask,file"}, "the source file needs a file"),
        ("sources", {"values": "mask,magic"}, "takes mask, generate, file, ref"),
        ("pools", {}, "no reference pools are named"),
        ("residual", {}, "no pre-training texts are named"),
        ("probes", {"run_dir": "x"}, "a study has many run folders"),
        ("epsilon", {"values": "1,-2"}, "takes a number from 0.01"),
        ("peft", {"values": "full,magic"}, "takes full, lora-32"),
        ("order", {"values": "3,4"}, "takes one number"),
    ],
)
def test_what_a_study_refuses(tmp_path: Path, name: str, given: dict, problem: str) -> None:
    base = {} if STUDIES[name].trains else asked(tmp_path)
    with pytest.raises(ConfigError, match=problem.replace("(", r"\(")):
        unseen.study(name, **base | {"out": tmp_path / "new"} | given)
    assert not (tmp_path / "new" / "plan.json").exists()


def test_an_unknown_study_and_a_folder_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="prob"):
        unseen.study("prob")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("x")
    with pytest.raises(ConfigError, match="is not empty and no study"):
        unseen.study("probes", **asked(tmp_path, out=tmp_path / "full"))
    with pytest.raises(ConfigError, match="no finished study"):
        read_study(tmp_path / "full")


@pytest.fixture
def trained(tmp_path: Path) -> dict:
    rows = [records.row(record) for record in people(60, 3)]
    return {
        "model": str(tiny.folder(tmp_path / "base", "llama")),
        "data": str(records.write(tmp_path / "all.jsonl", rows)),
        "out": tmp_path / "study",
        "bootstrap": 200,
        "fpr": (0.1,),
        "attacks": "loss,reference",
        "learning_rate": 5e-3,
    }


def test_models_are_trained_and_audited_alike(tmp_path: Path, trained: dict) -> None:
    done = unseen.study("epochs", **trained, values="1,4")
    few, many = done.results.rows
    assert [cell.column for cell in few.cells] == ["loss", "reference"]
    assert many.cells[0].auc.value > few.cells[0].auc.value
    assert sorted(path.name for path in (tmp_path / "study" / "models").glob("0*")) == [
        "01-1",
        "02-4",
    ]
    assert few.cells[0].n == (30, 30)


def test_the_order_of_training_by_partition(tmp_path: Path, trained: dict) -> None:
    done = unseen.study("order", **trained, values="2", epochs=1)
    assert done.results.columns == (
        "loss, constant", "reference, constant", "loss, cosine", "reference, cosine",
    )  # fmt: skip
    assert [row.name for row in done.results.rows] == ["1", "2"]
    assert all(len(row.cells) == 4 and len(row.runs) == 2 for row in done.results.rows)
    assert all(cell.n == (15, 30) for row in done.results.rows for cell in row.cells)
    assert [title for title, _ in shown.tables(done.results)] == ["AUC"]
    assert len(list((tmp_path / "study" / "runs").glob("0*"))) == 2
    assert "<svg" in shown.page(done.results)


def test_epsilon_is_told_beside_the_numbers(trained: dict) -> None:
    pytest.importorskip("opacus")
    given = trained | {"method": "lora", "values": "2,none", "epochs": 1}
    done = unseen.study("epsilon", **given)
    private, plain = done.results.rows
    assert private.epsilon == pytest.approx(2, abs=0.2)
    assert plain.epsilon is None
    (_, lines), *_ = shown.tables(done.results)
    assert lines[0][:2] == ("epsilon of DP-SGD", "ε spent")


def test_every_study_has_points_that_attacks_can_be_made_of() -> None:
    from unseen.attacks import create
    from unseen.runs.studies.config import AttackStudy, TrainStudy

    for name, about in STUDIES.items():
        kind = TrainStudy if about.trains else AttackStudy
        config = kind(reference_pool="pool.jsonl", **({} if about.trains else {"pretraining": "p"}))
        points = about.points(about.values, config)
        assert len({(point.name, *point.columns) for point in points}) == len(points)
        for point in points:
            for spec in point.columns.values():
                try:
                    create(spec)
                except UnseenError as error:
                    pytest.fail(f"{name}: {spec}: {error}")
    assert np.isfinite([p.x for p in STUDIES["probes"].points(("1", "2"), AttackStudy())]).all()
