import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from unseen.errors import OutOfMemoryError
from unseen.scoring.engine import Engine
from unseen.scoring.store import Store
from unseen.targets.fake import FakeTarget
from unseen.targets.huggingface import HFTarget
from unseen.types import Batch, Request, TokenStats

PREFIX = tuple(range(40))


class Flaky:
    """Passes batches on, notes them, and fails where it is told to."""

    def __init__(self, inner: Any, *, fits: int = 10**9, dies_at: int | None = None) -> None:
        self.inner = inner
        self.fits = fits
        self.dies_at = dies_at
        self.done = []
        self.tried = []

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    @property
    def batch_tokens(self) -> int:
        return self.inner.batch_tokens

    def execute(self, batch: Batch) -> list[TokenStats]:
        self.tried.append(batch)
        if len(self.done) == self.dies_at:
            raise KeyboardInterrupt
        if len(batch.requests) * max(row.length for row in batch.requests) > self.fits:
            problem = "does not fit"
            raise OutOfMemoryError(problem)
        answers = self.inner.execute(batch)
        self.done.append(batch)
        return answers


def some(n: int = 20, *, seed: int = 0, vocabulary: int = 256) -> list[Request]:
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        ids = tuple(rng.integers(0, vocabulary, size=rng.integers(2, 30)).tolist())
        context = (*PREFIX, *ids[:1]) if i % 3 == 0 else ids[:1]
        rows.append(Request(context, ids[1:]))
    return rows


def scored(batches: Iterable[Batch]) -> list[Request]:
    return [row for batch in batches for row in batch.requests]


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as store:
        yield store


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tmp_path_factory.mktemp("engine") / "llama")


def test_equal_requests_are_asked_once(store: Store) -> None:
    target = FakeTarget()
    engine = Engine(target, store)
    rows = some()
    engine.ensure([*rows, *rows, *(Request(row.context, row.continuation) for row in rows)])
    assert target.n_executed == len(rows) == engine.n_asked
    assert store.count() == (len(rows), 1)


def test_answers_are_the_targets(store: Store) -> None:
    engine = Engine(FakeTarget(["a secret"]), store)
    rows = some()
    engine.ensure(rows)
    for row in rows:
        (alone,) = FakeTarget(["a secret"]).execute(Batch((), (row,)))
        np.testing.assert_array_equal(engine.answer(row).logprob, alone.logprob)
        np.testing.assert_array_equal(engine.answer(row).sd, alone.sd)


def test_stored_answers_are_never_asked_again(store: Store) -> None:
    rows = some(30)
    Engine(FakeTarget(), store).ensure(rows[:10])
    target = FakeTarget()
    engine = Engine(target, store)
    engine.ensure(rows)
    assert (engine.n_stored, engine.n_asked, target.n_executed) == (10, 20, 20)
    again = Engine(target, store)
    again.ensure(rows)
    assert (again.n_stored, again.n_asked, again.n_tokens) == (30, 0, 0)
    assert target.n_executed == 20
    assert store.count() == (30, 1)


def test_another_model_is_asked_for_itself(store: Store) -> None:
    rows = some()
    Engine(FakeTarget(seed=0), store).ensure(rows)
    other = FakeTarget(seed=1)
    Engine(other, store).ensure(rows)
    assert other.n_executed == len(rows)


def test_nothing_wanted_asks_nothing(store: Store) -> None:
    seen = []
    Engine(FakeTarget(), store).ensure([], progress=lambda *now: seen.append(now))
    assert seen == [(0, 0)]


def test_tokens_are_counted_without_padding_and_prefixes_once(store: Store) -> None:
    rows = [Request((*PREFIX, 1), (i, i)) for i in range(5)]
    engine = Engine(FakeTarget(), store, batch_tokens=9)
    engine.ensure([*rows, Request((1,), (2,))])
    assert engine.n_tokens == len(PREFIX) + 5 * 3 + 2  # two batches after the prefix


class Remembering(Flaky):
    """A target that says how much it reads: seven tokens a batch."""

    memory_tokens = 100
    n_read = 0

    def execute(self, batch: Batch) -> list[TokenStats]:
        answers = super().execute(batch)
        self.n_read += 7
        return answers


def test_growing_questions_are_counted_by_a_target_that_remembers(store: Store) -> None:
    target = Remembering(FakeTarget())
    whole = Engine(target, store, batch_tokens=16)
    growing = whole.growing()
    growing.ensure(some())
    assert all(batch.growing for batch in target.done)
    assert growing.n_tokens == 7 * len(target.done) > 7
    whole.count(growing)
    assert (whole.n_asked, whole.n_tokens) == (20, growing.n_tokens)
    again = Engine(target, store, batch_tokens=16)
    again.ensure(some())
    assert (again.n_asked, again.n_stored) == (0, 20), (
        "it is the same question, however it is asked"
    )
    with Store() as another:
        plain = Flaky(FakeTarget())
        Engine(plain, another).growing().ensure(some())
    assert not any(batch.growing for batch in plain.done)
    with Store() as another:
        small = Remembering(FakeTarget(), fits=100)
        engine = Engine(small, another, batch_tokens=1000).growing()
        engine.ensure(some())
        assert engine.n_asked == 20
        assert len(small.tried) < 20


