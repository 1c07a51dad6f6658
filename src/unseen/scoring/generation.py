"""Gets text for prompts: from the store where it is, from the target where it is not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from unseen.errors import OutOfMemoryError
from unseen.scoring.engine import Progress
from unseen.scoring.planner import unfinished
from unseen.scoring.store import Store, key_of_prompt
from unseen.types import Prompt, Sampling

# Prompts whose tokens, answers included, are kept in memory together, as multiples of the tokens that
# a batch reads at once: each step of writing reads but one token a row.
_ROOM = 8
_MOST_ROWS = 64


class Writer(Protocol):
    """What generation needs of a target."""

    @property
    def fingerprint(self) -> str:
        """Content hash of what is asked."""

    @property
    def batch_tokens(self) -> int:
        """Padded tokens a batch that suits the device."""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int,
        sampling: Sampling,
        numbers: Sequence[int] | None,
    ) -> list[list[int]]:
        """Continuations, a prompt each.

        Raises:
            OutOfMemoryError: where the prompts do not fit together.
        """


@dataclass(frozen=True)
class Sheet:
    """Prompts that are continued together, all with one sampling."""

    prompts: tuple[Prompt, ...]

    @property
    def n_tokens(self) -> int:
        """Tokens that are read, and written at most, without padding."""
        return sum(len(prompt.ids) + prompt.max_new_tokens for prompt in self.prompts)


class Generation:
    """Asks one target for text, for each distinct prompt at most once, and keeps every answer.

    Args:
        target: who is asked.
        store: where answers are kept.
        batch_tokens: padded tokens that are read at once; None leaves the choice to the target.

    Attributes:
        n_written: prompts that the target answered here.
        n_stored: prompts that the store had already answered.
        n_tokens: tokens that the target read and wrote here, without padding.
        batch_tokens: the budget in force; halved whenever prompts did not fit into memory.
    """

    def __init__(self, target: Writer, store: Store, *, batch_tokens: int | None = None) -> None:
        self._target = target
        self._store = store
        self.batch_tokens = batch_tokens or target.batch_tokens
        self.n_written = 0
        self.n_stored = 0
        self.n_tokens = 0

    def ensure(self, prompts: Iterable[Prompt], *, progress: Progress | None = None) -> None:
        """Makes sure that every prompt has its answer in the store.

        Raises:
            OutOfMemoryError: where a single prompt does not fit into memory.
            StoreError: where answers cannot be kept; those kept before are safe.
        """
        wanted, todo = self.remaining(prompts)
        done = len(wanted) - sum(len(sheet.prompts) for sheet in todo)
        self.n_stored += done
        if progress is not None:
            progress(done, len(wanted))
        while todo:
            sheet = todo.pop(0)
            try:
                answers = self._written(sheet)
            except OutOfMemoryError:
                todo = self._smaller(sheet, [row for one in (sheet, *todo) for row in one.prompts])
                continue
            self._store.put_texts(
                (self._key(row), ids) for row, ids in zip(sheet.prompts, answers, strict=True)
            )
            done += len(sheet.prompts)
            self.n_written += len(sheet.prompts)
            self.n_tokens += sum(len(row.ids) for row in sheet.prompts) + sum(map(len, answers))
            if progress is not None:
                progress(done, len(wanted))

    def remaining(self, prompts: Iterable[Prompt]) -> tuple[list[Prompt], list[Sheet]]:
        """The distinct prompts, and what would be written together for them now."""
        wanted = list(dict.fromkeys(prompts))
        keys = {prompt: self._key(prompt) for prompt in wanted}
        stored = self._store.present_texts(keys.values())
        missing = [prompt for prompt in wanted if keys[prompt] not in stored]
        # What a stopped run had planned goes on in the same company.
        whole = sheets(wanted, self.batch_tokens)
        left = unfinished(whole, lambda sheet: sheet.prompts, missing)
        return wanted, sheets(missing, self.batch_tokens) if left is None else left

    def answer(self, prompt: Prompt) -> tuple[int, ...]:
        """The token ids that go on after a prompt that `ensure` has seen; perhaps none."""
        return self._store.get_text(self._key(prompt))

    def _written(self, sheet: Sheet) -> list[list[int]]:
        rows = sheet.prompts
        made = self._target.generate(
            [row.ids for row in rows],
            max_new_tokens=max(row.max_new_tokens for row in rows),
            sampling=rows[0].sampling,
            numbers=[row.number for row in rows],
        )
        # One token follows from those before it: what is cut off later could have been cut off at once.
        return [ids[: row.max_new_tokens] for ids, row in zip(made, rows, strict=True)]

    def _key(self, prompt: Prompt) -> bytes:
        return key_of_prompt(self._target.fingerprint, prompt)

    def _smaller(self, failed: Sheet, left: list[Prompt]) -> list[Sheet]:
        if len(failed.prompts) == 1:
            n = len(failed.prompts[0].ids)
            raise OutOfMemoryError(
                f"a single prompt of {n} tokens does not fit into memory",
                fix="cut long records with --max-length, or use --dtype bfloat16",
            )
        widest = max(len(row.ids) + row.max_new_tokens for row in failed.prompts)
        used = widest * len(failed.prompts) // _ROOM
        self.batch_tokens = max(1, min(self.batch_tokens, used) // 2)
        # Even where one row fills the budget, the next sheets hold fewer.
        return sheets(left, self.batch_tokens, most=max(1, len(failed.prompts) // 2))


def sheets(prompts: Iterable[Prompt], batch_tokens: int, *, most: int = _MOST_ROWS) -> list[Sheet]:
    """Prompts that are continued together: alike in length, the longest answers first.

    Args:
        prompts: in any order, with repetitions.
        batch_tokens: the padded tokens that are read at once.
        most: the most prompts of a sheet.

    Returns:
        Sheets; every distinct prompt is in exactly one, and they do not depend on the order.
    """
    rows = sorted(
        set(prompts),
        key=lambda row: (
            _order(row.sampling),
            -row.max_new_tokens,
            -len(row.ids),
            row.ids,
            row.number,
        ),
    )
    made: list[Sheet] = []
    start = 0
    while start < len(rows):
        stop, widest = start, 0
        while stop < len(rows) and rows[stop].sampling == rows[start].sampling:
            widest = max(widest, len(rows[stop].ids))
            n = stop - start + 1
            room = n * (widest + rows[start].max_new_tokens) <= _ROOM * batch_tokens
            if n > 1 and (n > most or not room):
                break
            stop += 1
        made.append(Sheet(tuple(rows[start:stop])))
        start = stop
    return made


def _order(sampling: Sampling) -> tuple[float, ...]:
    return (sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed)
