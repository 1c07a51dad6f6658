"""Hidden states are those that transformers gives, as means over the places that count."""

from typing import Any

import numpy as np
import pytest
import torch
from open_models import FAMILIES, adapted_model, opened, passages, random_model

from unseen.targets.inside import look
from unseen.targets.looks import StatesLook
from unseen.types import FloatArray, Passage


def slow(model: Any, passage: Passage) -> FloatArray:
    """One passage, all of its tokens, and the mean as it is written."""
    with torch.no_grad():
        out = model(input_ids=torch.tensor([passage.ids]), output_hidden_states=True)
    layers = [layer[0, list(passage.places)].float().mean(0) for layer in out.hidden_states]
    means: FloatArray = torch.stack(layers).numpy()
    return means


def states(ready: Any, rows: list[Passage]) -> list[FloatArray]:
    (seen,) = look(ready, [StatesLook()], rows)
    return [one["states"] for one in seen]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("padding", ["right", "left"])
def test_states_are_those_of_the_model(family: str, padding: str) -> None:
    model = random_model(family, torch.float32)
    rows = [*passages(several=True), Passage((5, 6, 7, 8), (1, 3))]
    for mine, row in zip(states(opened(model, padding=padding), rows), rows, strict=True):
        theirs = slow(model, row)
        assert mine.dtype == np.float32
        assert mine.shape == theirs.shape == (3, 32)
        assert mine == pytest.approx(theirs, rel=1e-4, abs=1e-4)


def test_nobody_else_in_the_batch_has_a_say() -> None:
    ready, rows = opened(random_model("gpt2")), passages(several=True)
    together = states(ready, rows)
    for mine, other, row in zip(together, states(ready, rows[::-1])[::-1], rows, strict=True):
        assert mine == pytest.approx(other, rel=1e-6)
        assert mine == pytest.approx(states(ready, [row])[0], rel=1e-6)


def test_of_an_adapter() -> None:
    model, _ = adapted_model()
    rows = passages(several=True)
    for mine, row in zip(states(opened(model), rows), rows, strict=True):
        assert mine == pytest.approx(slow(model, row), rel=1e-5, abs=1e-6)
