"""What is asked of endpoints, where every request may cost money: one budget for all attempts of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from unseen.errors import BudgetError
from unseen.scoring.generation import EachAlone, Generation
from unseen.targets.endpoint import dollars
from unseen.targets.openai_compatible import OpenAITarget

if TYPE_CHECKING:
    from unseen.runs.collect import Model
    from unseen.runs.folder import RunFolder
    from unseen.scoring.store import Store
    from unseen.types import Prompt

_ATTEMPT = "endpoint"
"""Where an attempt in run.json says what endpoints were asked in it."""

_OF_CHECKS = 8
"""The most that a preflight asks an endpoint."""


def together(targets: Iterable[object]) -> None:
    """Lets all endpoints among the targets count together, so that one budget holds for all."""
    endpoints = [target for target in targets if isinstance(target, OpenAITarget)]
    for other in endpoints[1:]:
        other.count_with(endpoints[0])


def endpoint_of(models: Mapping[str, Model]) -> OpenAITarget | None:
    """One of the endpoints, which has the count of all; None where there is none."""
    targets = (model.target for model in models.values())
    return next((target for target in targets if isinstance(target, OpenAITarget)), None)


@contextmanager
def counting(
    models: Mapping[str, Model], folder: RunFolder, about: dict[str, Any]
) -> Iterator[None]:
    """As long as the context lasts, what endpoints are asked is counted beside earlier attempts.

    Args:
        models: role -> model.
        folder: the run folder.
        about: its header, run.json, which keeps the counts, however this attempt ends.
    """
    endpoint = endpoint_of(models)
    if endpoint is None:
        yield
        return
    earlier = [attempt.get(_ATTEMPT, {}) for attempt in about["attempts"][:-1]]
    counts = endpoint.counts
    counts.before, counts.read_before, counts.written_before = (
        sum(one.get(name, 0) for one in earlier) for name in ("requests", "read", "written")
    )
    try:
        yield
    finally:
        about["attempts"][-1][_ATTEMPT] = endpoint.counts.facts()
        folder.write_json("run.json", about)


def left_to_send(
    models: Mapping[str, Model], asked: Iterable[Mapping[str, Sequence[Prompt]]], store: Store
) -> int:
    """Requests to endpoints that are left, at least: more follow from answers, and after faults.

    Args:
        models: role -> model.
        asked: role -> what it is to write first, of some sets of records.
        store: where answers are.
    """
    of_role: dict[str, list[Prompt]] = {}
    for of_set in asked:
        for role, prompts in of_set.items():
            of_role.setdefault(role, []).extend(prompts)
    left = 0
    for role, prompts in of_role.items():
        target = models[role].target
        if isinstance(target, EachAlone):
            _, todo = Generation(target, store).remaining(prompts)
            left += sum(len(sheet.prompts) for sheet in todo)
    return left


def enough(endpoint: OpenAITarget, left: int) -> int:
    """A --max-requests that the same command needs no more of, as long as nothing is sent again.

    A start asks questions of its own before any record is sent, and the next asks them anew.

    Args:
        endpoint: which has counted what was sent.
        left: requests about records that are left to send.
    """
    return endpoint.counts.total + endpoint.counts.requests + _OF_CHECKS + left


def check_budget(
    models: Mapping[str, Model], asked: Iterable[Mapping[str, Sequence[Prompt]]], store: Store
) -> None:
    """Refuses what would be more than may be sent, before any of it is.

    Args:
        models: role -> model.
        asked: as of `left_to_send`.
        store: where answers are.

    Raises:
        BudgetError: with what would be enough.
    """
    endpoint = endpoint_of(models)
    if endpoint is None or endpoint.max_requests is None:
        return
    n_left = left_to_send(models, asked, store)
    needed = endpoint.counts.total + n_left
    if needed > endpoint.max_requests:
        raise BudgetError(
            f"{n_left:,} requests are left to send at least, {endpoint.counts.total:,} were sent, and "
            f"--max-requests allows {endpoint.max_requests:,}: no record was sent",
            fix=f"--max-requests {enough(endpoint, n_left)} or more, --limit N, or fewer --attacks",
        )


def in_a_line(models: Mapping[str, Model]) -> str | None:
    """What was asked of endpoints, for a terminal; None where there is none."""
    endpoint = endpoint_of(models)
    if endpoint is None:
        return None
    counts = endpoint.counts
    parts = [f"{counts.requests:,} requests"]
    parts += [f"{counts.again:,} of them sent again"] if counts.again else []
    if counts.read or counts.written:
        parts.append(f"{counts.read:,} tokens read and {counts.written:,} written, as it says")
    cost = endpoint.endpoint.cost
    parts += [] if cost is None else [f"{dollars(cost)}, of all attempts"]
    parts += [f"{counts.empty:,} empty answers"] if counts.empty else []
    parts += [f"{n:,} without an answer: {why}" for why, n in sorted(counts.withheld.items())]
    return f"{endpoint.endpoint.url}: {'; '.join(parts)}"
