"""How likely each label of a task is as the answer of a model behind a prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unseen.errors import NO_ROOM, UnscorableError
from unseen.signals.answered import behind_of, place_of_label, text_of
from unseen.signals.base import TARGET, Ask, Materials
from unseen.types import FloatArray, Record, Request, TokenStats


@dataclass(frozen=True)
class LabelLikelihoods:
    """How likely the k labels of a task are after a question.

    Attributes:
        logprob: (k,) sums of the log-probabilities of each label's tokens, in nats.
        own: place of the record's own label.
    """

    logprob: FloatArray
    own: int

    @property
    def right(self) -> bool:
        """Whether its own label is the likeliest; of equal ones, the first in the task's order is.

        Raises:
            UnscorableError: where a label has no finite likelihood.
        """
        return likeliest(self.logprob) == self.own


@dataclass(frozen=True)
class Labelled:
    """`LabelLikelihoods` of each record: log p(label | question), every label as a whole.

    A label follows the question as a demonstration shows it: after a space, unless in a chat.

    Attributes:
        of: the role of the model asked.
    """

    gives: ClassVar[type] = LabelLikelihoods
    of: str = TARGET

    def ask(self, record: Record, materials: Materials) -> Ask:
        """A request for each label, in the task's order."""
        place_of_label(record, materials)
        return options(record, materials, behind_of(materials).asked(text_of(record)))

    def read(
        self,
        record: Record,
        materials: Materials,
        ask: Ask,  # noqa: ARG002
        answers: Sequence[TokenStats],
    ) -> LabelLikelihoods:
        """Sums of log-probabilities."""
        return LabelLikelihoods(sums(answers), place_of_label(record, materials))


def options(record: Record, materials: Materials, said: str) -> Ask:
    """A request for each label of the task as the answer to what is said, in the task's order.

    Raises:
        UnscorableError: where one does not fit into the context.
    """
    behind, encoder = behind_of(materials), materials.encoder
    context = behind.prompt(record.id, said)
    cue = "" if behind.is_chat else said.rpartition("\n")[2]
    answers = _after(cue, map(behind.answered, behind.labels), encoder.tokenizer.encode)
    if max(map(len, answers)) + len(context) > encoder.max_length:
        raise UnscorableError(NO_ROOM)
    keep = tuple(np.ones(len(answer), dtype=bool) for answer in answers)
    return Ask(tuple(Request(context, answer) for answer in answers), keep)


def _after(
    cue: str, answers: Iterable[str], encode: Callable[[str], list[int]]
) -> list[tuple[int, ...]]:
    """Token ids of answers where they follow a cue.

    By itself one may have others: tokenizers of the Llama family put a space before every text.
    """
    begun = encode(cue)
    found = []
    for answer in answers:
        whole = encode(cue + answer)
        follows = whole[: len(begun)] == begun
        found.append(tuple(whole[len(begun) :] if follows else encode(answer)))
    return found


def sums(answers: Sequence[TokenStats]) -> FloatArray:
    """Log-probabilities of whole continuations, shape (len(answers),)."""
    return np.array([float(answer.logprob.sum(dtype=np.float64)) for answer in answers])


def likeliest(logprob: FloatArray) -> int:
    """Place of the likeliest; of equal ones, the first.

    Raises:
        UnscorableError: where one has no finite likelihood.
    """
    if not np.isfinite(logprob).all():
        reason = "a label has no finite likelihood"
        raise UnscorableError(reason)
    return int(logprob.argmax())
