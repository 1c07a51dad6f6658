import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from transformers import BertConfig, BertForMaskedLM

from unseen.errors import ModelError
from unseen.targets.files import locate
from unseen.targets.loading import Loaded, load


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tmp_path_factory.mktemp("models") / "llama")


def loaded(folder: Path, **choices: Any) -> Loaded:
    usual: dict[str, Any] = {
        "tokenizer": None,
        "dtype": "auto",
        "device": "cpu",
        "attn_implementation": None,
        "trust_remote_code": False,
    }
    return load(locate(str(folder)), **(usual | choices))


def test_a_model_is_ready_to_be_asked(llama: Path) -> None:
    found = loaded(llama)
    assert (found.device, found.dtype) == (torch.device("cpu"), torch.float32)
    assert not found.model.training
    assert {parameter.dtype for parameter in found.model.parameters()} == {torch.float32}
    assert not any(parameter.requires_grad for parameter in found.model.parameters())
    assert found.max_length == 512
    assert found.tokenizer.get_vocab() == tiny.tokenizer().get_vocab()


def test_a_tokenizer_from_elsewhere(llama: Path, tmp_path: Path) -> None:
    tiny.tokenizer(vocabulary=300).save_pretrained(tmp_path)
    assert len(loaded(llama, tokenizer=str(tmp_path)).tokenizer) == 300
    with pytest.raises(ModelError, match="cannot load the tokenizer of"):
        loaded(llama, tokenizer=str(tmp_path / "nowhere"))


def test_an_unknown_device_is_refused(llama: Path) -> None:
    with pytest.raises(ModelError, match="this machine has no device 'abacus'"):
        loaded(llama, device="abacus")


def test_an_encoder_without_a_head_is_refused(tmp_path: Path) -> None:
    config = BertConfig(
        vocab_size=400,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        initializer_range=0.3,
    )
    BertForMaskedLM(config).bert.save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="lacks weights that a language model needs") as raised:
        loaded(tmp_path)
    assert "encoder" in str(raised.value)


@pytest.mark.parametrize("dtype", ["float", "float99", "int8", "nn"])
def test_an_unknown_precision_is_refused(llama: Path, dtype: Any) -> None:
    if dtype == "float":
        assert loaded(llama, dtype=dtype).dtype == torch.float32
        return
    with pytest.raises(ModelError, match=f"unknown dtype '{dtype}'"):
        loaded(llama, dtype=dtype)


def broken_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"no tensors")


def broken_configuration(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def no_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


def weights_of_another_shape(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": 64}))


def unknown_architecture(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "no-such-thing"}))


@pytest.mark.parametrize(
    "spoil",
    [
        broken_weights,
        broken_configuration,
        no_tokenizer,
        weights_of_another_shape,
        unknown_architecture,
    ],
)
def test_what_cannot_be_loaded_is_a_model_error(
    llama: Path, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    folder = shutil.copytree(llama, tmp_path / "spoilt")
    spoil(folder)
    with pytest.raises(ModelError, match="cannot load") as raised:
        loaded(folder)
    assert str(folder) in raised.value.problem
    assert "\n" not in raised.value.problem
