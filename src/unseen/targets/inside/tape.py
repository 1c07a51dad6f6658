"""What one forward and one backward pass leave of every module that owns weights.

Its input, and the gradient of its output: together, the gradient of its weights, for each passage alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from unseen.targets.inside.model import Opened, Rows
from unseen.targets.inside.owners import Owner, Unbatchable


@dataclass
class Tape:
    """Module -> its input, and its output's gradient."""

    inputs: dict[Any, Any] = field(default_factory=dict)
    gradients: dict[Any, Any] = field(default_factory=dict)

    def take(self, owner: Owner, d: Any) -> None:
        """Keeps the gradient of an owner's output, when the backward pass comes to it."""
        self.gradients[owner.module] = d


@contextlib.contextmanager
def captured(opened: Opened, owners: Sequence[Owner], rows: Rows, tape: Tape) -> Iterator[None]:
    """Tapes what the owners read, and what the loss asks of what they say.

    No weight has a gradient: the graph begins where tokens become embeddings.
    """
    n_rows = len(rows.ids)
    embedding = opened.model.get_input_embeddings()

    def hook(owner: Owner | None) -> Callable[[Any, Any, Any], Any]:
        def keep(module: Any, args: tuple[Any, ...], out: Any) -> Any:
            if module is embedding or (owner is not None and owner.kind == "embedding"):
                out = out.detach().requires_grad_()
            if owner is None:
                return out
            if module in tape.inputs:
                raise Unbatchable(f"{owner.name} is used more than once")
            if not args or args[0].shape[0] != n_rows or out.shape[0] != n_rows:
                raise Unbatchable(f"{owner.name} does not keep the passages apart")
            if owner.kind == "linear" and args[0].ndim != 3:
                raise Unbatchable(f"{owner.name} has an input of {args[0].ndim} dimensions")
            tape.inputs[module] = args[0].detach()
            if out.requires_grad:
                out.register_hook(lambda d: tape.take(owner, d))
            return out

        return keep

    handles = [owner.module.register_forward_hook(hook(owner)) for owner in owners]
    if all(owner.module is not embedding for owner in owners):
        handles.append(embedding.register_forward_hook(hook(None)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
