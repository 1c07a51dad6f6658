"""Hidden states of every layer, as means over the places that count."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from unseen.targets.inside.model import Opened, Rows, mean_over, rows_of
from unseen.targets.looks import Seen
from unseen.types import Passage


def see_states(opened: Opened, passages: Sequence[Passage]) -> list[Seen]:
    """What every layer makes of each passage: one forward pass, and no gradient."""
    import torch

    rows = rows_of(opened, passages, whole=True)
    # A token counts by the state that it leaves, which is one place behind the state that foretells it.
    row, at = rows.index
    with torch.inference_mode():
        layers = [mean_over(layer[row, at + 1], rows.share) for layer in _layers(opened, rows)]
        means = torch.stack(layers, dim=1).to(torch.float32).cpu().numpy()
    return [{"states": of_passage} for of_passage in means]


def _layers(opened: Opened, rows: Rows) -> Sequence[Any]:
    """(B, T, width) each: the embedding's output, and what every layer adds it up to."""
    inputs = rows.inputs(opened) | {"output_hidden_states": True}
    if opened.head_apart:
        found: Sequence[Any] = opened.decoder(**inputs).hidden_states
        return found
    if "logits_to_keep" in inspect.signature(opened.base.forward).parameters:
        inputs |= {"logits_to_keep": 1}
    found = opened.model(**inputs).hidden_states
    width = rows.ids.shape[1]  # virtual tokens stand before the text
    return [layer[:, -width:] for layer in found]
