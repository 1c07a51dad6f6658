"""Gets answers to requests: from the store where they are, from the target where they are not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from unseen.errors import OutOfMemoryError
from unseen.scoring.planner import distinct, n_read, plan, unfinished
from unseen.scoring.store import Store, key_of
from unseen.types import Batch, Request, TokenStats

Progress = Callable[[int, int], None]
"""Called with requests answered so far, and requests in all."""


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


class Engine:
    """Asks one target, each distinct request at most once, and keeps every answer.

    Args:
        target: who is asked.
        store: where answers are kept.
        batch_tokens: padded tokens a batch; None leaves the choice to the target.

    Attributes:
        n_scored: requests that the target answered here.
        n_stored: requests that the store had already answered.
        n_tokens: tokens that the target read here, without padding, each shared prefix once.
        batch_tokens: the budget in force; halved whenever a batch did not fit into memory.
    """

    def __init__(self, target: Executor, store: Store, *, batch_tokens: int | None = None) -> None:
        self._target = target
        self._store = store
        self.batch_tokens = batch_tokens or target.batch_tokens
        self.n_scored = 0
        self.n_stored = 0
        self.n_tokens = 0

    def ensure(self, requests: Iterable[Request], *, progress: Progress | None = None) -> None:
        """Makes sure that every request has its answer in the store.

        Raises:
            OutOfMemoryError: where a single request does not fit into memory.
            StoreError: where answers cannot be kept; those kept before are safe.
        """
        wanted, todo = self.remaining(requests)
        done = len(wanted) - sum(len(batch.requests) for batch in todo)
        self.n_stored += done
        if progress is not None:
            progress(done, len(wanted))
        prefix: tuple[int, ...] = ()
        while todo:
            batch = todo.pop(0)
            try:
                answers = self._target.execute(batch)
            except OutOfMemoryError:
                left = [row for later in (batch, *todo) for row in later.requests]
                todo = self._smaller(batch, left)
                continue
            self._store.put(
                (self._key(row), answer)
                for row, answer in zip(batch.requests, answers, strict=True)
            )
            done += len(batch.requests)
            self.n_scored += len(batch.requests)
            self.n_tokens += n_read(batch, prefix)
            prefix = batch.prefix
            if progress is not None:
                progress(done, len(wanted))

    def remaining(self, requests: Iterable[Request]) -> tuple[list[Request], list[Batch]]:
        """The distinct requests, and the batches that would be run for them now.

        Where the store holds other than whole batches, the missing requests are planned by themselves.
        """
        wanted = distinct(requests)
        keys = {request: self._key(request) for request in wanted}
        stored = self._store.present(keys.values())
        missing = [row for row in wanted if keys[row] not in stored]
        whole = plan(wanted, self.batch_tokens)
        left = unfinished(whole, lambda batch: batch.requests, missing)
        return wanted, plan(missing, self.batch_tokens) if left is None else left

    def beside(self, target: Executor) -> Engine:
        """An engine that asks another target, with the same store and budget."""
        return Engine(target, self._store, batch_tokens=self.batch_tokens)

    def count(self, other: Engine) -> None:
        """Counts what another engine has done as this one's."""
        self.n_scored += other.n_scored
        self.n_stored += other.n_stored
        self.n_tokens += other.n_tokens

    def answer(self, request: Request) -> TokenStats:
        """The answer of a request that `ensure` has seen."""
        return self._store.get(self._key(request))

    def _key(self, request: Request) -> bytes:
        return key_of(self._target.fingerprint, request)

    def _smaller(self, failed: Batch, left: list[Request]) -> list[Batch]:
        if len(failed.requests) == 1:
            longest = failed.requests[0].length
            raise OutOfMemoryError(
                f"a single record of {longest} tokens does not fit into memory",
                fix="cut long records with --max-length, or use --dtype bfloat16",
            )
        used = max(row.length - len(failed.prefix) for row in failed.requests)
        self.batch_tokens = max(1, min(self.batch_tokens, used * len(failed.requests)) // 2)
        return plan(left, self.batch_tokens)
