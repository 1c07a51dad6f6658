"""What a defence is: what the owner of a prompt does against an adversary, at one step of the way of the data.

A defence is a frozen dataclass in a file of its own; the file's name is the defence's name. Its fields
are what the user may choose. It changes one or more of these, in this order, and leaves the rest alone:

1. `game`: how many demonstrations there are, and where the record in question stands;
2. `template`: how the prompt is written;
3. `cases`: the demonstrations themselves;
4. `target`: what the model answers, before the adversary sees it.

Whom a trial asks about, and its coin, stay what they are: so the same records are judged with and
without a defence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from unseen.prompts.labels import Labels
from unseen.prompts.templates import Example, PromptTemplate
from unseen.prompts.trials import Case, Game
from unseen.signals.base import Encoder
from unseen.targets.access import LogprobTarget

Halves = tuple[Sequence[Example], Sequence[Example]]
"""Both halves of a pool: the owner of a prompt has one of them, and nobody of the other is in it."""


class Helper(Protocol):
    """A model that writes for a defence, without any hidden prompt."""

    @property
    def target(self) -> LogprobTarget:
        """Who is asked."""

    @property
    def encoder(self) -> Encoder:
        """How text becomes its token ids."""


class Kept(Protocol):
    """Where token ids that were written are kept, so that they need not be written again."""

    def get(self, key: bytes) -> tuple[int, ...] | None:
        """What is kept under a key; None where nothing is."""

    def put(self, key: bytes, ids: tuple[int, ...]) -> None:
        """Keeps something."""


@dataclass(frozen=True)
class Guarantee:
    """What a defence guarantees by differential privacy, computed anew from what it does.

    Attributes:
        epsilon: for one record of the owner's put in the place of another.
        delta: the chance that epsilon does not hold.
        sigma: of the noise, in units of the most that one record can change.
        releases: noisy answers that one record has a part in, at most.
        rate: chance of a record to be drawn for one of them.
        n_private: records that a demonstration is made from, at least.
        accountant: what added epsilon up.
        degenerate: whether the noise drowns what it is added to.
        loss: what the privacy loss exceeds with chance delta alone, a little more than epsilon; None
            where records are drawn.
    """

    epsilon: float
    delta: float
    sigma: float
    releases: int
    rate: float
    n_private: int
    accountant: str
    degenerate: bool
    loss: float | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What who relies on it has to know."""
        found = [
            "the noise is drawn from a seed, so that a run can be repeated: it is for measuring, not for "
            "production",
            "labels, and how many demonstrations there are, stay as they are: no epsilon covers them",
        ]
        if self.rate < 1:
            found.append(
                "records are drawn in a fixed number without replacement, and counted as if each were "
                "drawn by itself, as in the paper"
            )
        if self.degenerate:
            found.append(
                "the noise drowns the probabilities: the demonstrations are hardly more than random tokens"
            )
        return tuple(found)


class Defense:
    """Changes nothing: what a defence does not say otherwise."""

    paper: ClassVar[str] = ""
    last: ClassVar[bool] = False
    """Whether it changes the game after all others: a place depends on how many places there are."""

    @property
    def helpers(self) -> tuple[str, ...]:
        """Models that it needs, by name; "" is the target itself."""
        return ()

    def game(self, game: Game) -> Game:
        """How trials are drawn.

        Raises:
            ConfigError: where it does not go with the game.
        """
        return game

    def template(self, template: PromptTemplate) -> PromptTemplate:
        """How the prompt is written."""
        return template

    def cases(
        self,
        cases: Sequence[Case],
        halves: Halves,  # noqa: ARG002
        template: PromptTemplate,  # noqa: ARG002
        helpers: Mapping[str, Helper],  # noqa: ARG002
        kept: Kept | None = None,  # noqa: ARG002
    ) -> tuple[Case, ...]:
        """The cases with the demonstrations that the prompts then have."""
        return tuple(cases)

    def guarantee(
        self,
        cases: Sequence[Case],  # noqa: ARG002
        halves: Halves,  # noqa: ARG002
        template: PromptTemplate,  # noqa: ARG002
    ) -> Guarantee | None:
        """What it guarantees, if anything; no model is asked.

        Raises:
            ConfigError: where it cannot do what it is asked for with these records.
        """
        return None

    def target(
        self,
        target: LogprobTarget,
        helpers: Mapping[str, Helper],  # noqa: ARG002
        labels: Labels | None = None,  # noqa: ARG002
    ) -> LogprobTarget:
        """What the adversary then asks; labels are those that answer, None where answers are free text."""
        return target


@dataclass(frozen=True)
class Combined(Defense):
    """Several defences, one after the other.

    Attributes:
        parts: in the order in which they are named; the last is nearest to the adversary.
    """

    parts: tuple[Defense, ...]

    @property
    def helpers(self) -> tuple[str, ...]:
        """Models that any of them needs."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.helpers))

    def game(self, game: Game) -> Game:
        """Each changes what those before it leave."""
        for part in sorted(self.parts, key=lambda part: part.last):
            game = part.game(game)
        return game

    def template(self, template: PromptTemplate) -> PromptTemplate:
        """Each changes what those before it leave."""
        for part in self.parts:
            template = part.template(template)
        return template

    def cases(
        self,
        cases: Sequence[Case],
        halves: Halves,
        template: PromptTemplate,
        helpers: Mapping[str, Helper],
        kept: Kept | None = None,
    ) -> tuple[Case, ...]:
        """Each changes what those before it leave."""
        for part in self.parts:
            cases = part.cases(cases, halves, template, helpers, kept)
        return tuple(cases)

    def guarantee(
        self, cases: Sequence[Case], halves: Halves, template: PromptTemplate
    ) -> Guarantee | None:
        """The one that a part gives: what comes after private demonstrations takes nothing from it."""
        given = (part.guarantee(cases, halves, template) for part in self.parts)
        return next((one for one in given if one is not None), None)

    def target(
        self,
        target: LogprobTarget,
        helpers: Mapping[str, Helper],
        labels: Labels | None = None,
    ) -> LogprobTarget:
        """Each stands between the adversary and those before it."""
        for part in self.parts:
            target = part.target(target, helpers, labels)
        return target
