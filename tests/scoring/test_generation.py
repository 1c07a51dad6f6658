import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from unseen.errors import BudgetError, OutOfMemoryError, StoreError
from unseen.scoring.asking import Budget
from unseen.scoring.generation import Generation, sheets
from unseen.scoring.store import Store, key_of_prompt
from unseen.targets.fake import FakeTarget
from unseen.types import Prompt, Sampling

WARM = Sampling(1.0, seed=2)
PROMPTS = [
    Prompt(
        tuple(b"abcdefgh"[: 1 + i % 7]),
        3 + i % 4,
        WARM if i % 3 else Sampling(),
        i % 2,
        "e" if i % 5 == 0 else "",
        i % 7 == 0,
    )
    for i in range(24)
]


class Flaky:
    """Passes prompts on, and fails where it is told to."""

    batch_tokens = 8

    def __init__(self, *, fits: int = 10**9, dies_at: int | None = None) -> None:
        self.inner = FakeTarget()
        self.fingerprint = self.inner.fingerprint
        self.fits, self.dies_at = fits, dies_at
        self.done: list[Any] = []

    def generate(self, prompts: Sequence[Sequence[int]], **how: Any) -> list[list[int]]:
        if len(self.done) == self.dies_at:
            raise KeyboardInterrupt
        if len(prompts) > self.fits:
            problem = "does not fit"
            raise OutOfMemoryError(problem)
        self.done.append([tuple(prompt) for prompt in prompts])
        return self.inner.generate(prompts, **how)


def alone(prompt: Prompt) -> tuple[int, ...]:
    (ids,) = FakeTarget().generate(
        [prompt.ids],
        max_new_tokens=prompt.max_new_tokens,
        sampling=prompt.sampling,
        numbers=[prompt.number],
        stop=prompt.stop,
        one_line=prompt.one_line,
    )
    return tuple(ids)


def test_each_prompt_is_written_once_and_as_it_would_be_alone() -> None:
    target, told = Flaky(), []
    with Store() as store:
        writing = Generation(target, store)
        writing.ensure([*PROMPTS, *PROMPTS], progress=lambda *now: told.append(now))
        n = len(set(PROMPTS))
        assert (writing.n_asked, writing.n_stored) == (n, 0)
        assert told[0] == (0, n)
        assert told[-1] == (n, n)
        for prompt in PROMPTS:
            assert writing.answer(prompt) == alone(prompt)
        again = Generation(target, store)
        again.ensure(PROMPTS)
        assert (again.n_asked, again.n_stored, again.n_tokens) == (0, n, 0)
    read = sum(len(p.ids) + len(alone(p)) for p in set(PROMPTS))
    assert writing.n_tokens == read


def test_sheets_hold_alike_prompts_whatever_their_order() -> None:
    made = sheets(PROMPTS, 8)
    assert made == sheets(PROMPTS[::-1], 8)
    rows = [row for sheet in made for row in sheet.prompts]
    assert len(rows) == len(set(rows)) == len(set(PROMPTS))
    for sheet in made:
        assert len({(row.sampling, row.stop, row.one_line) for row in sheet.prompts}) == 1
        longest = max(len(r.ids) for r in sheet.prompts) + sheet.prompts[0].max_new_tokens
        assert len(sheet.prompts) == 1 or len(sheet.prompts) * longest <= 64


def test_sheets_hold_prompts_that_begin_alike_side_by_side() -> None:
    prompts = [
        Prompt((trial, *range(20), *range(100, 100 + n), end), 4)
        for n in range(3) for trial in range(6) for end in range(4)
    ]  # fmt: skip
    prompts += [Prompt((50, *range(n)), 4) for n in (3, 90)] + [Prompt((60, 2), 4)]
    made = sheets(prompts, 10**4, most=12)
    assert made == sheets(prompts[::-1], 10**4, most=12)
    rows = [row.ids for sheet in made for row in sheet.prompts]
    groups = [list(of) for _, of in itertools.groupby(rows, key=lambda ids: ids[0])]
    assert [of[0][0] for of in groups] == [50, 0, 1, 2, 3, 4, 5, 60], "the longest first"
    assert all(of == sorted(of) for of in groups)


