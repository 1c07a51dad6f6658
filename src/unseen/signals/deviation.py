"""How much of a record a model behind a prompt writes, after its beginning and after neighbours of that.

The model is given the first words of a record, as they are and with one word replaced, and what it
writes is held against the rest of the record (Neighborhood Deviation Attack, sections 4.2 to 4.4).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from unseen.errors import UnscorableError
from unseen.signals.answered import behind_of, label_of, text_of
from unseen.signals.base import SURROGATE, TARGET, Ask, Materials, Signal, one_request
from unseen.signals.checks import check_choice, check_count
from unseen.signals.completed import ASKS, joined, lines, unrepeated
from unseen.signals.embedding import MINILM, check_encoder, likeness
from unseen.signals.neighbourhood import EarlySwapping, beginning
from unseen.signals.neighbours import check_neighbours
from unseen.signals.text import words
from unseen.targets.edits import edited
from unseen.targets.fillers import EMBEDDINGS
from unseen.types import FloatArray, Prompt, Record, TokenStats, Turn

Compare = Literal["suffix", "full"]
COMPARE: tuple[Compare, ...] = ("suffix", "full")
Rouge = Literal["recall", "f1"]
ROUGE: tuple[Rouge, ...] = ("recall", "f1")

SILENT = "the model writes nothing after the beginning"

_SPARE = 16  # tokens more than the rest has: what goes on after it is no copy of it


@dataclass(frozen=True)
class Deviations:
    """How much alike the rest of a record and n + 1 continuations are: of its beginning, then of n neighbours.

    Attributes:
        similarity: (n + 1,) cosine of the vectors of an encoder.
        bleu: (n + 1,) BLEU of the continuation, in [0, 1].
        rouge: (n + 1,) ROUGE-L, in [0, 1].
    """

    similarity: FloatArray
    bleu: FloatArray
    rouge: FloatArray


@dataclass(frozen=True)
class Continuations:
    """What was written after the beginning, and after each neighbour of it; "" where it was nothing."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class _Begun:
    """What the model writes (greedily) after the beginning of a record and after N neighbours of it.

    The beginning is a share of the words of the text, at least two; it begins a question of the task
    that breaks off. Neighbours differ in one word of it, or in more. What is written counts up to where the next
    demonstration would begin; the rest of the record goes up to its label, as a demonstration shows
    it. In messages the model is asked to complete the sentence: the rest ends with the text, and what
    is written counts from where it has repeated the beginning, if it does.

    Attributes:
        of: the role of the model asked.
        prefix: share of the words that it is given, in (0, 1).
        neighbours: N, at most: there may be fewer, and at least one.
        filler: what puts words in, as `unseen.targets.fillers.open_filler` reads it.
        others: other words for each word.
        dropout: share of a word's embedding that a masked language model does not see.
        longest: the most tokens of a continuation, which has few more than the rest.
        compare: "suffix" holds what is written against the rest; "full" holds the beginning and what is
            written after it against the whole, as equations 6 and 7 do.
        seed: another seed, other neighbours.
        replacements: words of the beginning that a neighbour has replaced.
    """

    private: ClassVar[bool] = True
    swaps_words: ClassVar[bool] = True
    of: str = TARGET
    prefix: float = 0.2
    neighbours: int = 5
    filler: str = EMBEDDINGS
    others: int = 5
    dropout: float = 0.3
    longest: int = 128
    compare: Compare = "suffix"
    seed: int = 0
    replacements: int = 1

    def __post_init__(self) -> None:
        check_neighbours(self.filler, self.neighbours, self.others)
        check_count("longest", self.longest)
        check_count("replacements", self.replacements)
        if not 0 < self.prefix < 1:
            msg = f"got prefix={self.prefix}, expected a share between 0 and 1"
            raise ValueError(msg)
        if not 0 <= self.dropout < 1:
            msg = f"got dropout={self.dropout}, expected a share from 0 to below 1"
            raise ValueError(msg)
        check_choice("compare", self.compare, COMPARE)

    def prompts(self, record: Record, materials: Materials) -> tuple[Prompt, ...]:
        """The beginning behind the prompt, and each neighbour."""
        behind = behind_of(materials)
        send = ASKS.__add__ if behind.is_chat else behind.begun
        n_rest = len(materials.encoder.tokenizer.encode(self.rest(record, materials)))
        longest = min(n_rest + _SPARE, self.longest)
        stop = _break(record, materials)
        return tuple(
            Prompt(behind.prompt(record.id, send(text)), longest, stop=stop)
            for text in self.beginnings(record, materials)
        )

    def beginnings(self, record: Record, materials: Materials) -> list[str]:
        """The beginning of the record, and neighbours of it.

        Raises:
            UnscorableError: with the reason, where there is no neighbour.
        """
        text = text_of(record)
        end = beginning(text, self.prefix)
        if materials.neighbourhood is None:
            reason = "there is no model that fills in words"
            raise UnscorableError(reason)
        making = EarlySwapping(
            self.filler,
            self.neighbours,
            self.others,
            self.dropout,
            self.prefix,
            self.seed,
            self.replacements,
        )
        made = materials.neighbourhood.of(text, making)
        return [text[:end], *(edited(text[:end], edits) for _, edits in made)]

    def rest(self, record: Record, materials: Materials) -> str:
        """The record after its beginning, up to its label."""
        text = text_of(record)
        return self._whole(record, materials)[len(self._opened(text, materials)) :].strip()

    def compared(
        self, record: Record, materials: Materials, texts: Sequence[str]
    ) -> tuple[str, list[str]]:
        """What is held against each other: the record, and what was written.

        Raises:
            UnscorableError: where nothing was written at all.
        """
        begun = self.beginnings(record, materials)
        written = [
            self._written(one, text, record, materials)
            for one, text in zip(begun, texts, strict=True)
        ]
        if not any(map(str.strip, written)):
            raise UnscorableError(SILENT)
        if self.compare == "suffix":
            return self.rest(record, materials), [text.strip() for text in written]
        behind = behind_of(materials)
        opened = begun if behind.is_chat else [behind.begun(one) for one in begun]
        whole = [joined(one, text).strip() for one, text in zip(opened, written, strict=True)]
        return self._whole(record, materials).strip(), whole

    def _written(self, begun: str, answer: str, record: Record, materials: Materials) -> str:
        """What an answer says after the beginning, up to where the next demonstration would begin."""
        behind = behind_of(materials)
        if not behind.is_chat:
            return behind.until(answer)
        return lines(unrepeated(begun, answer), 1 + self.rest(record, materials).count("\n"))

    def _opened(self, text: str, materials: Materials) -> str:
        """What of the whole is given."""
        behind, begun = behind_of(materials), text[: beginning(text, self.prefix)]
        return begun if behind.is_chat else behind.begun(begun)

    def _whole(self, record: Record, materials: Materials) -> str:
        """The record as a demonstration shows it, without the break that follows."""
        behind, text = behind_of(materials), text_of(record)
        return text if behind.is_chat else behind.asked(text) + behind.answered(label_of(record))


