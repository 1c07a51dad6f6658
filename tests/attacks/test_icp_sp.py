import itertools
import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from unseen.attacks.icp_sp import IcpSp
from unseen.signals.base import Observations
from unseen.signals.guided import GuidedProbes
from unseen.signals.official import OfficialProbes
from unseen.signals.probed import MaskedProbes, ProbedLikelihoods


def slow(seen: ProbedLikelihoods, aggregate: str, unit: str, quantile: float = 0.25) -> float:
    differences = [seen.plain - probed for probed in seen.probed.tolist()]
    if unit == "mean":
        differences = [difference / seen.n_tokens for difference in differences]
    if aggregate == "min":
        return min(differences)
    if aggregate == "mean":
        return sum(differences) / len(differences)
    if aggregate == "median":
        return statistics.median(differences)
    place = quantile * (len(differences) - 1)
    below, above = sorted(differences)[math.floor(place)], sorted(differences)[math.ceil(place)]
    return below + (place - math.floor(place)) * (above - below)


AGGREGATES = ("min", "mean", "median", "quantile")


@pytest.mark.parametrize(
    ("aggregate", "unit"), list(itertools.product(AGGREGATES, ["mean", "sum"]))
)
def test_equals_the_formula(
    observed: Callable[..., Observations], aggregate: str, unit: str
) -> None:
    rng = np.random.default_rng(8)
    drawn = {
        f"r{n}-{k}": ProbedLikelihoods(n, -2.0 * n, -rng.exponential(n, size=k))
        for n, k in itertools.product((1, 30), (1, 4, 5))
    }
    scores = IcpSp(aggregate=aggregate, unit=unit).score(observed({MaskedProbes(): drawn}))
    assert scores.ids == tuple(drawn)
    for id_, value in zip(scores.ids, scores.values, strict=True):
        assert value == pytest.approx(slow(drawn[id_], aggregate, unit), rel=1e-12)


@pytest.mark.parametrize("quantile", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_quantiles_equal_the_formula(
    observed: Callable[..., Observations], quantile: float
) -> None:
    drawn = ProbedLikelihoods(3, -20.0, np.array([-4.0, -8, -9, -11, -30]))
    attack = IcpSp(aggregate="quantile", quantile=quantile)
    value = attack.score(observed({MaskedProbes(): {"a": drawn}})).values.item()
    assert value == pytest.approx(slow(drawn, "quantile", "mean", quantile), rel=1e-12)


def test_a_wrong_source_is_told_all_that_there_are() -> None:
    with pytest.raises(ValueError, match="expected 'mask', 'generate' or 'file'"):
        IcpSp(source="foo")  # type: ignore[arg-type]


def test_aggregates_and_units_differ(observed: Callable[..., Observations]) -> None:
    drawn = ProbedLikelihoods(2, -10.0, np.array([-4.0, -8, -9]))
    seen = observed({MaskedProbes(): {"a": drawn}})
    found = {a: IcpSp(aggregate=a).score(seen).values.item() for a in AGGREGATES}
    assert found == {"min": -3.0, "mean": pytest.approx(-1.5), "median": -1.0, "quantile": -2.0}
    assert IcpSp(unit="sum").score(seen).values.item() == -6.0


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
    attack = IcpSp(
        probes=3, rate=0.3, level="token", placeholder="_", seed=7, join="user", aggregate="mean"
    )
    probed = MaskedProbes(probes=3, rate=0.3, level="token", placeholder="_", seed=7, join="user")
    assert attack.signals() == (probed,)
    assert IcpSp(aggregate="mean", unit="sum").signals() == IcpSp().signals()
    guided = IcpSp(strategy="max_k", rate=0.2, level="token", join="plain")
    probe = GuidedProbes(strategy="max_k", rate=0.2, level="token", join="plain")
    assert guided.signals() == (probe,)
    official = IcpSp(probes=3, rate=0.7, seed=2, parity="official")
    assert official.signals() == (OfficialProbes(probes=3, rate=0.7, seed=2),)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"probes": 0}, "got probes=0, expected at least 1"),
        ({"rate": 1.1}, "got rate=1.1, expected a share above 0 and at most 1"),
        ({"level": "line"}, "got level='line', expected one of word, token, character"),
        ({"join": "before"}, "got join='before', expected one of turn, user, plain"),
        ({"aggregate": "max"}, "got aggregate='max', expected one of min, mean, median, quant"),
        ({"strategy": "most"}, "got strategy='most', expected"),
        ({"strategy": "min_k", "probes": 2, "seed": 1}, "strategy=min_k needs no probes, seed"),
        ({"parity": "exact"}, "got parity='exact', expected 'none' or 'official'"),
        ({"parity": "official", "join": "user"}, "parity=official fixes join: leave join out"),
        ({"parity": "official", "unit": "sum", "level": "token"}, "fixes level, unit: leave level"),
        ({"unit": "max"}, "got unit='max', expected 'mean' or 'sum'"),
        ({"aggregate": "quantile", "quantile": 1.5}, "got quantile=1.5, expected a share from 0"),
        ({"quantile": 0.1}, "got quantile=0.1, which says nothing without aggregate=quantile"),
    ],
)
def test_refuses_what_makes_no_sense(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        IcpSp(**fields)
