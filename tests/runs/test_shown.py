"""The reference pool in an audit: read, compared, shown, named, and kept out of the run folder."""

import json
from pathlib import Path
from typing import Any

import pytest
from records import row, sides, write

import unseen
from unseen.data.synthetic import people
from unseen.errors import AccessError, ConfigError, DataError, MissingExtraError, UnseenError
from unseen.runs.plan import choose_attacks

pytestmark = pytest.mark.slow  # whole audits

N = 12
UNANSWERED = [{"role": role, "content": "Yes?"} for role in ("user", "assistant", "user")]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    members, nonmembers = sides(tmp_path, N)
    pool = write(tmp_path / "pool.jsonl", [row(r, i) for i, r in enumerate(people(8, seed=5))])
    return {
        "model": f"fake/{members}",
        "members": str(members),
        "nonmembers": str(nonmembers),
        "reference_pool": str(pool),
        "attacks": ("icp_ref[probes=2]", "loss"),
        "bootstrap": 200,
        "control": "none",
        "cache": False,
        "preflight": False,
        "runs": tmp_path / "runs",
    }


def audited(files: dict[str, Any], **choices: Any) -> unseen.Audit:
    return unseen.audit_finetune(**(files | choices))


def test_an_audit_shows_the_pool_and_names_it(files: dict[str, Any]) -> None:
    audit = audited(files)
    rows = {row.name: row for row in audit.results.attacks}
    assert rows["icp_ref[probes=2]"].n == (N, N)
    assert audit.results.data is not None
    pool = audit.results.data.reference_pool
    assert pool is not None
    assert (pool.path, pool.n, pool.encoders) == (files["reference_pool"], 8, ("tfidf",))
    kept = b"".join(path.read_bytes() for path in audit.folder.rglob("*") if path.is_file())
    for line in Path(files["reference_pool"]).read_text().splitlines():
        assert json.loads(line)["completion"].encode() not in kept
    again = unseen.score_run(audit.folder, ["icp_ref[probes=2,aggregate=median]"])
    assert "icp_ref[probes=2,aggregate=median]" in {row.name for row in again.results.attacks}
    assert again.results.data == audit.results.data


def test_another_pool_is_another_audit(files: dict[str, Any], tmp_path: Path) -> None:
    first = audited(files)
    lines = Path(files["reference_pool"]).read_text().splitlines(keepends=True)
    Path(files["reference_pool"]).write_text("".join(lines[:-1]))
    assert audited(files).results.run.plan != first.results.run.plan


def test_records_that_stand_in_the_pool_are_not_shown_to_themselves(
    files: dict[str, Any], tmp_path: Path
) -> None:
    rows = [json.loads(line) for line in Path(files["members"]).read_text().splitlines()]
    near = rows[1] | {"completion": rows[1]["completion"] + " Yes."}
    others = [row(record) for record in people(3, seed=9)]
    for i, other in enumerate([rows[0], near, *others]):
        other["id"] = f"p{i}"
    pool = write(tmp_path / "own.jsonl", [rows[0], near, *others])
    said: list[str] = []
    audit = audited(files, reference_pool=str(pool), note=said.append, attacks=("icp_ref",))
    (check,) = (one for one in audit.results.checks if one.id == "outside_texts")
    assert (check.status, check.value) == ("warn", 0.4)
    assert "2 of 5 demonstrations of the reference pool are audited records" in check.detail
    assert any("2 records stand in the reference pool too" in line for line in said)
    assert any("has 5 demonstrations, icp_ref would show 10" in line for line in said)


def test_without_a_pool_it_is_skipped_or_refused(files: dict[str, Any]) -> None:
    del files["reference_pool"]
    with pytest.raises(AccessError, match=r"icp_ref.*--reference-pool FILE"):
        audited(files)
    (name,) = [name for name in choose_attacks(("default",)) if name.startswith("icp_ref")]
    forecast = unseen.plan(**(files | {"attacks": ("default",)}))
    assert "--reference-pool FILE" in forecast.skipped[name]