def test_a_killed_run_goes_on_with_the_sheets_that_are_left(tmp_path: Path) -> None:
    whole, killed, later = Flaky(), Flaky(dies_at=2), Flaky()
    with Store() as store:
        Generation(whole, store).ensure(PROMPTS)
    with Store(tmp_path / "a.sqlite") as store, pytest.raises(KeyboardInterrupt):
        Generation(killed, store).ensure(PROMPTS)
    with Store(tmp_path / "a.sqlite") as store:
        writing = Generation(later, store)
        writing.ensure(PROMPTS)
        assert [writing.answer(prompt) for prompt in PROMPTS] == [*map(alone, PROMPTS)]
    assert killed.done + later.done == whole.done


def test_what_does_not_fit_is_written_in_smaller_parts() -> None:
    target = Flaky(fits=2)
    with Store() as store:
        writing = Generation(target, store, batch_tokens=1000)
        writing.ensure(PROMPTS)
        assert [writing.answer(prompt) for prompt in PROMPTS] == [*map(alone, PROMPTS)]
    assert max(map(len, target.done)) <= 2
    with Store() as store, pytest.raises(OutOfMemoryError, match="a single prompt of 1 tokens"):
        Generation(Flaky(fits=0), store).ensure(PROMPTS[:1])


def test_texts_are_kept_under_all_that_changes_them_and_with_a_checksum(tmp_path: Path) -> None:
    one = Prompt((1, 2), 3, WARM)
    others = [
        Prompt((1, 3), 3, WARM), Prompt((1, 2), 4, WARM), Prompt((1, 2), 3, WARM, 1),
        Prompt((1, 2), 3), Prompt((1, 2), 3, Sampling(1.0, 5, 1.0, 2)),
        Prompt((1, 2), 3, WARM, stop="\n"), Prompt((1, 2), 3, stop="\n"), Prompt((1, 2), 3, stop="x"),
        Prompt((1, 2), 3, one_line=True), Prompt((1, 2), 3, stop="\n", one_line=True),
        Prompt((1, 2), 3, Sampling(fewest=3)), Prompt((1, 2), 3, Sampling(1.0, seed=2, fewest=3)),
    ]  # fmt: skip
    keys = [key_of_prompt("f", prompt) for prompt in [one, *others]] + [key_of_prompt("g", one)]
    assert len(set(keys)) == len(keys)
    assert key_of_prompt("f", Prompt((1, 2), 3)) == key_of_prompt("f", Prompt((1, 2), 3, number=7))
    with Store(tmp_path / "a.sqlite") as store:
        store.put_texts([(keys[0], [3, 70_000]), (keys[1], [])])
        assert store.present_texts(keys) == set(keys[:2])
        assert store.present(keys) == set()
        assert (store.get_text(keys[0]), store.get_text(keys[1])) == ((3, 70_000), ())
        with pytest.raises(StoreError, match="not in the store any more"):
            store.get_text(keys[2])
        store._db.execute("UPDATE texts SET value = x'0011223344'")
        with pytest.raises(StoreError, match="is damaged"):
            store.get_text(keys[0])


def test_a_budget_stops_before_it_is_exceeded_and_keeps_what_was_answered() -> None:
    prompts = [Prompt(tuple(f"text {i}".encode()), 4) for i in range(6)]
    with Store() as store:
        budget = Budget(5, spent=1)
        target = FakeTarget()
        writing = Generation(target, store, batch_tokens=10, budget=budget)
        with pytest.raises(BudgetError, match="stopped before more than 5 questions were asked"):
            writing.ensure(prompts)
        assert budget.spent == 1 + target.n_generated <= 5
        more = Generation(target, store, batch_tokens=10, budget=Budget(6))
        more.ensure(prompts)
        assert target.n_generated == 6
        assert more.n_stored == budget.spent - 1
