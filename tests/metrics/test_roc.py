"""roc: each formula against its slow twin, and against numbers that a reader can check."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from unseen.metrics.roc import auc, reach, resolution, roc_curve, tpr_at_fpr

TIED = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=25)
SIDE = TIED | st.lists(st.floats(-50, 50), min_size=1, max_size=25)
FPR = st.sampled_from([0.01, 0.05, 0.1, 0.25, 0.29, 1 / 3, 0.5, 0.9])


def slow_auc(members, nonmembers):
    total = Fraction(0)
    for member in members:
        for nonmember in nonmembers:
            total += Fraction(member > nonmember) + Fraction(int(member == nonmember), 2)
    return float(total / (len(members) * len(nonmembers)))


def slow_rates(members, nonmembers, threshold):
    tpr = sum(score >= threshold for score in members) / len(members)
    fpr = sum(score >= threshold for score in nonmembers) / len(nonmembers)
    return tpr, fpr


def slow_tpr_at_fpr(members, nonmembers, fpr):
    """Tries every threshold from the highest down; keeps the first of the best."""
    best = (0.0, np.inf, 0.0)
    for threshold in sorted({*members, *nonmembers}, reverse=True):
        tpr, realised = slow_rates(members, nonmembers, threshold)
        if realised <= fpr and tpr > best[0]:
            best = (tpr, threshold, realised)
    return best


def test_auc_counts_pairs_by_hand():
    # 3 beats 1 and 2; 2 beats 1 and ties with 2: (2 + 1.5) of 4 pairs.
    assert auc([3, 2], [1, 2]) == 0.875


@given(SIDE, SIDE)
def test_auc_is_the_double_loop(members, nonmembers):
    assert auc(members, nonmembers) == pytest.approx(slow_auc(members, nonmembers), abs=1e-12)


def test_auc_is_sklearns():
    rng = np.random.default_rng(0)
    scores, member = rng.normal(size=300).round(1), rng.random(300) < 0.4
    assert auc(scores[member], scores[~member]) == pytest.approx(roc_auc_score(member, scores))


@given(SIDE, SIDE)
def test_swapped_labels_turn_auc_around(members, nonmembers):
    assert auc(members, nonmembers) == pytest.approx(1 - auc(nonmembers, members), abs=1e-12)


@given(TIED, TIED, FPR)
def test_monotone_maps_change_nothing(members, nonmembers, fpr):
    mapped = [[np.exp(score) - 7 for score in side] for side in (members, nonmembers)]
    before, after = tpr_at_fpr(members, nonmembers, fpr), tpr_at_fpr(*mapped, fpr)
    assert auc(*mapped) == auc(members, nonmembers)
    assert (after.tpr, after.fpr) == (before.tpr, before.fpr)


@given(SIDE, SIDE, FPR, st.randoms(use_true_random=False))
def test_order_changes_nothing(members, nonmembers, fpr, random):
    mixed = [random.sample(side, len(side)) for side in (members, nonmembers)]
    assert auc(*mixed) == auc(members, nonmembers)
    assert tpr_at_fpr(*mixed, fpr) == tpr_at_fpr(members, nonmembers, fpr)


@given(SIDE, SIDE, FPR)
def test_tpr_at_fpr_is_the_best_of_all_thresholds(members, nonmembers, fpr):
    point = tpr_at_fpr(members, nonmembers, fpr)
    assert (point.tpr, point.threshold, point.fpr) == slow_tpr_at_fpr(members, nonmembers, fpr)


@given(SIDE, SIDE, FPR)
def test_tpr_at_fpr_keeps_to_its_budget(members, nonmembers, fpr):
    point = tpr_at_fpr(members, nonmembers, fpr)
    assert point.fpr <= fpr
    assert slow_rates(members, nonmembers, point.threshold) == (point.tpr, point.fpr)


def test_ties_fall_as_one_block():
    # One false positive of 4 is allowed, but the two non-members at 5 come together.
    point = tpr_at_fpr([5, 5, 6, 4], [5, 5, 1, 0], 0.25)
    assert (point.tpr, point.threshold, point.fpr) == (0.25, 6.0, 0.0)
    both = tpr_at_fpr([5, 5, 6, 4], [5, 5, 1, 0], 0.5)
    assert (both.tpr, both.threshold, both.fpr) == (1.0, 4.0, 0.5)


def test_nothing_admissible_is_a_threshold_of_infinity():
    point = tpr_at_fpr([1, 1, 0], [1, 1, 0], 0.1)
    assert (point.tpr, point.threshold, point.fpr) == (0.0, np.inf, 0.0)


def test_a_rate_that_is_met_exactly_is_admissible():
    nonmembers = np.arange(100.0)
    assert tpr_at_fpr([70.5], nonmembers, 0.29).fpr == 0.29  # 0.29 * 100 < 29 in floats
    assert tpr_at_fpr([70.5], nonmembers, 0.28).tpr == 0.0


@given(SIDE, SIDE)
def test_reach_counts_members_above_each_budget(members, nonmembers):
    counts = reach(np.array(members), np.array(nonmembers))
    for false_positives, count in enumerate(counts.tolist()):
        best = 0
        for threshold in {*members, *nonmembers}:
            made = sum(score >= threshold for score in nonmembers)
            if made <= false_positives:
                best = max(best, sum(score >= threshold for score in members))
        assert count == best


@given(SIDE, SIDE)
def test_roc_curve_is_every_threshold(members, nonmembers):
    curve = roc_curve(members, nonmembers)
    assert (curve.fpr[0], curve.tpr[0], curve.threshold[0]) == (0, 0, np.inf)
    assert (curve.fpr[-1], curve.tpr[-1]) == (1, 1)
    assert curve.threshold[1:].tolist() == sorted({*members, *nonmembers}, reverse=True)
    for fpr, tpr, threshold in zip(curve.fpr, curve.tpr, curve.threshold, strict=True):
        assert (tpr, fpr) == pytest.approx(slow_rates(members, nonmembers, threshold))


@given(SIDE, SIDE)
def test_auc_is_the_area(members, nonmembers):
    curve = roc_curve(members, nonmembers)
    area = np.trapezoid(curve.tpr, curve.fpr)
    assert area == pytest.approx(auc(members, nonmembers), abs=1e-12)


@pytest.mark.parametrize(
    ("n", "fpr", "expected", "status", "needs"),
    [
        (1000, 0.01, 10.0, "reliable", None),
        (999, 0.01, 9.99, "indicative", 1000),
        (100, 0.01, 1.0, "indicative", 1000),
        (99, 0.01, 0.99, "unresolvable", 100),
        (500, 0.001, 0.5, "unresolvable", 1000),
        (0, 0.05, 0.0, "unresolvable", 20),
        (300, 1 / 3, 100.0, "reliable", None),
    ],
)
def test_resolution_by_hand(n, fpr, expected, status, needs):
    found = resolution(n, fpr)
    assert found.expected_false_positives == pytest.approx(expected)
    assert (found.status, found.needs_nonmembers) == (status, needs)


@given(st.integers(0, 20_000), FPR)
def test_what_a_resolution_needs_is_enough_and_no_more(n, fpr):
    found = resolution(n, fpr)
    if found.needs_nonmembers is not None:
        assert resolution(found.needs_nonmembers, fpr).status != found.status
        assert resolution(found.needs_nonmembers - 1, fpr).status == found.status


@pytest.mark.parametrize("function", [auc, roc_curve, lambda m, n: tpr_at_fpr(m, n, 0.1)])
def test_bad_scores_are_named(function):
    with pytest.raises(ValueError, match=r"member scores must be finite, got 1 of 2"):
        function([1, np.nan], [0])
    with pytest.raises(ValueError, match=r"non-member scores must be finite, got 2 of 2"):
        function([1], [np.inf, -np.inf])
    with pytest.raises(ValueError, match=r"non-member scores are empty"):
        function([1], [])
    with pytest.raises(ValueError, match=r"one-dimensional, got shape \(1, 1\)"):
        function([[1]], [0])


@pytest.mark.parametrize("fpr", [0, 1, -0.1, 1.5])
def test_bad_rates_are_named(fpr):
    with pytest.raises(ValueError, match="fpr must lie between 0 and 1"):
        tpr_at_fpr([1], [0], fpr)
    with pytest.raises(ValueError, match="fpr must lie between 0 and 1"):
        resolution(10, fpr)


def test_a_negative_count_is_named():
    with pytest.raises(ValueError, match="n_nonmembers must not be negative, got -1"):
        resolution(-1, 0.1)
