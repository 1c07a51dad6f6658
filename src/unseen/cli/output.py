"""Where things are printed: results to stdout, progress and everything else to stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from unseen.errors import visible

if TYPE_CHECKING:
    from unseen.errors import UnseenError
    from unseen.runs.collect import Progress

_EVERY = 10.0


def out() -> Console:
    """Results."""
    # A table is cut to the terminal's width, but a pipe or a file has none.
    return Console(soft_wrap=False, width=None if sys.stdout.isatty() else 140, highlight=False)


def err() -> Console:
    """Progress, notes and errors."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def show_error(error: UnseenError) -> None:
    """One message: what is wrong, and what to do."""
    console = err()
    console.print(f"[bold red]error\\[{error.code}][/bold red]: ", end="")
    console.print(visible(error.problem), markup=False)
    if error.fix is not None:
        console.print(f"  {visible(error.fix, lines=True)}", markup=False)


def say(text: str) -> None:
    """A sentence that the user should know, to stderr."""
    err().print(visible(text), markup=False)


@contextmanager
def progress() -> Iterator[Progress]:
    """A bar on a terminal, a line now and then elsewhere."""
    console = err()
    if console.is_terminal:
        with _bars(console) as tell:
            yield tell
    else:
        yield _Lines(console)


@contextmanager
def _bars(console: Console) -> Iterator[Progress]:
    from rich import progress as bars

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TextColumn("{task.fields[speed]}"),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=console, transient=True) as display:
        tasks: dict[str, bars.TaskID] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = display.add_task(what, total=total, speed="")
            speed = display.tasks[tasks[what]].speed
            display.update(
                tasks[what],
                completed=done,
                total=total,
                speed="" if not speed else f"{speed:.1f}/s",
                visible=done < total,
            )

        yield tell


class _Lines:
    """A line at the beginning, at the end, and every few seconds between."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: dict[str, float] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        ended = done >= total
        if what in self._last and not ended and now - self._last[what] < _EVERY:
            return
        if ended and self._last.get(what) == float("inf"):
            return
        self._last[what] = float("inf") if ended else now
        self._console.print(f"{visible(what)} {done}/{total}", markup=False)
