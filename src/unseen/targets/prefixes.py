"""What a model has read of texts, kept for others that begin alike: a radix tree."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    Piece = tuple[torch.Tensor, ...]
    """Keys and values of n tokens: of each shape that layers have, (tensors, heads, n, width)."""


class _Node:
    """Tokens that follow those of its parent, and what was read of them."""

    def __init__(
        self, ids: tuple[int, ...] = (), piece: Piece = (), parent: _Node | None = None
    ) -> None:
        self.ids = ids
        self.piece = piece
        self.parent = parent or self
        self.children: dict[int, _Node] = {}
        self.used = 0

    @property
    def n_bytes(self) -> int:
        return sum(part.numel() * part.element_size() for part in self.piece)


class Prefixes:
    """Keys and values of token prefixes.

    A prefix is a path of nodes from the root, so that what several begin with is there once.

    Args:
        most_bytes: what `trim` leaves, at most.

    Attributes:
        n_bytes: of all that is kept.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.n_bytes = 0
        self._root = _Node()
        self._clock = itertools.count(1)

    def known(self, ids: tuple[int, ...]) -> int:
        """How many of the first ids have been read."""
        return sum(n for _, n in self._path(ids))

    def pieces(self, ids: tuple[int, ...]) -> list[Piece]:
        """What was read of ids that are all known, one after another; they count as used now."""
        now = next(self._clock)
        found: list[Piece] = []
        for node, n in self._path(ids):
            node.used = now
            found.append(cut(node.piece, 0, n))
        return found

    def add(self, ids: tuple[int, ...], piece: Piece) -> None:
        """Keeps what was read of the last ids; where those before them are not known, nothing."""
        path = list(self._path(ids))
        n_known, n_read = sum(n for _, n in path), piece[0].shape[2]
        if not len(ids) - n_read <= n_known < len(ids):
            return
        parent = self._root
        for node, n in path:
            parent = node if n == len(node.ids) else self._split(node, n)
        own = _copied(cut(piece, n_known + n_read - len(ids), n_read))
        self._attach(_Node(ids[n_known:], own, parent), next(self._clock))

    def trim(self) -> None:
        """Drops ends of prefixes, the longest unused first, until the rest is small enough."""
        order = itertools.count()
        ends = [(node.used, next(order), node) for node in self._nodes() if not node.children]
        heapq.heapify(ends)
        while self.n_bytes > self.most_bytes:
            _, _, node = heapq.heappop(ends)
            parent = node.parent
            del parent.children[node.ids[0]]
            self.n_bytes -= node.n_bytes
            if parent is not self._root and not parent.children:
                heapq.heappush(ends, (parent.used, next(order), parent))

    def forget(self) -> None:
        """Drops everything."""
        self._root, self.n_bytes = _Node(), 0

    def _path(self, ids: tuple[int, ...]) -> Iterator[tuple[_Node, int]]:
        """The nodes of a prefix, and how many ids of each belong to it."""
        node, start, whole = self._root, 0, True
        while whole and start < len(ids) and ids[start] in node.children:
            node = node.children[ids[start]]
            n = common(node.ids, ids[start : start + len(node.ids)])
            whole, start = n == len(node.ids), start + n
            yield node, n

    def _split(self, node: _Node, n: int) -> _Node:
        """Cuts a node after n of its ids; returns the first part."""
        ids, piece = node.ids, node.piece
        first = _Node(ids[:n], _copied(cut(piece, 0, n)), node.parent)
        self.n_bytes -= node.n_bytes
        node.ids, node.piece, node.parent = ids[n:], _copied(cut(piece, n, len(ids))), first
        self._attach(first, node.used)
        self._attach(node, node.used)
        return first

    def _attach(self, node: _Node, used: int) -> None:
        node.used = used
        node.parent.children[node.ids[0]] = node
        self.n_bytes += node.n_bytes

    def _nodes(self) -> Iterator[_Node]:
        left = list(self._root.children.values())
        while left:
            node = left.pop()
            yield node
            left += node.children.values()


def common(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many first ids are the same.

    >>> common((1, 2, 3), (1, 2, 4, 5))
    2
    """
    n = min(len(one), len(other))
    if one[:n] == other[:n]:
        return n
    return next(i for i in range(n) if one[i] != other[i])


def n_distinct(texts: Iterable[tuple[int, ...]]) -> int:
    """Ids of texts, what several begin alike with counted once.

    >>> n_distinct([(1, 2, 3), (1, 2, 4), (1, 2)])
    4
    """
    ordered = sorted(set(texts))
    shared = sum(common(one, other) for one, other in itertools.pairwise(ordered))
    return sum(map(len, ordered)) - shared


def cut(piece: Piece, start: int, stop: int) -> Piece:
    """What was read of some of a piece's tokens."""
    return tuple(part[:, :, start:stop] for part in piece)


def _copied(piece: Piece) -> Piece:
    """A piece of its own: a view would keep in memory all that it is cut from."""
    return tuple(part.clone() for part in piece)
