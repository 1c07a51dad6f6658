"""Is a run folder whole, readable and as the run left it?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from unseen.errors import ConfigError, StoreError, UnseenError
from unseen.metrics.roc import auc
from unseen.runs.apart import file_of
from unseen.runs.config import StatisticsChoices
from unseen.runs.folder import RunFolder, check_version
from unseen.runs.prompt.judged import file_of as file_of_setting
from unseen.runs.results import AttackResult, Part, Results
from unseen.runs.subjects import Scored, Subjects
from unseen.runs.training.trained import MANIFEST, MODEL, SHADOWS, TRAIN, TrainedRun

NEEDED = ("run.json", "config.yaml", "results.json", "records.parquet", "report.md")
"""Files that a finished run has, beside its manifest."""

NEEDED_OF_TRAINING = ("run.json", "config.yaml", MANIFEST, "losses.csv", MODEL)
"""What a finished train run has, beside its manifest."""

_ROUNDING = 1e-9

_TRAIN_AGAIN = "train again: unseen train, into another folder"
_AGAIN = "run the audit again: answers that are still in the cache are not asked for again"


class Item(Part):
    """One thing that was looked at."""

    what: str
    ok: bool
    detail: str
    fix: str | None = None


class Verification(Part):
    """What a run folder is found to be.

    The hashes find accidents and careless edits. They are no signature: whoever rewrites a file can
    rewrite its hash.
    """

    folder: str
    items: tuple[Item, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return all(item.ok for item in self.items)


@dataclass(frozen=True)
class FinishedRun:
    """A run that ended, and that nobody has changed since.

    Attributes:
        folder: where it is.
        about: run.json.
        results: results.json.
        subjects: the judged records.
        scored: the scores that they were given.
    """

    folder: RunFolder
    about: dict[str, Any]
    results: Results
    subjects: Subjects
    scored: Scored

    @property
    def config(self) -> dict[str, Any]:
        """The choices of the run, as they were written down."""
        config: dict[str, Any] = self.about["config"]
        return config

    @property
    def choices(self) -> StatisticsChoices:
        """Rates, level, draws and seed of the run; what is not written down is as usual."""
        return _choices(self.folder, self.about)


def finished(path: Path) -> FinishedRun:
    """Opens a run to read numbers from it.

    Raises:
        ConfigError: where there is no run.
        StoreError: where the run is unfinished, changed, damaged or of another version.
    """
    folder = RunFolder.existing(path)
    about = folder.read_json("run.json")
    if about.get("scenario") in (TRAIN, SHADOWS):
        raise ConfigError(
            f"{path} is a training, and no audit", fix=f"unseen audit finetune --run-of {path}"
        )
    _ended(folder, about)
    _choices(folder, about)
    faults = _altered(folder)
    if faults:
        raise StoreError(
            f"{path} is not as the run left it: {'; '.join(faults)}",
            fix=f"unseen verify {path} lists every file; {_AGAIN}",
        )
    results = folder.read_results()
    subjects, scored = _records(folder)
    return FinishedRun(folder, about, results, subjects, scored)


def verify(path: Path) -> Verification:
    """Looks at everything, and says of each whether it is as it should be.

    Raises:
        ConfigError: where there is no run.
    """
    folder = RunFolder.existing(path)
    items: list[Item] = []
    about = _tried(items, "run.json", lambda: folder.read_json("run.json"), _header)
    if about is not None and about.get("scenario") in (TRAIN, SHADOWS):
        return _of_training(folder, items, about)
    if about is not None:
        _tried(items, "status", lambda: _ended(folder, about), lambda _: "complete")
        _tried(items, "choices", lambda: _choices(folder, about), _seed)
    missing = [name for name in NEEDED if not (path / name).is_file()]
    items += [Item(what=name, ok=False, detail="is missing", fix=_AGAIN) for name in missing]
    items += _files(folder, missing)
    results = None
    if "results.json" not in missing:
        results = _tried(items, "results.json", folder.read_results, _schema)
    if "records.parquet" not in missing:
        read = _tried(items, "records.parquet", lambda: _records(folder), _count)
        if read is not None and results is not None:
            _agree(items, results, *read)
    tables = {} if results is None else {
        **{file_of(one.kind): (*one.attacks, *one.control) for one in results.apart},
        **{file_of_setting(one.name): (*one.attacks, *one.control) for one in results.settings},
    }  # fmt: skip
    for name, rows in tables.items():
        found = _tried(items, name, partial(_records, folder, name), _count)
        if found is not None:
            _agree_rows(items, name, rows, *found)
    items += _foreign(folder)
    return Verification(folder=str(path), items=tuple(items))


def _of_training(folder: RunFolder, items: list[Item], about: dict[str, Any]) -> Verification:
    """A train run, or a folder of shadow models, each of which is one."""
    path = folder.path
    _tried(items, "status", lambda: _ended(folder, about), lambda _: "complete")
    if about["scenario"] == SHADOWS:
        runs = sorted(path.glob("shadow-*/run.json"))
        said = f"{len(runs)} shadow models"
        if len(runs) != about.get("count"):
            said += f", and run.json speaks of {about.get('count')}"
        items.append(Item(what="shadows", ok=len(runs) == about.get("count"), detail=said))
        for file in runs:
            inside = verify(file.parent).items
            items += [
                one.model_copy(update={"what": f"{file.parent.name}/{one.what}"}) for one in inside
            ]
        return Verification(folder=str(path), items=tuple(items))
    missing = [name for name in NEEDED_OF_TRAINING if not (path / name).exists()]
    items += [Item(what=name, ok=False, detail="is missing", fix=_TRAIN_AGAIN) for name in missing]
    items += _files(folder, missing, _TRAIN_AGAIN)
    if all(item.ok for item in items):
        _tried(items, MANIFEST, lambda: _trained(path), lambda said: said)
    items += _foreign(folder)
    return Verification(folder=str(path), items=tuple(items))


def _trained(path: Path) -> str:
    run = TrainedRun(path)
    found = {"trained": run.n_trained, "held_out": len(run.rows) - run.n_trained}
    if found != run.about.get("n"):
        raise StoreError(
            f"holds {found}, run.json speaks of {run.about.get('n')}", fix=_TRAIN_AGAIN
        )
    return f"{found['trained']} records trained on, {found['held_out']} held out"


def _foreign(folder: RunFolder) -> list[Item]:
    return [
        Item(
            what=name,
            ok=False,
            detail="is no file of a run",
            fix=f"move it away: {folder.path / name}",
        )
        for name in folder.foreign()
    ]


def _files(folder: RunFolder, missing: list[str], again: str = _AGAIN) -> list[Item]:
    """Every file against its hash; those that are known to be missing are not said twice."""
    try:
        faults = _altered(folder)
    except StoreError as error:
        return [Item(what="manifest.sha256", ok=False, detail=error.problem, fix=error.fix)]
    parts = (fault.rsplit(" ", 2) for fault in faults)
    items = [
        Item(what=name, ok=False, detail=f"{verb} {what}", fix=again)
        for name, verb, what in parts
        if name not in missing
    ]
    if not faults:
        n = len((folder.path / "manifest.sha256").read_text(encoding="utf-8").splitlines())
        detail = f"{n} files are as the run left them (SHA-256)"
        items.append(Item(what="manifest.sha256", ok=True, detail=detail))
    return items


def _tried(
    items: list[Item], what: str, read: Callable[[], Any], say: Callable[[Any], str]
) -> Any | None:
    """Adds what reading gives, or the fault; None for the latter."""
    try:
        found = read()
    except UnseenError as error:
        items.append(Item(what=what, ok=False, detail=error.problem, fix=error.fix))
        return None
    items.append(Item(what=what, ok=True, detail=say(found)))
    return found


def _ended(folder: RunFolder, about: dict[str, Any]) -> None:
    check_version(folder.path / "run.json", about)
    if about.get("status") != "complete":
        raise StoreError(
            f"{folder.path} is not finished",
            fix="run the command that began it again: it continues",
        )


def _choices(folder: RunFolder, about: dict[str, Any]) -> StatisticsChoices:
    """The part of the configuration that numbers are read by.

    Raises:
        StoreError: where it is not there, or holds what no run writes.
    """
    kept = about.get("config")
    fields = StatisticsChoices.model_fields
    try:
        if isinstance(kept, dict):
            return StatisticsChoices(**{name: kept[name] for name in fields if name in kept})
        fault = "holds no configuration"
    except ValidationError as error:
        names = ", ".join(str(one["loc"][0]) for one in error.errors(include_url=False))
        fault = f"holds a configuration that no run has: {names}"
    raise StoreError(f"{folder.path / 'run.json'} {fault}", fix=_AGAIN)


def _altered(folder: RunFolder) -> list[str]:
    try:
        return folder.altered()
    except OSError as error:  # a file that is there and cannot be read
        raise StoreError(f"cannot read {error.filename}: {error.strerror}") from error


def _records(folder: RunFolder, name: str = "records.parquet") -> tuple[Subjects, Scored]:
    try:
        return Subjects.from_table(folder.read_table(name))
    except (TypeError, ValueError) as error:
        raise StoreError(
            f"{folder.path / name} is damaged: a column holds other values than a run writes",
            fix=_AGAIN,
        ) from error


def _agree(items: list[Item], results: Results, subjects: Subjects, scored: Scored) -> None:
    """Whether the table of records is that of the results: as many of them, and the same AUCs."""
    rows = (*results.attacks, *results.control)
    _agree_rows(items, "records.parquet", rows, subjects, scored)
    if results.data is None:
        return
    said = (results.data.members.n_judged, results.data.nonmembers.n_judged)
    found = (int(subjects.member.sum()), int((~subjects.member).sum()))
    if said != found:
        detail = (
            f"holds {found[0]} members and {found[1]} non-members, results.json speaks of "
            f"{said[0]} and {said[1]}"
        )
        items.append(Item(what="records.parquet", ok=False, detail=detail, fix=_AGAIN))


def _agree_rows(
    items: list[Item], name: str, rows: Iterable[AttackResult], subjects: Subjects, scored: Scored
) -> None:
    """Whether the scores of a table have the AUCs of these rows."""
    place = {id_: at for at, id_ in enumerate(subjects.ids)}
    for row in rows:
        made = scored.of(row).get(row.name)
        if row.auc is None or made is None:
            continue
        member = subjects.member[[place[id_] for id_ in made.ids]]
        found = auc(made.values[member], made.values[~member])
        if abs(found - row.auc.value) > _ROUNDING:
            detail = (
                f"the scores of {row.name} have AUC {found:.3f}, results.json says "
                f"{row.auc.value:.3f}"
            )
            items.append(Item(what=name, ok=False, detail=detail, fix=_AGAIN))


def _header(about: dict[str, Any]) -> str:
    return f"{about.get('tool', 'unseen')}, schema {about.get('schema_version', 'unknown')}"


def _seed(choices: StatisticsChoices) -> str:
    rates = ", ".join(f"{rate:g}" for rate in choices.fpr)
    return f"seed {choices.seed}, confidence {choices.confidence:g}, rates {rates}"


def _schema(results: Results) -> str:
    return f"schema {results.schema_version}, {len(results.attacks)} attacks and baselines"


def _count(read: tuple[Subjects, Scored]) -> str:
    subjects, _ = read
    return f"{len(subjects.ids)} records, {int(subjects.member.sum())} of them members"
