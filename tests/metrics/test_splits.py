from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize

from unseen.errors import TooFewRecordsError
from unseen.metrics.splits import CHOOSE, JUDGE, LEARN, PENALTIES, fixed_aucs, learnt_aucs, splits

MEMBER = np.arange(60) % 2 == 0


def slow_auc(members, nonmembers) -> float:
    wins = [(m > n) + (m == n) / 2 for m, n in product(members, nonmembers)]
    return float(np.mean(wins))


def slow_fit(rows, member, penalty):
    """Weights and intercept that minimise C * summed log-loss + |w|^2 / 2, by descent."""
    sign = np.where(member, 1.0, -1.0)

    def objective(w):
        margin = sign * (rows @ w[:-1] + w[-1])
        return penalty * np.logaddexp(0, -margin).sum() + w[:-1] @ w[:-1] / 2

    return minimize(objective, np.zeros(rows.shape[1] + 1), method="BFGS", tol=1e-10).x


def slow_learnt_auc(rows, member, part) -> float:
    learn, choose, judge = (part == use for use in (LEARN, CHOOSE, JUDGE))
    rows = (rows - rows[learn].mean(axis=0)) / rows[learn].std(axis=0)
    losses, odds = [], []
    for penalty in PENALTIES:
        w = slow_fit(rows[learn], member[learn], penalty)
        of_choice = rows[choose] @ w[:-1] + w[-1]
        losses.append(np.logaddexp(0, np.where(member[choose], -of_choice, of_choice)).mean())
        odds.append(rows @ w[:-1] + w[-1])
    best = odds[int(np.argmin(losses))]
    return slow_auc(best[judge & member], best[judge & ~member])


def test_each_split_is_by_7_1_2_of_both_sides_and_another_one() -> None:
    parts = splits(MEMBER, rng=np.random.default_rng(0))
    assert len(parts) == 20
    for part, side in product(parts, (MEMBER, ~MEMBER)):
        assert [int((part[side] == use).sum()) for use in (LEARN, CHOOSE, JUDGE)] == [21, 3, 6]
    assert len({part.tobytes() for part in parts}) == 20
    again = splits(MEMBER, rng=np.random.default_rng(0))
    assert all((one == other).all() for one, other in zip(parts, again, strict=True))


def test_clusters_are_not_split_and_too_few_records_are_refused() -> None:
    clusters = [i // 4 for i in range(120)]
    member = np.array(clusters) % 2 == 0
    for part in splits(member, rng=np.random.default_rng(0), n=3, clusters=clusters):
        assert all(len(set(part[i : i + 4].tolist())) == 1 for i in range(0, 120, 4))
    with pytest.raises(TooFewRecordsError):
        splits(np.arange(16) % 2 == 0, rng=np.random.default_rng(0))


def test_what_is_learnt_equals_the_protocol_written_out() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(60, 3)) * [1.0, 10.0, 0.1] + MEMBER[:, None] * [0.8, 0.0, 0.05]
    parts = splits(MEMBER, rng=rng, n=4)
    expected = [slow_learnt_auc(rows, MEMBER, part) for part in parts]
    assert learnt_aucs(rows, MEMBER, parts) == pytest.approx(expected, abs=1e-9)


def test_a_fixed_score_is_judged_on_the_same_parts() -> None:
    rng = np.random.default_rng(2)
    scores = rng.integers(0, 5, size=60) + MEMBER
    parts = splits(MEMBER, rng=rng)
    expected = [
        slow_auc(scores[(part == JUDGE) & MEMBER], scores[(part == JUDGE) & ~MEMBER])
        for part in parts
    ]
    assert fixed_aucs(scores, MEMBER, parts) == pytest.approx(expected)


def test_what_tells_nothing_is_at_chance_and_what_tells_all_is_not() -> None:
    rng = np.random.default_rng(3)
    member = np.arange(400) % 2 == 0
    parts = splits(member, rng=rng)
    noise = rng.normal(size=(400, 7))
    assert abs(learnt_aucs(noise, member, parts).mean() - 0.5) < 0.08
    assert learnt_aucs(noise + 9 * member[:, None], member, parts).min() == 1
