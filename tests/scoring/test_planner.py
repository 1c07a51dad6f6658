import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unseen.scoring.planner import MAX_PREFIX_SHARE, MIN_PREFIX, distinct, plan
from unseen.types import Request

PREFIXES = [(), *(tuple(range(n, 2 * n)) for n in (MIN_PREFIX - 1, MIN_PREFIX, 40))]


def made(number: int) -> Request:
    """One of some hundreds of requests; several numbers stand for equal ones."""
    number, prefix = divmod(number, len(PREFIXES))
    number, n_context = divmod(number, 3)
    number, n_continuation = divmod(number, 8)
    token, kind = divmod(number, 3)
    context = PREFIXES[prefix] + (token,) * (1 + n_context)
    shared = (0, len(PREFIXES[prefix]), len(context))[kind]
    return Request(context, (token,) * (1 + n_continuation), shared=shared)


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


def test_rows_with_one_prefix_share_a_batch() -> None:
    prefix = tuple(range(50))
    rows = [Request((*prefix, 7), (i, i), shared=50) for i in range(4)]
    (batch,) = plan(rows, 1000)
    assert batch.prefix == prefix
    assert set(batch.requests) == set(rows)


def test_a_prefix_that_only_one_row_has_is_not_read_apart() -> None:
    lone = Request(tuple(range(50)), (1,), shared=50)
    other = Request((9,), (1,))
    (batch,) = plan([lone, other], 1000)
    assert batch.prefix == ()
    assert batch.requests == (lone, other)


@pytest.mark.parametrize(("shared", "expected"), [(MIN_PREFIX - 1, 0), (MIN_PREFIX, MIN_PREFIX)])
def test_short_prefixes_are_not_worth_it(shared: int, expected: Any) -> None:
    context = tuple(range(shared + 1))
    rows = [Request(context, (i,), shared=shared) for i in range(2)]
    assert [len(batch.prefix) for batch in plan(rows, 1000)] == [expected]


def test_long_prefixes_bound_the_rows_of_a_batch() -> None:
    prefix = tuple(range(1000))
    rows = [Request((*prefix, 0), (i,), shared=1000) for i in range(60)]
    sizes = [len(batch.requests) for batch in plan(rows, 200)]
    assert sizes == [1, *([1] * 59)]
    assert max(len(batch.requests) for batch in plan(rows, 2000)) == 15


@given(MANY)
def test_of_equal_requests_the_one_that_shares_most_is_kept(rows: list[Request]) -> None:
    kept = distinct(rows)
    assert set(kept) == set(rows)
    assert len(kept) == len(set(rows))
    for row in kept:
        assert row.shared == max(other.shared for other in rows if other == row)


def test_a_budget_below_one_is_a_bug_of_the_caller() -> None:
    with pytest.raises(ValueError, match="batch_tokens=0"):
        plan([], 0)
    assert plan([], 1) == []
