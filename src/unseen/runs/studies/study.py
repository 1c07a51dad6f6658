"""A study, run: each point's model trained where it must be, each audit once, and one table of all.

The study's folder holds a run folder for every audit (`runs/`), a train run for every model
(`models/`), and `study.json`, the numbers of all points. No text of a record is in it. The same
command again continues.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field, ValidationError

from unseen import __version__
from unseen.attacks import create, label
from unseen.data.read import read_rows
from unseen.data.records import Records, Source, Unsplit, read_source
from unseen.errors import ConfigError, StoreError, UnknownNameError, UnseenError
from unseen.metrics._checks import MIN_PER_SIDE
from unseen.metrics.evaluate import auc_of
from unseen.runs.audit import audit
from unseen.runs.config import FinetuneAudit, made_of
from unseen.runs.folder import RunFolder, slug
from unseen.runs.header import Note
from unseen.runs.plan import check_inputs, check_run_of, choose_attacks
from unseen.runs.prepared import read
from unseen.runs.provenance import now
from unseen.runs.results import Number, Part, Results, Verdict
from unseen.runs.studies.config import AttackStudy, TrainStudy
from unseen.runs.studies.kinds import STUDIES, Point, Study
from unseen.runs.subjects import Subjects
from unseen.runs.training.config import TrainRun
from unseen.runs.training.run_of import of_run, records_of_run
from unseen.runs.training.train import train
from unseen.runs.verify import Item, Verification, verify
from unseen.types import Membership

if TYPE_CHECKING:
    from unseen.runs.collect import Progress
    from unseen.targets.access import LogprobTarget

FILE = "study.json"
PLAN = "plan.json"
_OF_FILES = ("members", "nonmembers", "data", "label_column", "format", "column", "id_column",
             "cluster_by", "slice_by", "limit")  # fmt: skip


class Cell(Part):
    """What one attack reaches at one point."""

    column: str
    attack: str = Field(description="as --attacks reads it back")
    n: tuple[int, int] = Field(description="members and non-members that were scored")
    auc: Number | None = Field(
        None, description="null where nothing could be estimated: see `note`"
    )
    tpr: Number | None = Field(
        None, description="at `fpr` of the study; null where it is not resolved"
    )
    note: str | None = None


class Row(Part):
    """One point."""

    name: str
    x: float | None
    runs: tuple[str, ...] = Field(description="its audits, within the study's folder")
    verdict: Verdict | None = Field(description="the worst of its audits")
    failure: str | None = Field(None, description="why there are no numbers")
    epsilon: float | None = Field(None, description="spent in the training, where that was private")
    cells: tuple[Cell, ...]


class StudyResults(Part):
    """study.json."""

    schema_version: str = "1.0"
    tool: str
    created: str
    name: str
    title: str
    axis: str
    paper: str
    columns: tuple[str, ...]
    fpr: float | None = Field(description="the rate that true-positive rates are given at")
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def invalid(self) -> bool:
        """Whether the evidence is invalid at every point that has any."""
        judged = [row for row in self.rows if row.failure is None]
        return bool(judged) and all(row.verdict == "invalid" for row in judged)


@dataclass(frozen=True)
class _Audit:
    """Points that one audit serves: the attacks of all of them are run together."""

    points: tuple[Point, ...]
    name: str
    number: int

    @property
    def place(self) -> str:
        """The name of its folders."""
        return f"{self.number:02d}-{slug(self.name)}"

    @property
    def attacks(self) -> tuple[str, ...]:
        """Every attack of the points, once."""
        return tuple(dict.fromkeys(spec for one in self.points for spec in one.columns.values()))


def study(
    name: str,
    config: AttackStudy | TrainStudy,
    *,
    target: LogprobTarget | None = None,
    progress: Progress | None = None,
    note: Note | None = None,
    report: Callable[[RunFolder, Results], None] | None = None,
) -> tuple[Path, StudyResults]:
    """Runs, or continues, a study.

    Args:
        name: of the study; see `STUDIES`.
        config: its choices: an `AttackStudy`, or a `TrainStudy` where models are trained.
        target: a target that the caller has made, instead of `config.model`.
        progress: told how far long work is.
        note: told, in a sentence, what the user should know.
        report: writes the report of each audit into its folder.

    Returns:
        The study's folder and its numbers, written already.

    Raises:
        UnseenError: with what is wrong and what to do; what was done before is kept.
    """
    say = note or (lambda _: None)
    about = find(name)
    points = about.points(_values(name, about, config), config)
    folder = _open_folder(name, config)
    pile, chosen = _pile(config)
    works = [_work(one, chosen, folder.path, target, pile) for one in _audits(points)]
    new = _claim(folder, _identity(name, config, points))
    done: list[_Done] = []
    for number, work in enumerate(works, start=1):
        say(f"audit {number} of {len(works)}: {work.of.name}")
        done.append(_carried_out(work, target, progress, say, report))
    failures = [one.failure for one in done if one.failure is not None]
    if len(failures) == len(done):
        if new:
            (folder.path / PLAN).unlink()
        raise failures[0]
    fprs = [_resolved(one.results, one.work.of.attacks) for one in done if one.results is not None]
    fpr = min(set.intersection(*fprs), default=None)
    rows = _merged([row for one in done for row in one.rows(folder.path, fpr)])
    order = {name: at for at, name in enumerate(dict.fromkeys(point.name for point in points))}
    rows.sort(key=lambda row: order[row.name])
    results = StudyResults(
        tool=f"unseen {__version__}",
        created=now(),
        name=name,
        title=about.title,
        axis=about.axis,
        paper=about.paper,
        columns=tuple(dict.fromkeys(column for one in points for column in one.columns)),
        fpr=fpr,
        rows=tuple(rows),
        notes=_notes(rows),
    )
    folder.write_json(FILE, results.model_dump(mode="json"))
    return folder.path, results


def find(name: str) -> Study:
    """A study by its name.

    Raises:
        UnknownNameError: where there is none.
    """
    if name not in STUDIES:
        raise UnknownNameError("study", name, STUDIES)
    return STUDIES[name]


def read_study(folder: Path) -> StudyResults:
    """The numbers of a finished study.

    Raises:
        ConfigError: where the folder holds none.
        StoreError: where they are damaged.
    """
    file = folder / FILE
    try:
        return StudyResults.model_validate(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"{folder} holds no finished study: {error.strerror}") from error
    except (ValueError, ValidationError) as error:
        raise StoreError(f"{file} is damaged", fix="run the study again") from error


def verify_study(path: Path) -> Verification:
    """Looks at every run of a study, and whether its numbers are theirs.

    Raises:
        ConfigError: where the folder holds no finished study.
        StoreError: where its numbers are damaged.
    """
    found = read_study(path)
    items = [Item(what=FILE, ok=True, detail=f"{len(found.rows)} rows of the study {found.name}")]
    audits = dict.fromkeys(run for row in found.rows for run in row.runs)
    models = sorted(
        str(file.parent.relative_to(path)) for file in (path / "models").glob("*/run.json")
    )
    for name in (*audits, *models):
        try:
            faults = [one for one in verify(path / name).items if not one.ok]
        except UnseenError as error:
            items.append(Item(what=name, ok=False, detail=error.problem, fix=error.fix))
            continue
        said = "; ".join(f"{one.what} {one.detail}" for one in faults) or "whole, as it was left"
        items.append(
            Item(what=name, ok=not faults, detail=said, fix=faults[0].fix if faults else None)
        )
    by_run: dict[str, dict[str, Number | None]] = {}
    for name in audits:
        with suppress(StoreError):  # said above
            own = RunFolder(path / name).read_results().attacks
            by_run[name] = {row.name: row.auc for row in own}
    other = [
        f"{row.name}, {cell.column}"
        for row in found.rows
        for cell in row.cells
        if cell.auc is not None
        and cell.tpr is not None  # a number of a whole run, not of a group of its members
        and not any(by_run.get(run, {}).get(cell.attack) == cell.auc for run in row.runs)
    ]
    said = (
        f"differ from those of the runs: {'; '.join(other)}" if other else "are those of the runs"
    )
    items.append(Item(what="numbers", ok=not other, detail=said, fix="run the study again"))
    return Verification(folder=str(path), items=tuple(items))


# --- what is run ------------------------------------------------------------------------------


def _values(name: str, about: Study, config: AttackStudy | TrainStudy) -> tuple[str, ...]:
    if about.trains != isinstance(config, TrainStudy):
        kind = "trains models" if about.trains else "audits a model"
        raise ConfigError(
            f"the study {name} {kind}: it takes {'a TrainStudy' if about.trains else 'an AttackStudy'}"
        )
    values = tuple(dict.fromkeys(config.values or about.values))
    if len(values) < 2 and name not in ("order", "pools"):
        raise ConfigError(
            f"a study needs two points or more, got {','.join(values) or 'none'}",
            fix=f"unseen study {name} --values {','.join(about.values)}",
        )
    return values


def _audits(points: Sequence[Point]) -> list[_Audit]:
    """Points that differ in nothing but their attacks share an audit."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        alike = json.dumps([dict(point.training), dict(point.audit), point.mixed], sort_keys=True)
        groups.setdefault(alike, []).append(point)
    made: list[_Audit] = []
    for mine in groups.values():
        name = mine[0].name if len(mine) == 1 else f"{mine[0].name} to {mine[-1].name}"
        schedule = mine[0].training.get("schedule")
        shown = f"{name}, {schedule}" if schedule else name
        made.append(_Audit(tuple(mine), shown, len(made) + 1))
    return made


