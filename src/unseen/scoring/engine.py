"""Gets answers to requests: from the store where they are, from the target where they are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from unseen.scoring.asking import Asking, Budget
from unseen.scoring.planner import n_read, plan
from unseen.scoring.store import Store, key_of
from unseen.types import Batch, Request, TokenStats


class Executor(Protocol):
    """What the engine needs of a target."""

    @property
    def fingerprint(self) -> str:
        """Content hash of what is asked."""

    @property
    def batch_tokens(self) -> int:
        """Padded tokens a batch that suits the device."""

    def execute(self, batch: Batch) -> list[TokenStats]:
        """Answers, a request each.

        Raises:
            OutOfMemoryError: where the batch does not fit.
        """


class Engine(Asking[Request, Batch]):
    """Asks one target how likely tokens are, each distinct request at most once.

    Args:
        target: who is asked.
        store: where answers are kept.
        batch_tokens: padded tokens a batch; None leaves the choice to the target.

    `n_tokens` counts each shared prefix once.
    """

    def __init__(
        self,
        target: Executor,
        store: Store,
        *,
        batch_tokens: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        super().__init__(batch_tokens or target.batch_tokens, budget)
        self._target = target
        self._store = store
        self._prefix: tuple[int, ...] = ()

    def beside(self, target: Executor) -> Engine:
        """An engine that asks another target, with the same store and budget."""
        return Engine(target, self._store, batch_tokens=self.batch_tokens, budget=self.budget)

    def answer(self, request: Request) -> TokenStats:
        """The answer of a request that `ensure` has seen."""
        return self._store.get(self._key(request))

    def _put(self, group: Batch) -> None:
        answers = self._target.execute(group)
        keys = map(self._key, group.requests)
        self._store.put(zip(keys, answers, strict=True))
        self.n_tokens += n_read(group, self._prefix)
        self._prefix = group.prefix

    def _cut(self, questions: Sequence[Request], *, most: int | None = None) -> list[Batch]:  # noqa: ARG002
        return plan(questions, self.batch_tokens)

    def _rows(self, group: Batch) -> Sequence[Request]:
        return group.requests

    def _key(self, question: Request) -> bytes:
        return key_of(self._target.fingerprint, question)

    def _present(self, keys: Sequence[bytes]) -> set[bytes]:
        return self._store.present(keys)

    def _size(self, question: Request) -> int:
        return question.length

    def _used(self, group: Batch) -> int:
        widest = max(row.length - len(group.prefix) for row in group.requests)
        return widest * len(group.requests)