@dataclass(frozen=True)
class DeviatingTexts(_Begun):
    """The continuations themselves, for what another model thinks of them. They are used, and never kept."""

    gives: ClassVar[type] = Continuations

    def observe(self, record: Record, materials: Materials, texts: Sequence[str]) -> Continuations:
        """What was written."""
        _, written = self.compared(record, materials, texts)
        return Continuations(tuple(written))


@dataclass(frozen=True)
class Deviating(_Begun):
    """`Deviations` of what the model writes from a record. What is written is used, and only these kept.

    Attributes:
        encoder: how texts are compared: "letters", "minilm", or a folder or name of an encoder.
        rouge: "recall" (beta without bound, as the paper sets it) or "f1" (beta = 1).
    """

    gives: ClassVar[type] = Deviations
    private: ClassVar[bool] = False
    needs_encoder: ClassVar[bool] = True
    encoder: str = MINILM
    rouge: Rouge = "recall"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_encoder(self.encoder)
        check_choice("rouge", self.rouge, ROUGE)

    def observe(self, record: Record, materials: Materials, texts: Sequence[str]) -> Deviations:
        """Similarity, BLEU and ROUGE-L of each continuation."""
        expected, written = self.compared(record, materials, texts)
        return Deviations(
            likeness(self.encoder).of([(expected, text) for text in written]),
            np.array([bleu(text, expected) for text in written]),
            np.array([rouge_l(text, expected, recall=self.rouge == "recall") for text in written]),
        )

    @property
    def texts(self) -> DeviatingTexts:
        """The same continuations, themselves."""
        own = {one.name: getattr(self, one.name) for one in dataclasses.fields(_Begun)}
        return DeviatingTexts(**own)


