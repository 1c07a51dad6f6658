"""How much of a record a model behind a prompt writes, when it is given the first words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from unseen.errors import UnscorableError
from unseen.signals.answered import behind_of, text_of
from unseen.signals.base import TARGET, Materials
from unseen.signals.checks import check_count
from unseen.signals.embedding import MINILM, check_encoder, likeness
from unseen.signals.text import is_unspaced, word_spans
from unseen.types import Prompt, Record, Sampling

ASKS = "Complete the following sentence: "
"""Before the first words, where the model is talked to in messages."""

Compare = Literal["full", "completion"]
COMPARE: tuple[Compare, ...] = ("full", "completion")

_SPACES = re.compile(r"\s+")


@dataclass(frozen=True)
class Completion:
    """How much alike a text and its completion are: cosine similarities of their vectors.

    Attributes:
        full: of the whole text, to its first words and what the model wrote after them.
        rest: of the rest of the text, to what the model wrote alone.
    """

    full: float
    rest: float

    def by(self, compare: Compare) -> float:
        """The similarity of whole texts ("full"), or without the first words ("completion")."""
        return self.full if compare == "full" else self.rest


@dataclass(frozen=True)
class Completed:
    """What the model writes (greedily) after the first words of a record, against the record.

    The words are those between spaces, joined by single ones (letters, where spaces do not set words
    apart); the label is no part of it. They
    begin a question of the task that breaks off, and what is written counts up to the end of the
    line (of as many lines as the record has left). In messages the model is asked to complete the
    sentence; there it counts from where it repeats the first words, if it does, and the better of
    two alignments counts: as it is written, or without as many words as were given. What is written
    is used, and only similarities are kept.

    Attributes:
        of: the role of the model asked.
        words: how many words it is given.
        longest: the most tokens of a completion.
        fewest: the tokens before which it does not end.
        encoder: how texts are compared: "letters", "minilm", or a folder or name of an encoder.
    """

    gives: ClassVar[type] = Completion
    private: ClassVar[bool] = False
    needs_encoder: ClassVar[bool] = True
    of: str = TARGET
    words: int = 3
    longest: int = 64
    fewest: int = 0
    encoder: str = MINILM

    def __post_init__(self) -> None:
        for name in ("words", "longest"):
            check_count(name, getattr(self, name))
        check_encoder(self.encoder)
        Sampling(fewest=self.fewest)  # refuses what makes no sense

    def prompts(self, record: Record, materials: Materials) -> tuple[Prompt, ...]:
        """The first words, behind the prompt."""
        behind = behind_of(materials)
        begun, rest = self.cut(text_of(record))
        said = ASKS + begun if behind.is_chat else behind.begun(begun)
        stop = "" if behind.is_chat or "\n" in rest else "\n"  # nothing after it counts
        ids = behind.prompt(record.id, said)
        return (Prompt(ids, self.longest, Sampling(fewest=self.fewest), stop=stop),)

    def observe(self, record: Record, materials: Materials, texts: Sequence[str]) -> Completion:
        """Similarities to the record, and to its rest."""
        whole = text_of(record).strip()
        begun, rest = self.cut(whole)
        n_lines = 1 + rest.count("\n")
        if behind_of(materials).is_chat:
            written = self._aligned(begun, texts[0], n_lines)
        else:
            written = [lines(texts[0], n_lines)]
        pairs = [(whole, joined(begun, one)) for one in written]
        alike = likeness(self.encoder).of([*pairs, *((rest, one.strip()) for one in written)])
        full, apart = alike[: len(pairs)], alike[len(pairs) :]
        return Completion(float(full.max()), float(apart.max()))

    def cut(self, text: str) -> tuple[str, str]:
        """The first words of a text, joined by single spaces, and its rest.

        Raises:
            UnscorableError: where nothing is left to complete.
        """
        found = word_spans(text, marks=True)
        if len(found) <= self.words:
            reason = f"too short to be completed: it has {self.words} words or fewer"
            raise UnscorableError(reason)
        start, end = found[0][0], found[self.words - 1][1]
        return _SPACES.sub(" ", text[start:end]), text[end:].strip()

    def _aligned(self, begun: str, reply: str, n_lines: int) -> list[str]:
        """Two readings of a message: after the words that it repeats, and without as many words."""
        plain = lines(reply.lstrip(), n_lines)
        later = word_spans(plain, marks=True)[self.words :]
        without = plain[later[0][0] :] if later else ""
        return [lines(unrepeated(begun, reply), n_lines), without]


def unrepeated(begun: str, reply: str) -> str:
    """What a message says after the words that it was given, where it repeats them; else all of it."""
    repeated = re.search(r"\s+".join(map(re.escape, begun.split())), reply, re.IGNORECASE)
    return (reply if repeated is None else reply[repeated.end() :]).lstrip()


def joined(begun: str, written: str) -> str:
    """First words and what follows them; some tokenizers lose the space in front of a text."""
    spaced = written[:1].isalnum() and not is_unspaced(begun[-1:] + written[:1])
    return f"{begun} {written}" if spaced else begun + written


def lines(text: str, n: int) -> str:
    """The first n lines."""
    return "\n".join(text.split("\n")[:n])
