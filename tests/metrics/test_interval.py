"""interval: formulas, invariants and borders. Coverage is in test_coverage.py."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from unseen.errors import TooFewRecordsError
from unseen.metrics import interval
from unseen.metrics.interval import (
    auc_interval,
    auc_logit,
    clopper_pearson,
    effective_size,
    rate_interval,
    tpr_interval,
)
from unseen.metrics.roc import auc, reach, tpr_at_fpr
from unseen.types import Estimate, FloatArray, IntArray

SIDE = st.lists(st.integers(-5, 5), min_size=10, max_size=40) | st.lists(
    st.floats(-50, 50), min_size=10, max_size=40
)


def generator(seed=0):
    return np.random.default_rng(seed)


def normal(n, shift=0.0, seed=0):
    return generator(seed).normal(shift, 1, n)


# --- rates ------------------------------------------------------------------------------------


def test_clopper_pearson_by_hand():
    assert clopper_pearson(0, 10) == (0.0, pytest.approx(1 - 0.025 ** (1 / 10)))
    assert clopper_pearson(10, 10) == (pytest.approx(0.025 ** (1 / 10)), 1.0)
    assert clopper_pearson(5, 10) == pytest.approx((0.1871, 0.8129), abs=1e-4)


@given(st.integers(1, 200), st.data(), st.sampled_from([0.8, 0.95, 0.99]))
def test_clopper_pearson_is_scipys(n, data, confidence):
    k = data.draw(st.integers(0, n))
    exact = binomtest(k, n).proportion_ci(confidence, method="exact")
    assert clopper_pearson(k, n, confidence) == pytest.approx((exact.low, exact.high), abs=1e-9)


@pytest.mark.parametrize(("k", "n"), [(-1, 5), (6, 5), (0, 0)])
def test_impossible_counts_are_named(k, n):
    with pytest.raises(ValueError, match=rf"got {k} of {n}"):
        clopper_pearson(k, n)
    with pytest.raises(ValueError, match="confidence must lie between 0 and 1, got 95"):
        clopper_pearson(1, 2, 95)


def slow_effective_size(flagged, clusters, few):
    """Variance between clusters against the binomial one, written out."""
    n, share = len(flagged), sum(flagged) / len(flagged)
    names = sorted(set(clusters))
    between = 0.0
    for name in names:
        of = [flag for flag, cluster in zip(flagged, clusters, strict=True) if cluster == name]
        between += (sum(of) - share * len(of)) ** 2
    between *= len(names) / (len(names) - 1) / n**2
    return n / (between / (share * (1 - share) / n)) * few


def test_effective_size_is_the_design_effect():
    clusters = [f"c{i // 4}" for i in range(80)]
    flagged = generator(3).random(80) < 0.3
    flagged[:12] = True
    few = (1.9904502 / 2.0930241) ** 2  # Student 0.975 at 79 and at 19 degrees of freedom
    assert effective_size(flagged, clusters) == pytest.approx(
        slow_effective_size(flagged.tolist(), clusters, few), rel=1e-6
    )


def test_effective_size_at_its_borders():
    flagged = np.array([True, False] * 20)
    assert effective_size(flagged) == 40
    assert effective_size(flagged, [f"own {i}" for i in range(40)]) == 40
    assert effective_size(flagged, [None] * 40) == 40
    pairs = [i // 2 for i in range(40)]  # one of each pair flagged: no variance between clusters
    assert 20 < effective_size(flagged, pairs) <= 40
    assert effective_size(np.ones(40, bool), pairs) == 20  # nothing to learn from: the least
    assert effective_size(np.repeat([True, False], 20), [0] * 40) == 1


def test_copies_of_a_record_teach_nothing():
    once = generator(1).random(40) < 0.4
    copied, clusters = np.repeat(once, 5), np.repeat(np.arange(40), 5)
    low, high = rate_interval(copied, clusters=clusters)
    alone = rate_interval(once)
    assert low <= alone[0] < alone[1] <= high
    assert high - low == pytest.approx(alone[1] - alone[0], rel=0.05)
    assert high - low > 1.8 * np.diff(rate_interval(copied))[0]


def test_a_rate_of_nothing_is_refused():
    with pytest.raises(ValueError, match="flagged is empty"):
        rate_interval(np.array([], bool))


# --- AUC --------------------------------------------------------------------------------------


def slow_bootstrap(members, nonmembers, draws, rng):
    """Builds each resampled side, record by record."""
    drawn = [interval._draw(len(side), draws, rng) for side in (members, nonmembers)]
    return [
        auc(np.repeat(np.sort(members), a), np.repeat(np.sort(nonmembers), b))
        for a, b in zip(*drawn, strict=True)
    ]


@pytest.mark.parametrize("decimals", [0, 8])
def test_bootstrap_is_its_slow_twin(decimals):
    members, nonmembers = normal(40, 0.7).round(decimals), normal(30, seed=1).round(decimals)
    found = auc_logit(members, nonmembers, rng=generator(5), draws=60)
    slow = slow_bootstrap(members, nonmembers, 60, generator(5))
    assert found.variance == pytest.approx(np.var(slow, ddof=1), rel=1e-9)


def test_bootstrap_in_parts_is_the_bootstrap(monkeypatch):
    """Many small chunks draw other numbers, but from the same distribution."""
    members, nonmembers = normal(50, 0.7), normal(50, seed=1)
    whole = auc_logit(members, nonmembers, rng=generator(), draws=4000)
    monkeypatch.setattr(interval, "_CELLS", 1000)
    parts = auc_logit(members, nonmembers, rng=generator(), draws=4000)
    assert parts.variance == pytest.approx(whole.variance, rel=0.1)


def delong(members, nonmembers):
    """Variance of the AUC from its placements (DeLong 1988), as two double loops."""
    over = [np.mean([(x > y) + (x == y) / 2 for y in nonmembers]) for x in members]
    under = [np.mean([(x > y) + (x == y) / 2 for x in members]) for y in nonmembers]
    return np.var(over, ddof=1) / len(over) + np.var(under, ddof=1) / len(under)


@pytest.mark.parametrize(("m", "n"), [(15, 15), (20, 90), (60, 60)])
def test_bootstrap_variance_is_delongs(m, n):
    members, nonmembers = normal(m, 0.8), normal(n, seed=1)
    found = auc_logit(members, nonmembers, rng=generator(), draws=4000)
    assert found.variance == pytest.approx(delong(members, nonmembers), rel=0.1)


def test_auc_interval_is_normal_on_the_logit_scale():
    members, nonmembers = normal(200, 0.8), normal(200, seed=1)
    found = auc_interval(members, nonmembers, rng=generator(), draws=4000)
    value = auc(members, nonmembers)
    error = np.sqrt(delong(members, nonmembers)) / (value * (1 - value))
    student = 1.971957  # Student 0.975 at 199 degrees of freedom
    logit = np.log(value / (1 - value)) + student * error * np.array([-1, 1])
    assert (found.low, found.high) == pytest.approx(1 / (1 + np.exp(-logit)), abs=0.002)


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize(("m", "n"), [(10, 10), (150, 150), (1000, 30)])
def test_full_separation_has_the_sharp_bound(m, n, confidence):
    members, nonmembers = normal(m, 100), normal(n, seed=1)
    bound = ((1 - confidence) / 2) ** (1 / min(m, n))
    above = auc_interval(members, nonmembers, rng=generator(), confidence=confidence, draws=50)
    assert (above.value, above.low, above.high) == (1.0, pytest.approx(bound), 1.0)
    below = auc_interval(nonmembers, members, rng=generator(), confidence=confidence, draws=50)
    assert (below.value, below.low, below.high) == (0.0, 0.0, pytest.approx(1 - bound))


def test_the_sharp_bound_is_sharp():
    """A share q of non-members above all members: AUC 1 - q, and (1 - q)^n of samples separate."""
    q, n, trials = 0.05, 20, 4000
    separate = (generator().random((trials, n)) >= q).all(axis=1).mean()
    assert separate == pytest.approx((1 - q) ** n, abs=0.03)


def test_one_swapped_pair_is_no_better_than_none():
    apart, nonmembers = normal(60, 100), np.append(normal(59, seed=1), 200.0)
    apart[0] = 300.0
    touching = np.where(apart == apart.min(), apart, apart + 300)
    found = auc_interval(touching, nonmembers, rng=generator())
    assert found.value == 1 - 1 / 3600
    assert found.low <= 0.025 ** (1 / 60) + 1e-9


@settings(max_examples=40)
@given(SIDE, SIDE)
def test_auc_interval_has_width_and_holds_its_value(members, nonmembers):
    found = auc_interval(members, nonmembers, rng=generator(), draws=30)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.high - found.low > 0.01
    assert (found.n_members, found.n_nonmembers) == (len(members), len(nonmembers))


def test_order_and_names_of_clusters_change_nothing():
    members, nonmembers = normal(60, 0.5).round(1), normal(50, seed=1).round(1)
    clusters = [[f"c{i // 3}" for i in range(n)] for n in (60, 50)]
    mixed = [generator(9).permutation(n) for n in (60, 50)]
    renamed = [[f"other {clusters[s][i]}" for i in mixed[s]] for s in (0, 1)]
    first = auc_interval(
        members, nonmembers, rng=generator(),
        member_clusters=clusters[0], nonmember_clusters=clusters[1],
    )  # fmt: skip
    second = auc_interval(
        members[mixed[0]], nonmembers[mixed[1]], rng=generator(),
        member_clusters=renamed[0], nonmember_clusters=renamed[1],
    )  # fmt: skip
    assert first == second


def test_monotone_maps_change_no_interval():
    members, nonmembers = normal(40, 0.5), normal(40, seed=1)
    mapped = np.exp(members), np.exp(nonmembers)
    assert auc_interval(members, nonmembers, rng=generator()) == auc_interval(
        *mapped, rng=generator()
    )
    assert tpr_interval(members, nonmembers, 0.1) == tpr_interval(*mapped, 0.1)


def test_copies_in_a_cluster_change_no_auc_interval():
    members, nonmembers = normal(40, 0.5), normal(30, seed=1)
    once = auc_interval(members, nonmembers, rng=generator())
    copied = auc_interval(
        np.repeat(members, 3),
        np.repeat(nonmembers, 3),
        rng=generator(),
        member_clusters=np.repeat(np.arange(40), 3),
        nonmember_clusters=np.repeat(np.arange(30), 3),
    )
    assert (copied.low, copied.high) == pytest.approx((once.low, once.high), abs=1e-12)
    naive = auc_interval(np.repeat(members, 3), np.repeat(nonmembers, 3), rng=generator())
    assert naive.high - naive.low < 0.65 * (once.high - once.low)


# --- TPR at an FPR ------------------------------------------------------------------------------


def drawn_tpr_interval(members, nonmembers, fpr, tail, draws=40_000):
    """The same distribution by drawing from it.

    The true FPRs above n non-members are n sorted uniform numbers; the N of them that are at
    most `fpr` give one bound on how many false positives may be made, N - 1 the other.
    """
    rng = generator(11)
    m, n = len(members), len(nonmembers)
    can = reach(np.asarray(members, float), np.asarray(nonmembers, float))
    found = []
    for _ in range(draws):
        false_positives = int((rng.random(n) <= fpr).sum()) - int(rng.random() < 0.5)
        k = can[false_positives] if false_positives >= 0 else 0
        if rng.random() < 0.5:
            found.append(rng.beta(k, m - k + 1) if k > 0 else 0.0)
        else:
            found.append(rng.beta(k + 1, m - k) if k < m else 1.0)
    return np.quantile(found, [tail, 1 - tail])


@pytest.mark.parametrize(
    ("m", "n", "shift", "fpr"),
    [(60, 60, 0, 0.05), (60, 150, 1, 0.05), (40, 30, 2, 0.1), (50, 150, 0.5, 0.01)],
)
def test_tpr_interval_is_what_is_drawn(m, n, shift, fpr):
    members, nonmembers = normal(m, shift), normal(n, seed=1)
    found = tpr_interval(members, nonmembers, fpr)
    drawn = drawn_tpr_interval(members, nonmembers, fpr, 0.025)
    assert (found.low, found.high) == pytest.approx(drawn.tolist(), abs=0.012)
    assert found.value == tpr_at_fpr(members, nonmembers, fpr).tpr


def test_many_nonmembers_leave_the_members_binomial():
    """With the threshold all but known, what is left is between Clopper-Pearson and Wald."""
    members, nonmembers = normal(50, 1), normal(200_000, seed=1)
    found = tpr_interval(members, nonmembers, 0.1)
    exact = clopper_pearson(round(found.value * 50), 50)
    assert exact[0] < found.low < exact[0] + 0.02
    assert exact[1] - 0.02 < found.high < exact[1] + 0.01


def test_on_a_block_of_ties_the_tails_are_thinner():
    """16 of 150 non-members share the best score; at FPR 10 % the block may or may not fit."""
    members = np.repeat([1.0, 0.0], [45, 105])
    nonmembers = np.repeat([1.0, 0.0], [16, 134])
    found = tpr_interval(members, nonmembers, 0.1)
    assert found.value == 0.0
    drawn = drawn_tpr_interval(members, nonmembers, 0.1, 0.0087049)
    assert (found.low, found.high) == pytest.approx(drawn.tolist(), abs=0.02)
    assert found.high > 0.3


def test_the_thinner_tail_is_a_product_of_two_uniform_numbers():
    tail = interval._tail_on_a_jump(0.95)
    assert tail * (1 + np.log(1 / tail)) == pytest.approx(0.05)
    rng = generator()
    assert np.mean(rng.random(400_000) * rng.random(400_000) < tail) == pytest.approx(
        0.05, abs=2e-3
    )


def test_a_few_ties_are_no_block():
    members, nonmembers = normal(500, 1).round(4), normal(500, seed=1).round(4)
    nonmembers[np.argsort(nonmembers)[-26]] = np.sort(nonmembers)[-25]  # a pair at the threshold
    found = tpr_interval(members, nonmembers, 0.05)
    drawn = drawn_tpr_interval(members, nonmembers, 0.05, 0.025)
    assert (found.low, found.high) == pytest.approx(drawn.tolist(), abs=0.012)


@settings(max_examples=60)
@given(SIDE, SIDE, st.sampled_from([0.01, 0.05, 0.1, 0.5]), st.sampled_from([0.8, 0.95, 0.999]))
def test_tpr_interval_has_width_and_holds_its_value(members, nonmembers, fpr, confidence):
    found = tpr_interval(members, nonmembers, fpr, confidence=confidence)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.high - found.low > 0.001
    assert found.method == f"largest TPR with FPR <= {fpr:g}, melded interval"


def test_an_fpr_that_is_not_resolved_has_no_lower_bound():
    found = tpr_interval(normal(60, 50), normal(60, seed=1), 0.001)
    assert (found.value, found.low, found.high) == (1.0, 0.0, 1.0)


@given(SIDE, SIDE)
def test_more_confidence_is_never_narrower(members, nonmembers):
    some, more = (tpr_interval(members, nonmembers, 0.1, confidence=c) for c in (0.8, 0.95))
    assert more.low <= some.low
    assert some.high <= more.high


def test_clusters_widen_the_interval():
    rng = generator(4)
    members, nonmembers = (
        np.repeat(rng.normal(shift, 1, 30), 6) + rng.normal(0, 0.3, 180) for shift in (1, 0)
    )
    clusters = np.repeat(np.arange(30), 6)
    alone = tpr_interval(members, nonmembers, 0.1)
    together = tpr_interval(
        members, nonmembers, 0.1, member_clusters=clusters, nonmember_clusters=clusters
    )
    assert together.value == alone.value
    assert together.high - together.low > 1.5 * (alone.high - alone.low)


# --- what is refused ----------------------------------------------------------------------------


def call_auc(members, nonmembers, **more):
    return auc_interval(members, nonmembers, rng=generator(), **more)


def call_tpr(members, nonmembers, **more):
    return tpr_interval(members, nonmembers, 0.1, **more)


@pytest.mark.parametrize("call", [call_auc, call_tpr])
def test_too_few_records_are_refused(call):
    few = r"got 9 members and 50 non-members \(records\), expected at least 10 of each"
    with pytest.raises(TooFewRecordsError, match=few):
        call(normal(9), normal(50))
    with pytest.raises(TooFewRecordsError, match=r"12 members and 3 non-members \(clusters\)"):
        call(normal(12), normal(12), nonmember_clusters=[i % 3 for i in range(12)])


@pytest.mark.parametrize("call", [call_auc, call_tpr])
def test_bad_arguments_are_named(call):
    with pytest.raises(ValueError, match="confidence must lie between 0 and 1"):
        call(normal(20), normal(20), confidence=1.0)
    with pytest.raises(ValueError, match="got 3 cluster labels for 20 records"):
        call(normal(20), normal(20), member_clusters=["a", "b", "c"])
    with pytest.raises(ValueError, match="member scores must be finite"):
        call([np.nan] * 20, normal(20))


def test_a_bootstrap_needs_draws():
    with pytest.raises(ValueError, match="draws must be at least 2, got 1"):
        auc_interval(normal(20), normal(20), rng=generator(), draws=1)


# --- records on both sides ------------------------------------------------------------------------


def both_ways(rng: np.random.Generator, n: int = 40) -> tuple[FloatArray, FloatArray, list[int]]:
    """Scores of n records in a prompt and out of it: what differs between records is larger."""
    record = 1.5 * rng.normal(size=n)
    return (
        record + 0.7 + 0.6 * rng.normal(size=n),
        record + 0.6 * rng.normal(size=n),
        list(range(n)),
    )


def test_drawn_together_it_is_the_bootstrap_of_whole_clusters() -> None:
    rng = np.random.default_rng(2)
    members, nonmembers, clusters = both_ways(rng)
    clusters = [i // 2 for i in clusters]
    more = [f"alone {i}" for i in range(7)]
    members = np.concatenate([members, rng.normal(size=7)])
    found = auc_logit(
        members, nonmembers, rng=rng, draws=4000,
        member_clusters=[*clusters, *more], nonmember_clusters=clusters, together=True,
    )  # fmt: skip
    slow = []
    for _ in range(4000):
        whole, apart = rng.integers(20, size=19).tolist(), rng.integers(7, size=6).tolist()
        ours = [members[i] for c in whole for i in (2 * c, 2 * c + 1)] + [
            members[40 + i] for i in apart
        ]
        theirs = [nonmembers[i] for c in whole for i in (2 * c, 2 * c + 1)]
        slow.append(auc(ours, theirs))
    assert found.value == auc(members, nonmembers)
    assert np.sqrt(found.variance) == pytest.approx(np.std(slow), rel=0.06)
    apart = auc_logit(
        members, nonmembers, rng=rng, draws=4000,
        member_clusters=[*clusters, *more], nonmember_clusters=clusters,
    )  # fmt: skip
    assert np.sqrt(apart.variance) > 1.3 * np.sqrt(found.variance)


def test_drawn_together_intervals_cover_and_are_not_too_wide() -> None:
    rng = np.random.default_rng(5)
    found, values = [], []
    for _ in range(150):
        members, nonmembers, clusters = both_ways(rng)
        how = {"member_clusters": clusters, "nonmember_clusters": clusters, "draws": 200}
        one = auc_interval(members, nonmembers, rng=rng, together=True, **how)
        found.append((one.low, one.high))
        values.append(one.value)
    truth = np.mean(values)
    covered = np.mean([low <= truth <= high for low, high in found])
    assert covered >= 0.9
    assert np.mean([high - low for low, high in found]) < 3.92 * 1.6 * np.std(values)


def test_drawn_together_order_has_no_say_and_clusters_of_one_side_are_as_ever() -> None:
    rng = np.random.default_rng(4)
    members, nonmembers, clusters = both_ways(rng)

    def made(order: IntArray, again: IntArray) -> Estimate:
        return auc_interval(
            members[order], nonmembers[again], rng=np.random.default_rng(0), draws=50,
            member_clusters=[clusters[i] for i in order], together=True,
            nonmember_clusters=[clusters[i] for i in again],
        )  # fmt: skip

    plain = np.arange(40)
    assert made(plain, plain) == made(rng.permutation(40), rng.permutation(40))
    none = auc_interval(members, nonmembers, rng=np.random.default_rng(0), together=True)
    assert none == auc_interval(members, nonmembers, rng=np.random.default_rng(0))
