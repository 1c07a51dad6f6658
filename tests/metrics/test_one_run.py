from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from unseen.errors import UsageError
from unseen.metrics.one_run import (
    DRAWS,
    bound,
    check_fair,
    epsilon_lower,
    guess,
    largest,
    look,
    numbers,
    p_value,
    rank_test,
)

EPSILONS = (0.5, 1.0, 2.0, 4.0)
RUNS = 400
# Of 400 runs whose true error is 5 %, 32 or fewer exceed with probability 0.995.
ALLOWED = int(stats.binom.ppf(0.995, RUNS, 0.05))


def slow_p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """Steinke et al. 2023, section 5, word by word: every probability is a sum over outcomes."""
    right = math.exp(epsilon) / (1 + math.exp(epsilon))
    mass = [math.comb(r, w) * right**w * (1 - right) ** (r - w) for w in range(r + 1)]
    tail = sum(p for w, p in enumerate(mass) if w >= v)
    worst = max(
        (sum(p for w, p in enumerate(mass) if v > w >= v - i) / i for i in range(1, m + 1)),
        default=0.0,
    )
    return min(1.0, tail + 2 * m * delta * worst)


@pytest.mark.parametrize("delta", [0.0, 1e-5, 1e-3])
@pytest.mark.parametrize(
    ("m", "r", "v"), [(20, 20, 18), (60, 12, 12), (60, 30, 0), (60, 60, 31), (200, 100, 93)]
)
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0, 5.0])
def test_the_p_value_is_that_of_the_slow_twin(m, r, v, epsilon, delta) -> None:
    assert p_value(m, r, v, epsilon, delta) == pytest.approx(
        slow_p_value(m, r, v, epsilon, delta), rel=1e-9, abs=1e-300
    )


def test_the_p_value_of_pure_privacy_is_the_chance_of_so_many_correct_guesses() -> None:
    drawn = np.random.default_rng(0).binomial(80, 1 / (1 + math.exp(-1.0)), 200_000)
    for v in (55, 60, 66):
        share = float((drawn >= v).mean())
        slack = 4 * math.sqrt(share * (1 - share) / len(drawn)) + 1e-5
        assert p_value(100, 80, v, 1.0, 0.0) == pytest.approx(share, abs=slack)


def test_without_delta_the_bound_is_that_of_clopper_and_pearson() -> None:
    for r, v in ((50, 41), (200, 176), (1000, 1000)):
        low = stats.beta.ppf(0.05, v, r - v + 1)
        assert epsilon_lower(1000, r, v, 0.0, 0.95) == pytest.approx(
            math.log(low / (1 - low)), abs=1e-6
        )


@pytest.mark.parametrize("delta", [0.0, 1e-5, 1 / 2000])
def test_the_p_value_rises_with_epsilon_up_to_the_largest_delta(delta) -> None:
    grid = np.linspace(0, 8, 161)
    for r, v in ((10, 9), (300, 211), (1000, 990), (1000, 1000)):
        values = [p_value(1000, r, v, epsilon, delta) for epsilon in grid]
        assert (np.diff(values) >= -1e-12).all()
        lower = epsilon_lower(1000, r, v, delta, 0.95)
        assert p_value(1000, r, v, lower, delta) <= 0.05 or lower == 0
        assert p_value(1000, r, v, lower + 1e-6, delta) > 0.05


def test_a_bound_is_never_above_what_the_guesses_say_and_delta_weakens_it() -> None:
    said = [epsilon_lower(1000, 400, v, 1e-5, 0.95) for v in range(400)]
    assert all(low <= high for low, high in pairwise(said))
    for v in (250, 350, 399):
        assert said[v] < math.log(v / (400 - v))
        assert epsilon_lower(1000, 400, v, 1e-4, 0.95) < said[v]
    assert said[200] == 0


# --- simulated mechanisms of known epsilon ------------------------------------------------------


def responses(coins, epsilon: float, rng) -> np.ndarray:
    """Randomised response: each coin told truly with probability e^epsilon / (1 + e^epsilon)."""
    true = rng.random(len(coins)) < 1 / (1 + math.exp(-epsilon))
    return np.where(true, coins, ~coins).astype(float)


