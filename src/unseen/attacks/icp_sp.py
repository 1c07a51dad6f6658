"""ICP-SP: seeing itself with gaps helps a member least, for the model has it by heart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from unseen.attacks.base import Known, score_each
from unseen.signals.base import Observations, Signal
from unseen.signals.probed import MaskedProbes, ProbedLikelihoods
from unseen.targets.access import Access
from unseen.types import FloatArray, Scores

_AGGREGATES: Mapping[str, Callable[[FloatArray], Any]] = {
    "min": np.min,
    "mean": np.mean,
    "median": np.median,
}


@dataclass(frozen=True)
class IcpSp:
    """In-context probing with self-perturbed probes (ICP-MIA-SP).

    score = min_j (LL(y | x) - LL(y | C_j, x)): minus the most that a probe C_j, the record with a
    share of its response masked, raises the log-probability of the response (equations 5 to 7,
    section V-B2). A member has little left to gain.

    Attributes:
        probes: how many masked probes.
        rate: share of the response's words that a probe masks, in (0, 1).
        placeholder: what stands in place of a masked word.
        seed: another seed, other masks.
        aggregate: how the differences become one score: "min" (the paper), "mean" or "median".
        length: LL is the "mean" over tokens, as in the published code, or their "sum", as in the
            paper's equations.
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "ICP-MIA 2025, arXiv:2512.16292"

    probes: int = 5
    rate: float = 0.5
    placeholder: str = "word"
    seed: int = 0
    aggregate: Literal["min", "mean", "median"] = "min"
    length: Literal["mean", "sum"] = "mean"

    def __post_init__(self) -> None:
        self.signals()  # refuses what it cannot measure
        if self.aggregate not in _AGGREGATES:
            msg = f"got aggregate={self.aggregate!r}, expected one of {', '.join(_AGGREGATES)}"
            raise ValueError(msg)
        if self.length not in ("mean", "sum"):
            msg = f"got length={self.length!r}, expected 'mean' or 'sum'"
            raise ValueError(msg)

    def signals(self) -> tuple[Signal, ...]:
        return (self._probed,)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        def formula(id_: str) -> float:
            seen: ProbedLikelihoods = audited.get(self._probed, id_)
            difference = float(_AGGREGATES[self.aggregate](seen.plain - seen.probed))
            return difference / seen.n_tokens if self.length == "mean" else difference

        return score_each(audited, formula)

    @property
    def _probed(self) -> MaskedProbes:
        return MaskedProbes(
            probes=self.probes, rate=self.rate, placeholder=self.placeholder, seed=self.seed
        )
