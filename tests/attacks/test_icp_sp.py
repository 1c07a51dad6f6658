import itertools
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from unseen.attacks.icp_sp import IcpSp
from unseen.signals.base import Observations
from unseen.signals.probed import MaskedProbes, ProbedLikelihoods


def slow(seen: ProbedLikelihoods, aggregate: str, length: str) -> float:
    differences = [seen.plain - probed for probed in seen.probed.tolist()]
    if length == "mean":
        differences = [difference / seen.n_tokens for difference in differences]
    if aggregate == "min":
        return min(differences)
    if aggregate == "mean":
        return sum(differences) / len(differences)
    return statistics.median(differences)


@pytest.mark.parametrize(
    ("aggregate", "length"), list(itertools.product(["min", "mean", "median"], ["mean", "sum"]))
)
def test_equals_the_formula(
    observed: Callable[..., Observations], aggregate: str, length: str
) -> None:
    rng = np.random.default_rng(8)
    drawn = {
        f"r{n}-{k}": ProbedLikelihoods(n, -2.0 * n, -rng.exponential(n, size=k))
        for n, k in itertools.product((1, 30), (1, 4, 5))
    }
    scores = IcpSp(aggregate=aggregate, length=length).score(observed({MaskedProbes(): drawn}))
    assert scores.ids == tuple(drawn)
    for id_, value in zip(scores.ids, scores.values, strict=True):
        assert value == pytest.approx(slow(drawn[id_], aggregate, length), rel=1e-12)


def test_aggregates_differ(observed: Callable[..., Observations]) -> None:
    seen = observed({MaskedProbes(): {"a": ProbedLikelihoods(2, -10.0, np.array([-4.0, -8, -9]))}})
    found = {a: IcpSp(aggregate=a).score(seen).values.item() for a in ("min", "mean", "median")}
    assert found == {"min": -3.0, "mean": pytest.approx(-1.5), "median": -1.0}


def test_who_gains_least_is_the_member(observed: Callable[..., Observations]) -> None:
    seen = observed(
        {
            MaskedProbes(): {
                "member": ProbedLikelihoods(10, -5.0, np.array([-4.0, -5.0])),
                "other": ProbedLikelihoods(10, -30.0, np.array([-10.0, -12.0])),
            }
        }
    )
    member, other = IcpSp().score(seen).values
    assert member > other


def test_infinite_and_missing_are_unscored(observed: Callable[..., Observations]) -> None:
    seen = observed(
        {
            MaskedProbes(): {
                "both": ProbedLikelihoods(1, -np.inf, np.array([-np.inf])),
                "plain": ProbedLikelihoods(1, -np.inf, np.array([-1.0])),
                "missing": "too short to mask a part of it",
            }
        }
    )
    assert IcpSp().score(seen).unscored == {
        "both": "the formula has no finite value here",
        "plain": "the formula has no finite value here",
        "missing": "too short to mask a part of it",
    }


def test_fields_say_what_is_measured() -> None:
    attack = IcpSp(probes=3, rate=0.3, placeholder="[MASK]", seed=7, aggregate="mean")
    assert attack.signals() == (MaskedProbes(probes=3, rate=0.3, placeholder="[MASK]", seed=7),)
    assert IcpSp(aggregate="mean", length="sum").signals() == IcpSp().signals()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"probes": 0}, "got probes=0, expected at least 1"),
        ({"rate": 1.0}, "got rate=1.0, expected a share between 0 and 1"),
        ({"aggregate": "max"}, "got aggregate='max', expected one of min, mean, median"),
        ({"length": "max"}, "got length='max', expected 'mean' or 'sum'"),
    ],
)
def test_refuses_what_makes_no_sense(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        IcpSp(**fields)
