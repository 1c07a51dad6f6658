"""Asks one target, each distinct question at most once, and keeps every answer: for any kind of question."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from unseen.errors import BudgetError, OutOfMemoryError
from unseen.scoring.planner import unfinished

Progress = Callable[[int, int], None]
"""Called with questions answered so far, and questions in all."""

Q = TypeVar("Q")
G = TypeVar("G")


class Budget:
    """How many questions may be asked, of all models together.

    Args:
        most: questions; None for as many as there are.
        spent: of them asked before.

    Attributes:
        spent: questions that were asked.
    """

    def __init__(self, most: int | None = None, spent: int = 0) -> None:
        self._most = most
        self.spent = spent

    def check(self, n: int) -> None:
        """Refuses n further questions where there are not so many left.

        Raises:
            BudgetError: with what was asked so far.
        """
        if self._most is not None and self.spent + n > self._most:
            raise BudgetError(
                f"stopped before more than {self._most:,} questions were asked ({self.spent:,} were)",
                fix="the same command with a larger --max-requests continues: what was answered is kept",
            )


class Asking(ABC, Generic[Q, G]):
    """Answers questions from a store where they are, and from a target where they are not.

    Questions are put in groups. A group that does not fit into memory is cut: the budget is halved,
    and whatever is left is put in smaller ones.

    Args:
        batch_tokens: padded tokens that the target reads at once.
        budget: how many questions may be asked.

    Attributes:
        n_asked: questions that the target answered here.
        n_stored: questions that the store had already answered.
        n_tokens: tokens that the target read and wrote here, without padding.
        batch_tokens: the budget in force.
    """

    one: str = "record"
    """What does not fit into memory, if a single one does not."""

    def __init__(self, batch_tokens: int, budget: Budget | None = None) -> None:
        self.batch_tokens = batch_tokens
        self.budget = budget or Budget()
        self.n_asked = 0
        self.n_stored = 0
        self.n_tokens = 0

    def ensure(self, questions: Iterable[Q], *, progress: Progress | None = None) -> None:
        """Makes sure that every question has its answer in the store.

        Raises:
            OutOfMemoryError: where a single question does not fit into memory.
            BudgetError: where no more may be asked; answers kept before are safe.
            StoreError: where answers cannot be kept; those kept before are safe.
        """
        wanted, todo = self.remaining(questions)
        done = len(wanted) - sum(len(self._rows(group)) for group in todo)
        self.n_stored += done
        if progress is not None:
            progress(done, len(wanted))
        while todo:
            group = todo.pop(0)
            rows = self._rows(group)
            self.budget.check(len(rows))
            try:
                self._put(group)
            except OutOfMemoryError:
                n_parts = self._n_parts(group)
                if n_parts == 1:
                    raise OutOfMemoryError(
                        f"a single {self.one} of {self._size(rows[0])} tokens does not fit into memory",
                        fix="cut long records with --max-length, or use --dtype bfloat16",
                    ) from None
                left = [row for one in (group, *todo) for row in self._rows(one)]
                self.batch_tokens = max(1, min(self.batch_tokens, self._used(group)) // 2)
                todo = self._cut(left, most=n_parts // 2)
                continue
            done += len(rows)
            self.n_asked += len(rows)
            self.budget.spent += len(rows)
            if progress is not None:
                progress(done, len(wanted))

    def remaining(self, questions: Iterable[Q]) -> tuple[list[Q], list[G]]:
        """The distinct questions, and the groups that would be put for them now.

        What a stopped run had planned goes on in the same company. Where the store holds other than
        whole groups, the missing questions are planned by themselves.
        """
        wanted = list(dict.fromkeys(questions))
        keys = {row: self._key(row) for row in wanted}
        stored = self._present(list(keys.values()))
        missing = [row for row in wanted if keys[row] not in stored]
        left = unfinished(self._cut(wanted), self._rows, missing)
        return wanted, self._cut(missing) if left is None else left

    def count(self, other: Asking[Any, Any]) -> None:
        """Counts what another has asked as this one's."""
        self.n_asked += other.n_asked
        self.n_stored += other.n_stored
        self.n_tokens += other.n_tokens

    @abstractmethod
    def _put(self, group: G) -> None:
        """Asks the target, keeps the answers, counts the tokens.

        Raises:
            OutOfMemoryError: where the group does not fit; nothing of it is kept.
        """

    @abstractmethod
    def _cut(self, questions: Sequence[Q], *, most: int | None = None) -> list[G]:
        """Groups within the budget, the same in whatever order.

        Args:
            questions: distinct ones.
            most: parts of a group, at most, where the kind of group has a say in it.
        """

    def _n_parts(self, group: G) -> int:
        """How many groups it can be cut into, at most."""
        return len(self._rows(group))

    @abstractmethod
    def _rows(self, group: G) -> Sequence[Q]:
        """The questions of a group."""

    @abstractmethod
    def _key(self, question: Q) -> bytes:
        """Where the store keeps its answer."""

    @abstractmethod
    def _present(self, keys: Sequence[bytes]) -> set[bytes]:
        """Those of the keys that the store has an answer for."""

    @abstractmethod
    def _size(self, question: Q) -> int:
        """Tokens of a question."""

    @abstractmethod
    def _used(self, group: G) -> int:
        """How much of the budget a group takes."""
