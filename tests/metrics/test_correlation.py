import numpy as np
import pytest

from unseen.metrics.correlation import difference, mean, spearman


def ranks(values: list[float]) -> list[float]:
    """Average ranks, counted by hand."""
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2
        for value in values
    ]


def pearson(one: list[float], other: list[float]) -> float:
    a, b = sum(one) / len(one), sum(other) / len(other)
    top = sum((x - a) * (y - b) for x, y in zip(one, other, strict=True))
    below = sum((x - a) ** 2 for x in one) * sum((y - b) ** 2 for y in other)
    return top / below**0.5


@pytest.mark.parametrize("seed", range(5))
def test_spearman_is_the_correlation_of_ranks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = rng.integers(0, 9, size=(2, 40)).astype(float)
    member = rng.random(40) < 0.4
    found = spearman(one, other, member)
    assert found is not None
    assert found.value == pytest.approx(pearson(ranks(one.tolist()), ranks(other.tolist())))
    assert found.low < found.value < found.high
    assert (found.n_members, found.n_nonmembers) == (member.sum(), (~member).sum())


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8])
def test_the_interval_covers_what_it_says(rho: float) -> None:
    rng = np.random.default_rng(7)
    true = 6 / np.pi * np.arcsin(rho / 2)  # of a normal pair
    draws = 400
    hits = 0
    for _ in range(draws):
        one, noise = rng.normal(size=(2, 80))
        other = rho * one + (1 - rho**2) ** 0.5 * noise
        found = spearman(one, other, np.arange(80) < 40)
        assert found is not None
        hits += found.low <= true <= found.high
    assert hits / draws >= 0.95 - 3 * (0.95 * 0.05 / draws) ** 0.5


def test_nothing_to_rank_by() -> None:
    same, rising = np.ones(20), np.arange(20.0)
    member = np.arange(20) < 10
    assert spearman(same, rising, member) is None
    assert spearman(rising, same, member) is None
    assert spearman(rising[:9], rising[:9], member[:9]) is None
    assert spearman([], [], []) is None
    perfect = spearman(rising, -rising, member)
    assert perfect is not None
    assert perfect.value == pytest.approx(-1)
    assert -1 <= perfect.low <= perfect.high < -0.99
    with pytest.raises(ValueError, match="finite"):
        spearman([*rising[:-1], np.nan], rising, member)


def test_means_and_their_difference() -> None:
    one, other = np.array([1.0, 2.0, 3.0, 6.0]), np.array([5.0, 5.5, 9.0])
    found = mean(one, members=True)
    assert found is not None
    reach = 3.182446 * one.std(ddof=1) / 2  # Student's quantile for 3 degrees of freedom
    assert (found.value, found.low) == pytest.approx((3.0, 3.0 - reach))
    assert (found.n_members, found.n_nonmembers) == (4, 0)
    apart = difference(one, other)
    assert apart is not None
    assert apart.value == pytest.approx(3.0 - 6.5)
    assert apart.low < apart.value < apart.high
    assert mean([1.0], members=False) is None
    assert difference([1.0], other) is None
