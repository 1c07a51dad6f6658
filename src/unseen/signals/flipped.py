"""How often a model behind a prompt has to be shown a wrong answer before it gives it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unseen.errors import UnscorableError
from unseen.signals.answered import (
    behind_of,
    check_longest,
    label_of,
    most_tokens,
    place_of_label,
    text_of,
)
from unseen.signals.base import TARGET, Ask, Materials
from unseen.signals.checks import check_count
from unseen.signals.labelled import likeliest, options, sums
from unseen.types import BoolArray, IntArray, Prompt, Record, TokenStats

_ALL, _SOME = 5, 3
"""All wrong labels are tried where there are so many at most, else so many, drawn for the trial."""

Shown = tuple[str, int]
"""A wrong label, and how often the record is shown with it."""


@dataclass(frozen=True)
class Flips:
    """How many demonstrations of a record with a wrong label it took until that was the answer.

    Attributes:
        label: number of the record's own label, equal for records of one label.
        counts: (k,) of each wrong label that was tried: the fewest demonstrations after which it was
            the answer, from 0, or the cap where it never was.
        censored: (k,) where it never was.
        cut: (k,) where it never was, and the context had no room for all demonstrations.
    """

    label: int
    counts: IntArray
    censored: BoolArray
    cut: BoolArray


@dataclass(frozen=True)
class FlippedText:
    """`Flips` of what the model writes (greedily): of the label that is read from it.

    What is sent is the record as a demonstration with a wrong label, n times, and then its question;
    n rises from 0 to the cap - 1, until the answer is that wrong label. Another wrong label, or none,
    is no flip. All wrong labels are tried, or three where there are more than five. Where the context
    has no room for one more demonstration, the label counts as one that never was the answer.

    Attributes:
        of: the role of the model asked.
        cap: demonstrations from which on nothing is tried.
        longest: the most tokens of an answer; 0 means those of the longest label, and a few more.
    """

    gives: ClassVar[type] = Flips
    private: ClassVar[bool] = False
    of: str = TARGET
    cap: int = 10
    longest: int = 0

    def __post_init__(self) -> None:
        check_count("cap", self.cap)
        check_longest(self.longest)

    def prompts(self, record: Record, materials: Materials) -> tuple[Prompt, ...]:
        """The question alone."""
        rounds = self._rounds(record, materials)
        return self._asked(rounds, [rounds.first])

    def more(
        self, record: Record, materials: Materials, texts: Sequence[str]
    ) -> tuple[Prompt, ...]:
        """One more demonstration of each label that was not yet the answer."""
        rounds = self._rounds(record, materials)
        return self._asked(rounds, rounds.after(self._read(materials, texts))[1])

    def foreseen(self, record: Record, materials: Materials) -> tuple[Prompt, ...]:
        """All that `more` asks of a model that never gives a wrong label."""
        rounds = self._rounds(record, materials)
        return self._asked(rounds, rounds.later)

    def observe(self, record: Record, materials: Materials, texts: Sequence[str]) -> Flips:
        """When each label was the answer first."""
        return self._rounds(record, materials).flips(self._read(materials, texts))

    def _asked(self, rounds: _Rounds, shown: Sequence[Shown]) -> tuple[Prompt, ...]:
        return tuple(Prompt(rounds.ids(one), rounds.n_answer, one_line=True) for one in shown)

    def _rounds(self, record: Record, materials: Materials) -> _Rounds:
        place_of_label(record, materials)
        return _Rounds(record, materials, self.cap, most_tokens(self.longest, materials))

    def _read(self, materials: Materials, texts: Sequence[str]) -> list[str | None]:
        return [behind_of(materials).parse(text) for text in texts]


@dataclass(frozen=True)
class FlippedChoice:
    """`Flips` of the likeliest label; what is sent is the same.

    Attributes:
        of: the role of the model asked.
        cap: demonstrations from which on nothing is tried.
    """

    gives: ClassVar[type] = Flips
    of: str = TARGET
    cap: int = 10

    def __post_init__(self) -> None:
        check_count("cap", self.cap)

    def ask(self, record: Record, materials: Materials) -> Ask:
        """Each label as the answer to the question alone."""
        rounds = self._rounds(record, materials)
        return self._options(rounds, [rounds.first])

    def more(self, record: Record, materials: Materials, answers: Sequence[TokenStats]) -> Ask:
        """The same after one more demonstration of each label that was not yet the likeliest."""
        rounds = self._rounds(record, materials)
        return self._options(rounds, rounds.after(self._read(materials, answers))[1])

    def foreseen(self, record: Record, materials: Materials) -> Ask:
        """All that `more` asks of a model that never finds a wrong label the likeliest."""
        rounds = self._rounds(record, materials)
        return self._options(rounds, rounds.later)

    def read(
        self,
        record: Record,
        materials: Materials,
        ask: Ask,  # noqa: ARG002
        answers: Sequence[TokenStats],
    ) -> Flips:
        """When each label was the likeliest first."""
        return self._rounds(record, materials).flips(self._read(materials, answers))

    def _options(self, rounds: _Rounds, shown: Sequence[Shown]) -> Ask:
        asked = Ask((), ())
        for one in shown:
            asked = asked.then(options(rounds.record, rounds.materials, rounds.said(one)))
        return asked

    def _rounds(self, record: Record, materials: Materials) -> _Rounds:
        place_of_label(record, materials)
        behind, encode = behind_of(materials), materials.encoder.tokenizer.encode
        longest = max(len(encode(behind.answered(label))) for label in behind.labels)
        return _Rounds(record, materials, self.cap, longest)

    def _read(self, materials: Materials, answers: Sequence[TokenStats]) -> list[str | None]:
        labels = behind_of(materials).labels
        return [
            labels[likeliest(sums(answers[at : at + len(labels)]))]
            for at in range(0, len(answers), len(labels))
        ]


@dataclass(frozen=True)
class _Rounds:
    """What is sent about one record, and in which order.

    Attributes:
        record: whom it is about.
        materials: what it is made with.
        cap: demonstrations from which on nothing is tried.
        n_answer: tokens that an answer needs room for.
    """

    record: Record
    materials: Materials
    cap: int
    n_answer: int

    first: ClassVar[Shown] = ("", 0)

    @property
    def wrong(self) -> tuple[str, ...]:
        """The wrong labels that are tried."""
        wrong = behind_of(self.materials).wrong(self.record.id)
        return wrong if len(wrong) <= _ALL else wrong[:_SOME]

    @property
    def later(self) -> list[Shown]:
        """All that can be asked after the first round."""
        return [(label, n) for label in self.wrong for n in range(1, self._most(label) + 1)]

    def said(self, shown: Shown) -> str:
        """The words of the adversary."""
        behind, text = behind_of(self.materials), text_of(self.record)
        label, n = shown
        return n * behind.shown(text, label) + behind.asked(text)

    def ids(self, shown: Shown) -> tuple[int, ...]:
        """What the model reads.

        Raises:
            UnscorableError: where the context has no room for it and an answer.
        """
        ids = behind_of(self.materials).prompt(self.record.id, self.said(shown))
        if len(ids) + self.n_answer > self.materials.encoder.max_length:
            reason = "there is no room in the context for an answer"
            raise UnscorableError(reason)
        return ids

    def after(self, answers: Sequence[str | None]) -> tuple[dict[str, int], list[Shown]]:
        """Labels that were the answer so far, each with when it first was, and what is asked next.

        Args:
            answers: labels that were given so far, in the order in which they were asked for.
        """
        most = {label: self._most(label) for label in self.wrong}
        flips = {label: 0 for label in self.wrong if label == answers[0]}
        place, n = 1, 1
        while True:
            asked = [(one, n) for one in self.wrong if one not in flips and n <= most[one]]
            given = answers[place : place + len(asked)]
            if not given:
                return flips, asked
            for (label, _), answer in zip(asked, given, strict=True):
                if answer == label:
                    flips[label] = n
            place, n = place + len(asked), n + 1

    def flips(self, answers: Sequence[str | None]) -> Flips:
        """The value, from all answers."""
        found, _ = self.after(answers)
        wrong = self.wrong
        never = np.array([label not in found for label in wrong])
        cut = np.array([self._most(label) < self.cap - 1 for label in wrong])
        own, others = label_of(self.record), behind_of(self.materials).wrong(self.record.id)
        return Flips(
            sorted((own, *others)).index(own),
            np.array([found.get(label, self.cap) for label in wrong]),
            never,
            never & cut,
        )

    def _most(self, label: str) -> int:
        """How many demonstrations there is room for, fewer than the cap."""
        for n in range(self.cap - 1, 0, -1):
            try:
                self.ids((label, n))
            except UnscorableError:
                continue
            return n
        return 0
