"""How fast an endpoint is asked: as fast as it lets us."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, Event


class Stopped(Exception):  # noqa: N818 (a way out, and no fault)
    """Others have ended the work that this request was a part of."""


class Pace:
    """Lets requests begin: some at once, fewer after the endpoint has complained, and none for a while.

    A complaint halves how many are under way at once, every answer lets it grow again by its share, so
    that a round of answers makes room for one more.

    Args:
        most: requests that are under way at once, at most.
        rpm: requests that begin in a minute, at most, evenly spread; None for as many as there are.
    """

    def __init__(self, most: int, rpm: float | None = None) -> None:
        self._most = most
        self._gap = 60 / rpm if rpm else 0.0
        self._allowed = float(most)
        self._under_way = 0
        self._from = 0.0
        self._changed = Condition()

    @property
    def allowed(self) -> int:
        """Requests that may be under way at once now."""
        return int(self._allowed)

    @contextmanager
    def turn(self, stop: Event) -> Iterator[None]:
        """Waits until one more may begin; it has ended where the context does.

        Raises:
            Stopped: where `stop` is set meanwhile.
        """
        with self._changed:
            while not stop.is_set():
                wait = self._from - time.monotonic()
                if wait <= 0 and self._under_way < self.allowed:
                    break
                # Whoever stops the work does not know of us: we look from time to time.
                self._changed.wait(min(max(wait, 0.0) or 0.1, 0.1))
            else:
                raise Stopped
            self._under_way += 1
            self._from = time.monotonic() + self._gap
        try:
            yield
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def slower(self, wait: float = 0.0) -> None:
        """After a complaint: fewer at once, and none before so many seconds have passed."""
        with self._changed:
            self._allowed = max(1.0, self._allowed / 2)
            self._from = max(self._from, time.monotonic() + wait)

    def faster(self) -> None:
        """After an answer."""
        with self._changed:
            self._allowed = min(float(self._most), self._allowed + 1 / self._allowed)
