"""Adapters: few new weights that learn, on a model whose own weights stay as they are."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from unseen.errors import ConfigError, need

if TYPE_CHECKING:
    from unseen.training.recipe import Recipe


def adapt(model: Any, recipe: Recipe) -> Any:
    """Puts a new adapter on a model; its weights are the only ones that learn.

    Args:
        model: the model. It is changed in place.
        recipe: which adapter.

    Returns:
        The `PeftModel` around it.

    Raises:
        ConfigError: the model has no layers that `lora_targets` names.
        MissingExtraError: peft is not installed.
    """
    peft = need("peft", "hf")
    targets = recipe.lora_targets
    config = peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=recipe.lora_rank,
        lora_alpha=recipe.lora_alpha,
        lora_dropout=recipe.dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
    )
    with warnings.catch_warnings():
        # peft asks transformers for a property by its old name; and it sets right what GPT-2 needs.
        warnings.filterwarnings(
            "ignore", r".is_gradient_checkpointing. is deprecated", FutureWarning
        )
        warnings.filterwarnings("ignore", r"fan_in_fan_out is set to False", UserWarning)
        try:
            return peft.get_peft_model(model, config)
        except ValueError as error:
            msg = f"no adapter fits lora_targets={targets!r}: {error}"
            raise ConfigError(msg, fix="name layers that the model has, or all-linear") from error
