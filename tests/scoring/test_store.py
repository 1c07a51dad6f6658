import dataclasses
import os
import sqlite3
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unseen.errors import StoreError
from unseen.scoring import store as store_module
from unseen.scoring.store import Store, key_of
from unseen.types import Request, TokenStats

PRIVATE = "Mina Okafor of Harrow Lane owes 412.70"
REQUEST = Request(tuple(PRIVATE[:10].encode()), tuple(PRIVATE[10:].encode()))


def stats(n: int = 5, dtype: Any = np.float32, *, seed: int = 0) -> TokenStats:
    rng = np.random.default_rng(seed)
    return TokenStats(
        logprob=-rng.exponential(size=n).astype(dtype),
        mean=-rng.exponential(size=n).astype(dtype),
        sd=rng.exponential(size=n).astype(dtype),
        rank=rng.integers(0, 100_000, size=n).astype(np.int32),
        argmax=rng.integers(0, 100_000, size=n).astype(np.int32),
    )


def assert_same(one: TokenStats, other: TokenStats) -> None:
    for part in dataclasses.fields(TokenStats):
        a, b = getattr(one, part.name), getattr(other, part.name)
        if a is None:
            assert b is None
        else:
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def skip_where_writable(path: Path) -> None:
    if os.access(path, os.W_OK):
        pytest.skip("permissions do not bind root")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "answers.sqlite"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [0, 1, 7])
def test_what_comes_back_is_what_was_kept(path: Path, dtype: Any, n: int) -> None:
    kept = stats(n, dtype)
    with Store(path) as store:
        store.put([(key(1), kept)])
        assert_same(store.get(key(1)), kept)
    with Store(path) as store:
        assert_same(store.get(key(1)), kept)


@pytest.mark.parametrize("missing", ["mean", "sd", "rank", "argmax", ("mean", "rank"), "all"])
def test_parts_that_a_target_does_not_give_stay_none(missing: Any) -> None:
    names = ("mean", "sd", "rank", "argmax") if missing == "all" else missing
    names = (names,) if isinstance(names, str) else names
    kept = dataclasses.replace(stats(), **dict.fromkeys(names))
    with Store() as store:
        store.put([(key(1), kept)])
        assert_same(store.get(key(1)), kept)


def test_infinite_and_undefined_numbers_survive() -> None:
    kept = TokenStats(np.array([-np.inf, np.nan, -0.0], np.float32))
    with Store() as store:
        store.put([(key(1), kept)])
        assert store.get(key(1)).logprob.tobytes() == kept.logprob.tobytes()


def test_wide_integers_and_strided_arrays_are_kept() -> None:
    kept = TokenStats(
        logprob=np.arange(10.0)[::2],
        rank=np.arange(10, dtype=np.int64)[::2],
    )
    with Store() as store:
        store.put([(key(1), kept)])
        assert store.get(key(1)).logprob.tolist() == [0, 2, 4, 6, 8]
        assert store.get(key(1)).rank.tolist() == [0, 2, 4, 6, 8]


def test_the_key_tells_apart_what_gives_other_answers() -> None:
    requests = [
        Request((1, 2), (3, 4)),
        Request((1,), (2, 3, 4)),
        Request((1, 2, 3), (4,)),
        Request((1, 2), (3, 5)),
        Request((1, 2), (3,)),
        Request((2, 2), (3, 4)),
        Request((1, 2), (3, 4 + 2**32)),
    ]
    keys = [key_of(model, row) for row in requests for model in ("a", "b")]
    assert len(set(keys)) == len(keys)
    assert {len(one) for one in keys} == {16}


def test_answers_of_another_version_are_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with Store() as store:
        monkeypatch.setattr(store_module, "ANSWER_VERSION", store_module.ANSWER_VERSION - 1)
        store.put([(key_of("model", REQUEST), stats())])
        monkeypatch.undo()
        assert store.present([key_of("model", REQUEST)]) == set()


def test_many_keys_are_looked_up() -> None:
    keys = [key(i) for i in range(1201)]
    with Store() as store:
        store.put((one, stats(1)) for one in keys[::3])
        assert store.present(keys) == set(keys[::3])
        assert store.present([]) == set()


def test_counts_how_often_an_answer_was_scored(path: Path) -> None:
    with Store(path) as store:
        assert store.count() == (0, 0)
        store.put([(key(1), stats()), (key(2), stats())])
        assert store.count() == (2, 1)
        store.put([(key(1), stats(seed=1))])
        assert store.count() == (2, 2)
        assert_same(store.get(key(1)), stats(seed=1))


def test_an_answer_that_is_not_there_is_an_error() -> None:
    with Store() as store, pytest.raises(StoreError, match="not in the store any more"):
        store.get(key(1))


