"""DP-SGD against slow twins: single gradients, clipping, noise, and what the accountants of Opacus say."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from examples import VOCABULARY, some_examples

from unseen.errors import ConfigError, TargetError, UsageError
from unseen.targets.loss import batch_loss, record_losses
from unseen.training import private
from unseen.training.checkpoint import Checkpoints
from unseen.training.finetune import Recipe, finetune
from unseen.training.recipe import Privacy
from unseen.types import Encoded

pytest.importorskip("opacus", reason="opacus is not installed (extra dp)")

SILENT = 1e-9  # noise multiplier: as good as none; so little is counted by rdp alone


def _recipe(method: str = "lora", **choices: object) -> Recipe:
    seen = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "delta": 1e-3, "seed": 3}
    of_privacy = {
        name: choices.pop(name) for name in [*seen, "epsilon", "accountant"] if name in choices
    }
    if "epsilon" in of_privacy:
        del seen["noise_multiplier"]
    made = {"batch_size": 4, "lora_rank": 2, "schedule": "constant", "seed": 1, **choices}
    return Recipe(method=method, privacy=Privacy(**{**seen, **of_privacy}), **made)


def _slow_gradient(model: torch.nn.Module, example: Encoded) -> list[torch.Tensor]:
    """One record alone: the gradient of its mean loss."""
    model.zero_grad()
    batch_loss(model, [example]).backward()
    return [w.grad.clone() for w in model.parameters() if w.requires_grad]


def _prepared(method: str, family: str, *, tied: bool = True) -> torch.nn.Module:
    """A model whose weights that learn are ready, an adapter's no longer zero."""
    model = tiny.model(family, VOCABULARY)
    if tied and family == "llama":
        model.config.tie_word_embeddings = True
        model.tie_weights()
    if method == "full":
        return model.requires_grad_()
    plain = Recipe(method=method, lora_rank=2, epochs=1, learning_rate=1e-2)
    return finetune(model, some_examples(4), plain)


def _steps(model: torch.nn.Module, recipe: Recipe, n: int) -> private.PrivateSteps:
    weights = [w for w in model.parameters() if w.requires_grad]
    return private.PrivateSteps(model, torch.optim.SGD(weights, lr=1.0), recipe, n)


@pytest.mark.parametrize(
    ("method", "family", "tied"),
    [
        ("lora", "llama", True),
        ("lora", "gpt2", True),
        ("lora", "gpt_neox", True),
        ("lora", "gemma2", True),
        ("full", "llama", False),
        ("full", "llama", True),
        ("full", "gpt_neox", True),
    ],
)
@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_step_is_the_clipped_sum_of_single_gradients(
    method: str, family: str, tied: bool, accumulate: int
) -> None:
    """Also in parts, and with padding; nothing of a record's batch mates is in its gradient."""
    examples = some_examples(7, seed=4)
    slow = _prepared(method, family, tied=tied)
    singles = [_slow_gradient(slow, example) for example in examples]
    norms = [math.sqrt(sum(float(g.square().sum()) for g in single)) for single in singles]
    limit = float(np.median(norms))
    expected = [
        sum(g * min(1.0, limit / norm) for g, norm in zip(of_weight, norms, strict=True))
        for of_weight in zip(*singles, strict=True)
    ]
    model = _prepared(method, family, tied=tied)
    recipe = _recipe(method, max_grad_norm=limit, accumulate=accumulate)
    steps = _steps(model, recipe, 20)
    loss = steps.gradients(examples, 0)
    assert loss == pytest.approx(record_losses(slow, examples).mean().item(), rel=1e-6)
    weights = [w for w in model.parameters() if w.requires_grad]
    for weight, sum_ in zip(weights, expected, strict=True):
        torch.testing.assert_close(weight.summed_grad, sum_.to(weight.dtype), rtol=1e-4, atol=1e-6)
    steps.close()
    assert not any(hasattr(w, "grad_sample") for w in model.parameters())
    assert all(not m._backward_hooks and not m._forward_hooks for m in model.modules())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_record_adds_more_than_the_limit(dtype: str) -> None:
    model = _prepared("lora", "llama")
    model.float()
    steps = _steps(model, _recipe(max_grad_norm=0.01, dtype=dtype), 20)
    for example in some_examples(4):
        steps.gradients([example], 0)
        norm = math.sqrt(sum(float(w.summed_grad.square().sum()) for w in steps._weights))
        assert 0.0099 < norm <= 0.01 * (1 + 1e-5)
        steps.optimizer.zero_grad()


