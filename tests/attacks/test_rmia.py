import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from unseen import attacks
from unseen.attacks.rmia import Rmia
from unseen.signals.base import Observations
from unseen.signals.likelihoods import (
    Likelihoods,
    Population,
    PopulationLikelihoods,
    TextLikelihood,
)

Texts = Sequence[tuple[float, Sequence[float]]]  # of target and of shadows out of it, per token


def likelihoods(means: Sequence[float], n: int, inside: int = 0) -> Likelihoods:
    k = len(means)
    return Likelihoods(
        np.arange(k), np.arange(k) < inside, np.full(k, n), n * np.array(means), np.zeros(k)
    )


def population(texts: Sequence[Likelihoods]) -> Population:
    return Population(
        np.repeat(np.arange(len(texts)), [len(one.model) for one in texts]),
        *(
            np.concatenate([getattr(one, name) for one in texts])
            for name in ("model", "inside", "n_tokens", "logprob", "odds")
        ),
    )


def slow(x: tuple[float, Sequence[float]], texts: Texts, gamma: float, a: float) -> float:
    def ratio(own: float, out: Sequence[float]) -> float:
        p_out = sum(math.exp(mean) for mean in out) / len(out)
        return math.exp(own) / (0.5 * ((1 + a) * p_out + (1 - a)))

    points = 0.0
    for z in texts:
        quotient = ratio(*x) / ratio(*z)
        points += 1.0 if quotient > gamma else 0.5 if quotient == gamma else 0.0
    return points / len(texts)


@pytest.fixture
def seen(observed: Callable[..., Observations]) -> Callable[..., Observations]:
    def made(attack: Rmia, xs: Texts, texts: Texts, inside: int = 0) -> Observations:
        """Everybody has five tokens for the target, six for others, the first of whom know all."""
        target, others, of_target, of_others = attack.signals()
        known = [-0.01] * inside
        own = population([likelihoods([mean], 5) for mean, _ in texts])
        theirs = [[*known, *out] for _, out in texts]
        scaled = population([likelihoods([5 / 6 * m for m in out], 6, inside) for out in theirs])
        ids = [f"r{i}" for i in range(len(xs))]
        return observed(
            {
                target: {i: likelihoods([x[0]], 5) for i, x in zip(ids, xs, strict=True)},
                others: {
                    i: likelihoods([5 / 6 * m for m in (*known, *x[1])], 6, inside)
                    for i, x in zip(ids, xs, strict=True)
                },
                of_target: dict.fromkeys(ids, own),
                of_others: dict.fromkeys(ids, scaled),
            }
        )

    return made


@pytest.mark.parametrize("inside", [0, 2])
@pytest.mark.parametrize(("gamma", "a"), [(1.0, 0.3), (2.0, 0.3), (1.2, 1.0), (0.8, 0.0)])
def test_equals_the_formula(seen: Any, gamma: float, a: float, inside: int) -> None:
    rng = np.random.default_rng(3)
    drawn = [(-rng.exponential(1), (-rng.exponential(1, size=3)).tolist()) for _ in range(30)]
    attack = Rmia(gamma=gamma, a=a)
    scores = attack.score(seen(attack, drawn[:10], drawn[10:], inside))
    expected = [slow(x, drawn[10:], gamma, a) for x in drawn[:10]]
    assert scores.values.tolist() == pytest.approx(expected, rel=1e-12)
    assert len(set(scores.values.tolist())) > 3


def test_ties_count_half(seen: Any) -> None:
    attack = Rmia()
    same = (-1.0, [-2.0, -2.5])
    texts = [same, (-5.0, [-2.0, -2.5]), (-0.1, [-2.0, -2.5]), same]
    assert attack.score(seen(attack, [same], texts)).values.tolist() == [0.5]


def test_what_cannot_be_compared_has_a_reason(seen: Any) -> None:
    attack = Rmia()
    for xs, texts, reason in (
        ([(-1.0, [])], [(-1.0, [-1.0])], "every shadow was trained on this record"),
        ([(-1.0, [-1.0])], [(-1.0, [])], "no text of the population"),
        ([(-np.inf, [-1.0])], [(-1.0, [-1.0])], "no finite likelihood"),
    ):
        (why,) = attack.score(seen(attack, xs, texts, 1)).unscored.values()
        assert reason in why


def test_fields_say_what_is_measured() -> None:
    attack = attacks.create("rmia[against=reference,population=9]")
    assert attack.signals() == (
        TextLikelihood(),
        TextLikelihood(of="reference"),
        PopulationLikelihoods(size=9),
        PopulationLikelihoods(of="reference", size=9),
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"against": "base"}, "got against='base', expected one of shadow, reference"),
        ({"gamma": 0.0}, "got gamma=0.0"),
        ({"a": 1.5}, "got a=1.5"),
        ({"population": 0}, "got population=0, expected at least 1"),
    ],
)
def test_refuses_what_makes_no_sense(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Rmia(**fields)
