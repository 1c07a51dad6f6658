"""From the user's words to records that are ready to be judged, and the facts about them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from unseen.attacks.base import Attack, fewest_known
from unseen.data.duplicates import Dropped, drop_overlap, repeated
from unseen.data.records import Records
from unseen.data.shift import telling_words
from unseen.data.split import JUDGED_PER_KNOWN, set_aside
from unseen.data.templates import RecordEncoder
from unseen.errors import ConfigError
from unseen.runs.apart import ApartSet, read_apart
from unseen.runs.given import Given, read_paraphrases, read_probes
from unseen.runs.inside.directed import Directed, read_directions
from unseen.runs.judge import FIT_FOLDS
from unseen.runs.rendered import rendered
from unseen.runs.results import (
    CorpusFacts,
    DataFacts,
    GivenParaphrases,
    GivenProbes,
    ReferencePool,
    Side,
)
from unseen.runs.shown import read_corpus, read_pool
from unseen.signals.base import (
    Encoder,
    PopulationSignal,
    Shown,
    Signal,
    known_needed,
    population_wanted,
)
from unseen.signals.corpus import Corpus
from unseen.signals.pool import Pool

if TYPE_CHECKING:
    from unseen.runs.config import FinetuneAudit
    from unseen.types import Record


@dataclass
class Prepared:
    """Records after everything that can be done without a model."""

    judged: Records
    known: Records
    dropped: tuple[Dropped, ...]
    repeated: dict[str, int]
    notes: list[str] = field(default_factory=list)
    telling_words: tuple[str, ...] = ()
    pool: Pool | None = None
    pool_facts: ReferencePool | None = None
    corpus: Corpus | None = None
    corpus_facts: CorpusFacts | None = None
    given: Given[GivenProbes] | None = None
    paraphrases: Given[GivenParaphrases] | None = None
    directed: Directed | None = None
    apart: tuple[ApartSet, ...] = ()

    @property
    def further(self) -> tuple[Record, ...]:
        """The non-members that are judged apart, of all sets."""
        return tuple(row for one in self.apart for row in one.records.nonmembers)

    @property
    def shown(self) -> Shown:
        """What signals may show to models, or compare with."""
        return Shown(
            known_members=self.known.members,
            known_nonmembers=self.known.nonmembers,
            pool=self.pool,
            corpus=self.corpus,
            probes=None if self.given is None else self.given.texts,
            paraphrases=None if self.paraphrases is None else self.paraphrases.texts,
            directions=None if self.directed is None else self.directed.vectors,
        )


def read(config: FinetuneAudit) -> Records:
    """The records that a configuration names."""
    options: dict[str, Any] = {**config.reading, "limit": config.limit, "seed": config.seed}
    if config.data is not None:
        return Records.from_file(config.data, label_column=config.label_column or "", **options)
    return Records.from_files(config.members or "", config.nonmembers or "", **options)


def prepare(config: FinetuneAudit, records: Records, signals: Iterable[Signal] = ()) -> Prepared:
    """Takes out what occurs on both sides, and sets aside what the signals need to know.

    Raises:
        ConfigError: where a side has no records left.
        DataError: where the reference pool cannot be read, or does not fit.
    """
    signals = tuple(signals)
    apart, dropped = drop_overlap(records, config.near_duplicates)
    if not len(apart.members) or not len(apart.nonmembers):
        raise ConfigError(
            "no records are left on one side: all of them occur on the other side too",
            fix="members and non-members must be different records of the same source",
        )
    members, nonmembers = known_needed(signals)
    room = len(apart.nonmembers) // (1 + JUDGED_PER_KNOWN)
    population = min(population_wanted(signals), room)
    # Where there are too few for what stands before a text, a population is set aside all the same.
    nonmembers = max(nonmembers, population) if nonmembers <= room else population or nonmembers
    split = set_aside(
        apart, members=members, nonmembers=nonmembers, rng=np.random.default_rng([config.seed, 1])
    )
    notes = [*records.notes, *split.reasons]
    if dropped:
        notes.append(
            f"{len(dropped)} records occur on both sides, alike or nearly so, and are dropped "
            "(data/dropped.csv)"
        )
    twins = repeated(split.audited)
    if any(twins.values()):
        notes.append(
            f"{sum(twins.values())} records repeat another of their side: equal texts are judged "
            "as one group, which makes intervals wider"
        )
    words = telling_words(split.audited.members, split.audited.nonmembers)
    if words:
        # Said to whoever has the records; the run folder counts them, unless text is revealed.
        notes.append(f"words that tell members from non-members: {', '.join(words)}")
    sets = read_apart(config, split.audited, records)
    notes += [note for one in sets for note in one.notes]
    asked = (*split.audited.records, *(row for one in sets for row in one.records.nonmembers))
    given = read_probes(config, asked, signals)
    notes += () if given is None else given.notes
    paraphrases = read_paraphrases(config, asked, signals)
    notes += () if paraphrases is None else paraphrases.notes
    directed = read_directions(config, signals)
    shown = read_pool(config, asked, signals)
    pool, facts = (None, None) if shown is None else (shown.pool, shown.facts)
    notes += () if shown is None else shown.notes
    counted = read_corpus(config, asked, pool, signals)
    corpus, corpus_facts = (None, None) if counted is None else (counted.corpus, counted.facts)
    notes += () if counted is None else counted.notes
    return Prepared(
        judged=split.audited,
        known=split.known,
        dropped=dropped,
        repeated=twins,
        notes=notes,
        telling_words=words,
        pool=pool,
        pool_facts=facts,
        corpus=corpus,
        corpus_facts=corpus_facts,
        given=given,
        paraphrases=paraphrases,
        directed=directed,
        apart=sets,
    )


def too_few_known(signals: Iterable[Signal], prepared: Prepared) -> str | None:
    """Why signals have too few records set aside to say anything, or None where they have enough."""
    signals = tuple(signals)
    wanted = known_needed(signals)
    populated = any(isinstance(signal, PopulationSignal) for signal in signals)
    sides = (
        ("members", wanted[0], prepared.judged.members, prepared.known.members),
        (
            "non-members",
            max(wanted[1], populated),
            prepared.judged.nonmembers,
            prepared.known.nonmembers,
        ),
    )
    for side, count, judged, known in sides:
        there, takes = len(judged) + len(known), (1 + JUDGED_PER_KNOWN) * count
        if count and (there < takes or not known):
            return (
                f"it needs {count} {side} set aside, which takes {takes} {side} (four to judge for each), "
                f"and there are {there}"
            )
    return None


def too_few_to_learn(attack: Attack, prepared: Prepared) -> str | None:
    """Why an attack that is cross-fitted has too few records, or None where it has enough."""
    needed = fewest_known(attack)
    sides = {"members": prepared.judged.members, "non-members": prepared.judged.nonmembers}
    for side, records in sides.items():
        n = len(records)
        if n - -(-n // FIT_FOLDS) < needed:
            takes = -(-needed * FIT_FOLDS // (FIT_FOLDS - 1))
            return (
                f"it learns from {needed} {side} at least, beside those that it judges, which takes "
                f"{takes}, and there are {n}"
            )
    return None


def data_facts(
    config: FinetuneAudit,
    prepared: Prepared,
    encoder: Encoder | None,
    lengths: Mapping[str, int],
    truncated: int,
) -> DataFacts:
    """The records without their text.

    Args:
        config: how they were read.
        prepared: the records.
        encoder: the target's; None where no model was named.
        lengths: scored tokens of each judged record; empty where nobody was there to count.
        truncated: judged records that were cut.
    """
    judged, known = prepared.judged, prepared.known
    template = encoder.template if isinstance(encoder, RecordEncoder) else None
    return DataFacts(
        members=Side.of(judged.sources["members"], len(judged.members)),
        nonmembers=Side.of(judged.sources["nonmembers"], len(judged.nonmembers)),
        format=judged.format,
        loss_on=config.loss_on,
        template_sha256=hashlib.sha256((template or "plain").encode()).hexdigest(),
        dropped=dict(Counter(dropped.reason for dropped in prepared.dropped)),
        set_aside=(len(known.members), len(known.nonmembers)),
        reference_pool=prepared.pool_facts,
        corpus=prepared.corpus_facts,
        probes=None if prepared.given is None else prepared.given.facts,
        paraphrases=None if prepared.paraphrases is None else prepared.paraphrases.facts,
        directions=None if prepared.directed is None else prepared.directed.facts,
        truncated=truncated,
        repeated=(prepared.repeated["members"], prepared.repeated["nonmembers"]),
        scored_tokens=sum(lengths.values()),
        split_origin=config.split_origin,
        nonmember_kind=config.nonmember_kind,
        nonmembers_apart=tuple(config.apart),
        example=() if encoder is None else rendered(judged.records, encoder),
        telling_words=prepared.telling_words if config.reveal else (),
        n_telling_words=len(prepared.telling_words),
    )
