"""What a model behind a prompt says when it is asked whether it has seen a sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from unseen.signals.answered import behind_of, text_of
from unseen.signals.base import TARGET, Materials
from unseen.signals.checks import check_count
from unseen.types import Prompt, Record

PLACE = "{input}"
"""Where the sentence stands in the question."""

_WORD = re.compile(r"[^\W_]+")  # _Yes_ is a yes in italics


@dataclass(frozen=True)
class Reply:
    """How the reply to a yes-or-no question was read.

    Attributes:
        agreed: 1 where its first word is yes.
        parsed: 1 where its first word is yes or no.
    """

    agreed: int
    parsed: int


@dataclass(frozen=True)
class Inquired:
    """The first word of what the model replies (greedily) to a question about the record.

    Line breaks before it are passed over. "No, but yes" is a no.

    Attributes:
        of: the role of the model asked.
        wording: the question, with "{input}" for what is asked about.
        cue: whether "Answer:" follows on a line of its own, for models that know no messages.
        longest: the most tokens of a reply.
    """

    gives: ClassVar[type] = Reply
    private: ClassVar[bool] = False
    of: str = TARGET
    wording: str = f"Have you seen this sentence before: {PLACE}?"
    cue: bool = False
    longest: int = 10

    def __post_init__(self) -> None:
        if PLACE not in self.wording:
            msg = f"got wording={self.wording!r}, expected {PLACE} where the sentence goes"
            raise ValueError(msg)
        check_count("longest", self.longest)

    def prompts(self, record: Record, materials: Materials) -> tuple[Prompt, ...]:
        """The question, behind the prompt."""
        before, _, after = self.wording.partition(PLACE)
        said = before + text_of(record) + after + ("\nAnswer:" if self.cue else "")
        return (Prompt(behind_of(materials).prompt(record.id, said), self.longest),)

    def observe(
        self,
        record: Record,  # noqa: ARG002
        materials: Materials,  # noqa: ARG002
        texts: Sequence[str],
    ) -> Reply:
        """Whether it says yes, and whether it says yes or no at all."""
        word = _WORD.search(texts[0])
        said = "" if word is None else word[0].casefold()
        return Reply(int(said == "yes"), int(said in ("yes", "no")))