def noisy(coins, sd: float, rng) -> np.ndarray:
    """Gaussian mechanism: a canary moves its own number by 1."""
    return coins + rng.normal(0, sd, len(coins))


def gaussian_sd(epsilon: float, delta: float) -> float:
    """The noise at which it is exactly (epsilon, delta)-private (Balle & Wang 2018, theorem 8)."""

    def excess(sd: float) -> float:
        a, b = 1 / (2 * sd), epsilon * sd
        return stats.norm.cdf(a - b) - math.exp(epsilon) * stats.norm.cdf(-a - b) - delta

    return brentq(excess, 0.05, 200)


def bounds(mechanism, n: int, delta: float, *, seed: int, guesses: int | None = None) -> np.ndarray:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(RUNS):
        coins = rng.random(n) < 0.5
        looks = look("score", mechanism(coins, rng), coins, numbers(n, guesses), rng)
        found.append(bound(looks, n, delta=delta).lower)
    return np.array(found)


@pytest.mark.parametrize("guesses", [None, 500])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_randomised_response_is_not_overstated(epsilon, guesses) -> None:
    def mechanism(coins, rng):
        return responses(coins, epsilon, rng)

    found = bounds(mechanism, 500, 1e-5, seed=int(10 * epsilon), guesses=guesses)
    assert (found > epsilon).sum() <= ALLOWED
    assert np.median(found) > 0.6 * epsilon - 0.05


def test_the_error_on_randomised_response_is_exactly_as_promised() -> None:
    """All guessed, one look: the chance to exceed is a sum, and nothing is left to simulation."""
    for epsilon in EPSILONS:
        right = 1 / (1 + math.exp(-epsilon))
        mass = stats.binom.pmf(np.arange(301), 300, right)
        over = [epsilon_lower(300, 300, v, 0.0, 0.95) > epsilon for v in range(301)]
        assert 0.02 < mass[over].sum() <= 0.05


def test_randomised_response_of_two_is_seen_with_a_thousand_canaries() -> None:
    found = bounds(lambda coins, rng: responses(coins, 2.0, rng), 1000, 1e-5, seed=1)
    assert found.min() > 1


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_gaussian_mechanism_is_not_overstated(epsilon) -> None:
    sd = gaussian_sd(epsilon, 1e-5)
    found = bounds(lambda coins, rng: noisy(coins, sd, rng), 500, 1e-5, seed=int(100 * epsilon))
    assert (found > epsilon).sum() <= ALLOWED
    if epsilon == 4:  # Thresholds cannot show more of Gaussian noise: its worst outcomes are rare.
        assert np.median(found) > 0.5


def test_a_mechanism_that_uses_all_of_its_delta_is_not_overstated() -> None:
    """A coin in a thousand is told outright, and ranks first: (epsilon, delta), and not less."""
    epsilon, delta = 1.0, 1e-3

    def mechanism(coins, rng):
        told = rng.random(len(coins)) < delta
        return np.where(told, np.where(coins, 5.0, -5.0), responses(coins, epsilon, rng))

    found = bounds(mechanism, 500, delta, seed=5, guesses=10)
    assert (found > epsilon).sum() <= ALLOWED
    found = bounds(mechanism, 500, delta, seed=6)
    assert (found > epsilon).sum() <= ALLOWED


def test_a_model_that_knows_nothing_has_epsilon_zero_most_of_the_time() -> None:
    found = bounds(lambda coins, rng: rng.normal(size=len(coins)), 200, 1e-5, seed=3)
    assert (found > 0).sum() <= ALLOWED


def test_equal_scores_do_not_tell_what_the_order_of_the_records_tells() -> None:
    coins = np.arange(200) < 100  # members first, as in every table
    rng = np.random.default_rng(0)
    found = [
        bound(look("s", np.zeros(200), coins, numbers(200), rng), 200, delta=0.0).lower
        for _ in range(RUNS)
    ]
    assert (np.array(found) > 0).sum() <= ALLOWED


# --- guesses ------------------------------------------------------------------------------------


