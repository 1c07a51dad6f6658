"""neighbor_deviation in an audit of a prompt, from the files to the run folder."""

from pathlib import Path

import demos
import pyarrow.parquet as pq
import pytest

import unseen
from unseen.attacks import create, label
from unseen.errors import AccessError, ConfigError
from unseen.runs.folder import RunFolder

OTHERS = ("tulip", "orbit", "gem", "zu", "wo")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNSEEN_CACHE_DIR", str(tmp_path / "cache"))
    demos.pool(tmp_path / "pool.jsonl")
    demos.template(tmp_path / "sort.txt")
    words = sorted({word for row in demos.rows(60) for word in row["text"].rstrip(".").split()})
    (tmp_path / "words.txt").write_text("".join(f"{w}: {', '.join(OTHERS)}\n" for w in words))
    return tmp_path


def spec(**fields: object) -> str:
    choices = {"model": "logistic", **fields, "filler": "list:words.txt", "encoder": "letters"}
    inside = ",".join(f"{name}={value}" for name, value in choices.items())
    return label(create(f"neighbor_deviation[{inside}]"))


def audited(folder: str, *attacks: str, **more: object) -> unseen.Audit:
    choices = {"trials": 16, "bootstrap": 200, "fpr": (0.1,), "model": "fake/copies"} | more
    return unseen.audit_prompt(
        template="sort.txt", demos="pool.jsonl", attacks=attacks, run_dir=folder, **choices
    )


def test_a_model_that_copies_is_found_out_and_an_empty_prompt_is_at_chance(here: Path) -> None:
    found = audited("run", spec(), spec(features="all")).results
    rows = {row.name: row for row in found.attacks if row.kind == "attack"}
    assert set(rows) == {spec(), spec(features="all")}
    assert all(row.auc.value > 0.9 for row in rows.values())
    for row in found.control:
        assert row.auc.ci[0] <= 0.5 <= row.auc.ci[1]
    assert len(found.control) == 2
    (filler,) = found.fillers
    assert (filler.name, filler.about) == ("list:words.txt", "words of the list words.txt")
    again = unseen.score_run(here / "run")
    assert {row.name: row.auc for row in again.results.attacks} == {
        row.name: row.auc for row in found.attacks
    }


def test_a_public_model_judges_what_is_written_and_is_named(here: Path) -> None:
    with_it = spec(perplexity=True)
    run = audited("run", spec(), with_it, surrogate="fake/copies")
    about = RunFolder(here / "run").read_json("run.json")
    assert set(about["models"]) == {"target", "surrogate"}
    table = pq.read_table(here / "run" / "records.parquet").to_pylist()
    scored = [row for row in table if row[f"score.{with_it}"] is not None]
    assert scored
    assert any(row[f"score.{with_it}"] != row[f"score.{spec()}"] for row in scored)
    assert run.results.requests["surrogate"] > 0
    texts = {word for row in demos.rows(60) for word in row["text"].rstrip(".").split()}
    for file in (here / "run").rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        assert not [word for word in (*texts, *OTHERS[:2]) if word.encode() in content], file


def test_what_is_missing_is_said_with_what_to_type(here: Path) -> None:
    with pytest.raises(
        AccessError, match=r"it needs a public model that tells .*--surrogate MODEL"
    ):
        audited("run", spec(perplexity=True))
    with pytest.raises(AccessError, match="the target shows no word embeddings"):
        audited("run", "neighbor_deviation[encoder=letters]")
    with pytest.raises(ConfigError, match="--surrogate is read by neighbor_deviation"):
        audited("run", spec(), surrogate="fake/copies")
    plain = audited("run", "default").results
    assert "word embeddings" in plain.skipped["neighbor_deviation[encoder=letters]"]
