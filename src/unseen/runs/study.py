"""A study, run: each point's model trained where it must be, each audit once, and one table of all.

The study's folder holds a run folder for every audit (`runs/`), a train run for every model
(`models/`), and `study.json`, the numbers of all points. No text of a record is in it. The same
command again continues.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field, ValidationError

from unseen import __version__
from unseen.attacks import create, label
from unseen.data.records import Records, Source, read_source
from unseen.errors import ConfigError, StoreError, UnknownNameError
from unseen.metrics.evaluate import auc_of
from unseen.runs.audit import Note, audit
from unseen.runs.config import FinetuneAudit, made_of
from unseen.runs.folder import RunFolder, slug
from unseen.runs.judge import Subjects
from unseen.runs.prepared import read
from unseen.runs.provenance import now
from unseen.runs.results import Number, Part, Results, Verdict
from unseen.runs.studies import STUDIES, Point, Study
from unseen.runs.study_config import AttackStudy, TrainStudy
from unseen.runs.train import train
from unseen.runs.train_config import TrainRun
from unseen.types import Membership

if TYPE_CHECKING:
    from unseen.runs.collect import Progress
    from unseen.targets.access import LogprobTarget

FILE = "study.json"


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
    run: str = Field(description="its audit, within the study's folder")
    verdict: Verdict | None
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
    values = _values(name, about, config)
    points = about.points(values, config)
    folder = _open_folder(name, config)
    identity = _identity(name, config, points)
    _claim(folder, identity)
    rows: dict[int, Row] = {}
    fprs: list[set[float]] = []
    audits = _audits(points)
    for number, (one, places) in enumerate(audits, start=1):
        say(f"audit {number} of {len(audits)}: {one.name}")
        run, results, epsilon = _audited(one, config, folder.path, target, progress, say, report)
        fprs.append(_resolved(results, one.attacks))
        for place in places:
            rows[place] = _row(points[place], run, results, folder.path, epsilon)
    shared = min(set.intersection(*fprs), default=None) if fprs else None
    results_ = StudyResults(
        tool=f"unseen {__version__}",
        created=now(),
        name=name,
        title=about.title,
        axis=about.axis,
        paper=about.paper,
        columns=tuple(dict.fromkeys(column for one in points for column in one.columns)),
        fpr=shared,
        rows=tuple(_with_rates(rows[place], folder.path, shared) for place in range(len(points))),
        notes=_notes(rows.values()),
    )
    folder.write_json(FILE, results_.model_dump(mode="json"))
    return folder.path, results_


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


def _audits(points: Sequence[Point]) -> list[tuple[_Audit, list[int]]]:
    """Points that differ in nothing but their attacks share an audit."""
    groups: dict[str, list[int]] = {}
    for place, point in enumerate(points):
        alike = json.dumps([dict(point.training), dict(point.audit), point.mixed], sort_keys=True)
        groups.setdefault(alike, []).append(place)
    made: list[tuple[_Audit, list[int]]] = []
    for places in groups.values():
        mine = tuple(points[place] for place in places)
        names = dict.fromkeys(
            point.name.partition(", ")[2] or point.name if point.members_of else point.name
            for point in mine
        )
        shown = next(iter(names)) if len(names) == 1 else f"{next(iter(names))} and others"
        made.append((_Audit(mine, shown, len(made) + 1), places))
    return made


def _audited(
    one: _Audit,
    config: AttackStudy | TrainStudy,
    folder: Path,
    target: LogprobTarget | None,
    progress: Progress | None,
    say: Note,
    report: Callable[[RunFolder, Results], None] | None,
) -> tuple[RunFolder, Results, float | None]:
    point = one.points[0]
    given: dict[str, Any] = {"attacks": one.attacks, "run_dir": folder / "runs" / one.place}
    epsilon = None
    if isinstance(config, TrainStudy):
        out = folder / "models" / one.place
        run = train(
            made_of(TrainRun, _own(config, TrainRun) | dict(point.training) | {"out": out}),
            "target",
            progress=progress,
            note=say,
        )
        epsilon = (run.about.get("privacy") or {}).get("epsilon")
        given |= {
            "run_of": str(out),
            "reference_pool": config.reference_pool,
            "limit": config.limit,
            "fpr": config.fpr,
            "bootstrap": config.bootstrap,
            "dtype": config.audit_dtype,
            "seed": getattr(config, "seed", 0),  # a field of the recipe
            "cache": config.cache,
            "cache_dir": config.cache_dir,
            "offline": config.offline,
            "threads": config.threads,
            "control": "none",
        }
        records = None
    else:
        given = _own(config, FinetuneAudit) | given
        records = _mixed(config, point.mixed) if point.mixed or config.pretraining else None
    choices = made_of(FinetuneAudit, given | dict(point.audit))
    if records is not None:
        unread = ("members", "nonmembers", "data", "label_column", "format", "column", "id_column",
                  "cluster_by", "slice_by", "limit")  # fmt: skip
        fields = FinetuneAudit.model_fields
        choices = choices.model_copy(update={name: fields[name].default for name in unread})
    folder_, results = audit(
        choices, target=target, records=records, progress=progress, note=say, report=report
    )
    return folder_, results, epsilon


def _own(config: FinetuneAudit | TrainRun, kind: type[FinetuneAudit | TrainRun]) -> dict[str, Any]:
    """The choices of a study that are choices of what it repeats."""
    given = {
        name: getattr(config, name) for name in kind.model_fields if name in config.model_fields_set
    }
    return {name: value for name, value in given.items() if name not in ("out", "run_dir")}


def _mixed(config: AttackStudy, share: float) -> Records:
    """The records, with a share of the non-members replaced by pre-training texts.

    Raises:
        ConfigError: where there are too few of these.
    """
    records = read(config)
    members, nonmembers = records.members, records.nonmembers
    n = round(share * len(nonmembers))
    texts = read_source(config.pretraining or "")
    if n > len(texts.records):
        raise ConfigError(
            f"{config.pretraining} has {len(texts.records)} records, and {n} are needed",
            fix="give more pre-training texts, or fewer non-members: --limit N",
        )
    rng = np.random.default_rng([config.seed, 77])
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


# --- what is kept -----------------------------------------------------------------------------


def _row(
    point: Point, run: RunFolder, results: Results, folder: Path, epsilon: float | None
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
            cells.append(Cell(column=column, attack=name, n=row.n, auc=row.auc, note=row.note))
        else:
            cells.append(_of_group(point, run, column, name, results))
    return Row(
        name=point.name,
        x=point.x,
        run=str(run.path.relative_to(folder)),
        verdict=None if results.validity is None else results.validity.verdict,
        epsilon=epsilon,
        cells=tuple(cells),
    )


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
    if min(n) < 5:
        return Cell(column=column, attack=name, n=n, note="too few records")
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


def _with_rates(row: Row, folder: Path, fpr: float | None) -> Row:
    """The row, with true-positive rates at a rate that all points resolve."""
    if fpr is None:
        return row
    results = RunFolder(folder / row.run).read_results()
    rates = {one.name: {at.fpr: at.tpr for at in one.tpr_at_fpr} for one in results.attacks}
    cells = [
        cell
        if cell.auc is None or cell.n != _n_of(results, cell.attack)
        else cell.model_copy(update={"tpr": rates.get(cell.attack, {}).get(fpr)})
        for cell in row.cells
    ]
    return row.model_copy(update={"cells": tuple(cells)})


def _n_of(results: Results, name: str) -> tuple[int, int] | None:
    return next((row.n for row in results.attacks if row.name == name), None)


def _notes(rows: Iterable[Row]) -> tuple[str, ...]:
    return tuple(
        f"{row.name}: the evidence is {row.verdict}; {row.run}/report.md says why"
        for row in rows
        if row.verdict in ("invalid", "caution")
    )


# --- the study's folder -----------------------------------------------------------------------


def _open_folder(name: str, config: AttackStudy | TrainStudy) -> RunFolder:
    if isinstance(config, AttackStudy) and config.run_dir is not None:
        raise ConfigError("a study has many run folders", fix="--out DIR instead of --run-dir")
    path = config.out or Path("studies") / name
    if path.is_dir() and not (path / "plan.json").is_file() and any(path.iterdir()):
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


def _claim(folder: RunFolder, identity: str) -> None:
    """Writes what the study is; refuses a folder that holds another one."""
    if (folder.path / "plan.json").is_file():
        if folder.read_json("plan.json").get("identity") != identity:
            raise ConfigError(
                f"{folder.path} holds another study (other points or choices)", fix="--out DIR"
            )
        return
    folder.write_json("plan.json", {"identity": identity, "tool": f"unseen {__version__}"})
