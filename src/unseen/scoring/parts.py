"""What is asked before what: as much at a time as a target can remember."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from unseen.targets.prefixes import n_distinct

Ids = tuple[int, ...]
T = TypeVar("T")

# Texts are kept together for what they begin alike with where that is such a share of them.
_SHARED = 1 / 4


def in_parts(todo: Sequence[T], room: int, texts_of: Callable[[T], Iterable[Ids]]) -> list[list[T]]:
    """What is to be asked, cut into parts that a target can remember together.

    Where texts have little in common, nothing is gained, and all of it is one part.

    Args:
        todo: in an order in which neighbours begin alike.
        room: tokens that are remembered; 0 where none are.
        texts_of: what is read for each.
    """
    texts = {ids for one in todo for ids in texts_of(one)}
    n_all = sum(map(len, texts))
    if not room or n_all - n_distinct(texts) < _SHARED * n_all:
        return [list(todo)]
    return _halved(todo, room, texts_of)


def _halved(todo: Sequence[T], room: int, texts_of: Callable[[T], Iterable[Ids]]) -> list[list[T]]:
    if len(todo) == 1 or n_distinct(ids for one in todo for ids in texts_of(one)) <= room:
        return [list(todo)]
    half = len(todo) // 2
    return [*_halved(todo[:half], room, texts_of), *_halved(todo[half:], room, texts_of)]
