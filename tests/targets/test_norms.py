"""Norms of gradients, batched, are those of automatic differentiation, passage by passage."""

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
)

from unseen.targets.inside import look
from unseen.targets.inside.norms import check_norm
from unseen.targets.looks import NormLook, Weights
from unseen.types import Passage


def slow(model: Any, passage: Passage, only: list[str] | None = None) -> float:
    """The norm of the gradient of the mean loss, as it is written."""
    learning = [w for n, w in model.named_parameters() if only is None or n in only]
    for weight in learning:
        weight.requires_grad_()
    logits = model(input_ids=torch.tensor([passage.ids]), use_cache=False).logits[0]
    losses = [-logits[t - 1].log_softmax(-1)[passage.ids[t]] for t in passage.places]
    gradients = torch.autograd.grad(torch.stack(losses).mean(), learning, allow_unused=True)
    for weight in model.parameters():
        weight.requires_grad_(requires_grad=False)
    total = sum(float(g.double().pow(2).sum()) for g in gradients if g is not None)
    return float(np.sqrt(total))


def norms(ready: Any, rows: list[Passage], weights: Weights = "all") -> list[float]:
    (seen,) = look(ready, [NormLook(weights)], rows)
    return [float(one["norm"]) for one in seen]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("several", [False, True])
def test_batched_norms_are_those_of_autograd(family: str, padding: str, several: bool) -> None:
    # In double precision transformers itself gives no numbers for rows of this one that are all filling.
    single = family == "gemma2" and padding == "left"
    model = random_model(family, torch.float32 if single else torch.float64)
    ready, rows = opened(model, padding=padding), passages(several=several)
    (seen,) = look(ready, [NormLook()], rows)
    tolerance = 1e-5 if single else 1e-6 if family in CASTING else 1e-9
    for one, row in zip(seen, rows, strict=True):
        assert not one["literal"]
        assert one["n_tokens"] == len(row.places)
        assert float(one["norm"]) == pytest.approx(slow(model, row), rel=tolerance)


def test_long_passages_build_the_gradient_of_one_layer_at_a_time() -> None:
    model, rng = random_model("llama untied, biases"), np.random.default_rng(0)
    rows = [Passage(tuple(rng.integers(3, 60, size=n).tolist()), (n // 2, n - 1)) for n in (60, 41)]
    assert norms(opened(model), rows) == pytest.approx([slow(model, row) for row in rows], rel=1e-9)


@pytest.mark.parametrize("family", ["llama tied", "gpt2"])
@pytest.mark.parametrize("padding", ["right", "left"])
def test_nobody_else_in_the_batch_has_a_say(family: str, padding: str) -> None:
    ready = opened(random_model(family), padding=padding)
    rows = passages(several=True) + passages(several=False, seed=1)
    together = norms(ready, rows)
    assert together == pytest.approx(norms(ready, rows[::-1])[::-1], rel=1e-10)
    assert together == pytest.approx([norms(ready, [row])[0] for row in rows], rel=1e-10)


@pytest.mark.parametrize("weights", ["all", "adapter"])
@pytest.mark.parametrize("dora", [False, True])
def test_adapters(weights: Weights, dora: bool) -> None:
    model, own = adapted_model(dora=dora)
    rows, ready = passages(several=True), opened(model, only=own)
    expected = [slow(model, row, None if weights == "all" else own) for row in rows]
    assert norms(ready, rows, weights) == pytest.approx(expected, rel=1e-9)
    assert (check_norm(ready, NormLook(weights), rows[0]).reason is not None) == dora


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_not_known_is_done_literally(kind: str) -> None:
    model = other_model(kind)
    ready, rows = opened(model), passages(several=False)[:2]
    assert check_norm(ready, NormLook(), rows[0]).reason is not None
    (seen,) = look(ready, [NormLook()], rows)
    for one, row in zip(seen, rows, strict=True):
        assert one["literal"]
        tolerance = 1e-4 if kind == "experts" else 1e-6
        assert float(one["norm"]) == pytest.approx(slow(model, row), rel=tolerance)


def test_a_layer_that_goes_around_its_module_is_found_out() -> None:
    model = random_model("llama tied")
    projection = model.model.layers[1].mlp.down_proj

    class Around(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.linear(x, projection.weight)

    model.model.layers[1].mlp.extra = projection  # its weight is the model's, its call is not
    model.model.layers[1].mlp.down_proj = Around()
    rows = passages(several=False)
    ready = opened(model)
    assert "off by" in str(check_norm(ready, NormLook(), rows[0]).reason)
    assert norms(ready, rows) == pytest.approx([slow(model, row) for row in rows], rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_near(dtype: torch.dtype) -> None:
    model, rows = random_model("llama tied", torch.float32), passages(several=True)
    exact = norms(opened(model), rows)
    halved = model.to(dtype)
    ready = opened(halved)
    assert norms(ready, rows) == pytest.approx(exact, rel=0.05)
    assert check_norm(ready, NormLook(), rows[0]).reason is None


@pytest.mark.parametrize("kind", ["llama tied", "experts"])
@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_as_before(kind: str, fails: bool) -> None:
    model = other_model(kind) if kind in OTHERS else random_model(kind, torch.float32)
    flags = [i % 2 == 0 for i, _ in enumerate(model.parameters())]
    for weight, flag in zip(model.parameters(), flags, strict=True):
        weight.requires_grad_(flag)
    before = [weight.detach().clone() for weight in model.parameters()]
    rows = passages(several=False)
    if fails:

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        model.model.layers[1].register_forward_hook(interrupted)
        with pytest.raises(KeyboardInterrupt):
            look(opened(model), [NormLook()], rows)
    else:
        look(opened(model), [NormLook()], rows)
    for weight, old, flag in zip(model.parameters(), before, flags, strict=True):
        assert torch.equal(weight, old)
        assert weight.requires_grad == flag
        assert weight.grad is None
        assert not weight._post_accumulate_grad_hooks
    hooks = sum(len(module._forward_hooks) for module in model.modules())
    assert hooks == int(fails)


def test_numbers_that_are_not_finite_stay_with_their_passage() -> None:
    model = random_model("gpt2")
    with torch.no_grad():
        model.transformer.wpe.weight[12] = torch.nan
    assert np.isfinite(norms(opened(model), passages(several=False))).tolist() == [
        True,
        True,
        False,
        True,
    ]
