"""Non-members of other kinds: measured as the others are, judged apart, never pooled with them.

Members beside records that answer wrongly, or that came later, are told apart by truth or novelty
too. Such sets say how much of a score that is, and nothing about membership by themselves. Each is
judged with the same members, by attacks that learn anew from that set alone.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unseen.attacks import create
from unseen.attacks.base import Attack
from unseen.data.duplicates import inseparable, normalised
from unseen.data.records import Records, Source, read_source
from unseen.errors import DataError, TooFewRecordsError
from unseen.metrics.compare import other_nonmembers
from unseen.runs.fused import LEARNT, is_learnt
from unseen.runs.judge import CHANCE, Judge
from unseen.runs.results import Apart, AttackResult, Number, Shift, Side
from unseen.runs.subjects import Scored, Subjects
from unseen.signals.base import CONTROL, REFERENCE
from unseen.types import Membership, Record, Scores

if TYPE_CHECKING:
    from unseen.runs.config import FinetuneAudit, StatisticsChoices
    from unseen.runs.folder import RunFolder

MOST_OF_A_QUESTION = 10
"""Records that share a question. What more of them begin with is an instruction to all."""

_STREAM = 30  # of random numbers; those of judging and comparing have other numbers


@dataclass(frozen=True)
class ApartSet:
    """One further set of non-members, beside the members of the audit.

    Attributes:
        kind: what they are.
        records: the judged members, and these non-members, whose ids say their kind.
        n_copies: how many say what a record of the audit says, and are left out.
    """

    kind: str
    records: Records
    n_copies: int

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know."""
        if not self.n_copies:
            return ()
        return (
            f"{self.n_copies} {self.kind} non-members are copies of records of the audit, and are "
            "left out",
        )


def read_apart(config: FinetuneAudit, judged: Records, everything: Records) -> tuple[ApartSet, ...]:
    """Reads the further sets, and everything that can go wrong with them, before a model is loaded.

    A record that shares the question of another, and not the answer, stays: that is what a
    counterfactual is. Records with one question are resampled together, and never split.

    Args:
        config: names the files.
        judged: the records of the audit that are judged.
        everything: all records that were read for it, none of which may be among these.

    Raises:
        DataError: where a file cannot be read, is of another form, or has no record left.
    """
    return tuple(
        _read(config, kind, file, judged, everything) for kind, file in config.apart.items()
    )


def _read(
    config: FinetuneAudit, kind: str, file: str, judged: Records, everything: Records
) -> ApartSet:
    found = read_source(file, **(config.reading | {"slice_by": ()}))
    option = f"--nonmembers-apart {shlex.quote(f'{kind}={file}')}"
    if found.format != everything.format:
        raise DataError(
            f"holds records of the form {found.format}, and those of the audit are {everything.format}",
            path=file,
            fix=f"write them in one form, or leave out {option}",
        )
    known = {normalised(record.text) for record in everything.records}
    kept = [record for record in found.records if normalised(record.text) not in known]
    if not kept:
        raise DataError(
            "has no record that is not one of the audit's" if found.records else "holds no records",
            path=file,
            fix=f"name another file, or leave out {option}",
        )
    others = [dataclasses.replace(record, id=f"{kind}:{record.id}") for record in kept]
    rows = _together([*judged.members, *others])
    n_members = len(judged.members)
    member = np.arange(len(rows)) < n_members
    member.flags.writeable = False
    records = Records(
        records=rows,
        membership=Membership(tuple(row.id for row in rows), member),
        sources={
            "members": judged.sources["members"],
            "nonmembers": Source(file, len(found.records), found.source.sha256),
        },
        format=found.format,
    )
    # The members are no more than the limit already: they stay as they are.
    return ApartSet(
        kind, records.sample(config.limit, seed=config.seed), len(found.records) - len(kept)
    )


def _together(records: Sequence[Record]) -> tuple[Record, ...]:
    """The records with a cluster for those that share cluster, text or question; without groups."""
    questions = [_question(record) for record in records]
    n = Counter(questions)
    asked = [one if n[one] <= MOST_OF_A_QUESTION else None for one in questions]
    groups = inseparable(records, asked)
    number = {at: str(i) for i, group in enumerate(groups) if len(group) > 1 for at in group}
    return tuple(
        dataclasses.replace(record, cluster=number.get(at), slices={})
        for at, record in enumerate(records)
    )


def _question(record: Record) -> str | None:
    """What a record answers; None for a document."""
    return normalised("\n".join(turn.content for turn in record.turns[:-1])) or None


