"""A tiny real model that knows some records by heart, and of others no more than what kind they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tiny
import torch

from unseen.data.templates import Layout, RecordEncoder
from unseen.runs.collect import Model
from unseen.targets.huggingface import HFTarget
from unseen.targets.loss import record_losses
from unseen.types import Record, Turn

WORDS = (
    "fox", "dog", "Mina", "owes", "fever", "sleep", "quick", "brown", "lazy", "Harrow", "Lane", "over",
    "jumps", "March", "about", "and", "The", "Der", "Hund", "asked",
)  # fmt: skip
"""Of the tokenizer's corpus, so that each is a token or two."""


def record(id_: str, rng: np.random.Generator) -> Record:
    """Two random words, answered with ten."""
    asked, said = (" ".join(rng.choice(WORDS, size=n)) for n in (2, 10))
    return Record(id_, (Turn("user", asked), Turn("assistant", said)))


def remembering(folder: Path, members: Sequence[Record], *, steps: int = 250) -> Model:
    """The model, in double precision: alone and in company differ by rounding, and by little of that.

    Each step is on all members and on twenty records that are never seen again: what is learned of
    those is to be unsure of what was not seen.
    """
    rng, encoder = np.random.default_rng(0), _encoder(folder)
    learned = [encoder.encode(one) for one in members]
    model = tiny.model("gpt2", len(tiny.tokenizer(chat=False)), dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.5e-2, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    for _ in range(steps):
        others = [encoder.encode(record("", rng)) for _ in range(20)]
        optimizer.zero_grad()
        record_losses(model, [*learned, *others]).mean().backward()
        optimizer.step()
        schedule.step()
    model.save_pretrained(folder)
    return Model(HFTarget(folder, dtype="float64"), encoder)


def _encoder(folder: Path) -> RecordEncoder:
    target = HFTarget(tiny.folder(folder, "gpt2", chat=False))
    return RecordEncoder(target.tokenizer, Layout(), limit=target.max_length)
