"""The settings of an audit of a prompt: how many demonstrations, where the record in question stands, which defence."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from unseen.data.duplicates import Dropped, drop_overlap
from unseen.data.records import Records, Source
from unseen.errors import UnknownNameError, UnscorableError
from unseen.prompts.behind import HiddenPrompts
from unseen.prompts.templates import Example, PromptTemplate
from unseen.prompts.trials import Case, Game, Position, membership
from unseen.signals.base import REFERENCE, TARGET, Encoder
from unseen.types import Membership, Record

if TYPE_CHECKING:
    from unseen.runs.prompt.config import PromptAudit
    from unseen.runs.prompt.demos import Demos
    from unseen.targets.access import LogprobTarget

UNDEFENDED = "none"
FORMAT = "labelled"
_ORDER = 3  # stream of the order of wrong labels


class Defense(Protocol):
    """What the owner of a prompt does against its adversary."""

    @property
    def name(self) -> str:
        """What the user calls it."""

    def prompts(
        self, template: PromptTemplate, cases: tuple[Case, ...]
    ) -> tuple[PromptTemplate, tuple[Case, ...]]:
        """The prompts as the model then reads them; nobody else is asked about."""

    def target(self, target: LogprobTarget) -> LogprobTarget:
        """Who then answers."""


def find_defense(name: str) -> Defense:
    """A defence by its name.

    Raises:
        UnknownNameError: where there is none.
    """
    raise UnknownNameError("defence", name, (UNDEFENDED,))


@dataclass(frozen=True)
class Setting:
    """Everything that is judged together.

    Attributes:
        shots: demonstrations of a prompt; 0 where the prompt stands at the other end.
        position: where the record in question stands.
        cases: who is asked about, behind which prompt.
        template: how the prompt is written.
        sources: where members and non-members come from.
        defense: None for the prompt as it is.
    """

    shots: int
    position: str
    cases: tuple[Case, ...] = field(repr=False)
    template: PromptTemplate
    sources: tuple[Source, Source]
    defense: Defense | None = None

    @property
    def defended(self) -> str:
        """Name of the defence."""
        return UNDEFENDED if self.defense is None else self.defense.name

    @property
    def name(self) -> str:
        """As files and progress call it."""
        return f"shots-{self.shots}_{self.position}_{self.defended}"

    @property
    def observed(self) -> bool:
        """Whether the prompt stands at the other end."""
        return not self.shots

    @cached_property
    def records(self) -> Records:
        """Whom it asks about; by place where that differs."""
        rows = tuple(case.record for case in self.cases)
        several = len({case.position for case in self.cases}) > 1
        rows = tuple(
            replace(
                row,
                cluster=None if self.observed else row.cluster,
                slices={"position": row.slices["position"]} if several else {},
            )
            for row in rows
        )
        sides = dict(zip(("members", "nonmembers"), self.sources, strict=True))
        return Records(rows, membership(self.cases), sides, FORMAT)

    def behind(self, encoder: Encoder, *, control: bool) -> dict[str, HiddenPrompts]:
        """The prompts that the target stands behind, and the empty one of the control."""
        template, cases = self.template, self.cases
        if self.defense is not None:
            template, cases = self.defense.prompts(template, cases)
        made = {TARGET: HiddenPrompts.of(template, encoder, cases, observed=self.observed)}
        if control:
            made[REFERENCE] = HiddenPrompts.of(template, encoder, cases, empty=True)
        return made

    def lengths(self, encoder: Encoder) -> dict[str, int | None]:
        """Tokens of each prompt with its question; None where they do not fit into the context."""
        hidden = self.behind(encoder, control=False)[TARGET]
        found: dict[str, int | None] = {}
        for case in self.cases:
            try:
                found[case.id] = len(hidden.prompt(case.id, hidden.asked(case.example.text)))
            except UnscorableError:
                found[case.id] = None
        return found


def drawn(config: PromptAudit, template: PromptTemplate, demos: Demos) -> tuple[Setting, ...]:
    """Every setting of a game; the first is the main one, and all ask about the same records.

    Raises:
        TooFewRecordsError: where the pool is too small for a number of shots.
        ConfigError: where a position is none, or all records have one label.
    """
    defenses = [None if name == UNDEFENDED else find_defense(name) for name in config.defenses]
    found: dict[tuple[str, int, str], Setting] = {}
    for defense in dict.fromkeys((None, *defenses)):
        for shots, position in itertools.product(config.shots, config.position):
            place = config.position[0] if shots == 1 and not position.isdecimal() else position
            game = Game(
                config.trials, shots, _position(place), paired=config.paired, seed=config.seed
            )
            cases = game.cases(demos.examples)
            name = UNDEFENDED if defense is None else defense.name
            setting = Setting(shots, place, cases, template, _sources(cases, demos), defense)
            found.setdefault((name, shots, place), setting)
    return tuple(found.values())


def _position(name: str) -> Position | int:
    return int(name) if name.isdecimal() else name  # type: ignore[return-value]


def _sources(cases: Sequence[Case], demos: Demos) -> tuple[Source, Source]:
    """Both sides come from the pool; who they are, and behind which prompts, is what is hashed."""
    sides = [[case for case in cases if case.member is member] for member in (True, False)]
    return (
        Source(demos.source.path, len(sides[0]), _digest(sides[0])),
        Source(demos.source.path, len(sides[1]), _digest(sides[1])),
    )


def _digest(cases: Sequence[Case]) -> str:
    digest = hashlib.sha256()
    for case in cases:
        said = [(one.text, one.label) for one in (case.example, *case.demos)]
        digest.update(json.dumps([case.id, said, case.position, case.wrong]).encode())
    return digest.hexdigest()


# --- a prompt at the other end --------------------------------------------------------------------


def observed(
    config: PromptAudit, template: PromptTemplate, members: Demos, nonmembers: Demos
) -> tuple[Setting, tuple[Dropped, ...]]:
    """The one setting of a prompt that stands at the other end.

    Raises:
        DataError: where a side has no records left, for they occur on the other one too.
    """
    sides = _with_ids(members, nonmembers)
    by_id = {example.id: example for side in sides for example in side}
    rows = tuple(
        Record(one.id, _case(one, 0, (), 0, member=False).record.turns) for one in by_id.values()
    )
    member = np.arange(len(rows)) < len(sides[0])
    kept, dropped = drop_overlap(
        Records(
            rows,
            Membership(tuple(by_id), member),
            {"members": members.source, "nonmembers": nonmembers.source},
            FORMAT,
        ),
        config.near_duplicates,
    )
    labels = sorted({example.label for example in by_id.values()})
    inside = {record.id for record in kept.members}
    cases = tuple(
        _case(by_id[record.id], number, labels, config.seed, member=record.id in inside)
        for number, record in enumerate(kept.records)
    )
    return Setting(0, "-", cases, template, (members.source, nonmembers.source)), dropped


def _with_ids(*sides: Demos) -> list[tuple[Example, ...]]:
    """The records of both sides, with ids that are unique over both."""
    ids = [example.id for side in sides for example in side.examples]
    if len(set(ids)) == len(ids):
        return [side.examples for side in sides]
    return [
        tuple(replace(example, id=f"{name}/{at + 1}") for at, example in enumerate(side.examples))
        for name, side in zip(("members", "nonmembers"), sides, strict=True)
    ]


def _case(example: Example, number: int, labels: Sequence[str], seed: int, *, member: bool) -> Case:
    mixed = np.random.default_rng([seed, _ORDER, number]).permutation(len(labels))
    wrong = tuple(labels[i] for i in mixed if labels[i] != example.label)
    return Case(example.id, number, example, (), member, 0, wrong)
