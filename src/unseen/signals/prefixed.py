"""Token statistics of a record after a prefix of known records, for ReCaLL and its relatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from unseen.errors import UnscorableError
from unseen.signals.base import TARGET, Ask, Materials, one_request
from unseen.signals.checks import check_count
from unseen.types import Record, TokenStats


@dataclass(frozen=True)
class PrefixedStatistics:
    """`TokenStats` of the record's scored tokens after known records (Xie et al. 2024, eq. 1).

    The tokens are those that `TokenStatistics` scores. Shots that do not fit into the model's
    context are dropped from the front; a record that does not fit after one shot is unscored.

    Attributes:
        of: the role of the model asked.
        known: which records stand before it; none of them is judged.
        shots: how many, at most.
    """

    gives: ClassVar[type] = TokenStats
    of: str = TARGET
    known: Literal["nonmembers", "members"] = "nonmembers"
    shots: int = 7

    def __post_init__(self) -> None:
        check_count("shots", self.shots)

    @property
    def known_needed(self) -> tuple[int, int]:
        """Members and non-members to set aside."""
        return (self.shots, 0) if self.known == "members" else (0, self.shots)

    def ask(self, record: Record, materials: Materials) -> Ask:
        """One request: the scored tokens after the prefix and their own context."""
        pool = materials.known_nonmembers if self.known == "nonmembers" else materials.known_members
        if not pool:
            reason = f"no known {self.known} are set aside for the prefix"
            raise UnscorableError(reason)
        shots = pool[: self.shots]
        alone = one_request(materials.encoder.encode(record))
        problem = ""
        for dropped in range(len(shots)):
            try:
                ask = one_request(materials.encoder.encode(record, before=shots[dropped:]))
            except UnscorableError as error:
                problem = error.problem
                continue
            if ask.scored != alone.scored:
                reason = "the template changes the record when others stand before it"
                raise UnscorableError(reason)
            return ask
        raise UnscorableError(problem)

    def observe(self, answers: Sequence[TokenStats]) -> TokenStats:
        """The statistics as they are."""
        return answers[0]
