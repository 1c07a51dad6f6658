"""Differential privacy by DP-SGD, with the gradients, the noise and the accountants of Opacus.

Abadi et al. 2016, algorithm 1. Each step draws every record with the same small chance, apart from all
others (Poisson sampling), so that a batch may be of any size, and empty: then noise alone is the step,
and is counted. A record's loss is the mean over its own tokens, so its gradient, and what is left of it
after clipping, depend on no other record.
"""

from __future__ import annotations

import functools
import secrets
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from unseen.errors import ConfigError, UsageError, need
from unseen.targets.loss import record_losses
from unseen.targets.quantised import mixes_records
from unseen.training.recipe import Accountant, Privacy, Recipe, not_finite
from unseen.types import Encoded

_MOST_EMPTY = 1 / 3
_MOST_NOISE = 1e6  # that the search of Opacus tries
_PRV_EPSILON = (0.05, 100.0)  # it counts to within 0.01; its grid grows with epsilon
_PRV_NOISE = 0.1


@dataclass(frozen=True)
class Budget:
    """What a private training spends, known before its first step.

    Attributes:
        noise_multiplier: standard deviation of the noise, in units of `max_grad_norm`.
        max_grad_norm: the most that one record changes the sum of a step's gradients.
        sample_rate: chance of a record to be drawn for a step.
        steps: of the whole training.
        delta: the chance that epsilon does not hold.
        accountant: what adds up epsilon.
    """

    noise_multiplier: float
    max_grad_norm: float
    sample_rate: float
    steps: int
    delta: float
    accountant: Accountant

    def epsilon(self, steps: int | None = None) -> float:
        """Epsilon that is spent after so many steps, or after all: for one record added or removed."""
        steps = self.steps if steps is None else steps
        return epsilon_of(
            self.noise_multiplier, self.sample_rate, steps, self.delta, self.accountant
        )


def budget(recipe: Recipe, n_records: int) -> Budget:
    """Works out the noise of a private training, or what a given noise spends.

    Args:
        recipe: with `privacy`.
        n_records: records with something to learn.

    Raises:
        ConfigError: the batch is larger than the data or so small that steps without any record are
            common, delta is not below 1 / n_records, or epsilon is too small for any noise.
        MissingExtraError: opacus is not installed.
    """
    privacy = _privacy(recipe)
    rate, steps = recipe.batch_size / n_records, recipe.steps(n_records)
    if rate > 1:
        msg = f"got batch_size={recipe.batch_size}, but there are {n_records} records to draw from"
        raise ConfigError(msg, fix=f"set batch_size to {max(1, n_records // 4)} or so")
    if (1 - rate) ** n_records > _MOST_EMPTY:
        share = (1 - rate) ** n_records
        msg = (
            f"with batch_size={recipe.batch_size}, {100 * share:.0f}% of the private steps would "
            "draw no record"
        )
        raise ConfigError(msg, fix="set a larger batch_size: noise weighs less in large batches")
    delta = 0.1 / n_records if privacy.delta is None else privacy.delta
    if delta >= 1 / n_records:
        msg = (
            f"got delta={delta:g}: with {n_records} records it has to be below {1 / n_records:.2g}"
        )
        raise ConfigError(msg, fix=f"set delta to {0.1 / n_records:.2g} or less")
    noise = privacy.noise_multiplier
    _check_countable(privacy, rate, steps, delta)
    if noise is None:
        assert privacy.epsilon is not None  # noqa: S101 (a recipe has one of the two)
        noise = noise_of(privacy.epsilon, rate, steps, delta, privacy.accountant)
    return Budget(noise, privacy.max_grad_norm, rate, steps, delta, privacy.accountant)


def draws(recipe: Recipe, n_records: int) -> list[list[tuple[int, ...]]]:
    """The records of every step of every epoch, drawn at random; some steps may have none.

    Args:
        recipe: with `privacy`.
        n_records: how many there are.

    Returns:
        Indices below `n_records`, for each epoch and step.
    """
    privacy = _privacy(recipe)
    rng = np.random.default_rng(privacy.seed)  # without a seed, from the system
    rate, per_epoch = recipe.batch_size / n_records, recipe.steps(n_records) // recipe.epochs
    return [
        [tuple(np.flatnonzero(rng.random(n_records) < rate).tolist()) for _ in range(per_epoch)]
        for _ in range(recipe.epochs)
    ]


