"""Log-probabilities, moments and ranks of a record's own tokens: one pass, many attacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from unseen.errors import UnscorableError
from unseen.signals.base import TARGET, Ask, Materials, one_request
from unseen.types import Record, TokenStats, Turn


@dataclass(frozen=True)
class TokenStatistics:
    """`TokenStats` of the scored tokens of each record, given what precedes them.

    Attributes:
        of: the role of the model asked.
        case: "lower" measures the record with its scored text in lower case.
    """

    gives: ClassVar[type] = TokenStats
    of: str = TARGET
    case: Literal["as_is", "lower"] = "as_is"

    def ask(self, record: Record, materials: Materials) -> Ask:
        """One request: the scored tokens after their context."""
        if self.case == "lower":
            record = lowered(record)
        return one_request(materials.encoder.encode(record))

    def observe(self, answers: Sequence[TokenStats]) -> TokenStats:
        """The statistics as they are."""
        return answers[0]


@dataclass(frozen=True)
class FirstChoices:
    """`TokenStatistics`, and beside each token whether another one is likelier.

    The answers are those of `TokenStatistics`, so that nothing more is asked. With the model, its
    first choices would spell the text out: what is measured is used, and never kept.

    Attributes:
        of: the role of the model asked.
    """

    gives: ClassVar[type] = TokenStats
    private: ClassVar[bool] = True
    of: str = TARGET

    def ask(self, record: Record, materials: Materials) -> Ask:
        """One request: the scored tokens after their context."""
        return one_request(materials.encoder.encode(record))

    def observe(self, answers: Sequence[TokenStats]) -> TokenStats:
        """The statistics as they are, `rank` included where the target gives it."""
        return answers[0]


def lowered(record: Record) -> Record:
    """The record with the text that counts in lower case; prompts stay as they are.

    Raises:
        UnscorableError: where lower case changes nothing (unicase scripts, lower-case text).
    """
    turns = tuple(
        Turn(turn.role, turn.content.lower()) if turn.is_response else turn for turn in record.turns
    )
    if turns == record.turns:
        reason = "lower case does not change this text"
        raise UnscorableError(reason)
    return replace(record, turns=turns)
