"""Fine-tune a causal language model: a small loop of which every step is known.

The loss of a batch is the mean over the scored tokens of all its records, in nats: what the trainers of
transformers and TRL minimise by default, so that a long answer weighs more than a short one. Which tokens
count is decided by position, never by token id: many tokenizers pad with the token that ends an answer.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from unseen.errors import (
    ConfigError,
    ModelError,
    OutOfMemoryError,
    StoreError,
    TargetError,
    UsageError,
    need,
)
from unseen.targets.gguf import new_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from unseen.types import Encoded

Method = Literal["full", "lora"]
Schedule = Literal["cosine", "linear", "constant"]
Precision = Literal["float32", "bfloat16"]

_WINDOW = 4  # batches that are sorted by length together
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


def finetune(
    model: Any,
    examples: Sequence[Encoded],
    recipe: Recipe,
    *,
    progress: Callable[[int, int, float], None] | None = None,
    after_epoch: Callable[[int], None] | None = None,
) -> Any:
    """Trains a causal language model of transformers on the scored tokens of the examples.

    Two runs with equal arguments on the same machine with as many threads give the same weights. No
    global random state is touched.

    Args:
        model: the model. It is changed in place, whatever the method.
        examples: what it learns. Those without a scored token are left out.
        recipe: how.
        progress: is told after each step: steps done, of how many, the step's loss in nats per token.
        after_epoch: is called after each epoch with its number, from 1; the model may be used, in
            evaluation mode, but not changed.

    Returns:
        The model in evaluation mode; for LoRA the `PeftModel` around it.

    Raises:
        UsageError: there is nothing to learn, a token id is not in the model's vocabulary, the model
            is quantised or has an adapter already, or has no layers that `lora_targets` names.
        TargetError: the loss is not a finite number.
        OutOfMemoryError: a batch did not fit into memory.
    """
    torch = need("torch", "hf")
    learned = _learnable(model, examples)
    with _own_randomness(torch, recipe.seed, model.device):
        model = _prepare(model, recipe)
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = _optimizer(torch, weights, recipe)
        order = np.random.default_rng(recipe.seed)
        step, steps = 0, recipe.steps(len(learned))
        try:
            for epoch in range(1, recipe.epochs + 1):
                model.train(recipe.dropout > 0)
                for batch in batches([len(e.ids) for e in learned], recipe.batch_size, order):
                    for group in optimizer.param_groups:
                        group["lr"] = recipe.rate(step, steps)
                    loss = _step(torch, model, weights, [learned[i] for i in batch], recipe, step)
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
                    step += 1
                    if progress is not None:
                        progress(step, steps, loss)
                model.eval()
                if after_epoch is not None:
                    after_epoch(epoch)
        except RuntimeError as error:
            if not _is_out_of_memory(torch, error):
                raise
            msg = f"a training batch of {recipe.batch_size} records did not fit into memory"
            raise OutOfMemoryError(msg, fix="set a smaller batch_size") from error
        finally:
            optimizer.zero_grad(set_to_none=True)
            model.eval()
    return model


def batches(
    lengths: Sequence[int], batch_size: int, rng: np.random.Generator
) -> list[tuple[int, ...]]:
    """One epoch's batches: every index once, in random order, but alike in length.

    Indices are shuffled, sorted by length within windows of a few batches, cut, and the batches are
    shuffled again. So little is padded and yet no epoch has the batches of another.

    Args:
        lengths: tokens of each example.
        batch_size: indices per batch; one batch may have fewer.
        rng: makes the order.

    Returns:
        Indices into `lengths`.
    """
    shuffled = rng.permutation(len(lengths)).tolist()
    width = batch_size * _WINDOW
    cut: list[tuple[int, ...]] = []
    for start in range(0, len(shuffled), width):
        window = sorted(shuffled[start : start + width], key=lengths.__getitem__)
        cut += [tuple(window[at : at + batch_size]) for at in range(0, len(window), batch_size)]
    return [cut[i] for i in rng.permutation(len(cut))]


def batch_loss(model: Any, examples: Sequence[Encoded]) -> Any:
    """Mean negative log-likelihood, in nats, of all scored tokens of the examples.

    Args:
        model: a causal language model of transformers, or peft's around one.
        examples: at least one scored token in all. Rows are padded on the right; what is padded has no
            influence.

    Returns:
        A scalar float32 tensor with its gradient.
    """
    torch = need("torch", "hf")
    width = max(len(example.ids) for example in examples)
    ids = torch.zeros(len(examples), width, dtype=torch.long)
    scored = torch.zeros(len(examples), width, dtype=torch.bool)
    for row, example in enumerate(examples):
        length = len(example.ids)
        ids[row, :length] = torch.tensor(example.ids)
        scored[row, 1:length] = torch.from_numpy(np.asarray(example.scored[1:], dtype=bool))
    # The token at position t is foretold at t - 1: only those positions need the vocabulary.
    asked = scored[:, 1:].any(dim=0).nonzero().squeeze(1)
    rows, columns = scored[:, asked + 1].nonzero(as_tuple=True)
    targets = ids[rows, asked[columns] + 1]
    device = model.device
    ids = ids.to(device)
    # No token sees what is padded behind it, so nothing has to be masked: a mask would cost time, and
    # where a whole attention window is masked it makes not-a-number of it.
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False}
    if _keeps_logits(model):
        logits = model(**inputs, logits_to_keep=asked.to(device)).logits
    else:
        logits = model(**inputs).logits[:, -width:]  # prompt tuning adds rows in front
        logits = logits[:, asked.to(device)]
    chosen = logits[rows.to(device), columns.to(device)]
    chosen = chosen.to(torch.promote_types(chosen.dtype, torch.float32))
    return torch.nn.functional.cross_entropy(chosen, targets.to(device))


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
            else:
                model.save_pretrained(folder)
        except SafetensorError as error:
            msg = f"cannot write {out}: {error}"
            raise StoreError(msg, fix="free some space, or choose another folder") from error


def _base(config: Any, tokenizer_folder: Path) -> str:
    """Where an adapter's base model is: a folder in full, a name on the hub as it is."""
    known = config.base_model_name_or_path
    if not known:
        return str(tokenizer_folder.resolve())
    return str(Path(known).resolve()) if Path(known).is_dir() else str(known)


