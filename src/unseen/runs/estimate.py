"""What an audit would take, before it is begun: requests, tokens, time, memory. Writes nothing.

The requests are those of the audit itself: the same records, the same template, the same batches. A
few of the batches are run to see how fast the model reads; everything else follows by tokens.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import Field

from unseen.attacks import label
from unseen.errors import OutOfMemoryError
from unseen.metrics.roc import resolution
from unseen.runs.answers import answers_so_far
from unseen.runs.audit import Ready, ready
from unseen.runs.collect import Model, Progress, glances_of, prompts_of, questions
from unseen.runs.header import Note
from unseen.runs.metered import endpoint_of, left_to_send
from unseen.runs.models import described
from unseen.runs.rendered import rendered
from unseen.runs.results import Part, RenderedPart, Resolution
from unseen.scoring.engine import Engine
from unseen.scoring.generation import EachAlone, Generation, Sheet
from unseen.scoring.looking import Glance, Looking, Sight
from unseen.scoring.planner import n_read, n_tokens
from unseen.scoring.store import Store
from unseen.signals.base import CONTROL, REFERENCE, SHADOW, TARGET
from unseen.targets.access import InsideTarget, read_since, tokens_read
from unseen.targets.characters import tokens_of
from unseen.targets.endpoint import cost_of
from unseen.targets.looks import passes
from unseen.types import Batch, Prompt, Request

if TYPE_CHECKING:
    from unseen.data.records import Records
    from unseen.runs.config import AuditChoices, FinetuneAudit
    from unseen.targets.access import LogprobTarget

T = TypeVar("T")

PROBES = 3
"""Batches of each kind that are timed, from the longest to the shortest rows. Of a kind are those that
read a shared prefix, those that find it read, and those without: their tokens cost differently."""
_LONGEST = 20.0
"""Seconds after which no further batch is timed."""


class Timing(Part):
    """How long measuring would take, from batches that were timed."""

    seconds: float = Field(description="tokens to read, at the mean speed of the probe")
    bounds: tuple[float, float] = Field(
        description="the same at the highest and the lowest speed of a batch: no confidence interval"
    )
    batches: int = Field(description="batches that were timed")
    tokens: int = Field(description="tokens in them, shared prefixes once")


class Written(Part):
    """Texts that one model would write, of the first round: more follow where those are not enough."""

    prompts: int = Field(description="texts of all attacks")
    distinct: int = Field(description="of them different: each is written once")
    cached: int = Field(description="written already")
    tokens: int = Field(description="tokens that are left to read and, at most, to write")
    cost: float | None = Field(
        None, description="US dollars of these, by --price; null where nothing is paid for"
    )
    time: Timing | None = Field(None, description="of texts that are all as long as they may be")


class Looked(Part):
    """Looks inside one model: at states, gradients, and what a gradient step changes."""

    looks: int = Field(description="looks at passages, of all attacks")
    distinct: int = Field(description="of them different: each is taken once")
    cached: int = Field(description="taken already")
    batches: int = Field(description="batches that are left to run")
    passages: int = Field(description="passages in them")
    tokens: int = Field(description="tokens in these, each passage once")
    read: int = Field(
        description="the same times the forward passes, about, that looking takes: a step some four"
    )
    time: Timing | None = Field(None, description="null where nothing is left, or no batch fitted")


class Asked(Part):
    """What one model would be asked."""

    requests: int = Field(description="questions of all attacks")
    distinct: int = Field(description="of them different: each is asked once")
    cached: int = Field(description="answered already")
    batches: int = Field(description="batches that are left to run")
    tokens: int = Field(description="tokens that the model reads in them")
    time: Timing | None = Field(None, description="null where nothing is left, or no batch fitted")
    texts: Written | None = Field(None, description="null where it writes none")
    looked: Looked | None = Field(None, description="null where nobody looks inside it")


class Resolved(Part):
    """What these non-members can say about one false-positive rate."""

    fpr: float
    resolution: Resolution
    needs_nonmembers: int | None = Field(
        None, description="non-members that the next better resolution takes"
    )


class Forecast(Part):
    """An audit that has not been begun."""

    target: dict[str, str]
    reference: dict[str, str] | None = None
    control_model: dict[str, str] | None = None
    shadows: tuple[dict[str, str], ...] = ()
    access: str
    n: tuple[int, int] = Field(description="members and non-members that would be judged")
    apart: dict[str, int] = Field(
        default_factory=dict, description="non-members that would be judged apart, by kind"
    )
    settings: tuple[str, ...] = Field((), description="of a prompt, the main one first")
    set_aside: tuple[int, int] = Field(description="of both sides, known to attacks")
    dropped: int = Field(description="records that occur on both sides")
    example: tuple[RenderedPart, ...] = ()
    attacks: tuple[str, ...]
    control: tuple[str, ...] = Field(description="attacks that would be repeated on the reference")
    control_note: str | None = None
    repeated: tuple[str, ...] = Field((), description="the same on the control model")
    control_model_note: str | None = None
    skipped: dict[str, str] = Field(default_factory=dict)
    asked: dict[str, Asked] = Field(description="by the model's role")
    requests_to_send: int | None = Field(
        None,
        description="requests to endpoints that are left, at least: more follow from answers, and after "
        "faults; null where there is no endpoint",
    )
    max_requests: int | None = Field(None, description="of them allowed")
    memory_bytes: int | None = Field(None, description="at most in use so far; null: not known")
    memory_basis: str = ""
    fpr: tuple[Resolved, ...]
    notes: tuple[str, ...] = ()

    @property
    def times(self) -> list[Timing]:
        """What was timed, of all models."""
        found = [asked.time for asked in self.asked.values()]
        found += [asked.texts.time for asked in self.asked.values() if asked.texts is not None]
        found += [asked.looked.time for asked in self.asked.values() if asked.looked is not None]
        return [time for time in found if time is not None]

    @property
    def seconds(self) -> tuple[float, float, float] | None:
        """Time of all models: estimate, shortest, longest; None where nothing was timed."""
        times = self.times
        if not times:
            return None
        return (
            sum(one.seconds for one in times),
            sum(one.bounds[0] for one in times),
            sum(one.bounds[1] for one in times),
        )


def estimate(
    config: FinetuneAudit,
    *,
    target: LogprobTarget | None = None,
    records: Records | None = None,
    progress: Progress | None = None,
    note: Note | None = None,
) -> Forecast:
    """What an audit with these choices would take.

    Args:
        config: every choice.
        target: a target that the caller has made, instead of `config.model`.
        records: records that the caller has read.
        progress: told how far preparing is.
        note: told what the user should know.

    Raises:
        UnseenError: for every fault that the audit itself would find before it asks a model.
    """
    start = ready(config, target=target, records=records, say=note or (lambda _: None))
    prepared, models, plan = start.prepared, start.models, start.plan
    notes: list[str] = []
    asked: dict[str, Asked] = {}
    with answers_so_far(config) as store:
        prompts = joined(
            prompts_of(plan.signals, records.records, models, shown=start.shown)
            for records in _sets(start)
        )
        endpoint = endpoint_of(models)
        to_send = None if endpoint is None else left_to_send(models, [prompts], store)
        glances = joined(
            glances_of(plan.signals, records.records, models, shown=start.shown)
            for records in _sets(start)
        )
        for role, requests in _questions(start, None, progress).items():
            one = asked_of(models[role], requests, store, notes, config=config)
            texts = texts_of(models[role], prompts[role], store, notes, config=config)
            looked = _looked(start, models[role], glances[role], store, notes)
            asked[role] = one.model_copy(update={"texts": texts, "looked": looked})
        of_shadows = []
        for shadow in start.shadows:
            with shadow.opened() as model:
                (requests,) = _questions(start, model, progress).values()
                of_shadows.append(asked_of(model, requests, store, notes, config=config))
                del model
        if of_shadows:
            asked[SHADOW] = _together(of_shadows)
    memory, basis = memory_of(models[TARGET])
    n = (len(prepared.judged.members), len(prepared.judged.nonmembers))
    return Forecast(
        target=models[TARGET].target.describe(),
        reference=described(models, REFERENCE) if REFERENCE in models else None,
        control_model=described(models, CONTROL) if CONTROL in models else None,
        shadows=tuple(dict(shadow.facts) for shadow in start.shadows),
        access=models[TARGET].target.access.word,
        n=n,
        apart={one.kind: len(one.records.nonmembers) for one in start.prepared.apart},
        set_aside=(len(prepared.known.members), len(prepared.known.nonmembers)),
        dropped=len(prepared.dropped),
        example=rendered(prepared.judged.records, models[TARGET].encoder),
        attacks=tuple(label(attack) for attack in plan.attacks),
        control=tuple(label(attack) for attack in plan.control),
        control_note=plan.control_note,
        repeated=tuple(label(attack) for attack in plan.control_model),
        control_model_note=plan.control_model_note,
        skipped=plan.skipped,
        asked=asked,
        requests_to_send=to_send,
        max_requests=config.max_requests,
        memory_bytes=memory,
        memory_basis=basis,
        fpr=resolved(n[1], config.fpr),
        notes=tuple(notes),
    )


def resolved(n_nonmembers: int, rates: Iterable[float]) -> tuple[Resolved, ...]:
    """What so many non-members can say about each rate."""
    known = [resolution(n_nonmembers, fpr) for fpr in rates]
    return tuple(
        Resolved(fpr=one.fpr, resolution=one.status, needs_nonmembers=one.needs_nonmembers)
        for one in known
    )


def _questions(
    start: Ready, shadow: Model | None, progress: Progress | None
) -> dict[str, list[Request]]:
    return joined(
        questions(
            start.plan.signals,
            records.records,
            start.models,
            shadow=shadow,
            shown=start.shown,
            progress=progress,
        )
        for records in _sets(start)
    )


def _sets(start: Ready) -> list[Records]:
    """The judged records, and members with each further set of non-members."""
    return [start.prepared.judged, *(one.records for one in start.prepared.apart)]


def joined(asked: Iterable[Mapping[str, list[T]]]) -> dict[str, list[T]]:
    """What each role is asked about all sets."""
    found: dict[str, list[T]] = {}
    for of_set in asked:
        for role, some in of_set.items():
            found.setdefault(role, []).extend(some)
    return found


def asked_of(
    model: Model,
    requests: Sequence[Request],
    store: Store,
    notes: list[str],
    *,
    config: AuditChoices,
) -> Asked:
    """What one model would be asked, and how long that takes."""
    engine = Engine(model.target, store, batch_tokens=config.batch_tokens)
    distinct, todo = engine.remaining(requests)
    return Asked(
        requests=len(requests),
        distinct=len(distinct),
        cached=len(distinct) - sum(len(batch.requests) for batch in todo),
        batches=len(todo),
        tokens=n_tokens(todo),
        time=_timing(model, todo, notes),
    )


_SENT = 1
"""Prompts that are sent to an endpoint to be timed, of each role: each may cost money."""
_STEPS = 8
"""Tokens of the texts that are written to be timed."""


def texts_of(
    model: Model,
    prompts: Sequence[Prompt],
    store: Store,
    notes: list[str],
    *,
    config: AuditChoices,
) -> Written | None:
    """The texts of one model; some tokens of a middling sheet are written to see how long it takes."""
    if not prompts:
        return None
    writing = Generation(model.target, store, batch_tokens=config.batch_tokens)
    distinct, todo = writing.remaining(prompts)
    time_ = None
    if todo and isinstance(model.target, EachAlone):
        time_ = _time_to_send(model, model.target, todo, config)
    elif todo:
        sheet = todo[len(todo) // 2]
        try:
            one, some = (_written(model, sheet, n) for n in (1, _STEPS))
        except OutOfMemoryError:
            notes.append(f"{model.target.name}: texts do not fit together: fewer would be written")
        else:
            # The second time a target that remembers prompts has less to read.
            a_token = (_STEPS * one[0] - some[0]) / (_STEPS * one[1] - some[1])
            a_step = max(one[0] - one[1] * a_token, 1e-9)
            read = max(a_token, 1e-9) * writing.to_read(todo)
            steps = sum(max(row.max_new_tokens for row in sheet.prompts) for sheet in todo)
            time_ = Timing(
                seconds=round(read + steps * a_step, 1),
                bounds=(round(read + len(todo) * a_step, 1), round(read + steps * a_step, 1)),
                batches=2,
                tokens=one[1] + some[1] + (1 + _STEPS) * len(sheet.prompts),
            )
    to_read, to_write = writing.to_read(todo), sum(sheet.to_write for sheet in todo)
    return Written(
        prompts=len(prompts),
        distinct=len(distinct),
        cached=len(distinct) - sum(len(sheet.prompts) for sheet in todo),
        tokens=to_read + to_write,
        cost=_cost(model, to_read, to_write),
        time=time_,
    )


def _cost(model: Model, to_read: int, to_write: int) -> float | None:
    """US dollars that so many tokens cost where they are paid for."""
    price = getattr(model.target, "price", None)
    return None if price is None else cost_of(price, to_read, to_write)


def _read_of(model: Model, row: Prompt) -> int:
    return tokens_of(model.target.tokenizer, len(row.ids))


def _time_to_send(
    model: Model, target: EachAlone, todo: Sequence[Sheet], config: AuditChoices
) -> Timing:
    """From a few prompts that are sent one after another, each of them a request that may cost money."""
    rows = [row for sheet in todo for row in sheet.prompts]
    some = [rows[(2 * i + 1) * len(rows) // (2 * _SENT)] for i in range(min(_SENT, len(rows)))]
    took: list[float] = []
    for row in some:
        started = time.perf_counter()
        list(target.each([row]))
        took.append(time.perf_counter() - started)
    # As if as many as may be were under way all the time.
    rounds = len(rows) / min(config.concurrency, len(rows))
    at_least = 60 * len(rows) / config.rpm if config.rpm else 0.0
    mean, low, high = (
        round(max(at_least, rounds * seconds), 1)
        for seconds in (sum(took) / len(took), min(took), max(took))
    )
    return Timing(
        seconds=mean,
        bounds=(low, high),
        batches=len(some),
        tokens=sum(_read_of(model, row) for row in some),
    )


def _written(model: Model, sheet: Sheet, n: int) -> tuple[float, int]:
    """Seconds that n tokens after each prompt take, and tokens of prompts that are read for them."""
    rows = sheet.prompts
    before = tokens_read(model.target)
    started = time.perf_counter()
    model.target.generate(
        [row.ids for row in rows],
        max_new_tokens=n,
        sampling=rows[0].sampling,
        numbers=[row.number for row in rows],
    )
    seconds, n_read = time.perf_counter() - started, read_since(model.target, before)
    return seconds, sum(len(row.ids) for row in rows) if n_read is None else n_read


def _looked(
    start: Ready, model: Model, glances: Sequence[Glance], store: Store, notes: list[str]
) -> Looked | None:
    """The looks inside one model; a few batches are looked at to see how long it takes."""
    if not glances or not isinstance(model.target, InsideTarget):
        return None
    looking = Looking(model.target, store, batch_tokens=start.config.batch_tokens)
    distinct, todo = looking.remaining(glances)
    sizes = [sum(len(passage.ids) for passage in sight.passages) for sight in todo]
    read = [passes(sight.looks) * n for sight, n in zip(todo, sizes, strict=True)]
    return Looked(
        looks=len(glances),
        distinct=len(distinct),
        cached=len(distinct) - sum(len(sight.glances) for sight in todo),
        batches=len(todo),
        passages=sum(len(sight.passages) for sight in todo),
        tokens=sum(sizes),
        read=sum(read),
        time=_time_looks(model.target, todo, read, notes),
    )


def _time_looks(
    target: InsideTarget, todo: Sequence[Sight], read: Sequence[int], notes: list[str]
) -> Timing | None:
    """Times a few of the batches; what is seen is thrown away."""
    if not todo:
        return None
    begun = time.perf_counter()
    # The longest rows come first: with them, memory is known too, and nothing is cold any more.
    if _seconds_to_look(target, todo[0]) is None:
        notes.append(f"{target.name}: the largest look does not fit: it would be halved")
    timed: list[tuple[int, float]] = []
    for place in _places(len(todo)):
        if timed and time.perf_counter() - begun > _LONGEST:
            break
        seconds = _seconds_to_look(target, todo[place])
        if seconds is not None:
            timed.append((read[place], seconds))
    return timing([(sum(read), timed)])


def _seconds_to_look(target: InsideTarget, sight: Sight) -> float | None:
    started = time.perf_counter()
    try:
        target.look(sight.looks, sight.passages)
    except OutOfMemoryError:
        return None
    return max(time.perf_counter() - started, 1e-9)


def _places(n: int) -> list[int]:
    """Which of n batches are timed: some that are spread over all of them."""
    return sorted({(2 * i + 1) * n // (2 * PROBES) for i in range(PROBES)})


def _together(asked: Sequence[Asked]) -> Asked:
    """What several models would be asked one after another."""
    times = [one.time for one in asked if one.time is not None]
    return Asked(
        requests=sum(one.requests for one in asked),
        distinct=sum(one.distinct for one in asked),
        cached=sum(one.cached for one in asked),
        batches=sum(one.batches for one in asked),
        tokens=sum(one.tokens for one in asked),
        time=Timing(
            seconds=round(sum(one.seconds for one in times), 1),
            bounds=(
                round(sum(one.bounds[0] for one in times), 1),
                round(sum(one.bounds[1] for one in times), 1),
            ),
            batches=sum(one.batches for one in times),
            tokens=sum(one.tokens for one in times),
        )
        if times
        else None,
    )


def _timing(model: Model, todo: Sequence[Batch], notes: list[str]) -> Timing | None:
    """Times a few of the batches; their answers are thrown away."""
    begun = time.perf_counter()
    kinds: list[tuple[int, list[tuple[int, float]]]] = []
    for batches, warm in _kinds(todo):
        # The longest rows come first: with them, memory is known too, and nothing is cold any more.
        if _seconds(model, batches[0]) is None:
            notes.append(f"{model.target.name}: the largest batch does not fit: it would be halved")
        timed: list[tuple[int, float]] = []
        for place in _places(len(batches)):
            if timed and time.perf_counter() - begun > _LONGEST:
                break
            batch = batches[place]
            if warm:  # the batch before has read the prefix
                _seconds(model, batch)
            seconds = _seconds(model, batch)
            if seconds is not None:
                timed.append((_read(batch, warm=warm), seconds))
        kinds.append((sum(_read(batch, warm=warm) for batch in batches), timed))
    return timing(kinds)


def _kinds(todo: Sequence[Batch]) -> list[tuple[list[Batch], bool]]:
    """Batches that cost alike, and whether the one before has read their prefix already."""
    first: list[Batch] = []
    later: list[Batch] = []
    plain: list[Batch] = []
    before: tuple[int, ...] = ()
    for batch in todo:
        (plain if not batch.prefix else later if batch.prefix == before else first).append(batch)
        before = batch.prefix
    return [(of, of is later) for of in (first, later, plain) if of]


def _read(batch: Batch, *, warm: bool) -> int:
    return n_read(batch, batch.prefix if warm else ())


def _seconds(model: Model, batch: Batch) -> float | None:
    started = time.perf_counter()
    try:
        model.target.execute(batch)
    except OutOfMemoryError:
        return None
    return max(time.perf_counter() - started, 1e-9)


def timing(kinds: Sequence[tuple[int, Sequence[tuple[int, float]]]]) -> Timing | None:
    """The time for batches of some kinds, from a few of each; None where a kind has none.

    Args:
        kinds: tokens in all batches of the kind, and (tokens, seconds) of those that were timed.

    >>> timing([(1000, [(100, 1.0), (100, 3.0)])])
    Timing(seconds=20.0, bounds=(10.0, 30.0), batches=2, tokens=200)
    """
    if not kinds or not all(timed for _, timed in kinds):
        return None
    mean = low = high = 0.0
    for tokens, timed in kinds:
        each = [s / n for n, s in timed]
        mean += tokens * sum(s for _, s in timed) / sum(n for n, _ in timed)
        low += tokens * min(each)
        high += tokens * max(each)
    everything = [one for _, timed in kinds for one in timed]
    return Timing(
        seconds=round(mean, 1),
        bounds=(round(low, 1), round(high, 1)),
        batches=len(everything),
        tokens=sum(n for n, _ in everything),
    )


def memory_of(model: Model) -> tuple[int | None, str]:
    """The most memory in use so far, the models and the largest timed batch included."""
    torch: Any = sys.modules.get("torch")  # where it is not loaded, no model of it is
    device = model.target.describe().get("device", "")
    if torch is not None and device.startswith("cuda"):
        return int(torch.cuda.max_memory_allocated(device)), f"of {device}"
    try:
        import resource
    except ImportError:  # not on this system
        return None, ""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024), "of this process"
