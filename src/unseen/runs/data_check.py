"""What the records alone say, before any model is asked: form, overlap, differences, power."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from unseen.attacks import blind
from unseen.attacks.base import Attack
from unseen.data.records import Records
from unseen.data.templates import check_layout
from unseen.errors import UNANSWERED, ConfigError
from unseen.runs.apart import ApartSet, Repeated, facts_of, judged_apart
from unseen.runs.ending import facts_of_no_run
from unseen.runs.judge import Judge
from unseen.runs.models import measure_lengths, open_encoder
from unseen.runs.plan import check_run_of, record_faults
from unseen.runs.prepared import data_facts, prepare, read
from unseen.runs.results import Apart, Results
from unseen.runs.subjects import Scored, Subjects
from unseen.runs.training.run_of import of_run, records_of_run
from unseen.runs.validity import checks, verdict
from unseen.signals.base import Materials, Observations, Signal, TextSignal

if TYPE_CHECKING:
    from unseen.runs.config import FinetuneAudit
    from unseen.signals.base import Encoder

LIMITATIONS = (
    "No model was asked: this says whether membership can be measured with these records, not "
    "whether anything leaks.",
)

_OF_DATA = ("blind_baseline", "split_origin", "nonmember_kind", "overlap", "truncation", "power")


def check_data(
    config: FinetuneAudit,
    *,
    records: Records | None = None,
    note: Callable[[str], None] | None = None,
) -> Results:
    """Reads both sides and judges them as an audit would, with the baselines that need no model.

    Args:
        config: names the records; a model or tokenizer, where given, is asked for its template and
            tokens only.
        records: records that the caller has read.
        note: told, in a sentence, what the user should know.

    Returns:
        Results without a target, an attack or a headline.

    Raises:
        UsageError: where something is wrong with the records.
    """
    started = time.monotonic()
    say = note or (lambda _: None)
    if config.run_of is not None:
        check_run_of(config, None, records)
        config, run = of_run(config)
        records = records_of_run(config, run)
    faults = [] if config.run_of is not None else record_faults(config, records)
    if faults:
        raise ConfigError("; ".join(faults), fix="unseen check MEMBERS NONMEMBERS")
    records = records or read(config)
    prepared = prepare(config, records)
    for sentence in prepared.notes:
        say(sentence)
    judged = prepared.judged
    encoder = open_encoder(config)
    lengths: dict[str, int] = {}
    truncated = 0
    if encoder is not None:
        check_layout(encoder, judged.records)
        lengths, truncated = measure_lengths(judged.records, encoder)
    facts = data_facts(config, prepared, encoder, lengths, truncated)
    attacks = tuple(blind())
    subjects = Subjects.from_records(judged, lengths or None, reveal=False)
    judge = Judge(config, subjects)
    verdicts = judge.judge(attacks, (), _read(attacks, judged))
    found = checks(judge, verdicts, facts)
    rows = tuple(check for check in found if check.id in _OF_DATA)
    return Results(
        run=facts_of_no_run("data", config.seed, started),
        target={},
        access="",
        data=facts,
        attacks=verdicts.attacks,
        apart=tuple(
            _of_set(config, one, attacks, (subjects, verdicts.scored)) for one in prepared.apart
        ),
        checks=rows,
        validity=verdict(rows),
        limitations=LIMITATIONS,
    )


def _of_set(
    config: FinetuneAudit,
    one: ApartSet,
    attacks: tuple[Attack, ...],
    main: tuple[Subjects, Scored],
) -> Apart:
    judge = Judge(config, Subjects.from_records(one.records, None, reveal=False))
    scored = judge.scored(attacks, (), _read(attacks, one.records))
    return judged_apart(facts_of(one, {}), judge, Repeated(attacks), scored, main)


def _read(attacks: tuple[Attack, ...], records: Records) -> Observations:
    """What blind attacks need: signals of the text that use nothing of a model."""
    values: dict[Signal, dict[str, Any]] = {}
    answered = [record for record in records.records if record.is_answered]
    materials = Materials(cast("Encoder", None))  # blind attacks have nobody to ask
    for signal in {signal for attack in attacks for signal in attack.signals()}:
        if isinstance(signal, TextSignal):
            made = signal.measure(answered, materials)
            ids = [record.id for record in answered]
            values[signal] = dict(zip(ids, made, strict=True))
    empty = {record.id: UNANSWERED for record in records.records if not record.is_answered}
    return Observations(records.ids, values, dict.fromkeys(values, empty))
