"""Batched steps of gradient ascent are those of Algorithm 1, for every kind of model."""

from typing import Any

import numpy as np
import pytest
import torch
from open_models import (
    CASTING,
    FAMILIES,
    OTHERS,
    adapted_model,
    opened,
    other_model,
    passages,
    random_model,
    verbatim,
)

from unseen.targets.inside import look
from unseen.targets.inside.model import final_norm
from unseen.targets.inside.steps import check_step
from unseen.targets.looks import StepLook, Vectors, Weights
from unseen.types import Passage

FEATURES = ("loss", "logit", "projection", "loss_after", "logit_after", "projection_after", "drift")


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


@pytest.mark.parametrize("family", ["llama tied", "gpt2"])
@pytest.mark.parametrize("padding", ["right", "left"])
def test_nobody_else_in_the_batch_has_a_say(family: str, padding: str) -> None:
    ready = opened(random_model(family), padding=padding)
    rows, one = passages(several=True) + passages(several=False, seed=1), StepLook(eta=0.03)
    (together,) = look(ready, [one], rows)
    (turned,) = look(ready, [one], rows[::-1])
    alone = [look(ready, [one], [row])[0][0] for row in rows]
    for mine, other, single in zip(together, turned[::-1], alone, strict=True):
        for name in FEATURES:
            value = np.ravel(mine[name])[0]
            assert value == pytest.approx(np.ravel(other[name])[0], rel=1e-9, abs=1e-12)
            assert value == pytest.approx(np.ravel(single[name])[0], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("family", ["gpt2", "qwen3"])
@pytest.mark.parametrize("literal", [False, True])
def test_a_step_of_no_length_moves_nothing(family: str, literal: bool) -> None:
    ready = opened(random_model(family))
    (seen,) = look(ready, [StepLook(eta=0.0, literal=literal)], passages(several=False))
    assert all(float(one["drift"]) == 0 for one in seen)
    assert all(float(one["cosine"]) == pytest.approx(1) for one in seen)
    assert check_step(ready, [StepLook()], passages(several=False)[0]).floor == 0


def test_numbers_are_the_same_twice_though_the_model_has_dropout() -> None:
    model, rows = random_model("gpt2"), passages(several=False)
    first, second = (look(opened(model), [StepLook()], rows)[0] for _ in range(2))
    for mine, other in zip(first, second, strict=True):
        assert all(np.array_equal(mine[name], other[name]) for name in FEATURES)


@pytest.mark.parametrize("literal", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_the_weights_are_as_before(
    literal: bool, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model("llama tied", torch.float32)
    flags = [i % 2 == 0 for i, _ in enumerate(model.parameters())]
    for weight, flag in zip(model.parameters(), flags, strict=True):
        weight.requires_grad_(flag)
    before = [weight.detach().clone() for weight in model.parameters()]
    ready, one = opened(model), StepLook(literal=literal)
    if fails:
        calls = iter(range(100))

        def interrupted(*_: object) -> None:
            if next(calls) == 2:
                raise KeyboardInterrupt

        model.model.layers[1].register_forward_hook(interrupted)
        with pytest.raises(KeyboardInterrupt):
            look(ready, [one], passages(several=False))
    else:
        look(ready, [one], passages(several=False))
    for weight, old, flag in zip(model.parameters(), before, flags, strict=True):
        assert torch.equal(weight, old)
        assert weight.requires_grad == flag
        assert weight.grad is None
    hooks = sum(len(module._forward_hooks) for module in model.modules())
    assert hooks == int(fails)


@pytest.mark.parametrize("family", ["llama untied, biases", "gpt2", "gemma3"])
def test_states_before_the_final_norm(family: str) -> None:
    model, rows = random_model(family), passages(several=True)
    ready, one = opened(model), StepLook(state="before")
    norm = final_norm(ready)
    expected_ = expected(model, rows, one, before_norm=norm)
    for seen in (
        look(ready, [one], rows)[0],
        look(ready, [StepLook(state="before", literal=True)], rows)[0],
    ):
        for mine, theirs in zip(seen, expected_, strict=True):
            for name in (*FEATURES, "norm"):
                tolerance = 1e-5 if family in CASTING else 1e-9
                assert np.ravel(mine[name])[0] == pytest.approx(
                    theirs[name], rel=tolerance, abs=1e-9
                )


def test_axes() -> None:
    ready, rows = opened(random_model("llama tied")), passages(several=False)
    given = Vectors(np.eye(32)[:2] * 3)
    looks = [
        StepLook(axes=3, seed=5),
        StepLook(axis="state"),
        StepLook(axis="given", given=given),
        StepLook(axis="given", given=Vectors(-np.eye(32)[1])),
    ]
    several, own, two, turned = look(ready, looks, rows)
    assert several[0]["projection"].shape == (3,)
    for a, b, c in zip(own, two, turned, strict=True):
        # Along h itself: |h|, and what is left of it after the step.
        assert float(a["projection"][0]) == pytest.approx(float(a["norm"]))
        h_after = np.sqrt(
            float(a["drift"]) ** 2
            - float(a["norm"]) ** 2
            + 2 * float(a["norm"]) * a["projection_after"][0]
        )
        assert float(a["projection_after"][0]) == pytest.approx(float(a["cosine"]) * h_after)
        assert b["projection"][1] == pytest.approx(-c["projection"][0])
        assert abs(b["projection"][0]) <= float(b["norm"])
    with pytest.raises(ValueError, match="the directions have 3 numbers, a state has 32"):
        look(ready, [StepLook(axis="given", given=Vectors(np.ones(3)))], rows)


def test_directions_are_refused_that_are_none() -> None:
    for wrong in (np.zeros((1, 4)), np.array([[np.nan, 1]]), np.zeros((0, 4)), np.ones((1, 2, 3))):
        with pytest.raises(ValueError, match="direction"):
            Vectors(wrong)


@pytest.mark.parametrize("weights", ["all", "adapter"])
@pytest.mark.parametrize("dora", [False, True])
def test_adapters(weights: Weights, dora: bool) -> None:
    model, own = adapted_model(dora=dora)
    ready = opened(model, only=own)
    rows, one = passages(several=True), StepLook(weights=weights, eta=0.05)
    reason = check_step(ready, [one], rows[0]).reason
    assert (reason is not None) == dora
    expected_ = expected(model, rows, one, weights=None if weights == "all" else own)
    for mine, theirs in zip(look(ready, [one], rows)[0], expected_, strict=True):
        assert mine["literal"] == dora
        for name in FEATURES:
            assert np.ravel(mine[name])[0] == pytest.approx(theirs[name], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_not_known_is_done_literally(kind: str) -> None:
    model, single = other_model(kind), kind == "experts"
    ready, rows, one = opened(model), passages(several=False)[:2], StepLook(eta=1e-3)
    assert check_step(ready, [one], rows[0]).reason is not None
    (seen,) = look(ready, [one], rows)
    for mine, theirs in zip(seen, expected(model, rows, one), strict=True):
        assert mine["literal"]
        for name in FEATURES:
            tolerance = 1e-3 if single else 1e-6
            assert np.ravel(mine[name])[0] == pytest.approx(theirs[name], rel=tolerance, abs=1e-9)


def test_a_layer_that_goes_around_its_module_is_found_out() -> None:
    model = random_model("llama tied")
    projection = model.model.layers[1].mlp.down_proj

    class Around(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.linear(x, projection.weight)

    model.model.layers[1].mlp.extra = projection  # its weight is the model's, its call is not
    model.model.layers[1].mlp.down_proj = Around()
    check = check_step(opened(model), [StepLook()], passages(several=False)[0])
    assert check.reason is not None
    assert check.difference is not None
    assert check.difference > 0.01


def test_numbers_that_are_not_finite_stay_with_their_passage() -> None:
    model = random_model("gpt2")
    with torch.no_grad():
        model.transformer.wpe.weight[12] = torch.nan
    (seen,) = look(opened(model), [StepLook()], passages(several=False))
    assert [bool(np.isfinite(one["drift"])) for one in seen] == [True, True, False, True]
