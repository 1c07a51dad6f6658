"""neighbor_deviation in an audit of a prompt, from the files to the run folder."""

from pathlib import Path

import demos
import pyarrow.parquet as pq
import pytest

import unseen
from unseen.attacks import create, label
from unseen.errors import AccessError, ConfigError
from unseen.runs.folder import RunFolder
from unseen.runs.lending import FILE, SKETCH, borrow

pytestmark = pytest.mark.slow  # whole audits

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
    choices = {"demos": "pool.jsonl"} | choices
    return unseen.audit_prompt(template="sort.txt", attacks=attacks, run_dir=folder, **choices)


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
    plain = audited("run", "default", trials=10).results
    # Where a sentence encoder is installed, it is not letters that are compared.
    left_out = {n: why for n, why in plain.skipped.items() if n.startswith("neighbor_deviation")}
    assert any("word embeddings" in why for why in left_out.values()), left_out


def other_pool(folder: Path) -> None:
    """Records of another set, and words for them."""
    demos.pool(folder / "other.jsonl", seed=1)
    texts = [row["text"] for seed in (0, 1) for row in demos.rows(60, seed)]
    words = sorted({word for text in texts for word in text.rstrip(".").split()})
    (folder / "words.txt").write_text("".join(f"{w}: {', '.join(OTHERS)}\n" for w in words))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["logistic", "svm", "net"])
def test_what_one_audit_has_learned_judges_records_of_another(here: Path, model: str) -> None:
    other_pool(here)
    taught, borrowed = spec(model=model), spec(model=model, lent=True)
    first = audited("one", taught)
    lent = borrow("one")
    assert list(lent.models) == [taught]
    second = audited("two", taught, demos="other.jsonl", trained_from="one")
    rows = {row.name: row for row in second.results.attacks}
    assert rows[borrowed].auc.value > 0.9
    assert "learnt" not in rows[borrowed].auc.method, "no label of this audit has a say"
    assert "learnt" in rows[taught].auc.method
    assert {row.name for row in second.results.control} == {taught, borrowed}
    table = pq.read_table(here / "two" / "records.parquet").to_pylist()
    attack = create(taught)
    seen = RunFolder(here / "two").read_observations(attack.signals(), [r["id"] for r in table])
    by_hand = [float(lent.models[taught].score(attack._row(seen, r["id"])[None])[0]) for r in table]
    assert [row[f"score.{borrowed}"] for row in table] == pytest.approx(by_hand)
    (here / "one").rename(here / "gone")
    again = unseen.score_run(here / "two")
    assert {row.name: row.auc for row in again.results.attacks}[borrowed] == rows[borrowed].auc
    assert unseen.verify_run(here / "two").ok
    content = (here / "gone" / FILE).read_text() + (here / "gone" / SKETCH).read_text()
    texts = [row["text"] for row in demos.rows(60)]
    assert not [word for text in texts for word in text.rstrip(".").split() if word in content]
    assert first.results.run.id == "one"


@pytest.mark.slow
def test_a_finished_run_borrows_too_and_the_same_records_are_refused(here: Path) -> None:
    other_pool(here)
    audited("one", spec(), trials=30)
    audited("two", spec(), demos="other.jsonl", trials=30)
    with pytest.raises(ConfigError, match="of the records that are judged here"):
        audited("three", spec(), trained_from="one", trials=30, seed=1)
    with pytest.raises(ConfigError, match="of the records that are judged here"):
        unseen.score_run(here / "one", trained_from=str(here / "one"))
    scored = unseen.score_run(here / "two", trained_from=str(here / "one" / FILE))
    names = [row.name for row in scored.results.attacks]
    assert spec(lent=True) in names
    assert not any("transferred" in name for name in scored.results.skipped)


@pytest.mark.slow
def test_what_was_not_learned_cannot_be_borrowed(here: Path) -> None:
    other_pool(here)
    audited("one", spec())
    with pytest.raises(AccessError, match=r"needs what another audit's neighbor_deviation\[.* has"):
        audited("two", spec(lent=True), demos="other.jsonl")
    with pytest.raises(AccessError, match=r"has learned neighbor_deviation\[.*, and not neighbor"):
        audited("two", spec(features="all", lent=True), demos="other.jsonl", trained_from="one")
    with pytest.raises(ConfigError, match="and none of these is run here"):
        audited("two", "gap", demos="other.jsonl", trained_from="one")
