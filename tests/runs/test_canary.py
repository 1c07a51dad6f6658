from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import unseen
from unseen.data import canaries
from unseen.errors import AccessError, ConfigError, DataError, UnknownNameError, UsageError
from unseen.metrics import one_run
from unseen.runs.results import Results

pytestmark = pytest.mark.slow


@pytest.fixture
def made(tmp_path: Path):
    return unseen.canary_make(tmp_path / "c", 120, seed=11, kind="random-digits")


def remembers(made, **options) -> unseen.FakeTarget:
    """A model that was trained on the included canaries."""
    rows = [json.loads(line) for line in made.included.read_text().splitlines()]
    return unseen.FakeTarget([row["completion"] for row in rows], strength=1.0, **options)


@pytest.fixture
def audit(made, tmp_path):
    def run(target=None, **choices):
        given = {
            "key": made.key,
            "run_dir": tmp_path / "run",
            "cache_dir": tmp_path / "cache",
            "bootstrap": 200,
            "fpr": (0.1,),
        }
        return unseen.canary_audit(target or remembers(made), **(given | choices))

    return run


def test_a_model_that_remembers_gets_a_bound(audit, made) -> None:
    audited = audit()
    results = audited.results
    assert results.run.scenario == "canary"
    found = results.epsilon
    assert (found.kind, found.delta, found.confidence) == ("bound", 1e-5, 0.95)
    assert 1 < found.lower <= made.largest
    assert found.correct <= found.guesses <= 120
    assert "Steinke" in found.method
    assert "attack reference" in found.method
    checks = {check.id: check for check in results.checks}
    assert checks["canary_rank"].value == 1 / (1 + one_run.DRAWS)
    assert "rank above" in checks["canary_rank"].detail
    assert made.sha256[:12] in checks["canary_coins"].detail
    assert results.data.members.n_judged == made.n[1]
    assert results.data.split_origin == "random"
    assert any("seed 11" in text for text in results.limitations)
    kept = json.loads((audited.folder / "results.json").read_text())
    assert Results.model_validate(kept) == results
    jsonschema.validate(kept, Results.model_json_schema())
    about = json.loads((audited.folder / "run.json").read_text())
    assert (about["scenario"], about["key_sha256"]) == ("canary", made.sha256)
    assert about["status"] == "complete"


def test_a_model_that_never_saw_them_gets_none(audit) -> None:
    results = audit(unseen.FakeTarget()).results
    assert results.epsilon.lower < 0.5
    rank = next(check for check in results.checks if check.id == "canary_rank")
    assert rank.value > 0.001


def test_the_bound_is_that_of_scores_made_elsewhere(audit, made) -> None:
    audited = audit(attacks=("loss",), guesses=60)
    table = audited.to_pandas()
    key = unseen.read_key(made.key)
    by_id = dict(zip(table["id"], table["score.loss"], strict=True))
    same = unseen.canary_bound(by_id, key, guesses=60)
    assert (same.lower, same.correct) == (
        audited.results.epsilon.lower,
        audited.results.epsilon.correct,
    )
    in_order = unseen.canary_bound([by_id[id_] for id_ in key.ids], key, guesses=60)
    assert in_order == same


def test_several_attacks_share_the_error(audit) -> None:
    one = audit(attacks=("loss",), guesses=120, run_dir=None).results.epsilon
    two = audit(attacks=("loss", "min_k"), guesses=120, run_dir=None).results.epsilon
    assert "best of 2 looks" in two.method
    if "attack loss" in two.method:
        assert two.lower < one.lower


def test_no_text_of_a_canary_and_no_more_of_the_key_is_kept(audit, made) -> None:
    folder = audit().folder
    written = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    for canary in unseen.read_key(made.key).canaries:
        assert canary.record.turns[1].content.encode() not in written


def test_the_same_audit_again_says_the_same_and_asks_nothing(audit, made) -> None:
    first = audit()
    target = remembers(made)
    again = audit(target)
    assert target.n_executed == 0
    assert again.folder == first.folder
    assert again.results.epsilon == first.results.epsilon
    assert again.results.checks == first.results.checks


def test_scoring_again_keeps_epsilon(audit) -> None:
    first = audit()
    again = unseen.score_run(first.folder, fpr=(0.2,))
    assert again.results.epsilon == first.results.epsilon
    assert again.results.run.scenario == "canary"
    assert {"canary_coins", "canary_rank"} <= {check.id for check in again.results.checks}