def test_an_empty_draw_is_a_step_of_noise_alone() -> None:
    """Of the announced size: multiplier · limit / expected batch."""
    model = _prepared("lora", "llama")
    steps = _steps(model, _recipe(noise_multiplier=3.0, max_grad_norm=0.5, lora_rank=2), 20)
    before = [w.detach().clone() for w in steps._weights]
    assert steps.gradients([], 0) is None
    steps.optimizer.step()
    moved = torch.cat(
        [(w.detach() - b).flatten() for w, b in zip(steps._weights, before, strict=True)]
    )
    assert float(moved.std()) == pytest.approx(3.0 * 0.5 / 4, rel=0.1)
    assert abs(float(moved.mean())) < 0.05
    steps.optimizer.zero_grad()
    assert steps.gradients(some_examples(2), 1) is not None  # and the next step is a step again


def test_noise_is_that_of_its_seed_and_otherwise_of_none() -> None:
    def weights(seed: int | None) -> torch.Tensor:
        state = torch.get_rng_state()
        model = tiny.model("llama", VOCABULARY, dtype=torch.float32)
        recipe = _recipe(epochs=1, seed=seed)
        trained = finetune(model, some_examples(12), recipe)
        assert torch.equal(state, torch.get_rng_state())
        return torch.cat([w.detach().flatten() for w in trained.parameters() if w.requires_grad])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))
    assert not torch.equal(weights(None), weights(None))


@pytest.mark.parametrize("method", ["lora", "full"])
def test_without_noise_it_learns_and_with_noise_it_does_not(method: str) -> None:
    examples = some_examples(16)
    losses = {}
    for noise in (SILENT, 50.0):
        model = tiny.model("llama", VOCABULARY, dtype=torch.float32)
        before = batch_loss(model, examples).item()
        told: list[float] = []
        recipe = _recipe(
            method,
            noise_multiplier=noise,
            accountant="rdp",
            epochs=8,
            learning_rate=5e-3,
            max_grad_norm=1.0,
        )
        trained = finetune(
            model, examples, recipe, progress=lambda _s, _n, loss, to=told: to.append(loss)
        )
        losses[noise] = batch_loss(trained, examples).item()
        assert len(told) == recipe.steps(16) == 32
        assert not any(module.training for module in trained.modules())
        if method == "lora":
            learned = [n for n, w in trained.named_parameters() if w.requires_grad]
            assert all("lora" in name for name in learned)
    assert losses[SILENT] < before - 0.3
    assert losses[50.0] > losses[SILENT] + 0.2


@pytest.mark.parametrize("accountant", ["prv", "rdp"])
def test_epsilon_is_what_the_accountant_says_after_each_counted_step(accountant: str) -> None:
    from opacus.accountants import create_accountant

    recipe = _recipe(noise_multiplier=0.8, accountant=accountant, batch_size=10, epochs=2)
    spent = private.budget(recipe, 45)
    assert (spent.sample_rate, spent.steps) == (10 / 45, 10)
    alone = create_accountant(mechanism=accountant)
    for _ in range(10):
        alone.step(noise_multiplier=0.8, sample_rate=10 / 45)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert spent.epsilon() == pytest.approx(alone.get_epsilon(delta=1e-3), rel=1e-9)
    assert spent.epsilon(0) == 0.0 < spent.epsilon(3) < spent.epsilon()


@pytest.mark.slow
def test_noise_for_an_epsilon_spends_no_more() -> None:
    recipe = _recipe(epsilon=4.0, accountant="rdp", batch_size=10, epochs=2)
    spent = private.budget(recipe, 45)
    assert 3.9 < spent.epsilon() <= 4.0
    unsaid = Recipe(method="lora", privacy=Privacy(noise_multiplier=1.0))
    assert private.budget(unsaid, 200).delta == pytest.approx(0.1 / 200)


def test_draws_are_independent_coins() -> None:
    drawn = private.draws(_recipe(batch_size=5, epochs=200), 20)
    assert len(drawn) == 200
    assert {len(epoch) for epoch in drawn} == {4}
    batches = [batch for epoch in drawn for batch in epoch]
    sizes = np.array([len(batch) for batch in batches])
    assert sizes.mean() == pytest.approx(5, abs=0.25)
    assert sizes.var() == pytest.approx(20 * 0.25 * 0.75, rel=0.2)
    of_record = np.bincount([i for batch in batches for i in batch], minlength=20) / len(batches)
    assert np.abs(of_record - 0.25).max() < 0.07
    assert all(len(set(batch)) == len(batch) for batch in batches)
    assert drawn != private.draws(_recipe(batch_size=5, epochs=200, seed=4), 20)


