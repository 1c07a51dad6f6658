"""Measure: every signal once, all requests of one model together."""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from unseen.errors import UNANSWERED, AccessError, UnscorableError
from unseen.scoring.asking import Asking, Budget
from unseen.scoring.engine import Engine
from unseen.scoring.generation import Generation
from unseen.scoring.looking import Glance, Looking
from unseen.scoring.parts import in_parts
from unseen.scoring.store import Store
from unseen.signals.base import (
    NOTHING_SHOWN,
    SHADOW,
    TARGET,
    AdaptiveSignal,
    Ask,
    ContinuationSignal,
    Encoder,
    FollowingSignal,
    ForeseeingSignal,
    InsideSignal,
    LikelihoodSignal,
    Materials,
    Observations,
    ObservingSignal,
    OfShadow,
    OngoingSignal,
    PopulationSignal,
    ReadingSignal,
    ShadowSignal,
    Shown,
    Signal,
    StepSignal,
    TextSignal,
    access_needed,
    built_on,
)
from unseen.signals.neighbourhood import Neighbourhood
from unseen.signals.one_step import AfterStep
from unseen.signals.text import SameText
from unseen.targets.access import (
    InsideTarget,
    LogprobTarget,
    WhiteBoxTarget,
    tokens_remembered,
)
from unseen.types import Prompt, Record, Request

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


@dataclass(frozen=True)
class Model:
    """A model in one role: who is asked, and how records become its token ids."""

    target: LogprobTarget
    encoder: Encoder


@dataclass(frozen=True)
class Shadow:
    """A shadow model, loaded when its turn comes and freed after it.

    Attributes:
        name: what the user calls it.
        fingerprint: of its weights.
        facts: what a run says of it.
        load: loads it.
        inside: whether a record is known to be in its training data.
    """

    name: str
    fingerprint: str
    facts: Mapping[str, str]
    load: Callable[[], Model]
    inside: Callable[[Record], bool]

    @contextmanager
    def opened(self) -> Iterator[Model]:
        """The model; its memory is given back afterwards."""
        try:
            yield self.load()
        finally:
            gc.collect()
            torch: Any = sys.modules.get("torch")  # where it is not loaded, no model of it is
            if torch is not None and torch.cuda.is_available():
                torch.cuda.empty_cache()


@dataclass
class Cost:
    """What measuring took, by role.

    Attributes:
        requests: questions of any kind.
        scored: of them asked here, and not found in the store.
        tokens: read and written for these.
    """

    requests: dict[str, int] = field(default_factory=dict)
    scored: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)

    def add(self, role: str, asking: Asking[Any, Any]) -> None:
        """What one model was asked."""
        for count, n in (
            (self.requests, asking.n_asked + asking.n_stored),
            (self.scored, asking.n_asked),
            (self.tokens, asking.n_tokens),
        ):
            count[role] = count.get(role, 0) + n


Measured = tuple[Observations, Cost]
"""What was measured of some records, and what it took."""