@dataclass(frozen=True)
class _Work:
    """One audit, with everything decided: the training before it, its choices, its records."""

    of: _Audit
    training: TrainRun | None
    choices: FinetuneAudit
    records: Records | None


@dataclass(frozen=True)
class _Done:
    """One audit, ended: its run and results, or why there are none."""

    work: _Work
    run: RunFolder | None = None
    results: Results | None = None
    epsilon: float | None = None
    failure: UnseenError | None = None

    def rows(self, folder: Path, fpr: float | None) -> list[Row]:
        """A row for each of its points."""
        if self.run is None or self.results is None:
            why = "it failed" if self.failure is None else self.failure.problem
            return [_failed(point, why) for point in self.work.of.points]
        return [
            _row(point, self.run, self.results, folder, self.epsilon, fpr)
            for point in self.work.of.points
        ]


def _work(
    one: _Audit,
    config: AttackStudy | TrainStudy,
    folder: Path,
    target: LogprobTarget | None,
    pile: _Pile | None,
) -> _Work:
    """Decides everything about one audit, and finds what is wrong with it before any is run."""
    point = one.points[0]
    given: dict[str, Any] = {"attacks": one.attacks, "run_dir": folder / "runs" / one.place}
    choose_attacks(one.attacks)
    if isinstance(config, TrainStudy):
        out = folder / "models" / one.place
        training = made_of(TrainRun, _own(config, TrainRun) | dict(point.training) | {"out": out})
        given |= {
            "run_of": str(out),
            "reference_pool": config.reference_pool,
            "limit": config.limit,
            "fpr": config.fpr,
            "bootstrap": config.bootstrap,
            "dtype": config.audit_dtype,
            "preflight": config.preflight,
            "seed": getattr(config, "seed", 0),  # a field of the recipe
            "cache": config.cache,
            "cache_dir": config.cache_dir,
            "offline": config.offline,
            "threads": config.threads,
            "control": "none",
        }
        for source in (config.data, config.members, config.reference_pool):
            _there(source)
        return _Work(one, training, made_of(FinetuneAudit, given | dict(point.audit)), None)
    given = _own(config, FinetuneAudit) | given
    records = None
    if pile is not None:
        records = pile.mixed(point.mixed, config.seed)
        given = {name: value for name, value in given.items() if name not in _OF_FILES}
    choices = made_of(FinetuneAudit, given | dict(point.audit))
    (check_inputs if choices.run_of is None else check_run_of)(choices, target, records)
    for source in (choices.members, choices.nonmembers, choices.data, choices.reference_pool):
        _there(source)
    return _Work(one, None, choices, records)