@dataclass(frozen=True)
class Perplexities:
    """Log-perplexity of continuations under a model that has not written them, in nats per token.

    Attributes:
        values: (n + 1,) minus the mean log-probability of a token: of the continuation of the beginning,
            then of its neighbours; those that say nothing are left out.
    """

    values: FloatArray


@dataclass(frozen=True)
class DeviatingPerplexity:
    """`Perplexities` of what the model in the role `writer` writes, under a model of the attacker's own.

    It reads the continuations by themselves, without the prompt. Where that of the beginning
    says nothing, or all of the neighbours', there is no value.

    Attributes:
        of: the role of the model asked.
        writer: the role of the model that writes.
        written: what it is let write, and how that is cut.
    """

    gives: ClassVar[type] = Perplexities
    of: str = SURROGATE
    writer: str = TARGET
    written: DeviatingTexts = DeviatingTexts()

    @property
    def built_on(self) -> tuple[Signal, ...]:
        """What is written."""
        return (dataclasses.replace(self.written, of=self.writer),)

    @property
    def filler(self) -> str:
        """What puts words in."""
        return self.written.filler

    def ask(self, record: Record, materials: Materials) -> Ask:
        """N + 1 requests at most, a continuation each."""
        asks = [self._of_one(text, materials) for text in self._texts(record, materials)]
        first, *others = asks
        if first is None:
            raise UnscorableError(SILENT)
        found = [ask for ask in others if ask is not None]
        if not found:
            reason = "the model writes nothing after neighbours of the beginning"
            raise UnscorableError(reason)
        return functools.reduce(Ask.then, found, first)

    def observe(self, answers: Sequence[TokenStats]) -> Perplexities:
        """Minus the mean log-probabilities."""
        return Perplexities(
            np.array([-float(answer.logprob.mean(dtype=np.float64)) for answer in answers])
        )

    def _texts(self, record: Record, materials: Materials) -> Sequence[str]:
        if materials.foreseeing:  # for a plan: as many, and as long as the record
            return [f"{text_of(record)} {'.' * j}" for j in range(self.written.neighbours + 1)]
        (writing,) = self.built_on
        found: Any = materials.written.get(writing, {}).get(record.id)
        if isinstance(found, UnscorableError):
            raise found
        if found is None:
            raise UnscorableError(SILENT)
        texts: tuple[str, ...] = found.texts
        return texts

    @staticmethod
    def _of_one(text: str, materials: Materials) -> Ask | None:
        """What asks for the likelihood of a text by itself; None where it has no token to score."""
        if not text.strip():
            return None
        try:
            return one_request(materials.encoder.encode(Record("", (Turn("text", text),))))
        except UnscorableError:
            return None


def bleu(text: str, expected: str) -> float:
    """Sentence BLEU in [0, 1], of orders up to 4 or the words of the text, smoothed; 0 for no text.

    Geometric mean of the n-gram precisions times exp(min(0, 1 - l_ref / l_gen)) (Papineni et al. 2002;
    equations 10 and 11). An order without a match counts as half a match, a quarter for the next such,
    and so on.

    >>> round(bleu("the old house", "the old house and"), 3)
    0.717
    """
    return float(_bleu().sentence_score(text, [expected]).score) / 100


@functools.cache
def _bleu() -> Any:
    from sacrebleu.metrics import BLEU

    return BLEU(effective_order=True)


def rouge_l(text: str, expected: str, *, recall: bool = True) -> float:
    """ROUGE-L in [0, 1]: words of the longest common subsequence, as a share of those expected.

    Without `recall`, twice these words as a share of the words of both (F1, equation 13 with beta = 1).

    >>> rouge_l("the house is old", "The old house", recall=True)
    0.6666666666666666
    """
    from rapidfuzz.distance import LCSseq

    found, wanted = words(text), words(expected)
    if not found or not wanted:
        return 0.0
    common = LCSseq.similarity(found, wanted)
    return common / len(wanted) if recall else 2 * common / (len(found) + len(wanted))


def _break(record: Record, materials: Materials) -> str:
    """What stands between two demonstrations; "" where it cannot be told."""
    behind, text, label = behind_of(materials), text_of(record), label_of(record)
    shown, whole = behind.shown(text, label), behind.asked(text) + behind.answered(label)
    return shown[len(whole) :] if not behind.is_chat and shown.startswith(whole) else ""
