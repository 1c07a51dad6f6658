from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from unseen import attacks
from unseen.attacks.icp_ref import IcpRef
from unseen.signals.base import Observations
from unseen.signals.probed import ProbedLikelihoods
from unseen.signals.retrieval import RetrievedProbes

DRAWN = ProbedLikelihoods(4, -12.0, np.array([-4.0, -8.0, -9.0, -15.0]))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (-12 + 4) / 4),
        ({"unit": "sum"}, -12 + 4),
        ({"aggregate": "mean"}, (-8 - 4 - 3 + 3) / 16),
        ({"aggregate": "median", "unit": "sum"}, (-4 - 3) / 2),
        ({"aggregate": "quantile", "quantile": 1.0}, 3 / 4),
    ],
)
def test_equals_the_formula(
    observed: Callable[..., Observations], fields: dict[str, Any], expected: float
) -> None:
    scores = IcpRef(**fields).score(observed({RetrievedProbes(): {"a": DRAWN}}))
    assert scores.values.item() == pytest.approx(expected, rel=1e-12)


def test_fields_say_what_is_measured() -> None:
    attack = attacks.create("icp_ref[probes=3,encoder=./minilm,join=plain,aggregate=mean]")
    assert attack.signals() == (RetrievedProbes(probes=3, encoder="./minilm", join="plain"),)
    assert IcpRef(aggregate="mean", unit="sum").signals() == IcpRef().signals()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"probes": 0}, "got probes=0, expected at least 1"),
        ({"encoder": ""}, "got no encoder, expected tfidf"),
        ({"join": "after"}, "got join='after', expected one of turn, user, plain"),
        ({"aggregate": "max"}, "got aggregate='max'"),
        ({"unit": "max"}, "got unit='max'"),
    ],
)
def test_refuses_what_makes_no_sense(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        IcpRef(**fields)
