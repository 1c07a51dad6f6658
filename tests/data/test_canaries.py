from __future__ import annotations

import json
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from unseen.data import canaries
from unseen.data.canaries import draw, read, write
from unseen.data.records import Records
from unseen.errors import ConfigError, DataError, StoreError, UnseenError, UsageError

KINDS = ("random-words", "random-digits", "random-characters", "invented-people")
FORMS = ("text", "prompt-completion", "messages", "alpaca", "sharegpt")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return write(draw(40, seed=1), tmp_path / "c")[0]


@pytest.mark.parametrize("kind", KINDS)
def test_canaries_are_random_and_no_two_are_alike(kind) -> None:
    drawn = draw(200, kind=kind)
    texts = [canary.record.text for canary in drawn.canaries]
    assert len(set(texts)) == 200
    assert not set(texts) & {canary.record.text for canary in draw(200, kind=kind).canaries}
    assert drawn.ids[0] == "canary-00001"
    assert drawn.seed is None


def test_words_have_eight_bits_each() -> None:
    assert len(set(canaries._WORDS)) == 256
    assert len(set(canaries._LETTERS)) == 32


def test_coins_are_fair_and_independent_of_each_other_and_of_the_contents() -> None:
    for seed in (None, 4):
        coins = draw(5_000, seed=seed, kind="random-digits").included
        assert stats.binomtest(int(coins.sum()), len(coins)).pvalue > 1e-6
        runs = int((coins[1:] != coins[:-1]).sum())
        assert stats.binomtest(runs, len(coins) - 1).pvalue > 1e-6
    drawn = draw(5_000, seed=4, kind="random-digits")
    first = np.array([int(c.record.turns[1].content[0]) for c in drawn.canaries])
    table = [np.bincount(first[drawn.included == coin], minlength=10) for coin in (True, False)]
    assert stats.chi2_contingency(table).pvalue > 1e-6


def test_a_seed_repeats_everything_and_another_changes_everything() -> None:
    assert draw(30, seed=7) == draw(30, seed=7)
    first, second = draw(300, seed=7), draw(300, seed=8)
    assert (first.included != second.included).any()
    assert first.canaries[0].record != second.canaries[0].record
    # The key of a seed is for ever: a later version has to read the coins of an earlier one.
    assert "".join("01"[int(coin)] for coin in draw(20, seed=0).included) == SEED_0


SEED_0 = "11110010110001101000"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_key_is_read_as_it_was_written(form, kind, tmp_path) -> None:
    made = draw(40, kind=kind, format=form)
    key, included = write(made, tmp_path / "deep" / "c")
    again = read(key)
    assert replace(again, path="") == made
    assert read(key.parent).ids == made.ids
    rows = [json.loads(line) for line in included.read_text().splitlines()]
    assert rows == [canary.row for canary in made.canaries if canary.included]
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert "out of the training data" in json.loads(key.read_text())["warning"]
    assert json.loads(key.read_text())["coins"] == "operating system"


@pytest.mark.parametrize("form", FORMS)
def test_what_is_trained_on_is_read_like_any_records(form, tmp_path) -> None:
    made = draw(40, format=form)
    _, included = write(made, tmp_path)
    other = tmp_path / "other.jsonl"
    other.write_text(
        "".join(json.dumps(dict(c.row)) + "\n" for c in made.canaries if not c.included)
    )
    records = Records.from_files(included, other)
    assert records.format == form
    assert [r.turns for r in records.members] == [r.turns for r in made.records().members]


def test_records_of_a_key_have_the_coins_as_membership() -> None:
    made = draw(40, seed=1)
    records = made.records()
    membership = dict(zip(records.ids, records.membership.member.tolist(), strict=True))
    assert membership == dict(zip(made.ids, made.included.tolist(), strict=True))
    assert {source.sha256 for source in records.sources.values()} == {made.sha256}


# --- the user's own form ------------------------------------------------------------------------

LIKE: dict[str, tuple[dict[str, Any], dict[str, Any], set[str]]] = {
    "plain": ({"text": "abc", "id": 3}, {}, {"text"}),
    "own names": (
        {"frage": "a", "antwort": "b", "x": 1},
        {"column": {"prompt": "frage", "completion": "antwort"}},
        {"frage", "antwort"},
    ),
    "response": ({"prompt": "a", "response": "b"}, {}, {"prompt", "response"}),
    "alpaca": (
        {"instruction": "a", "input": "", "output": "b"},
        {},
        {"instruction", "input", "output"},
    ),
    "prompt of turns": (
        {
            "prompt": [{"role": "user", "content": "a"}],
            "completion": [{"role": "assistant", "content": "b"}],
        },
        {},
        {"prompt", "completion"},
    ),
    "messages of speakers": (
        {"messages": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
        {},
        {"messages"},
    ),
}


@pytest.mark.parametrize("case", LIKE)
def test_canaries_take_the_form_of_the_users_file(case, tmp_path) -> None:
    row, options, columns = LIKE[case]
    like = tmp_path / "train.jsonl"
    like.write_text(json.dumps(row) + "\n")
    made = draw(40, like=like, **options)
    shape = {name: (type(value), _shape(value)) for name, value in row.items() if name in columns}
    for canary in made.canaries:
        assert set(canary.row) == columns
        assert {n: (type(v), _shape(v)) for n, v in canary.row.items()} == shape
    key, _ = write(made, tmp_path / "c")
    assert replace(read(key), path="") == made


def _shape(value: Any) -> Any:
    return [sorted(turn) for turn in value] if isinstance(value, list) else None


def test_nothing_of_the_users_file_is_taken_over(tmp_path) -> None:
    like = tmp_path / "train.jsonl"
    like.write_text(json.dumps({"prompt": "zq001xv", "completion": "zq002xv", "id": "zq003xv"}))
    key, included = write(draw(40, like=like), tmp_path / "c")
    assert "zq00" not in key.read_text() + included.read_text()


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"n": 19}, "n=19"),
        ({"n": 30_001}, "30000"),
        ({"n": -1}, "n=-1"),
        ({"seed": -1}, "seed=-1"),
        ({"kind": "secrets"}, "random-words"),
        ({"format": "csv"}, "prompt-completion"),
        ({"like": "nothing.jsonl"}, "nothing.jsonl"),
        ({"column": {"prompts": "x"}}, "prompts"),
    ],
)
def test_bad_arguments(given, word) -> None:
    with pytest.raises(UsageError) as caught:
        draw(**{"n": 40, **given})
    assert word in str(caught.value)


