import numpy as np
import pytest
import torch

from unseen.targets.prefixes import Prefixes, common

HEADS, WIDTH = 2, 3
A_TOKEN = (4 * HEADS * WIDTH + 2 * HEADS) * 4
"""Bytes of a token: four tensors of one shape, two of another, in single precision."""


def read(ids: tuple[int, ...], n: int) -> tuple[torch.Tensor, ...]:
    """What a model might keep of the last n ids: it depends on all ids up to each."""
    marks = [float(hash(ids[: i + 1]) % 2**20) for i in range(len(ids) - n, len(ids))]
    row = torch.tensor(marks)[None, None, :, None]
    return row.expand(4, HEADS, n, WIDTH), row.expand(2, HEADS, n, 1)


def texts(n: int, *, seed: int = 0) -> list[tuple[int, ...]]:
    """Texts of two ids, so that many begin alike."""
    rng = np.random.default_rng(seed)
    return [tuple(rng.integers(2, size=rng.integers(1, 12)).tolist()) for _ in range(n)]


def joined(memory: Prefixes, ids: tuple[int, ...]) -> list[torch.Tensor]:
    """What is known of a text, of one shape after another."""
    return [torch.cat(parts, dim=2) for parts in zip(*memory.pieces(ids), strict=True)]


def test_knows_what_a_set_of_all_prefixes_knows() -> None:
    memory, seen = Prefixes(10**9), {()}
    for ids in texts(200):
        known = max(n for n in range(len(ids) + 1) if ids[:n] in seen)
        assert memory.known(ids) == known
        if known < len(ids):
            # More than what is missing may be handed in, of what was read again.
            memory.add(ids, read(ids, min(len(ids), len(ids) - known + known % 3)))
        seen |= {ids[:n] for n in range(1, len(ids) + 1)}
        assert memory.n_bytes == (len(seen) - 1) * A_TOKEN
    for ids in texts(50, seed=1):
        known = memory.known(ids)
        for part, right in zip(joined(memory, ids[:known]), read(ids[:known], known), strict=True):
            torch.testing.assert_close(part, right, rtol=0, atol=0)


def test_what_does_not_join_on_is_not_kept() -> None:
    memory = Prefixes(10**9)
    memory.add((1, 2, 3), read((1, 2, 3), 2))
    assert (memory.n_bytes, memory.known((1, 2, 3))) == (0, 0)
    memory.add((1, 2, 3), read((1, 2, 3), 3))
    memory.add((1, 2), read((1, 2), 2))
    assert memory.n_bytes == 3 * A_TOKEN


def test_pieces_are_their_own_memory() -> None:
    memory = Prefixes(10**9)
    memory.add((1, 2, 3, 4), read((1, 2, 3, 4), 4))
    memory.add((1, 2, 5), read((1, 2, 5), 1))
    held = [
        part.untyped_storage().nbytes()
        for ids in ((1, 2, 3, 4), (1, 2, 5))
        for piece in memory.pieces(ids)[1:]
        for part in piece
    ]
    assert sum(held) == 3 * A_TOKEN


def test_ends_that_are_longest_unused_go_first() -> None:
    memory = Prefixes(8 * A_TOKEN)
    for ids in ((1, 2, 3, 4), (1, 2, 5, 6), (7, 8)):
        memory.add(ids, read(ids, len(ids)))
    memory.trim()
    assert memory.n_bytes == 8 * A_TOKEN
    memory.pieces((1, 2, 3))  # the whole end counts as used
    memory.add((9,), read((9,), 1))
    memory.trim()
    known = [memory.known(ids) for ids in ((1, 2, 3, 4), (1, 2, 5, 6), (7, 8), (9,))]
    assert known == [4, 2, 2, 1]
    memory.add((9, 1, 1, 1), read((9, 1, 1, 1), 3))
    memory.trim()
    known = [memory.known(ids) for ids in ((1, 2, 3, 4), (7, 8), (9, 1, 1, 1))]
    assert known == [4, 0, 4]
    memory.most_bytes = 5 * A_TOKEN
    memory.trim()
    assert (memory.known((1, 2, 3, 4)), memory.known((9, 1, 1, 1))) == (0, 4), (
        "then what was before it"
    )
    memory.most_bytes = 0
    memory.trim()
    assert memory.n_bytes == 0


@pytest.mark.parametrize("room", [1, 13, 40])
def test_stays_within_its_bounds_and_keeps_what_was_used_last(room: int) -> None:
    memory = Prefixes(room * A_TOKEN)
    for ids in texts(80):
        if memory.known(ids) < len(ids):
            memory.add(ids, read(ids, len(ids)))
        memory.pieces(ids)
        memory.trim()
        assert memory.n_bytes <= room * A_TOKEN
        known = memory.known(ids)
        assert known == len(ids) or room == 1
        if known:
            for part, right in zip(joined(memory, ids[:known]), read(ids, len(ids)), strict=True):
                torch.testing.assert_close(part, right[:, :, :known], rtol=0, atol=0)


def test_nothing_is_known_after_it_forgets() -> None:
    memory = Prefixes(10**9)
    memory.add((1, 2, 3), read((1, 2, 3), 3))
    memory.forget()
    assert (memory.n_bytes, memory.known((1, 2, 3))) == (0, 0)
    memory.add((1, 2), read((1, 2), 2))
    assert memory.known((1, 2, 3)) == 2


def test_common_beginnings() -> None:
    pairs = [((1, 2), (1, 2, 3)), ((1, 2, 4), (1, 2, 3)), ((), (1,)), ((2,), (1,))]
    assert [common(*pair) for pair in pairs] == [2, 2, 0, 0]
    assert [common(*pair[::-1]) for pair in pairs] == [2, 2, 0, 0]
