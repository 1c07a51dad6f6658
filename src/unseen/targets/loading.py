"""Loading with transformers and peft: weights, adapters and tokenizers, and what is wrong with them."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from unseen.errors import ModelError, first_line, need
from unseen.targets.files import Source, quantised_with
from unseen.targets.quantised import keep_trainable, need_backend, quantise
from unseen.targets.quiet import quiet
from unseen.targets.tokenizer import HFTokenizer

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Loaded:
    """A model that is ready to be asked.

    Attributes:
        model: in evaluation mode, with its adapter; its weights have no gradients.
        tokenizer: its tokenizer.
        device: where it is.
        dtype: of its weights.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    device: torch.device
    dtype: torch.dtype

    @property
    def max_length(self) -> int:
        """The longest sequence, in tokens, that the model says it can read."""
        return context_length(self.model.config)


def context_length(config: Any) -> int:
    """The longest sequence, in tokens, that a model says it can read."""
    text = config.get_text_config()
    for name in ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"):
        length = getattr(text, name, None)
        if isinstance(length, int) and length > 0:
            return length
    return 1_000_000


def open_tokenizer(
    source: Source, tokenizer: str | None, *, trust_remote_code: bool
) -> tuple[HFTokenizer, int]:
    """A model's tokenizer and context length, without its weights.

    Args:
        source: where the model is.
        tokenizer: folder or hub name, if not beside the model.
        trust_remote_code: whether code that comes with the model may run.

    Raises:
        ModelError: where something cannot be loaded, with what to do about it.
    """
    transformers = need("transformers", "hf")
    with quiet():
        tokens = _load_tokenizer(source, tokenizer, trust_remote_code=trust_remote_code)
        with _load_errors(source.model_name):
            config = transformers.AutoConfig.from_pretrained(
                source.model, trust_remote_code=trust_remote_code
            )
    return HFTokenizer(tokens), context_length(config)


def load(
    source: Source,
    *,
    tokenizer: str | None,
    dtype: str,
    device: str,
    attn_implementation: str | None,
    trust_remote_code: bool,
) -> Loaded:
    """Loads a model and its tokenizer.

    Args:
        source: where they are.
        tokenizer: folder or hub name, if not beside the model.
        dtype: "auto" is float32 on a CPU and the checkpoint's own precision elsewhere.
        device: "auto", or as torch says it.
        attn_implementation: as in transformers.
        trust_remote_code: whether code that comes with the model may run.

    Raises:
        ModelError: where something cannot be loaded, with what to do about it.
        MissingExtraError: where there is an adapter, and peft is not installed.
    """
    import torch

    on = _device(torch, device)
    precision = _dtype(torch, dtype, on, source, trust_remote_code=trust_remote_code)
    with quiet():
        tokens = _load_tokenizer(source, tokenizer, trust_remote_code=trust_remote_code)
        model = _load_model(
            source, precision, on, attn_implementation, trust_remote_code=trust_remote_code
        )
    return Loaded(model, tokens, on, precision)


def _load_model(
    source: Source,
    dtype: torch.dtype,
    device: torch.device,
    attn_implementation: str | None,
    *,
    trust_remote_code: bool,
) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    options: dict[str, Any] = {"dtype": dtype, "trust_remote_code": trust_remote_code}
    method = quantised_with(Path(source.model))
    quantised = method is not None or source.bits is not None
    if source.bits is not None or method == "bitsandbytes":
        need_backend()
    if source.bits is not None:
        options |= quantise(source, dtype, already=method)
    if quantised:
        options["device_map"] = {"": device}  # such weights are put in place once
    if attn_implementation is not None:
        options["attn_implementation"] = attn_implementation
    with _load_errors(source.model_name):
        model, info = AutoModelForCausalLM.from_pretrained(
            source.model, output_loading_info=True, **options
        )
    if missing := sorted(info.get("missing_keys", ())):
        raise ModelError(
            f"{source.model_name} lacks weights that a language model needs: "
            f"{', '.join(missing[:3])}{' …' if len(missing) > 3 else ''}",
            fix="is it a causal language model? An encoder has no head that predicts the next token",
        )
    if source.adapter is not None:
        model = _with_adapter(model, source)
    if quantised:
        keep_trainable(model)
    else:
        model.to(device)
    model.eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)  # noqa: FBT003 (torch's own signature)
    return model


def _with_adapter(model: PreTrainedModel, source: Source) -> PreTrainedModel:
    """Puts the adapter on its base; every weight of the one has to find its place in the other."""
    peft = need("peft", "hf")
    missing = "Found missing adapter keys"
    with _load_errors(source.name), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        adapted = peft.PeftModel.from_pretrained(model, str(source.adapter))
        unexpected = adapted.load_adapter(str(source.adapter), "default").unexpected_keys
        if adapted.active_peft_config.is_prompt_learning:
            unexpected = []  # its one tensor goes a way of its own, and is checked there
    lacking = [str(one.message) for one in said if missing in str(one.message)]
    if unexpected or lacking:
        first = unexpected[0] if unexpected else lacking[0][:200]
        raise ModelError(
            f"the weights of {source.name} do not belong to {source.model_name}: {first}",
            fix="name the base model that it was trained on: --base-model MODEL",
        )
    return cast("PreTrainedModel", adapted)


def _load_tokenizer(
    source: Source, tokenizer: str | None, *, trust_remote_code: bool
) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    where = tokenizer or source.tokenizer
    with _load_errors(f"the tokenizer of {where}"):
        return AutoTokenizer.from_pretrained(where, trust_remote_code=trust_remote_code)


def _device(torch_: Any, device: str) -> torch.device:
    if device == "auto":
        device = "cuda" if torch_.cuda.is_available() else "cpu"
    try:
        chosen: torch.device = torch_.device(device)
        torch_.empty(1, device=chosen)
    except (RuntimeError, AssertionError, ValueError, NotImplementedError) as error:
        raise ModelError(
            f"this machine has no device {device!r}", fix="--device auto | cpu | cuda | cuda:1"
        ) from error
    return chosen


def _dtype(
    torch_: Any, dtype: str, device: torch.device, source: Source, *, trust_remote_code: bool
) -> torch.dtype:
    if dtype != "auto":
        chosen = getattr(torch_, dtype, None)
        if not isinstance(chosen, torch_.dtype) or not chosen.is_floating_point:
            raise ModelError(
                f"unknown dtype {dtype!r}", fix="--dtype auto | float32 | bfloat16 | float16"
            )
        return chosen
    if device.type == "cpu":
        return torch_.float32
    from transformers import AutoConfig

    with _load_errors(source.model_name):
        config = AutoConfig.from_pretrained(source.model, trust_remote_code=trust_remote_code)
    return getattr(config, "dtype", None) or torch_.float32


@contextlib.contextmanager
def _load_errors(what: str) -> Iterator[None]:
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # whatever it is, it is about these files
        raise ModelError(
            f"cannot load {what}: {first_line(error)}",
            fix="use a folder with config.json, weights (*.safetensors) and tokenizer, "
            "a hub name, a PEFT adapter folder or a GGUF file",
        ) from error
