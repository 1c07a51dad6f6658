"""Attacks that compare with neighbours, from files and names to results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from fillers import masked_folder, sentence, t5_folder

import unseen
from unseen.errors import AccessError, ConfigError, ModelError

pytestmark = pytest.mark.slow  # whole audits

N = 24


def said(rng: np.random.Generator) -> str:
    """A sentence between words that no filler knows."""
    words = ["".join(rng.choice(list("бвгджзлмнпрст"), size=5)) for _ in range(12)]
    return " ".join(
        f"{one} {other}" for one, other in zip(sentence(rng).split(), words, strict=False)
    )


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return masked_folder(tmp_path_factory.mktemp("bert"), make=said)


@pytest.fixture
def audit(tmp_path: Path) -> Callable[..., Any]:
    rng = np.random.default_rng(5)
    texts = [said(rng) for _ in range(2 * N)]
    for name, part in (("members", texts[:N]), ("nonmembers", texts[N:])):
        lines = [json.dumps({"prompt": "Say it.", "completion": text}) for text in part]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))

    def run(target: Any = None, **choices: Any) -> Any:
        given = {
            "members": str(tmp_path / "members.jsonl"),
            "nonmembers": str(tmp_path / "nonmembers.jsonl"),
            "near_duplicates": 1.0,
            "run_dir": tmp_path / "run",
            "cache_dir": tmp_path / "cache",
            "bootstrap": 200,
            "fpr": (0.1,),
        }
        target = target or unseen.FakeTarget(texts[:N], strength=3.0)
        return unseen.audit_finetune(target, **(given | choices))

    return run


def test_neighbours_of_a_masked_model(
    audit: Callable[..., Any], bert: Path, tmp_path: Path
) -> None:
    filler = f"filler={bert},neighbours=4"
    attacks = (f"neighborhood[{filler}]", f"spv[{filler}]", f"spv[log=True,{filler}]")
    results = audit(attacks=attacks).results
    rows = {row.name.partition("[")[0]: row for row in results.attacks if row.kind == "attack"}
    assert {"neighborhood", "spv"} <= set(rows)
    for row in rows.values():
        assert not row.unscored
        assert row.auc.ci[0] > 0.5, row.name
    assert results.requests["reference"] == 2 * N * 5
    assert 2 * N * 8 < results.requests["target"] <= 2 * N * 9, "the plain request is the same"
    (facts,) = results.fillers
    assert facts.name == str(bert)
    assert facts.about.startswith("masked language model")
    assert "masked language model" in (tmp_path / "run" / "report.md").read_text()
    kept = "".join(
        file.read_text(errors="replace") for file in (tmp_path / "run").rglob("*") if file.is_file()
    )
    assert "the doctor" not in kept
    again = audit(attacks=attacks, run_dir=tmp_path / "again").results
    assert [row.auc for row in again.attacks] == [row.auc for row in results.attacks]
    attempts = json.loads((tmp_path / "again" / "run.json").read_text())["attempts"]
    assert attempts[-1]["requests_scored"] == {"target": 0, "reference": 0}


def test_word_embeddings_of_the_target_are_the_default(
    audit: Callable[..., Any], tmp_path: Path
) -> None:
    folder = tiny.folder(tmp_path / "model")
    told: list[str] = []
    results = audit(
        unseen.HFTarget(folder),
        attacks=("neighborhood",),
        preflight=False,
        note=told.append,
    ).results
    (facts,) = results.fillers
    assert facts.name == "embeddings"
    about = f"cosine of the word embeddings of {folder}"
    assert facts.about == about
    assert f"neighbours of records are made by: {about}" in told
    (row,) = [row for row in results.attacks if row.kind == "attack"]
    assert row.n == (N, N)


def test_a_target_without_embeddings_needs_a_filler(audit: Callable[..., Any]) -> None:
    with pytest.raises(AccessError, match="the target shows no word embeddings") as caught:
        audit(attacks=("neighborhood",))
    assert "--attacks 'neighborhood[filler=MODEL]'" in str(caught.value)
    assert {"neighborhood", "spv"} <= set(audit(attacks=("all",)).results.skipped)


def test_wrong_fillers_are_found_before_anything_is_asked(
    audit: Callable[..., Any], tmp_path: Path
) -> None:
    target = unseen.FakeTarget()
    with pytest.raises(ModelError, match=r"there is no model folder \./nowhere"):
        audit(target, attacks=("spv[filler=./nowhere]",))
    folder = masked_folder(tmp_path / "random", steps=0)
    with pytest.raises(ModelError, match="hidden words cost it"):
        audit(target, attacks=(f"neighborhood[filler={folder}]",))
    with pytest.raises(ConfigError, match="writes stretches of words"):
        audit(target, attacks=(f"neighborhood[filler={t5_folder(tmp_path / 't5')}]",))
    assert target.n_executed == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_another_filler_is_another_audit(
    audit: Callable[..., Any], bert: Path, tmp_path: Path
) -> None:
    link = tmp_path / "filler"
    link.symlink_to(bert)
    first = audit(attacks=(f"neighborhood[filler={link},neighbours=2]",))
    link.unlink()
    link.symlink_to(masked_folder(tmp_path / "other", steps=140, make=said))
    with pytest.raises(ConfigError, match="holds another audit"):
        audit(attacks=(f"neighborhood[filler={link},neighbours=2]",))
    assert first.results.fillers[0].fingerprint.startswith("masked-")
