"""Records that are set aside, and that they are never judged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unseen.data.duplicates import normalised
from unseen.data.records import Records
from unseen.data.split import JUDGED_PER_KNOWN, set_aside
from unseen.errors import ConfigError


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def plain(members: int, nonmembers: int) -> Records:
    return Records.from_texts(
        [f"m{i}" for i in range(members)], [f"n{i}" for i in range(nonmembers)]
    )


def test_so_many_of_each_side() -> None:
    records = plain(50, 40)
    split = set_aside(records, members=7, nonmembers=8, rng=rng())
    assert (len(split.known.members), len(split.known.nonmembers)) == (7, 8)
    assert (len(split.audited.members), len(split.audited.nonmembers)) == (43, 32)
    assert set(split.known.ids) | set(split.audited.ids) == set(records.ids)
    assert not set(split.known.ids) & set(split.audited.ids)
    assert split.reasons == ()


def test_the_generator_decides() -> None:
    records = plain(50, 50)
    one, same, other = (set_aside(records, members=5, nonmembers=5, rng=rng(s)) for s in (1, 1, 2))
    assert one.known.ids == same.known.ids != other.known.ids


def test_four_judged_for_each_known() -> None:
    split = set_aside(plain(49, 50), members=10, nonmembers=10, rng=rng())
    assert (len(split.known.members), len(split.known.nonmembers)) == (0, 10)
    assert split.reasons == ("no members set aside: there are 49, and to set 10 aside takes 50",)
    assert len(split.audited.members) == 49


def test_nothing_asked_for() -> None:
    records = plain(3, 3)
    split = set_aside(records, members=0, nonmembers=0, rng=rng())
    assert split.audited.ids == records.ids
    assert len(split.known) == 0
    assert split.reasons == ()


@pytest.mark.parametrize(
    "counts", [{"members": -1, "nonmembers": 0}, {"members": 0, "nonmembers": -1}]
)
def test_negative_counts(counts: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="expected 0 or more"):
        set_aside(plain(9, 9), **counts, rng=rng())


def test_large_clusters_leave_a_reason() -> None:
    rows = [{"text": f"m{i}", "user": str(i // 20)} for i in range(100)]
    records = Records.from_texts(rows, [f"n{i}" for i in range(100)], cluster_by=None)
    assert set_aside(records, members=10, nonmembers=0, rng=rng()).reasons == ()
    others = [{"text": f"n{i}", "user": f"x{i}"} for i in range(100)]
    clustered = Records.from_texts(rows, others, cluster_by="user")
    split = set_aside(clustered, members=10, nonmembers=10, rng=rng())
    assert (len(split.known.members), len(split.known.nonmembers)) == (0, 10)
    assert split.reasons == ("0 of 10 members set aside: no more without splitting a cluster",)


@settings(max_examples=80, deadline=None)
@given(
    clusters=st.lists(st.integers(0, 12), min_size=2, max_size=60),
    texts=st.integers(3, 80),
    members=st.integers(0, 12),
    nonmembers=st.integers(0, 12),
    seed=st.integers(0, 5),
)
def test_clusters_and_equal_texts_stay_together(
    clusters: list[int], texts: int, members: int, nonmembers: int, seed: int
) -> None:
    rows: list[dict[str, Any]] = [
        {"text": f"Text {i % texts}", "user": None if c == 12 else str(c)}
        for i, c in enumerate(clusters)
    ]
    half = len(rows) // 2
    records = Records.from_texts(
        rows[:half], [*rows[half:], {"text": "z", "user": "z"}], cluster_by="user"
    )
    split = set_aside(records, members=members, nonmembers=nonmembers, rng=rng(seed))
    for of in (lambda r: r.cluster, lambda r: normalised(r.text)):
        known = {of(r) for r in split.known.records} - {None}
        assert not known & {of(r) for r in split.audited.records}
    for known_side, audited_side, wanted in (
        (split.known.members, split.audited.members, members),
        (split.known.nonmembers, split.audited.nonmembers, nonmembers),
    ):
        assert len(known_side) <= wanted
        assert len(audited_side) >= JUDGED_PER_KNOWN * len(known_side)
    missing = (members > len(split.known.members)) + (nonmembers > len(split.known.nonmembers))
    assert len(split.reasons) == missing
