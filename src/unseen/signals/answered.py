"""What a model behind a prompt answers to a question of its task, in text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from unseen.errors import UnscorableError
from unseen.signals.base import TARGET, Behind, Materials
from unseen.types import Prompt, Record

_BREAKS = 4
"""Tokens besides those of a label, for a model that goes on with a text."""
_IN_A_SENTENCE = 12
"""The same for one that writes messages: "The answer type of this question is …"."""


@dataclass(frozen=True)
class Answer:
    """How an answer was read.

    Attributes:
        right: 1 where it is the record's own label.
        parsed: 1 where it is any label.
    """

    right: int
    parsed: int


@dataclass(frozen=True)
class Answered:
    """The label that the model gives a record, read from what it writes (greedily).

    Attributes:
        of: the role of the model asked.
        longest: the most tokens of an answer; 0 means those of the longest label, and a few more.
    """

    gives: ClassVar[type] = Answer
    private: ClassVar[bool] = False
    of: str = TARGET
    longest: int = 0

    def __post_init__(self) -> None:
        check_longest(self.longest)

    def prompts(self, record: Record, materials: Materials) -> tuple[Prompt, ...]:
        """The question, behind the prompt."""
        behind = behind_of(materials)
        place_of_label(record, materials)
        said = behind.asked(text_of(record))
        ids = behind.prompt(record.id, said)
        return (Prompt(ids, most_tokens(self.longest, materials), one_line=True),)

    def observe(self, record: Record, materials: Materials, texts: Sequence[str]) -> Answer:
        """Whether it is right, and whether it is a label at all."""
        said = behind_of(materials).parse(texts[0])
        return Answer(int(said == label_of(record)), int(said is not None))


def check_longest(longest: int) -> None:
    """Refuses a length that no answer can have.

    Raises:
        ValueError: where it is below 0.
    """
    if longest < 0:
        msg = f"got longest={longest}, expected 0 (as long as the labels) or more tokens"
        raise ValueError(msg)


def most_tokens(longest: int, materials: Materials) -> int:
    """The most tokens of an answer that gives a label."""
    behind, encode = behind_of(materials), materials.encoder.tokenizer.encode
    label = max(len(encode(behind.answered(label))) for label in behind.labels)
    return longest or label + (_IN_A_SENTENCE if behind.is_chat else _BREAKS)


def behind_of(materials: Materials) -> Behind:
    """The hidden prompt.

    Raises:
        UnscorableError: where there is none: the attack is one on prompts.
    """
    if materials.behind is None:
        reason = "there is no prompt that the model stands behind"
        raise UnscorableError(reason)
    return materials.behind


def text_of(record: Record) -> str:
    """What is asked about."""
    return record.turns[0].content


def label_of(record: Record) -> str:
    """The answer that a demonstration of the record gives."""
    return record.turns[-1].content


def place_of_label(record: Record, materials: Materials) -> int:
    """Place of the record's own label among those of the task.

    Raises:
        UnscorableError: where it is none of them, or answers are free text.
    """
    labels, own = behind_of(materials).labels, label_of(record)
    if not labels:
        reason = "answers are free text: there are no labels to tell right from wrong by"
        raise UnscorableError(reason)
    if own not in labels:
        reason = "its label is none of those that the task has"
        raise UnscorableError(reason)
    return labels.index(own)
