import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unseen.scoring.planner import (
    MAX_PREFIX_SHARE,
    MIN_PREFIX,
    n_tokens,
    plan,
    plan_growing,
    unfinished,
)
from unseen.types import Request

PREFIXES = [(), *(tuple(range(n, 2 * n)) for n in (MIN_PREFIX - 1, MIN_PREFIX, 40))]


def made(number: int) -> Request:
    """One of some hundreds of requests; several numbers stand for equal ones."""
    number, prefix = divmod(number, len(PREFIXES))
    number, n_context = divmod(number, 3)
    number, n_continuation = divmod(number, 8)
    token = number % 25
    context = PREFIXES[prefix] + (token,) * (1 + n_context)
    return Request(context, (token,) * (1 + n_continuation))


MANY = st.lists(st.integers(0, 599).map(made), max_size=30)
BUDGET = st.integers(1, 200)


@given(MANY, BUDGET)
def test_every_distinct_request_is_in_exactly_one_batch(rows: list[Request], budget: int) -> None:
    planned = Counter(row for batch in plan(rows, budget) for row in batch.requests)
    assert planned == Counter(set(rows))


@given(MANY, BUDGET)
def test_padded_tokens_stay_in_the_budget(rows: list[Request], budget: int) -> None:
    for batch in plan(rows, budget):
        n_rows = len(batch.requests)
        width = max(row.length for row in batch.requests) - len(batch.prefix)
        assert n_rows == 1 or n_rows * width <= budget
        if batch.prefix:
            held = n_rows * (len(batch.prefix) + width)
            assert n_rows == 1 or held <= MAX_PREFIX_SHARE * budget


