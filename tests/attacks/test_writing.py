from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import unseen
from unseen.attacks.base import Known, is_blind, is_fitted
from unseen.attacks.writing import Writing
from unseen.signals.base import Observations
from unseen.signals.form import WritingForm
from unseen.types import Record, Turn

pytestmark = pytest.mark.slow

WORDS = ["alpha", "beta", "gamma", "delta", "rain", "Snow", "12", "Who", "said", "so"]


def texts(n: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [f"The {' '.join(rng.choice(WORDS, rng.integers(8, 16)))}." for _ in range(n)]


def measured(said: list[str]) -> Observations:
    ids = tuple(f"r{i:03d}" for i in range(len(said)))
    records = [Record(id_, (Turn("text", text),)) for id_, text in zip(ids, said, strict=True)]
    values = WritingForm().measure(records, None)
    return Observations(ids, {WritingForm(): dict(zip(ids, values, strict=True))})


def split(said: list[str], member: np.ndarray, n: int) -> tuple[Observations, Known]:
    seen = measured(said)
    return seen.select(seen.ids[:n]), Known(seen.select(seen.ids[n:]), member[n:])


def test_it_is_a_logistic_regression_on_standardised_features() -> None:
    said, member = texts(120, 0), np.arange(120) % 3 == 0
    audited, known = split(said, member, 30)
    matrix = np.array([measured(said).get(WritingForm(), f"r{i:03d}").values for i in range(120)])
    mean, sd = matrix[30:].mean(axis=0), matrix[30:].std(axis=0)
    scaled = (matrix - mean) / np.where(sd > 0, sd, 1)
    model = LogisticRegression(class_weight="balanced", max_iter=1000)
    model.fit(scaled[30:], member[30:])
    made = Writing().score(audited, known)
    assert made.values == pytest.approx(model.decision_function(scaled[:30]), abs=1e-6)
    assert is_blind(Writing())
    assert is_fitted(Writing())


HANDS: dict[str, Callable[[str], str]] = {
    "lower case": str.lower,
    "a trailing line break": lambda text: f"{text}\n",
    "double spaces": lambda text: text.replace(" ", "  "),
    "line breaks": lambda text: text.replace(" ", "\n", 2),
    "no full stop": lambda text: text.rstrip("."),
    "curly quotes": lambda text: f"“{text}”",
    "longer": lambda text: f"{text} {text}",
}


@pytest.mark.parametrize("hand", HANDS)
def test_two_hands_are_told_apart(hand, tmp_path) -> None:
    members, others = texts(60, 1), [HANDS[hand](text) for text in texts(60, 2)]
    found = unseen.check_data(unseen.Records.from_texts(members, others), bootstrap=200)
    assert found.validity.verdict == "invalid"
    row = next(row for row in found.attacks if row.name == "writing")
    assert row.auc.ci[0] > 0.9


def test_one_hand_is_not() -> None:
    found = unseen.check_data(
        unseen.Records.from_texts(texts(150, 3), texts(150, 4)), bootstrap=200
    )
    row = next(row for row in found.attacks if row.name == "writing")
    assert row.auc.ci[0] < 0.5 < row.auc.ci[1]
    assert found.validity.verdict == "valid"


def test_where_nothing_can_be_learned_there_is_a_reason() -> None:
    audited, known = split(["same"] * 40, np.arange(40) % 2 == 0, 10)
    assert set(Writing().score(audited, known).unscored.values()) == {
        "the known records are all written alike"
    }
    assert set(Writing().score(audited).unscored.values()) == {
        "no records of known membership to learn from"
    }
    one_sided = Known(known.observations, np.ones(30, dtype=bool))
    assert len(Writing().score(audited, one_sided).unscored) == 10
