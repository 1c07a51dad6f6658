"""How a model is fine-tuned: the choices, and what is wrong with some."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from unseen.errors import ConfigError

Method = Literal["full", "lora"]
Schedule = Literal["cosine", "linear", "constant"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model is fine-tuned.

    Attributes:
        method: "full" changes all weights in place; "lora" adds an adapter and changes only that.
        epochs: how often each example is seen.
        batch_size: examples per optimizer step.
        learning_rate: of AdamW, at its peak.
        schedule: "cosine" and "linear" fall to zero at the last step; "constant" stays.
        warmup: share of all steps, 0 to 1, over which the rate rises from zero.
        weight_decay: of AdamW, on matrices only.
        max_grad_norm: longer gradients are shortened to this; 0 leaves them.
        lora_rank: rank of the adapter's matrices.
        lora_alpha: the adapter counts lora_alpha / lora_rank times.
        lora_targets: names of the adapted layers, as peft reads them.
        dropout: 0 trains without dropout. Above, it is the adapter's rate, and the model's own
            dropout layers work at theirs.
        dtype: what passes are computed in. Trained weights and the optimizer stay in float32: a
            small step vanishes in a bfloat16 weight.
        seed: of the order of the examples, the adapter's first weights and dropout.
    """

    method: Method = "full"
    epochs: int = 2
    batch_size: int = 8
    learning_rate: float = 2e-4
    schedule: Schedule = "cosine"
    warmup: float = 0.0
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    lora_rank: int = 16
    lora_alpha: float = 32.0
    lora_targets: str | tuple[str, ...] = "all-linear"
    dropout: float = 0.0
    dtype: Precision = "float32"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, kind in (("method", Method), ("schedule", Schedule), ("dtype", Precision)):
            value, choices = getattr(self, name), get_args(kind)
            if value not in choices:
                msg = f"got {name}={value!r}, expected one of {', '.join(choices)}"
                raise ConfigError(msg)
        for name in ("epochs", "batch_size", "lora_rank"):
            if getattr(self, name) < 1:
                msg = f"got {name}={getattr(self, name)}, expected at least 1"
                raise ConfigError(msg)
        for name in ("learning_rate", "lora_alpha"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                msg = f"got {name}={value}, expected a number above 0"
                raise ConfigError(msg)
        for name, below in (
            ("warmup", 1.0),
            ("weight_decay", math.inf),
            ("max_grad_norm", math.inf),
            ("dropout", 1.0),
            ("seed", math.inf),
        ):
            value = getattr(self, name)
            if not 0 <= value < below:
                msg = f"got {name}={value}, expected 0 or more" + (
                    "" if below == math.inf else f" and less than {below:g}"
                )
                raise ConfigError(msg)

    def steps(self, n_examples: int) -> int:
        """Optimizer steps for that many examples."""
        return self.epochs * math.ceil(n_examples / self.batch_size)

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of a step, counted from 0, out of `steps`."""
        rising = math.ceil(self.warmup * steps)
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        done = (step - rising) / max(1, steps - rising)
        if self.schedule == "cosine":
            return self.learning_rate * 0.5 * (1 + math.cos(math.pi * done))
        return self.learning_rate * (1 - done if self.schedule == "linear" else 1.0)
