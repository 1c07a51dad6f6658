"""slices: groups, their test against the rest, and Holm's correction."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unseen.metrics.roc import auc
from unseen.metrics.slices import by_slice, holm


def slow_holm(pvalues):
    """The smallest level at which the step-down procedure rejects each hypothesis, by search."""
    order = sorted(range(len(pvalues)), key=lambda i: pvalues[i])
    adjusted = [0.0] * len(pvalues)
    for place, i in enumerate(order):
        # Rejected at a iff every hypothesis up to this one passes p <= a / (those that are left).
        adjusted[i] = min(
            1.0, max(pvalues[order[j]] * (len(pvalues) - j) for j in range(place + 1))
        )
    return adjusted


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == ()
    assert holm([0.6, 0.9]) == (1.0, 1.0)


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_is_its_slow_twin(pvalues):
    assert holm(pvalues) == pytest.approx(slow_holm(pvalues))


def test_holm_refuses_what_is_no_p_value():
    with pytest.raises(ValueError, match="p-values must lie between 0 and 1"):
        holm([0.5, 1.5])


def groups(seed=0, n=600, leaking="legal"):
    """Three departments of like size; members of one of them score much higher."""
    rng = np.random.default_rng(seed)
    member = rng.random(n) < 0.5
    department = rng.choice(["legal", "sales", "support"], n)
    scores = rng.normal(size=n) + 1.5 * (member & (department == leaking))
    return scores, member, department.tolist()


def test_the_group_that_leaks_is_found():
    scores, member, department = groups()
    found = {
        result.value: result
        for result in by_slice(
            scores, member, {"department": department}, rng=np.random.default_rng(1), bootstrap=300
        )
    }
    assert sorted(found) == ["legal", "sales", "support"]
    inside = np.array(department) == "legal"
    legal = found["legal"]
    assert legal.auc.value == auc(scores[inside & member], scores[inside & ~member])
    assert (legal.n_members, legal.n_nonmembers) == (
        (inside & member).sum(),
        (inside & ~member).sum(),
    )
    assert legal.p_holm < 1e-4
    assert legal.p_holm == pytest.approx(3 * legal.p)
    assert legal.reason is None
    assert found["sales"].auc.low < 0.5 < found["sales"].auc.high
    rates = {rate.fpr: rate for rate in legal.tpr_at_fpr}
    assert rates[0.1].estimate.low > 0.2
    assert rates[0.001].estimate is None
    json.dumps([asdict(result) for result in found.values()], allow_nan=False)


def test_holm_counts_the_groups_of_all_columns():
    scores, member, department = groups()
    half = ["a" if i % 2 else "b" for i in range(600)]
    found = by_slice(
        scores,
        member,
        {"department": department, "half": half},
        rng=np.random.default_rng(1),
        bootstrap=200,
    )
    assert [result.by for result in found] == ["department"] * 3 + ["half"] * 2
    assert [result.p_holm for result in found] == pytest.approx(holm([r.p for r in found]))
    assert found[0].p_holm == pytest.approx(5 * found[0].p)


def test_small_groups_are_counted_and_not_estimated():
    scores, member, department = groups()
    department[:12] = ["tiny"] * 12
    member[:12] = [True] * 9 + [False] * 3
    department[12:40] = [None] * 28
    found = by_slice(
        scores, member, {"department": department}, rng=np.random.default_rng(1), bootstrap=50
    )
    tiny = found[-1]
    assert (tiny.value, tiny.n_members, tiny.n_nonmembers) == ("tiny", 9, 3)
    assert (tiny.auc, tiny.tpr_at_fpr, tiny.p, tiny.p_holm) == (None, (), None, None)
    assert tiny.reason == "9 members and 3 non-members (records), fewer than 10 a side"
    assert sum(r.n_members + r.n_nonmembers for r in found) == 600 - 28


def test_few_clusters_are_a_reason_too():
    scores, member, department = groups()
    found = by_slice(
        scores,
        member,
        {"department": department},
        rng=np.random.default_rng(1),
        clusters=[f"{name} {i % 4}" for i, name in enumerate(department)],
    )
    assert all(result.auc is None for result in found)
    assert "(clusters), fewer than 10 a side" in found[0].reason


def test_a_group_without_a_rest_is_estimated_but_not_compared():
    scores, member, _ = groups()
    (found,) = by_slice(
        scores, member, {"all": ["one"] * 600}, rng=np.random.default_rng(1), bootstrap=50
    )
    assert found.auc is not None
    assert found.p is None
    assert found.p_holm is None
    assert "not compared with the rest: 0 members and 0 non-members" in found.reason


def test_order_changes_nothing():
    scores, member, department = groups()
    mixed = np.random.default_rng(3).permutation(600)
    first, second = (
        by_slice(
            scores[order],
            member[order],
            {"department": [department[i] for i in order]},
            rng=np.random.default_rng(1),
            bootstrap=50,
        )
        for order in (np.arange(600), mixed)
    )
    assert first == second


def test_columns_must_fit():
    scores, member, _ = groups()
    with pytest.raises(ValueError, match="got 2 values of 'language' for 600 records"):
        by_slice(scores, member, {"language": ["de", "en"]}, rng=np.random.default_rng(0))


def test_groups_that_do_not_differ_are_seldom_said_to():
    """300 seeds, 40 + 40 records against 60 + 60: 5 % of p-values are below 0.05."""
    below = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        member = np.arange(200) % 2 == 0
        scores = rng.normal(size=200) + member
        result = by_slice(
            scores, member, {"g": ["a"] * 80 + [None] * 120}, rng=rng, fprs=(), bootstrap=100
        )[0]
        below += result.p < 0.05
    assert below / 300 < 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / 300)
