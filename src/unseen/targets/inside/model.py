"""What a look needs of a loaded model, and passages as one padded batch of it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from unseen.errors import TargetError
from unseen.types import Passage


@dataclass(frozen=True)
class Opened:
    """A model whose inside is looked at; its weights are not for good changed by anything here.

    Attributes:
        name: what the user calls it.
        model: of transformers, or peft's around one, in evaluation mode.
        decoder: everything but the head; None where it cannot be run apart.
        head: the layer that makes logits of states.
        head_apart: whether head(decoder(x)) is what the model says.
        takes_positions: whether places in the text are passed to it.
        padding: the side that short rows are filled up on.
        learning: what takes a step, by name; refuses what cannot. With `steps=False`, what has a
            gradient.
        notes: what was found out about the model, so that it is found out once.
    """

    name: str
    model: Any
    decoder: Any
    head: Any
    head_apart: bool
    takes_positions: bool
    padding: Literal["right", "left"]
    learning: Callable[..., dict[str, Any]]
    notes: dict[Any, Any] = field(default_factory=dict)

    @property
    def device(self) -> Any:
        """Where its inputs go."""
        return self.model.device

    @property
    def base(self) -> Any:
        """The model without what peft puts around it."""
        return self.model.get_base_model() if hasattr(self.model, "peft_config") else self.model


@dataclass(frozen=True)
class Rows:
    """Passages as tensors, a row each; B rows of T tokens, K of which count at most.

    Attributes:
        ids: (B, T) token ids, filled up with 0.
        mask: (B, T) 1 where a token is; None where nothing has to be masked.
        positions: (B, T) places in the text.
        at: (B, K) where the tokens that count are foretold.
        tokens: (B, K) their ids.
        share: (B, K) float64, 1 / n for each of the row's n tokens that count, and 0 behind them.
    """

    ids: Any
    mask: Any
    positions: Any
    at: Any
    tokens: Any
    share: Any

    @property
    def index(self) -> tuple[Any, Any]:
        """Picks the states that foretell tokens: (B, T, …) -> (B, K, …)."""
        import torch

        return torch.arange(len(self.ids), device=self.ids.device)[:, None], self.at

    def inputs(self, opened: Opened) -> dict[str, Any]:
        """What the model is called with."""
        import torch

        # A mask of ones is no mask, but keeps transformers from looking for packed texts.
        mask = torch.ones_like(self.ids) if self.mask is None else self.mask
        given = {"input_ids": self.ids, "attention_mask": mask, "use_cache": False}
        # Of one row of positions for all, the gradient would be that of all passages together.
        return given | ({"position_ids": self.positions} if opened.takes_positions else {})


def rows_of(opened: Opened, passages: Sequence[Passage], *, whole: bool = False) -> Rows:
    """Passages padded to one width.

    Args:
        opened: the model.
        passages: at least one.
        whole: whether the last token is read too; it foretells nothing that counts.
    """
    import torch

    texts = [passage.ids if whole else passage.ids[: passage.places[-1]] for passage in passages]
    width, most = max(map(len, texts)), max(len(passage.places) for passage in passages)
    ids = torch.zeros(len(texts), width, dtype=torch.long)
    mask, positions = torch.zeros_like(ids), torch.zeros_like(ids)
    at = torch.zeros(len(texts), most, dtype=torch.long)
    tokens, share = torch.zeros_like(at), torch.zeros_like(at, dtype=torch.float64)
    for row, (passage, text) in enumerate(zip(passages, texts, strict=True)):
        start = width - len(text) if opened.padding == "left" else 0
        ids[row, start : start + len(text)] = torch.tensor(text)
        mask[row, start : start + len(text)] = 1
        positions[row, start : start + len(text)] = torch.arange(len(text))
        n = len(passage.places)
        at[row, :n] = torch.tensor(passage.places) - 1 + start
        tokens[row, :n] = torch.tensor([passage.ids[place] for place in passage.places])
        share[row, :n] = 1 / n
    _check_vocabulary(opened, ids, tokens)
    filled = opened.padding == "left" and not bool(mask.all())  # on the right nothing sees it
    put = [one.to(opened.device) for one in (ids, mask, positions, at, tokens, share)]
    return Rows(put[0], put[1] if filled else None, *put[2:])


def logits_of(opened: Opened, rows: Rows) -> tuple[Any, Any]:
    """One forward pass: what foretells the tokens that count.

    Returns:
        The states that the head gets, (B, K, width), and the logits, (B, K, vocabulary).
    """
    if opened.head_apart:
        states = opened.decoder(**rows.inputs(opened)).last_hidden_state[rows.index]
        return states, opened.head(states)
    import torch

    asked = rows.at.unique()
    keeps = "logits_to_keep" in inspect.signature(opened.base.forward).parameters
    seen: list[Any] = []
    handle = opened.head.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    try:
        more = {"logits_to_keep": asked} if keeps else {}
        logits = opened.model(**rows.inputs(opened), **more).logits
    finally:
        handle.remove()
    places = torch.searchsorted(asked, rows.at) if keeps else rows.at
    row = rows.index[0]
    return seen[-1][row, places], logits[row, places]


@dataclass(frozen=True)
class States:
    """What one forward pass gives for the tokens that count, (B, K) each but the states.

    Attributes:
        losses: negative log-likelihoods, in nats.
        logits: of the tokens themselves.
        states: where h is read -> (B, K, width).
    """

    losses: Any
    logits: Any
    states: dict[str, Any]


def one_pass(opened: Opened, rows: Rows, read: frozenset[str]) -> tuple[States, Any]:
    """One forward pass; the logits keep their graph, the rest does not."""
    import torch

    seen: list[Any] = []
    handle = None
    if "before" in read:
        norm = final_norm(opened)
        handle = norm.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    try:
        states, logits = logits_of(opened, rows)
    finally:
        if handle is not None:
            handle.remove()
    found = {"after": states.detach()}
    if seen:
        found["before"] = seen[-1].detach()[rows.index]
    plain = logits.detach()
    exact = plain.to(torch.promote_types(plain.dtype, torch.float32))
    own = exact.gather(2, rows.tokens[..., None])[..., 0]
    return States(exact.logsumexp(-1) - own, own, found), logits


def losses_of(logits: Any, rows: Rows) -> Any:
    """Each passage's own loss, (B,): the mean over its tokens that count, in nats."""
    import torch

    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    each = torch.nn.functional.cross_entropy(
        exact.flatten(0, 1), rows.tokens.flatten(), reduction="none"
    )
    return (each.view_as(rows.tokens) * rows.share.to(each.dtype)).sum(1)


