"""Every method learns, changes nothing but what it may, and is audited from disk as it is in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from examples import VOCABULARY, some_examples
from transformers import AutoModelForCausalLM

from unseen.errors import ConfigError, UsageError
from unseen.targets.huggingface import HFTarget
from unseen.training.finetune import Recipe, batch_loss, finetune, save
from unseen.training.recipe import RATES
from unseen.types import Batch, Encoded, Request

ADAPTERS = ("lora", "prefix", "prompt", "ia3")


def _slow_losses(model: torch.nn.Module, examples: list[Encoded], virtual: int) -> float:
    """Mean loss one record at a time; `virtual` rows of logits stand in front."""
    total, count = 0.0, 0
    for example in examples:
        logits = model(input_ids=torch.tensor([example.ids])).logits[0]
        assert len(logits) == len(example.ids) + virtual
        for place in range(1, len(example.ids)):
            if example.scored[place]:
                row = logits[virtual + place - 1].log_softmax(-1)
                total, count = total - row[example.ids[place]].item(), count + 1
    return total / count


@pytest.mark.parametrize("method", ["prefix", "prompt", "ia3"])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_adapters_learn_at_their_own_rate(method: str, family: str) -> None:
    examples = some_examples(16)
    model = tiny.model(family, VOCABULARY, dtype=torch.float32)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    untrained = batch_loss(model, examples).item()
    told: list[float] = []
    recipe = Recipe(method=method, epochs=10, batch_size=4, virtual_tokens=5)
    trained = finetune(model, examples, recipe, progress=lambda _s, _n, loss: told.append(loss))
    after = batch_loss(trained, examples).item()
    assert after < untrained - 0.05
    assert after < np.mean(told[:4])
    assert told[0] < untrained + 1  # begins near the model, not far from it
    kept = dict(trained.get_base_model().state_dict())
    for name, value in before.items():
        there = kept.get(name, kept.get(name.replace(".weight", ".base_layer.weight")))
        there = kept.get(name.replace(".bias", ".base_layer.bias")) if there is None else there
        assert torch.equal(there, value)


@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")
@pytest.mark.parametrize(("method", "virtual"), [("prompt", 5), ("prefix", 0), ("ia3", 0)])
def test_virtual_tokens_shift_no_label(method: str, virtual: int) -> None:
    recipe = Recipe(method=method, epochs=1, virtual_tokens=5)
    trained = finetune(tiny.model("llama", VOCABULARY), some_examples(), recipe)
    with torch.inference_mode():
        slow = _slow_losses(trained, some_examples(), virtual)
        assert batch_loss(trained, some_examples()).item() == pytest.approx(slow, rel=1e-5)


@pytest.mark.parametrize("method", ADAPTERS)
def test_a_saved_adapter_is_audited_as_the_one_in_memory(method: str, tmp_path: Path) -> None:
    base = tiny.folder(tmp_path / "base", dtype=torch.float32)
    model = AutoModelForCausalLM.from_pretrained(base)
    recipe = Recipe(method=method, epochs=3, virtual_tokens=5, learning_rate=1e-2)
    trained = finetune(model, some_examples(), recipe)
    save(trained, base, tmp_path / "out")
    target = HFTarget(tmp_path / "out")
    rows = tuple(Request(e.ids[:1], e.ids[1:]) for e in some_examples())
    plain = HFTarget(base).execute(Batch((), rows))
    moved = 0.0
    answers = target.execute(Batch((), rows))
    for example, answer, before in zip(some_examples(), answers, plain, strict=True):
        everything = np.array([False] + [True] * (len(example.ids) - 1))
        with torch.inference_mode():
            loss = batch_loss(trained, [Encoded(example.ids, everything)]).item()
        assert -np.mean(answer.logprob) == pytest.approx(loss, abs=1e-5)
        moved = max(moved, float(np.abs(answer.logprob - before.logprob).max()))
    assert moved > 0.01
    assert target.max_length == 512 - (5 if method in ("prefix", "prompt") else 0)
    assert target.without_adapter().execute(Batch((), rows))[0].logprob == pytest.approx(
        plain[0].logprob, abs=1e-5
    )


@pytest.mark.parametrize("method", ADAPTERS)
def test_adapters_on_a_half_precision_model_learn_in_float32(method: str) -> None:
    model = tiny.model("llama", VOCABULARY, dtype=torch.bfloat16)
    recipe = Recipe(method=method, epochs=1, virtual_tokens=5, dtype="bfloat16")
    trained = finetune(model, some_examples(), recipe)
    learned = {w.dtype for w in trained.parameters() if w.requires_grad}
    frozen = {w.dtype for w in trained.parameters() if not w.requires_grad}
    assert learned == {torch.float32}
    assert frozen == {torch.bfloat16}


@pytest.mark.parametrize("method", ["prefix", "prompt"])
def test_equal_seeds_begin_alike(method: str) -> None:
    def first_weights(seed: int) -> torch.Tensor:
        recipe = Recipe(method=method, epochs=1, seed=seed, learning_rate=1e-30)
        model = finetune(tiny.model("llama", VOCABULARY), some_examples(4), recipe)
        return next(w.detach() for w in model.parameters() if w.requires_grad)

    state = torch.get_rng_state()
    assert torch.equal(first_weights(1), first_weights(1))
    assert not torch.equal(first_weights(1), first_weights(2))
    assert torch.equal(state, torch.get_rng_state())


def test_what_does_not_fit() -> None:
    with pytest.raises(UsageError, match="quantised"):
        finetune(tiny.model("llama", VOCABULARY), some_examples(2), Recipe(method="qlora"))
    # Layers of 8 tokens in sight keep no 20 tokens of a prefix.
    with pytest.raises(ConfigError, match="fewer virtual_tokens"):
        finetune(tiny.model("gemma2", VOCABULARY), some_examples(2), Recipe(method="prefix"))


def test_each_method_has_a_rate() -> None:
    assert Recipe(method="ia3").peak_rate == RATES["ia3"] == 3e-3
    assert Recipe(method="ia3", learning_rate=1e-5).peak_rate == 1e-5
