"""Answers on disk: asked once, kept for good, and found by nothing but a key.

The key is a hash of the target's fingerprint (model, adapter, precision, access) and of the token
ids, so an answer can only be found by who already has the text. The value is raw little-endian
arrays with a checksum: no pickle, and of generated text the token ids, so that the file is as private
as the records. SQLite in WAL mode: a batch is one transaction, and a
process killed at any moment loses at most the batch in flight.
"""

from __future__ import annotations

import hashlib
import io
import sqlite3
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TypeVar

import numpy as np

from unseen.errors import StoreError
from unseen.targets.looks import Look, Seen
from unseen.types import FloatArray, IntArray, Passage, Prompt, Request, TokenStats

# Part of every key: raise it when the same request would get another answer, or when answers are
# written in another form. Those of other versions are then never found.
ANSWER_VERSION = 2
TEXT_VERSION = 1
"""The same for generated text."""
LOOK_VERSION = 1
"""The same for what is seen inside a model."""

_HEADER = struct.Struct("<BBI")
_CHECKSUM = struct.Struct("<I")
_PARTS = ("mean", "sd", "rank", "argmax")
_LOOKUP = 500

V = TypeVar("V")


def key_of(fingerprint: str, request: Request) -> bytes:
    """The key of a request to a target: 16 bytes."""
    digest = hashlib.blake2b(f"{ANSWER_VERSION}|{fingerprint}|".encode(), digest_size=16)
    digest.update(struct.pack("<I", len(request.context)))
    digest.update(np.array(request.context + request.continuation, dtype="<i8").tobytes())
    return digest.digest()


def key_of_prompt(fingerprint: str, prompt: Prompt) -> bytes:
    """The key of a prompt to a target: 16 bytes."""
    drawn = prompt.sampling
    about = [drawn.temperature, drawn.top_k, drawn.top_p, drawn.seed] if drawn.temperature else []
    how: list[object] = [prompt.max_new_tokens, prompt.number if about else 0, *about]
    how += [f"stop {prompt.stop}"] if prompt.stop else []
    how += ["one line"] if prompt.one_line else []
    how += [f"fewest {drawn.fewest}"] if drawn.fewest else []
    how += [f"beams {drawn.beams}"] if drawn.beams > 1 else []
    digest = hashlib.blake2b(f"text|{TEXT_VERSION}|{fingerprint}|{how}|".encode(), digest_size=16)
    digest.update(np.array(prompt.ids, dtype="<i8").tobytes())
    return digest.digest()


def key_of_look(fingerprint: str, look: Look, passage: Passage) -> bytes:
    """The key of a look at a passage, inside a target: 16 bytes."""
    about = f"look|{LOOK_VERSION}|{fingerprint}|{look.key}|{len(passage.ids)}|"
    digest = hashlib.blake2b(about.encode(), digest_size=16)
    digest.update(np.array(passage.ids + passage.places, dtype="<i8").tobytes())
    return digest.digest()


