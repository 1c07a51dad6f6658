"""ICP-SP: seeing itself with gaps helps a member least, for the model has it by heart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

from unseen.attacks.base import Known, score_each
from unseen.signals.base import Join, Observations, Signal
from unseen.signals.guided import GuidedProbes
from unseen.signals.masks import Level
from unseen.signals.official import OfficialProbes
from unseen.signals.probed import Aggregate, Aggregation, MaskedProbes, Unit
from unseen.targets.access import Access
from unseen.types import Scores

_FREE = ("probes", "rate", "seed", "parity")
"""Fields that have a say in any case."""


@dataclass(frozen=True)
class IcpSp:
    """In-context probing with self-perturbed probes (ICP-MIA-SP).

    score = min_j (LL(y | x) - LL(y | C_j, x)): minus the most that a probe C_j, the record with a
    share of its response masked, raises the log-probability of the response (equations 5 to 7,
    section V-B2). A member has little left to gain.

    Attributes:
        probes: how many masked probes.
        rate: share of the response's words that a probe masks, in (0, 1).
        strategy: which are masked: "random" ones (the paper finds these best), or, in one probe, the
            least likely ("min_k") or the most likely ("max_k") of the response without a probe;
            `probes` and `seed` then have no say.
        level: what is masked: "word", "token" (the paper) or "character".
        placeholder: what stands in place of each word, token or character that is masked.
        seed: another seed, other masks.
        join: where a probe stands: in an earlier "turn", at the head of the "user" turn, or
            before the record as "plain" text without any template.
        aggregate: how the differences become one score: "min" (the paper), "mean", "median" or
            "quantile".
        quantile: the share of the differences below the score, where the aggregate is a quantile.
        unit: LL is the "mean" over tokens, as in the published code, or their "sum", as in the
            paper's equations.
        parity: "official" measures just as the published code does, to repeat its numbers: in the
            markup of Llama 3, scoring the end of the turn too, with its masks. Of the other fields,
            `probes`, `rate` and `seed` then have a say, and no other.
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "ICP-MIA 2025, arXiv:2512.16292"

    probes: int = 5
    rate: float = 0.5
    strategy: Literal["random", "min_k", "max_k"] = "random"
    level: Level = "word"
    placeholder: str = "word"
    seed: int = 0
    join: Join = "turn"
    aggregate: Aggregate = "min"
    quantile: float = 0.25
    unit: Unit = "mean"
    parity: Literal["none", "official"] = "none"

    def __post_init__(self) -> None:
        # Both refuse what they cannot do.
        self.signals()
        self._aggregation  # noqa: B018
        if self.strategy != "random":
            self._refuse(("probes", "seed"), f"strategy={self.strategy} needs no")
        if self.parity not in ("none", "official"):
            msg = f"got parity={self.parity!r}, expected 'none' or 'official'"
            raise ValueError(msg)
        if self.parity == "official":
            fixed = [one.name for one in fields(self) if one.name not in _FREE]
            self._refuse(fixed, "parity=official fixes")

    def signals(self) -> tuple[Signal, ...]:
        return (self._probed,)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        aggregation = self._aggregation
        return score_each(audited, lambda id_: aggregation.of(audited.get(self._probed, id_)))

    def _refuse(self, names: Iterable[str], why: str) -> None:
        given = [name for name in names if getattr(self, name) != getattr(type(self), name)]
        if given:
            msg = f"{why} {', '.join(given)}: leave {', '.join(given)} out"
            raise ValueError(msg)

    @property
    def _aggregation(self) -> Aggregation:
        return Aggregation(self.aggregate, self.quantile, self.unit)

    @property
    def _probed(self) -> MaskedProbes | GuidedProbes | OfficialProbes:
        if self.parity == "official":
            return OfficialProbes(probes=self.probes, rate=self.rate, seed=self.seed)
        if self.strategy != "random":
            return GuidedProbes(
                strategy=self.strategy,
                rate=self.rate,
                level=self.level,
                placeholder=self.placeholder,
                join=self.join,
            )
        return MaskedProbes(
            probes=self.probes,
            rate=self.rate,
            level=self.level,
            placeholder=self.placeholder,
            seed=self.seed,
            join=self.join,
        )
