"""How a token is drawn: alike for every target, and for a prompt alone as in company.

Each continuation has random numbers of its own, which follow from the prompt's ids, the seed and
its number; the t-th of them decides the t-th token. So what is drawn does not depend on what else
is asked, on the order, or on where a stopped run goes on.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from unseen.types import FloatArray, Sampling

if TYPE_CHECKING:
    import torch


def chance(prompt: Sequence[int], sampling: Sampling, number: int) -> np.random.Generator:
    """The random numbers of one continuation."""
    digest = hashlib.blake2b(struct.pack("<qq", sampling.seed, number), digest_size=16)
    digest.update(np.array(prompt, dtype="<i8").tobytes())
    return np.random.default_rng(int.from_bytes(digest.digest(), "little"))


def draw(logits: FloatArray, sampling: Sampling, u: float) -> int:
    """Which of some tokens is drawn: the place of the first whose cumulated probability exceeds u.

    Args:
        logits: (k,) of the likeliest tokens, largest first; top_k has been applied.
        sampling: temperature above 0, and top_p.
        u: uniform in [0, 1).

    >>> draw(np.log([0.6, 0.4]), Sampling(temperature=1.0), 0.7)
    1
    """
    scaled = (logits.astype(np.float64) - float(logits[0])) / sampling.temperature
    reached = np.exp(scaled).cumsum()
    kept = 1 + int(np.searchsorted(reached, sampling.top_p * reached[-1], side="left"))
    reached = reached[: min(kept, len(reached))]
    place = int(np.searchsorted(reached, u * reached[-1], side="right"))
    return min(place, len(reached) - 1)


def largest_first(logits: FloatArray, top_k: int) -> np.ndarray:
    """Ids of the k likeliest tokens (0: of all), likeliest first; equal ones by their id."""
    order = np.argsort(-logits, kind="stable")
    return order[:top_k] if top_k else order


def choose(
    logits: torch.Tensor,
    sampling: Sampling,
    chances: Sequence[np.random.Generator],
    *,
    ruled_out: Collection[int] = (),
) -> list[int]:
    """The next token of each row of logits, none that is ruled out: the likeliest, or one that is drawn."""
    import torch

    scores = logits.float()
    out = [id_ for id_ in ruled_out if id_ < scores.shape[-1]]
    if out:
        scores = scores.index_fill(-1, torch.tensor(out, device=scores.device), -torch.inf)
    if sampling.temperature:
        scores = Drawer(sampling, chances)(None, scores)
    chosen: list[int] = scores.argmax(-1).tolist()
    return chosen


class Drawer:
    """Lets the generation of transformers, which is greedy, take the tokens that are drawn.

    It is given as a processor of logits: of every row, all but the drawn token are ruled out.

    Args:
        sampling: temperature above 0.
        chances: the random numbers of each row.
    """

    def __init__(self, sampling: Sampling, chances: Sequence[np.random.Generator]) -> None:
        self._sampling = sampling
        self._chances = chances

    def __call__(self, input_ids: torch.Tensor | None, scores: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        """Scores that allow one token a row; rows that have ended go on unseen."""
        import torch

        k = min(self._sampling.top_k or scores.shape[-1], scores.shape[-1])
        values, tokens = scores.float().topk(k, dim=-1)
        rows = values.cpu().numpy()
        places = [
            draw(row, self._sampling, float(chance.random()))
            for row, chance in zip(rows, self._chances, strict=True)
        ]
        chosen = tokens.gather(-1, torch.tensor(places, device=tokens.device)[:, None])
        return torch.full_like(scores, -torch.inf).scatter(-1, chosen, 0.0)
