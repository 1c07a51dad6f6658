"""Adapters: few new weights that learn, on a model whose own weights stay as they are."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from unseen.errors import ConfigError, UsageError, need
from unseen.targets.quiet import quiet

if TYPE_CHECKING:
    from unseen.training.recipe import Recipe


def adapt(model: Any, recipe: Recipe) -> Any:
    """Puts a new adapter on a model; its weights, in float32, are the only ones that learn.

    "prompt" begins as embeddings, and "prefix" as keys and values, of random tokens of the vocabulary:
    from random numbers, prefixes begin far from the model (Li & Liang 2021, section 7.4). No record is
    a part of them.

    Args:
        model: the model. It is changed in place.
        recipe: which adapter.

    Returns:
        The `PeftModel` around it.

    Raises:
        UsageError: the model is not quantised, and the method is "qlora".
        ConfigError: the model has no layers that `lora_targets` names, none that peft knows for the
            method, or no room for the virtual tokens.
        MissingExtraError: peft is not installed.
    """
    peft = need("peft", "hf")
    if recipe.method == "qlora" and not getattr(model, "is_quantized", False):
        msg = "qlora needs a quantised model, and this one is not"
        raise UsageError(msg, fix=f"load it with bits={recipe.bits}, or use the method lora")
    with warnings.catch_warnings():
        _ignore_advice()
        try:
            adapted = peft.get_peft_model(model, _config(peft, recipe))
            if recipe.method == "prefix":
                _begin_prefix(peft, adapted, recipe.virtual_tokens)
        except ValueError as error:
            raise _unfit(recipe, error) from error
    for weight in adapted.parameters():
        if weight.requires_grad and weight.dtype.itemsize < 4:
            weight.data = weight.data.float()
    return adapted


def _config(peft: Any, recipe: Recipe) -> Any:
    """What peft calls the adapter."""
    kind = "CAUSAL_LM"
    if recipe.method == "ia3":
        return peft.IA3Config(task_type=kind)
    if recipe.method == "prefix":
        return peft.PrefixTuningConfig(task_type=kind, num_virtual_tokens=recipe.virtual_tokens)
    if recipe.method == "prompt":
        return peft.PromptTuningConfig(
            task_type=kind,
            num_virtual_tokens=recipe.virtual_tokens,
            prompt_tuning_init="SAMPLE_VOCAB",
        )
    targets = recipe.lora_targets
    return peft.LoraConfig(
        task_type=kind,
        r=recipe.lora_rank,
        lora_alpha=recipe.lora_alpha,
        lora_dropout=recipe.dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
    )


def _begin_prefix(peft: Any, adapted: Any, n_tokens: int) -> None:
    """Fills a prefix with the keys and values of random tokens, as the model itself computes them."""
    torch = need("torch", "hf")
    size = adapted.get_input_embeddings().weight.shape[0]
    ids = torch.randint(size, (1, n_tokens), device=adapted.device)
    adapted.eval()
    with quiet(), torch.no_grad(), adapted.disable_adapter():
        cache = adapted(input_ids=ids, use_cache=True).past_key_values
    layers = [(layer.keys, layer.values) for layer in cache.layers]
    peft.initialize_kv_prefix_from_past_key_values(adapted, past_key_values=layers)


def _ignore_advice() -> None:
    """Silences an old name that peft asks transformers for, and that it sets right what GPT-2 needs."""
    warnings.filterwarnings("ignore", r".is_gradient_checkpointing. is deprecated", FutureWarning)
    warnings.filterwarnings("ignore", r"fan_in_fan_out is set to False", UserWarning)


def _unfit(recipe: Recipe, error: ValueError) -> ConfigError:
    if recipe.method in ("lora", "qlora"):
        return ConfigError(
            f"no adapter fits lora_targets={recipe.lora_targets!r}: {error}",
            fix="name layers that the model has, or all-linear",
        )
    fewer = "set fewer virtual_tokens, or " if recipe.method == "prefix" else ""
    return ConfigError(
        f"the method {recipe.method} does not fit this model: {error}",
        fix=f"{fewer}use the method lora",
    )
