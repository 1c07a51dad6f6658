"""Looks inside a transformers model: gradients of each passage, and hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from unseen.targets.inside.model import Opened
from unseen.targets.looks import Look, NormLook, Seen, StatesLook, StepLook
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
    from unseen.targets.inside.norms import see_norms
    from unseen.targets.inside.states import see_states
    from unseen.targets.inside.steps import see_steps

    first = looks[0]
    if isinstance(first, StepLook):
        return see_steps(opened, cast("Sequence[StepLook]", looks), passages)
    if isinstance(first, NormLook):
        return [see_norms(opened, first, passages)]
    if isinstance(first, StatesLook):
        return [see_states(opened, passages)]
    msg = f"no look of the kind {type(first).__name__}"
    raise TypeError(msg)
