from collections.abc import Callable

import numpy as np
import pytest

from unseen import attacks
from unseen.attacks.neighborhood import Neighborhood
from unseen.signals.base import Observations
from unseen.signals.neighbours import NeighbourLikelihoods, SwappedLikelihoods

SEEN = NeighbourLikelihoods(4, -6.0, np.array([4, 5, 3]), np.array([-8.0, -10.0, -9.0]))


def test_equals_the_formula(observed: Callable[..., Observations]) -> None:
    scores = Neighborhood().score(observed({SwappedLikelihoods(): {"a": SEEN}}))
    assert scores.values.item() == pytest.approx(-6 / 4 - (-8 / 4 - 10 / 5 - 9 / 3) / 3, rel=1e-12)


def test_fields_say_what_is_measured() -> None:
    attack = attacks.create("neighborhood[neighbours=3,top_k=2,filler=./bert,dropout=0.5,seed=4]")
    assert attack.signals() == (
        SwappedLikelihoods(neighbours=3, top_k=2, filler="./bert", dropout=0.5, seed=4),
    )
    with pytest.raises(ValueError, match="got neighbours=0"):
        Neighborhood(neighbours=0)


def test_it_is_run_where_it_is_named() -> None:
    assert "neighborhood" in attacks.everything()
    assert "neighborhood" not in attacks.default()
