"""What a model behind a prompt answers to a question of its task, in text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from unseen.errors import UnscorableError
from unseen.signals.base import TARGET, Behind, Materials
from unseen.types import Prompt, Record


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
        longest: the most tokens of an answer.
    """

    gives: ClassVar[type] = Answer
    private: ClassVar[bool] = False
    of: str = TARGET
    longest: int = 10

    def prompts(self, record: Record, materials: Materials) -> tuple[Prompt, ...]:
        """The question, behind the prompt."""
        behind = behind_of(materials)
        return (Prompt(behind.prompt(record.id, behind.asked(text_of(record))), self.longest),)

    def more(
        self,
        record: Record,  # noqa: ARG002
        materials: Materials,  # noqa: ARG002
        texts: Sequence[str],  # noqa: ARG002
    ) -> tuple[Prompt, ...]:
        """Nothing."""
        return ()

    def observe(self, record: Record, materials: Materials, texts: Sequence[str]) -> Answer:
        """Whether it is right, and whether it is a label at all."""
        said = behind_of(materials).parse(texts[0])
        return Answer(int(said == label_of(record)), int(said is not None))


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