def _learnable(model: Any, examples: Sequence[Encoded]) -> list[Encoded]:
    """The examples that have a scored token with something before it."""
    if not examples:
        msg = "there are no examples to fine-tune on"
        raise UsageError(msg)
    learned = [example for example in examples if np.any(example.scored[1:])]
    if not learned:
        msg = f"none of the {len(examples)} examples has a token to learn: all are marked as prompt"
        raise UsageError(msg)
    size = model.get_input_embeddings().weight.shape[0]
    highest = max(max(example.ids) for example in learned)
    if highest >= size:
        msg = f"got token id {highest}, but the model knows {size}"
        raise UsageError(msg, fix="encode the examples with this model's tokenizer")
    return learned


@contextlib.contextmanager
def _own_randomness(torch: Any, seed: int, device: Any) -> Iterator[None]:
    """Seeds torch, which has nothing but a global state for first weights and dropout, and puts it back."""
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


def _prepare(model: Any, recipe: Recipe) -> Any:
    """Says which weights learn, and puts those into float32."""
    if hasattr(model, "peft_config"):
        msg = "the model has an adapter already"
        raise UsageError(msg, fix="merge it into the model first (merge_and_unload)")
    if recipe.method == "full":
        if getattr(model, "is_quantized", False):
            msg = "quantised weights cannot be trained"
            raise UsageError(msg, fix="use the method lora, or load the model unquantised")
        narrow = any(weight.dtype.itemsize < 4 for weight in model.parameters())
        return (model.float() if narrow else model).requires_grad_()
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


def _optimizer(torch: Any, weights: list[Any], recipe: Recipe) -> Any:
    """AdamW; biases and the scales of norms do not decay."""
    groups = [
        {"params": [w for w in weights if w.dim() >= 2], "weight_decay": recipe.weight_decay},
        {"params": [w for w in weights if w.dim() < 2], "weight_decay": 0.0},
    ]
    used = [group for group in groups if group["params"]]
    return torch.optim.AdamW(used, lr=recipe.learning_rate, fused=True)


def _step(
    torch: Any, model: Any, weights: list[Any], batch: list[Encoded], recipe: Recipe, step: int
) -> float:
    """Gradients of one batch, shortened; returns its loss."""
    half = recipe.dtype == "bfloat16"
    with torch.autocast(model.device.type, torch.bfloat16, enabled=half):
        loss = batch_loss(model, batch)
    value = float(loss.detach())
    if math.isfinite(value):
        loss.backward()
        longest = recipe.max_grad_norm or math.inf
        if torch.nn.utils.clip_grad_norm_(weights, longest).isfinite():
            return value
    what = "the loss" if not math.isfinite(value) else "the gradient"
    if step == 0:
        msg = f"{what} of the untrained model is not a finite number"
        raise TargetError(msg, fix="its weights are damaged, or its precision is too low")
    msg = f"{what} is no longer a finite number after {step} steps at learning rate {recipe.learning_rate:g}"
    raise TargetError(
        msg, fix=f"set a lower learning rate, for example {recipe.learning_rate / 10:g}"
    )


def _keeps_logits(model: Any) -> bool:
    """True where the model computes logits at given positions only, if asked."""
    if hasattr(model, "peft_config"):
        if model.active_peft_config.is_prompt_learning:
            return False
        model = model.get_base_model()
    return "logits_to_keep" in inspect.signature(model.forward).parameters


def _is_out_of_memory(torch: Any, error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