def test_every_damaged_byte_of_an_answer_is_noticed(path: Path) -> None:
    with Store(path) as store:
        store.put([(key(1), stats(3))])
        (whole,) = store._db.execute("SELECT value FROM answers").fetchone()
        damaged = [whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :] for i in range(len(whole))]
        cut = [whole[:i] for i in range(len(whole))]
        for blob in (*damaged, *cut, whole + b"\0"):
            store._db.execute("UPDATE answers SET value = ?", (blob,))
            with pytest.raises(StoreError, match=r"damaged") as raised:
                store.get(key(1))
            assert str(path) in str(raised.value)
            assert "delete the file" in str(raised.value)


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"my thesis " * 1000)
    with pytest.raises(StoreError, match="is not a store of answers"):
        Store(path)
    assert path.read_bytes() == b"my thesis " * 1000


def test_a_folder_in_the_files_place_is_refused(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot be used"):
        Store(path)


def test_a_file_in_the_folders_place_is_refused(path: Path) -> None:
    path.parent.write_text("")
    with pytest.raises(StoreError, match="cannot be made") as raised:
        Store(path)
    assert "--cache-dir" in str(raised.value)


def test_a_folder_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    skip_where_writable(tmp_path)
    with pytest.raises(StoreError, match="cannot be made") as raised:
        Store(tmp_path / "cache" / "answers.sqlite")
    assert "--no-cache" in str(raised.value)


def test_a_file_that_cannot_be_written_can_still_be_read(path: Path) -> None:
    with Store(path) as store:
        store.put([(key(1), stats())])
    path.chmod(0o400)
    skip_where_writable(path)
    with Store(path) as store:
        assert_same(store.get(key(1)), stats())
        with pytest.raises(StoreError, match="cannot be used") as raised:
            store.put([(key(2), stats())])
    assert "--cache-dir" in str(raised.value)


def test_a_full_disk_is_said_and_loses_nothing(path: Path) -> None:
    with Store(path) as store:
        store.put([(key(1), stats(10))])
        (pages,) = store._db.execute("PRAGMA page_count").fetchone()
        store._db.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(StoreError, match="the disk is full") as raised:
            store.put((key(i), stats(500)) for i in range(2, 50))
        assert "what was measured is kept" in str(raised.value)
        assert store.count() == (1, 1)
    with Store(path) as store:
        assert_same(store.get(key(1)), stats(10))
        store.put((key(i), stats(500)) for i in range(2, 50))
        assert store.count() == (49, 1)


def test_answers_are_kept_all_or_none() -> None:
    def fails() -> Iterator[tuple[bytes, TokenStats]]:
        yield key(1), stats()
        msg = "in the middle"
        raise RuntimeError(msg)

    with Store() as store:
        with pytest.raises(RuntimeError):
            store.put(fails())
        assert store.count() == (0, 0)


def test_the_file_holds_no_text_and_nothing_pickled(path: Path) -> None:
    with Store(path) as store:
        store.put([(key_of("model", REQUEST), stats())])
    raw = b"".join(file.read_bytes() for file in path.parent.iterdir())
    for word in PRIVATE.split():
        assert word.encode() not in raw
    assert np.array(REQUEST.continuation, "<i8").tobytes() not in raw
    assert np.array(REQUEST.continuation, "<i4").tobytes() not in raw
    assert b"numpy" not in raw
    assert b"\x80\x04\x95" not in raw


def test_only_its_user_may_read_the_file(path: Path) -> None:
    with Store(path) as store:
        store.put([(key(1), stats())])
        modes = {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_two_open_stores_see_each_others_answers(path: Path) -> None:
    with Store(path) as one, Store(path) as other:
        one.put([(key(1), stats(seed=1))])
        other.put([(key(2), stats(seed=2))])
        assert one.present([key(1), key(2)]) == {key(1), key(2)}
        assert_same(other.get(key(1)), stats(seed=1))


def test_a_store_of_something_else_is_not_written(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE answers (question TEXT)")
    db.close()
    with Store(path) as store, pytest.raises(StoreError, match="cannot be used"):
        store.put([(key(1), stats())])


def test_a_killed_process_loses_at_most_the_batch_in_flight(path: Path) -> None:
    program = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        import numpy as np
        from unseen.scoring.store import Store
        from unseen.types import TokenStats
        store = Store(Path({str(path)!r}))
        for i in range(10**9):
            store.put([(j.to_bytes(16, "big"), TokenStats(np.full(50, i, np.float32)))
                       for j in (2 * i, 2 * i + 1)])
            print(i, flush=True)
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        lines = [int(process.stdout.readline()) for _ in range(50)]
        process.kill()
        lines += [int(line) for line in process.stdout.read().split()]
    with Store(path) as store:
        n, most = store.count()
        assert n % 2 == 0
        assert 2 * len(lines) <= n <= 2 * len(lines) + 2
        assert most == 1
        for i in range(n):
            assert store.get(key(i)).logprob.tolist() == [i // 2] * 50
