from collections.abc import Callable, Sequence

import numpy as np
import pytest

from unseen.attacks.lowercase import Lowercase
from unseen.signals.base import Observations
from unseen.signals.token_stats import TokenStatistics
from unseen.types import TokenStats

LOWER = TokenStatistics(case="lower")


def slow(plain: Sequence[float], lower: Sequence[float]) -> float:
    return (sum(lower) / len(lower)) / (sum(plain) / len(plain))


def test_equals_the_formula_with_other_tokens(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    rng = np.random.default_rng(3)
    plain = {f"r{n}": (-rng.exponential(1, size=n)).tolist() for n in (1, 5, 40)}
    lower = {id_: (-rng.exponential(3, size=len(x) + 2)).tolist() for id_, x in plain.items()}
    seen = observed(
        {
            TokenStatistics(): {i: tokens(x) for i, x in plain.items()},
            LOWER: {i: tokens(x) for i, x in lower.items()},
        }
    )
    scores = Lowercase().score(seen)
    for id_, value in zip(scores.ids, scores.values, strict=True):
        assert value == pytest.approx(slow(plain[id_], lower[id_]), rel=1e-12)


def test_who_suffers_more_is_the_member(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    seen = observed(
        {
            TokenStatistics(): {"member": tokens([-1.0]), "other": tokens([-2.0])},
            LOWER: {"member": tokens([-4.0]), "other": tokens([-4.0])},
        }
    )
    assert Lowercase().score(seen).values.tolist() == [4.0, 2.0]


def test_what_has_no_ratio_is_unscored(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    plain = {
        "certain": tokens([0.0, 0.0]),
        "nearly": tokens([-1e-9]),
        "impossible": tokens([-np.inf]),
        "lower": tokens([-1.0]),
        "unicase": tokens([-1.0]),
    }
    lower = {
        "certain": tokens([-1.0]),
        "nearly": tokens([-1.0]),
        "impossible": tokens([-1.0]),
        "lower": tokens([-np.inf]),
        "unicase": "lower case does not change this text",
    }
    scores = Lowercase().score(observed({TokenStatistics(): plain, LOWER: lower}))
    certain = "the model is certain of every token: a ratio to its log-probability is noise"
    assert scores.ids == ()
    assert scores.unscored == {
        "certain": certain,
        "nearly": certain,
        "impossible": "a token is impossible under the model",
        "lower": "the formula has no finite value here",
        "unicase": "lower case does not change this text",
    }