class PrivateSteps:
    """Gradients of single records, clipped and summed; noise is added by the optimizer's step.

    Args:
        model: prepared, with the weights that learn.
        optimizer: of these weights.
        recipe: with `privacy`.
        n_records: records with something to learn.

    Attributes:
        optimizer: adds noise to what `gradients` has summed, and takes the step.

    Raises:
        UsageError: the model checkpoints its gradients, or mixes records.
        ConfigError: as `budget`.
        MissingExtraError: opacus is not installed.
    """

    def __init__(self, model: Any, optimizer: Any, recipe: Recipe, n_records: int) -> None:
        if any(getattr(module, "gradient_checkpointing", False) for module in model.modules()):
            msg = "single records have no gradients where gradients are checkpointed"
            raise UsageError(msg, fix="call gradient_checkpointing_disable() on the model")
        if mixes_records(model):
            msg = "outliers of one record change the gradients of others in these weights of 8 bits"
            raise UsageError(msg, fix="load the unquantised model with bits=4 or bits=8")
        torch, privacy = need("torch", "hf"), _privacy(recipe)
        spent = budget(recipe, n_records)
        with _without_advice():
            grad_sample = need("opacus.grad_sample.grad_sample_module", "dp")
            self._hooks = grad_sample.GradSampleHooks(model, loss_reduction="sum", strict=False)
            seed = secrets.randbits(63) if privacy.seed is None else privacy.seed
            self.optimizer = need("opacus.optimizers", "dp").DPOptimizer(
                optimizer,
                noise_multiplier=spent.noise_multiplier,
                max_grad_norm=spent.max_grad_norm,
                expected_batch_size=recipe.batch_size,
                generator=torch.Generator(model.device).manual_seed(seed),
            )
        self._torch, self._model, self._recipe = torch, model, recipe
        self._weights = self.optimizer.params
        self._listening = [
            module
            for module in model.modules()
            if any(weight.requires_grad for weight in module.parameters(recurse=False))
        ]
        self._checked = False

    def gradients(self, batch: Sequence[Encoded], step: int) -> float | None:
        """Sums the clipped gradients of the records; returns their mean loss, or None without records.

        Args:
            batch: the records that were drawn, or none.
            step: counted from 0, for messages.

        Raises:
            TargetError: a loss or gradient is not a finite number.
            UsageError: the model's layers give no gradients of single records.
        """
        torch, recipe = self._torch, self._recipe
        for module in self._listening:  # hooks sleep in evaluation mode
            module.training = True
        total = 0.0
        for start in range(0, len(batch), recipe.together):
            part = batch[start : start + recipe.together]
            half = recipe.dtype == "bfloat16"
            with torch.autocast(self._model.device.type, torch.bfloat16, enabled=half):
                loss = record_losses(self._model, part).sum()
            total += float(loss.detach())
            if not np.isfinite(total):
                raise not_finite("the loss", recipe, step)
            self._backward(loss, len(part))
            self.optimizer.clip_and_accumulate()
            self._forget()
        for weight in self._weights:  # all is summed; the step has nothing to add but noise
            weight.grad_sample = weight.new_zeros((0, *weight.shape))
            summed = weight.summed_grad
            if summed is not None and not bool(summed.isfinite().all()):
                raise not_finite("the gradient", recipe, step)
        return total / len(batch) if batch else None

    def close(self) -> None:
        """Takes the hooks off the model again."""
        self._hooks.remove_hooks()
        self._forget()
        for weight in self._model.parameters():
            for name in ("grad_sample", "summed_grad", "_forward_counter"):
                if hasattr(weight, name):
                    delattr(weight, name)

    def _backward(self, loss: Any, n_records: int) -> None:
        try:
            with _without_advice():
                loss.backward()
        except (RuntimeError, ValueError, NotImplementedError) as error:
            if self._checked or "memory" in str(error):
                raise
            raise self._unfit() from error
        if not self._checked:
            self._check(n_records)
            self._checked = True
        for weight in self._weights:  # norms of half-precision gradients would be rounded
            weight.grad_sample = weight.grad_sample.to(weight.dtype)

    def _check(self, n_records: int) -> None:
        """The gradients of the records have to add up to the gradient, for each weight that has one."""
        tolerance = 1e-3 if self._recipe.dtype == "float32" else 0.1
        for weight in self._weights:
            of_records = getattr(weight, "grad_sample", None)
            if not isinstance(of_records, self._torch.Tensor) or len(of_records) != n_records:
                raise self._unfit()
            whole = weight.grad.float()
            off = (of_records.float().sum(dim=0) - whole).norm()
            if not bool(off <= tolerance * whole.norm() + 1e-6):
                raise self._unfit()

    def _unfit(self) -> UsageError:
        return UsageError(
            "differential privacy needs the gradient of each record, and layers of this model do not "
            f"give it with the method {self._recipe.method}",
            fix="use the method lora"
            if self._recipe.method == "full"
            else "name other layers in lora_targets, for example those of attention",
        )

    def _forget(self) -> None:
        for weight in self._weights:
            weight.grad_sample = weight.grad = None


