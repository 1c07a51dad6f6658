"""evaluate: the bundle that the runner keeps of each attack."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from unseen.errors import TooFewRecordsError
from unseen.metrics.evaluate import evaluate, thin
from unseen.metrics.interval import auc_interval, tpr_interval
from unseen.metrics.roc import roc_curve, tpr_at_fpr


def generator(seed=0):
    return np.random.default_rng(seed)


def planted(n=150, shift=1.0, seed=0):
    member = generator(seed + 1).permutation(2 * n) < n
    return generator(seed).normal(size=2 * n) + shift * member, member


def test_the_parts_are_those_of_the_functions():
    scores, member = planted()
    found = evaluate(scores, member, rng=generator(), bootstrap=200)
    assert found.auc == auc_interval(scores[member], scores[~member], rng=generator(), draws=200)
    assert (found.n_members, found.n_nonmembers) == (150, 150)
    assert not found.inverted
    assert 0 < found.advantage.low < found.advantage.value < found.advantage.high < 1
    assert [rate.fpr for rate in found.tpr_at_fpr] == [0.001, 0.01, 0.05, 0.1]
    for rate in found.tpr_at_fpr[1:]:
        point = tpr_at_fpr(scores[member], scores[~member], rate.fpr)
        assert (rate.threshold, rate.realised_fpr) == (point.threshold, point.fpr)
        assert rate.estimate == tpr_interval(scores[member], scores[~member], rate.fpr)


def test_what_cannot_be_resolved_says_what_it_needs():
    scores, member = planted()
    first, second, third, _ = evaluate(scores, member, rng=generator(), bootstrap=50).tpr_at_fpr
    assert (first.estimate, first.threshold, first.realised_fpr) == (None, None, None)
    assert (first.resolution, first.needs_nonmembers) == ("unresolvable", 1000)
    assert (second.resolution, second.needs_nonmembers) == ("indicative", 1000)
    assert second.estimate is not None
    assert (third.resolution, third.expected_false_positives) == ("indicative", 7.5)


@pytest.mark.parametrize("clusters", [None, [f"user {i // 4}" for i in range(300)]])
def test_order_changes_nothing(clusters):
    scores, member = planted()
    scores = scores.round(1)
    mixed = generator(7).permutation(300)
    first = evaluate(scores, member, rng=generator(), bootstrap=50, clusters=clusters)
    again = None if clusters is None else [clusters[i] for i in mixed]
    second = evaluate(scores[mixed], member[mixed], rng=generator(), bootstrap=50, clusters=again)
    assert first == second


def test_scores_that_point_the_wrong_way_are_noticed():
    scores, member = planted()
    assert evaluate(-scores, member, rng=generator(), bootstrap=50).inverted
    assert not evaluate(scores * 0, member, rng=generator(), bootstrap=50).inverted


@pytest.mark.parametrize("shift", [0, 50])
def test_it_is_json(shift):
    scores, member = planted(shift=shift)
    scores = scores if shift else scores * 0  # all scores tied: no finite threshold
    found = evaluate(scores, member, rng=generator(), bootstrap=50)
    json.dumps(asdict(found), allow_nan=False)
    assert (found.tpr_at_fpr[-1].threshold is None) == (shift == 0)


def test_the_curve_is_thinned_to_true_points_of_it():
    scores, member = planted(n=3000)
    curve = roc_curve(scores[member], scores[~member])
    points = evaluate(scores, member, rng=generator(), bootstrap=2).roc
    assert 120 < len(points.fpr) == len(points.tpr) <= 200
    true = set(zip(curve.fpr.tolist(), curve.tpr.tolist(), strict=True))
    assert set(zip(points.fpr, points.tpr, strict=True)) <= true
    assert (points.fpr[0], points.tpr[0], points.fpr[-1], points.tpr[-1]) == (0, 0, 1, 1)
    assert list(points.fpr) == sorted(points.fpr)
    area = np.trapezoid(points.tpr, points.fpr)
    assert area == pytest.approx(np.trapezoid(curve.tpr, curve.fpr), abs=0.005)
    assert sum(fpr <= 0.01 for fpr in points.fpr) > 20


def test_a_short_curve_is_kept():
    curve = roc_curve([1, 2, 3], [0, 1, 2])
    assert thin(curve).fpr == tuple(curve.fpr.tolist())


def test_bad_arguments_are_named():
    scores, member = planted()
    with pytest.raises(ValueError, match="got 10 labels for 300 records"):
        evaluate(scores, member[:10], rng=generator())
    with pytest.raises(ValueError, match="scores must be finite, got 300 of 300"):
        evaluate(scores * np.nan, member, rng=generator())
    with pytest.raises(TooFewRecordsError, match="got 5 members and 295 non-members"):
        evaluate(scores, np.arange(300) < 5, rng=generator())
    with pytest.raises(TooFewRecordsError, match=r"\(clusters\)"):
        evaluate(scores, member, rng=generator(), clusters=["one"] * 300)
