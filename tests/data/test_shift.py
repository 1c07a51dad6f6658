from __future__ import annotations

import math

import numpy as np
import pytest

import unseen
from unseen.data.features import features
from unseen.data.shift import MIN_RECORDS, telling_words
from unseen.types import Record, Turn

pytestmark = pytest.mark.slow


def records(texts: list[str]) -> tuple[Record, ...]:
    return tuple(Record(str(i), (Turn("text", text),)) for i, text in enumerate(texts))


def test_words_of_one_side_are_named_and_common_ones_are_not() -> None:
    members = records([f"the year 2013 was quiet {i}" for i in range(60)])
    others = records([f"the year 2023 was quiet {i}" for i in range(60)])
    assert telling_words(members, others) == ("2013", "2023")


def test_words_of_few_records_are_never_named() -> None:
    few = ["Adalbert Zwiebelkuchen"] * (MIN_RECORDS - 1)
    assert telling_words(records(few), records(["a b"] * 9)) == ()


def test_halves_of_one_set_have_no_telling_words() -> None:
    rng = np.random.default_rng(0)
    vocabulary = [f"w{i}" for i in range(50)]
    for _ in range(50):
        halves = [
            records([" ".join(rng.choice(vocabulary, 8)) for _ in range(60)]) for _ in range(2)
        ]
        assert telling_words(*halves) == ()


def test_the_statistic_is_the_two_proportion_test() -> None:
    members = records(["x y"] * 30 + ["y"] * 30)
    others = records(["x y"] * 8 + ["y"] * 52)
    pooled = 38 / 120
    z = (30 / 60 - 8 / 60) / math.sqrt(pooled * (1 - pooled) * (1 / 60 + 1 / 60))
    assert z > 4  # beyond the limit for two words at level 0.01, which is 2.81
    assert telling_words(members, others) == ("x",)
    assert telling_words(members, ()) == ()


def test_features_say_what_they_are_said_to_say() -> None:
    made = features(
        records(["a b a b", "a b a b", "a b a b", "c d", ""]), [True, True, False, True, False]
    )
    assert made["repetition"].tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0, 0])
    assert made["copies"].tolist() == [2, 2, 1, 1, 1]
    assert made["rare_words"].tolist() == [1, 1, 1, 1, 0]


def test_sets_of_different_times_are_found_out_and_words_are_said_but_not_kept(tmp_path) -> None:
    rng = np.random.default_rng(1)
    words = [f"w{i}" for i in range(80)]
    sides = [
        [" ".join([year, *rng.choice(words, 12)]) for _ in range(60)] for year in ("2013", "2023")
    ]
    said: list[str] = []

    def audit(name: str, **choices):
        return unseen.audit_finetune(
            unseen.FakeTarget(sides[0], strength=1.0),
            unseen.Records.from_texts(*sides),
            attacks=("loss",),
            run_dir=tmp_path / name,
            cache=False,
            bootstrap=200,
            note=said.append,
            **choices,
        )

    result = audit("run")
    assert result.results.validity.verdict == "invalid"
    assert result.headline is None
    assert "words that tell members from non-members: 2013, 2023" in said
    assert result.results.data.n_telling_words == 2
    assert "2 common words differ" in result.results.validity.reasons[0]
    for name in ("results.json", "report.md"):
        assert "2013" not in (result.folder / name).read_text()
    again = unseen.score_run(result.folder)
    assert again.results.validity == result.results.validity
    assert again.headline is None
    shown = audit("shown", reveal=True).results
    assert set(shown.data.telling_words) == {"2013", "2023"}
    assert "2013" in shown.validity.reasons[0]