class Store:
    """Answers by key. Use it as a context manager, or close it.

    Args:
        path: the SQLite file, made with its folder where it is missing; None keeps everything in
            memory.

    Raises:
        StoreError: where the file cannot be made, opened, read or written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        with self._explained():
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                path.touch(mode=0o600)
            self._db = sqlite3.connect(":memory:" if path is None else path, timeout=60)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        self._db.close()

    def present(self, keys: Iterable[bytes]) -> set[bytes]:
        """Which of the keys have an answer."""
        return self._present("answers", keys)

    def present_texts(self, keys: Iterable[bytes]) -> set[bytes]:
        """Which of the keys of prompts have a text."""
        return self._present("texts", keys)

    def _present(self, table: str, keys: Iterable[bytes]) -> set[bytes]:
        found: set[bytes] = set()
        with self._explained():
            for part in _chunks(list(keys)):
                marks = ",".join("?" * len(part))
                rows = self._db.execute(f"SELECT key FROM {table} WHERE key IN ({marks})", part)  # noqa: S608
                found.update(row[0] for row in rows)
        return found

    def present_looks(self, keys: Iterable[bytes]) -> set[bytes]:
        """Which of the keys of looks have an answer."""
        return self._present("looks", keys)

    def get(self, key: bytes) -> TokenStats:
        """The answer of one key.

        Raises:
            StoreError: where there is none, or it is damaged.
        """
        return self._unpacked(self._value("answers", key), _unpack)

    def get_text(self, key: bytes) -> tuple[int, ...]:
        """The token ids of the text of one prompt.

        Raises:
            StoreError: where there is none, or it is damaged.
        """
        return self._unpacked(self._value("texts", key), _unpack_text)

    def get_look(self, key: bytes) -> dict[str, FloatArray]:
        """What was seen by one look.

        Raises:
            StoreError: where there is none, or it is damaged.
        """
        return self._unpacked(self._value("looks", key), _unpack_look)

    def _value(self, table: str, key: bytes) -> bytes:
        with self._explained():
            row = self._db.execute(f"SELECT value FROM {table} WHERE key = ?", (key,)).fetchone()  # noqa: S608
        if row is None:
            raise StoreError("an answer that was measured is not in the store any more")
        return bytes(row[0])

    def put(self, answers: Iterable[tuple[bytes, TokenStats]]) -> None:
        """Keeps answers, all or none of them."""
        rows = [(key, _pack(stats)) for key, stats in answers]
        with self._explained(), self._db:
            self._db.executemany(
                "INSERT INTO answers VALUES (?, ?, 1) ON CONFLICT (key) DO UPDATE "
                "SET value = excluded.value, times_scored = times_scored + 1",
                rows,
            )

    def put_texts(self, texts: Iterable[tuple[bytes, Sequence[int]]]) -> None:
        """Keeps the token ids of texts, all or none of them."""
        rows = [(key, _sealed(np.array(ids, dtype="<i4").tobytes())) for key, ids in texts]
        with self._explained(), self._db:
            self._db.executemany("INSERT OR REPLACE INTO texts VALUES (?, ?)", rows)

    def put_looks(self, looks: Iterable[tuple[bytes, Seen]]) -> None:
        """Keeps what was seen, all or none of it."""
        rows = [(key, _pack_look(seen)) for key, seen in looks]
        with self._explained(), self._db:
            self._db.executemany("INSERT OR REPLACE INTO looks VALUES (?, ?)", rows)

    def note(self, key: bytes) -> bytes | None:
        """What `keep_note` has kept under a key, or None.

        Raises:
            StoreError: where it is damaged.
        """
        with self._explained():
            row = self._db.execute("SELECT value FROM notes WHERE key = ?", (key,)).fetchone()
        return None if row is None else self._unpacked(bytes(row[0]), _opened)

    def keep_note(self, key: bytes, value: bytes) -> None:
        """Keeps something that is no answer; who keeps it sees to it that nobody else can read it."""
        with self._explained(), self._db:
            self._db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (key, _sealed(value)))

    def count(self) -> tuple[int, int]:
        """How many answers there are, and how often one was scored at most."""
        with self._explained():
            n, most = self._db.execute("SELECT COUNT(*), MAX(times_scored) FROM answers").fetchone()
        return int(n), int(most or 0)

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS answers "
            "(key BLOB PRIMARY KEY, value BLOB NOT NULL, times_scored INTEGER NOT NULL) "
            "WITHOUT ROWID"
        )
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS texts (key BLOB PRIMARY KEY, value BLOB NOT NULL) "
            "WITHOUT ROWID"
        )
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS looks (key BLOB PRIMARY KEY, value BLOB NOT NULL) "
            "WITHOUT ROWID"
        )
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS notes (key BLOB PRIMARY KEY, value BLOB NOT NULL)"
        )
        self._db.commit()

    def _unpacked(self, blob: bytes, unpack: Callable[[bytes], V]) -> V:
        try:
            return unpack(blob)
        except (ValueError, struct.error) as error:
            raise StoreError(
                f"the store {self.path} is damaged: {error}", fix="delete the file and run again"
            ) from error

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "full" in str(error):
                raise StoreError(
                    f"the disk is full: {self.path} cannot grow",
                    fix="free some space and run the same command: what was measured is kept",
                ) from error
            raise StoreError(
                f"the store {self.path} cannot be used: {error}",
                fix="choose another folder with --cache-dir, or keep nothing with --no-cache",
            ) from error
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"{self.path} is not a store of answers, or it is damaged: {error}",
                fix="delete the file, or choose another folder with --cache-dir",
            ) from error
        except OSError as error:
            raise StoreError(
                f"the store {self.path} cannot be made: {error.strerror}",
                fix="choose another folder with --cache-dir, or keep nothing with --no-cache",
            ) from error


def _pack(stats: TokenStats) -> bytes:
    size = 8 if stats.logprob.dtype == np.float64 else 4
    given = [getattr(stats, part) for part in _PARTS]
    flags = sum(1 << i for i, part in enumerate(given) if part is not None)
    arrays = [stats.logprob.astype(f"<f{size}")]
    arrays += [
        part.astype(f"<f{size}" if name in ("mean", "sd") else "<i4")
        for name, part in zip(_PARTS, given, strict=True)
        if part is not None
    ]
    body = b"".join(array.tobytes() for array in arrays)
    return _sealed(_HEADER.pack(size, flags, len(stats.logprob)) + body)


def _sealed(content: bytes) -> bytes:
    """The content after its checksum."""
    return _CHECKSUM.pack(zlib.crc32(content)) + content


def _opened(blob: bytes) -> bytes:
    """What was sealed.

    Raises:
        ValueError: where it is not as it was.
    """
    (checksum,) = _CHECKSUM.unpack_from(blob)
    if zlib.crc32(blob[_CHECKSUM.size :]) != checksum:
        msg = "an answer does not have its checksum"
        raise ValueError(msg)
    return blob[_CHECKSUM.size :]


def _unpack_text(blob: bytes) -> tuple[int, ...]:
    return tuple(np.frombuffer(_opened(blob), "<i4").tolist())


def _pack_look(seen: Seen) -> bytes:
    file = io.BytesIO()
    np.savez(file, **dict(seen))  # type: ignore[arg-type]
    return _sealed(file.getvalue())


def _unpack_look(blob: bytes) -> dict[str, FloatArray]:
    try:
        with np.load(io.BytesIO(_opened(blob)), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except zipfile.BadZipFile as error:
        raise ValueError(error) from error


def _unpack(blob: bytes) -> TokenStats:
    content = _opened(blob)
    size, flags, n = _HEADER.unpack_from(content)
    body = content[_HEADER.size :]
    offset = 0

    def floats() -> FloatArray:
        nonlocal offset
        array = np.frombuffer(body, f"<f{size}", n, offset)
        offset += n * size
        return array

    def integers() -> IntArray:
        nonlocal offset
        array = np.frombuffer(body, "<i4", n, offset)
        offset += n * 4
        return array

    return TokenStats(
        logprob=floats(),
        mean=floats() if flags & 1 else None,
        sd=floats() if flags & 2 else None,
        rank=integers() if flags & 4 else None,
        argmax=integers() if flags & 8 else None,
    )


def _chunks(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(keys), _LOOKUP):
        yield keys[start : start + _LOOKUP]