def _there(source: str | None) -> None:
    """Refuses a file of records that is not there."""
    if source is not None:
        next(iter(read_rows(source)), None)


def _carried_out(
    work: _Work,
    target: LogprobTarget | None,
    progress: Progress | None,
    say: Note,
    report: Callable[[RunFolder, Results], None] | None,
) -> _Done:
    """Trains and audits; what fails leaves the other points alone."""
    try:
        epsilon = None
        if work.training is not None:
            run = train(work.training, "target", progress=progress, note=say)
            epsilon = (run.about.get("privacy") or {}).get("epsilon")
        folder, results = audit(
            work.choices,
            target=target,
            records=work.records,
            progress=progress,
            note=say,
            report=report,
        )
    except UnseenError as error:
        say(f"{work.of.name} failed: {error.problem}")
        return _Done(work, failure=error)
    return _Done(work, folder, results, epsilon)


def _own(config: FinetuneAudit | TrainRun, kind: type[FinetuneAudit | TrainRun]) -> dict[str, Any]:
    """The choices of a study that are choices of what it repeats."""
    given = {
        name: getattr(config, name) for name in kind.model_fields if name in config.model_fields_set
    }
    return {name: value for name, value in given.items() if name not in ("out", "run_dir")}


@dataclass(frozen=True)
class _Pile:
    """The records of a study, and pre-training texts that stand in for non-members.

    Attributes:
        records: as they are.
        texts: of the base model's training.
        name: the file of these.
    """

    records: Records
    texts: Unsplit
    name: str

    def mixed(self, share: float, seed: int) -> Records:
        """The records, with a share of the non-members replaced.

        Raises:
            ConfigError: where there are too few texts.
        """
        records, texts = self.records, self.texts
        members, nonmembers = records.members, records.nonmembers
        n = round(share * len(nonmembers))
        if n > len(texts.records):
            raise ConfigError(
                f"{self.name} has {len(texts.records)} records, and {n} are needed",
                fix="give more pre-training texts, or fewer non-members: --limit N",
            )
        rng = np.random.default_rng([seed, 77])
        kept = sorted(rng.permutation(len(nonmembers))[: len(nonmembers) - n].tolist())
        taken = sorted(rng.permutation(len(texts.records))[:n].tolist())
        others = [
            replace(
                texts.records[i],
                id=f"pretraining:{texts.records[i].id}",
                slices=dict(nonmembers[0].slices),
            )
            for i in taken
        ]
        both = (*members, *(nonmembers[i] for i in kept), *others)
        member = np.arange(len(both)) < len(members)
        sums = f"{records.sources['nonmembers'].sha256}|{texts.source.sha256}|{share}"
        mixed = Source(
            f"{records.sources['nonmembers'].path} and {texts.source.path}",
            len(both) - len(members),
            hashlib.sha256(sums.encode()).hexdigest(),
        )
        return Records(
            both,
            Membership(tuple(record.id for record in both), member),
            {"members": records.sources["members"], "nonmembers": mixed},
            records.format,
            records.notes,
        )


