"""Which modules own the weights, and whether a step on each passage alone can be worked out for them.

A whitelist: exact classes, whose arithmetic is known here, and norms and scaled embeddings that are
held against it by numbers. Everything else is `Unbatchable`, with the reason, and is done literally.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from unseen.targets.inside.model import Opened, is_norm
from unseen.targets.looks import Weights

Kind = Literal["linear", "embedding", "norm"]


class Unbatchable(Exception):  # noqa: N818 (no error: there is another way)
    """Why the passages of a batch cannot be told apart in this model."""


@dataclass(frozen=True)
class Owner:
    """A module with weights that have gradients.

    Attributes:
        name: where it is in the model.
        module: the module.
        kind: what it does.
        weight: whether its weight has a gradient.
        bias: whether its bias has one.
        scale: what an embedding's rows are multiplied by.
        padding: the id of the embedding's row that never gets a gradient, or None.
        normed: x -> what the norm's weight multiplies.
        tied_to: the input embedding whose weight a head shares.
    """

    name: str
    module: Any
    kind: Kind
    weight: bool
    bias: bool
    scale: float = 1.0
    padding: int | None = None
    normed: Callable[[Any], Any] | None = None
    tied_to: Any = None


def owners_of(opened: Opened, weights: Weights, *, steps: bool = True) -> tuple[Owner, ...]:
    """Every module that owns some of the weights.

    Args:
        opened: the model.
        weights: which.
        steps: whether they take a step; else it is their gradient that is asked for.

    Raises:
        Unbatchable: where one of them is not of a kind that is known here.
        TargetError: where these weights cannot take part at all.
    """
    chosen = {id(weight) for weight in opened.learning(weights, steps=steps).values()}
    found: list[Owner] = []
    at: dict[int, list[Owner]] = {}
    for name, module in opened.model.named_modules():
        own = {n: w for n, w in module.named_parameters(recurse=False) if id(w) in chosen}
        if not own:
            continue
        owner = _owner(name, module, own)
        found.append(owner)
        for weight in own.values():
            at.setdefault(id(weight), []).append(owner)
    ties = [owners for owners in at.values() if len(owners) > 1]
    embedding = opened.model.get_input_embeddings()
    for owners in ties:
        modules = {id(owner.module) for owner in owners}
        if modules != {id(embedding), id(opened.head)}:
            names = " and ".join(owner.name for owner in owners)
            raise Unbatchable(f"{names} share a weight")
        found = [
            _tied(owner, embedding) if owner.module is opened.head else owner for owner in found
        ]
    return tuple(found)


def _owner(name: str, module: Any, own: dict[str, Any]) -> Owner:
    import torch
    from transformers.pytorch_utils import Conv1D

    if set(own) - {"weight", "bias"}:
        raise Unbatchable(f"{name} ({type(module).__name__}) has weights of its own kind")
    about: dict[str, Any] = {
        "name": name,
        "module": module,
        "weight": "weight" in own,
        "bias": "bias" in own,
    }
    if type(module) in (torch.nn.Linear, Conv1D):
        return Owner(kind="linear", **about)
    if isinstance(module, torch.nn.Embedding):
        scale = _scale(name, module)
        return Owner(kind="embedding", scale=scale, padding=module.padding_idx, **about)
    if is_norm(module):
        return Owner(kind="norm", normed=_normed(name, module), **about)
    raise Unbatchable(f"{name} is a {type(module).__name__}")


def _scale(name: str, module: Any) -> float:
    """What an embedding's rows are multiplied by.

    Raises:
        Unbatchable: where it does anything else.
    """
    import torch

    plain = module.max_norm is None and not module.scale_grad_by_freq and not module.sparse
    scale = float(getattr(module, "embed_scale", 1.0))
    known = type(module) is torch.nn.Embedding or hasattr(module, "embed_scale")
    if plain and known and type(module).forward is torch.nn.Embedding.forward:
        return 1.0
    if plain and known:
        ids = torch.arange(min(4, module.num_embeddings), device=module.weight.device)[None]
        with torch.no_grad():
            said, rows = module(ids), module.weight[ids] * scale
            if _alike(said, rows, _tolerances(rows)[-1]):
                return scale
    raise Unbatchable(f"{name} is an embedding of another kind ({type(module).__name__})")


def _normed(name: str, module: Any) -> Callable[[Any], Any]:
    """What the weight of a norm multiplies, checked against the module.

    Raises:
        Unbatchable: where it is no norm that is known here.
    """
    import torch

    if type(module) is torch.nn.LayerNorm:
        return functools.partial(
            torch.nn.functional.layer_norm, normalized_shape=module.normalized_shape, eps=module.eps
        )
    eps = next(
        (
            value
            for name in ("variance_epsilon", "eps", "epsilon")
            if isinstance(value := getattr(module, name, None), float)
        ),
        None,
    )
    if type(module) is torch.nn.RMSNorm:
        eps = torch.finfo(module.weight.dtype).eps if module.eps is None else module.eps
    width = module.weight.shape[-1]
    # Small, so that epsilon has a say.
    probe = torch.linspace(
        -0.02, 0.03, 2 * width, device=module.weight.device, dtype=module.weight.dtype
    ).view(1, 2, width)
    known = eps is not None and module.weight.ndim == 1 and not hasattr(module, "bias")
    with torch.no_grad():
        said = module(probe) if known else None
        for tolerance in _tolerances(probe) if known else ():
            for exact in (True, False):
                normed = functools.partial(_rms, eps=eps, exact=exact)
                for factor in (module.weight, 1 + module.weight):
                    if _alike(said, normed(probe) * factor, tolerance):
                        return normed
    raise Unbatchable(f"{name} is a norm of another kind ({type(module).__name__})")


def _rms(x: Any, *, eps: Any, exact: bool) -> Any:
    """X / rms(x); in float32, as most models do, or in the precision of x."""
    import torch

    wide = x if exact else x.to(torch.float32)
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return normed.to(x.dtype)


def _tolerances(like: Any) -> tuple[float, ...]:
    """How far two ways to one number may be apart: in double precision some go through single."""
    import torch

    if like.dtype == torch.float64:
        return (1e-12, 1e-5)
    return (1e-5,) if like.dtype == torch.float32 else (2e-2,)


def _alike(some: Any, other: Any, tolerance: float) -> bool:
    import torch

    if not torch.is_tensor(some) or some.shape != other.shape:
        return False
    return bool(torch.allclose(some, other.to(some.dtype), atol=tolerance, rtol=tolerance))


def _tied(owner: Owner, embedding: Any) -> Owner:
    return dataclasses.replace(owner, tied_to=embedding)
