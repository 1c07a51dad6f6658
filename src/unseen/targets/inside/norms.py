"""Norms of each passage's own gradient, for a whole batch at once, without any gradient of the weights.

The gradient of a linear layer is sum_t d_t a_t^T, of its inputs a and the gradients d of its outputs, so
its squared norm is sum_{t,t'} (a_t . a_t') (d_t . d_t'): products of rows, not of weights (ghost norms,
Goodfellow 2015; Li et al. 2022). Where a model has layers of other kinds, each passage is differentiated
by itself (`literal`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unseen.targets.inside.model import (
    Opened,
    Rows,
    gradients_off,
    logits_of,
    losses_of,
    rows_of,
)
from unseen.targets.inside.owners import Owner, Unbatchable, owners_of
from unseen.targets.inside.tape import Tape, captured
from unseen.targets.looks import NormLook, Seen, Weights
from unseen.types import Passage

_HALF = 2e-2
OFF = {"torch.float64": 1e-6, "torch.float32": 1e-3}
"""Norms that differ by this share from literal ones are not used; in half precision, by `_HALF`.

Rounding is a tenth of it and less; a layer that is left out is more, if it is no small one.
"""


@dataclass(frozen=True)
class NormCheck:
    """What the gradient of one passage says of the way to its norm.

    Attributes:
        reason: why passages have to be differentiated one by one; None where they can be batched.
        difference: |batched - literal| / literal; None where it was not tried.
    """

    reason: str | None
    difference: float | None


def see_norms(opened: Opened, look: NormLook, passages: Sequence[Passage]) -> list[Seen]:
    """What the look sees of each passage."""
    literal = check_norm(opened, look, passages[0]).reason is not None
    way = literal_norms if literal else batched_norms
    norms = way(opened, look.weights, passages).cpu().numpy()
    return [
        {
            "norm": norm,
            "n_tokens": np.array(len(passage.places)),
            "literal": np.array(int(literal)),
        }
        for norm, passage in zip(norms, passages, strict=True)
    ]


def check_norm(opened: Opened, look: NormLook, passage: Passage) -> NormCheck:
    """Tries batched norms on one passage, once for each choice of weights."""
    place = ("norm", look.weights)
    if place not in opened.notes:
        opened.notes[place] = _checked(opened, look.weights, passage)
    check: NormCheck = opened.notes[place]
    return check


def _checked(opened: Opened, weights: Weights, passage: Passage) -> NormCheck:
    try:
        batched = float(batched_norms(opened, weights, [passage]))
    except Unbatchable as why:
        return NormCheck(str(why), None)
    literal = float(literal_norms(opened, weights, [passage]))
    share = abs(batched - literal) / literal if literal else abs(batched)
    limit = OFF.get(str(opened.model.dtype), _HALF)
    if share > limit:  # not-a-number is not above it: it is the record's, and is counted there
        return NormCheck(f"it would be off by {share:.1%} on the first record", share)
    return NormCheck(None, share)


# --- one by one -------------------------------------------------------------------------------


def literal_norms(opened: Opened, weights: Weights, passages: Sequence[Passage]) -> Any:
    """Norms of gradients that are worked out passage by passage, (B,) in float64.

    The gradient of each weight is freed as soon as it is part of the norm.
    """
    import torch

    learning = list(opened.learning(weights, steps=False).values())
    squares: list[Any] = []
    factors: list[Any] = []

    def add(weight: Any) -> None:
        norm = torch.linalg.vector_norm(weight.grad, dtype=torch.float64)
        squares[-1] += norm.to(opened.device) ** 2
        weight.grad = None

    handles = []
    with gradients_off(opened.model):
        try:
            for weight in learning:
                weight.requires_grad_()
                handles.append(weight.register_post_accumulate_grad_hook(add))
            for passage in passages:
                squares.append(torch.zeros(1, dtype=torch.float64, device=opened.device))
                factors.append(_backward(opened, rows_of(opened, [passage])))
        finally:
            for handle in handles:
                handle.remove()
            for weight in learning:
                weight.requires_grad_(requires_grad=False)
                weight.grad = None
    return torch.cat(squares).sqrt() / torch.cat(factors)


def _backward(opened: Opened, rows: Rows) -> Any:
    """One forward and one backward pass of each passage's own loss.

    Returns:
        (B,) what the losses were multiplied by: in float16 much of a small gradient would be zero, so
        there it is the sum over the tokens that is differentiated, and not the mean.
    """
    import torch

    factor = torch.ones_like(rows.share[:, 0])
    if str(opened.model.dtype) == "torch.float16":
        factor = 1 / rows.share[:, 0]
    with torch.enable_grad():
        _, logits = logits_of(opened, rows)
        (losses_of(logits, rows) * factor).sum().backward()
    return factor


# --- batched ----------------------------------------------------------------------------------


def batched_norms(opened: Opened, weights: Weights, passages: Sequence[Passage]) -> Any:
    """Norms of each passage's own gradient, (B,) in float64.

    Raises:
        Unbatchable: where the passages cannot be told apart somewhere.
    """
    import torch

    owners = owners_of(opened, weights, steps=False)
    rows = rows_of(opened, passages)
    total = torch.zeros(len(passages), dtype=torch.float64, device=opened.device)
    tape = _Squares(total=total)
    with gradients_off(opened.model), captured(opened, owners, rows, tape):
        factor = _backward(opened, rows)
    return tape.total.sqrt() / factor


@dataclass
class _Squares(Tape):
    """Adds up squared norms as the backward pass goes; what they are made of is freed at once.

    Attributes:
        total: (B,) squared norms so far.
        head: a head that shares the weight of the input embedding, its input and its output's gradient.
    """

    total: Any = None
    head: tuple[Owner, Any, Any] | None = None

    def take(self, owner: Owner, d: Any) -> None:
        """Adds the squared norm of the gradient of an owner's weights, for each passage."""
        a, d = self.inputs.pop(owner.module), _exact(d)
        if owner.kind == "embedding":
            square = self._of_embedding(owner, a, d)
        else:
            a = _exact(a)
            square = (_of_norm if owner.kind == "norm" else _of_linear)(owner, a, d)
        if owner.tied_to is not None:
            self.head = owner, a, d
        self.total += square.to(self.total)

    def _of_embedding(self, owner: Owner, ids: Any, g: Any) -> Any:
        """Rows of the table get the gradients of all places that hold the token; a tied head adds to them.

        Args:
            owner: the embedding.
            ids: (B, T) its input.
            g: (B, T, width) the gradient of its scaled output.
        """
        g = g * owner.scale
        if owner.padding is not None:
            g = g * (ids != owner.padding)[..., None]
        first = (ids[:, :, None] == ids[:, None]).int().argmax(2)  # where each token is seen first
        rows = g.new_zeros(g.shape).scatter_add_(1, first[..., None].expand_as(g), g)
        square = rows.pow(2).sum((1, 2))
        if self.head is None or self.head[0].tied_to is not owner.module:
            return square
        _, h, d = self.head
        asked = d.gather(2, ids[:, None].expand(-1, d.shape[1], -1))  # (B, K, T)
        return square + 2 * (asked * (h @ g.transpose(1, 2))).sum((1, 2))