def test_canaries_that_do_not_fit_are_not_guessed(audit) -> None:
    results = audit(max_length=2, attacks=("loss",)).results
    assert results.epsilon is None
    assert "no score" in next(c for c in results.checks if c.id == "canary_coins").detail


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"attacks": ("bag_of_words",)}, ("bag_of_words",)),
        ({"attacks": ("recall",)}, ("recall", "coins")),
        ({"attacks": ("default",)}, ("named",)),
        ({"attacks": ("los",)}, ("loss",)),
        ({"members": "x.jsonl"}, ("--members",)),
        ({"slice_by": ("a",), "limit": 3}, ("--slice-by", "--limit")),
        ({"near_duplicates": 0.5}, ("--near-duplicates",)),
        ({"key": ""}, ("--key",)),
        ({"key": "nothing.json"}, ("nothing.json",)),
        ({"delta": 0.01}, ("delta",)),
        ({"delta": 2}, ("delta",)),
        ({"guesses": 1}, ("guesses",)),
        ({"guesses": 121}, ("121",)),
        ({"gueses": 12}, ("gueses", "guesses")),
    ],
)
def test_what_is_refused_before_any_model_is_asked(audit, made, choices, words) -> None:
    target = remembers(made)
    with pytest.raises(UsageError) as caught:
        audit(target, **choices)
    for word in words:
        assert word in str(caught.value)
    assert target.n_executed == 0


def test_no_model(made) -> None:
    with pytest.raises(ConfigError, match="no model") as caught:
        unseen.canary_audit(key=made.key)
    assert "unseen canary audit" in caught.value.fix


def test_a_reference_that_is_not_there(audit) -> None:
    with pytest.raises(AccessError, match="reference"):
        audit(attacks=("reference",), reference="none")


def test_coins_that_are_all_alike(made, audit) -> None:
    content = json.loads(made.key.read_text())
    for canary in content["canaries"]:
        canary["included"] = True
    content["seed"] = None
    rest = {name: value for name, value in content.items() if name != "sha256"}
    made.key.write_text(json.dumps(rest | {"sha256": canaries._digest(rest)}))
    with pytest.raises(UsageError, match="all 120 canaries are included"):
        audit()


def test_an_edited_key(made, audit) -> None:
    made.key.write_text(made.key.read_text().replace("true", "false", 1))
    with pytest.raises(DataError, match="not as it was written"):
        audit()


# --- scores made elsewhere ----------------------------------------------------------------------


def told(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    coins = rng.random(n) < 0.5
    return coins + 0.3 * rng.normal(size=n), coins


def test_without_recorded_coins_it_is_no_bound() -> None:
    scores, coins = told(200)
    found = unseen.canary_bound(scores, coins)
    assert found.kind == "indicative"
    assert "no bound" in found.method
    sworn = unseen.canary_bound(scores, coins, fair_coins=True)
    assert (sworn.kind, sworn.lower) == ("bound", found.lower)


def test_canaries_without_a_score_count_as_thrown_and_are_not_guessed(made) -> None:
    key = unseen.read_key(made.key)
    scores = dict(zip(key.ids, key.included.astype(float), strict=True))
    some = {id_: score for id_, score in scores.items() if id_ != key.ids[0]}
    found = unseen.canary_bound(some, key, guesses=80)
    assert found.correct == found.guesses == 80
    assert found.lower == pytest.approx(one_run.epsilon_lower(120, 80, 80, 1e-5, 0.95))


@pytest.mark.parametrize(
    ("scores", "included", "options"),
    [
        ([1.0, 2.0], [1, 0, 1], {}),
        ([1.0, float("nan")], [1, 0], {}),
        (["a", "b"], [1, 0], {}),
        ([[1.0], [2.0]], [1, 0], {}),
        ([1.0, 2.0], [1, 2], {}),
        ([1.0, 2.0], [1, 1], {}),
        ([], [], {}),
        ([1.0] * 50, [1] * 50, {"fair_coins": True}),
        (list(range(200)), [1] * 180 + [0] * 20, {"fair_coins": True}),
        (list(range(20)), [1, 0] * 10, {"guesses": 21}),
        (list(range(20)), [1, 0] * 10, {"delta": 0.1}),
        (list(range(20)), [1, 0] * 10, {"confidence": 1.0}),
        ({"a": 1.0, "b": 2.0}, [1, 0], {}),
    ],
)
def test_scores_that_bound_nothing(scores, included, options) -> None:
    with pytest.raises(UsageError):
        unseen.canary_bound(scores, included, **options)


def test_a_canary_that_is_not_in_the_key(made) -> None:
    with pytest.raises((UnknownNameError, ConfigError), match="canary-9"):
        unseen.canary_bound({"canary-9": 1.0}, unseen.read_key(made.key))