# --- judging ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Repeated:
    """Attacks by the model that they are run on.

    Attributes:
        target: the target.
        control: the reference.
        control_model: the control model.
    """

    target: tuple[Attack, ...]
    control: tuple[Attack, ...] = ()
    control_model: tuple[Attack, ...] = ()


def facts_of(one: ApartSet, requests: Mapping[str, int]) -> Apart:
    """What the results say of a set before it is judged."""
    source = one.records.sources["nonmembers"]
    members, others = len(one.records.members), len(one.records.nonmembers)
    return Apart(
        kind=one.kind,
        source=Side.of(source, others),
        n=(members, others),
        n_copies=one.n_copies,
        requests=dict(requests),
    )


def judged_apart(
    about: Apart, judge: Judge, attacks: Repeated, scored: Scored, main: tuple[Subjects, Scored]
) -> Apart:
    """What a set shows.

    Args:
        about: the set; rows that it has are replaced.
        judge: of this set.
        attacks: those that the set is judged by.
        scored: their scores.
        main: the audit's own records and their scores.
    """
    rows, controls = judge.rows(attacks.target, attacks.control, attacks.control_model, scored)
    plain = [[row.model_copy(update={"roc": None}) for row in some] for some in (rows, controls)]
    return about.model_copy(
        update={
            "attacks": tuple(plain[0]),
            "control": tuple(plain[1]),
            "shifts": tuple(_shifts(rows, judge, scored, main)),
            "separates": tuple(dict.fromkeys(row.name for row in controls if _is_off(row))),
        }
    )


def again(
    before: Apart, choices: StatisticsChoices, folder: RunFolder, main: tuple[Subjects, Scored]
) -> Apart:
    """The same scores with other statistics; attacks that a run has added since are not among them.

    Raises:
        StoreError: where the scores are missing or damaged.
    """
    subjects, scored = Subjects.from_table(folder.read_table(file_of(before.kind)))

    def named(role: str | None) -> tuple[Attack, ...]:
        rows = before.attacks if role is None else before.control
        return tuple(create(row.name) for row in rows if role is None or row.model == role)

    attacks = Repeated(named(None), named(REFERENCE), named(CONTROL))
    return judged_apart(before, Judge(choices, subjects), attacks, scored, main)


def file_of(kind: str) -> str:
    """Where a run keeps the scores of a set."""
    return f"apart/{kind}.parquet"


def _is_off(row: AttackResult) -> bool:
    """Whether the row's interval excludes chance; what learns comes out below it by itself."""
    if row.auc is None:
        return False
    low, high = row.auc.ci
    return low > CHANCE or (high < CHANCE and not is_learnt(row))


def _shifts(
    rows: Iterable[AttackResult], judge: Judge, scored: Scored, main: tuple[Subjects, Scored]
) -> Iterator[Shift]:
    """How the AUC of each attack differs from that on the audit's own non-members."""
    subjects, own = main
    for row in rows:
        if row.name in own.target:
            sides = _sides(subjects, own.target[row.name])
            others = _sides(judge.subjects, scored.target[row.name])
            yield _shift(row, judge, sides, others)


@dataclass(frozen=True)
class _Sides:
    """Scores of one attack by record id, and the cluster of each record."""

    members: Mapping[str, float]
    nonmembers: Mapping[str, float]
    clusters: Mapping[str, int | str | None]


def _sides(subjects: Subjects, scores: Scores) -> _Sides:
    of = dict(zip(scores.ids, scores.values.tolist(), strict=True))
    member = dict(zip(subjects.ids, subjects.member.tolist(), strict=True))
    return _Sides(
        {id_: value for id_, value in of.items() if member[id_]},
        {id_: value for id_, value in of.items() if not member[id_]},
        dict(zip(subjects.ids, subjects.clusters or (None,) * len(subjects.ids), strict=True)),
    )


def _shift(row: AttackResult, judge: Judge, own: _Sides, apart: _Sides) -> Shift:
    both = [id_ for id_ in own.members if id_ in apart.members]
    choices, learnt = judge.choices, is_learnt(row)
    try:
        found = other_nonmembers(
            ([own.members[id_] for id_ in both], [apart.members[id_] for id_ in both]),
            (list(own.nonmembers.values()), list(apart.nonmembers.values())),
            rng=np.random.default_rng([choices.seed, _STREAM]),
            confidence=choices.confidence,
            draws=choices.bootstrap,
            clusters=(
                [apart.clusters[id_] for id_ in both],
                [own.clusters[id_] for id_ in own.nonmembers],
                [apart.clusters[id_] for id_ in apart.nonmembers],
            ),
            wider=LEARNT if learnt else 1.0,
        )
    except TooFewRecordsError as error:
        return Shift(attack=row.name, note=error.problem)
    return Shift(attack=row.name, difference=Number.of(found))