def _privacy(recipe: Recipe) -> Privacy:
    if recipe.privacy is None:
        raise ConfigError("the recipe has no privacy", fix="give it Privacy(epsilon=8)")
    return recipe.privacy


def _check_countable(privacy: Privacy, rate: float, steps: int, delta: float) -> None:
    """Refuses what an accountant cannot count, or only in minutes, and names what it can.

    Raises:
        ConfigError: with the smallest or largest number that would do.
    """
    epsilon, noise = privacy.epsilon, privacy.noise_multiplier
    if privacy.accountant == "prv":
        if epsilon is not None and epsilon > _PRV_EPSILON[1]:
            raise ConfigError(
                f"got epsilon={epsilon:g}: above {_PRV_EPSILON[1]:g} the accountant prv counts for minutes",
                fix="set accountant=rdp",
            )
        if noise is not None and noise < _PRV_NOISE:
            raise ConfigError(
                f"got noise_multiplier={noise:g}: below {_PRV_NOISE} the accountant prv counts for minutes",
                fix="set accountant=rdp",
            )
    if epsilon is None:
        return
    least = _PRV_EPSILON[0]
    if privacy.accountant == "rdp":
        least = epsilon_of(_MOST_NOISE, rate, steps, delta, "rdp")
    if epsilon <= least:
        enough = float(f"{1.1 * least:.1g}")
        enough = enough if enough > least else 2 * enough
        raise ConfigError(
            f"got epsilon={epsilon:g}: no noise fits this privacy, the smallest epsilon that the "
            f"accountant {privacy.accountant} finds at delta={delta:.2g} is {least:.2g}",
            fix=f"set epsilon to {enough:g} or more",
        )


@functools.cache
def noise_of(
    epsilon: float, rate: float, steps: int, delta: float, accountant: Accountant
) -> float:
    """The noise multiplier that spends an epsilon; arguments as those of `epsilon_of`.

    Raises:
        ConfigError: where no noise does.
        MissingExtraError: opacus is not installed.
    """
    utils = need("opacus.accountants.utils", "dp")
    with _accounting():
        found: float = utils.get_noise_multiplier(
            target_epsilon=epsilon,
            target_delta=delta,
            sample_rate=rate,
            steps=steps,
            accountant=accountant,
        )
    return found


@functools.cache
def epsilon_of(
    noise: float, rate: float, steps: int, delta: float, accountant: Accountant
) -> float:
    """Epsilon of Gaussian noise on what records are drawn for by themselves (Poisson sampling).

    Args:
        noise: standard deviation, in units of the most that one record changes.
        rate: chance of a record to be drawn for a step.
        steps: how many.
        delta: the chance that epsilon does not hold.
        accountant: what adds up.

    Raises:
        ConfigError: where the accountant cannot tell.
        MissingExtraError: opacus is not installed.
    """
    if steps == 0:
        return 0.0
    counted = need("opacus.accountants", "dp").create_accountant(mechanism=accountant)
    counted.history = [(noise, rate, steps)]
    with _accounting():
        return float(counted.get_epsilon(delta=delta))


@contextmanager
def _accounting() -> Iterator[None]:
    """What accountants raise where there is nothing to find is a fault of what they were asked."""
    try:
        with _without_advice(), np.errstate(all="ignore"):
            yield
    except (ValueError, RuntimeError, MemoryError, OverflowError) as error:
        raise ConfigError(
            f"no noise fits this privacy: {error}",
            fix="set a larger epsilon or noise_multiplier, or accountant=rdp",
        ) from error


@contextmanager
def _without_advice() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
