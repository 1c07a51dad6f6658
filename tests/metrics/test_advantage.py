"""advantage: TPR - FPR at a threshold that other records chose."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unseen.errors import TooFewRecordsError
from unseen.metrics.advantage import advantage, advantage_at, best_threshold
from unseen.metrics.crossfit import folds
from unseen.metrics.interval import clopper_pearson, rate_interval

SIDE = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=20)


@given(SIDE, SIDE)
def test_best_threshold_is_the_best_of_all(members, nonmembers):
    best = (0.0, np.inf)
    for threshold in sorted({*members, *nonmembers}, reverse=True):
        gain = np.mean(np.array(members) >= threshold) - np.mean(np.array(nonmembers) >= threshold)
        if gain > best[0] + 1e-9:
            best = (gain, threshold)
    assert best_threshold(members, nonmembers) == best[1]


def test_advantage_by_hand():
    """Both folds choose 1 as threshold; 15 of 20 members and 4 of 20 non-members reach it."""
    scores = np.array([1.0] * 15 + [0.0] * 5 + [1.0] * 4 + [0.0] * 16)
    member = np.arange(40) < 20
    found = advantage(scores, member, np.arange(40) % 2)
    assert found.value == pytest.approx(15 / 20 - 4 / 20)
    tpr, fpr = clopper_pearson(15, 20), clopper_pearson(4, 20)
    assert found.low == pytest.approx(0.55 - np.hypot(0.75 - tpr[0], fpr[1] - 0.2))
    assert found.high == pytest.approx(0.55 + np.hypot(tpr[1] - 0.75, 0.2 - fpr[0]))
    assert (found.n_members, found.n_nonmembers) == (20, 20)


def test_advantage_is_twice_the_balanced_accuracy_above_a_half():
    rng = np.random.default_rng(0)
    member = np.arange(300) < 100
    scores, fold = rng.normal(size=300) + member, folds(member, rng=rng)
    right = np.zeros(300, bool)
    for this in (0, 1):
        threshold = best_threshold(
            scores[(fold != this) & member], scores[(fold != this) & ~member]
        )
        right |= (fold == this) & ((scores >= threshold) == member)
    balanced = (right[member].mean() + right[~member].mean()) / 2
    assert advantage(scores, member, fold).value == pytest.approx(2 * (balanced - 0.5))


def test_noise_has_no_advantage_unless_it_judges_itself():
    member = np.arange(80) < 40
    honest, fooled = [], []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        scores = rng.normal(size=80)
        honest.append(advantage(scores, member, folds(member, rng=rng)).value)
        threshold = best_threshold(scores[member], scores[~member])
        fooled.append(np.mean(scores[member] >= threshold) - np.mean(scores[~member] >= threshold))
    assert np.mean(honest) == pytest.approx(0, abs=3 * np.std(honest) / np.sqrt(150))
    assert np.mean(fooled) > 0.1


def test_full_separation_is_an_advantage_of_one():
    member = np.arange(60) < 30
    found = advantage(member * 9.0, member, folds(member, rng=np.random.default_rng(0)))
    assert (found.value, found.high) == (1.0, 1.0)
    assert 0.7 < found.low < 1


@pytest.mark.parametrize("clusters", [None, np.arange(60) // 3])
def test_at_a_fixed_threshold_it_is_the_difference_of_two_shares(clusters):
    rng = np.random.default_rng(3)
    member = np.arange(60) % 2 < 1
    scores = rng.normal(size=60) + member
    found = advantage_at(scores, member, 0.85, clusters=clusters)
    right = sum((score >= 0.85) == is_in for score, is_in in zip(scores, member, strict=True))
    assert found.value == pytest.approx(2 * (right / 60 - 0.5))
    assert (found.n_members, found.n_nonmembers) == (30, 30)
    rates = [
        rate_interval(
            scores[side] >= 0.85,
            confidence=0.95,
            clusters=None if clusters is None else clusters[side],
        )
        for side in (member, ~member)
    ]
    tpr, fpr = (np.mean(scores[side] >= 0.85) for side in (member, ~member))
    low = found.value - np.hypot(tpr - rates[0][0], rates[1][1] - fpr)
    high = found.value + np.hypot(rates[0][1] - tpr, fpr - rates[1][0])
    assert (found.low, found.high) == pytest.approx((low, high))
    assert advantage_at(scores, member, scores.max() + 1).value == 0
    with pytest.raises(TooFewRecordsError, match="got 5 members"):
        advantage_at(scores, np.arange(60) < 5, 0.85)


def test_what_is_refused():
    member = np.arange(40) < 20
    with pytest.raises(ValueError, match="got 3 folds for 40 records"):
        advantage(member * 1.0, member, [0, 1, 0])
    with pytest.raises(TooFewRecordsError, match="got 5 members and 35 non-members"):
        advantage(np.arange(40.0), np.arange(40) < 5, np.arange(40) % 2)


def test_thresholds_can_be_chosen_on_what_the_scores_were_before() -> None:
    rng = np.random.default_rng(1)
    member = np.arange(40) < 20
    before = rng.normal(size=40) + 2 * member
    after = before - 1.5 * member + 0.4
    fold = np.arange(40) % 2
    flagged = []
    for i in range(40):
        other = fold != fold[i]
        threshold = best_threshold(before[other & member], before[other & ~member])
        flagged.append(after[i] >= threshold)
    right = np.mean(np.array(flagged)[:20]) - np.mean(np.array(flagged)[20:])
    found = advantage(after, member, fold, chosen_on=before)
    assert found.value == pytest.approx(right)
    assert found.value != advantage(after, member, fold).value
    assert advantage(after, member, fold, chosen_on=after) == advantage(after, member, fold)
    with pytest.raises(ValueError, match="scores to choose on"):
        advantage(after, member, fold, chosen_on=before[1:])
