"""Scores without labels, for statistics of one's own."""

from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

import unseen
from unseen.attacks import create
from unseen.data import canaries
from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import AccessError, ConfigError, UsageError
from unseen.runs.collect import Model
from unseen.runs.collect import collect as measured
from unseen.scoring.store import Store
from unseen.types import Record, Turn


def some(n: int, *, start: int = 0) -> list[Record]:
    return [
        Record(f"r{i}", (Turn("user", "Say it."), Turn("assistant", f"Number {i} of {n * i}.")))
        for i in range(start, start + n)
    ]


def test_the_scores_are_those_of_the_attacks_in_the_order_of_the_records(tmp_path: Path) -> None:
    records = some(24)[::-1]
    target = unseen.FakeTarget([one.response for one in records[::2]])
    table = unseen.collect(target, records, ["loss", "min_k[k=0.3]"], cache_dir=tmp_path)
    assert list(table) == ["loss", "min_k[k=0.3]"]
    assert len(table) == 2
    assert table.ids == tuple(one.id for one in records)
    model = Model(target, RecordEncoder(target.tokenizer, Layout(), limit=target.max_length))
    for name, values in table.items():
        attack = create(name)
        with Store() as store:
            seen, _ = measured(attack.signals(), records, {"target": model}, store=store)
        assert values.tolist() == attack.score(seen).values.tolist()
        assert values.shape == (24,)
    labels = [i % 2 == 0 for i in range(24)]
    found = unseen.evaluate(scores=table, labels=labels, bootstrap=200)
    assert [row.name for row in found.attacks] == ["loss", "min_k[k=0.3]"]
    assert found.attacks[0].auc.value > 0.9


def test_gradients_of_canaries(tmp_path: Path) -> None:
    """Example: a table of a real model, and statistics of one column of it."""
    target = unseen.HFTarget(tiny.folder(tmp_path / "m", dtype=torch.float32))
    key = canaries.draw(24, seed=1)
    signals = unseen.collect(target, key, ["loss", unseen.attacks.GradNorm()], cache=False)
    assert signals.ids == key.ids
    assert np.isfinite(signals["grad_norm"]).all()
    found = unseen.evaluate(scores=signals["grad_norm"], labels=key.included, bootstrap=200)
    assert found.attacks[0].n == (int(key.included.sum()), int((~key.included).sum()))


def test_canaries_are_audited_by_attacks_and_a_key_at_hand(tmp_path: Path) -> None:
    made = unseen.canary_make(tmp_path / "canaries", 40, seed=2)
    key = unseen.read_key(made.key)
    target = unseen.FakeTarget([c.record.response for c in key.canaries if c.included])
    done = unseen.canary_audit(
        target, key, attacks=[unseen.attacks.Loss(), unseen.attacks.MinK(k=0.3)], run_dir=tmp_path / "run",
        cache_dir=tmp_path / "cache", bootstrap=200, preflight=False,
    )  # fmt: skip
    names = {row.name for row in done.results.attacks if row.kind == "attack"}
    assert names == {"loss", "min_k[k=0.3]"}
    assert done.results.epsilon is not None
    with pytest.raises(ConfigError, match="not read from a file"):
        unseen.canary_audit(target, canaries.draw(20, seed=1))


def test_both_sides_of_records_are_taken(tmp_path: Path) -> None:
    files = [tmp_path / f"{side}.jsonl" for side in ("members", "nonmembers")]
    for i, file in enumerate(files):
        rows = [f'{{"id": "{i}{n}", "text": "This is {i}, and {n} is more."}}\n' for n in range(4)]
        file.write_text("".join(rows))
    data = unseen.Records.from_files(*files)
    table = unseen.collect("fake/", data, "loss", cache_dir=tmp_path)
    assert table.ids == data.ids


def test_what_has_no_score_is_told_and_not_made_up(tmp_path: Path) -> None:
    records = [*some(5), Record("empty", (Turn("user", "Say it."), Turn("assistant", "")))]
    table = unseen.collect(unseen.FakeTarget(), records, ["loss"], cache_dir=tmp_path)
    with pytest.raises(UsageError, match="1 of 6 records have no score by loss") as refused:
        table["loss"]
    assert refused.value.fix == "table.scores['loss'] has those that there are, by id"
    assert set(table.scores["loss"].unscored) == {"empty"}
    frame = table.to_pandas()
    assert frame.index.tolist() == [one.id for one in records]
    assert frame["loss"].isna().tolist() == [False] * 5 + [True]
    with pytest.raises(KeyError):
        table["zlib"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("bag_of_words", "it learns from records of known membership"),
        ("activation_probe", "it learns from records of known membership"),
        ("fusion", "it learns from records of known membership"),
        ("recall", "it is shown, or compares with, records of known membership"),
        ("rmia", "it is shown, or compares with, records of known membership"),
    ],
)
def test_what_needs_known_records_is_refused(spec: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"attack {spec} has no score for a table: {why}") as no:
        unseen.collect(unseen.FakeTarget(), some(3), ["loss", spec])
    assert "unseen.audit_finetune(target, data, attacks=" in str(no.value.fix)


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(
        AccessError, match="attack grad_norm cannot be run: it needs weights access"
    ):
        unseen.collect(unseen.FakeTarget(), some(3), ["grad_norm"])
    with pytest.raises(AccessError, match="it needs a reference model"):
        unseen.collect(unseen.FakeTarget(), some(3), ["reference"], reference="none")
    with pytest.raises(ConfigError, match="a table does not read --members"):
        unseen.collect(unseen.FakeTarget(), some(3), ["loss"], members="a.jsonl")
    with pytest.raises(ConfigError, match="unknown attack 'losss'"):
        unseen.collect(unseen.FakeTarget(), some(3), ["losss"])
    for records, attacks, why in (
        ([], ["loss"], "got no records"),
        ([*some(2), *some(1)], ["loss"], "got the same id twice"),
        (some(2), [], "got no attacks"),
    ):
        with pytest.raises(UsageError, match=why):
            unseen.collect(unseen.FakeTarget(), records, attacks)


def test_attacks_are_named_as_classes_too() -> None:
    from unseen.attacks.grad_norm import GradNorm
    from unseen.runs.config import configure

    assert unseen.attacks.GradNorm is GradNorm
    given = configure(attacks=[unseen.attacks.GradNorm(weights="adapter"), "loss"])
    assert given.attacks == ("grad_norm[weights=adapter]", "loss")
    assert configure(attacks=unseen.attacks.Loss()).attacks == ("loss",)
    with pytest.raises(AttributeError, match="has no attribute 'GradNor'"):
        _ = unseen.attacks.GradNor