def _of_linear(owner: Owner, a: Any, d: Any) -> Any:
    """(B,) of d^T a and of the sum of d; few long passages build the gradient of the one layer.

    Args:
        owner: a linear layer.
        a: (B, T, in) its input.
        d: (B, T, out) the gradient of its output.
    """
    square = a.new_zeros(len(a))
    if owner.weight:
        n, n_in, n_out = a.shape[1], a.shape[2], d.shape[2]
        if n * (n_in + n_out) > n_in * n_out:
            square = square + (d.transpose(1, 2) @ a).pow(2).sum((1, 2))
        else:
            square = square + ((a @ a.transpose(1, 2)) * (d @ d.transpose(1, 2))).sum((1, 2))
    return square + d.sum(1).pow(2).sum(1) if owner.bias else square


def _of_norm(owner: Owner, a: Any, d: Any) -> Any:
    """(B,) of the gradients of gain and shift, which are sums over places (and heads)."""
    assert owner.normed is not None  # noqa: S101 (owners.py sees to it)
    others = tuple(range(1, d.ndim - 1))
    square = d.new_zeros(len(d))
    if owner.weight:
        square = square + (d * owner.normed(a)).sum(others).pow(2).sum(-1)
    return square + d.sum(others).pow(2).sum(-1) if owner.bias else square


def _exact(x: Any) -> Any:
    """In single precision at least."""
    import torch

    return x.to(torch.promote_types(x.dtype, torch.float32))
