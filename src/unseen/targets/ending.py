"""Where a text ends: alike for every target."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_LINE = re.compile(r"[^\W_].*\n")


@dataclass(frozen=True)
class Ending:
    """What ends a text: the first token that does, or the first at which it holds a string, or a line.

    Attributes:
        tokens: ids that end a text or a turn.
        stop: the string; "" ends nothing.
        decode: gives the text of token ids.
        one_line: whether the end of a line ends it, once there was a letter or a digit: a text may
            begin with empty lines.
    """

    tokens: frozenset[int]
    stop: str
    decode: Callable[[Sequence[int]], str]
    one_line: bool = False

    @property
    def reads_text(self) -> bool:
        """Whether something ends a text besides tokens."""
        return bool(self.stop) or self.one_line

    def is_at(self, ids: Sequence[int]) -> bool:
        """Whether a text that had not ended before its last token ends with that."""
        if ids[-1] in self.tokens or not self.reads_text:
            return ids[-1] in self.tokens
        text = self.decode(ids)
        stopped = bool(self.stop) and self.stop in text
        return stopped or (self.one_line and _LINE.search(text) is not None)

    def until(self, ids: Sequence[int]) -> list[int]:
        """The ids up to the one that ends them: what follows is filling."""
        lengths = range(1, len(ids) + 1)
        return list(ids[: next((n for n in lengths if self.is_at(ids[:n])), len(ids))])


def first_line(text: str) -> str:
    """A text up to the end of its first line with a letter or a digit."""
    found = _LINE.search(text)
    return text if found is None else text[: found.end()]
