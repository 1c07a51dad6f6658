"""crossfit: no record is judged by a choice that it took part in."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unseen.errors import TooFewRecordsError
from unseen.metrics.crossfit import (
    choose_and_judge,
    fitted_threshold,
    folds,
    tpr_at_fitted_threshold,
)
from unseen.metrics.interval import clopper_pearson
from unseen.metrics.roc import auc


def generator(seed=0):
    return np.random.default_rng(seed)


def planted(n=200, shift=1.0, seed=0):
    """Scores and labels: n members that score `shift` higher, then n non-members."""
    member = np.arange(2 * n) < n
    return generator(seed).normal(size=2 * n) + shift * member, member


# --- folds ------------------------------------------------------------------------------------


@given(st.integers(5, 40), st.integers(5, 40), st.integers(2, 5), st.integers(0, 9))
def test_folds_are_even_on_both_sides(n_members, n_nonmembers, n, seed):
    member = generator(seed).permutation(np.arange(n_members + n_nonmembers) < n_members)
    fold = folds(member, n=n, rng=generator(seed))
    for side in (member, ~member):
        counts = np.bincount(fold[side], minlength=n)
        assert counts.size == n
        assert counts.max() - counts.min() <= 1


@given(st.lists(st.integers(1, 6), min_size=24, max_size=40), st.integers(0, 9))
def test_clusters_stay_whole_and_folds_fairly_even(sizes, seed):
    clusters = [f"author {i}" for i, size in enumerate(sizes) for _ in range(size)]
    member = np.array([int(name.split()[1]) % 2 == 0 for name in clusters])
    fold = folds(member, n=2, rng=generator(seed), clusters=clusters)
    for name in set(clusters):
        assert len({f for f, c in zip(fold.tolist(), clusters, strict=True) if c == name}) == 1
    for side in (member, ~member):
        counts = np.bincount(fold[side], minlength=2)
        assert abs(counts[0] - counts[1]) <= max(sizes)


def test_a_seed_is_a_split():
    _, member = planted()
    first, second, other = (folds(member, rng=generator(seed)) for seed in (1, 1, 2))
    assert (first == second).all()
    assert (first != other).any()


def test_folds_do_not_follow_the_order_of_the_records():
    _, member = planted()
    fold = np.array([folds(member, rng=generator(seed)) for seed in range(100)])
    assert np.abs(fold.mean(axis=0) - 0.5).max() < 0.25


def test_folds_refuse_what_cannot_be_split():
    with pytest.raises(ValueError, match="n must be at least 2 folds, got 1"):
        folds([True, False], n=1, rng=generator())
    with pytest.raises(TooFewRecordsError, match="4 folds leave one without members: got 3 rec"):
        folds([True] * 3 + [False] * 9, n=4, rng=generator())
    with pytest.raises(TooFewRecordsError, match="without non-members: got 1 clusters"):
        folds([True] * 3 + [False] * 3, rng=generator(), clusters=[0, 1, 2, 3, 3, 3])
    with pytest.raises(ValueError, match="needs members and non-members, got 2 of 2"):
        folds([True, True], rng=generator())


# --- thresholds -------------------------------------------------------------------------------


@given(
    st.lists(st.integers(-5, 5) | st.floats(-9, 9), min_size=1, max_size=60),
    st.sampled_from([0.01, 0.05, 0.1, 0.3]),
)
def test_fitted_threshold_is_a_conformal_p_value(nonmembers, fpr):
    threshold = fitted_threshold(nonmembers, fpr)
    for score in [*nonmembers, *(s + 0.5 for s in nonmembers), 99.0, -99.0]:
        p = (1 + sum(other >= score for other in nonmembers)) / (len(nonmembers) + 1)
        assert (score >= threshold) == (round(p, 9) <= fpr)


@pytest.mark.parametrize(("n", "fpr"), [(19, 0.05), (99, 0.05), (30, 0.1), (18, 0.05)])
def test_a_new_nonmember_is_flagged_at_most_that_often(n, fpr):
    """Each of n + 1 exchangeable scores is the new one once: floor(fpr (n + 1)) are flagged."""
    scores = generator().normal(size=n + 1)
    flagged = sum(scores[i] >= fitted_threshold(np.delete(scores, i), fpr) for i in range(n + 1))
    assert flagged == int(fpr * (n + 1))


def slow_judge(scores, scored, member, fold, fpr):
    """Record by record; a record without a score is minus infinity."""
    chosen, flagged = {}, {}
    values = {
        name: [s if ok else -np.inf for s, ok in zip(scores[name], scored[name], strict=True)]
        for name in scores
    }
    for this in sorted({f for f in fold.tolist() if f >= 0}):
        best = None
        for name in sorted(scores):
            fit = [(v, m) for v, m, f in zip(values[name], member, fold, strict=True) if f != this]
            wins = [(x > y) + (x == y) / 2 for x, m in fit if m for y, k in fit if not k]
            if best is None or np.mean(wins) > best[0] + 1e-12:
                best = (np.mean(wins), name, [v for v, m in fit if not m])
        _, name, nonmembers = best
        chosen[this] = name
        for i in np.flatnonzero(fold == this).tolist():
            p = (1 + sum(other >= values[name][i] for other in nonmembers)) / (len(nonmembers) + 1)
            flagged[i] = values[name][i] > -np.inf and round(p, 9) <= fpr
    return chosen, flagged


@settings(max_examples=40)
@given(st.integers(0, 30), st.sampled_from([2, 3]), st.sampled_from([0.1, 0.3]))
def test_choose_and_judge_is_its_slow_twin(seed, n, fpr):
    rng = generator(seed)
    member = np.arange(32) < 16
    scores = {name: rng.normal(size=32).round(1) + member * rng.random() for name in "abc"}
    scored = {
        name: rng.random(32) < share for name, share in zip("abc", (1, 0.9, 0.5), strict=True)
    }
    fold = folds(member, n=n, rng=rng)
    fold[:2], fold[30:] = -1, -1  # never judged
    found = choose_and_judge(scores, member, fold, fpr, scored=scored)
    chosen, flagged = slow_judge(scores, scored, member, fold, fpr)
    assert found.chosen == tuple(chosen[f] for f in sorted(chosen))
    for estimate, side in ((found.tpr, True), (found.fpr, False)):
        flags = [flag for i, flag in flagged.items() if member[i] == side]
        assert estimate.value == pytest.approx(np.mean(flags))
        assert (estimate.low, estimate.high) == pytest.approx(
            clopper_pearson(sum(flags), len(flags))
        )
        assert (estimate.n_members, estimate.n_nonmembers) == (14, 14)


def test_what_is_judged_has_no_say():
    scores, member = planted()
    fold = folds(member, rng=generator())
    noise = generator(5).normal(size=member.size)
    before = choose_and_judge({"good": scores, "noise": noise}, member, fold, 0.1)
    changed = np.where(fold == 0, -100 * scores, scores)
    after = choose_and_judge({"good": changed, "noise": noise}, member, fold, 0.1)
    assert (after.chosen[0], after.thresholds[0]) == (before.chosen[0], before.thresholds[0])
    assert after.chosen[1] != before.chosen[1]


def test_the_better_attack_is_chosen():
    scores, member = planted(shift=1.5)
    found = choose_and_judge(
        {"a noise": generator(3).normal(size=member.size), "loss": scores},
        member,
        folds(member, n=4, rng=generator()),
        0.1,
    )
    assert found.chosen == ("loss",) * 4
    assert 0.4 < found.tpr.low < found.tpr.high < 0.75
    assert found.fpr.low < 0.1 < found.fpr.high
    assert found.resolution.n_nonmembers == 150


def test_equal_attacks_are_chosen_by_name():
    scores, member = planted()
    fold = folds(member, rng=generator())
    assert choose_and_judge({"b": scores, "a": scores}, member, fold, 0.1).chosen == ("a", "a")


def test_choosing_among_noise_finds_nothing():
    """The best of 30 attacks that know nothing: chosen and judged apart, chance level."""
    member = np.arange(200) < 100
    found = []
    for seed in range(60):
        rng = generator(seed)
        scores = {f"attack {i}": rng.normal(size=200) for i in range(30)}
        judged = choose_and_judge(scores, member, folds(member, rng=rng), 0.1)
        found.append(judged.tpr.value - judged.fpr.value)
    assert np.mean(found) == pytest.approx(0, abs=3 * np.std(found) / np.sqrt(60))


def test_a_calibration_part_decides_and_is_not_judged():
    scores, member = planted()
    calibration = generator(1).random(member.size) < 0.4
    found = tpr_at_fitted_threshold(scores, member, np.where(calibration, -1, 0), 0.1)
    threshold = fitted_threshold(scores[calibration & ~member], 0.1)
    assert found.thresholds == (threshold,)
    assert found.tpr.value == np.mean(scores[~calibration & member] >= threshold)
    assert found.tpr.n_members == (~calibration & member).sum()
    assert found.chosen == ("attack",)


def test_unscored_records_are_missed_members_and_no_false_positives():
    """The attack knows all, but scored only every second record."""
    member = np.arange(80) < 40
    scored = np.arange(80) % 2 == 0
    fold = (np.arange(80) // 2) % 2
    scores = np.where(scored, member + np.arange(80) / 1e3, np.nan)
    found = choose_and_judge({"half": scores}, member, fold, 0.1, scored={"half": scored})
    assert found.tpr.value == 0.5
    assert found.fpr.value <= 0.1
    assert (found.unscored_members, found.unscored_nonmembers) == (20, 20)


def test_an_attack_with_few_scores_pays_when_attacks_are_chosen():
    scores, member = planted(shift=1.0)
    few = generator(2).random(member.size) < 0.1
    oracle = member.astype(float)
    assert auc(oracle[few & member], oracle[few & ~member]) == 1.0
    fold = folds(member, rng=generator())
    both = choose_and_judge({"few": oracle, "all": scores}, member, fold, 0.1, scored={"few": few})
    assert both.chosen == ("all", "all")


def test_a_threshold_that_cannot_be_set_is_none():
    scores, member = planted(n=50)
    found = tpr_at_fitted_threshold(scores, member, folds(member, rng=generator()), 0.01)
    assert found.thresholds == (None, None)
    assert found.tpr.value == found.fpr.value == 0
    assert (found.resolution.status, found.resolution.needs_nonmembers) == ("unresolvable", 100)
    json.dumps(asdict(found), allow_nan=False)


def test_clusters_widen_what_is_pooled():
    rng = generator(2)
    member = np.repeat(np.arange(60) < 30, 5)
    scores = np.repeat(rng.normal(size=60), 5) + member
    clusters = np.repeat(np.arange(60), 5)
    fold = folds(member, rng=rng, clusters=clusters)
    alone = tpr_at_fitted_threshold(scores, member, fold, 0.1)
    together = tpr_at_fitted_threshold(scores, member, fold, 0.1, clusters=clusters)
    assert together.tpr.value == alone.tpr.value
    assert together.tpr.high - together.tpr.low > 1.7 * (alone.tpr.high - alone.tpr.low)


def test_bad_arguments_are_named():
    scores, member = planted(n=20)
    fold = folds(member, rng=generator())
    with pytest.raises(ValueError, match="scores of 'a' must be finite, got 40 of 40"):
        choose_and_judge({"a": scores * np.nan}, member, fold, 0.1)
    with pytest.raises(ValueError, match="got 39 scores of 'a' for 40 records"):
        choose_and_judge({"a": scores[:-1]}, member, fold, 0.1)
    with pytest.raises(ValueError, match=r"got masks for \['b'\], which have no scores"):
        choose_and_judge({"a": scores}, member, fold, 0.1, scored={"b": member})
    with pytest.raises(ValueError, match="no attack with a score"):
        choose_and_judge({"a": scores}, member, fold, 0.1, scored={"a": np.zeros(40, bool)})
    with pytest.raises(ValueError, match="got 39 folds for 40 records"):
        choose_and_judge({"a": scores}, member, fold[:-1], 0.1)
    with pytest.raises(ValueError, match="fold 0 leaves no members or no non-members"):
        choose_and_judge({"a": scores}, member, fold * 0, 0.1)
    with pytest.raises(ValueError, match="boolean"):
        choose_and_judge({"a": scores}, scores, fold, 0.1)
    with pytest.raises(TooFewRecordsError, match="got 9 members and 20 non-members"):
        choose_and_judge({"a": scores}, member, np.where(np.arange(40) < 11, -1, fold), 0.1)


def test_thresholds_can_be_set_on_what_the_scores_were_before() -> None:
    rng = np.random.default_rng(2)
    member = np.arange(80) < 40
    before = rng.normal(size=80) + 2 * member
    after = before - 1.5 * member + 0.7
    fold = np.arange(80) % 2
    flagged = np.array(
        [after[i] >= fitted_threshold(before[(fold != fold[i]) & ~member], 0.1) for i in range(80)]
    )
    found = tpr_at_fitted_threshold(after, member, fold, 0.1, chosen_on=before)
    assert found.tpr.value == pytest.approx(flagged[:40].mean())
    assert found.fpr.value == pytest.approx(flagged[40:].mean())
    assert found.fpr.value > tpr_at_fitted_threshold(after, member, fold, 0.1).fpr.value
