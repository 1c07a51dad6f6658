"""Measure: every signal once, all requests of one model together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from unseen.errors import AccessError, UnscorableError
from unseen.scoring.engine import Engine
from unseen.scoring.store import Store
from unseen.signals.base import (
    TARGET,
    Ask,
    Encoder,
    FollowingSignal,
    LikelihoodSignal,
    Materials,
    Observations,
    Signal,
    TextSignal,
)
from unseen.signals.retrieval import Pool
from unseen.signals.text import SameText
from unseen.targets.access import Access, LogprobTarget
from unseen.types import Record, Request

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


@dataclass(frozen=True)
class Model:
    """A model in one role: who is asked, and how records become its token ids."""

    target: LogprobTarget
    encoder: Encoder


@dataclass
class Cost:
    """What measuring took, by role."""

    requests: dict[str, int] = field(default_factory=dict)
    scored: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)


def collect(
    signals: Iterable[Signal],
    records: Sequence[Record],
    models: dict[str, Model],
    *,
    store: Store,
    known_members: tuple[Record, ...] = (),
    known_nonmembers: tuple[Record, ...] = (),
    pool: Pool | None = None,
    batch_tokens: int | None = None,
    progress: Progress | None = None,
) -> tuple[Observations, Cost]:
    """Measures signals of records.

    Args:
        signals: what the attacks need; equal ones are measured once. Where another model than
            the target is asked too, it is also measured whether both read the same text.
        records: whom to measure.
        models: role -> model.
        store: where answers are kept and found again.
        known_members: records that are not judged, for prefixes.
        known_nonmembers: the same of the other side.
        pool: demonstrations of others.
        batch_tokens: padded tokens a batch; None leaves it to the target.
        progress: told how far it is.

    Returns:
        The observations of all records, and what they cost.

    Raises:
        AccessError: where a signal asks a role that there is no model for, or a model that gives
            no log-probabilities. Nothing has been asked yet then.
    """
    wanted = _wanted(signals, models)
    values: dict[Signal, dict[str, Any]] = {signal: {} for signal in wanted}
    missing: dict[Signal, dict[str, str]] = {signal: {} for signal in wanted}
    cost = Cost()
    shown = _Shown(known_members, known_nonmembers, pool)
    for role, model in models.items():
        of_role, materials = _of_role(role, wanted, models, shown)
        engine = Engine(model.target, store, batch_tokens=batch_tokens)
        tell = _telling(progress, role)
        for signal, id_, value in (
            *_read_texts(of_role, records, materials),
            *_ask_model(of_role, records, materials, engine, tell),
        ):
            if isinstance(value, UnscorableError):
                missing[signal][id_] = value.problem
            else:
                values[signal][id_] = value
        cost.requests[role] = engine.n_scored + engine.n_stored
        cost.scored[role] = engine.n_scored
        cost.tokens[role] = engine.n_tokens
    ids = tuple(record.id for record in records)
    return Observations(ids, values, missing), cost


def questions(
    signals: Iterable[Signal],
    records: Sequence[Record],
    models: dict[str, Model],
    *,
    known_members: tuple[Record, ...] = (),
    known_nonmembers: tuple[Record, ...] = (),
    pool: Pool | None = None,
    progress: Progress | None = None,
) -> dict[str, list[Request]]:
    """What `collect` would ask each role for the same arguments, repetitions included.

    Questions that follow from answers are foreseen: others, but as many and about as long.

    Raises:
        AccessError: as `collect` does.
    """
    wanted = _wanted(signals, models)
    shown = _Shown(known_members, known_nonmembers, pool)
    by_id = {record.id: record for record in records}
    asked: dict[str, list[Request]] = {}
    for role in models:
        of_role, materials = _of_role(role, wanted, models, shown)
        asks = _asks(of_role, records, materials, _telling(progress, role))
        asked[role] = [
            request
            for signal, id_, ask in asks
            if not isinstance(ask, UnscorableError)
            for request in (*ask.requests, *_foreseen(signal, by_id[id_], materials))
        ]
    return asked


@dataclass(frozen=True)
class _Shown:
    """Records of others that signals may show to a model."""

    known_members: tuple[Record, ...]
    known_nonmembers: tuple[Record, ...]
    pool: Pool | None


def _of_role(
    role: str, wanted: Sequence[Signal], models: dict[str, Model], shown: _Shown
) -> tuple[list[Signal], Materials]:
    """The signals that are measured of one model, and what they may use."""
    of_target = models[TARGET].encoder if TARGET in models else None
    materials = Materials(
        models[role].encoder, shown.known_members, shown.known_nonmembers, of_target, shown.pool
    )
    return [signal for signal in wanted if signal.of == role], materials


def _foreseen(
    signal: LikelihoodSignal, record: Record, materials: Materials
) -> tuple[Request, ...]:
    if not isinstance(signal, FollowingSignal):
        return ()
    try:
        return signal.foreseen(record, materials).requests
    except UnscorableError:
        return ()


def _wanted(signals: Iterable[Signal], models: dict[str, Model]) -> list[Signal]:
    """Each signal once, and what their comparison needs; all of them can be measured."""
    wanted = list(dict.fromkeys(signals))
    _check(wanted, models)
    return list(dict.fromkeys([*wanted, *_comparisons(wanted, models)]))


def _comparisons(signals: Sequence[Signal], models: dict[str, Model]) -> list[Signal]:
    """What says which answers of other models may be compared with the target's.

    No attack has to ask for it, so that any run can be scored again by one that compares.
    """
    if TARGET not in models:
        return []
    asked = [signal.of for signal in signals if isinstance(signal, LikelihoodSignal)]
    return [SameText(of=role) for role in asked if role != TARGET]


def _ask_model(
    signals: Sequence[Signal],
    records: Sequence[Record],
    materials: Materials,
    engine: Engine,
    tell: Progress,
) -> Iterator[tuple[Signal, str, Any]]:
    """Signal, record id, and its value or why there is none; everything is asked at once.

    What follows from answers is asked at once too, in a second round.
    """
    asks: list[tuple[LikelihoodSignal, str, Ask]] = []
    for signal, id_, ask in _asks(signals, records, materials, tell):
        if isinstance(ask, UnscorableError):
            yield signal, id_, ask
        else:
            asks.append((signal, id_, ask))
    requests = [request for _, _, ask in asks for request in ask.requests]
    engine.ensure(requests, progress=lambda done, total: tell("scoring", done, total))
    by_id = {record.id: record for record in records}
    whole: list[tuple[LikelihoodSignal, str, Ask]] = []
    for signal, id_, ask in asks:
        if not isinstance(signal, FollowingSignal):
            whole.append((signal, id_, ask))
            continue
        answers = ask.read([engine.answer(request) for request in ask.requests])
        try:
            more = signal.follow(by_id[id_], materials, ask, answers)
        except UnscorableError as error:
            yield signal, id_, error
        else:
            whole.append((signal, id_, ask.then(more)))
    first = set(requests)
    later = [row for _, _, ask in whole for row in ask.requests if row not in first]
    if later:
        engine.ensure(later, progress=lambda done, total: tell("scoring", done, total))
    for signal, id_, ask in whole:
        answers = ask.read([engine.answer(request) for request in ask.requests])
        try:
            yield signal, id_, signal.observe(answers)
        except UnscorableError as error:
            yield signal, id_, error


def _asks(
    signals: Sequence[Signal], records: Sequence[Record], materials: Materials, tell: Progress
) -> Iterator[tuple[LikelihoodSignal, str, Ask | UnscorableError]]:
    """Signal, record id, and what it asks a model about the record or why it cannot."""
    asking = [signal for signal in signals if isinstance(signal, LikelihoodSignal)]
    for i, record in enumerate(records):
        for signal in asking:
            try:
                yield signal, record.id, signal.ask(record, materials)
            except UnscorableError as error:
                yield signal, record.id, error
        tell("preparing", i + 1, len(records))


def _read_texts(
    signals: Sequence[Signal], records: Sequence[Record], materials: Materials
) -> Iterator[tuple[Signal, str, Any]]:
    for signal in signals:
        if isinstance(signal, TextSignal):
            for record, value in zip(records, signal.measure(records, materials), strict=True):
                yield signal, record.id, value


def _telling(progress: Progress | None, role: str) -> Progress:
    def tell(what: str, done: int, total: int) -> None:
        if progress is not None:
            progress(f"{what} {role}", done, total)

    return tell


def _check(signals: Sequence[Signal], models: dict[str, Model]) -> None:
    for signal in signals:
        model = models.get(signal.of)
        if model is None:
            raise AccessError(
                f"{type(signal).__name__} needs a {signal.of} model, and there is none",
                fix=f"--{signal.of} MODEL",
            )
        needs_logprobs = isinstance(signal, LikelihoodSignal)
        if needs_logprobs and model.target.access < Access.LOGPROB:
            raise AccessError(
                f"{type(signal).__name__} needs {Access.LOGPROB.name}; "
                f"{model.target.name} gives {model.target.access.name}"
            )
