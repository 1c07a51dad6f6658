from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from unseen import attacks
from unseen.attacks.pac import PolarizedAugment
from unseen.signals.base import Observations
from unseen.signals.swapped import Polarities, SwappedPolarity


def slow(own: float, swapped: list[float]) -> float:
    return -(own - sum(swapped) / len(swapped))


def test_equals_the_formula(observed: Callable[..., Observations]) -> None:
    drawn = {"a": (3.0, [4.0, 6.5]), "b": (2.0, [1.0])}
    seen = observed(
        {SwappedPolarity(): {i: Polarities(own, np.array(x)) for i, (own, x) in drawn.items()}}
    )
    scores = PolarizedAugment().score(seen)
    assert scores.values.tolist() == [slow(own, x) for own, x in drawn.values()] == [2.25, -1.0]


def test_what_is_not_finite_is_unscored(observed: Callable[..., Observations]) -> None:
    seen = observed({SwappedPolarity(): {"a": Polarities(np.inf, np.array([1.0]))}})
    assert PolarizedAugment().score(seen).unscored == {"a": "a text has no finite likelihood"}


def test_fields_say_what_is_measured() -> None:
    attack = attacks.create("pac[augments=10,swaps=0.1,top=0.1,bottom=0.5,seed=3]")
    assert attack.signals() == (SwappedPolarity("target", 10, 0.1, 0.1, 0.5, 3),)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"augments": 0}, "got augments=0, expected at least 1"),
        ({"swaps": 0.0}, "got swaps=0.0, expected a share"),
        ({"top": 1.5}, "got top=1.5, expected a share"),
        ({"bottom": 0.0}, "got bottom=0.0, expected a share"),
    ],
)
def test_refuses_what_makes_no_sense(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PolarizedAugment(**fields)
