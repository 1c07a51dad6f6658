"""Looks inside a model: what is in the store is taken from there, the rest is looked at."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from unseen.scoring.asking import Asking
from unseen.scoring.store import Store, key_of_look
from unseen.targets.looks import Look, Seen
from unseen.types import FloatArray, Passage

Glance = tuple[Look, Passage]
"""One look at one passage."""


class Shower(Protocol):
    """What looking needs of a target."""

    @property
    def fingerprint(self) -> str:
        """Content hash of what is looked at."""

    @property
    def batch_tokens(self) -> int:
        """Padded tokens a batch that suits the device."""

    def look(self, looks: Sequence[Look], passages: Sequence[Passage]) -> list[list[Seen]]:
        """What is seen, a list a look.

        Raises:
            OutOfMemoryError: where the passages do not fit together.
        """


@dataclass(frozen=True)
class Sight:
    """Passages that are looked at in one batch, in some ways that share their passes."""

    looks: tuple[Look, ...]
    passages: tuple[Passage, ...]

    @property
    def glances(self) -> tuple[Glance, ...]:
        """Every look at every passage."""
        return tuple((look, passage) for look in self.looks for passage in self.passages)


class Looking(Asking[Glance, Sight]):
    """Looks inside one target, in each way at each passage at most once.

    Args:
        target: what is looked into.
        store: where what was seen is kept.
        batch_tokens: padded tokens a batch; None leaves the choice to the target.

    `n_tokens` counts the tokens of each passage once, however many passes a look takes.
    """

    def __init__(self, target: Shower, store: Store, *, batch_tokens: int | None = None) -> None:
        super().__init__(batch_tokens or target.batch_tokens)
        self._target = target
        self._store = store

    def seen(self, look: Look, passage: Passage) -> dict[str, FloatArray]:
        """What was seen by a look that `ensure` has taken."""
        return self._store.get_look(self._key((look, passage)))

    def _put(self, group: Sight) -> None:
        seen = self._target.look(group.looks, group.passages)
        keys = map(self._key, group.glances)
        self._store.put_looks(zip(keys, (one for row in seen for one in row), strict=True))
        self.n_tokens += sum(len(passage.ids) for passage in group.passages)

    def _cut(self, questions: Sequence[Glance], *, most: int | None = None) -> list[Sight]:
        ways: dict[tuple[Hashable, Passage], dict[Look, None]] = {}
        for look, passage in questions:
            ways.setdefault((look.together, passage), {})[look] = None
        alike: dict[tuple[Look, ...], list[Passage]] = {}
        for (_, passage), looks in ways.items():
            alike.setdefault(tuple(sorted(looks, key=_key_of)), []).append(passage)
        return [
            Sight(looks, tuple(passages))
            for looks in sorted(alike, key=lambda looks: [_key_of(look) for look in looks])
            for passages in _batches(alike[looks], self.batch_tokens, most)
        ]

    def _n_parts(self, group: Sight) -> int:
        return len(group.passages)

    def _rows(self, group: Sight) -> Sequence[Glance]:
        return group.glances

    def _key(self, question: Glance) -> bytes:
        return key_of_look(self._target.fingerprint, *question)

    def _present(self, keys: Sequence[bytes]) -> set[bytes]:
        return self._store.present_looks(keys)

    def _size(self, question: Glance) -> int:
        return len(question[1].ids)

    def _used(self, group: Sight) -> int:
        return max(len(passage.ids) for passage in group.passages) * len(group.passages)


def _key_of(look: Look) -> str:
    return look.key


def _batches(
    passages: Sequence[Passage], batch_tokens: int, most: int | None
) -> Iterator[list[Passage]]:
    """The longest first, cut by padded tokens."""
    rows = sorted(passages, key=lambda one: (-len(one.ids), one.ids, one.places))
    start = 0
    while start < len(rows):
        n = max(1, batch_tokens // len(rows[start].ids))
        if most is not None:
            n = min(n, most)
        yield rows[start : start + n]
        start += n
