"""Likelihood of a response after demonstrations of others, alike in their prompts (ICP-MIA-Ref)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from unseen.errors import UnscorableError
from unseen.signals.base import TARGET, Ask, Join, Materials, Signal, one_request
from unseen.signals.pool import TFIDF
from unseen.signals.probed import ProbedLikelihoods, after_each, check_probes, sums
from unseen.types import Record, TokenStats

_TRIES = 4  # times as many demonstrations as are wanted, before a record is given up


@dataclass(frozen=True)
class RetrievedProbes:
    """Probes C_j = (x_j, y_j): the K demonstrations of a pool whose prompts are most like x.

    ICP-MIA-Ref (section V-B1). Demonstrations that repeat the record, or nearly so, are left out:
    they would tell the response. One that does not fit before the record gives its place to the
    next. A record with fewer than K (a small pool) has fewer probes; with none, it is unscored.

    Attributes:
        of: the role of the model asked.
        probes: K, the most probes for a record.
        encoder: how prompts are compared: "tfidf", "minilm", or a folder or name of an encoder.
        join: where a probe stands, as in `MaskedProbes`.
    """

    gives: ClassVar[type] = ProbedLikelihoods
    needs_pool: ClassVar[bool] = True
    of: str = TARGET
    probes: int = 10
    encoder: str = TFIDF
    join: Join = "turn"

    def __post_init__(self) -> None:
        check_probes(self.probes, self.join)
        if not self.encoder:
            msg = f"got no encoder, expected {TFIDF}, or a folder or name of a sentence encoder"
            raise ValueError(msg)

    def ask(self, record: Record, materials: Materials) -> Ask:
        """K + 1 requests: without a probe, and after each."""
        if materials.pool is None:
            reason = "there is no reference pool to take demonstrations from"
            raise UnscorableError(reason)
        pool, encoder = materials.pool, materials.encoder
        alone = one_request(encoder.encode(record, join=self.join))
        nearest = pool.nearest(record, self.encoder)[: _TRIES * self.probes]
        return after_each(
            record, (pool.records[at] for at in nearest), self.probes,
            encoder=encoder, join=self.join, alone=alone,
            problem="the reference pool holds nothing but this record and its near duplicates",
        )  # fmt: skip

    def observe(self, answers: Sequence[TokenStats]) -> ProbedLikelihoods:
        """Sums of log-probabilities."""
        return sums(answers)


def retrievals(signals: Iterable[Signal]) -> list[RetrievedProbes]:
    """The signals that show demonstrations, those within others included."""
    found = [getattr(signal, "shown", signal) for signal in signals]
    return [one for one in found if isinstance(one, RetrievedProbes)]
