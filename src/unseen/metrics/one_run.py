"""A lower bound on epsilon from one training run, and whether included canaries rank higher at all.

Both need canaries whose inclusion was decided by independent fair coins, and scores that know of the
coins through the model alone.

Steinke, Nasr & Jagielski 2023 ("Privacy Auditing with One (1) Training Run", arXiv:2305.08846,
section 5 and appendix D): of m canaries, r are guessed in or out and the rest are left open. If the
training is (epsilon, delta)-differentially private for adding or removing one canary, the number of
correct guesses V satisfies, for every v,

    P[V >= v] <= P[W >= v] + 2 m delta max_{i=1..v} P[v - i <= W < v] / i,
    W ~ Binomial(r, e^epsilon / (1 + e^epsilon)).

r has to be fixed before the scores are seen. Looking at several r (or at several attacks) is paid for:
each look has its share of the error (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.optimize import brentq

from unseen.errors import UsageError
from unseen.metrics._checks import alike, finite, labels, rate
from unseen.types import IntArray

SHARES: Final = (0.05, 0.2, 0.5, 1.0)
"""Shares of the canaries that are guessed where no number is given: few guesses show a strong leak of
few canaries, many guesses a weak leak of all."""

DRAWS: Final = 9_999
"""Permutations of the rank test: the smallest p that it gives is 1 / 10,000."""

_UNFAIR = 1e-9
_EXACT = 1e-9


@dataclass(frozen=True)
class Look:
    """One way to guess, fixed before the coins are seen, and how it went.

    Attributes:
        attack: whose scores were ranked.
        guesses: canaries guessed in or out.
        correct: guesses that the coins confirm.
    """

    attack: str
    guesses: int
    correct: int


@dataclass(frozen=True)
class OneRunBound:
    """The largest epsilon that the guesses rule out, over all looks.

    Attributes:
        lower: with `confidence`, epsilon is at least this; 0 says nothing.
        delta: the delta of the guarantee that is ruled out.
        confidence: of the bound, all looks together.
        canaries: coins that were thrown (m).
        best: the look that gave the bound.
        looks: how many looks share the error.
    """

    lower: float
    delta: float
    confidence: float
    canaries: int
    best: Look
    looks: int


@dataclass(frozen=True)
class RankTest:
    """Do included canaries rank above the others?

    Attributes:
        p: one-sided; at most 1/20 with probability at most 1/20 where the model knows nothing.
        auc: chance that an included canary scores higher than an excluded one (ties count half).
        exposure: median over included canaries, in bits: log2(n + 1) - log2(rank among the n
            excluded ones), 1 bit at chance.
        n: included and excluded canaries.
    """

    p: float
    auc: float
    exposure: float
    n: tuple[int, int]


def p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Largest chance of so many correct guesses under (epsilon, delta)-differential privacy.

    Steinke et al. 2023, section 5 (appendix D computes it in the same way).

    Args:
        canaries: m, coins that were thrown.
        guesses: r, of 0 to m canaries.
        correct: v, of 0 to r guesses.
        epsilon: 0 or more.
        delta: 0 or more; 2 m delta at most 1.

    Raises:
        ValueError: where counts or epsilon are out of range.
        UsageError: where delta is.
    """
    if not 0 <= correct <= guesses <= canaries or not canaries:
        msg = f"got {correct} of {guesses} guesses on {canaries} canaries, expected v <= r <= m"
        raise ValueError(msg)
    if not (epsilon >= 0 and math.isfinite(epsilon)):
        msg = f"epsilon must be finite and at least 0, got {epsilon}"
        raise ValueError(msg)
    check_delta(delta, canaries)
    if correct == 0:
        return 1.0
    right = special.expit(epsilon)
    tail = float(special.betainc(correct, guesses - correct + 1, right))
    if delta == 0:
        return tail
    v, below = correct, np.arange(correct)
    # Both logarithms are taken from epsilon itself: 1 - right would be rounded to 0.
    log_pmf = (
        special.gammaln(guesses + 1)
        - special.gammaln(below + 1)
        - special.gammaln(guesses - below + 1)
        - below * np.log1p(math.exp(-epsilon))
        - (guesses - below) * np.logaddexp(0.0, epsilon)
    )
    just_below = np.cumsum(np.exp(log_pmf)[::-1])  # P[v - i <= W < v], i = 1 ... v
    worst = float(np.max(just_below / np.arange(1, v + 1)))
    return min(1.0, tail + 2 * canaries * delta * worst)


