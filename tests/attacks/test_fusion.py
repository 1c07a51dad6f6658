from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from unseen.attacks.base import Known
from unseen.attacks.fusion import Fusion
from unseen.signals.base import Observations
from unseen.signals.scores import AttackScores, Said
from unseen.types import FloatArray, Scores

SIGNAL = AttackScores()
Row = Sequence[float | None]

# --- the twin ----------------------------------------------------------------------------------


def columns(known: Sequence[Row], rows: Sequence[Row]) -> tuple[list[list[float]], ...]:
    """Standardised scores of the known and of the judged records, and what was missing."""
    made: tuple[list[list[float]], ...] = ([[] for _ in known], [[] for _ in rows])
    indicators: list[int] = []
    for j in range(len(known[0])):
        there = sorted(row[j] for row in known if row[j] is not None)  # type: ignore[type-var]
        if not there:
            continue
        half = len(there) // 2
        median = there[half] if len(there) % 2 else (there[half - 1] + there[half]) / 2
        for row, out in zip([*known, *rows], [*made[0], *made[1]], strict=True):
            value = row[j]
            out.append(median if value is None else value)
        if len(there) < len(known):
            indicators.append(j)
    for j in indicators:
        for row, out in zip([*known, *rows], [*made[0], *made[1]], strict=True):
            out.append(1.0 if row[j] is None else 0.0)
    for j in range(len(made[0][0])):
        mean = sum(row[j] for row in made[0]) / len(made[0])
        sd = (sum((row[j] - mean) ** 2 for row in made[0]) / len(made[0])) ** 0.5
        for out in [*made[0], *made[1]]:
            out[j] = (out[j] - mean) / (sd or 1.0)
    return made


def logistic(rows: list[list[float]], member: Sequence[bool]) -> FloatArray:
    """Weights, the last of them the constant, by plain Newton steps."""
    x = np.array([[*row, 1.0] for row in rows])
    n = len(member)
    share = {True: n / (2 * sum(member)), False: n / (2 * (n - sum(member)))}
    w = np.zeros(x.shape[1])
    penalty = np.diag([1.0] * (len(w) - 1) + [0.0])
    for _ in range(100):
        slope, curve = penalty @ w, penalty.copy()
        for row, is_member in zip(x, member, strict=True):
            p = 1 / (1 + np.exp(-row @ w))
            slope = slope + share[is_member] * (p - is_member) * row
            curve = curve + share[is_member] * p * (1 - p) * np.outer(row, row)
        w = w - np.linalg.solve(curve, slope)
    return w


def slow(known: Sequence[Row], member: Sequence[bool], judged: Sequence[Row]) -> list[float]:
    taught, rows = columns(known, judged)
    w = logistic(taught, member)
    return [sum(a * b for a, b in zip(row, w[:-1], strict=True)) + w[-1] for row in rows]


# --- what it is given --------------------------------------------------------------------------


def said(rows: Mapping[str, Row]) -> Observations:
    values = {
        id_: Said(
            np.array([value or 0.0 for value in row]),
            np.array([value is not None for value in row]),
        )
        for id_, row in rows.items()
    }
    return Observations(tuple(rows), {SIGNAL: values})


def drawn(
    rng: np.random.Generator, n: int, *, missing: float = 0.0
) -> tuple[list[Row], list[bool]]:
    member = (np.arange(n) % 3 == 0).tolist()
    values = rng.normal(size=(n, 4)) * [1.0, 50.0, 0.01, 3.0] + [0.0, -100.0, 0.0, 7.0]
    values[:, 1] += 40.0 * np.array(member)
    absent = rng.random((n, 4)) < missing
    rows: list[Row] = [
        [None if gone else float(x) for x, gone in zip(row, lost, strict=True)]
        for row, lost in zip(values, absent, strict=True)
    ]
    return rows, member


def judge(known: Sequence[Row], member: Sequence[bool], rows: Sequence[Row]) -> Scores:
    seen = said({f"k{i:03d}": row for i, row in enumerate(known)})
    return Fusion().score(
        said({f"r{i:03d}": row for i, row in enumerate(rows)}), Known(seen, np.array(member))
    )


# --- the formula -------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_equals_the_formula(missing: float) -> None:
    rng = np.random.default_rng(3)
    (known, member), (rows, _) = (drawn(rng, 60, missing=missing), drawn(rng, 20, missing=missing))
    rows = [row for row in rows if any(value is not None for value in row)]
    scores = judge(known, member, rows)
    assert scores.values == pytest.approx(slow(known, member, rows), abs=1e-6)


def test_the_same_where_an_attack_says_nothing_of_known_records_or_the_same_of_all() -> None:
    rng = np.random.default_rng(4)
    (known, member), (rows, _) = drawn(rng, 40), drawn(rng, 9)
    plain = judge(known, member, rows)
    silent = judge([[*row, None] for row in known], member, [[*row, 5.0] for row in rows])
    assert silent.values == pytest.approx(plain.values, abs=1e-9)
    constant = judge([[*row, 2.0] for row in known], member, [[*row, 2.0] for row in rows])
    assert constant.values == pytest.approx(plain.values, abs=1e-9)


def test_scales_of_scores_do_not_matter() -> None:
    rng = np.random.default_rng(5)
    (known, member), (rows, _) = drawn(rng, 40), drawn(rng, 9)

    def scaled(rows: Sequence[Row]) -> list[Row]:
        return [[1e6 * row[0] - 3, *row[1:]] for row in rows]  # type: ignore[operator]

    assert judge(scaled(known), member, scaled(rows)).values == pytest.approx(
        judge(known, member, rows).values, abs=1e-6
    )


def test_scores_that_separate_and_repeat_each_other_are_no_trouble() -> None:
    known: list[Row] = [[float(i), 2.0 * i, -float(i)] for i in range(40)]
    member = [i >= 20 for i in range(40)]
    scores = judge(known, member, [[0.0, 0.0, 0.0], [39.0, 78.0, -39.0], [1e9, 2e9, -1e9]])
    low, high, far = scores.values
    assert low < 0 < high < far


def test_a_record_of_which_nobody_says_anything_has_its_reason() -> None:
    known, member = drawn(np.random.default_rng(6), 40)
    seen = said({f"k{i:03d}": row for i, row in enumerate(known)})
    audited = Observations(
        ("a", "b"),
        said({"a": known[0]}).values,
        {SIGNAL: {"b": "no attack has scored this record"}},
    )
    scores = Fusion().score(audited, Known(seen, np.array(member)))
    assert scores.ids == ("a",)
    assert scores.unscored == {"b": "no attack has scored this record"}


def test_scores_are_gathered_in_the_order_of_names() -> None:
    scores = {
        "b": Scores(("x", "y"), np.array([1.0, 2.0])),
        "a": Scores(("y",), np.array([3.0]), {"x": "too long", "z": "too long"}),
    }
    found = AttackScores().gather(scores)
    assert set(found) == {"x", "y"}
    assert (found["x"].values.tolist(), found["x"].scored.tolist()) == ([0.0, 1.0], [False, True])
    assert (found["y"].values.tolist(), found["y"].scored.tolist()) == ([3.0, 2.0], [True, True])
    turned = AttackScores().gather(dict(reversed(scores.items())))
    assert {id_: one.values.tolist() for id_, one in turned.items()} == {
        id_: one.values.tolist() for id_, one in found.items()
    }