@pytest.mark.parametrize("dies_at", [0, 1, 3])
def test_a_stopped_run_goes_on_with_the_batches_it_would_have_had(
    tmp_path: Path, dies_at: int | None
) -> None:
    rows = some(40)
    whole = Flaky(FakeTarget())
    with Store() as store:
        Engine(whole, store, batch_tokens=100).ensure(rows)
    assert len(whole.done) > 5
    stopped, resumed = Flaky(FakeTarget(), dies_at=dies_at), Flaky(FakeTarget())
    with Store(tmp_path / "a") as store, pytest.raises(KeyboardInterrupt):
        Engine(stopped, store, batch_tokens=100).ensure(rows)
    with Store(tmp_path / "a") as store:
        Engine(resumed, store, batch_tokens=100).ensure(rows[::-1])
        assert store.count() == (40, 1)
    assert len(stopped.done) == dies_at
    assert stopped.done + resumed.done == whole.done


def test_the_last_row_of_a_prefix_still_comes_after_it_in_a_resumed_run(tmp_path: Path) -> None:
    rows = [Request((*PREFIX, 1), (i,) * 9) for i in range(4)]
    rows += [Request((1,), (i,) * 9) for i in range(4)]
    stopped, resumed = Flaky(FakeTarget(), dies_at=1), Flaky(FakeTarget())
    with Store(tmp_path / "a") as store, pytest.raises(KeyboardInterrupt):
        Engine(stopped, store, batch_tokens=30).ensure(rows)
    assert [len(batch.requests) for batch in stopped.done] == [3]
    with Store(tmp_path / "a") as store:
        Engine(resumed, store, batch_tokens=30).ensure(rows)
    first = resumed.done[0]
    assert (first.prefix, len(first.requests)) == (PREFIX, 1)


def test_a_resumed_run_gives_the_same_bits(tmp_path: Path, folder: Path) -> None:
    target = HFTarget(folder, dtype="float32")
    rows = some(20, vocabulary=300)
    with Store() as store:
        engine = Engine(target, store, batch_tokens=100)
        engine.ensure(rows)
        expected = [engine.answer(row) for row in rows]
    with Store(tmp_path / "a") as store, pytest.raises(KeyboardInterrupt):
        Engine(Flaky(target, dies_at=3), store, batch_tokens=100).ensure(rows)
    with Store(tmp_path / "a") as store:
        engine = Engine(target, store, batch_tokens=100)
        engine.ensure(rows)
        assert engine.n_stored > 0
        for row, answer in zip(rows, expected, strict=True):
            for part in ("logprob", "mean", "sd", "rank", "argmax"):
                found = getattr(engine.answer(row), part)
                assert found.tobytes() == getattr(answer, part).tobytes()


def test_more_records_later_ask_only_for_what_is_new(store: Store) -> None:
    rows = some(40)
    Engine(FakeTarget(), store, batch_tokens=100).ensure(rows[::2])
    target = Flaky(FakeTarget())
    Engine(target, store, batch_tokens=100).ensure(rows)
    assert set(scored(target.done)) == set(rows[1::2])
    assert len(scored(target.done)) == 20


def test_out_of_memory_halves_the_budget_and_goes_on(store: Store) -> None:
    rows = some(40)
    target = Flaky(FakeTarget(), fits=150)
    engine = Engine(target, store, batch_tokens=1000)
    engine.ensure(rows)
    assert engine.batch_tokens <= 500
    assert len(target.tried) > len(target.done)
    assert sorted(map(hash, scored(target.done))) == sorted(map(hash, rows))
    assert store.count() == (40, 1)
    assert engine.n_asked == 40


def test_each_failure_at_least_halves_what_is_tried_next(store: Store) -> None:
    target = Flaky(FakeTarget(), fits=40)
    rows = [Request((i,), (1,) * 19) for i in range(64)]
    Engine(target, store, batch_tokens=10**6).ensure(rows)
    failed = [len(batch.requests) for batch in target.tried if batch not in target.done]
    assert failed == [64, 32, 16, 8, 4]
    assert {len(batch.requests) for batch in target.done} == {2}


def test_a_single_request_that_does_not_fit_is_an_error(store: Store) -> None:
    rows = [Request((1,), (2,) * n) for n in (3, 5, 99)]
    target = Flaky(FakeTarget(), fits=50)
    with pytest.raises(OutOfMemoryError, match="a single record of 100 tokens") as raised:
        Engine(target, store).ensure(rows)
    assert "--max-length" in str(raised.value)


def test_what_fitted_before_is_kept(store: Store) -> None:
    fits = [Request((*PREFIX, 1), (i,)) for i in range(2)]
    target = Flaky(FakeTarget(), fits=90)
    with pytest.raises(OutOfMemoryError):
        Engine(target, store).ensure([*fits, Request((1,), (2,) * 99)])
    assert store.count() == (2, 1)


@pytest.mark.parametrize("fits", [150, 10**9])
def test_progress_rises_and_ends_at_the_total(store: Store, fits: int) -> None:
    rows = some(40)
    Engine(FakeTarget(), store).ensure(rows[:7])
    seen = []
    engine = Engine(Flaky(FakeTarget(), fits=fits), store, batch_tokens=200)
    engine.ensure(rows * 2, progress=lambda done, total: seen.append((done, total)))
    assert {total for _, total in seen} == {40}
    done = [one for one, _ in seen]
    assert done[0] == 7
    assert done[-1] == 40
    assert all(a < b for a, b in itertools.pairwise(done))


def test_a_target_that_leaves_an_answer_out_is_a_bug_and_nothing_is_kept(store: Store) -> None:
    class Short(Flaky):
        def execute(self, batch: Batch) -> list[TokenStats]:
            return self.inner.execute(batch)[:-1]

    with pytest.raises(ValueError, match="zip"):
        Engine(Short(FakeTarget()), store).ensure(some())
    assert store.count() == (0, 0)