def test_an_empty_file_has_no_form(tmp_path) -> None:
    like = tmp_path / "train.jsonl"
    like.write_text("\n")
    with pytest.raises(DataError, match="no records"):
        draw(40, like=like)


@pytest.mark.parametrize("name", ["key.json", "canaries.jsonl"])
def test_nothing_is_overwritten(name, tmp_path) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(ConfigError, match="not overwritten") as caught:
        write(draw(40), tmp_path)
    assert "--out" in caught.value.fix
    assert (tmp_path / name).read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_cannot_be_made(tmp_path) -> None:
    (tmp_path / "f").write_text("x")
    with pytest.raises(StoreError, match="cannot write"):
        write(draw(40), tmp_path / "f" / "c")


def change(key: Path, edit: Callable[[dict[str, Any]], Any], *, sign: bool = False) -> None:
    """Edits a key; with a hash that fits, where `sign` says so."""
    content = json.loads(key.read_text())
    edit(content)
    if sign:
        rest = {name: value for name, value in content.items() if name != "sha256"}
        content["sha256"] = canaries._digest(rest)
    key.write_text(json.dumps(content))


def flip(content: dict[str, Any]) -> None:
    content["canaries"][3]["included"] = not content["canaries"][3]["included"]


def same_text(content: dict[str, Any]) -> None:
    content["canaries"][1]["row"] = content["canaries"][0]["row"]


EDITS: dict[str, tuple[Callable[[dict[str, Any]], Any], bool, str]] = {
    "a coin": (flip, False, "hash"),
    "a coin, and the hash with it": (flip, True, "seed"),
    "no coin": (lambda c: c["canaries"][2].pop("included"), True, "canary 3 has no coin"),
    "a coin that is none": (lambda c: c["canaries"][2].update(included=0.5), True, "no coin"),
    "another hash": (lambda c: c.update(sha256="0" * 64), False, "hash"),
    "no hash": (lambda c: c.pop("sha256"), False, "no hash"),
    "a text": (lambda c: c["canaries"][0]["row"].update(completion="mine"), False, "hash"),
    "one canary less": (lambda c: c["canaries"].pop(), False, "hash"),
    "no canaries": (lambda c: c.update(canaries=[]), True, "no list"),
    "canaries gone": (lambda c: c.pop("canaries"), True, "canaries"),
    "an id twice": (lambda c: c["canaries"][1].update(id=c["canaries"][0]["id"]), True, "id"),
    "a text twice": (same_text, True, "earlier"),
    "a row that is none": (lambda c: c["canaries"][1].update(row="x"), True, "row"),
    "a canary that is none": (lambda c: c["canaries"].append(7), True, "canary 41"),
    "a seed that is none": (lambda c: c.update(seed="x"), True, "seed"),
    "another seed": (lambda c: c.update(seed=2), True, "seed, 2"),
    "another form": (lambda c: c.update(format="poem"), True, "format"),
    "no columns": (lambda c: c.update(columns=None), True, "columns"),
    "an empty text": (lambda c: c["canaries"][0]["row"].update(completion=""), True, "empty"),
    "a later version": (lambda c: c.update(schema_version="9.1"), True, "9.1"),
}


@pytest.mark.parametrize("case", EDITS)
def test_an_edited_key_is_refused(case, key) -> None:
    edit, sign, word = EDITS[case]
    secret = json.loads(key.read_text())["canaries"][0]["row"]["completion"]
    change(key, edit, sign=sign)
    with pytest.raises(UnseenError) as caught:
        read(key)
    assert word in str(caught.value)
    assert caught.value.fix
    assert secret not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe{", b"[" * 100_000])
def test_what_is_no_key(content, tmp_path) -> None:
    file = tmp_path / "key.json"
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"key\.json"):
        read(file)


def test_a_key_that_is_not_there(tmp_path) -> None:
    for place in (tmp_path / "none.json", tmp_path, Path("a\0b")):
        with pytest.raises(DataError) as caught:
            read(place)
        assert caught.value.fix
