"""Standard output and standard error, which can be closed, full, or left by whoever read them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from unseen.errors import StoreError

_OUT, _ERR = 1, 2


def hold() -> None:
    """Puts guards before both streams.

    Raises:
        StoreError: where standard output is closed, before anything is begun for nothing.
    """
    closed = sys.stdout is None
    # The next file that is opened would take the free number, and get what is printed.
    if closed:
        sys.stdout = _nowhere(_OUT)
    sys.stderr = _Lossy(_nowhere(_ERR) if sys.stderr is None else sys.stderr)
    if closed:
        raise StoreError(
            "standard output is closed, so results cannot be printed",
            fix="let it go somewhere: unseen … > results.txt",
        )
    sys.stdout = _Guarded(sys.stdout)


def let_go() -> None:
    """Writes out what is left, or drops it where that fails: Python would end with a traceback."""
    for stream, number in ((sys.stdout, _OUT), (sys.stderr, _ERR)):
        try:
            stream.flush()
        except (OSError, StoreError):
            drop(number)


def drop(number: int = _OUT) -> None:
    """Sends what is still written to a stream nowhere."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def _nowhere(number: int) -> Any:
    handle = os.open(os.devnull, os.O_WRONLY)
    if handle != number:
        os.dup2(handle, number)
        os.close(handle)
    return os.fdopen(number, "w", encoding="utf-8", errors="replace", closefd=False)


class _Stream:
    """A text stream, with its own way to fail; the rest is that of the stream within."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        # A terminal that knows few characters shows an escape, instead of ending an audit.
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Guarded(_Stream):
    """Says in one sentence why results cannot be printed."""

    def write(self, text: str) -> int:
        with _explained():
            return int(self._stream.write(text))

    def flush(self) -> None:
        with _explained():
            self._stream.flush()


class _Lossy(_Stream):
    """Loses notes and progress that cannot be printed: they are no reason to stop."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            drop(_ERR)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        drop()
        raise StoreError(
            f"cannot write to standard output: {error.strerror}",
            fix="free some space, or let it go elsewhere: unseen … > /path/with/space/results.txt",
        ) from error
