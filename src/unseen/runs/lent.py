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
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any, Literal, cast

from pydantic import Field

from unseen.attacks import label
from unseen.attacks.base import Attack, is_borrowing
from unseen.attacks.fusion import Fusion
from unseen.runs.results import Part, Verdict
from unseen.signals.learned import Kernel, Learned, Net
from unseen.signals.scores import LentOdds, Weights


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
