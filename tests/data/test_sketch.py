"""Sketches find common records in sets, and know none of them."""

import base64
import hashlib
import json

import numpy as np
import pytest

from unseen.data.duplicates import normalised
from unseen.data.sketch import BUCKETS, is_sketch, shared, sketch


def texts(first: int, n: int) -> list[str]:
    return [f"Record {i} says that {i * 7919} was paid." for i in range(first, first + n)]


def slow(one: list[str], other: list[str]) -> tuple[int, float]:
    """Pairs of texts in one bucket, counted one by one, and how many chance alone gives."""

    def bucket(text: str) -> int:
        return int(hashlib.blake2b(text.encode(), digest_size=8).hexdigest(), 16) % BUCKETS

    sets = [{normalised(text) for text in side} for side in (one, other)]
    pairs = sum(bucket(a) == bucket(b) for a in sets[0] for b in sets[1])
    return pairs, len(sets[0]) * len(sets[1]) / BUCKETS


@pytest.mark.parametrize("n", [40, 300, 3000])
def test_order_form_and_repetition_do_not_matter_and_a_part_is_found(n: int) -> None:
    mine = texts(0, n)
    again = [f"  {text.upper()} " for text in reversed(mine)] + mine[:5]
    assert sketch(again) == sketch(mine)
    part = mine[: n // 2] + texts(10**6, n // 2)
    assert shared(sketch(mine), sketch(part)) == pytest.approx(n // 2, abs=0.2 * n)
    if n == 300:
        pairs, expected = slow(mine, part)
        assert shared(sketch(mine), sketch(part)) == round(pairs - expected)


@pytest.mark.parametrize(("n", "m"), [(20, 20), (80, 2000), (500, 500), (20_000, 100)])
def test_sets_with_nothing_in_common_are_let_pass(n: int, m: int) -> None:
    found = [shared(sketch(texts(10**6 * i, n)), sketch(texts(10**8 + i * m, m))) for i in range(8)]
    assert not any(found)


def test_a_guess_is_no_proof() -> None:
    held = set(texts(0, 1000))
    counts = np.frombuffer(base64.b64decode(sketch(held)), dtype="<u2")
    assert counts.sum() == 1000
    assert (counts > 0).mean() > 0.2  # so many of all texts that are not there would fit as well


def test_what_is_no_sketch() -> None:
    good = sketch(texts(0, 3))
    assert is_sketch(good)
    assert not any(map(is_sketch, ("", good[:-4], "é", json.dumps([1]))))
    assert shared(sketch([]), good) == 0
