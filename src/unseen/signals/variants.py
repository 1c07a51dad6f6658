"""Other answers to the same prompt as probes: from a model that writes them, or from a file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from unseen.errors import UnscorableError
from unseen.signals.base import GENERATOR, TARGET, Ask, Join, Materials, Signal, one_request
from unseen.signals.probed import ProbedLikelihoods, after_each, check_probes, sums
from unseen.types import Prompt, Record, Sampling, TokenStats, Turn

Source = Literal["generate", "file"]

_ROUNDS = 3
"""Times as many texts as are wanted, before those that are there must do."""
_OF_AN_ANSWER = """\
Here are a question and an answer.

Question:
{prompt}

Answer:
{response}

Give another answer to this question. Say the same in other words, and change some of the details. \
Write the answer alone, without a heading and without a comment."""
_OF_A_TEXT = """\
Here is a text.

{response}

Write this text anew. Say the same in other words, and change some of the details. Write the text \
alone, without a heading and without a comment."""
_OF_A_PROMPT = """\
Here is a question.

{prompt}

Ask the same question in other words. Its answer must stay the same. Write the question alone, without a \
heading and without a comment."""
_REFUSAL = re.compile(
    r"\W*(i['’]?m sorry|i am sorry|sorry\b|i can(no|['’])t\b|i['’]?m (unable|not able)|"
    r"i am (unable|not able)|as an ai\b)",
    re.IGNORECASE,
)
_LABEL = re.compile(r"\W*(another |new )?(answer|text|response)\s*:\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Variants:
    """Other answers to a record's prompt; at least one.

    Attributes:
        texts: all different, and none the record's own.
    """

    texts: tuple[str, ...]


@dataclass(frozen=True)
class WrittenVariants:
    """K variants of the response by a generator (ICP-MIA-SP, section V-B2).

    The generator gets prompt and response and is asked, in our words, for another answer. What is
    empty, a refusal, a copy of the response or a text that is there already is asked for again, up
    to three times K texts in all; with fewer variants in the end, there are fewer probes. What is
    written is used, and never kept.

    Attributes:
        of: the role of the model that writes.
        variants: K, the most variants of a record.
        temperature: of sampling.
        seed: another seed, other variants.
    """

    gives: ClassVar[type] = Variants
    private: ClassVar[bool] = True
    varied: ClassVar[str] = "response"
    of: str = GENERATOR
    variants: int = 5
    temperature: float = 0.8
    seed: int = 0

    def __post_init__(self) -> None:
        check_probes(self.variants)
        if not self.temperature and self.variants > 1:
            msg = "got temperature=0 with several probes, which would all be alike"
            raise ValueError(msg)
        self._sampling  # noqa: B018 (it refuses what makes no sense)

    def prompts(self, record: Record, materials: Materials) -> tuple[Prompt, ...]:
        """As many draws as there are variants."""
        return self._drawn(record, materials, 0, self.variants)

    def more(
        self, record: Record, materials: Materials, texts: Sequence[str]
    ) -> tuple[Prompt, ...]:
        """As many draws as variants are missing."""
        missing = self.variants - len(self._usable(record, texts))
        room = _ROUNDS * self.variants - len(texts) if self.temperature else 0
        return self._drawn(record, materials, len(texts), max(0, min(missing, room)))

    def observe(
        self,
        record: Record,
        materials: Materials,  # noqa: ARG002
        texts: Sequence[str],
    ) -> Variants:
        """What can be used of the texts.

        Raises:
            UnscorableError: where it is nothing.
        """
        found = self._usable(record, texts)
        if not found:
            said = [text for text in map(_cleaned, texts) if text]
            copied = any(folded(text) == folded(self._own(record)) for text in said)
            reason = (
                f"the generator repeats the {self.varied}"
                if copied
                else "the generator refuses to write a variant"
                if said
                else "the generator writes nothing"
            )
            raise UnscorableError(reason)
        return Variants(tuple(found))

    def _drawn(
        self, record: Record, materials: Materials, first: int, n: int
    ) -> tuple[Prompt, ...]:
        if not n:
            return ()
        encoder, own = materials.encoder, self._own(record)
        ids = encoder.prompt((Turn("user", self._asked(record)),))
        longest = 2 * len(encoder.tokenizer.encode(own)) + 16
        longest = min(longest, encoder.max_length - len(ids))
        return tuple(Prompt(ids, longest, self._sampling, first + j) for j in range(n))

    def _own(self, record: Record) -> str:
        """What is varied."""
        return response_of(record)

    def _asked(self, record: Record) -> str:
        """What the generator gets."""
        before = "\n".join(turn.content for turn in record.turns[:-1] if turn.role != "system")
        wording = _OF_AN_ANSWER if before.strip() else _OF_A_TEXT
        return wording.format(prompt=before.strip(), response=response_of(record).strip())

    def _usable(self, record: Record, texts: Sequence[str]) -> list[str]:
        """Variants without repetitions, in their order."""
        refuses = _REFUSAL.match(self._own(record)) is not None
        own, seen, found = folded(self._own(record)), set[str](), list[str]()
        for text in map(_cleaned, texts):
            same = folded(text)
            if same and same != own and same not in seen:
                if _REFUSAL.match(text) and not refuses:
                    continue
                seen.add(same)
                found.append(text)
        return found

    @property
    def _sampling(self) -> Sampling:
        return Sampling(self.temperature, 0, 0.95, self.seed)


@dataclass(frozen=True)
class WrittenParaphrases(WrittenVariants):
    """K paraphrases of the last prompt by a generator, as `WrittenVariants` are of the response.

    Attributes:
        variants: K, the most paraphrases of a record.
    """

    varied: ClassVar[str] = "prompt"
    variants: int = 2

    def _own(self, record: Record) -> str:
        return last_prompt(record)

    def _asked(self, record: Record) -> str:
        return _OF_A_PROMPT.format(prompt=last_prompt(record).strip())


@dataclass(frozen=True)
class VariantProbes:
    """Probes C_j = (x, y'_j): other answers to the record's prompt, shown before it.

    Generated ones are those of `WrittenVariants`; those of a file are what the user gives for each
    record's id. Of these too, a copy of the response is left out: it would tell it. A probe that
    does not fit before the record is left out; a record without any is unscored.

    Attributes:
        of: the role of the model asked.
        probes: K, the most probes for a record.
        source: "generate" or "file".
        temperature: of the generator's sampling; says nothing for a file.
        seed: another seed, other variants; says nothing for a file.
        join: where a probe stands, as in `MaskedProbes`.
    """

    gives: ClassVar[type] = ProbedLikelihoods
    of: str = TARGET
    probes: int = 5
    source: Source = "generate"
    temperature: float = 0.8
    seed: int = 0
    join: Join = "turn"

    def __post_init__(self) -> None:
        check_probes(self.probes, self.join)
        if self.source not in ("generate", "file"):
            msg = f"got source={self.source!r}, expected 'generate' or 'file'"
            raise ValueError(msg)
        self.built_on  # noqa: B018 (it refuses what makes no sense)

    @property
    def built_on(self) -> tuple[Signal, ...]:
        """What the generator writes."""
        if self.source == "file":
            return ()
        return (WrittenVariants(GENERATOR, self.probes, self.temperature, self.seed),)

    @property
    def needs_probes(self) -> bool:
        """Whether the user gives the probes."""
        return self.source == "file"

    def ask(self, record: Record, materials: Materials) -> Ask:
        """K + 1 requests at most: without a probe, and after each that fits."""
        encoder, response = materials.encoder, response_of(record)
        alone = one_request(encoder.encode(record, join=self.join))
        if encoder.scored_text(record).strip() not in response:
            reason = "more than the last response counts, and a variant is of that alone"
            raise UnscorableError(reason)
        probes = (
            replace(record, turns=(*record.turns[:-1], Turn(record.turns[-1].role, text)))
            for text in self._texts(record, materials)
        )
        return after_each(
            record, probes, self.probes, encoder=encoder, join=self.join, alone=alone,
            problem="every probe that is given repeats the response",
        )  # fmt: skip

    def observe(self, answers: Sequence[TokenStats]) -> ProbedLikelihoods:
        """Sums of log-probabilities."""
        return sums(answers)

    def _texts(self, record: Record, materials: Materials) -> Sequence[str]:
        if self.source == "file":
            given = (materials.probes or {}).get(record.id, ())
            if not given:
                reason = "no probe is given for this record"
                raise UnscorableError(reason)
            own = folded(response_of(record))
            different = {folded(text): text for text in given if folded(text) not in ("", own)}
            return tuple(different.values())
        (writing,) = self.built_on
        if materials.foreseeing:  # for a plan: as many, and as long as the response
            return [f"{response_of(record)} {'.' * j}" for j in range(1, self.probes + 1)]
        return written_for(record, writing, materials)


def written_for(record: Record, writing: Signal, materials: Materials) -> tuple[str, ...]:
    """What a generator has written for a record.

    Raises:
        UnscorableError: with the reason, where that is nothing.
    """
    found: Any = materials.written.get(writing, {}).get(record.id)
    if isinstance(found, UnscorableError):
        raise found
    if found is None:
        reason = "no variant was written"
        raise UnscorableError(reason)
    texts: tuple[str, ...] = found.texts
    return texts


def response_of(record: Record) -> str:
    """The response that is varied: the last turn.

    Raises:
        UnscorableError: where that is none, or there is nothing in it.
    """
    last = record.turns[-1]
    if not last.is_response or not last.content.strip():
        reason = "the record does not end with a response"
        raise UnscorableError(reason)
    return last.content


def last_prompt(record: Record) -> str:
    """What the user says last.

    Raises:
        UnscorableError: where that is nothing.
    """
    said = [turn.content for turn in record.turns if turn.role == "user"]
    if not said or not said[-1].strip():
        reason = "the record has no prompt"
        raise UnscorableError(reason)
    return said[-1]


def folded(text: str) -> str:
    """The text without case and without differences of white space."""
    return " ".join(text.casefold().split())


def _cleaned(text: str) -> str:
    """A text without what models put around it: a line that announces it, a label, quotes."""
    said = text.strip()
    first, found, rest = said.partition("\n")
    if found and rest.strip() and first.rstrip().endswith(":") and len(first) < 120:
        said = rest.strip()
    said = _LABEL.sub("", said, count=1) if _LABEL.match(said) else said
    if len(said) > 2 and (said[0], said[-1]) in (('"', '"'), ("“", "”")):
        said = said[1:-1].strip()
    return said
