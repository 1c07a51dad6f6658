"""Algorithm 1 of G-Drift: the step is really taken, passage by passage, and taken back.

The oracle that batched steps are held against, and the way where they cannot be batched.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from unseen.targets.inside.model import Opened, States, losses_of, one_pass, rows_of
from unseen.targets.looks import Weights
from unseen.types import Passage


def literal_states(
    opened: Opened,
    weights: Weights,
    etas: Sequence[float],
    read: frozenset[str],
    passages: Sequence[Passage],
) -> tuple[States, list[States]]:
    """States before the step, and after it for each eta, padded to one width.

    Afterwards every weight is as before, bit for bit, whatever happened within.
    """
    import torch

    learning = list(opened.learning(weights).values())
    found: list[list[States]] = []
    with changed(learning) as old:
        for passage in passages:
            rows = rows_of(opened, [passage])
            with torch.enable_grad():
                before, logits = one_pass(opened, rows, read)
                gradients = torch.autograd.grad(
                    losses_of(logits, rows).sum(), learning, allow_unused=True
                )
            of_passage = [before]
            with torch.no_grad():
                for eta in etas:
                    for weight, start, gradient in zip(learning, old, gradients, strict=True):
                        if gradient is not None:
                            weight.copy_(start).add_(gradient, alpha=eta)
                    of_passage.append(one_pass(opened, rows, read)[0])
                for weight, start in zip(learning, old, strict=True):
                    weight.copy_(start)
            found.append(of_passage)
    before, *after = (_joined(of_step) for of_step in zip(*found, strict=True))
    return before, after


@contextlib.contextmanager
def changed(weights: Sequence[Any]) -> Iterator[list[Any]]:
    """Weights that have gradients and may be changed; gives copies, and puts these back at the end."""
    import torch

    old = [weight.detach().clone() for weight in weights]
    asked = [weight.requires_grad for weight in weights]
    try:
        for weight in weights:
            weight.requires_grad_()
        yield old
    finally:
        with torch.no_grad():
            for weight, start, flag in zip(weights, old, asked, strict=True):
                weight.requires_grad_(flag)
                weight.grad = None
                weight.copy_(start)


def _joined(parts: Sequence[States]) -> States:
    """Passages of one batch; places behind the last that counts are zeros."""
    import torch

    most = max(part.losses.shape[1] for part in parts)

    def joined(tensors: Sequence[Any]) -> Any:
        wide = []
        for one in tensors:
            more = one.new_zeros(1, most - one.shape[1], *one.shape[2:])
            wide.append(torch.cat([one, more], dim=1))
        return torch.cat(wide)

    return States(
        joined([part.losses for part in parts]),
        joined([part.logits for part in parts]),
        {name: joined([part.states[name] for part in parts]) for name in parts[0].states},
    )
