import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from unseen.attacks.min_k_pp import MinKPlusPlus
from unseen.signals.base import Observations
from unseen.signals.token_stats import TokenStatistics
from unseen.types import TokenStats


def slow(distributions: Sequence[Sequence[float]], chosen: Sequence[int], k: float) -> float:
    """From whole next-token distributions, with plain loops."""
    z = []
    for p, token in zip(distributions, chosen, strict=True):
        mu = sum(q * math.log(q) for q in p)
        variance = sum(q * math.log(q) ** 2 for q in p) - mu**2
        z.append((math.log(p[token]) - mu) / math.sqrt(variance))
    z.sort()
    n = max(1, math.floor(k * len(z)))
    return sum(z[:n]) / n


@pytest.mark.parametrize("k", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("n", [1, 3, 10, 41])
def test_equals_the_formula(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats], k: float, n: int
) -> None:
    rng = np.random.default_rng(n)
    p = rng.dirichlet(np.ones(7), size=n)
    chosen = rng.integers(7, size=n)
    logp = np.log(p)
    mean = (p * logp).sum(axis=1)
    sd = np.sqrt((p * (logp - mean[:, None]) ** 2).sum(axis=1))
    seen = observed({TokenStatistics(): {"a": tokens(logp[np.arange(n), chosen], mean, sd)}})
    (value,) = MinKPlusPlus(k).score(seen).values
    assert value == pytest.approx(slow(p.tolist(), chosen.tolist(), k), rel=1e-9)


def test_no_spread_is_no_division_by_zero(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    seen = observed(
        {
            TokenStatistics(): {
                "certain": tokens([0.0], [0.0], [0.0]),
                "uniform": tokens([-2.0, -2.0], [-2.0, -2.0], [0.0, 0.0]),
                "unlikely": tokens([-5.0], [-2.0], [0.0]),
            }
        }
    )
    scores = MinKPlusPlus().score(seen)
    assert scores.values == pytest.approx([0.0, 0.0, -3.0 / 1e-6])


def test_without_moments_there_is_no_score(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    values = {
        "no mean": tokens([-1.0], None, [1.0]),
        "no sd": tokens([-1.0], [-1.0], None),
        "neither": tokens([-1.0]),
        "inf": tokens([-np.inf, -1.0], [-1.0, -1.0], [1.0, 1.0]),
        "nan": tokens([-1.0] * 10, [-1.0] * 9 + [np.nan], [1.0] * 10),
        "missing": "too long",
        "none": tokens([], [], []),
    }
    scores = MinKPlusPlus().score(observed({TokenStatistics(): values}))
    moments = "the target gives no moments of its distribution"
    assert scores.ids == ()
    assert scores.unscored == {
        "no mean": moments,
        "no sd": moments,
        "neither": moments,
        "inf": "a token has no finite value",
        "nan": "a token has no finite value",
        "missing": "too long",
        "none": "no token to score",
    }


@pytest.mark.parametrize("k", [0, 1.01])
def test_refuses_another_share(k: float) -> None:
    with pytest.raises(ValueError, match=r"got k=.*, expected a share above 0 and at most 1"):
        MinKPlusPlus(k)