def _pile(
    config: AttackStudy | TrainStudy,
) -> tuple[_Pile | None, AttackStudy | TrainStudy]:
    """What a study with pre-training texts mixes, read once, and its choices with what a run says."""
    file = None if isinstance(config, TrainStudy) else config.pretraining
    if isinstance(config, TrainStudy) or not file:
        return None, config
    if config.run_of is None:
        records = read(config)
    else:
        of_it, trained = of_run(config)
        records = records_of_run(of_it, trained)
        told = {name: getattr(of_it, name) for name in FinetuneAudit.model_fields}
        changed = {n: v for n, v in told.items() if v != getattr(config, n)}
        config = config.model_copy(update=changed | {"run_of": None})
    return _Pile(records, read_source(file), file), config


# --- what is kept -----------------------------------------------------------------------------


def _failed(point: Point, why: str) -> Row:
    cells = tuple(
        Cell(column=column, attack=label(create(spec)), n=(0, 0), note=why)
        for column, spec in point.columns.items()
    )
    return Row(name=point.name, x=point.x, runs=(), verdict=None, failure=why, cells=cells)


def _row(
    point: Point,
    run: RunFolder,
    results: Results,
    folder: Path,
    epsilon: float | None,
    fpr: float | None,
) -> Row:
    by_name = {row.name: row for row in results.attacks}
    cells = []
    for column, spec in point.columns.items():
        name = label(create(spec))
        row = by_name.get(name)
        if row is None:
            why = results.skipped.get(name, "it was not run")
            cells.append(Cell(column=column, attack=name, n=(0, 0), note=why))
        elif point.members_of is None:
            tpr = next((at.tpr for at in row.tpr_at_fpr if at.fpr == fpr), None)
            cells.append(
                Cell(column=column, attack=name, n=row.n, auc=row.auc, tpr=tpr, note=row.note)
            )
        else:
            cells.append(_of_group(point, run, column, name, results))
    return Row(
        name=point.name,
        x=point.x,
        runs=(str(run.path.relative_to(folder)),),
        verdict=None if results.validity is None else results.validity.verdict,
        epsilon=epsilon,
        cells=tuple(cells),
    )


_WORST: tuple[Verdict | None, ...] = ("invalid", "caution", "valid", None)


