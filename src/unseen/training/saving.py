"""Trained models as folders that transformers, or for an adapter peft, loads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from unseen.errors import ModelError, StoreError
from unseen.targets.files import BASE_FACTS, quantised_with
from unseen.targets.gguf import new_folder

_TOKENIZER_FILES = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "additional_chat_templates/*",
    "vocab.*",
    "merges.txt",
    "*.model",
    "*.tiktoken",
)


def save(model: Any, tokenizer_folder: Path, out: Path) -> None:
    """Writes a folder that transformers, or for an adapter peft, loads.

    Weights are safetensors. An adapter's folder names the folder of its base model, which must stay
    where it is.

    Args:
        model: what `finetune` returned.
        tokenizer_folder: where the model came from: its tokenizer files are copied as they are.
        out: the folder to make; it appears complete or not at all.

    Raises:
        ModelError: there is no tokenizer in `tokenizer_folder`.
        StoreError: `out` has content already, or cannot be written.
    """
    from safetensors import SafetensorError

    if not (tokenizer_folder / "tokenizer_config.json").is_file():
        msg = f"{tokenizer_folder} has no tokenizer (no tokenizer_config.json)"
        raise ModelError(msg)
    with new_folder(out) as folder:
        for pattern in _TOKENIZER_FILES:
            for file in tokenizer_folder.glob(pattern):
                copy = folder / file.relative_to(tokenizer_folder)
                copy.parent.mkdir(exist_ok=True)
                shutil.copyfile(file, copy)
        try:
            if hasattr(model, "peft_config"):
                for config in model.peft_config.values():
                    config.base_model_name_or_path = _base(config, tokenizer_folder)
                model.save_pretrained(folder, save_embedding_layers=False)
                _note_quantisation(model.get_base_model(), folder)
            else:
                model.save_pretrained(folder)
        except SafetensorError as error:
            msg = f"cannot write {out}: {error}"
            raise StoreError(msg, fix="free some space, or choose another folder") from error


def _note_quantisation(base: Any, adapter: Path) -> None:
    """Writes down how the base was quantised: on other weights, the adapter is another model."""
    config = getattr(base.config, "quantization_config", None)
    if config is None or quantised_with(Path(base.config.name_or_path)) is not None:
        return
    for bits in (4, 8):
        if getattr(config, f"load_in_{bits}bit", False):
            (adapter / BASE_FACTS).write_text(json.dumps({"bits": bits}), encoding="utf-8")


def _base(config: Any, tokenizer_folder: Path) -> str:
    """Where an adapter's base model is: a folder in full, a name on the hub as it is."""
    known = config.base_model_name_or_path
    if not known:
        return str(tokenizer_folder.resolve())
    return str(Path(known).resolve()) if Path(known).is_dir() else str(known)
