"""What one audit has learned, lent to another: weights in a JSON file, and no record.

The run folder of an audit with `fusion`, or with an attack on prompts that learns, holds `learned.json`.
Another audit takes it by --trained-from: its attack `transferred` weighs the scores of its own
records as that audit has learned to, and `neighbor_deviation[lent=True]` judges by that audit's
classifier, so that none of its own labels has a say. So that this can be checked when the records are gone,
the file holds a sketch of them, which knows no record (`data/sketch`). Of a support-vector machine it
holds standardised features of some records: a few numbers each, and no text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from pydantic import Field, ValidationError

from unseen.attacks import label
from unseen.attacks.base import Attack, Known, is_borrowing, is_fitted
from unseen.attacks.fusion import Fusion
from unseen.data.sketch import is_sketch, shared, sketch
from unseen.errors import ConfigError, UnscorableError
from unseen.runs.fused import sources
from unseen.runs.results import Part, Results, Verdict
from unseen.signals.learned import Kernel, Learned, Net
from unseen.signals.scores import AttackScores, LentOdds, Weights, learned

if TYPE_CHECKING:
    from unseen.runs.folder import RunFolder
    from unseen.runs.judge import Subjects
    from unseen.signals.base import Observations
    from unseen.types import Record, Scores

FILE = "learned.json"
"""In the run folder: what its attacks have learned."""

BORROWED = "borrowed.json"
"""In the run folder: what it has taken from another audit."""

SKETCH = "data/sketch.json"
"""In the run folder: a sketch of the records that were judged."""


class LentFusion(Part):
    """One fusion: the attacks that it weighs, and how (`unseen.signals.scores.Weights`)."""

    attacks: tuple[str, ...] = Field(description="sorted; of each there is a score to give")
    median: tuple[float | None, ...]
    flagged: tuple[int, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    coef: tuple[float, ...]
    intercept: float

    @property
    def weights(self) -> Weights:
        """The weights, in the order of `attacks`."""
        return Weights(**{one.name: getattr(self, one.name) for one in fields(Weights)})

    @property
    def fits(self) -> bool:
        """Whether the numbers are as many as they have to be."""
        used = sum(value is not None for value in self.median)
        columns = {len(self.mean), len(self.scale), len(self.coef), used + len(self.flagged)}
        known = all(0 <= i < len(self.attacks) for i in self.flagged)
        return len(self.median) == len(self.attacks) and len(columns) == 1 and known


class Lent(Part):
    """learned.json."""

    schema_version: Literal["2.0"] = "2.0"
    tool: str
    run: str = Field(description="the id of the run that has learned")
    verdict: Verdict | None = Field(description="on the evidence of that run")
    n: tuple[int, int] = Field(description="members and non-members that it has learned from")
    data: tuple[str, str] = Field(description="SHA-256 of their files")
    sketch: str = Field(
        description="of their texts, to find out whether another audit has them too"
    )
    fusions: dict[str, LentFusion]
    models: dict[str, Net | Kernel] = Field(
        default_factory=dict,
        description="of attacks that learn from what was measured, by their label",
    )

    @property
    def learned(self) -> str:
        """What has learned, in words."""
        return " and ".join([*self.fusions, *self.models])

    def model(self, attack: Attack) -> Learned | None:
        """What an attack that borrows its classifier takes of it, or None."""
        return self.models.get(label(teacher(attack))) if is_borrowing(attack) else None

    def takes(self, attack: Attack) -> bool:
        """Whether there is something of it for an attack."""
        return self.of(attack) is not None or self.model(attack) is not None

    def of(self, attack: Attack) -> LentFusion | None:
        """What an attack takes of it, or None where it takes something else or nothing."""
        for signal in attack.signals():
            if isinstance(signal, LentOdds):
                return self.fusions.get(label(Fusion(reference=signal.reference)))
        return None

    @property
    def sha256(self) -> str:
        """Of the content."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


def teacher(attack: Attack) -> Attack:
    """The attack that learns what another borrows."""
    return cast("Attack", replace(cast("Any", attack), lent=False))


def borrower(attack: Attack) -> Attack:
    """The attack that borrows what another learns."""
    return cast("Attack", replace(cast("Any", attack), lent=True))


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


def refusal(lent: Lent | None, attack: Attack, run: Iterable[str]) -> str | None:
    """Why an attack cannot use what was lent, or None where it can, or wants nothing.

    Args:
        lent: what was borrowed, or None.
        attack: the attack.
        run: labels of the attacks of this audit.
    """
    if is_borrowing(attack):
        return _no_model(lent, attack)
    if not any(isinstance(signal, LentOdds) for signal in attack.signals()):
        return None
    if lent is None:
        return "it needs what another audit's fusion has learned: --trained-from RUN"
    fusion = lent.of(attack)
    if fusion is None:
        return f"the run {lent.run} has learned {lent.learned}, and nothing else"
    more = lacking(lent, attack, run)
    if more:
        return f"the fusion of {lent.run} weighs attacks that are not run here: {', '.join(more)}"
    return None


def _no_model(lent: Lent | None, attack: Attack) -> str | None:
    name = label(teacher(attack))
    if lent is None:
        return f"it needs what another audit's {name} has learned: --trained-from RUN"
    if name not in lent.models:
        return f"the run {lent.run} has learned {lent.learned}, and not {name}"
    return None


def lacking(lent: Lent | None, attack: Attack, run: Iterable[str]) -> list[str]:
    """Labels of the attacks that an attack weighs by what was lent, and that are not in the run."""
    fusion = None if lent is None else lent.of(attack)
    return [] if fusion is None else sorted(set(fusion.attacks) - set(run))


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
