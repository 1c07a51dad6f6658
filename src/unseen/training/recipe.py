"""How a model is fine-tuned: the choices, and what is wrong with some."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from unseen.errors import ConfigError, TargetError

Method = Literal["full", "lora", "qlora", "prefix", "prompt", "ia3"]
Schedule = Literal["cosine", "linear", "constant"]
Precision = Literal["float32", "bfloat16"]
Accountant = Literal["prv", "rdp"]

PRIVATE_METHODS: tuple[Method, ...] = ("lora", "qlora", "full")

# Fewer weights take longer steps. From: the appendix of ICP-MIA (full fine-tuning on HealthcareMagic),
# Hu et al. 2021 (LoRA), Dettmers et al. 2023 (QLoRA), Liu et al. 2022 (IA3), and the guides of peft
# (prefix and prompt tuning).
RATES: dict[Method, float] = {
    "full": 2e-4,
    "lora": 2e-4,
    "qlora": 2e-4,
    "prefix": 1e-2,
    "prompt": 3e-2,
    "ia3": 3e-3,
}


MOST_EPSILON = 1000
"""Above it there is no privacy to speak of, and accountants count for minutes."""


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Differential privacy: what one record can change is bounded, and hidden in noise (DP-SGD).

    Each record's gradient is shortened to `max_grad_norm`; noise of standard deviation
    noise_multiplier · max_grad_norm is added to their sum (Abadi et al. 2016, algorithm 1). What is
    protected is one record, added or removed. Give either `epsilon` or `noise_multiplier`.

    Attributes:
        epsilon: the most that all steps together may spend; the noise follows from it.
        noise_multiplier: the noise; epsilon follows from it.
        delta: the chance that epsilon does not hold, below 1 / records. None is a tenth of that.
        max_grad_norm: longer gradients of a record are shortened to this.
        accountant: what adds up epsilon: "prv" (Gopi et al. 2021) is tighter, "rdp" (Mironov 2017)
            faster.
        seed: of draws and noise. Whoever knows it can take the noise away, so it is for tests; None
            takes both from the system, and no two runs are alike.
    """

    epsilon: float | None = None
    noise_multiplier: float | None = None
    delta: float | None = None
    max_grad_norm: float = 1.0
    accountant: Accountant = "prv"
    seed: int | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.noise_multiplier is None):
            msg = "got " + ("both" if self.epsilon is not None else "neither")
            raise ConfigError(f"{msg} of epsilon and noise_multiplier, expected one of them")
        _one_of(self, "accountant", get_args(Accountant))
        for name in ("epsilon", "noise_multiplier", "delta", "max_grad_norm"):
            if getattr(self, name) is not None:
                _above_zero(self, name)
        if self.epsilon is not None and self.epsilon > MOST_EPSILON:
            msg = f"got epsilon={self.epsilon:g}, expected at most {MOST_EPSILON}: more protects nobody"
            raise ConfigError(msg, fix="train without privacy: leave out epsilon")
        if self.delta is not None and self.delta >= 1:
            raise ConfigError(f"got delta={self.delta}, expected less than 1")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model is fine-tuned.

    Attributes:
        method: what learns. "full": all weights, in place. "lora": an adapter of low rank beside
            layers; "qlora": the same beside quantised layers. "ia3": a factor for each key, value and
            inner activation. "prompt": embeddings in front of the text; "prefix": keys and values in
            front of it, in each layer.
        epochs: how often each example is seen; with `privacy`, on average.
        batch_size: examples per optimizer step; with `privacy`, on average.
        accumulate: parts in which a step's examples are read, at least one in each, to save memory: the
            step is the same.
        learning_rate: of AdamW, at its peak. None is the method's own (`RATES`).
        schedule: "cosine" and "linear" fall to zero at the last step; "constant" stays.
        warmup: share of all steps, 0 to 1, over which the rate rises from zero.
        weight_decay: of AdamW, on matrices only.
        max_grad_norm: longer gradients of a step are shortened to this; 0 leaves them. `privacy` has
            its own, for each record.
        lora_rank: rank of the adapter's matrices.
        lora_alpha: the adapter counts lora_alpha / lora_rank times.
        lora_targets: names of the adapted layers, as peft reads them.
        bits: of a quantised weight: 4 (NF4, its constants quantised too) or 8.
        virtual_tokens: how many rows "prompt" and "prefix" put in front of the text.
        dropout: 0 trains without dropout. Above, it is the adapter's rate, and the model's own
            dropout layers work at theirs.
        dtype: what passes are computed in. Trained weights and the optimizer stay in float32: a
            small step vanishes in a bfloat16 weight.
        seed: of the order of the examples, the adapter's first weights and dropout.
        privacy: differential privacy, or None.
    """

    method: Method = "full"
    epochs: int = 2
    batch_size: int = 8
    accumulate: int = 1
    learning_rate: float | None = None
    schedule: Schedule = "cosine"
    warmup: float = 0.0
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    lora_rank: int = 16
    lora_alpha: float = 32.0
    lora_targets: str | tuple[str, ...] = "all-linear"
    bits: int = 4
    virtual_tokens: int = 20
    dropout: float = 0.0
    dtype: Precision = "float32"
    seed: int = 0
    privacy: Privacy | None = None

    def __post_init__(self) -> None:
        for name, kind in (("method", Method), ("schedule", Schedule), ("dtype", Precision)):
            _one_of(self, name, get_args(kind))
        _one_of(self, "bits", (4, 8))
        for name in ("epochs", "batch_size", "accumulate", "lora_rank", "virtual_tokens"):
            if getattr(self, name) < 1:
                msg = f"got {name}={getattr(self, name)}, expected at least 1"
                raise ConfigError(msg)
        for name in ("learning_rate", "lora_alpha"):
            if getattr(self, name) is not None:
                _above_zero(self, name)
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
        if self.privacy is not None and self.method not in PRIVATE_METHODS:
            msg = f"got privacy with the method {self.method}, which has no gradients of single records"
            raise ConfigError(msg, fix=f"use the method {' or '.join(PRIVATE_METHODS)}")

    @property
    def peak_rate(self) -> float:
        """The highest learning rate: the one given, or the method's own."""
        return RATES[self.method] if self.learning_rate is None else self.learning_rate

    @property
    def together(self) -> int:
        """The most examples that are read at once."""
        return math.ceil(self.batch_size / self.accumulate)

    def steps(self, n_examples: int) -> int:
        """Optimizer steps for that many examples."""
        return self.epochs * math.ceil(n_examples / self.batch_size)

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of a step, counted from 0, out of `steps`."""
        rising = math.ceil(self.warmup * steps)
        if step < rising:
            return self.peak_rate * (step + 1) / rising
        done = (step - rising) / max(1, steps - rising)
        if self.schedule == "cosine":
            return self.peak_rate * 0.5 * (1 + math.cos(math.pi * done))
        return self.peak_rate * (1 - done if self.schedule == "linear" else 1.0)


def _one_of(recipe: Any, name: str, choices: tuple[Any, ...]) -> None:
    value = getattr(recipe, name)
    if value not in choices:
        msg = f"got {name}={value!r}, expected one of {', '.join(map(str, choices))}"
        raise ConfigError(msg)


def _above_zero(recipe: Any, name: str) -> None:
    value = getattr(recipe, name)
    if not (value > 0 and math.isfinite(value)):
        msg = f"got {name}={value}, expected a number above 0"
        raise ConfigError(msg)


def not_finite(what: str, recipe: Recipe, step: int) -> TargetError:
    """The error for a loss or gradient that is not a finite number.

    Args:
        what: "the loss" or "the gradient".
        recipe: of the training.
        step: steps that were taken before.
    """
    if step == 0:
        return TargetError(
            f"{what} of the untrained model is not a finite number",
            fix="its weights are damaged, or its precision is too low",
        )
    return TargetError(
        f"{what} is no longer a finite number after {step} steps at learning rate "
        f"{recipe.peak_rate:g}",
        fix=f"set a lower learning rate, for example {recipe.peak_rate / 10:g}",
    )
