"""Gets answers to requests: from the store where they are, from the target where they are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from unseen.scoring.asking import Asking, Budget
from unseen.scoring.planner import MAX_PREFIX_SHARE, n_read, plan, plan_growing
from unseen.scoring.store import Store, key_of
from unseen.targets.access import read_since, tokens_read, tokens_remembered
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
        budget: how many questions may be asked.
        growing: whether questions grow from round to round. A target that remembers what it has read
            then reads what is new; answers may differ in rounding with what it still remembers.

    `n_tokens` counts each shared prefix once.
    """

    def __init__(
        self,
        target: Executor,
        store: Store,
        *,
        batch_tokens: int | None = None,
        budget: Budget | None = None,
        growing: bool = False,
    ) -> None:
        super().__init__(batch_tokens or target.batch_tokens, budget)
        self.target = target
        self._store = store
        self._growing = growing and tokens_remembered(target) > 0
        self._prefix: tuple[int, ...] = ()

    def beside(self, target: Executor) -> Engine:
        """An engine that asks another target, with the same store and budget."""
        return Engine(target, self._store, batch_tokens=self.batch_tokens, budget=self.budget)

    def growing(self) -> Engine:
        """An engine that asks the same target, for questions that grow from round to round."""
        return Engine(
            self.target,
            self._store,
            batch_tokens=self.batch_tokens,
            budget=self.budget,
            growing=True,
        )

    def answer(self, request: Request) -> TokenStats:
        """The answer of a request that `ensure` has seen."""
        return self._store.get(self._key(request))

    def _put(self, group: Batch) -> None:
        before = tokens_read(self.target)
        answers = self.target.execute(group)
        keys = map(self._key, group.requests)
        self._store.put(zip(keys, answers, strict=True))
        counted = read_since(self.target, before) if group.growing else None
        self.n_tokens += n_read(group, self._prefix) if counted is None else counted
        self._prefix = group.prefix

    def _cut(self, questions: Sequence[Request], *, most: int | None = None) -> list[Batch]:  # noqa: ARG002
        return (plan_growing if self._growing else plan)(questions, self.batch_tokens)

    def _rows(self, group: Batch) -> Sequence[Request]:
        return group.requests

    def _key(self, question: Request) -> bytes:
        return key_of(self.target.fingerprint, question)

    def _present(self, keys: Sequence[bytes]) -> set[bytes]:
        return self._store.present(keys)

    def _size(self, question: Request) -> int:
        return question.length

    def _used(self, group: Batch) -> int:
        widest = max(row.length - len(group.prefix) for row in group.requests)
        room = MAX_PREFIX_SHARE if group.growing else 1
        return widest * len(group.requests) // room