def _merged(rows: Sequence[Row]) -> list[Row]:
    """Rows of one name as one: their columns are of several runs."""
    found: dict[str, Row] = {}
    for row in rows:
        before = found.get(row.name)
        if before is None:
            found[row.name] = row
            continue
        verdicts = (before.verdict, row.verdict)
        found[row.name] = before.model_copy(
            update={
                "runs": tuple(dict.fromkeys((*before.runs, *row.runs))),
                "verdict": min(verdicts, key=_WORST.index),
                "failure": before.failure or row.failure,
                "cells": (*before.cells, *row.cells),
            }
        )
    return list(found.values())


def _of_group(point: Point, run: RunFolder, column: str, name: str, results: Results) -> Cell:
    """An attack on one group of the members, against all non-members."""
    by, value = point.members_of or ("", "")
    subjects, scored = Subjects.from_table(run.read_table("records.parquet"))
    scores = scored.target[name]
    place = {id_: at for at, id_ in enumerate(subjects.ids)}
    at = np.array([place[id_] for id_ in scores.ids], dtype=np.int64)
    groups = np.array(subjects.groups[by])[at]
    member = subjects.member[at]
    inside = ~member | (groups == value)
    n = (int((member & inside).sum()), int((~member).sum()))
    if min(n) < MIN_PER_SIDE:
        return Cell(
            column=column, attack=name, n=n, note=f"fewer than {MIN_PER_SIDE} members in a part"
        )
    clusters = subjects.clusters
    found = auc_of(
        scores.values[inside],
        member[inside],
        rng=np.random.default_rng([results.run.seed, 9]),
        clusters=None if clusters is None else [clusters[i] for i in at[inside].tolist()],
    )
    return Cell(column=column, attack=name, n=n, auc=Number.of(found))


def _resolved(results: Results, specs: Sequence[str]) -> set[float]:
    """Rates at which all of the attacks have a true-positive rate."""
    names = {label(create(spec)) for spec in specs}
    rows = [row for row in results.attacks if row.name in names and row.tpr_at_fpr]
    found = [{at.fpr for at in row.tpr_at_fpr if at.tpr is not None} for row in rows]
    return set.intersection(*found) if found else set()


def _notes(rows: Sequence[Row]) -> tuple[str, ...]:
    """What has to be known of whole rows, once for all that it holds for."""
    notes = []
    for verdict, says in (
        ("invalid", "† the evidence is invalid, so that these numbers do not mean membership"),
        ("caution", "* the evidence calls for caution: read the reasons first"),
    ):
        names = [row.name for row in rows if row.verdict == verdict]
        if names:
            whose = "all rows" if len(names) == len(rows) else "; ".join(names)
            sign, _, what = says.partition(" ")
            notes.append(f"{sign} {whose}: {what} (report.md of the run)")
    why = dict.fromkeys(row.failure for row in rows if row.failure is not None)
    for failure in why:
        names = [row.name for row in rows if row.failure == failure]
        notes.append(f"{'; '.join(names)} failed: {failure}")
    return tuple(notes)


# --- the study's folder -----------------------------------------------------------------------


def _open_folder(name: str, config: AttackStudy | TrainStudy) -> RunFolder:
    if isinstance(config, AttackStudy) and config.run_dir is not None:
        raise ConfigError("a study has many run folders", fix="--out DIR instead of --run-dir")
    path = config.out or Path("studies") / name
    if path.is_dir() and not (path / PLAN).is_file() and any(path.iterdir()):
        raise ConfigError(f"{path} is not empty and no study", fix="--out DIR")
    return RunFolder(path)


def _identity(name: str, config: AttackStudy | TrainStudy, points: Sequence[Point]) -> str:
    about = [
        name,
        [
            [one.name, dict(one.columns), dict(one.training), dict(one.audit), one.mixed]
            for one in points
        ],
        config.model_dump(mode="json", exclude={"out", "values", "cache", "cache_dir", "threads"}),
    ]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]


def _claim(folder: RunFolder, identity: str) -> bool:
    """Writes what the study is, and says whether it is new; refuses a folder that holds another."""
    if (folder.path / PLAN).is_file():
        if folder.read_json(PLAN).get("identity") != identity:
            raise ConfigError(
                f"{folder.path} holds another study (other points or choices)",
                fix="give this one a folder of its own: --out DIR",
            )
        return False
    folder.write_json(PLAN, {"identity": identity, "tool": f"unseen {__version__}"})
    return True
