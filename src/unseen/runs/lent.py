"""What one audit's fusion has learned, lent to another: weights in a JSON file, and no record.

The run folder of an audit with `fusion` holds `fusion.json`. Another audit takes it by --fusion-from:
its attack `transferred` weighs the scores of its own records as that audit has learned to, so that
none of its own labels has a say. So that this can be checked when the records are gone, the file holds a
sketch of them, which knows no record (`data/sketch`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field, ValidationError

from unseen.attacks import label
from unseen.attacks.base import Attack
from unseen.attacks.fusion import Fusion
from unseen.data.sketch import is_sketch, shared, sketch
from unseen.errors import ConfigError
from unseen.runs.fused import sources
from unseen.runs.results import Part, Results, Verdict
from unseen.signals.scores import AttackScores, LentOdds, Weights, learned

if TYPE_CHECKING:
    from unseen.runs.folder import RunFolder
    from unseen.runs.judge import Subjects
    from unseen.types import Record, Scores

FILE = "fusion.json"
"""In the run folder: what its fusions have learned."""

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
    """fusion.json."""

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


def lend(
    attacks: Sequence[Attack],
    made: Mapping[str, Scores],
    subjects: Subjects,
    results: Results,
    sketched: str | None,
) -> Lent | None:
    """What the fusions of a run learn from all of its records; None where there is no fusion.

    Args:
        attacks: of the run.
        made: label -> scores of the target.
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
    if not found or results.data is None or sketched is None:
        return None
    return Lent(
        tool=results.run.tool,
        run=results.run.id,
        verdict=None if results.validity is None else results.validity.verdict,
        n=(int(subjects.member.sum()), int((~subjects.member).sum())),
        data=(results.data.members.sha256, results.data.nonmembers.sha256),
        sketch=sketched,
        fusions=found,
    )


def borrow(place: str | Path) -> Lent:
    """The weights of another audit: of its run folder, or of its fusion.json.

    Raises:
        ConfigError: where there are none, they are damaged, or the evidence behind them is invalid.
    """
    file = Path(place).expanduser()
    if file.is_dir():
        file = file / FILE
        if not file.is_file():
            raise ConfigError(
                f"{place} has no {FILE}: it is no run folder of an audit that ran fusion",
                fix="--fusion-from RUN, a run folder whose attacks have fusion among them",
            )
    try:
        lent = Lent.model_validate(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(
            f"cannot read {file}: {error.strerror}", fix="--fusion-from RUN | fusion.json"
        ) from error
    except (ValueError, ValidationError) as error:
        raise _damaged(file) from error
    whole = is_sketch(lent.sketch) and all(one.fits for one in lent.fusions.values())
    if not (lent.fusions and whole):
        raise _damaged(file)
    if lent.verdict == "invalid":
        raise ConfigError(
            f"the evidence of {place} is invalid: its weights tell two kinds of records apart, "
            "not members",
            fix="--fusion-from another run",
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
    if not any(isinstance(signal, LentOdds) for signal in attack.signals()):
        return None
    if lent is None:
        return "it needs what another audit's fusion has learned: --fusion-from RUN"
    fusion = lent.of(attack)
    if fusion is None:
        return f"the run {lent.run} has learned {' and '.join(lent.fusions)}, and nothing else"
    more = lacking(lent, attack, run)
    if more:
        return f"the fusion of {lent.run} weighs attacks that are not run here: {', '.join(more)}"
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
            fix="run the audit again, with --fusion-from",
        )
    n = shared(lent.sketch, judged)
    if n:
        raise ConfigError(
            f"the run {lent.run} has learned from about {n} of the records that are judged here: "
            "their labels would be in the weights",
            fix="--fusion-from a run on other records",
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
