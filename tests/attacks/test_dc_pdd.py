import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from unseen.attacks.dc_pdd import DivergenceCalibrated
from unseen.signals.base import Observations
from unseen.signals.frequencies import Frequencies, TokenFrequencies
from unseen.signals.token_stats import TokenStatistics
from unseen.types import TokenStats


def slow(ids: Sequence[int], logprob: Sequence[float], corpus: Sequence[int], a: float) -> float:
    """Token by token, with a vocabulary of 50."""
    met: set[int] = set()
    values = []
    for token, own in zip(ids, logprob, strict=True):
        if token in met:
            continue
        met.add(token)
        f = (list(corpus).count(token) + 1) / (len(corpus) + 50)
        values.append(min(a, math.exp(own) * math.log(1 / f)))
    return sum(values) / len(values)


def frequencies(ids: Sequence[int], corpus: Sequence[int]) -> Frequencies:
    counts = np.bincount(corpus, minlength=50)
    first = np.array([token not in ids[:i] for i, token in enumerate(ids)])
    return Frequencies(first, ((counts + 1) / (counts.sum() + 50))[list(ids)])


@pytest.mark.parametrize("a", [0.01, 0.5, 100.0])
def test_equals_the_formula(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats], a: float
) -> None:
    rng = np.random.default_rng(4)
    corpus = rng.zipf(1.5, size=400) % 50
    drawn = {
        f"r{n}": (rng.integers(0, 50, size=n).tolist(), (-rng.exponential(2, size=n)).tolist())
        for n in (1, 9, 70)
    }
    seen = observed(
        {
            TokenStatistics(): {i: tokens(own) for i, (_, own) in drawn.items()},
            TokenFrequencies(): {i: frequencies(ids, corpus) for i, (ids, _) in drawn.items()},
        }
    )
    scores = DivergenceCalibrated(a=a).score(seen)
    expected = [slow(ids, own, corpus.tolist(), a) for ids, own in drawn.values()]
    assert scores.values.tolist() == pytest.approx(expected, rel=1e-12)


def test_a_rare_token_that_is_likely_says_more_than_a_common_one(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    first = np.array([True])
    seen = observed(
        {
            TokenStatistics(): dict.fromkeys(("rare", "common"), tokens([-0.1])),
            TokenFrequencies(): {
                "rare": Frequencies(first, np.array([1e-6])),
                "common": Frequencies(first, np.array([0.2])),
            },
        }
    )
    rare, common = DivergenceCalibrated(a=100.0).score(seen).values
    assert rare > common


def test_nothing_and_infinite_are_unscored(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    empty, one = np.array([], dtype=bool), np.array([True])
    seen = observed(
        {
            TokenStatistics(): {"none": tokens([]), "infinite": tokens([-np.inf])},
            TokenFrequencies(): {
                "none": Frequencies(empty, np.array([])),
                "infinite": Frequencies(one, np.array([0.1])),
            },
        }
    )
    assert DivergenceCalibrated().score(seen).unscored == {
        "none": "no token to score",
        "infinite": "a text has no finite likelihood",
    }


def test_refuses_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="got a=0, expected a number above 0"):
        DivergenceCalibrated(a=0)
