from collections.abc import Callable, Sequence

import numpy as np
import pytest

from unseen.attacks.loss import Loss
from unseen.signals.base import Observations
from unseen.signals.token_stats import TokenStatistics
from unseen.types import TokenStats


def slow(logprobs: Sequence[float]) -> float:
    total = 0.0
    for logprob in logprobs:
        total += logprob
    return total / len(logprobs)


def test_equals_the_formula(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    rng = np.random.default_rng(0)
    drawn = {f"r{n}": (-rng.exponential(2, size=n)).tolist() for n in (1, 2, 3, 50)}
    scores = Loss().score(observed({TokenStatistics(): {i: tokens(x) for i, x in drawn.items()}}))
    assert scores.ids == tuple(drawn)
    for id_, value in zip(scores.ids, scores.values, strict=True):
        assert value == pytest.approx(slow(drawn[id_]), rel=1e-12)


def test_a_token_that_cannot_be_is_unscored(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    scores = Loss().score(
        observed({TokenStatistics(): {"a": tokens([-1, -np.inf]), "b": tokens([-1.0, -3.0])}})
    )
    assert scores.ids == ("b",)
    assert scores.values.tolist() == [-2.0]
    assert scores.unscored == {"a": "the formula has no finite value here"}


def test_what_was_not_measured_keeps_its_reason(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    values = {TokenStatistics(): {"a": "too long", "b": tokens([]), "c": tokens([0.0])}}
    scores = Loss().score(observed(values))
    assert scores.unscored == {"a": "too long", "b": "no token to score"}
    assert (scores.ids, scores.values.tolist()) == (("c",), [0.0])
    nothing = Loss().score(observed({TokenStatistics(case="lower"): {"a": tokens([-1.0])}}))
    assert nothing.unscored == {"a": "this signal was not measured"}


def test_single_precision_is_summed_in_double(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    long = tokens([-1e-3] * 100_000, dtype=np.float32)
    (value,) = Loss().score(observed({TokenStatistics(): {"a": long}})).values
    assert value == pytest.approx(float(np.float32(-1e-3)), rel=1e-12)
