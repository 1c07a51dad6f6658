from collections.abc import Iterable

import numpy as np
import pytest

from unseen.scoring.parts import in_parts
from unseen.targets.prefixes import n_distinct

PROMPT = tuple(range(20))
ALIKE = [[(*PROMPT, i, i), (*PROMPT, i, i + 1)] for i in range(9)]


def texts_of(one: list[tuple[int, ...]]) -> Iterable[tuple[int, ...]]:
    return one


def test_distinct_ids_are_those_of_all_beginnings() -> None:
    rng = np.random.default_rng(0)
    for n in (0, 1, 40):
        texts = [tuple(rng.integers(3, size=rng.integers(1, 9)).tolist()) for _ in range(n)]
        beginnings = {ids[:k] for ids in texts for k in range(1, len(ids) + 1)}
        assert n_distinct([*texts, *texts]) == len(beginnings)


@pytest.mark.parametrize("room", [1, 23, 26, 30, 47, 10**6])
def test_parts_fit_and_are_all_there_in_order(room: int) -> None:
    parts = in_parts(ALIKE, room, texts_of)
    assert [one for part in parts for one in part] == ALIKE
    for part in parts:
        assert len(part) == 1 or n_distinct(ids for one in part for ids in one) <= room
    assert len(parts) < 9 or room < 26
    assert len(parts) == 1 or room < 47


def test_what_gains_nothing_is_one_part() -> None:
    apart = [[(i, *PROMPT)] for i in range(9)]
    assert in_parts(apart, 30, texts_of) == [apart]
    assert in_parts(ALIKE, 0, texts_of) == [ALIKE]
    assert in_parts([], 30, texts_of) == [[]]
    assert in_parts(ALIKE[:1], 1, texts_of) == [ALIKE[:1]]
