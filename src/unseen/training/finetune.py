"""Fine-tune a causal language model: a small loop of which every step is known.

The loss of a batch is the mean over the scored tokens of all its records, in nats: what the trainers of
transformers and TRL minimise by default, so that a long answer weighs more than a short one.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from unseen.errors import ConfigError, OutOfMemoryError, UsageError, need
from unseen.targets.loss import batch_loss
from unseen.training.adapters import adapt
from unseen.training.private import PrivateSteps, draws
from unseen.training.recipe import Recipe, not_finite
from unseen.training.saving import save

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from unseen.training.checkpoint import Checkpoints
    from unseen.types import Encoded

__all__ = ["Recipe", "batch_loss", "batches", "finetune", "save"]  # all that a caller needs

_WINDOW = 4  # batches that are sorted by length together


def finetune(
    model: Any,
    examples: Sequence[Encoded],
    recipe: Recipe,
    *,
    partitions: Sequence[int] | None = None,
    progress: Callable[[int, int, float], None] | None = None,
    after_epoch: Callable[[int, Any], None] | None = None,
    checkpoints: Checkpoints | None = None,
) -> Any:
    """Trains a causal language model of transformers on the scored tokens of the examples.

    With `recipe.privacy` the steps are private: `private.budget` says what they spend. Otherwise two
    runs with equal arguments on the same machine with as many threads give the same weights,
    however often one of them was killed and continued from its checkpoints. No global random state
    is touched.

    Args:
        model: the model. It is changed in place, whatever the method.
        examples: what it learns. Those without a scored token are left out.
        recipe: how.
        partitions: (len(examples),) numbers: within an epoch, examples of lower numbers come first.
        progress: is told after each step: steps done, of how many, the step's loss in nats per token.
            Steps that a checkpoint has already are told at once.
        after_epoch: is called after each epoch with its number, from 1, and the model, which may be
            used, in evaluation mode, but not changed. A continued run may call it again for an epoch
            that has ended before.
        checkpoints: where the state is kept, and taken up again where there is one.

    Returns:
        The model in evaluation mode; for an adapter the `PeftModel` around it.

    Raises:
        UsageError: there is nothing to learn, a token id is not in the model's vocabulary, the model
            is quantised or has an adapter already, or has no layers that `lora_targets` names.
        TargetError: the loss is not a finite number.
        OutOfMemoryError: a batch did not fit into memory.
        StoreError: a checkpoint cannot be written or read, or is of another training.
    """
    torch = need("torch", "hf")
    places = _learnable(model, examples)
    learned = [examples[place] for place in places]
    if recipe.privacy is not None:
        if partitions is not None:
            msg = "private steps draw from all records, so none of them can come first"
            raise ConfigError(msg, fix="leave out partitions, or privacy")
        epochs = draws(recipe, len(learned))
    else:
        epochs = _epochs(
            [len(example.ids) for example in learned],
            recipe,
            None if partitions is None else [partitions[place] for place in places],
        )
    with _own_randomness(torch, recipe.seed, model.device):
        model = _prepare(model, recipe)
        named = [(name, w) for name, w in model.named_parameters() if w.requires_grad]
        weights = [weight for _, weight in named]
        optimizer = _optimizer(torch, weights, recipe)
        private = None
        if recipe.privacy is not None:
            private = PrivateSteps(model, optimizer, recipe, len(learned))
            optimizer = private.optimizer
        losses: list[float] = []
        steps = sum(map(len, epochs))
        if checkpoints is not None:
            losses, _ = checkpoints.restore(named, optimizer)
        if progress is not None:
            for step, loss in enumerate(losses, start=1):
                progress(step, steps, loss)
        ended = 0  # steps until the end of the epoch
        try:
            for epoch, of_epoch in enumerate(epochs, start=1):
                begun, ended = ended, ended + len(of_epoch)
                if len(losses) >= ended:
                    continue
                model.train(recipe.dropout > 0)
                for batch in of_epoch[len(losses) - begun :]:
                    step = len(losses)
                    for group in optimizer.param_groups:
                        group["lr"] = recipe.rate(step, steps)
                    read = [learned[i] for i in batch]
                    if private is None:
                        loss = _step(torch, model, weights, read, recipe, step)
                    else:  # a draw without a record has no loss: the one before is told again
                        drawn = private.gradients(read, step)
                        loss = drawn if drawn is not None else losses[-1] if losses else math.nan
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
                    losses.append(loss)
                    if progress is not None:
                        progress(step + 1, steps, loss)
                    within = step + 1 < ended
                    if (
                        within
                        and checkpoints is not None
                        and checkpoints.due(step + 1, epoch_ends=False)
                    ):
                        checkpoints.keep(named, optimizer, losses)
                model.eval()
                if after_epoch is not None:
                    after_epoch(epoch, model)
                if checkpoints is not None and checkpoints.due(ended, epoch_ends=True):
                    checkpoints.keep(named, optimizer, losses)
        except RuntimeError as error:
            if not _is_out_of_memory(torch, error):
                raise
            msg = f"a training batch of {recipe.together} records did not fit into memory"
            raise OutOfMemoryError(
                msg, fix="set a larger accumulate, or a smaller batch_size"
            ) from error
        finally:
            optimizer.zero_grad(set_to_none=True)
            if private is not None:
                private.close()
            model.eval()
    return model


def _epochs(
    lengths: Sequence[int], recipe: Recipe, partitions: Sequence[int] | None
) -> list[list[tuple[int, ...]]]:
    """The batches of every epoch, partition after partition."""
    order = np.random.default_rng(recipe.seed)
    of_partition: dict[int, list[int]] = {}
    for place in range(len(lengths)):
        of_partition.setdefault(0 if partitions is None else partitions[place], []).append(place)
    epochs: list[list[tuple[int, ...]]] = []
    for _ in range(recipe.epochs):
        epoch: list[tuple[int, ...]] = []
        for _, inside in sorted(of_partition.items()):
            cut = batches([lengths[place] for place in inside], recipe.batch_size, order)
            epoch += [tuple(inside[i] for i in batch) for batch in cut]
        epochs.append(epoch)
    return epochs


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


def _learnable(model: Any, examples: Sequence[Encoded]) -> list[int]:
    """Places of the examples that have a scored token with something before it."""
    if not examples:
        msg = "there are no examples to fine-tune on"
        raise UsageError(msg)
    learned = [i for i, example in enumerate(examples) if np.any(example.scored[1:])]
    if not learned:
        msg = f"none of the {len(examples)} examples has a token to learn: all are marked as prompt"
        raise UsageError(msg)
    size = model.get_input_embeddings().weight.shape[0]
    highest = max(max(examples[i].ids) for i in learned)
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
            raise UsageError(msg, fix="use the method qlora, or load the model unquantised")
        narrow = any(weight.dtype.itemsize < 4 for weight in model.parameters())
        return (model.float() if narrow else model).requires_grad_()
    return adapt(model, recipe)


def _optimizer(torch: Any, weights: list[Any], recipe: Recipe) -> Any:
    """AdamW; biases and the scales of norms do not decay."""
    groups = [
        {"params": [w for w in weights if w.dim() >= 2], "weight_decay": recipe.weight_decay},
        {"params": [w for w in weights if w.dim() < 2], "weight_decay": 0.0},
    ]
    used = [group for group in groups if group["params"]]
    return torch.optim.AdamW(used, lr=recipe.peak_rate, fused=True)


def _step(
    torch: Any, model: Any, weights: list[Any], batch: list[Encoded], recipe: Recipe, step: int
) -> float:
    """Gradients of one batch, shortened; returns its loss."""
    half = recipe.dtype == "bfloat16"
    value, n_scored = 0.0, sum(map(_n_scored, batch))
    for start in range(0, len(batch), recipe.together):
        part = batch[start : start + recipe.together]
        with torch.autocast(model.device.type, torch.bfloat16, enabled=half):
            loss = batch_loss(model, part) * (sum(map(_n_scored, part)) / n_scored)
        value += float(loss.detach())
        if not math.isfinite(value):
            break
        loss.backward()
    else:
        longest = recipe.max_grad_norm or math.inf
        if torch.nn.utils.clip_grad_norm_(weights, longest).isfinite():
            return value
    raise not_finite("the gradient" if math.isfinite(value) else "the loss", recipe, step)


def _n_scored(example: Encoded) -> int:
    return int(np.count_nonzero(example.scored[1:]))


def _is_out_of_memory(torch: Any, error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
