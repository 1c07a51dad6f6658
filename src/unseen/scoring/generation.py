"""Gets text for prompts: from the store where it is, from the target where it is not."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from unseen.errors import UnscorableError
from unseen.scoring.asking import Asking, Budget
from unseen.scoring.store import Store, key_of_prompt
from unseen.targets.access import Withheld, is_withheld, read_since, tokens_read, tokens_remembered
from unseen.targets.characters import tokens_of
from unseen.targets.prefixes import common, n_distinct
from unseen.types import Prompt, Sampling

Ids = tuple[int, ...]

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
        stop: str,
        one_line: bool,
    ) -> list[list[int]]:
        """Continuations, a prompt each.

        Raises:
            OutOfMemoryError: where the prompts do not fit together.
        """


@runtime_checkable
class EachAlone(Writer, Protocol):
    """Answers each prompt by itself, and others meanwhile: nothing is gained by prompts that are alike."""

    def each(self, prompts: Sequence[Prompt]) -> Generator[tuple[Prompt, list[int]], None, None]:
        """Every prompt and its answer, as they come; who does not want all of them closes it."""


@dataclass(frozen=True)
class Sheet:
    """Prompts that are continued together, all with one sampling, and ended alike."""

    prompts: tuple[Prompt, ...]

    @property
    def to_write(self) -> int:
        """Tokens of all answers, at most."""
        return sum(prompt.max_new_tokens for prompt in self.prompts)


class Generation(Asking[Prompt, Sheet]):
    """Asks one target for text, for each distinct prompt at most once.

    Args:
        target: who is asked.
        store: where answers are kept.
        batch_tokens: padded tokens that are read at once; None leaves the choice to the target.
        budget: how many questions may be asked.
    """

    one = "prompt"

    def __init__(
        self,
        target: Writer,
        store: Store,
        *,
        batch_tokens: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        super().__init__(batch_tokens or target.batch_tokens, budget)
        self.target = target
        self._store = store
        self._whole = bool(getattr(target, "whole_answers", False))

    def answer(self, prompt: Prompt) -> tuple[int, ...]:
        """The token ids that go on after a prompt that `ensure` has seen; perhaps none.

        Raises:
            UnscorableError: where there is no answer, with the reason.
        """
        ids = self._store.get_text(self._key(prompt))
        if is_withheld(ids):
            raise UnscorableError(Withheld(ids[0]).reason)
        return ids

    def to_read(self, group: Iterable[Sheet]) -> int:
        """Tokens of the prompts that the target will read: what they begin alike with once, if it can.

        About as many, of a model whose own tokens are not known.
        """
        texts = [row.ids for sheet in group for row in sheet.prompts]
        if tokens_remembered(self.target):
            return n_distinct(texts)
        tokenizer = getattr(self.target, "tokenizer", None)
        return sum(tokens_of(tokenizer, len(ids)) for ids in texts)

    def _put(self, group: Sheet) -> None:
        rows = group.prompts
        if isinstance(self.target, EachAlone):
            # Kept one by one: whatever stops the run, none that has come is asked for again.
            with closing(self.target.each(rows)) as answered:
                for row, ids in answered:
                    self._store.put_texts([(self._key(row), ids)])
                    self._count(len(row.ids), [ids])
            return
        before = tokens_read(self.target)
        made = self.target.generate(
            [row.ids for row in rows],
            max_new_tokens=max(row.max_new_tokens for row in rows),
            sampling=rows[0].sampling,
            numbers=[row.number for row in rows],
            stop=rows[0].stop,
            one_line=rows[0].one_line,
        )
        answers = made
        if not self._whole:
            # A token follows from those before it: what is cut off later could have been at once.
            answers = [ids[: row.max_new_tokens] for ids, row in zip(made, rows, strict=True)]
        self._store.put_texts(zip(map(self._key, rows), answers, strict=True))
        counted = read_since(self.target, before)
        self._count(sum(len(row.ids) for row in rows) if counted is None else counted, answers)

    def _count(self, n_read: int, answers: Sequence[Sequence[int]]) -> None:
        tokenizer = getattr(self.target, "tokenizer", None)
        self.n_tokens += tokens_of(tokenizer, n_read + sum(map(len, answers)))

    def _cut(self, questions: Sequence[Prompt], *, most: int | None = None) -> list[Sheet]:
        # Even where one row fills the budget, the next sheets hold fewer.
        most = _MOST_ROWS if most is None else most
        return sheets(questions, self.batch_tokens, most=most, whole=self._whole)

    def _rows(self, group: Sheet) -> Sequence[Prompt]:
        return group.prompts

    def _key(self, question: Prompt) -> bytes:
        return key_of_prompt(self.target.fingerprint, question)

    def _present(self, keys: Sequence[bytes]) -> set[bytes]:
        return self._store.present_texts(keys)

    def _size(self, question: Prompt) -> int:
        return len(question.ids)

    def _used(self, group: Sheet) -> int:
        widest = max(len(row.ids) + row.max_new_tokens for row in group.prompts)
        return widest * len(group.prompts) // _ROOM


def sheets(
    prompts: Iterable[Prompt], batch_tokens: int, *, most: int = _MOST_ROWS, whole: bool = False
) -> list[Sheet]:
    """Prompts that are continued together: the longest answers first, and what begins alike.

    Prompts that have half of themselves in common are beside each other; such groups, and prompts that
    are in none, are in the order of their lengths.

    Args:
        prompts: in any order, with repetitions.
        batch_tokens: the padded tokens that are read at once.
        most: the most prompts of a sheet.
        whole: whether answers of other lengths may be other answers, and are not written together.

    Returns:
        Sheets; every distinct prompt is in exactly one, and they do not depend on the order.
    """

    def order(row: Prompt) -> tuple[object, ...]:
        return (*_order(row), row.max_new_tokens if whole else 0)

    distinct = set(prompts)
    group = _groups(row.ids for row in distinct)
    rows = sorted(
        distinct,
        key=lambda row: (order(row), -row.max_new_tokens, group[row.ids], row.ids, row.number),
    )
    made: list[Sheet] = []
    start = 0
    while start < len(rows):
        stop, widest = start, 0
        while stop < len(rows) and order(rows[stop]) == order(rows[start]):
            widest = max(widest, len(rows[stop].ids))
            n = stop - start + 1
            room = n * (widest + rows[start].max_new_tokens) <= _ROOM * batch_tokens
            if n > 1 and (n > most or not room):
                break
            stop += 1
        made.append(Sheet(tuple(rows[start:stop])))
        start = stop
    return made


def _groups(texts: Iterable[Ids]) -> dict[Ids, tuple[int, Ids]]:
    """For each text the group that it begins alike with: its longest one's length, negative, and its first."""
    found: list[list[Ids]] = []
    for ids in sorted(set(texts)):
        last = found[-1][-1] if found else ()
        if found and 2 * common(last, ids) >= min(len(last), len(ids)):
            found[-1].append(ids)
        else:
            found.append([ids])
    return {ids: (-max(map(len, group)), group[0]) for group in found for ids in group}


def _order(prompt: Prompt) -> tuple[str, bool, float, int, float, int, int]:
    """What all prompts of a sheet have in common."""
    how = prompt.sampling
    ends = (prompt.stop, prompt.one_line)
    return (*ends, how.temperature, how.top_k, how.top_p, how.seed, how.fewest)
