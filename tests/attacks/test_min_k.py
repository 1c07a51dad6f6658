import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from unseen.attacks.loss import Loss
from unseen.attacks.min_k import MinK
from unseen.signals.base import Observations
from unseen.signals.token_stats import TokenStatistics
from unseen.types import TokenStats


def slow(logprobs: Sequence[float], k: float) -> float:
    left = list(logprobs)
    lowest = []
    while len(lowest) < max(1, math.floor(k * len(logprobs))):
        lowest.append(min(left))
        left.remove(lowest[-1])
    return sum(lowest) / len(lowest)


@pytest.mark.parametrize("k", [0.05, 0.2, 0.5, 1.0])
def test_equals_the_formula(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats], k: float
) -> None:
    rng = np.random.default_rng(4)
    drawn = {f"r{n}": (-rng.exponential(2, size=n)).tolist() for n in (1, 2, 4, 5, 9, 10, 101)}
    scores = MinK(k).score(observed({TokenStatistics(): {i: tokens(x) for i, x in drawn.items()}}))
    assert scores.ids == tuple(drawn)
    for id_, value in zip(scores.ids, scores.values, strict=True):
        assert value == pytest.approx(slow(drawn[id_], k), rel=1e-12)


def test_one_token_is_never_an_empty_share(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    scores = MinK(0.01).score(observed({TokenStatistics(): {"a": tokens([-7.0])}}))
    assert scores.values.tolist() == [-7.0]


def test_all_tokens_are_the_loss(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    seen = observed({TokenStatistics(): {"a": tokens([-3.0, -1.0, -2.0])}})
    assert MinK(1.0).score(seen).values.tolist() == Loss().score(seen).values.tolist()


def test_nothing_undefined_hides_behind_the_sorting(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    values = {
        "inf": tokens([-1.0, -np.inf]),
        "nan": tokens([-1.0, -2.0, np.nan, -3.0, -4.0]),
        "none": tokens([]),
        "missing": "too long",
    }
    scores = MinK().score(observed({TokenStatistics(): values}))
    assert scores.ids == ()
    assert scores.unscored == {
        "inf": "a token has no finite value",
        "nan": "a token has no finite value",
        "none": "no token to score",
        "missing": "too long",
    }


def test_does_not_change_what_it_reads(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    stats = tokens([-1.0, -3.0, -2.0])
    MinK().score(observed({TokenStatistics(): {"a": stats}}))
    assert stats.logprob.tolist() == [-1.0, -3.0, -2.0]


@pytest.mark.parametrize("k", [0, -0.1, 1.1, float("nan")])
def test_refuses_another_share(k: float) -> None:
    with pytest.raises(ValueError, match=r"got k=.*, expected a share above 0 and at most 1"):
        MinK(k)
