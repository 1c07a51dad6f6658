"""Adapters on quantised weights: they learn, and are audited on the weights that they were trained on."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from examples import some_examples
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from unseen.errors import ConfigError, MissingExtraError, ModelError, UsageError
from unseen.targets.files import BASE_FACTS, locate
from unseen.targets.huggingface import HFTarget
from unseen.training.finetune import Recipe, batch_loss, finetune, save
from unseen.training.recipe import Privacy
from unseen.types import Batch, Encoded, Request

installed = importlib.util.find_spec("bitsandbytes") is not None
needs = pytest.mark.skipif(not installed, reason="bitsandbytes is not installed (extra qlora)")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tiny.folder(tmp_path / "base", dtype=torch.float32)


def _rows() -> tuple[Request, ...]:
    return tuple(Request(e.ids[:1], e.ids[1:]) for e in some_examples())


@needs
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("bits", [4, 8])
def test_it_learns_though_it_was_asked_before(base: Path, bits: int, dtype: str) -> None:
    """The kernel of bitsandbytes that repacks weights when asked without gradients lets none through."""
    target = HFTarget(base, bits=bits, dtype=dtype)
    target.execute(Batch((), _rows()))
    examples = some_examples(16)
    before = batch_loss(target.model, examples).item()
    losses: list[float] = []

    def look(_: int, model: torch.nn.Module) -> None:
        with torch.inference_mode():
            losses.append(batch_loss(model, examples).item())

    recipe = Recipe(
        method="qlora", bits=bits, epochs=6, batch_size=4, dtype=dtype, learning_rate=5e-3
    )
    trained = finetune(target.model, examples, recipe, after_epoch=look)
    assert losses[-1] < before - 0.15
    assert losses == sorted(losses, reverse=True)
    learned = [w for w in trained.parameters() if w.requires_grad]
    assert {w.dtype for w in learned} == {torch.float32}
    assert all(bool((w != 0).any()) for w in learned)


@needs
@pytest.mark.parametrize("bits", [4, 8])
def test_it_is_audited_on_the_weights_it_was_trained_on(
    base: Path, bits: int, tmp_path: Path
) -> None:
    model = HFTarget(base, bits=bits).model
    recipe = Recipe(method="qlora", bits=bits, epochs=3, learning_rate=1e-2)
    trained = finetune(model, some_examples(), recipe)
    out = tmp_path / "out"
    save(trained, base, out)
    assert json.loads((out / BASE_FACTS).read_text()) == {"bits": bits}
    target = HFTarget(out)
    for example, answer in zip(some_examples(), target.execute(Batch((), _rows())), strict=True):
        everything = np.array([False] + [True] * (len(example.ids) - 1))
        with torch.inference_mode():
            loss = batch_loss(trained, [Encoded(example.ids, everything)]).item()
        assert -np.mean(answer.logprob) == pytest.approx(loss, abs=2e-3)
    assert target.describe()["bits"] == str(bits)
    assert target.fingerprint.endswith(f"-{bits}bit")
    before = target.without_adapter()
    assert before.fingerprint == HFTarget(base, bits=bits).fingerprint != HFTarget(base).fingerprint
    same = HFTarget(base, bits=bits).execute(Batch((), _rows()))
    for row, plain in zip(before.execute(Batch((), _rows())), same, strict=True):
        assert row.logprob == pytest.approx(plain.logprob, abs=2e-3)


@needs
def test_a_folder_of_quantised_weights_is_a_base_too(base: Path, tmp_path: Path) -> None:
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    small = tmp_path / "small"
    shutil.copytree(base, small, ignore=shutil.ignore_patterns("*.safetensors"))
    AutoModelForCausalLM.from_pretrained(base, quantization_config=config).save_pretrained(small)
    model = HFTarget(small).model
    trained = finetune(model, some_examples(), Recipe(method="qlora", epochs=2))
    save(trained, small, tmp_path / "out")
    assert not (tmp_path / "out" / BASE_FACTS).exists()  # the folder says it itself
    assert HFTarget(tmp_path / "out").execute(Batch((), _rows()))
    with pytest.raises(ModelError, match="quantised already, with bitsandbytes"):
        HFTarget(small, bits=8)
    with pytest.raises(UsageError, match="cannot be trained"):
        finetune(HFTarget(small).model, some_examples(2), Recipe())


@needs
@pytest.mark.parametrize("bits", [4, 8])
def test_no_record_has_a_part_in_another(base: Path, bits: int) -> None:
    target = HFTarget(base, bits=bits)
    rows = _rows()
    together = target.execute(Batch((), rows))
    for row, answer in zip(rows, together, strict=True):
        (alone,) = target.execute(Batch((), (row,)))
        assert answer.logprob == pytest.approx(alone.logprob, abs=1e-4)


@needs
def test_eight_bits_with_a_way_around_outliers_are_not_private(base: Path) -> None:
    pytest.importorskip("opacus", reason="opacus is not installed (extra dp)")
    model = AutoModelForCausalLM.from_pretrained(
        base, quantization_config=BitsAndBytesConfig(load_in_8bit=True)
    )
    recipe = Recipe(method="qlora", bits=8, privacy=Privacy(noise_multiplier=1.0))
    with pytest.raises(UsageError, match="outliers"):
        finetune(model, some_examples(), recipe)


@needs
@pytest.mark.parametrize("bits", [4, 8])
def test_private_qlora_learns(base: Path, bits: int) -> None:
    pytest.importorskip("opacus", reason="opacus is not installed (extra dp)")
    examples = some_examples(16)
    model = HFTarget(base, bits=bits).model
    before = batch_loss(model, examples).item()
    recipe = Recipe(
        method="qlora",
        bits=bits,
        epochs=8,
        batch_size=4,
        learning_rate=5e-3,
        privacy=Privacy(noise_multiplier=1e-6, seed=0),
    )
    trained = finetune(model, examples, recipe)
    assert batch_loss(trained, examples).item() < before - 0.15


@needs
def test_a_backend_that_cannot_work_here(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bitsandbytes import cextension

    class ErrorHandlerStandIn:
        pass

    monkeypatch.setattr(cextension, "lib", ErrorHandlerStandIn())
    with pytest.raises(ModelError, match="no library for this machine"):
        HFTarget(base, bits=4)


@pytest.mark.skipif(installed, reason="bitsandbytes is installed")
def test_without_bitsandbytes_it_says_what_to_type(base: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingExtraError, match="bitsandbytes") as caught:
        HFTarget(base, bits=4)
    assert caught.value.fix == 'pip install "unseen[qlora]"'
    config = json.loads((base / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (base / "config.json").write_text(json.dumps(config))
    with pytest.raises(MissingExtraError, match="bitsandbytes"):
        HFTarget(base)


def test_an_adapter_says_what_it_was_trained_on(base: Path, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(base)
    out = tmp_path / "out"
    save(finetune(model, some_examples(2), Recipe(method="lora", epochs=1)), base, out)
    assert locate(str(out)).bits is None
    (out / BASE_FACTS).write_text('{"bits": 8}')
    assert locate(str(out)).bits == locate(str(base), adapter=str(out)).bits == 8
    assert locate(str(out), bits=4).bits == 4
    (out / BASE_FACTS).write_text('{"bits": "many"}')
    with pytest.raises(ModelError, match="how the base model is quantised"):
        locate(str(out))
    with pytest.raises(ModelError, match="expected 4 or 8"):
        locate(str(base), bits=5)
    with pytest.raises(ConfigError, match="bits"):
        Recipe(method="qlora", bits=5)
