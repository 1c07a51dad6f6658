import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from unseen.attacks.loss import Loss
from unseen.attacks.perplexity import Perplexity
from unseen.signals.base import Observations
from unseen.signals.token_stats import TokenStatistics
from unseen.types import TokenStats


def slow(logprobs: Sequence[float]) -> float:
    product = 1.0
    for logprob in logprobs:
        product *= math.exp(-logprob)
    return -(product ** (1 / len(logprobs)))


def test_equals_the_formula_and_ranks_as_loss(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    rng = np.random.default_rng(1)
    drawn = {f"r{n}": (-rng.exponential(2, size=n)).tolist() for n in range(1, 30)}
    seen = observed({TokenStatistics(): {i: tokens(x) for i, x in drawn.items()}})
    scores = Perplexity().score(seen)
    for id_, value in zip(scores.ids, scores.values, strict=True):
        assert value == pytest.approx(slow(drawn[id_]), rel=1e-9)
    assert scores.values.argsort().tolist() == Loss().score(seen).values.argsort().tolist()


def test_certainty_is_a_perplexity_of_one(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    scores = Perplexity().score(observed({TokenStatistics(): {"a": tokens([0.0])}}))
    assert scores.values.tolist() == [-1.0]


def test_infinite_and_missing_are_unscored(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    values = {"a": tokens([-np.inf]), "b": tokens([-800.0]), "c": "too long", "d": tokens([])}
    scores = Perplexity().score(observed({TokenStatistics(): values}))
    assert scores.ids == ()
    assert scores.unscored == {
        "a": "the formula has no finite value here",
        "b": "the formula has no finite value here",
        "c": "too long",
        "d": "no token to score",
    }
