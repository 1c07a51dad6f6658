"""The settings of an audit of a prompt: how many demonstrations, where the record in question stands, which defence."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from unseen.data.duplicates import Dropped, drop_overlap
from unseen.data.records import Records, Source
from unseen.defenses import UNDEFENDED, create, label
from unseen.defenses.base import Defense, Guarantee, Halves, Helper
from unseen.errors import UnscorableError
from unseen.prompts.behind import HiddenPrompts
from unseen.prompts.templates import Example, PromptTemplate
from unseen.prompts.trials import Case, Game, Position, membership
from unseen.signals.base import REFERENCE, TARGET, Encoder
from unseen.targets.characters import tokens_of
from unseen.types import Membership, Record

if TYPE_CHECKING:
    from unseen.runs.prompt.config import PromptAudit
    from unseen.runs.prompt.demos import Demos
    from unseen.scoring.store import Store
    from unseen.targets.access import LogprobTarget

FORMAT = "labelled"
_ORDER = 3  # stream of the order of wrong labels
_LONGEST_NAME = 60


@dataclass(frozen=True)
class Setting:
    """Everything that is judged together.

    Attributes:
        shots: demonstrations of a prompt; 0 where the prompt stands at the other end.
        position: where the record in question stands.
        cases: who is asked about, behind which prompt, as a defence has it.
        template: how the prompt is written, as a defence has it.
        sources: where members and non-members come from.
        defense: None for the prompt as it is; a defence may change number and place too.
        halves: of the pool: the owner of a prompt has one of them.
        guarantee: what the defence guarantees, if anything.
    """

    shots: int
    position: str
    cases: tuple[Case, ...] = field(repr=False)
    template: PromptTemplate
    sources: tuple[Source, Source]
    defense: Defense | None = None
    halves: Halves = field(default=((), ()), repr=False)
    guarantee: Guarantee | None = None

    def written(self, helpers: Mapping[str, Helper], store: Store) -> Setting:
        """The same with the demonstrations that a defence writes, each once however often it is run."""
        if self.defense is None:
            return self
        cases = self.defense.cases(
            self.cases, self.halves, self.template, helpers, _KeptTexts(store)
        )
        return replace(self, cases=cases)

    def target(self, target: LogprobTarget, helpers: Mapping[str, Helper]) -> LogprobTarget:
        """What the adversary asks.

        Raises:
            UnseenError: where the defence cannot do what it does with this model.
        """
        if self.defense is None:
            return target
        return self.defense.target(target, helpers, self.template.labels)

    @property
    def defended(self) -> str:
        """The defence, as a user types it."""
        return label(self.defense)

    @property
    def name(self) -> str:
        """As its file is called."""
        defense = re.sub(r"[^\w+.-]+", "-", self.defended).strip("-")
        if defense != self.defended or len(defense) > _LONGEST_NAME:
            digest = hashlib.sha256(self.defended.encode()).hexdigest()[:6]
            defense = f"{defense[:_LONGEST_NAME]}-{digest}"
        return f"shots-{self.shots}_{self.position}_{defense}"

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
        hidden = HiddenPrompts.of(self.template, encoder, self.cases, observed=self.observed)
        return {TARGET: hidden} | ({REFERENCE: replace(hidden, empty=True)} if control else {})

    def lengths(self, encoder: Encoder) -> dict[str, int | None]:
        """Tokens of each prompt with its question; None where they do not fit into the context."""
        hidden = self.behind(encoder, control=False)[TARGET]
        found: dict[str, int | None] = {}
        for case in self.cases:
            try:
                ids = hidden.prompt(case.id, hidden.asked(case.example.text))
                found[case.id] = tokens_of(encoder.tokenizer, len(ids))
            except UnscorableError:
                found[case.id] = None
        return found


class _KeptTexts:
    """Where a defence keeps what it has written."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, key: bytes) -> tuple[int, ...] | None:
        return self._store.get_text(key) if self._store.present_texts([key]) else None

    def put(self, key: bytes, ids: tuple[int, ...]) -> None:
        self._store.put_texts([(key, ids)])


def drawn(config: PromptAudit, template: PromptTemplate, demos: Demos) -> tuple[Setting, ...]:
    """Every setting of a game; the first is the main one, and all ask about the same records.

    Raises:
        TooFewRecordsError: where the pool is too small for a number of shots.
        ConfigError: where a position is none, or all records have one label.
    """
    found: dict[tuple[str, int, str], Setting] = {}
    for defense in (None, *_defenses(config)):
        for shots, position in itertools.product(config.shots, config.position):
            # Of one demonstration, every place is the same.
            place = config.position[0] if shots == 1 and not position.isdecimal() else position
            game = Game(
                config.trials, shots, _position(place), paired=config.paired, seed=config.seed
            )
            written = template
            if defense is not None:
                game, written = defense.game(game), defense.template(template)
            cases = game.cases(demos.examples, _words(template, demos))
            halves = game.halves(demos.examples)
            given = None if defense is None else defense.guarantee(cases, halves, written)
            sources = _sources(cases, demos)
            setting = Setting(shots, place, cases, written, sources, defense, halves, given)
            found.setdefault((setting.defended, shots, place), setting)
    return tuple(found.values())


def _words(template: PromptTemplate, *demos: Demos) -> list[str]:
    """The words that answer, or, where answers are free text, those that records have; sorted."""
    if template.labels is not None:
        return sorted(template.labels.words)
    return sorted({label for one in demos for label in one.labels})


def _defenses(config: PromptAudit) -> list[Defense]:
    """Each defence that is named, once; "none" is always there."""
    named = (create(spec) for spec in config.defenses if spec != UNDEFENDED)
    return list({label(defense): defense for defense in named}.values())


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
    labels = _words(template, members, nonmembers)
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