@given(MANY, BUDGET, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(
    rows: list[Request], budget: int, rng: random.Random
) -> None:
    shuffled = [*rows, *rows[:3]]
    rng.shuffle(shuffled)
    assert plan(shuffled, budget) == plan(rows, budget)


@given(MANY, BUDGET)
def test_a_batch_begins_with_its_prefix_and_leaves_a_context_token(
    rows: list[Request], budget: int
) -> None:
    for batch in plan(rows, budget):
        assert not batch.prefix or len(batch.prefix) >= MIN_PREFIX
        for row in batch.requests:
            assert row.context[: len(batch.prefix)] == batch.prefix
            assert len(row.context) > len(batch.prefix)


@given(MANY, BUDGET)
def test_within_a_prefix_the_longest_rows_come_first(rows: list[Request], budget: int) -> None:
    by_prefix = {}
    for batch in plan(rows, budget):
        by_prefix.setdefault(batch.prefix, []).extend(row.length for row in batch.requests)
    for lengths in by_prefix.values():
        assert lengths == sorted(lengths, reverse=True)


def test_rows_that_begin_alike_are_read_after_their_prefix() -> None:
    prefix = tuple(range(50))
    rows = [Request((*prefix, i), (i, i)) for i in range(4)]
    (batch,) = plan(rows, 1000)
    assert batch.prefix == prefix
    assert set(batch.requests) == set(rows)


def test_a_prefix_that_only_one_row_has_is_not_read_apart() -> None:
    lone = Request(tuple(range(50)), (1,))
    other = Request((9,), (1,))
    (batch,) = plan([lone, other], 1000)
    assert batch.prefix == ()
    assert batch.requests == (lone, other)


@pytest.mark.parametrize(("n", "expected"), [(MIN_PREFIX - 1, 0), (MIN_PREFIX, MIN_PREFIX)])
def test_short_prefixes_are_not_worth_it(n: int, expected: Any) -> None:
    rows = [Request((*range(n), 100 + i), (i,)) for i in range(9)]
    assert [len(batch.prefix) for batch in plan(rows, 200)] == [expected]


def test_the_last_context_token_stays_with_the_row() -> None:
    context = tuple(range(60))
    (batch,) = plan([Request(context, (i,)) for i in range(3)], 200)
    assert batch.prefix == context[:-1]


def test_long_prefixes_bound_the_rows_of_a_batch() -> None:
    prefix = tuple(range(1000))
    rows = [Request((*prefix, i), (i,)) for i in range(60)]
    sizes = [len(batch.requests) for batch in plan(rows, 200)]
    assert sizes == [1, *([1] * 59)]
    assert max(len(batch.requests) for batch in plan(rows, 2000)) == 15


def probes_of(record: int, n: int, *, system: int = 24, own: int = 30) -> list[Request]:
    """K requests that share a system turn with all others, and a question with each other."""
    question = tuple(range(1000 * record, 1000 * record + own))
    start = (*range(system), *question)
    return [Request((*start, 500 + j, *question), (7,) * 20) for j in range(n)]


def test_of_nested_prefixes_the_one_that_saves_most_is_read() -> None:
    rows = [row for record in range(1, 9) for row in probes_of(record, 6)]
    batches = plan(rows, 512)
    assert {len(batch.prefix) for batch in batches} == {54}
    assert len({batch.prefix for batch in batches}) == 8
    # One probe a record: nothing but the system turn is common to several.
    lone = [row for record in range(1, 40) for row in probes_of(record, 1)]
    assert {len(batch.prefix) for batch in plan(lone, 512)} == {24}
    # On a device that takes many rows at once, many small passes would cost more than they save.
    assert {len(batch.prefix) for batch in plan(rows, 16_384)} == {24}
    assert {len(batch.prefix) for batch in plan(rows[:12], 16_384)} == {0}


def test_some_prefixes_are_shared_and_others_not() -> None:
    rows = probes_of(1, 9, system=0) + [Request((i, i), (1,)) for i in range(200, 204)]
    batches = plan(rows, 512)
    assert {batch.prefix for batch in batches} == {(), rows[0].context[:30]}
    assert n_tokens(batches) == 30 + 9 * 51 + 4 * 3


def cost(groups: list[tuple[int, list[Request]]], budget: int) -> float:
    """What the planner weighs: tokens, and a 32nd of a full batch for every pass."""
    total = 0.0
    for prefix, rows in groups:
        own = sum(row.length - prefix for row in rows)
        passes = 1 + -(-own // budget) if prefix else own / budget
        total += prefix + own + passes * budget / 32
    return total


def grouped(rows: list[Request], budget: int) -> list[tuple[int, list[Request]]]:
    """The groups of a plan: the length of the prefix, and the rows after it."""
    found: dict[tuple[int, ...], list[Request]] = {}
    for batch in plan(rows, budget):
        found.setdefault(batch.prefix, []).extend(batch.requests)
    return [(len(prefix), members) for prefix, members in found.items()]


@pytest.mark.parametrize("seed", range(30))
def test_sharing_costs_no_more_than_any_one_length_of_prefix(seed: int) -> None:
    rng = random.Random(seed)
    starts = [tuple(rng.choices((98, 99), k=n)) for n in (0, 16, 30, 60) for _ in range(2)]
    rows = list({
        Request((*rng.choice(starts), *rng.choices((97, 98, 99), k=3), 5), (i,) * 9)
        for i in range(40)
    })  # fmt: skip
    for n in (MIN_PREFIX, 20, 30, 60):
        by_start: dict[tuple[int, ...], list[Request]] = {}
        for row in rows:
            start = row.context[:n] if len(row.context) > n else ()
            by_start.setdefault(start, []).append(row)
        groups = [(len(start), of) for start, of in by_start.items() if start]
        pays = [g for g in groups if cost([g], 300) < cost([(0, g[1])], 300)]
        loose = [row for row in rows if not any(row in of for _, of in pays)]
        assert cost(grouped(rows, 300), 300) <= cost([*pays, (0, loose)], 300) + 1e-9


def test_a_budget_below_one_is_a_bug_of_the_caller() -> None:
    with pytest.raises(ValueError, match="batch_tokens=0"):
        plan([], 0)
    assert plan([], 1) == []


def test_what_is_unfinished_of_a_plan() -> None:
    whole = [(1, 2), (3,), (4, 5)]
    assert unfinished(whole, tuple, [1, 2, 3, 4, 5]) == whole
    assert unfinished(whole, tuple, [4, 5]) == [(4, 5)]
    assert unfinished(whole, tuple, []) == []
    assert unfinished(whole, tuple, [2, 4, 5]) is None


def test_growing_questions_are_together_with_what_begins_alike() -> None:
    rows = [
        Request((trial, *range(40), *range(n)), (label,))
        for n in (3, 9) for trial in range(5) for label in range(4)
    ]  # fmt: skip
    batches = plan_growing([*rows, *rows], 64)
    assert batches == plan_growing(rows[::-1], 64)
    assert [row for batch in batches for row in batch.requests] == sorted(
        rows, key=lambda row: (row.context, row.continuation)
    )
    assert {(batch.prefix, batch.growing) for batch in batches} == {((), True)}
    for batch in batches:
        longest = max(row.length for row in batch.requests)
        assert len(batch.requests) * longest <= MAX_PREFIX_SHARE * 64
    assert [len(plan_growing(rows, n)) for n in (1, 10**4)] == [40, 1]
    assert plan_growing([], 64) == []
