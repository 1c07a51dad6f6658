"""Looks inside a transformers model: gradients of each passage, and hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from unseen.targets.inside.model import Opened
from unseen.targets.looks import Look, Seen, StepLook
from unseen.types import Passage


def look(opened: Opened, looks: Sequence[Look], passages: Sequence[Passage]) -> list[list[Seen]]:
    """What is seen of each passage, a list a look.

    Args:
        opened: the model.
        looks: of one kind, that share their passes.
        passages: one batch.

    Raises:
        TargetError: where the model cannot be looked at like this.
    """
    from unseen.targets.inside.steps import see_steps

    if isinstance(looks[0], StepLook):
        return see_steps(opened, cast("Sequence[StepLook]", looks), passages)
    msg = f"no look of the kind {type(looks[0]).__name__}"
    raise TypeError(msg)
