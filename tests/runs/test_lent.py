"""What one audit's fusion has learned, used by another."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import records

import unseen
from unseen.errors import AccessError, ConfigError
from unseen.runs.folder import RunFolder
from unseen.runs.lending import BORROWED, FILE, SKETCH, borrow
from unseen.signals.scores import Said, learned

pytestmark = pytest.mark.slow

NAMES = ("loss", "zlib", "min_k", "min_k_pp")


def audited(folder: Path, where: Path, seed: int, **more) -> unseen.Audit:
    """An audit of a fake model that remembers half of the records of a seed."""
    members, nonmembers = records.sides(where, 40, seed=seed)
    return unseen.audit_finetune(
        model=f"fake/{members}",
        members=str(members),
        nonmembers=str(nonmembers),
        attacks=(*NAMES, *more.pop("attacks", ("fusion",))),
        run_dir=folder,
        bootstrap=200,
        cache=False,
        **more,
    )


def seal(folder: Path) -> None:
    RunFolder(folder).write_manifest()


def said(rng: np.random.Generator, n: int, k: int) -> list[Said]:
    scored = rng.random((n, k)) > 0.2
    scored[:, 0] = True
    values = np.where(scored, rng.normal(size=(n, k)), 0.0)
    return [Said(v, s) for v, s in zip(values, scored, strict=True)]


def test_the_weights_are_those_of_the_library_and_slow_arithmetic() -> None:
    rng = np.random.default_rng(0)
    known = said(rng, 80, 3)
    member = rng.random(80) < 0.5
    weights = learned(known, member)
    columns = []
    for one in known:
        row = [
            float(v) if s else float(np.median([k.values[j] for k in known if k.scored[j]]))
            for j, (v, s) in enumerate(zip(one.values, one.scored, strict=True))
        ]
        columns.append(row + [0.0 if one.scored[j] else 1.0 for j in (1, 2)])
    matrix = np.array(columns)
    standard = (matrix - matrix.mean(axis=0)) / matrix.std(axis=0)
    # At the minimum of the loss, its gradient vanishes.
    odds = weights.log_odds(known)
    weight = np.where(member, 80 / (2 * member.sum()), 80 / (2 * (~member).sum()))
    residual = weight * (1 / (1 + np.exp(-odds)) - member)
    assert np.abs(standard.T @ residual + np.array(weights.coef)).max() < 1e-6
    assert abs(residual.sum()) < 1e-6
    assert odds == pytest.approx(weights.intercept + standard @ np.array(weights.coef))
    assert weights.log_odds([]).tolist() == []


def test_another_audit_uses_it_without_its_own_labels(tmp_path: Path) -> None:
    first = audited(tmp_path / "a", tmp_path / "one", seed=1)
    lent = borrow(first.folder)
    assert list(lent.fusions) == ["fusion"]
    assert lent.fusions["fusion"].attacks == tuple(sorted(NAMES))
    text = (first.folder / FILE).read_text(encoding="utf-8")
    assert not any(id_ in text for id_ in ("m0", "n0"))
    second = audited(
        tmp_path / "b",
        tmp_path / "two",
        seed=2,
        trained_from=str(first.folder),
        attacks=("fusion", "transferred"),
    )
    rows = {row.name: row for row in second.results.attacks}
    assert rows["transferred"].auc.value > 0.7
    assert "learnt" not in rows["transferred"].auc.method
    # Its scores are the weights applied to the scores of this run: nothing else.
    table = pq.read_table(second.folder / "records.parquet").to_pylist()
    names = lent.fusions["fusion"].attacks
    columns = [
        Said(np.array([row[f"score.{name}"] for name in names]), np.ones(len(names), dtype=bool))
        for row in table
    ]
    by_hand = lent.fusions["fusion"].weights.log_odds(columns)
    assert [row["score.transferred"] for row in table] == pytest.approx(by_hand.tolist())
    # Scored again, it keeps what it has borrowed, though the other run is gone.
    (tmp_path / "a").rename(tmp_path / "gone")
    again = unseen.score_run(second.folder)
    same = {row.name: row for row in again.results.attacks}
    assert same["transferred"].auc == rows["transferred"].auc
    assert (second.folder / BORROWED).is_file()
    assert (second.folder / FILE).is_file()
    assert unseen.verify_run(second.folder).ok


def test_a_finished_run_can_borrow_too(tmp_path: Path) -> None:
    first = audited(tmp_path / "a", tmp_path / "one", seed=1)
    second = audited(tmp_path / "b", tmp_path / "two", seed=2, keep_tokens=True)
    results = second.folder / "results.json"
    said = json.loads(results.read_text(encoding="utf-8"))
    said["skipped"] = {"transferred": "it needs --trained-from", "icp_ref": "it needs a pool"}
    results.write_text(json.dumps(said), encoding="utf-8")
    RunFolder(second.folder).write_manifest()
    scored = unseen.score_run(second.folder, trained_from=str(first.folder / FILE))
    assert "transferred" in {row.name for row in scored.results.attacks}
    # What is run now is not said to be skipped; what still is, for the reason that it has now.
    assert scored.results.skipped == {
        "icp_ref": "it needs a pool",
        "transferred[reference=False]": f"the run {first.folder.name} has learned fusion, and nothing "
        "else",
    }
    assert scored.results.notes == ()
    more = unseen.score_run(second.folder, ("min_k[k=0.5]",))
    (note,) = more.results.notes
    assert note.startswith("fusion has learned again, with min_k[k=0.5] beside the 4 attacks")
    assert "fusion has learned again" in (second.folder / "report.md").read_text(encoding="utf-8")
    assert unseen.score_run(second.folder).results.notes == (note,), "said once"
    with pytest.raises(ConfigError, match=r"has learned from about [78]. of the records"):
        unseen.score_run(first.folder, trained_from=str(first.folder))
    (second.folder / SKETCH).unlink()
    seal(second.folder)
    with pytest.raises(ConfigError, match="made by an older version"):
        unseen.score_run(second.folder, trained_from=str(first.folder / FILE))


@pytest.mark.parametrize("share", [1.0, 0.5, 0.25])
def test_the_same_records_in_other_files_are_found(tmp_path: Path, share: float) -> None:
    first = audited(tmp_path / "a", tmp_path / "one", seed=1)
    fresh = records.sides(tmp_path / "two", 40, seed=2)
    for file, new in zip(("members.jsonl", "nonmembers.jsonl"), fresh, strict=True):
        rows = (tmp_path / "one" / file).read_text(encoding="utf-8").splitlines()[::-1]
        own = [json.dumps(json.loads(row) | {"id": f"x{i}"}) for i, row in enumerate(rows)]
        part = own[: round(share * 40)]
        rest = new.read_text(encoding="utf-8").splitlines()[len(part) :]
        new.write_text("\n".join(part + rest) + "\n", encoding="utf-8")
    choices = {"members": str(fresh[0]), "nonmembers": str(fresh[1]), "model": f"fake/{fresh[0]}"}
    choices |= {"bootstrap": 200, "cache": False, "preflight": False}
    with pytest.raises(ConfigError, match="of the records that are judged here"):
        unseen.audit_finetune(
            **choices,
            attacks=(*NAMES, "transferred"),
            trained_from=str(first.folder),
            run_dir=tmp_path / "b",
        )
    second = unseen.audit_finetune(**choices, attacks=NAMES, run_dir=tmp_path / "c")
    with pytest.raises(ConfigError, match="of the records that are judged here"):
        unseen.score_run(second.folder, trained_from=str(first.folder))


def test_what_cannot_be_borrowed(tmp_path: Path) -> None:
    first = audited(tmp_path / "a", tmp_path / "one", seed=1)
    file = first.folder / FILE
    given = json.loads(file.read_text(encoding="utf-8"))
    plain = audited(tmp_path / "plain", tmp_path / "three", seed=3, attacks=())
    bad = tmp_path / "bad.json"
    for content, problem in (
        ("{", "or damaged"),
        (json.dumps(given | {"fusions": {}}), "or damaged"),
        (json.dumps(given | {"schema_version": "9"}), "or damaged"),
        (json.dumps(given | {"sketch": "AAAA"}), "or damaged"),
        (
            json.dumps({k: v for k, v in given.items() if k != "sketch"}),
            "of this version of unseen",
        ),
        (json.dumps(given | {"schema_version": "1.0"}), "of this version of unseen"),
        (json.dumps(given | {"verdict": "invalid"}), "the evidence of .* is invalid"),
    ):
        bad.write_text(content, encoding="utf-8")
        with pytest.raises(ConfigError, match=problem):
            borrow(bad)
    given["fusions"]["fusion"]["coef"] = given["fusions"]["fusion"]["coef"][1:]
    bad.write_text(json.dumps(given), encoding="utf-8")
    with pytest.raises(ConfigError, match="or damaged"):
        borrow(bad)
    with pytest.raises(ConfigError, match="it is no run folder of an audit that ran fusion"):
        borrow(plain.folder)
    with pytest.raises(ConfigError, match="cannot read"):
        borrow(tmp_path / "nothing.json")


def test_the_attacks_that_it_weighs_have_to_be_run(tmp_path: Path) -> None:
    first = audited(tmp_path / "a", tmp_path / "one", seed=1)
    members, nonmembers = records.sides(tmp_path / "two", 40, seed=2)

    def again(*names: str, **more) -> unseen.Audit:
        return unseen.audit_finetune(
            model=f"fake/{members}",
            members=str(members),
            nonmembers=str(nonmembers),
            attacks=names,
            cache=False,
            **({"run_dir": tmp_path / "c"} | more),
        )

    with pytest.raises(AccessError, match="weighs attacks that are not run here: min_k_pp, zlib"):
        again("loss", "min_k", "transferred", trained_from=str(first.folder))
    with pytest.raises(AccessError) as caught:
        again("loss", "min_k", "transferred", trained_from=str(first.folder))
    assert caught.value.fix == "--attacks loss,min_k,transferred,min_k_pp,zlib"
    plain = again("loss", run_dir=tmp_path / "e").folder
    with pytest.raises(ConfigError, match="weighs attacks that are not run here") as refused:
        unseen.score_run(plain, trained_from=str(first.folder))
    assert refused.value.fix == "--attacks min_k,min_k_pp,zlib"
    with pytest.raises(AccessError, match="needs what another audit's fusion has learned"):
        again(*NAMES, "transferred")
    with pytest.raises(AccessError, match="has learned fusion, and nothing else"):
        again(*NAMES, "transferred[reference=False]", trained_from=str(first.folder))
    with pytest.raises(ConfigError, match="--trained-from is read by transferred"):
        again("loss", trained_from=str(first.folder))
    with pytest.raises(ConfigError, match="of the records that are judged here"):
        unseen.audit_finetune(
            model=f"fake/{tmp_path / 'one' / 'members.jsonl'}",
            members=str(tmp_path / "one" / "members.jsonl"),
            nonmembers=str(tmp_path / "one" / "nonmembers.jsonl"),
            attacks=(*NAMES, "transferred"),
            trained_from=str(first.folder),
            run_dir=tmp_path / "d",
        )
