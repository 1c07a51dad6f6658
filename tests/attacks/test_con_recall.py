from collections.abc import Callable, Sequence

import numpy as np
import pytest

from unseen.attacks.con_recall import ConRecall
from unseen.attacks.recall import Recall
from unseen.signals.base import Observations
from unseen.signals.prefixed import PrefixedStatistics
from unseen.signals.token_stats import TokenStatistics
from unseen.types import TokenStats

NON = PrefixedStatistics(known="nonmembers", shots=7)
MEM = PrefixedStatistics(known="members", shots=7)


def slow(plain: Sequence[float], non: Sequence[float], mem: Sequence[float], gamma: float) -> float:
    mean = [sum(x) / len(x) for x in (plain, non, mem)]
    return (mean[1] - gamma * mean[2]) / mean[0]


@pytest.mark.parametrize("gamma", [0.0, 0.1, 0.5, 1.0])
def test_equals_the_formula(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats], gamma: float
) -> None:
    rng = np.random.default_rng(7)
    drawn = {f"r{n}": (-rng.exponential(1, size=(3, n))).tolist() for n in (1, 5, 40)}
    signals = (TokenStatistics(), NON, MEM)
    seen = observed({s: {i: tokens(x[j]) for i, x in drawn.items()} for j, s in enumerate(signals)})
    scores = ConRecall(gamma=gamma).score(seen)
    for id_, value in zip(scores.ids, scores.values, strict=True):
        assert value == pytest.approx(slow(*drawn[id_], gamma), rel=1e-12)
    if gamma == 0:
        assert scores.values.tolist() == Recall().score(seen).values.tolist()


def test_who_gains_from_members_is_the_member(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    seen = observed(
        {
            TokenStatistics(): {"member": tokens([-1.0]), "other": tokens([-1.0])},
            NON: {"member": tokens([-1.2]), "other": tokens([-1.0])},
            MEM: {"member": tokens([-0.8]), "other": tokens([-1.0])},
        }
    )
    assert ConRecall().score(seen).values == pytest.approx([0.8, 0.5])


def test_what_has_no_ratio_is_unscored(
    observed: Callable[..., Observations], tokens: Callable[..., TokenStats]
) -> None:
    one = tokens([-1.0])
    seen = observed(
        {
            TokenStatistics(): {"certain": tokens([0.0]), "inf": one, "missing": one},
            NON: {"certain": one, "inf": tokens([-np.inf]), "missing": one},
            MEM: {"certain": one, "inf": tokens([-np.inf]), "missing": "no known members"},
        }
    )
    assert ConRecall().score(seen).unscored == {
        "certain": "the model is certain of every token: a ratio to its log-probability is noise",
        "inf": "the formula has no finite value here",
        "missing": "no known members",
    }


def test_refuses_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="got shots=0, expected at least 1"):
        ConRecall(shots=0)
    for gamma in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"got gamma=.*, expected a number of at least 0"):
            ConRecall(gamma=gamma)