def collect(
    signals: Iterable[Signal],
    records: Sequence[Record],
    models: dict[str, Model],
    *,
    store: Store,
    shadows: Sequence[Shadow] = (),
    shown: Shown = NOTHING_SHOWN,
    batch_tokens: int | None = None,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Measures signals of records.

    Args:
        signals: what the attacks need; equal ones are measured once. Where another model than
            the target is asked too, it is also measured whether both read the same text.
        records: whom to measure.
        models: role -> model.
        store: where answers are kept and found again.
        shadows: shadow models, asked one after another; none is loaded for signals of other roles.
        shown: what signals may show to models, or compare with.
        batch_tokens: padded tokens a batch; None leaves it to the target.
        budget: how many questions may be asked.
        progress: told how far it is.

    Returns:
        The observations of all records, and what they cost.

    Raises:
        AccessError: where a signal asks a role that there is no model for, or a model that gives
            no log-probabilities. Nothing has been asked yet then.
    """
    wanted = _wanted(signals, models, shadows)
    ids = tuple(record.id for record in records)
    empty = [record.id for record in records if not record.is_answered]
    records, shown = _answered(records), _without_silent(shown)
    neighbourhood = Neighbourhood(shown.fillers, store)
    cost = Cost()
    seen = _Seen()
    written: dict[Signal, dict[str, Any]] = {}
    for role, model in models.items():
        materials = _materials(role, model, models, shown, neighbourhood)
        jobs = _jobs(role, wanted, records, shown)
        writing = Generation(model.target, store, batch_tokens=batch_tokens, budget=budget)
        for signal, id_, value in _let_write(jobs, materials, writing, _telling(progress, role)):
            written.setdefault(signal, {})[id_] = value
        cost.add(role, writing)
    seen.add((signal, *one) for signal, by_id in written.items() for one in by_id.items())
    for role, model in models.items():
        materials = _materials(role, model, models, shown, neighbourhood, written)
        jobs = _jobs(role, wanted, records, shown)
        engine = Engine(model.target, store, batch_tokens=batch_tokens, budget=budget)
        tell = _telling(progress, role)
        seen.add(_read_texts(jobs, materials))
        seen.add(_ask_model(jobs, materials, model.target, engine, tell))
        cost.add(role, engine)
        if isinstance(model.target, InsideTarget):
            looking = Looking(model.target, store, batch_tokens=batch_tokens)
            seen.add(_look_inside(jobs, materials, looking, tell))
            cost.add(role, looking)
    jobs = _jobs(SHADOW, wanted, records, shown)
    said: list[_Seen] = []
    for number, shadow in enumerate(shadows if jobs else (), start=1):
        with shadow.opened() as model:
            _check_access(jobs[0].signals[0], model)
            materials = _materials(SHADOW, model, models, shown, neighbourhood)
            engine = Engine(model.target, store, batch_tokens=batch_tokens, budget=budget)
            tell = _telling(progress, f"{SHADOW} {number} of {len(shadows)}")
            said.append(_Seen())
            said[-1].add(_ask_model(jobs, materials, model.target, engine, tell))
            cost.add(SHADOW, engine)
            del model, materials, engine
    seen.add(_combined(jobs, shadows, said))
    for signal in wanted:
        if isinstance(signal, PopulationSignal):
            seen.add(_gathered(signal, records, shown, seen))
    for signal in wanted:
        seen.add((signal, id_, UnscorableError(UNANSWERED)) for id_ in empty)
    return seen.observations(wanted, ids), cost


def questions(
    signals: Iterable[Signal],
    records: Sequence[Record],
    models: dict[str, Model],
    *,
    shadow: Model | None = None,
    shown: Shown = NOTHING_SHOWN,
    progress: Progress | None = None,
) -> dict[str, list[Request]]:
    """What `collect` would ask each role for the same arguments, repetitions included.

    Questions that follow from answers are foreseen: others, but as many and about as long. Text is
    counted by `prompts_of`.

    Args:
        signals: as of `collect`.
        records: as of `collect`.
        models: role -> model.
        shadow: a shadow model; the questions are those that it alone would be asked.
        shown: as of `collect`.
        progress: told how far it is.
    """
    wanted = _with_comparisons(signals, models)
    records, shown = _answered(records), _without_silent(shown)
    neighbourhood = Neighbourhood(shown.fillers)
    asked: dict[str, list[Request]] = {}
    for role, model in (models if shadow is None else {SHADOW: shadow}).items():
        materials = _materials(role, model, models, shown, neighbourhood)
        materials = replace(materials, foreseeing=True)
        asks = _asks(_jobs(role, wanted, records, shown), materials, _telling(progress, role))
        asked[role] = [
            request
            for signal, record, ask in asks
            if not isinstance(ask, UnscorableError)
            for request in (*ask.requests, *_foreseen(signal, record, materials))
        ]
    return asked


def prompts_of(
    signals: Iterable[Signal],
    records: Sequence[Record],
    models: dict[str, Model],
    *,
    shown: Shown = NOTHING_SHOWN,
) -> dict[str, list[Prompt]]:
    """What `collect` would let each role write in the first round, repetitions included."""
    wanted = _with_comparisons(signals, models)
    return {
        role: [
            prompt
            for _, _, prompts in _first_prompts(jobs, materials)
            if not isinstance(prompts, UnscorableError)
            for prompt in prompts
        ]
        for role, jobs, materials in _each_role(wanted, records, models, shown)
    }


def later_prompts_of(
    signals: Iterable[Signal],
    records: Sequence[Record],
    models: dict[str, Model],
    *,
    shown: Shown = NOTHING_SHOWN,
) -> dict[str, list[Prompt]]:
    """The most that `collect` would let each role write in later rounds, as far as it is foreseen."""
    foreseeing = [signal for signal in signals if isinstance(signal, ForeseeingSignal)]
    return {
        role: [
            prompt
            for signal, record, prompts in _first_prompts(jobs, materials)
            if not isinstance(prompts, UnscorableError) and isinstance(signal, ForeseeingSignal)
            for prompt in signal.foreseen(record, materials)
        ]
        for role, jobs, materials in _each_role(foreseeing, records, models, shown)
    }


def later_questions(
    signals: Iterable[Signal],
    records: Sequence[Record],
    models: dict[str, Model],
    *,
    shown: Shown = NOTHING_SHOWN,
) -> dict[str, list[Request]]:
    """The most that `collect` would ask each role in rounds that may follow from answers."""
    adaptive = [signal for signal in signals if isinstance(signal, AdaptiveSignal)]
    return {
        role: [
            request
            for signal, record, ask in _asks(jobs, materials, lambda *_: None)
            if not isinstance(ask, UnscorableError) and isinstance(signal, AdaptiveSignal)
            for request in signal.foreseen(record, materials).requests
        ]
        for role, jobs, materials in _each_role(adaptive, records, models, shown)
    }


def glances_of(
    signals: Iterable[Signal],
    records: Sequence[Record],
    models: dict[str, Model],
    *,
    shown: Shown = NOTHING_SHOWN,
) -> dict[str, list[Glance]]:
    """What `collect` would look at inside each model, repetitions included."""
    wanted = _with_comparisons(signals, models)
    return {
        role: [
            one
            for _, _, glances in _glances(jobs, replace(materials, foreseeing=True))
            if not isinstance(glances, UnscorableError)
            for one in glances
        ]
        for role, jobs, materials in _each_role(wanted, records, models, shown)
    }


def _each_role(
    signals: Sequence[Signal], records: Sequence[Record], models: dict[str, Model], shown: Shown
) -> Iterator[tuple[str, list[_Job], Materials]]:
    """Role, what is measured of it, and what signals may use for that; nothing is kept of it."""
    neighbourhood = Neighbourhood(shown.fillers)
    distinct, answered = list(dict.fromkeys(signals)), _answered(records)
    for role, model in models.items():
        jobs = _jobs(role, distinct, answered, shown)
        yield role, jobs, _materials(role, model, models, shown, neighbourhood)


def _answered(records: Sequence[Record]) -> tuple[Record, ...]:
    """The records that say something: an empty response has no score, not even of its prompt."""
    return tuple(record for record in records if record.is_answered)


def _without_silent(shown: Shown) -> Shown:
    """What is shown, without records that say nothing."""
    return replace(
        shown,
        known_members=_answered(shown.known_members),
        known_nonmembers=_answered(shown.known_nonmembers),
    )


@dataclass(frozen=True)
class _Job:
    """Signals of one role, and the records that they are measured of."""

    signals: tuple[Signal, ...]
    records: Sequence[Record]


@dataclass
class _Seen:
    """Signal -> record id -> value, and why some are missing; of judged records and others."""

    values: dict[Signal, dict[str, Any]] = field(default_factory=dict)
    missing: dict[Signal, dict[str, str]] = field(default_factory=dict)

    def add(self, found: Iterable[tuple[Signal, str, Any]]) -> None:
        for signal, id_, value in found:
            if isinstance(value, UnscorableError):
                self.missing.setdefault(signal, {})[id_] = value.problem
            else:
                self.values.setdefault(signal, {})[id_] = value

    def observations(self, signals: Sequence[Signal], ids: tuple[str, ...]) -> Observations:
        judged = set(ids)

        def of_judged(by_id: Mapping[str, Any]) -> dict[str, Any]:
            return {id_: value for id_, value in by_id.items() if id_ in judged}

        return Observations(
            ids,
            {signal: of_judged(self.values.get(signal, {})) for signal in signals},
            {signal: of_judged(self.missing.get(signal, {})) for signal in signals},
        )


def _materials(
    role: str,
    model: Model,
    models: dict[str, Model],
    shown: Shown,
    neighbourhood: Neighbourhood | None = None,
    written: Mapping[Signal, Mapping[str, Any]] | None = None,
) -> Materials:
    of_target = models[TARGET].encoder if TARGET in models else None
    return Materials.of(
        model.encoder,
        shown,
        role,
        of_target=of_target,
        neighbourhood=neighbourhood,
        written=written or {},
    )


def _jobs(
    role: str, wanted: Sequence[Signal], records: Sequence[Record], shown: Shown
) -> list[_Job]:
    """What is measured of one role: of the judged records, and of the population."""
    own = tuple(s for s in wanted if s.of == role and not isinstance(s, PopulationSignal))
    jobs = [_Job(own, records)] if own else []
    population = [s for s in wanted if s.of == role and isinstance(s, PopulationSignal)]
    if population:
        most = max(signal.size for signal in population)
        each = tuple(dict.fromkeys(signal.each for signal in population))
        jobs.append(_Job(each, shown.known_nonmembers[:most]))
    return jobs


def _combined(
    jobs: Sequence[_Job], shadows: Sequence[Shadow], said: Sequence[_Seen]
) -> Iterator[tuple[Signal, str, Any]]:
    """What all shadows say of each record, as one value."""
    for job in jobs:
        for signal in job.signals:
            if not isinstance(signal, ShadowSignal):
                msg = f"{type(signal).__name__} cannot be measured of several models"
                raise TypeError(msg)
            for record in job.records:
                parts = {
                    number: OfShadow(shadow.inside(record), seen.values[signal][record.id])
                    for number, (shadow, seen) in enumerate(
                        zip(shadows, said, strict=True), start=1
                    )
                    if record.id in seen.values.get(signal, {})
                }
                if parts:
                    yield signal, record.id, signal.combine(parts)
                else:
                    yield signal, record.id, UnscorableError(said[0].missing[signal][record.id])


def _gathered(
    signal: PopulationSignal, records: Sequence[Record], shown: Shown, seen: _Seen
) -> Iterator[tuple[Signal, str, Any]]:
    """What was measured of the population, the same for every record."""
    of_each = seen.values.get(signal.each, {})
    population = [of_each.get(record.id) for record in shown.known_nonmembers[: signal.size]]
    try:
        value = signal.gather(population)
    except UnscorableError as error:
        value = error
    yield from ((signal, record.id, value) for record in records)


def _foreseen(
    signal: LikelihoodSignal, record: Record, materials: Materials
) -> tuple[Request, ...]:
    if not isinstance(signal, FollowingSignal):
        return ()
    try:
        return signal.foreseen(record, materials).requests
    except UnscorableError:
        return ()


def _wanted(
    signals: Iterable[Signal], models: dict[str, Model], shadows: Sequence[Shadow]
) -> list[Signal]:
    """Each signal once, and what their comparison needs; all of them can be measured."""
    wanted = _with_comparisons(signals, models)
    for signal in wanted:
        if signal.of == SHADOW and shadows:
            continue  # whether they give log-probabilities is seen when they are loaded
        model = models.get(signal.of)
        if model is None:
            raise AccessError(
                f"{type(signal).__name__} needs a {signal.of} model, and there is none",
                fix=f"--{signal.of} MODEL",
            )
        _check_access(signal, model)
    return wanted


def _with_comparisons(signals: Iterable[Signal], models: dict[str, Model]) -> list[Signal]:
    """Each signal once, what it is built on, and what says which answers may be compared with the target's.

    No attack has to ask for it, so that any run can be scored again by one that compares.
    """
    wanted = built_on(signals)
    asked = [signal.of for signal in wanted if isinstance(signal, LikelihoodSignal)]
    compared = [SameText(of=role) for role in asked if role in models and role != TARGET]
    return list(dict.fromkeys([*wanted, *(compared if TARGET in models else ())]))


def _check_access(signal: Signal, model: Model) -> None:
    needed = access_needed(signal)
    if needed is not None and model.target.access < needed:
        raise AccessError(
            f"{type(signal).__name__} needs {needed.word} access; "
            f"{model.target.name} gives {model.target.access.word}"
        )


@dataclass
class _Text:
    """What a model writes for one signal of one record.

    Attributes:
        signal: whose prompts they are.
        record: whom they are about.
        questions: what is to be answered next.
        said: what was written so far.
        why_not: why there is nothing to observe.
    """

    signal: ContinuationSignal
    record: Record
    questions: tuple[Prompt, ...]
    said: list[str] = field(default_factory=list)
    why_not: UnscorableError | None = None

    @property
    def read(self) -> Iterator[tuple[int, ...]]:
        """What the model reads for the questions."""
        return (prompt.ids for prompt in self.questions)

    def go_on(self, writing: Generation, materials: Materials) -> bool:
        """Takes what was written; whether there is more to answer."""
        decode = materials.encoder.tokenizer.decode
        try:
            self.said += [decode(writing.answer(prompt)) for prompt in self.questions]
            self.questions = (
                self.signal.more(self.record, materials, self.said)
                if isinstance(self.signal, OngoingSignal)
                else ()
            )
        except UnscorableError as error:
            self.questions, self.why_not = (), error
        return bool(self.questions)


@dataclass
class _Chain:
    """What one signal asks about one record, round by round.

    Attributes:
        signal: whose questions they are.
        record: whom they are about.
        ask: all questions so far.
        questions: of them those to be answered next.
    """

    signal: AdaptiveSignal
    record: Record
    ask: Ask
    questions: tuple[Request, ...]

    @property
    def read(self) -> Iterator[tuple[int, ...]]:
        """What the model reads for the questions."""
        return (request.context for request in self.questions)

    def go_on(self, engine: Engine, materials: Materials) -> bool:
        """Takes the answers; whether there is more to ask."""
        answers = self.ask.read([engine.answer(request) for request in self.ask.requests])
        self.questions = ()
        with suppress(UnscorableError):  # it is said again of the value
            more = self.signal.more(self.record, materials, answers)
            self.ask, self.questions = self.ask.then(more), more.requests
        return bool(self.questions)


_Thread = TypeVar("_Thread", bound=_Text | _Chain)


def _round_by_round(
    threads: Sequence[_Thread],
    asking: Asking[Any, Any],
    room: int,
    go_on: Callable[[_Thread], bool],
    tell: Callable[[int, int], None],
) -> None:
    """Has all questions answered, and those that follow.

    What a target has read it remembers, but not without end. Where questions begin alike, those about
    some clusters are taken to their end before others begin, as many as it can remember.

    Args:
        threads: with what is asked first; of each of them more may follow.
        asking: who is asked.
        room: tokens that the target remembers.
        go_on: takes the answers of one; whether more follows.
        tell: told how many are answered, and how many there are.
    """
    by_cluster: dict[str, list[_Thread]] = {}
    for thread in threads:
        by_cluster.setdefault(thread.record.cluster or thread.record.id, []).append(thread)
    parts: list[list[list[_Thread]]] = [list(by_cluster.values())] if threads else []
    n_done = 0
    while parts:
        # Half of the memory: questions may grow from round to round.
        part, *others = in_parts(
            parts.pop(0),
            room // 2,
            lambda group: itertools.chain.from_iterable(one.read for one in group),
        )
        parts = [*others, *parts]
        asked = dict.fromkeys(
            question for group in part for thread in group for question in thread.questions
        )
        n_later = sum(len(thread.questions) for one in parts for group in one for thread in group)
        asking.ensure(asked, progress=_counting_on(tell, n_done, n_later))
        n_done += len(asked)
        left = [[thread for thread in group if go_on(thread)] for group in part]
        if any(left):
            parts.insert(0, [group for group in left if group])


def _counting_on(
    tell: Callable[[int, int], None], n_before: int, n_after: int
) -> Callable[[int, int], None]:
    """Counts those that were answered before, and those that are known to follow."""

    def told(done: int, total: int) -> None:
        tell(n_before + done, n_before + total + n_after)

    return told


def _let_write(
    jobs: Sequence[_Job], materials: Materials, writing: Generation, tell: Progress
) -> Iterator[tuple[Signal, str, Any]]:
    """Signal, record id, and the value of what a model has written, or why there is none."""
    texts: list[_Text] = []
    for signal, record, prompts in _first_prompts(jobs, materials):
        if isinstance(prompts, UnscorableError):
            yield signal, record.id, prompts
        else:
            texts.append(_Text(signal, record, prompts))
    _round_by_round(
        texts,
        writing,
        tokens_remembered(writing.target) if texts else 0,
        lambda text: text.go_on(writing, materials),
        lambda done, total: tell("writing", done, total),
    )
    for text in texts:
        try:
            if text.why_not is not None:
                raise text.why_not
            yield (
                text.signal,
                text.record.id,
                text.signal.observe(text.record, materials, text.said),
            )
        except UnscorableError as error:
            yield text.signal, text.record.id, error


def _first_prompts(
    jobs: Sequence[_Job], materials: Materials
) -> Iterator[tuple[ContinuationSignal, Record, tuple[Prompt, ...] | UnscorableError]]:
    """Signal, record, and the prompts that are answered first, or why there are none."""
    for job in jobs:
        for signal in job.signals:
            if not isinstance(signal, ContinuationSignal):
                continue
            for record in job.records:
                try:
                    yield signal, record, signal.prompts(record, materials)
                except UnscorableError as error:
                    yield signal, record, error


def _ask_model(
    jobs: Sequence[_Job],
    materials: Materials,
    target: LogprobTarget,
    engine: Engine,
    tell: Progress,
) -> Iterator[tuple[Signal, str, Any]]:
    """Signal, record id, and its value or why there is none; everything is asked at once.

    What follows from answers is asked at once too, in a second round, or in as many as it takes.
    """
    asks: list[tuple[LikelihoodSignal, Record, Ask]] = []
    for signal, record, ask in _asks(jobs, materials, tell):
        if isinstance(ask, UnscorableError):
            yield signal, record.id, ask
        else:
            asks.append((signal, record, ask))
    requests = [request for one in asks if not _is_adaptive(one) for request in one[2].requests]
    engine.ensure(requests, progress=lambda done, total: tell("scoring", done, total))
    whole: list[tuple[LikelihoodSignal, Record, Ask]] = []
    for signal, record, ask in asks:
        if isinstance(signal, StepSignal):
            continue
        if not isinstance(signal, FollowingSignal):
            whole.append((signal, record, ask))
            continue
        answers = ask.read([engine.answer(request) for request in ask.requests])
        try:
            more = signal.follow(record, materials, ask, answers)
        except UnscorableError as error:
            yield signal, record.id, error
        else:
            whole.append((signal, record, ask.then(more)))
    first = set(requests)
    later = [
        row for one in whole if not _is_adaptive(one) for row in one[2].requests if row not in first
    ]
    if later:
        engine.ensure(later, progress=lambda done, total: tell("scoring", done, total))
    whole = _asked_on(whole, materials, engine, tell)
    yield from _ask_after_steps(asks, materials, target, engine, tell)
    for signal, record, ask in whole:
        answers = ask.read([engine.answer(request) for request in ask.requests])
        try:
            if isinstance(signal, ReadingSignal):
                yield signal, record.id, signal.read(record, materials, ask, answers)
            else:
                yield signal, record.id, cast("ObservingSignal", signal).observe(answers)
        except UnscorableError as error:
            yield signal, record.id, error


def _is_adaptive(one: tuple[LikelihoodSignal, Record, Ask]) -> bool:
    """Whether it asks on round by round, from the first round on."""
    return isinstance(one[0], AdaptiveSignal)


def _asked_on(
    asks: Sequence[tuple[LikelihoodSignal, Record, Ask]],
    materials: Materials,
    engine: Engine,
    tell: Progress,
) -> list[tuple[LikelihoodSignal, Record, Ask]]:
    """The same, with what is asked on, round by round, until nothing is."""
    whole = list(asks)
    chains = {
        i: _Chain(signal, record, ask, ask.requests)
        for i, (signal, record, ask) in enumerate(asks)
        if isinstance(signal, AdaptiveSignal)
    }
    if not chains:
        return whole
    growing = engine.growing()
    _round_by_round(
        list(chains.values()),
        growing,
        tokens_remembered(engine.target),
        lambda chain: chain.go_on(engine, materials),
        lambda done, total: tell("scoring", done, total),
    )
    engine.count(growing)
    for i, chain in chains.items():
        whole[i] = (chain.signal, chain.record, chain.ask)
    return whole


def _ask_after_steps(
    asks: Sequence[tuple[LikelihoodSignal, Record, Ask]],
    materials: Materials,
    target: LogprobTarget,
    engine: Engine,
    tell: Progress,
) -> Iterator[tuple[Signal, str, Any]]:
    """What is asked again after steps; everything has been asked before them."""
    for signal in dict.fromkeys(one for one, _, _ in asks):
        if not isinstance(signal, StepSignal) or not isinstance(target, WhiteBoxTarget):
            continue
        of = {record.id: ask for one, record, ask in asks if one == signal}
        batches = signal.batches([record for one, record, _ in asks if one == signal])
        for n_done, batch in enumerate(batches):
            tell("steps on", n_done, len(batches))
            examples = [materials.encoder.encode(record) for record in batch]
            with AfterStep(target, examples, signal.learning_rate) as stepped:
                after = engine.beside(stepped)
                after.ensure([request for record in batch for request in of[record.id].requests])
            engine.count(after)
            for record in batch:
                (request,) = of[record.id].requests
                answers = of[record.id].then(of[record.id])
                both = answers.read([engine.answer(request), after.answer(request)])
                yield signal, record.id, signal.observe(both)
        tell("steps on", len(batches), len(batches))


def _look_inside(
    jobs: Sequence[_Job], materials: Materials, looking: Looking, tell: Progress
) -> Iterator[tuple[Signal, str, Any]]:
    """Signal, record id, and what was seen inside the model or why nothing can be."""
    todo: list[tuple[InsideSignal, str, list[Glance]]] = []
    for signal, record, glances in _glances(jobs, materials):
        if isinstance(glances, UnscorableError):
            yield signal, record.id, glances
        else:
            todo.append((signal, record.id, glances))
    if not todo:
        return
    looking.ensure(
        (one for _, _, glances in todo for one in glances),
        progress=lambda done, total: tell("looking inside", done, total),
    )
    for signal, id_, glances in todo:
        try:
            yield signal, id_, signal.see([looking.seen(*one) for one in glances])
        except UnscorableError as error:
            yield signal, id_, error


def _glances(
    jobs: Sequence[_Job], materials: Materials
) -> Iterator[tuple[InsideSignal, Record, list[Glance] | UnscorableError]]:
    """Signal, record, and what is looked at for it, or why nothing can be."""
    for job in jobs:
        for signal in job.signals:
            if not isinstance(signal, InsideSignal):
                continue
            look = signal.look(materials)
            for record in job.records:
                try:
                    yield (
                        signal,
                        record,
                        [(look, one) for one in signal.passages(record, materials)],
                    )
                except UnscorableError as error:
                    yield signal, record, error


def _asks(
    jobs: Sequence[_Job], materials: Materials, tell: Progress
) -> Iterator[tuple[LikelihoodSignal, Record, Ask | UnscorableError]]:
    """Signal, record, and what it asks a model about the record or why it cannot."""
    done, total = 0, sum(len(job.records) for job in jobs if _asks_any(job))
    for job in jobs:
        asking = [signal for signal in job.signals if isinstance(signal, LikelihoodSignal)]
        for record in job.records if asking else ():
            for signal in asking:
                try:
                    yield signal, record, signal.ask(record, materials)
                except UnscorableError as error:
                    yield signal, record, error
            done += 1
            tell("preparing", done, total)


def _asks_any(job: _Job) -> bool:
    return any(isinstance(signal, LikelihoodSignal) for signal in job.signals)


def _read_texts(jobs: Sequence[_Job], materials: Materials) -> Iterator[tuple[Signal, str, Any]]:
    for job in jobs:
        for signal in job.signals:
            if isinstance(signal, TextSignal):
                values = signal.measure(job.records, materials)
                for record, value in zip(job.records, values, strict=True):
                    yield signal, record.id, value


def _telling(progress: Progress | None, role: str) -> Progress:
    def tell(what: str, done: int, total: int) -> None:
        if progress is not None:
            progress(f"{what} {role}", done, total)

    return tell
