"""Paired differences: by hand, and by simulation with known truths.

Both scores of a record share part of their noise (correlation rho); members score N(d, 1) and
non-members N(0, 1), so the true AUC is Phi(d / sqrt 2) and the true TPR is Phi(d - Phi^-1(1 - t)).
Seeds are 0, 1, 2, ...: none was picked.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, t

from unseen.errors import TooFewRecordsError
from unseen.metrics.compare import other_nonmembers, paired_differences, weighted_numbers
from unseen.metrics.roc import auc, tpr_at_fpr

FPRS = (0.05, 0.1)


def pair(rng, n=100, first=1.0, second=1.0, rho=0.7):
    """Scores of 2n records by two models, and who is a member."""
    member = np.arange(2 * n) < n
    shared = rng.normal(size=2 * n)
    sides = [
        distance * member + np.sqrt(rho) * shared + np.sqrt(1 - rho) * rng.normal(size=2 * n)
        for distance in (first, second)
    ]
    return (*sides, member)


def truth(distance, fpr=None):
    if fpr is None:
        return norm.cdf(distance / np.sqrt(2))
    return norm.sf(norm.isf(fpr) - distance)


# --- by hand ------------------------------------------------------------------------------------


def slow_numbers(members, nonmembers, weights, against, rates):
    """Every record repeated as often as it was drawn, and the plain statistics of that."""
    rows = []
    for some, others in zip(weights, against, strict=True):
        here, there = np.repeat(members, some), np.repeat(nonmembers, others)
        rows.append([auc(here, there), *(tpr_at_fpr(here, there, rate).tpr for rate in rates)])
    return np.array(rows)


def test_a_wider_error_multiplies_what_the_draws_say_and_nothing_else():
    first, second, member = pair(np.random.default_rng(3))
    plain, wider = (
        paired_differences(first, second, member, rng=np.random.default_rng(0), wider=factor)[0]
        for factor in (1.0, 2.0)
    )
    unseen = 0.5 / 100
    assert wider.difference.value == plain.difference.value
    assert wider.error**2 - unseen**2 == pytest.approx(4 * (plain.error**2 - unseen**2))
    assert wider.p > plain.p


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 12), st.booleans())
def test_weighted_numbers_are_those_of_repeated_records(seed, m, n, ties):
    rng = np.random.default_rng(seed)
    members, nonmembers = rng.normal(size=m), rng.normal(size=n)
    if ties:
        members, nonmembers = np.round(members), np.round(nonmembers)
    weights, against = rng.integers(0, 4, (5, m)), rng.integers(0, 4, (5, n))
    weights[:, 0] += 1
    against[:, 0] += 1
    rates = (0.01, 0.1, 0.29, 0.5, 0.9)
    fast = weighted_numbers(members, nonmembers, weights, against, rates)
    slow = slow_numbers(members, nonmembers, weights, against, rates)
    np.testing.assert_allclose(fast, slow, atol=1e-12)


def slow_differences(first, second, member, rates, rng, draws, clusters):
    """Whole clusters taken with replacement, one draw and one record at a time."""
    rows = []
    for _ in range(draws):
        taken = []
        for side in (member, ~member):
            places = np.flatnonzero(side)
            names = sorted(set(clusters[places]))
            drawn = rng.choice(names, len(names))
            taken.append([place for name in drawn for place in places if clusters[place] == name])
        members, nonmembers = taken
        numbers = [
            [auc(one[members], one[nonmembers])]
            + [tpr_at_fpr(one[members], one[nonmembers], rate).tpr for rate in rates]
            for one in (first, second)
        ]
        rows.append(np.array(numbers[1]) - numbers[0])
    return np.array(rows)


@pytest.mark.parametrize("size", [1, 4])
def test_the_error_is_that_of_a_slow_bootstrap(size):
    """Independent random numbers: standard deviations of 800 draws each agree within 15 %."""
    rng = np.random.default_rng(1)
    first, second, member = pair(rng, 60, 1.5, 0.5)
    clusters = np.arange(120) // size
    draws = 800
    found = paired_differences(
        first, second, member, rng=rng, fprs=FPRS, draws=draws, clusters=clusters.tolist()
    )
    assert found[0].first == auc(first[member], first[~member])
    assert found[1].second == tpr_at_fpr(second[member], second[~member], 0.05).tpr
    slow = slow_differences(first, second, member, FPRS, rng, draws, clusters)
    units = 60 / size
    for one, drawn in zip(found, slow.T, strict=True):
        unseen = (0.5 if one.fpr is None else 2.0) / units
        spread = np.sqrt(drawn.var(ddof=1) * units / (units - 1) + unseen**2)
        assert one.error == pytest.approx(spread, rel=0.15)
        width = t.ppf(0.975, units - 1) * one.error
        assert one.difference.value == pytest.approx(one.second - one.first)
        assert one.difference.low == pytest.approx(one.difference.value - width)
        assert one.difference.high == pytest.approx(one.difference.value + width)
        assert one.smallest == pytest.approx(width + t.ppf(0.8, units - 1) * one.error)
        z = abs(one.difference.value) / one.error
        assert one.p == pytest.approx(2 * t.sf(z, units - 1))


def test_the_p_value_is_the_interval_turned_round():
    for seed in range(20):
        sample = pair(np.random.default_rng(seed), 60, 1.0, 0.7)

        def compare(confidence, seed=seed, sample=sample):
            rng = np.random.default_rng(seed)
            return paired_differences(*sample, rng=rng, fprs=FPRS, draws=200, confidence=confidence)

        for at, one in enumerate(compare(0.95)):
            assert (one.difference.low <= 0 <= one.difference.high) == (one.p >= 0.05)
            if 1e-9 < one.p < 1:
                edge = compare(1 - one.p)[at].difference
                assert min(abs(edge.low), abs(edge.high)) == pytest.approx(0, abs=1e-9)


def test_scores_compared_with_themselves():
    scores, _, member = pair(np.random.default_rng(0))
    for one in paired_differences(
        scores, scores, member, rng=np.random.default_rng(0), fprs=FPRS, draws=200
    ):
        assert one.difference.value == 0
        assert one.difference.low < 0 < one.difference.high, "what nobody saw is not known to be 0"
        assert one.p == 1


def test_exchanging_the_two_changes_the_sign_alone():
    first, second, member = pair(np.random.default_rng(0))
    there, back = (
        paired_differences(*both, member, rng=np.random.default_rng(3), fprs=FPRS, draws=200)
        for both in ((first, second), (second, first))
    )
    for one, other in zip(there, back, strict=True):
        assert one.difference.value == -other.difference.value
        assert one.difference.low == pytest.approx(-other.difference.high)
        assert one.p == pytest.approx(other.p)


def test_a_monotone_map_of_one_of_them_changes_nothing():
    first, second, member = pair(np.random.default_rng(0))
    plain, bent = (
        paired_differences(first, one, member, rng=np.random.default_rng(3), fprs=FPRS, draws=200)
        for one in (second, np.exp(second) * 7)
    )
    assert plain == bent


def test_rates_that_cannot_be_resolved_are_left_out():
    first, second, member = pair(np.random.default_rng(0), 50)
    found = paired_differences(
        first, second, member, rng=np.random.default_rng(0), fprs=(0.2, 0.001, 0.1), draws=200
    )
    assert [(one.metric, one.resolution) for one in found] == [
        ("auc", "reliable"), ("tpr@fpr=0.1", "indicative"), ("tpr@fpr=0.2", "reliable"),
    ]  # fmt: skip


def test_clusters_make_the_interval_wider():
    rng = np.random.default_rng(0)
    member = np.arange(200) < 100
    group = np.arange(200) // 5
    first, second = (
        member * 1.0 + np.repeat(rng.normal(size=40), 5) + 0.1 * rng.normal(size=200)
        for _ in range(2)
    )
    alone, together = (
        paired_differences(first, second, member, rng=np.random.default_rng(0), clusters=clusters)
        for clusters in (None, group.tolist())
    )
    assert together[0].error > 1.7 * alone[0].error


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"second": np.zeros(3)}, ValueError),
        ({"first": np.full(200, np.nan)}, ValueError),
        ({"confidence": 1.0}, ValueError),
        ({"draws": 1}, ValueError),
        ({"fprs": (1.5,)}, ValueError),
        ({"member": np.arange(200) < 5}, TooFewRecordsError),
        ({"clusters": ["one"] * 200}, TooFewRecordsError),
    ],
)
def test_what_cannot_be_compared_is_refused(change, error):
    first, second, member = pair(np.random.default_rng(0))
    given = {"first": first, "second": second, "member": member} | change
    with pytest.raises(error):
        paired_differences(rng=np.random.default_rng(0), **given)


# --- by simulation ------------------------------------------------------------------------------


def coverage(first, second, *, n, runs, rho=0.7, fprs=FPRS):
    """Share of intervals that hold the true difference, and share of p-values below 5 %."""
    hits: dict[str, list[bool]] = {}
    alarms: dict[str, list[bool]] = {}
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        for one in paired_differences(
            *pair(rng, n, first, second, rho), rng=rng, fprs=fprs, draws=200
        ):
            true = truth(second, one.fpr) - truth(first, one.fpr)
            hits.setdefault(one.metric, []).append(
                one.difference.low <= true <= one.difference.high
            )
            alarms.setdefault(one.metric, []).append(one.p < 0.05)
    return [{name: float(np.mean(values)) for name, values in by.items()} for by in (hits, alarms)]


def test_no_difference_is_found_where_there_is_none():
    """200 seeds: 95 % that may fall short by three standard errors, 4.6 points."""
    held, alarms = coverage(1.0, 1.0, n=100, runs=200)
    assert min(held.values()) >= 0.95 - 0.046, held
    assert max(alarms.values()) <= 0.05 + 0.046, alarms


def test_an_effect_is_covered_and_found():
    held, alarms = coverage(1.5, 0.5, n=100, runs=200)
    assert min(held.values()) >= 0.95 - 0.046, held
    assert alarms["auc"] > 0.99


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second", "rho", "n"),
    [(0, 0, 0.5, 300), (0, 0, 0.95, 60), (1, 0.5, 0.9, 300), (2, 2, 0.5, 200), (2.5, 1, 0.7, 200),
     (0.5, 0, 0.0, 300)],
)  # fmt: skip
def test_coverage_of_many_settings(first, second, rho, n):
    held, _ = coverage(first, second, rho=rho, n=n, runs=300)
    assert min(held.values()) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 300), held


@pytest.mark.slow
def test_the_smallest_difference_is_found_as_often_as_it_says():
    """80 % power, at the difference that the mean over 200 samples calls detectable."""
    said = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        scores = pair(rng, 200, 1.0, 1.0, 0.8)
        said.append(paired_differences(*scores, rng=rng, draws=200)[0].smallest)
    goal = truth(1.0) + np.mean(said)
    second = norm.ppf(goal) * np.sqrt(2)
    found = []
    for seed in range(250):
        rng = np.random.default_rng(seed)
        found.append(
            paired_differences(*pair(rng, 200, 1.0, second, 0.8), rng=rng, draws=200)[0].p < 0.05
        )
    assert 0.7 <= np.mean(found) <= 0.93, np.mean(found)


@pytest.mark.slow
def test_clusters_are_needed_and_are_enough():
    """30 clusters of 5 a side, most of the change of a record shared within its cluster."""
    n, size, hits = 150, 5, {"whole": [], "alone": []}
    member = np.arange(2 * n) < n
    clusters = (np.arange(2 * n) // size).tolist()
    for seed in range(250):
        rng = np.random.default_rng(seed)
        first, second = (
            member * 1.0
            + np.sqrt(0.6) * np.repeat(rng.normal(size=2 * n // size), size)
            + np.sqrt(0.4) * rng.normal(size=2 * n)
            for _ in range(2)
        )
        for name, together in (("whole", clusters), ("alone", None)):
            found = paired_differences(
                first, second, member, rng=rng, fprs=(0.1,), draws=200, clusters=together
            )
            hits[name].append([one.difference.low <= 0 <= one.difference.high for one in found])
    held = {name: np.mean(values, axis=0) for name, values in hits.items()}
    assert held["whole"].min() >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 250), held
    assert held["alone"][0] < 0.85, held


# --- other non-members --------------------------------------------------------------------------


def auc_by_pairs(members, others) -> float:
    return float(np.mean([(m > n) + (m == n) / 2 for m in members for n in others]))


def slow_change(members, others, clusters, *, draws: int, seed: int) -> tuple[float, float]:
    """The change of the AUC, and the standard deviation of it over draws, record by record."""
    rng = np.random.default_rng(seed)

    def drawn(values, labels):
        names = list(dict.fromkeys(labels))
        picked = rng.integers(0, len(names), len(names))
        return [at for i in picked for at in range(len(values)) if labels[at] == names[i]]

    made = []
    for _ in range(draws):
        of_members = drawn(members[0], clusters[0])
        both = []
        for which in (0, 1):
            of_others = drawn(others[which], clusters[1 + which])
            both.append(
                auc_by_pairs(
                    [members[which][at] for at in of_members],
                    [others[which][at] for at in of_others],
                )
            )
        made.append(both[1] - both[0])
    change = auc_by_pairs(members[1], others[1]) - auc_by_pairs(members[0], others[0])
    return change, float(np.std(made, ddof=1))


@pytest.mark.parametrize("in_clusters", [False, True])
def test_other_non_members_change_the_auc_as_drawing_record_by_record_says(in_clusters) -> None:
    rng = np.random.default_rng(3)
    members = [rng.normal(1, 1, 28), rng.normal(1, 1, 28)]
    others = [rng.normal(0, 1, 24), rng.normal(-1, 1, 20)]
    step = 2 if in_clusters else 1
    clusters = [[i // step for i in range(len(one))] for one in (members[0], *others)]
    found = other_nonmembers(
        tuple(members), tuple(others), rng=np.random.default_rng(0), draws=4000,
        clusters=tuple(clusters) if in_clusters else (None, None, None),
    )  # fmt: skip
    change, spread = slow_change(members, others, clusters, draws=500, seed=1)
    assert found.value == pytest.approx(change)
    fewest = len(set(clusters[2]))
    error = np.hypot(spread * np.sqrt(fewest / (fewest - 1)), 0.5 / fewest)
    half = t.ppf(0.975, fewest - 1) * error
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.1)
    assert (found.n_members, found.n_nonmembers) == (28, 44)


def test_the_same_set_twice_changes_nothing_and_is_not_certain() -> None:
    rng = np.random.default_rng(0)
    members, others = rng.normal(1, 1, 30), rng.normal(0, 1, 30)
    found = other_nonmembers((members, members), (others, others), rng=rng, draws=500)
    assert found.value == 0
    assert found.low < 0 < found.high


def test_other_non_members_are_refused_where_there_are_too_few_or_lengths_differ() -> None:
    rng = np.random.default_rng(0)
    many = rng.normal(size=30)
    with pytest.raises(TooFewRecordsError):
        other_nonmembers((many, many), (many, many[:3]), rng=rng)
    with pytest.raises(ValueError, match="second scores of members"):
        other_nonmembers((many, many[:20]), (many, many), rng=rng)
    with pytest.raises(TooFewRecordsError, match="clusters"):
        other_nonmembers((many, many), (many, many), rng=rng, clusters=(None, None, [0] * 30))


def test_the_interval_of_a_change_covers_it() -> None:
    """Members N(1, 1), one set N(0, 1), the other N(-1/2, 1): in 95 % of the samples, at least 92 %."""
    truth = norm.cdf(1.5 / 2**0.5) - norm.cdf(1 / 2**0.5)
    rng = np.random.default_rng(11)
    covered = 0
    for _ in range(300):
        members = rng.normal(1, 1, 40)
        found = other_nonmembers(
            (members, members), (rng.normal(0, 1, 40), rng.normal(-0.5, 1, 40)), rng=rng, draws=200
        )
        covered += found.low <= truth <= found.high
    assert covered / 300 > 0.92
