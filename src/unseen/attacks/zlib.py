"""Zlib: likely under the model, although it does not compress well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from unseen.attacks.base import Known, mean_logprob, score_each
from unseen.signals.base import Observations, Signal
from unseen.signals.text import CompressedSize
from unseen.signals.token_stats import TokenStatistics
from unseen.targets.access import Access
from unseen.types import Scores


@dataclass(frozen=True)
class Zlib:
    """Log-probability of the scored tokens for each byte of their compressed text.

    score = LL(x) / len(zlib(x)), bytes of UTF-8 (Carlini et al. 2021, section 5.2).

    Attributes:
        length: LL is the "mean" over tokens, as in the published code, or their "sum".
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "Carlini et al. 2021, arXiv:2012.07805"

    length: Literal["mean", "sum"] = "mean"

    def __post_init__(self) -> None:
        if self.length not in ("mean", "sum"):
            msg = f"got length={self.length!r}, expected 'mean' or 'sum'"
            raise ValueError(msg)

    def signals(self) -> tuple[Signal, ...]:
        return (TokenStatistics(), CompressedSize())

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        def formula(id_: str) -> float:
            stats = audited.get(TokenStatistics(), id_)
            n = 1 if self.length == "mean" else len(stats.logprob)
            return n * mean_logprob(stats) / float(audited.get(CompressedSize(), id_).n_compressed)

        return score_each(audited, formula)
