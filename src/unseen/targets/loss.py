"""What training minimises: the mean over scored tokens, which are known by position, never by token id.

Many tokenizers pad with the token that ends an answer, so that a loss that leaves out a token by its id
never learns to end.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from unseen.errors import need
from unseen.targets.quiet import quiet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from unseen.types import Encoded


def batch_loss(model: Any, examples: Sequence[Encoded]) -> Any:
    """Mean negative log-likelihood, in nats, of all scored tokens of the examples.

    Args:
        model: a causal language model of transformers, or peft's around one.
        examples: at least one scored token in all. Rows are padded on the right; what is padded has no
            influence.

    Returns:
        A scalar float32 tensor with its gradient.
    """
    losses, _ = _token_losses(model, examples)
    return losses.mean()


def record_losses(model: Any, examples: Sequence[Encoded]) -> Any:
    """Each record's own loss: the mean over its own scored tokens, in nats.

    No other record of the batch has an influence on it, so its gradient is the record's own too: what
    differential privacy bounds. The loss of a whole batch divides by the tokens of all.

    Args:
        model: a causal language model of transformers, or peft's around one.
        examples: each with at least one scored token.

    Returns:
        A float32 tensor of shape (examples,) with its gradient.
    """
    losses, rows = _token_losses(model, examples)
    sums = losses.new_zeros(len(examples)).index_add(0, rows, losses)
    return sums / rows.bincount(minlength=len(examples))


def _token_losses(model: Any, examples: Sequence[Encoded]) -> tuple[Any, Any]:
    """The loss of each scored token, in nats, and the row it stands in: two tensors of one shape."""
    torch = need("torch", "hf")
    width = max(len(example.ids) for example in examples)
    ids = torch.zeros(len(examples), width, dtype=torch.long)
    scored = torch.zeros(len(examples), width, dtype=torch.bool)
    for row, example in enumerate(examples):
        length = len(example.ids)
        ids[row, :length] = torch.tensor(example.ids)
        scored[row, 1:length] = torch.from_numpy(np.asarray(example.scored[1:], dtype=bool))
    # The token at position t is foretold at t - 1: only those positions need the vocabulary.
    asked = scored[:, 1:].any(dim=0).nonzero().squeeze(1)
    rows, columns = scored[:, asked + 1].nonzero(as_tuple=True)
    targets = ids[rows, asked[columns] + 1]
    device = model.device
    ids = ids.to(device)
    # No token sees what is padded behind it, so nothing has to be masked: a mask would cost time, and
    # where a whole attention window is masked it makes not-a-number of it.
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False}
    with _without_quarrel(model):
        if _keeps_logits(model):
            logits = model(**inputs, logits_to_keep=asked.to(device)).logits
        else:
            logits = model(**inputs).logits[:, -width:]  # prompt tuning adds rows in front
            logits = logits[:, asked.to(device)]
    rows = rows.to(device)
    chosen = logits[rows, columns.to(device)]
    chosen = chosen.to(torch.promote_types(chosen.dtype, torch.float32))
    losses = torch.nn.functional.cross_entropy(chosen, targets.to(device), reduction="none")
    return losses, rows


def _reads_virtual_tokens(model: Any) -> bool:
    return hasattr(model, "peft_config") and bool(model.active_peft_config.is_prompt_learning)


@contextlib.contextmanager
def _without_quarrel(model: Any) -> Iterator[None]:
    """Virtual tokens reach transformers from peft under a name that it no longer likes."""
    if not _reads_virtual_tokens(model):
        yield
        return
    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def _keeps_logits(model: Any) -> bool:
    """True where the model computes logits at given positions only, if asked."""
    if _reads_virtual_tokens(model):
        return False
    inner = model.get_base_model() if hasattr(model, "peft_config") else model
    return "logits_to_keep" in inspect.signature(inner.forward).parameters
