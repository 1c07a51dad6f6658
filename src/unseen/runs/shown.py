"""What attacks take from others: demonstrations to show to the model, texts to count tokens in."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unseen.data.duplicates import repeats_in
from unseen.data.records import read_side
from unseen.errors import DataError
from unseen.runs.config import unread
from unseen.runs.results import CorpusFacts, ReferencePool
from unseen.signals.base import Signal, corpus_needed, pool_needed
from unseen.signals.corpus import Corpus
from unseen.signals.pool import Pool
from unseen.signals.retrieval import retrievals
from unseen.targets.files import default_cache
from unseen.types import Record

if TYPE_CHECKING:
    from unseen.runs.config import FinetuneAudit


@dataclass(frozen=True)
class PoolOfOthers:
    """A pool that is ready.

    Attributes:
        pool: the demonstrations, compared already with the records.
        facts: what the results say of them.
        notes: what the user should know.
    """

    pool: Pool
    facts: ReferencePool
    notes: tuple[str, ...]


def read_pool(
    config: FinetuneAudit, records: Sequence[Record], signals: Sequence[Signal]
) -> PoolOfOthers | None:
    """Reads the reference pool, and everything that can go wrong with it, before a model is loaded.

    Args:
        config: names the file.
        records: the judged records, none of which may be shown.
        signals: what will be measured.

    Returns:
        The pool, or None where none is named, or nothing is measured.

    Raises:
        DataError: where it cannot be read, is empty, or is of another form than the records.
        ConfigError: where it is named and no attack would show it.
        ModelError: where an encoder cannot be loaded.
        MissingExtraError: where an encoder needs a package that is not installed.
    """
    file = config.reference_pool
    if file is None or not signals:
        return None
    counted = corpus_needed(signals) and config.corpus is None
    if not pool_needed(signals) and not counted:
        raise unread("reference_pool", "icp_ref", "dc_pdd")
    found = tuple(filter(_answers, read_side(file)))
    _check_form(found, records, file)
    alike = repeats_in(found, records, config.near_duplicates)
    cache = (config.cache_dir or default_cache()) / "vectors" if config.cache else None
    pool = Pool(found, alike, cache)
    encoders = sorted({signal.encoder for signal in retrievals(signals)})
    for encoder in encoders:
        pool.index(encoder)
    most = max((signal.probes for signal in retrievals(signals)), default=0)
    notes = []
    if alike and pool_needed(signals):
        notes.append(
            f"{len(alike)} records stand in the reference pool too, alike or nearly so: none is "
            "shown to itself"
        )
    if len(found) < most:
        notes.append(
            f"the reference pool has {len(found)} demonstrations, icp_ref would show {most} of them"
        )
    facts = ReferencePool(
        path=file, sha256=_content_hash(found), n=len(found), encoders=tuple(encoders),
        n_audited=len(set().union(*alike.values())),
    )  # fmt: skip
    return PoolOfOthers(pool, facts, tuple(notes))


@dataclass(frozen=True)
class Counted:
    """A corpus that is ready: corpus, facts and notes as of `PoolOfOthers`."""

    corpus: Corpus
    facts: CorpusFacts
    notes: tuple[str, ...]


def read_corpus(
    config: FinetuneAudit,
    records: Sequence[Record],
    pool: Pool | None,
    signals: Sequence[Signal],
) -> Counted | None:
    """Texts to count tokens in: those of a file, or else of the reference pool.

    What repeats an audited record, or nearly so, is not counted: its tokens would be common for
    no other reason than that it is audited.

    Raises:
        DataError: where the file cannot be read, is empty, or holds audited records alone.
        ConfigError: where it is named and nothing would be counted.
    """
    file = config.corpus
    if not corpus_needed(signals):
        if file is not None and signals:
            raise unread("corpus", "dc_pdd")
        return None
    if file is None and pool is None:
        return None
    found = read_side(file) if file is not None else () if pool is None else pool.records
    where = file or config.reference_pool or ""
    alike = repeats_in(found, records, config.near_duplicates)
    audited = set().union(*alike.values())
    if len(audited) == len(found):
        raise DataError(
            "holds audited records alone, alike or nearly so: nothing is left to count tokens in",
            path=where,
            fix="name a file of other texts: --corpus FILE",
        )
    cache = (config.cache_dir or default_cache()) / "frequencies" if config.cache else None
    texts = [record.text for at, record in enumerate(found) if at not in audited]
    corpus = Corpus(texts, cache)
    notes = []
    if audited:
        notes.append(
            f"{len(audited)} of {len(found)} texts of the corpus are audited records, alike or "
            "nearly so: their tokens are not counted"
        )
    facts = CorpusFacts(path=where, sha256=corpus.sha256, n=corpus.n, n_audited=len(audited))
    return Counted(corpus, facts, tuple(notes))


def _answers(record: Record) -> bool:
    """Whether a record ends with what a model says: only then another can follow it."""
    return record.turns[-1].is_response and record.is_answered


def _check_form(found: Sequence[Record], records: Sequence[Record], file: str) -> None:
    if not found:
        raise DataError(
            "holds no demonstration: no record has a response",
            path=file,
            fix='write one a line: {"prompt": "...", "completion": "..."}',
        )
    of_pool, of_records = (_kind(one[0]) for one in (found, records))
    if of_pool != of_records:
        raise DataError(
            f"holds {of_pool}, and the audited records are {of_records}: a demonstration has to be "
            "of their form",
            path=file,
            fix="name a file of the same form (see the forms: unseen audit finetune --help), or "
            f"leave out --reference-pool {shlex.quote(file)}",
        )


def _kind(record: Record) -> str:
    return "documents" if record.turns[0].role == "text" else "conversations"


def _content_hash(records: Sequence[Record]) -> str:
    digest = hashlib.sha256()
    for record in records:
        turns = [(turn.role, turn.content) for turn in record.turns]
        digest.update(json.dumps(turns).encode())
    return digest.hexdigest()
