"""What is kept of next-token distributions: exact, and with few passes over the logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unseen.types import TokenStats

if TYPE_CHECKING:
    import torch

_LANES = 256
# Nats below the first choice at which a probability is 0 in any precision.
_RULED_OUT = -10_000.0


def moments(logits: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Statistics of n next-token distributions, computed in float32 or better.

    Args:
        logits: (n, vocabulary), of any precision.
        tokens: (n,) the tokens that really came.

    Returns:
        log p(token), sum p log p, the standard deviation of log p under p, rank and argmax,
        each (n,).
    """
    import torch

    if logits.dtype != torch.float64:
        logits = logits.float()
    top, argmax = _largest(logits)
    own = logits.gather(-1, tokens[:, None])
    work = torch.empty_like(logits)
    # Whole numbers to 2**24 are exact in float32, and summed several times as fast as booleans.
    above = torch.gt(logits, own, out=work) if logits.device.type == "cpu" else logits > own
    rank = above.sum(-1).long()
    shifted = logits - top[:, None]
    weights = torch.exp(shifted, out=work)
    total = weights.sum(-1)
    log_total = total.log()
    mean = torch.linalg.vecdot(weights, shifted) / total
    if not bool(torch.isfinite(mean).all()):
        # p = 0 where log p is -inf (tokens that a model rules out): they add to no moment.
        shifted = shifted.clamp_(min=_RULED_OUT)
        mean = torch.linalg.vecdot(weights, shifted) / total
    # Centred before squaring: the difference of two large moments would lose the small sd.
    centred = shifted.sub_(mean[:, None]).square_()
    variance = torch.linalg.vecdot(weights, centred) / total
    logprob = own[:, 0] - top - log_total
    return logprob, mean - log_total, variance.clamp(min=0).sqrt(), rank, argmax


def _largest(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest of each row and its first place, each (n,).

    On a CPU, torch looks for places ten times as slowly as for maxima: only the lanes that hold
    the largest are searched.
    """
    import torch

    whole = logits.shape[1] // _LANES * _LANES
    if whole == 0 or logits.device.type != "cpu":
        found = logits.max(dim=-1)
        return found.values, found.indices
    lanes = logits[:, :whole].unflatten(1, (-1, _LANES))
    lane = lanes.amax(-1).argmax(-1)
    inside = lanes[torch.arange(len(logits)), lane].max(-1)
    top, place = inside.values, lane * _LANES + inside.indices
    if whole < logits.shape[1]:
        rest = logits[:, whole:].max(-1)
        later = rest.values > top
        top = torch.where(later, rest.values, top)
        place = torch.where(later, rest.indices + whole, place)
    return top, place


def split(parts: Sequence[torch.Tensor], lengths: Sequence[int]) -> list[TokenStats]:
    """Statistics of rows that stand one after another, as one value a row."""
    logprob, mean, sd, rank, argmax = (part.numpy() for part in parts)
    answers: list[TokenStats] = []
    start = 0
    for length in lengths:
        here = slice(start, start + length)
        answers.append(
            TokenStats(
                logprob=logprob[here].copy(),
                mean=mean[here].copy(),
                sd=sd[here].copy(),
                rank=rank[here].astype("int32"),
                argmax=argmax[here].astype("int32"),
            )
        )
        start += length
    return answers