def test_a_pool_that_nobody_reads_is_refused(files: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="is read by icp_ref") as raised:
        audited(files, attacks=("loss",))
    assert raised.value.fix is not None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is an empty file"),
        ('{"text": "A document."}\n', "holds documents, and the audited records are conversations"),
        (json.dumps({"messages": UNANSWERED}) + "\n", "holds no demonstration"),
        ("{", "line 1"),
    ],
)
def test_a_pool_that_is_wrong_is_named(
    files: dict[str, Any], tmp_path: Path, content: str, message: str
) -> None:
    pool = tmp_path / "bad.jsonl"
    pool.write_text(content)
    with pytest.raises(DataError, match=message) as raised:
        audited(files, reference_pool=str(pool))
    assert "bad.jsonl" in raised.value.problem
    assert raised.value.fix
    assert not (tmp_path / "runs").exists(), "it is found before anything is written"


def test_a_pool_that_is_not_there(files: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="no such file"):
        audited(files, reference_pool="nowhere.jsonl")


def test_an_encoder_that_cannot_be_had(files: dict[str, Any]) -> None:
    with pytest.raises(UnseenError) as raised:
        audited(files, attacks=("icp_ref[encoder=./nowhere]",), offline=False)
    if isinstance(raised.value, MissingExtraError):
        assert "unseen[semantic]" in str(raised.value)
    else:
        assert "cannot load the sentence encoder" in raised.value.problem


# --- a corpus to count tokens in ----------------------------------------------------------------


def test_tokens_are_counted_in_the_corpus_or_else_in_the_pool(
    files: dict[str, Any], tmp_path: Path
) -> None:
    files["attacks"] = ("dc_pdd",)
    of_pool = audited(files)
    assert of_pool.results.data is not None
    assert of_pool.results.data.corpus is not None
    assert (of_pool.results.data.corpus.path, of_pool.results.data.corpus.n) == (
        files["reference_pool"],
        8,
    )
    del files["reference_pool"]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"text": "Texts of others."}\n{"text": "And more of them."}\n')
    of_file = audited(files, corpus=str(corpus))
    assert of_file.results.data is not None
    assert of_file.results.data.corpus is not None
    assert of_file.results.data.corpus.n == 2
    assert of_file.results.run.plan != of_pool.results.run.plan
    kept = b"".join(path.read_bytes() for path in of_file.folder.rglob("*") if path.is_file())
    assert b"frequency" not in kept


def test_audited_records_are_not_counted(files: dict[str, Any], tmp_path: Path) -> None:
    pool = files.pop("reference_pool")
    files["attacks"] = ("dc_pdd", "loss")
    with pytest.raises(DataError, match="holds audited records alone"):
        audited(files, corpus=files["members"])
    others = Path(pool).read_text().splitlines()
    own = Path(files["members"]).read_text().splitlines()
    rows = [*others, own[0], json.dumps(json.loads(own[1]) | {"completion": "Yes."})]
    mixed = write(tmp_path / "mixed.jsonl", [json.loads(line) for line in rows])
    plain = audited(files, corpus=pool)
    said: list[str] = []
    audit = audited(files, corpus=str(mixed), note=said.append)
    assert audit.results.data is not None
    corpus = audit.results.data.corpus
    assert corpus is not None
    n = corpus.n_audited
    assert n >= 1
    assert corpus.n == len(rows) - n
    assert any(f"{n} of {len(rows)} texts of the corpus are audited records" in s for s in said)
    assert not any("shown to itself" in sentence for sentence in said)
    checks = {one.id: one for one in audit.results.checks}
    assert f"{n} of {len(rows)} texts of the corpus are audited" in checks["outside_texts"].detail
    of_plain = {one.id: one for one in plain.results.checks}["outside_texts"]
    assert (of_plain.status, of_plain.value) == ("pass", 0.0)


def test_a_corpus_that_is_missing_or_idle_is_named(files: dict[str, Any]) -> None:
    pool = files.pop("reference_pool")
    files["attacks"] = ("dc_pdd", "loss")
    with pytest.raises(AccessError, match=r"--corpus FILE, or --reference-pool FILE"):
        audited(files)
    with pytest.raises(DataError, match="missing"):
        audited(files, corpus="missing.jsonl")
    with pytest.raises(ConfigError, match="--corpus is read by dc_pdd"):
        audited(files, corpus=pool, attacks=("loss",))