def mean_over(values: Any, share: Any) -> Any:
    """(B, K, …) -> (B, …), in float64: what stands behind the last token that counts has no say."""
    import torch

    shares = share.view(*share.shape, *([1] * (values.ndim - 2)))
    counted = torch.where(shares > 0, values.to(torch.float64), 0.0)
    return (counted * shares).sum(1)


@contextlib.contextmanager
def gradients_off(model: Any) -> Iterator[None]:
    """No weight asks for a gradient; afterwards each asks for one as before."""
    asking = [weight for weight in model.parameters() if weight.requires_grad]
    try:
        for weight in asking:
            weight.requires_grad_(requires_grad=False)
        yield
    finally:
        for weight in asking:
            weight.requires_grad_()


def is_norm(module: Any) -> bool:
    """Whether a module is a norm, by its class."""
    return type(module).__name__.endswith(("LayerNorm", "RMSNorm"))


def final_norm(opened: Opened) -> Any:
    """The norm whose output is the last hidden state.

    Raises:
        TargetError: where there is none that can be found.
    """
    if "final norm" not in opened.notes:
        opened.notes["final norm"] = _found_norm(opened)
    norm = opened.notes["final norm"]
    if norm is None:
        raise TargetError(
            f"{opened.name} has no final norm that can be found: its state before it is not known",
            fix="leave out state=before",
        )
    return norm


def _found_norm(opened: Opened) -> Any:
    import torch

    if opened.decoder is None:
        return None
    made: list[tuple[Any, Any]] = []
    handles = [
        module.register_forward_hook(lambda module, _, out: made.append((module, out)))
        for module in opened.decoder.modules()
        if is_norm(module)
    ]
    try:
        with torch.no_grad():
            probe = torch.arange(1, 6, device=opened.device)[None]
            last = opened.decoder(input_ids=probe, use_cache=False).last_hidden_state
    finally:
        for handle in handles:
            handle.remove()
    for module, out in reversed(made):
        if torch.is_tensor(out) and out.shape == last.shape and torch.equal(out, last):
            return module
    return None


def _check_vocabulary(opened: Opened, ids: Any, tokens: Any) -> None:
    known = opened.model.get_input_embeddings().weight.shape[0]
    most = max(int(ids.max()), int(tokens.max()))
    if most >= known:
        raise TargetError(
            f"the tokenizer gives the id {most}, but {opened.name} knows {known} tokens",
            fix="is it the model's own tokenizer? Name another one with --tokenizer",
        )
