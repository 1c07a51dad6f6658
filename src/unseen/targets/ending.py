"""Where a text ends: alike for every target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ending:
    """What ends a text: the first token that does, or the first at which it holds a string.

    Attributes:
        tokens: ids that end a text or a turn.
        stop: the string; "" ends nothing.
        decode: gives the text of token ids.
    """

    tokens: frozenset[int]
    stop: str
    decode: Callable[[Sequence[int]], str]

    def is_at(self, ids: Sequence[int]) -> bool:
        """Whether a text that had not ended before its last token ends with that."""
        return ids[-1] in self.tokens or (bool(self.stop) and self.stop in self.decode(ids))

    def until(self, ids: Sequence[int]) -> list[int]:
        """The ids up to the one that ends them: what follows is filling."""
        lengths = range(1, len(ids) + 1)
        return list(ids[: next((n for n in lengths if self.is_at(ids[:n])), len(ids))])