@lru_cache(maxsize=100_000)
def epsilon_lower(
    canaries: int, guesses: int, correct: int, delta: float, confidence: float
) -> float:
    """The largest epsilon that so many correct guesses rule out; 0 where they rule out none.

    The p-value rises with epsilon as long as 2 m delta <= 1 (its derivative by the accuracy of a
    guess is r times b(v-1) (1 - c) + c b(v-i-1), b the binomial density of r - 1 guesses and c = 2 m
    delta / i), so what is ruled out is an interval; its end is found by Brent's method and rounded down.

    Args:
        canaries: m, coins that were thrown.
        guesses: r.
        correct: v.
        delta: of the guarantee.
        confidence: of this bound alone, before it is shared with other looks.

    Raises:
        ValueError: where a count or the confidence is out of range.
        UsageError: where delta is.
    """
    error = 1 - rate(confidence, "confidence")

    def ruled_out(epsilon: float) -> bool:
        return p_value(canaries, guesses, correct, epsilon, delta) <= error

    if not ruled_out(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while ruled_out(high):
        low, high = high, 2 * high
    root = brentq(
        lambda epsilon: p_value(canaries, guesses, correct, epsilon, delta) - error,
        low,
        high,
        xtol=_EXACT,
    )
    return max(low, float(root) - 2 * _EXACT)


def largest(canaries: int, delta: float, confidence: float) -> float:
    """The epsilon that so many canaries rule out where every default guess is right."""
    looks = [Look("", r, r) for r in numbers(canaries)]
    return bound(looks, canaries, delta=delta, confidence=confidence).lower


def numbers(scored: int, guesses: int | None = None) -> tuple[int, ...]:
    """Numbers of guesses that are tried, fixed before any score is looked at.

    Args:
        scored: canaries that have a score.
        guesses: the one number that the user has fixed; None for `SHARES` of them.

    Raises:
        UsageError: where more canaries are to be guessed than have a score.
    """
    if guesses is None:
        return tuple(sorted({max(2, 2 * int(share * scored / 2)) for share in SHARES}))
    if not 2 <= guesses <= scored:
        raise UsageError(
            f"got {guesses} guesses for {scored} scored canaries, expected 2 to {scored}",
            fix="leave the number of guesses out: some are tried, and paid for",
        )
    return (guesses,)


def guess(scores: ArrayLike, guesses: int, rng: np.random.Generator) -> IntArray:
    """Guesses the highest scores in and the lowest out; the rest is left open.

    Ties are broken by chance: the order of the canaries may follow their coins.

    Args:
        scores: (n,) higher = more likely included.
        guesses: half of them (rounded up) in, the others out.
        rng: breaks ties.

    Returns:
        (n,) 1 for in, -1 for out, 0 for no guess.
    """
    values = finite(scores, "scores")
    if not 1 <= guesses <= values.size:
        msg = f"got {guesses} guesses for {values.size} scores, expected at least 1 and at most all"
        raise ValueError(msg)
    order = np.lexsort((rng.permutation(values.size), values))
    said = np.zeros(values.size, dtype=np.int64)
    said[order[: guesses // 2]] = -1
    said[order[values.size - (guesses + 1) // 2 :]] = 1
    return said


def look(
    attack: str,
    scores: ArrayLike,
    included: ArrayLike,
    guesses: Sequence[int],
    rng: np.random.Generator,
) -> list[Look]:
    """Guesses of one attack, checked against the coins; one look a number of guesses.

    Args:
        attack: its name.
        scores: (n,) higher = more likely included.
        included: (n,) the coins.
        guesses: the numbers to try, fixed before.
        rng: breaks ties.
    """
    coins = np.where(labels(included), 1, -1)
    values = finite(scores, "scores")
    alike(values.size, coins.size, "coins")
    return [Look(attack, r, int(np.count_nonzero(guess(values, r, rng) == coins))) for r in guesses]


def bound(
    looks: Sequence[Look], canaries: int, *, delta: float, confidence: float = 0.95
) -> OneRunBound:
    """The best bound of several looks, each at its share of the error (Bonferroni).

    Args:
        looks: every way to guess that was tried, of all attacks.
        canaries: m, coins that were thrown, those that were not guessed too.
        delta: of the guarantee that is ruled out.
        confidence: of the result.
    """
    each = 1 - (1 - rate(confidence, "confidence")) / len(looks)
    lowers = [epsilon_lower(canaries, one.guesses, one.correct, delta, each) for one in looks]
    best = int(np.argmax(lowers))
    return OneRunBound(lowers[best], delta, confidence, canaries, looks[best], len(looks))


def rank_test(scores: ArrayLike, included: ArrayLike, rng: np.random.Generator) -> RankTest:
    """Rank-sum test by permutation: exact, with ties, because coins decided who is included.

    Given how many are included, fair coins make every choice of them equally likely; the p-value is
    (1 + draws with at least this rank sum) / (1 + draws), or exact where there are few choices.
    Exposure: Carlini et al. 2019 ("The Secret Sharer", definition 3), with the excluded canaries in
    place of all that could have been drawn.

    Args:
        scores: (n,) higher = more likely included.
        included: (n,) the coins.
        rng: draws the permutations.
    """
    from scipy.stats import permutation_test, rankdata

    member, values = labels(included), finite(scores, "scores")
    alike(values.size, member.size, "coins")
    ranks = rankdata(values)  # ties share their mean rank
    n_in, n_out = int(member.sum()), int((~member).sum())
    tested = permutation_test(
        (ranks[member], ranks[~member]),
        lambda first, _, axis: first.sum(axis=axis),
        vectorized=True,
        n_resamples=DRAWS,
        batch=max(1, 2_000_000 // values.size),
        alternative="greater",
        rng=rng,
    )
    auc = (float(ranks[member].sum()) - n_in * (n_in + 1) / 2) / (n_in * n_out)
    outside = np.sort(values[~member])
    rank = 1 + n_out - np.searchsorted(outside, values[member], side="left")  # ties count against
    exposure = float(np.median(np.log2(n_out + 1) - np.log2(rank)))
    return RankTest(float(tested.pvalue), auc, exposure, (n_in, n_out))


def check_delta(delta: float, canaries: int) -> None:
    """Refuses a delta for which so many canaries bound nothing.

    Raises:
        UsageError: where delta is negative or above 1 / (2 m).
    """
    if not (math.isfinite(delta) and 0 <= 2 * canaries * delta <= 1):
        raise UsageError(
            f"got delta={delta:g} for {canaries} canaries, expected 0 to 1/{2 * canaries}",
            fix=f"take a delta of at most {0.5 / canaries:.1g}, or fewer canaries",
        )


def check_fair(included: ArrayLike) -> None:
    """Refuses coins that no fair coin shows: chance below one in a billion.

    Args:
        included: (n,) the coins.

    Raises:
        UsageError: where they are all alike, or far from even.
    """
    coins = np.asarray(included, dtype=bool)
    n, k = coins.size, int(coins.sum())
    if k in (0, n):
        raise UsageError(
            f"all {n} canaries are {'included' if k else 'excluded'}: there is nothing to compare",
            fix="unseen canary make, with more canaries",
        )
    fewer = min(k, n - k)
    tail = 2 * float(special.betainc(n - fewer, fewer + 1, 0.5))
    if tail < _UNFAIR:
        raise UsageError(
            f"{k} of {n} canaries are included: no independent fair coins decided that",
            fix="epsilon is a bound only for fair coins: unseen canary make throws them",
        )