def test_the_highest_are_guessed_in_and_the_lowest_out() -> None:
    rng = np.random.default_rng(0)
    assert guess([3.0, 1.0, 2.0, 5.0, 4.0], 3, rng).tolist() == [0, -1, 0, 1, 1]
    assert guess([3.0, 1.0], 2, rng).tolist() == [1, -1]
    (seen,) = look("a", [3.0, 1.0, 2.0, 5.0, 4.0], [0, 0, 1, 1, 0], (3,), rng)
    assert (seen.attack, seen.guesses, seen.correct) == ("a", 3, 2)


def test_numbers_of_guesses_depend_on_nothing_but_the_number_of_canaries() -> None:
    assert numbers(1000) == (50, 200, 500, 1000)
    assert numbers(21) == (2, 4, 10, 20)
    assert numbers(1000, 30) == (30,)
    with pytest.raises(UsageError, match="guesses"):
        numbers(20, 21)


def test_every_further_look_is_paid_for() -> None:
    rng = np.random.default_rng(0)
    coins = rng.random(400) < 0.5
    looks = look("a", responses(coins, 2.0, rng), coins, (400,), rng)
    alone = bound(looks, 400, delta=1e-5)
    twice = bound([*looks, *looks], 400, delta=1e-5)
    assert twice.lower < alone.lower
    assert twice.lower == epsilon_lower(400, 400, looks[0].correct, 1e-5, 0.975)
    assert (twice.looks, twice.best, twice.canaries) == (2, looks[0], 400)


def test_more_canaries_can_show_more() -> None:
    shown = [largest(n, 1e-5, 0.95) for n in (20, 100, 1000)]
    assert shown == sorted(shown)
    assert 1 < shown[0] < 2
    assert shown[-1] > 5


# --- ranks --------------------------------------------------------------------------------------


def test_the_rank_test_is_that_of_all_choices() -> None:
    scores, coins = [5.0, 1.0, 4.0, 4.0, 2.0, 0.0, 4.0], [1, 0, 1, 0, 1, 0, 0]
    ranks = stats.rankdata(scores)
    seen = sum(rank for rank, coin in zip(ranks, coins, strict=True) if coin)
    sums = [sum(chosen) for chosen in combinations(ranks, 3)]
    found = rank_test(scores, coins, np.random.default_rng(0))
    assert found.p == pytest.approx(sum(one >= seen for one in sums) / len(sums))
    wins = [(a > b) + (a == b) / 2 for a, i in zip(scores, coins, strict=True) if i
            for b, j in zip(scores, coins, strict=True) if not j]  # fmt: skip
    assert found.auc == pytest.approx(sum(wins) / len(wins))
    assert found.n == (3, 4)
    # ranks among the excluded ones: 5 is first, 4 ties with two of them, 2 is behind both
    assert found.exposure == pytest.approx(math.log2(5) - math.log2(3))


def test_the_rank_test_keeps_its_level_and_finds_what_is_there() -> None:
    rng = np.random.default_rng(1)
    coins = rng.random(60) < 0.5
    small = [
        rank_test(np.round(rng.normal(size=60)), coins, rng).p <= 0.05 for _ in range(RUNS // 10)
    ]
    assert sum(small) <= stats.binom.ppf(0.999, RUNS // 10, 0.05)
    told = rank_test(coins + 0.1 * rng.normal(size=60), coins, rng)
    assert told.p == 1 / (1 + DRAWS)
    assert told.auc == 1
    assert told.exposure == pytest.approx(math.log2(1 + (~coins).sum()))


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [-0.1, 1.0, math.nan, 1 / 1999])
def test_a_delta_that_bounds_nothing(delta) -> None:
    with pytest.raises(UsageError, match="delta"):
        p_value(1000, 10, 5, 1.0, delta)


@pytest.mark.parametrize(("r", "v"), [(11, 5), (5, 6), (5, -1)])
def test_impossible_counts(r, v) -> None:
    with pytest.raises(ValueError, match="v <= r <= m"):
        p_value(10, r, v, 1.0, 0.0)


def test_coins_that_no_fair_coin_shows() -> None:
    check_fair(np.arange(1000) < 480)
    for coins in (np.ones(30, bool), np.zeros(30, bool)):
        with pytest.raises(UsageError, match="nothing to compare"):
            check_fair(coins)
    with pytest.raises(UsageError, match="no independent fair coins"):
        check_fair(np.arange(1000) < 380)
