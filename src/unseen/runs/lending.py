"""From one audit to another: what is learned from all records of a run, kept, borrowed and checked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import ValidationError

from unseen.attacks import label
from unseen.attacks.base import Attack, Known, is_fitted
from unseen.attacks.fusion import Fusion
from unseen.data.sketch import is_sketch, shared, sketch
from unseen.errors import ConfigError, UnscorableError
from unseen.runs.fused import sources
from unseen.runs.lent import Lent, LentFusion
from unseen.runs.results import SCHEMA_VERSION, Results
from unseen.signals.learned import Learned
from unseen.signals.scores import AttackScores, learned

if TYPE_CHECKING:
    from unseen.runs.folder import RunFolder
    from unseen.runs.subjects import Subjects
    from unseen.signals.base import Observations
    from unseen.types import Record, Scores

FILE = "learned.json"
"""In the run folder: what its attacks have learned."""

BORROWED = "borrowed.json"
"""In the run folder: what it has taken from another audit."""

SKETCH = "data/sketch.json"
"""In the run folder: a sketch of the records that were judged."""


def lend(
    attacks: Sequence[Attack],
    made: Mapping[str, Scores],
    observations: Observations,
    subjects: Subjects,
    results: Results,
    sketched: str | None,
) -> Lent | None:
    """What the attacks of a run learn from all of its records; None where none learns what can be lent.

    Args:
        attacks: of the run.
        made: label -> scores of the target.
        observations: what was measured.
        subjects: the judged records.
        results: of the run.
        sketched: a sketch of the texts of the judged records; None in runs of an older version,
            which lend nothing.
    """
    found: dict[str, LentFusion] = {}
    members = dict(zip(subjects.ids, subjects.member.tolist(), strict=True))
    for attack in attacks:
        if not isinstance(attack, Fusion):
            continue
        names = sorted(sources(attack, attacks))
        said = AttackScores(reference=attack.reference).gather({name: made[name] for name in names})
        member = np.array([members[id_] for id_ in sorted(said)], dtype=bool)
        if member.all() or not member.any():
            continue
        weights = learned([said[id_] for id_ in sorted(said)], member)
        found[label(attack)] = LentFusion(attacks=tuple(names), **asdict(weights))
    models = _models(attacks, observations, subjects)
    if not (found or models) or results.data is None or sketched is None:
        return None
    return Lent(
        tool=results.run.tool,
        run=results.run.id,
        verdict=None if results.validity is None else results.validity.verdict,
        n=(int(subjects.member.sum()), int((~subjects.member).sum())),
        data=(results.data.members.sha256, results.data.nonmembers.sha256),
        sketch=sketched,
        fusions=found,
        models=models,
    )


def _models(
    attacks: Iterable[Attack], observations: Observations, subjects: Subjects
) -> dict[str, Learned]:
    """Label -> what an attack learns from all records; an attack that can lend says what by `learn`."""
    known = Known(observations.select(subjects.ids), subjects.member)
    found: dict[str, Learned] = {}
    for attack in attacks:
        if is_fitted(attack) and hasattr(attack, "learn"):
            with suppress(UnscorableError):  # what was not kept teaches nothing
                found[label(attack)] = attack.learn(known)
    return found


def borrow(place: str | Path) -> Lent:
    """The weights of another audit: of its run folder, or of its learned.json.

    Raises:
        ConfigError: where there are none, they are damaged, or the evidence behind them is invalid.
    """
    file = Path(place).expanduser()
    if file.is_dir():
        file = file / FILE
        if not file.is_file():
            raise ConfigError(
                f"{place} has no {FILE}: it is no run folder of an audit that ran fusion, or "
                "neighbor_deviation",
                fix="--trained-from RUN, a run folder whose attacks have one of these among them",
            )
    try:
        lent = Lent.model_validate(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(
            f"cannot read {file}: {error.strerror}", fix="--trained-from RUN | learned.json"
        ) from error
    except (ValueError, ValidationError) as error:
        raise _damaged(file) from error
    parts = (*lent.fusions.values(), *lent.models.values())
    if not parts or not is_sketch(lent.sketch) or not all(one.fits for one in parts):
        raise _damaged(file)
    if lent.verdict == "invalid":
        raise ConfigError(
            f"the evidence of {place} is invalid: its weights tell two kinds of records apart, "
            "not members",
            fix="--trained-from another run",
        )
    return lent


def keep(folder: RunFolder, borrowed: Lent | None, learned_here: Lent | None) -> None:
    """Writes what a run has taken from another, and what others can take from it."""
    for name, lent in ((BORROWED, borrowed), (FILE, learned_here)):
        if lent is not None:
            folder.write_json(name, lent.model_dump(mode="json"))


def kept(folder: RunFolder) -> Lent | None:
    """What a run has taken from another, or None."""
    file = folder.path / BORROWED
    return borrow(file) if file.is_file() else None


def check_apart(lent: Lent, judged: str | None) -> None:
    """Refuses weights that were learned from records that they would judge.

    Files may be shuffled, saved again or cut: it is the records that are compared, as far as
    their sketches allow.

    Args:
        lent: what was borrowed.
        judged: a sketch of the texts of the records to judge; None where a run has kept none.

    Raises:
        ConfigError: where clearly more of them are the same than by chance, or nobody can say.
    """
    if judged is None:
        raise ConfigError(
            "this run was made by an older version of unseen, and does not know its records again: "
            f"they may be those that {lent.run} has learned from",
            fix="run the audit again, with --trained-from",
        )
    n = shared(lent.sketch, judged)
    if n:
        raise ConfigError(
            f"the run {lent.run} has learned from about {n} of the records that are judged here: "
            "their labels would be in the weights",
            fix="--trained-from a run on other records",
        )


def sketched(records: Iterable[Record]) -> str:
    """A sketch of what records say."""
    return sketch(record.text for record in records)


def keep_sketch(folder: RunFolder, records: Iterable[Record]) -> None:
    """Writes a sketch of the records that a run has judged."""
    folder.write_json(SKETCH, {"schema_version": SCHEMA_VERSION, "sketch": sketched(records)})


def sketch_kept(folder: RunFolder) -> str | None:
    """The sketch of the records that a run has judged; None in runs of an older version."""
    if not (folder.path / SKETCH).is_file():
        return None
    found = folder.read_json(SKETCH).get("sketch")
    return found if isinstance(found, str) and is_sketch(found) else None


def _damaged(file: Path) -> ConfigError:
    return ConfigError(
        f"{file} is no {FILE} of this version of unseen, or damaged",
        fix="run its audit again: what is in the cache is not asked for again",
    )
