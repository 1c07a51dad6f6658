"""One step of gradient ascent on each passage alone (G-Drift), for a whole batch at once.

theta_b = theta + eta * grad L_b is a set of weights of its own for each passage b, and is never written
down. What a linear layer adds under it is eta * (x' a^T) d, of its inputs a and the gradients d of its
outputs, both rows of passage b alone: the drifted pass is the plain one with an attention-like
correction in each layer that owns weights. Nothing is approximated. Where a model has layers of other
kinds, each step is really taken (`literal`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from unseen.targets.inside.literal import literal_states
from unseen.targets.inside.model import (
    Opened,
    Rows,
    States,
    gradients_off,
    losses_of,
    mean_over,
    one_pass,
    rows_of,
)
from unseen.targets.inside.owners import Owner, Unbatchable, owners_of
from unseen.targets.inside.tape import Tape, captured
from unseen.targets.looks import Seen, StepLook, Weights
from unseen.types import Passage

OFF = 2e-3
"""A batched step whose movement of the state differs by this share from the literal one is not used.

Rounding in single precision is a tenth of it and less; a layer that is left out is far more.
"""


@dataclass(frozen=True)
class StepCheck:
    """What a step on one passage says of the way to take it.

    Attributes:
        reason: why steps have to be taken literally; None where they can be batched.
        difference: | (h'-h) batched - (h'-h) literal | / |(h'-h) literal|, of two lengths of the step
            the closer one; None where it was not tried.
        floor: |h'-h| / |h| of a step of length 0: what two equal passes differ by.
    """

    reason: str | None
    difference: float | None
    floor: float


def see_steps(
    opened: Opened, looks: Sequence[StepLook], passages: Sequence[Passage]
) -> list[list[Seen]]:
    """What the looks see of the passages, a list a look."""
    weights = looks[0].weights
    literal = looks[0].literal or check_step(opened, looks, passages[0]).reason is not None
    etas = tuple(dict.fromkeys(look.eta for look in looks))
    read = frozenset(look.state for look in looks)
    rows = rows_of(opened, passages)
    if literal:
        before, after = literal_states(opened, weights, etas, read, passages)
    else:
        before, after = batched_states(opened, weights, etas, read, rows)
    share, n = rows.share, [len(passage.places) for passage in passages]
    return [
        _features(look, before, after[etas.index(look.eta)], share, n, literal=literal)
        for look in looks
    ]


def check_step(opened: Opened, looks: Sequence[StepLook], passage: Passage) -> StepCheck:
    """Tries batched steps on one passage against Algorithm 1, once for each choice of weights."""
    weights = looks[0].weights
    place = ("step", weights)
    if place not in opened.notes:
        eta = next((look.eta for look in looks if look.eta), 1e-2)
        opened.notes[place] = _checked(opened, weights, eta, passage)
    check: StepCheck = opened.notes[place]
    return check


def _checked(opened: Opened, weights: Weights, eta: float, passage: Passage) -> StepCheck:
    read = frozenset({"after"})
    # A long step amplifies rounding, a short one is lost in it: the arithmetic shows in either.
    etas = (eta, eta / 100)
    before, (*after, still) = literal_states(opened, weights, (*etas, 0.0), read, [passage])
    state = before.states["after"]
    floor = float((still.states["after"] - state).norm() / state.norm())
    try:
        start, batched = batched_states(opened, weights, etas, read, rows_of(opened, [passage]))
    except Unbatchable as why:
        return StepCheck(str(why), None, floor)
    shares = []
    for literal, ours in zip(after, batched, strict=True):
        moved = literal.states["after"] - state
        off = ours.states["after"] - start.states["after"] - moved
        shares.append(
            float(off.norm() / moved.norm()) if float(moved.norm()) else float(off.norm())
        )
    share = min(shares)
    if share > OFF:  # not-a-number is not above it: it is the record's, and is counted there
        return StepCheck(f"it would be off by {share:.1%} on the first record", share, floor)
    return StepCheck(None, share, floor)


# --- the batched step -------------------------------------------------------------------------


def batched_states(
    opened: Opened, weights: Weights, etas: Sequence[float], read: frozenset[str], rows: Rows
) -> tuple[States, list[States]]:
    """States before the step, and after it for each eta.

    Raises:
        Unbatchable: where the passages cannot be told apart somewhere.
    """
    import torch

    owners, tape = owners_of(opened, weights), Tape()
    with gradients_off(opened.model):
        with torch.enable_grad(), captured(opened, owners, rows, tape):
            before, logits = one_pass(opened, rows, read)
            losses_of(logits, rows).sum().backward()
            del logits
        products = [(owner, _product(owner, tape)) for owner in owners]
        after = []
        with torch.no_grad():
            for eta in etas:
                with _stepped(products, eta):
                    after.append(one_pass(opened, rows, read)[0])
    return before, after


Addition = Callable[[Any, Any, float], Any]
"""Input and output of a module, and eta -> its output under the weights of each passage."""


def _product(owner: Owner, tape: Tape) -> Addition | None:
    """How a module's output changes; None where the loss does not depend on its weights."""
    a, d = tape.inputs.get(owner.module), tape.gradients.get(owner.module)
    if a is None or d is None:
        return None
    if owner.kind == "norm":
        return _of_norm(owner, a, d)
    if owner.kind == "linear":
        g = tape.gradients.get(owner.tied_to)
        if owner.tied_to is None or g is None:
            return _of_linear(owner, a, d)
        ids = tape.inputs[owner.tied_to]
        return _of_tied_head(owner, a, d, ids, g)
    tied = next((one for one in tape.inputs if _shares(one, owner)), None)
    return _of_embedding(owner, a, d, tape.inputs.get(tied), tape.gradients.get(tied))


def _shares(module: Any, embedding: Owner) -> bool:
    weight = getattr(module, "weight", None)
    return module is not embedding.module and weight is embedding.module.weight


def _of_linear(owner: Owner, a: Any, d: Any) -> Addition:
    """W' x = W x + eta * d^T (a x); a few long passages take the gradient of the layer itself."""

    def add(x: Any, out: Any, eta: float) -> Any:
        if owner.weight:
            n_in, n_out, n = a.shape[2], d.shape[2], a.shape[1]
            if n * (n_in + n_out) > 2 * n_in * n_out:
                out.baddbmm_(x, a.transpose(1, 2) @ d, alpha=eta)
            else:
                out.baddbmm_(x @ a.transpose(1, 2), d, alpha=eta)
        return out.add_(d.sum(1, keepdim=True), alpha=eta) if owner.bias else out

    return add


def _of_tied_head(owner: Owner, a: Any, d: Any, ids: Any, g: Any) -> Addition:
    """A head whose weight is the embedding's: the gradient of both uses is in it."""
    plain = _of_linear(owner, a, d)
    embedding = owner.tied_to
    scale = float(getattr(embedding, "embed_scale", 1.0))

    def add(x: Any, out: Any, eta: float) -> Any:
        moved = (x @ g.transpose(1, 2)) * scale * _learning(ids, embedding.padding_idx, x.dtype)
        index = ids[:, None].expand(-1, x.shape[1], -1)
        return plain(x, out, eta).scatter_add_(2, index, eta * moved)

    return add


def _of_embedding(owner: Owner, ids: Any, g: Any, h: Any, d: Any) -> Addition:
    """Rows of the table move by the gradients of all places that hold the token.

    Args:
        owner: the embedding.
        ids: (B, T) its input.
        g: (B, T, width) the gradient of its scaled output.
        h: (B, K, width) the input of a head that shares the table, or None.
        d: (B, K, vocabulary) the gradient of that head's output, or None.
    """

    def add(x: Any, out: Any, eta: float) -> Any:
        same = (x[:, :, None] == ids[:, None]).to(g.dtype)
        same = same * _learning(ids, owner.padding, g.dtype)
        out.baddbmm_(same, g, alpha=eta * owner.scale**2)
        if h is not None and d is not None:
            asked = d.gather(2, x[:, None].expand(-1, d.shape[1], -1))
            out.baddbmm_(asked.transpose(1, 2), h, alpha=eta * owner.scale)
        return out

    return add


def _learning(ids: Any, padding: int | None, dtype: Any) -> Any:
    """(B, 1, T) 1 where the row of a token has a gradient, and 0 where it is the padding's."""
    import torch

    if padding is None:
        return torch.ones_like(ids, dtype=dtype)[:, None]
    return (ids != padding).to(dtype)[:, None]


def _of_norm(owner: Owner, a: Any, d: Any) -> Addition:
    """The gradients of gain and shift are sums over places (and heads)."""
    assert owner.normed is not None  # noqa: S101 (owners.py sees to it)
    others = tuple(range(1, d.ndim - 1))
    gain = (d * owner.normed(a)).sum(others, keepdim=True)
    shift = d.sum(others, keepdim=True)
    normed = owner.normed

    def add(x: Any, out: Any, eta: float) -> Any:
        if owner.weight:
            out.addcmul_(gain, normed(x), value=eta)
        return out.add_(shift, alpha=eta) if owner.bias else out

    return add


@contextlib.contextmanager
def _stepped(products: Sequence[tuple[Owner, Addition | None]], eta: float) -> Iterator[None]:
    """As long as it lasts, each passage is read by the weights that its own step leaves."""

    def hook(add: Addition) -> Callable[[Any, Any, Any], Any]:
        return lambda _, args, out: add(args[0], out, eta)

    handles = [
        owner.module.register_forward_hook(hook(add))
        for owner, add in products
        if add is not None and eta
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


# --- features -----------------------------------------------------------------------------------


def _features(
    look: StepLook, before: States, after: States, share: Any, n: Sequence[int], *, literal: bool
) -> list[Seen]:
    """The numbers of each passage: means over its tokens that count."""
    import torch

    h, h_after = (one.states[look.state].to(torch.float64) for one in (before, after))
    norm, norm_after = h.norm(dim=-1), h_after.norm(dim=-1)
    given = look.directions(h.shape[-1])
    own = (h / norm[..., None])[..., None, :]  # (B, K, 1, width)
    v = own if given is None else torch.from_numpy(given).to(h.device)
    each = {
        "loss": before.losses,
        "loss_after": after.losses,
        "logit": before.logits,
        "logit_after": after.logits,
        "projection": (h[..., None, :] * v).sum(-1),
        "projection_after": (h_after[..., None, :] * v).sum(-1),
        "norm": norm,
        "drift": (h_after - h).norm(dim=-1),
        "cosine": (h * h_after).sum(-1) / (norm * norm_after),
    }
    means = {name: mean_over(values, share).cpu().numpy() for name, values in each.items()}
    return [
        {name: values[i] for name, values in means.items()}
        | {"n_tokens": n[i], "literal": int(literal)}
        for i in range(len(n))
    ]
