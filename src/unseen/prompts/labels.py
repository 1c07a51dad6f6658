"""What an answer says: which of the labels, or none of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from unseen.errors import ConfigError, suggestion

_FEWEST = 2


@dataclass(frozen=True)
class Labels:
    """The words that answer a task, each with other words that mean the same.

    Attributes:
        words: as demonstrations show them, in the order of the task.
        synonyms: word -> other spellings that an answer may use.

    Raises:
        ConfigError: where two of them would be read alike.
    """

    words: tuple[str, ...]
    synonyms: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __post_init__(self) -> None:
        if len(self.words) < _FEWEST:
            raise ConfigError(
                f"got {len(self.words)} labels, expected at least {_FEWEST}",
                fix="--labels Number,Location,…: every word that an answer can be",
            )
        strange = [word for word, _ in self.synonyms if word not in self.words]
        if strange:
            raise ConfigError(
                f"synonyms are given for {strange[0]!r}, which is no label",
                fix=suggestion(strange[0], self.words),
            )
        seen: dict[str, str] = {}
        for spelling, word in self._spellings():
            if not spelling:
                raise ConfigError("a label is empty", fix="write a word for it")
            if len(spelling.splitlines()) > 1:
                raise ConfigError(
                    "a label holds a line break, and an answer is read from one line",
                    fix="write each label on one line",
                )
            if seen.setdefault(spelling, word) != word:
                raise ConfigError(
                    f"the labels {seen[spelling]!r} and {word!r} are both read as {spelling!r}",
                    fix="give one of them another word",
                )

    @classmethod
    def of(
        cls, words: Iterable[str], synonyms: Mapping[str, Iterable[str]] | None = None
    ) -> Labels:
        """Labels from what a user writes."""
        pairs = tuple((word, tuple(others)) for word, others in (synonyms or {}).items())
        return cls(tuple(dict.fromkeys(words)), pairs)

    def parse(self, answer: str) -> str | None:
        """The label that an answer gives, or None.

        Of the first line that is not blank, in lower case: the longest label that it begins with, or
        else the only label that stands in it as a word of its own. "No, but yes" begins with "No".
        """
        line = next((line for line in map(_plain, answer.splitlines()) if line), "")
        spellings = sorted(self._spellings(), key=lambda pair: -len(pair[0]))
        for spelling, word in spellings:
            if line.startswith(spelling) and _ends_word(line, len(spelling)):
                return word
        inside = {word for spelling, word in spellings if _stands_in(spelling, line)}
        return inside.pop() if len(inside) == 1 else None

    def word(self, spelling: str) -> str | None:
        """The label that a spelling stands for, or None where it is none of theirs."""
        return dict(self._spellings()).get(_plain(spelling))

    def _spellings(self) -> list[tuple[str, str]]:
        others = dict(self.synonyms)
        return [
            (_plain(spelling), word)
            for word in self.words
            for spelling in dict.fromkeys((word, *others.get(word, ())))
        ]


def _plain(text: str) -> str:
    return text.strip().casefold().lstrip("\"'`*_([ ")


def _ends_word(line: str, place: int) -> bool:
    return place == len(line) or not (line[place - 1].isalnum() and line[place].isalnum())


def _stands_in(spelling: str, line: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(spelling)}(?!\w)", line) is not None
