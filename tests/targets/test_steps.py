"""Batched steps of gradient ascent are those of Algorithm 1, for every kind of model."""

from typing import Any

import numpy as np
import pytest
import torch
from open_models import CASTING, FAMILIES, VOCABULARY, opened, random_model, verbatim

from unseen.targets.inside import look
from unseen.targets.inside.steps import check_step
from unseen.targets.looks import StepLook
from unseen.types import Passage

PADDING_ID = 2
FEATURES = ("loss", "logit", "projection", "loss_after", "logit_after", "projection_after", "drift")


def passages(*, several: bool, seed: int = 0) -> list[Passage]:
    """Of several lengths, with tokens that repeat and the padding's own id among them."""
    rng = np.random.default_rng(seed)
    found = []
    for length in (5, 9, 14, 9):
        ids = rng.integers(3, VOCABULARY, size=length)
        ids[1] = ids[3]
        ids[2] = PADDING_ID
        places = range(length - 3, length) if several and length > 5 else (length - 1,)
        found.append(Passage(tuple(ids.tolist()), tuple(places)))
    return found


def direction(look_: StepLook, width: int = 32) -> Any:
    rows = look_.directions(width)
    assert rows is not None
    return rows[0]


def expected(model: Any, rows: list[Passage], one: StepLook, **more: Any) -> list[dict[str, float]]:
    return [verbatim(model, row, one.eta, direction(one), **more) for row in rows]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("several", [False, True])
def test_every_feature_is_that_of_algorithm_1(family: str, padding: str, several: bool) -> None:
    # In double precision transformers itself gives no numbers for rows of this one that are all filling.
    single = family == "gemma2" and padding == "left"
    model = random_model(family, torch.float32 if single else torch.float64)
    ready, rows = opened(model, padding=padding), passages(several=several)
    looks = [StepLook(eta=1e-2), StepLook(eta=1e-1)]
    assert check_step(ready, looks, rows[0]).reason is None
    for one, seen in zip(looks, look(ready, looks, rows), strict=True):
        for mine, theirs in zip(seen, expected(model, rows, one), strict=True):
            assert not mine["literal"]
            for name in FEATURES:
                relative, absolute = (1e-5 * single, 1e-5) if family in CASTING else (1e-9, 1e-12)
                assert np.ravel(mine[name])[0] == pytest.approx(
                    theirs[name], rel=relative, abs=absolute
                ), name


@pytest.mark.parametrize("family", ["llama tied", "gpt2", "gemma2"])
def test_literal_steps_are_those_of_algorithm_1(family: str) -> None:
    model = random_model(family)
    rows, one = passages(several=True), StepLook(literal=True)
    (seen,) = look(opened(model), [one], rows)
    for mine, theirs in zip(seen, expected(model, rows, one), strict=True):
        assert mine["literal"]
        for name in FEATURES:
            assert np.ravel(mine[name])[0] == pytest.approx(theirs[name], rel=1e-9, abs=1e-9), name
