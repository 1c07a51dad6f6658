"""ICP-SP: seeing itself with gaps helps a member least, for the model has it by heart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

from unseen.attacks.base import Known, likelihoods, score_each
from unseen.signals.base import Join, Observations, Signal
from unseen.signals.embedding import LETTERS
from unseen.signals.guided import GuidedProbes
from unseen.signals.masks import Level
from unseen.signals.official import OfficialProbes
from unseen.signals.probed import Aggregate, Aggregation, MaskedProbes, Unit
from unseen.signals.similarity import Likelihood, Measure
from unseen.signals.variants import VariantProbes
from unseen.targets.access import Access
from unseen.types import Scores

_OF_MASKS = ("rate", "strategy", "level", "placeholder")
_FREE = ("probes", "rate", "seed", "parity")
"""Fields that have a say in any case."""


@dataclass(frozen=True)
class IcpSp:
    """In-context probing with self-perturbed probes (ICP-MIA-SP).

    score = min_j (LL(y | x) - LL(y | C_j, x)): minus the most that a probe C_j, the record with a
    share of its response masked or with another response, raises the log-probability of the response (equations 5 to 7,
    section V-B2). A member has little left to gain.

    Attributes:
        probes: how many probes.
        source: "mask" covers a part of the response; "generate" lets a generator write variants of
            it (--generator MODEL, or the reference); "file" takes those of --probes FILE.
        temperature: of the generator's sampling.
        rate: share of the response's words that a probe masks, above 0; at 1, all but one.
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
        likelihood: LL is what the "model" tells, or, for a target that tells its first choices alone,
            what "petal" makes of them with a surrogate's line for the text (section VII-A).
        similarity: how petal compares tokens: "letters", "minilm", or a folder or name.
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "ICP-MIA 2025, arXiv:2512.16292"

    probes: int = 5
    source: Literal["mask", "generate", "file"] = "mask"
    temperature: float = 0.8
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
    likelihood: Likelihood = "model"
    similarity: str = LETTERS

    def __post_init__(self) -> None:
        # All refuse what they cannot do.
        if self.source not in ("mask", "generate", "file"):
            msg = f"got source={self.source!r}, expected 'mask', 'generate' or 'file'"
            raise ValueError(msg)
        self._measure.signals()
        self._aggregation  # noqa: B018
        if self.likelihood == "petal":  # needs less, of this object alone
            object.__setattr__(self, "access", Access.LABEL)
        if self.strategy != "random":
            self._refuse(("probes", "seed"), f"strategy={self.strategy} needs no")
        if self.source != "mask":
            self._refuse(_OF_MASKS, f"source={self.source} masks nothing and needs no")
        if self.source != "generate":
            self._refuse(("temperature",), f"source={self.source} samples nothing and needs no")
        if self.source == "file":
            self._refuse(("seed",), "source=file draws nothing and needs no")
        if self.parity not in ("none", "official"):
            msg = f"got parity={self.parity!r}, expected 'none' or 'official'"
            raise ValueError(msg)
        if self.parity == "official":
            fixed = [one.name for one in fields(self) if one.name not in _FREE]
            self._refuse(fixed, "parity=official fixes")

    def signals(self) -> tuple[Signal, ...]:
        return self._measure.signals()

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        aggregation, measure = self._aggregation, self._measure
        return score_each(audited, lambda id_: aggregation.of(likelihoods(measure, audited, id_)))

    def _refuse(self, names: Iterable[str], why: str) -> None:
        given = [name for name in names if getattr(self, name) != getattr(type(self), name)]
        if given:
            msg = f"{why} {', '.join(given)}: leave {', '.join(given)} out"
            raise ValueError(msg)

    @property
    def _aggregation(self) -> Aggregation:
        return Aggregation(self.aggregate, self.quantile, self.unit)

    @property
    def _measure(self) -> Measure:
        return Measure(self._probed, self.likelihood, self.similarity)

    @property
    def _probed(self) -> MaskedProbes | GuidedProbes | OfficialProbes | VariantProbes:
        if self.parity == "official":
            return OfficialProbes(probes=self.probes, rate=self.rate, seed=self.seed)
        if self.source != "mask":
            return VariantProbes(
                probes=self.probes,
                source=self.source,
                temperature=self.temperature,
                seed=self.seed,
                join=self.join,
            )
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
