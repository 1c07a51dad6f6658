"""The game: who is in the prompt is drawn by coin, so that membership is nothing but chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from unseen.errors import ConfigError, TooFewRecordsError, UnknownNameError
from unseen.prompts.templates import Example
from unseen.types import Membership, Record, Turn

Position = Literal["first", "middle", "last", "random"]
POSITIONS: tuple[Position, ...] = ("first", "middle", "last", "random")


def in_number(shots: int) -> str:
    """So many demonstrations, in words."""
    return f"{shots} demonstration{'s' * (shots != 1)}"


@dataclass(frozen=True)
class Case:
    """One record that is asked about, and the demonstrations of the prompt that it is asked behind.

    Attributes:
        id: of the case: no record of the pool is named in it.
        trial: its number; both cases of a trial have one.
        example: who is asked about.
        demos: the demonstrations, in order; `example` is among them where it is a member.
        member: whether it is.
        position: where the member of the trial stands, from 0.
        wrong: labels that are not the record's, in an order drawn for the trial.
    """

    id: str
    trial: int
    example: Example
    demos: tuple[Example, ...]
    member: bool
    position: int
    wrong: tuple[str, ...] = ()

    @property
    def record(self) -> Record:
        """The case as a record: what is asked, and its answer. It has no label."""
        turns = (Turn("user", self.example.text), Turn("assistant", self.example.label))
        slices = {"position": str(self.position + 1), "shots": str(len(self.demos))}
        return Record(self.id, turns, cluster=f"t{self.trial}", slices=slices)


@dataclass(frozen=True)
class Game:
    """How trials are drawn.

    The pool is cut into two halves, and trial i asks about the i-th record of either. A coin says
    which of the two is the member: it stands in the prompt, at `position`, among others of its half.
    `paired` asks about one record twice instead: behind the prompt that holds it, and behind the
    same prompt with another record in its place. Where there are more trials than pairs, pairs come
    up again, with other coins and other prompts. Whom a trial asks about, and its coin, are the same
    for every number of shots and every position.

    Attributes:
        trials: how many.
        shots: demonstrations of a prompt.
        position: where the member stands: "first", "middle", "last", "random", or its number from 1.
        paired: whether one record is asked about both ways.
        seed: another seed, other draws.
    """

    trials: int = 100
    shots: int = 1
    position: Position | int = "last"
    paired: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("trials", "shots"):
            if getattr(self, name) < 1:
                raise ConfigError(f"got {name}={getattr(self, name)}, expected at least 1")
        if isinstance(self.position, str) and self.position not in POSITIONS:
            raise UnknownNameError("position", self.position, POSITIONS)
        if isinstance(self.position, int) and not 1 <= self.position <= self.shots:
            raise ConfigError(
                f"got position {self.position} among {in_number(self.shots)}",
                fix=f"--position {'1' if self.shots == 1 else f'1 to {self.shots}'}, first, middle, last or random",
            )

    def cases(self, pool: Sequence[Example], labels: Sequence[str] = ()) -> tuple[Case, ...]:
        """Two cases a trial, a member and a non-member; the pool's order has no say.

        Args:
            pool: the labelled records.
            labels: the words that answer, whether a record of the pool has them or not; none for those
                of the pool.

        Raises:
            TooFewRecordsError: where a half of the pool does not hold enough different records.
            ConfigError: where all of them have one label.
        """
        halves = self.halves(pool)
        words = sorted({*labels} or {example.label for example in pool})
        return tuple(
            case for number in range(self.trials) for case in self._trial(number, halves, words)
        )

    def halves(self, pool: Sequence[Example]) -> tuple[list[Example], list[Example]]:
        """The two halves that trials are drawn from, each in the order of the trials.

        Raises:
            TooFewRecordsError: where a half does not hold enough different records.
            ConfigError: where all records have one label.
        """
        different = _different(pool)
        needed = 2 * (self.shots + 1)
        if len(different) < needed:
            raise TooFewRecordsError(
                f"the pool holds {len(different)} different record{'s' * (len(different) != 1)}, and prompts "
                f"of {in_number(self.shots)} need {needed}",
                fix="give more records, or fewer --shots",
            )
        if len({example.label for example in different}) < 2:
            raise ConfigError(
                "all records of the pool have one label: nothing is to be told apart",
                fix="give records of other labels too",
            )
        order = self._rng(0).permutation(len(different))
        half = len(different) // 2
        return [different[i] for i in order[:half]], [different[i] for i in order[half:]]

    def _trial(
        self, number: int, halves: tuple[list[Example], list[Example]], labels: Sequence[str]
    ) -> tuple[Case, Case]:
        rng = self._rng(1, number)
        coins = rng.random(2) < 0.5
        inside, outside = halves if coins[0] else halves[::-1]
        names = "ab" if coins[1] else "ba"  # a name says nothing
        mixed = [labels[i] for i in rng.permutation(len(labels))]
        pair = number % min(map(len, halves))
        member, other = inside[pair], outside[pair]
        place = self._place(rng)
        drawn = rng.choice(len(inside) - 1, size=self.shots - 1, replace=False)
        demos = [inside[i + (i >= pair)] for i in drawn]
        demos.insert(place, member)

        def case(example: Example, shown: Sequence[Example], *, is_in: bool) -> Case:
            wrong = tuple(label for label in mixed if label != example.label)
            id_ = f"t{number:05d}-{names[not is_in]}"
            return Case(id_, number, example, tuple(shown), is_in, place, wrong)

        inside_case = case(member, demos, is_in=True)
        if not self.paired:
            return inside_case, case(other, demos, is_in=False)
        without = [other if i == place else demo for i, demo in enumerate(demos)]
        return inside_case, case(member, without, is_in=False)

    def _place(self, rng: np.random.Generator) -> int:
        drawn = int(
            rng.integers(self.shots)
        )  # whatever is chosen, the draws after it stay the same
        if isinstance(self.position, int):
            return self.position - 1
        places = {"first": 0, "middle": (self.shots - 1) // 2, "last": self.shots - 1}
        return places.get(self.position, drawn)

    def _rng(self, *stream: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *stream])


def _different(pool: Sequence[Example]) -> list[Example]:
    """One example of each text, whatever its letters' case and spacing, in the order of the texts."""
    by_text: dict[str, Example] = {}
    # Which of several stands for them must not depend on the pool's order.
    for example in sorted(pool, key=lambda one: (one.text, one.label, one.id)):
        by_text.setdefault(" ".join(example.text.split()).casefold(), example)
    return [by_text[text] for text in sorted(by_text)]


def membership(cases: Sequence[Case]) -> Membership:
    """Who is in the prompt."""
    return Membership(
        tuple(case.id for case in cases), np.array([case.member for case in cases], dtype=bool)
    )
