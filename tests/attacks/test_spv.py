from collections.abc import Callable
from math import exp
from typing import Any

import numpy as np
import pytest

from unseen import attacks
from unseen.attacks.spv import SelfPromptedVariation
from unseen.signals.base import REFERENCE, TARGET, Observations
from unseen.signals.neighbours import NeighbourLikelihoods, RefilledLikelihoods
from unseen.signals.text import CommonText, SameText

TARGETS = NeighbourLikelihoods(4, -2.0, np.array([4, 5]), np.array([-8.0, -5.0]))
REFERENCES = NeighbourLikelihoods(4, -4.0, np.array([4, 5]), np.array([-8.0, -10.0]))


def seen(target: Any = TARGETS, reference: Any = REFERENCES) -> dict[Any, Any]:
    return {
        RefilledLikelihoods(): {"a": target},
        RefilledLikelihoods(of=REFERENCE): {"a": reference},
        SameText(of=REFERENCE): {"a": CommonText(9)},
    }


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {},
            (exp(-0.5) - (exp(-2) + exp(-1)) / 2) - (exp(-1) - (exp(-2) + exp(-2)) / 2),
        ),
        ({"log": True}, (-0.5 + 1.5) - (-1 + 2)),
    ],
)
def test_equals_the_formula(
    observed: Callable[..., Observations], fields: dict[str, Any], expected: float
) -> None:
    scores = SelfPromptedVariation(**fields).score(observed(seen()))
    assert scores.values.item() == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_tokens_are_counted_as_the_target_has_them(observed: Callable[..., Observations]) -> None:
    cut = NeighbourLikelihoods(8, -4.0, np.array([9, 9]), np.array([-8.0, -10.0]))
    one, other = (
        SelfPromptedVariation().score(observed(seen(reference=r))) for r in (REFERENCES, cut)
    )
    assert one.values.tolist() == other.values.tolist(), "the text is as likely, in other tokens"


def test_other_neighbours_are_not_compared(observed: Callable[..., Observations]) -> None:
    fewer = NeighbourLikelihoods(4, -4.0, np.array([4]), np.array([-8.0]))
    scores = SelfPromptedVariation().score(observed(seen(reference=fewer)))
    assert scores.unscored == {"a": "the two models read different neighbours of this record"}


def test_unlikely_texts_differ_in_logarithms(observed: Callable[..., Observations]) -> None:
    low = [
        NeighbourLikelihoods(1, -2000.0 + d, np.array([1]), np.array([-2001.0])) for d in (0.5, 0)
    ]
    made = observed(seen(*low))
    assert SelfPromptedVariation().score(made).values.item() == 0
    assert SelfPromptedVariation(log=True).score(made).values.item() == pytest.approx(0.5)


def test_fields_say_what_is_measured() -> None:
    spec = "spv[neighbours=4,filler=./t5,span=3,rate=0.2,buffer=2,top_k=7,seed=1,log=True]"
    attack = attacks.create(spec)
    fields = {
        "neighbours": 4,
        "filler": "./t5",
        "span": 3,
        "rate": 0.2,
        "buffer": 2,
        "top_k": 7,
        "seed": 1,
    }
    assert attack.signals() == (
        *(RefilledLikelihoods(of=of, **fields) for of in (TARGET, REFERENCE)),
        SameText(of=REFERENCE),
    )
    with pytest.raises(ValueError, match="got rate=0"):
        SelfPromptedVariation(rate=0.0)
    assert "spv" not in attacks.default()