@pytest.mark.parametrize(
    ("choices", "n", "said"),
    [
        ({"batch_size": 21}, 20, "there are 20 records"),
        ({"batch_size": 1}, 20, "would draw no record"),
        ({"delta": 0.05}, 20, "has to be below"),
        (
            {"epsilon": 1e-6, "accountant": "rdp"},
            20,
            r"no noise fits.* the smallest epsilon .* is 0\.0",
        ),
        ({"epsilon": 1e-9, "accountant": "prv"}, 20, "the smallest epsilon .* is 0.05"),
        ({"epsilon": 900.0, "accountant": "prv"}, 20, "prv counts for minutes"),
        ({"noise_multiplier": 1e-4, "accountant": "prv"}, 20, "prv counts for minutes"),
    ],
)
def test_budgets_that_protect_nobody(choices: dict[str, object], n: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        private.budget(_recipe(**choices), n)


def test_a_whole_batch_can_be_accounted() -> None:
    recipe = _recipe(batch_size=20, noise_multiplier=2.0, accountant="rdp")
    assert 0 < private.budget(recipe, 20).epsilon() < 50


def test_what_gives_no_single_gradients_is_refused() -> None:
    model = tiny.model("llama", VOCABULARY, dtype=torch.float32)
    model.model.gradient_checkpointing = True
    with pytest.raises(UsageError, match="checkpoint"):
        finetune(model, some_examples(), _recipe("full"))
    # Positions of GPT-2 are looked up once for the whole batch.
    with pytest.raises(UsageError, match="gradient of each record"):
        finetune(
            tiny.model("gpt2", VOCABULARY, dtype=torch.float32), some_examples(), _recipe("full")
        )
    with pytest.raises(ConfigError, match="come first"):
        finetune(
            _prepared("full", "llama"), some_examples(3), _recipe("full"), partitions=[0, 1, 2]
        )


@pytest.mark.parametrize("method", ["prefix", "prompt", "ia3"])
def test_methods_without_single_gradients(method: str) -> None:
    with pytest.raises(ConfigError, match="privacy"):
        _recipe(method)


def test_a_broken_model_is_found_before_noise_hides_it() -> None:
    model = tiny.model("llama", VOCABULARY, dtype=torch.float32)
    with torch.no_grad():
        model.lm_head.weight[0, 0] = math.nan
    with pytest.raises(TargetError, match="untrained model"):
        finetune(model, some_examples(), _recipe())
    assert not any(hasattr(w, "grad_sample") for w in model.parameters())


def test_a_private_training_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """With other draws and other noise, but as many steps: what is spent is what was announced."""
    recipe = _recipe(epochs=2, batch_size=4, learning_rate=1e-2, seed=None)

    class StopError(Exception):
        pass

    def stop(step: int, _steps: int, _loss: float) -> None:
        if step == 4:
            raise StopError

    def checkpoints() -> Checkpoints:
        return Checkpoints(tmp_path / "state.safetensors", "one", every_steps=1)

    def model() -> torch.nn.Module:
        return tiny.model("llama", VOCABULARY, dtype=torch.float32)

    with pytest.raises(StopError):
        finetune(model(), some_examples(12), recipe, progress=stop, checkpoints=checkpoints())
    told: list[int] = []
    trained = finetune(
        model(),
        some_examples(12),
        recipe,
        progress=lambda step, _n, _l: told.append(step),
        checkpoints=checkpoints(),
    )
    assert told == list(range(1, private.budget(recipe, 12).steps + 1))
    assert not any(hasattr(w, "grad_sample") for w in trained.parameters())


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 8.0, "noise_multiplier": 1.0},
        {},
        {"epsilon": -1.0},
        {"epsilon": 1e9},
        {"epsilon": math.nan},
        {"noise_multiplier": 0.0},
        {"epsilon": 8.0, "delta": 1.0},
        {"epsilon": 8.0, "max_grad_norm": 0.0},
        {"epsilon": 8.0, "accountant": "gdp"},
    ],
)
def test_privacy_that_makes_no_sense(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(reversed(wrong), "neither")):
        Privacy(**wrong)
