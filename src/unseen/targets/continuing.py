"""Text after prompts, where what prompts begin alike with is read once.

Each row ends with its last token. Where one has less to read than others, it reads again what is
known of it, and is filled up only where there is nothing before that. So nothing ever stands between
two tokens of a row: they are as far apart as in the text, whatever a model makes of distances.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unseen.targets.ending import Ending
from unseen.targets.moments import split
from unseen.targets.prefixes import Prefixes, common
from unseen.targets.sampling import choose
from unseen.types import Request, Sampling, TokenStats

if TYPE_CHECKING:
    import numpy as np
    import torch

    from unseen.targets.prefixes import Piece

Ids = tuple[int, ...]
Together = tuple[list[Ids], Any, "torch.Tensor"]
"""Texts that were read in one batch, the cache that holds them, and its mask."""

# A common beginning is read apart where that saves so many tokens.
_MIN_SAVED = 16
# Tokens of rows, what is known of them included, as multiples of those that are read at once.
_ROOM = 8


@dataclass
class Inputs:
    """What a model is called with; the cache grows by it.

    Attributes:
        ids: (rows, n) of the tokens that are read.
        mask: (rows, all) 1 where there is a token, in the cache or among those.
        places: (rows, n) of the tokens in their texts.
        cache: of what stands before them.
    """

    ids: torch.Tensor
    mask: torch.Tensor
    places: torch.Tensor
    cache: Any


Statistics = Callable[
    [Inputs, "torch.Tensor", "torch.Tensor", "torch.Tensor"], "list[torch.Tensor]"
]


class Continuing:
    """Lets a model write after prompts, and remembers what it has read.

    Args:
        forward: gives the logits after the last token of each row, (rows, vocabulary).
        statistics: gives those of tokens, after places of rows: log-probability, mean, standard
            deviation, rank, and the first choice. Takes the inputs, rows, places and tokens.
        memory: what has been read.
        batch_tokens: padded tokens that are read at once.
        device: of the model.

    Attributes:
        n_read: tokens that the model has read, without filling; not those that it wrote.
    """

    def __init__(
        self,
        forward: Callable[[Inputs], torch.Tensor],
        statistics: Statistics,
        memory: Prefixes,
        batch_tokens: int,
        device: torch.device,
    ) -> None:
        self.n_read = 0
        self.memory = memory
        self._forward = forward
        self._statistics = statistics
        self._batch_tokens = batch_tokens
        self._device = device
        self._alike: list[list[int]] = []

    def write(
        self,
        prompts: Sequence[Ids],
        room: int,
        ending: Ending,
        sampling: Sampling,
        chances: Sequence[np.random.Generator],
    ) -> list[list[int]]:
        """What follows each prompt, of at most `room` tokens; a row that has ended costs no more.

        Args:
            prompts: token ids; some may be equal.
            room: the most tokens of a text.
            ending: what ends one.
            sampling: how tokens are drawn.
            chances: the random numbers of each row.
        """
        import torch

        after, together = self._read(prompts)
        rows = list(range(len(prompts)))
        if together is None or len(together[0]) < len(prompts):
            cache, mask = self._remembered(prompts)
        else:  # what has just been read is still at hand
            texts, cache, mask = together
            rows = [prompts.index(ids) for ids in texts]
        logits = torch.stack([after[prompts[row]] for row in rows])
        self.memory.trim()
        written: list[list[int]] = [[] for _ in prompts]
        for n in range(1, room + 1):
            open_ended = ending.tokens if n <= sampling.fewest else ()
            chosen = choose(logits, sampling, [chances[row] for row in rows], ruled_out=open_ended)
            for row, token in zip(rows, chosen, strict=True):
                written[row].append(token)
            left = [i for i, row in enumerate(rows) if not ending.is_at(written[row])]
            if n == room or not left:
                break
            if len(left) < len(rows):
                rows = [rows[i] for i in left]
                kept = torch.tensor(left, device=self._device)
                cache.batch_select_indices(kept)
                mask = mask[kept]
            inputs = self._inputs([written[row][-1:] for row in rows], mask, cache)
            mask, logits = inputs.mask, self._forward(inputs)
        return written

    def score(self, requests: Sequence[Request]) -> list[TokenStats]:
        """Statistics of every continuation token, a request each."""
        import torch

        # The last token is foretold, and need not be read: some requests are the same text but for it.
        places: dict[Ids, list[int]] = {}
        for i, request in enumerate(requests):
            places.setdefault((request.context + request.continuation)[:-1], []).append(i)
        needed = {
            text: max(len(requests[i].continuation) for i in of) for text, of in places.items()
        }
        found: dict[int, TokenStats] = {}

        def ask(batch: Sequence[Ids], inputs: Inputs) -> None:
            asked = [(row, i) for row, text in enumerate(batch) for i in places[text]]
            lengths = [len(requests[i].continuation) for _, i in asked]
            width = inputs.ids.shape[1]
            rows = [torch.full((n,), row) for (row, _), n in zip(asked, lengths, strict=True)]
            parts = self._statistics(
                inputs,
                torch.cat(rows),
                torch.cat([torch.arange(width - n, width) for n in lengths]),
                torch.tensor([id_ for _, i in asked for id_ in requests[i].continuation]),
            )
            found.update(zip((i for _, i in asked), split(parts, lengths), strict=True))

        for beginnings in self._apart(sorted(places))[0]:
            self._run(dict.fromkeys(beginnings, 1), lambda _, inputs: self._forward(inputs))
        self._run(needed, ask)
        self.memory.trim()
        return [found[i] for i in range(len(requests))]

    def read(self, texts: Sequence[Ids]) -> dict[Ids, torch.Tensor]:
        """Reads what is not known of the texts; gives the logits after each."""
        return self._read(texts)[0]

    def _read(self, texts: Sequence[Ids]) -> tuple[dict[Ids, torch.Tensor], Together | None]:
        found: dict[Ids, torch.Tensor] = {}

        def ask(batch: Sequence[Ids], inputs: Inputs) -> None:
            found.update(zip(batch, self._forward(inputs), strict=True))

        distinct = sorted(set(texts))
        for beginnings in self._apart(distinct)[0]:
            self._run(dict.fromkeys(beginnings, 1), ask)
        return found, self._run(dict.fromkeys(distinct, 1), ask)

    def _apart(self, texts: Sequence[Ids], above: int = 0) -> tuple[list[list[Ids]], int]:
        """Common beginnings that are read before the texts, outer ones first, and how many read on.

        Args:
            texts: sorted; all begin with the same `above` ids.
            above: where a beginning ends that more texts have in common.
        """
        if len(texts) == 1:
            return [], 1
        length = common(texts[0], texts[-1])
        branches = [
            self._apart(list(branch), length)
            for _, branch in itertools.groupby(texts, key=lambda ids: ids[length : length + 1])
        ]
        parts = itertools.zip_longest(*(levels for levels, _ in branches), fillvalue=[])
        levels = [[ids for part in level for ids in part] for level in parts]
        n_readers = sum(n for _, n in branches)
        beginning = texts[0][:length]
        n_new = length - max(above, self.memory.known(beginning))
        if n_new * (n_readers - 1) < _MIN_SAVED:
            return levels, n_readers
        return [[beginning], *levels], 1

    def _run(
        self, needed: Mapping[Ids, int], ask: Callable[[Sequence[Ids], Inputs], object]
    ) -> Together | None:
        """Has the rest of texts read, batch by batch, and remembers it.

        Args:
            needed: text -> how many of its last tokens must be read, known or not.
            ask: runs the model.

        Returns:
            All texts together, where they are few enough; else None.
        """
        together: Together | None = None
        for batch, width in self._batches(needed):
            known = [max(0, len(ids) - width) for ids in batch]
            cache, mask = self._remembered([ids[:n] for ids, n in zip(batch, known, strict=True)])
            rests = [ids[n:] for ids, n in zip(batch, known, strict=True)]
            inputs = self._inputs(rests, mask, cache)
            ask(batch, inputs)
            self.n_read += sum(map(len, rests))
            self._remember(batch, cache, inputs.mask.shape[1])
            if len(batch) == len(needed):
                together = (batch, cache, inputs.mask)
        return together

    def _batches(self, needed: Mapping[Ids, int]) -> Iterator[tuple[list[Ids], int]]:
        """Texts that are read together, and how many last tokens of each."""
        rests = {ids: max(n, len(ids) - self.memory.known(ids)) for ids, n in needed.items()}
        left = sorted(rests, key=lambda ids: (-rests[ids], ids))
        while left:
            width = rests[left[0]]
            n_rows = self._batch_tokens // width
            n_rows = min(n_rows, _ROOM * self._batch_tokens // max(map(len, left)))
            batch, left = left[: max(1, n_rows)], left[max(1, n_rows) :]
            yield batch, width

    def _inputs(self, rests: Sequence[Sequence[int]], mask: torch.Tensor, cache: Any) -> Inputs:
        """The last ids of rows, filled up on the left."""
        import torch

        width = max(map(len, rests))
        filled = [[0] * (width - len(ids)) + list(ids) for ids in rests]
        real = [[0] * (width - len(ids)) + [1] * len(ids) for ids in rests]
        mask = torch.cat([mask, torch.tensor(real, device=self._device)], dim=1)
        places = (mask.cumsum(1) - 1).clamp(min=0)[:, -width:]
        return Inputs(torch.tensor(filled, device=self._device), mask, places, cache)

    def _remembered(self, texts: Sequence[Ids]) -> tuple[Any, torch.Tensor]:
        """The cache of texts that are known, filled up on the left, and its mask."""
        import torch
        from transformers import DynamicCache

        cache = DynamicCache()
        width = max(map(len, texts))
        mask = torch.zeros((len(texts), width), dtype=torch.long, device=self._device)
        for row, ids in enumerate(texts):
            mask[row, width - len(ids) :] = 1
        if width:
            self._fill(cache, [self.memory.pieces(ids) for ids in texts], width)
        return cache, mask

    def _fill(self, cache: Any, rows: Sequence[Sequence[Piece]], width: int) -> None:
        example = next(piece for pieces in rows for piece in pieces)
        tensors: dict[int, torch.Tensor] = {}
        for kind, (places, part) in enumerate(zip(self._alike, example, strict=True)):
            n_tensors, n_heads, _, depth = part.shape
            whole = part.new_empty((n_tensors, len(rows), n_heads, width, depth))
            for row, pieces in enumerate(rows):
                stop = width
                for piece in reversed(pieces):
                    start = stop - piece[kind].shape[2]
                    whole[:, row, :, start:stop] = piece[kind]
                    stop = start
                whole[:, row, :, :stop] = 0  # what is masked must still be a number
            tensors |= zip(places, whole, strict=True)
        for layer in range(len(tensors) // 2):
            cache.update(tensors[2 * layer], tensors[2 * layer + 1], layer)

    def _remember(self, texts: Sequence[Ids], cache: Any, width: int) -> None:
        """Keeps what was read of texts that end with the cache.

        Raises:
            ValueError: where the cache is of another kind than one that keeps all tokens.
        """
        import torch
        from transformers.cache_utils import DynamicLayer

        if not all(type(layer) is DynamicLayer for layer in cache.layers):
            raise ValueError("this cache cannot be cut")
        tensors = [part for layer in cache.layers for part in (layer.keys, layer.values)]
        if not all(part.shape[::2] == (len(texts), width) for part in tensors):
            raise ValueError("this cache does not keep all tokens")
        if not self._alike:
            by_shape: dict[tuple[Any, ...], list[int]] = {}
            for place, part in enumerate(tensors):
                by_shape.setdefault((part.shape[1], part.shape[3], part.dtype), []).append(place)
            self._alike = list(by_shape.values())
        for row, ids in enumerate(texts):
            n_new = len(ids) - self.memory.known(ids)
            if n_new:
                piece = tuple(
                    torch.stack([tensors[place][row, :, width - n_new :] for place in places])
                    for places in self._alike
                )
                self.memory.add(ids, piece)
