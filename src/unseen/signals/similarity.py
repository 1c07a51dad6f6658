"""How alike a text and a model's first choices are: for models that tell no more than these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from unseen.errors import UnscorableError
from unseen.signals.base import SURROGATE, TARGET, Ask, Materials, Signal, one_request
from unseen.signals.embedding import LETTERS, check_encoder, likeness
from unseen.signals.probed import MaskedProbes, ProbedLikelihoods
from unseen.signals.retrieval import RetrievedProbes
from unseen.signals.text import SameText
from unseen.signals.token_stats import TokenStatistics
from unseen.signals.variants import VariantProbes
from unseen.targets.access import Access
from unseen.types import FloatArray, Record, Tokenizer, TokenStats

_PROBES = (MaskedProbes, RetrievedProbes, VariantProbes)
_LOWEST = 1e-16
"""What a similarity counts as at least, before its logarithm is taken."""


@dataclass(frozen=True)
class Similarities:
    """Log-similarities of n scored tokens to the model's first choices.

    Attributes:
        values: (n,) s_t = log max(cos(e(g_t), e(x_t)), 1e-16), at most 0 but for rounding.
    """

    values: FloatArray


@dataclass(frozen=True)
class TokenSimilarity:
    """s_t of each scored token (He et al. 2025): how much like it the model's first choice g_t is.

    The first choices are those of the text's own request, so that nothing more is asked of a model
    whose likelihoods are measured. With the model they would spell the text out: what is measured
    is used, and never kept.

    Attributes:
        of: the role of the model asked.
        encoder: how tokens are compared: "letters", "minilm", or a folder or name of an encoder.
    """

    gives: ClassVar[type] = Similarities
    private: ClassVar[bool] = True
    needs_encoder: ClassVar[bool] = True
    access: ClassVar[Access] = Access.LABEL
    of: str = TARGET
    encoder: str = LETTERS

    def __post_init__(self) -> None:
        check_encoder(self.encoder)

    def ask(self, record: Record, materials: Materials) -> Ask:
        """One request: the scored tokens after their context."""
        return one_request(materials.encoder.encode(record))

    def read(
        self,
        record: Record,  # noqa: ARG002
        materials: Materials,
        ask: Ask,
        answers: Sequence[TokenStats],
    ) -> Similarities:
        """Similarities of the first choices."""
        tokenizer = materials.encoder.tokenizer
        return Similarities(_similarities(ask.scored[0], answers[0], tokenizer, self.encoder))


@dataclass(frozen=True)
class ProbedSimilarity:
    """The same without and after each of K probes: sums of s_t in the place of log-likelihoods.

    Attributes:
        of: the role of the model asked.
        encoder: how tokens are compared, as in `TokenSimilarity`.
        shown: which probes.
    """

    gives: ClassVar[type] = ProbedLikelihoods
    needs_encoder: ClassVar[bool] = True
    access: ClassVar[Access] = Access.LABEL
    of: str = TARGET
    encoder: str = LETTERS
    shown: MaskedProbes | RetrievedProbes | VariantProbes = MaskedProbes()  # noqa: RUF009 (frozen)

    def __post_init__(self) -> None:
        check_encoder(self.encoder)

    @property
    def built_on(self) -> tuple[Signal, ...]:
        """What the probes are made from."""
        return self.shown.built_on if isinstance(self.shown, VariantProbes) else ()

    @property
    def needs_probes(self) -> bool:
        """Whether the user gives the probes."""
        return isinstance(self.shown, VariantProbes) and self.shown.needs_probes

    @property
    def needs_pool(self) -> bool:
        """Whether the probes are demonstrations."""
        return isinstance(self.shown, RetrievedProbes)

    def ask(self, record: Record, materials: Materials) -> Ask:
        """K + 1 requests: without a probe, and after each."""
        return self.shown.ask(record, materials)

    def read(
        self,
        record: Record,  # noqa: ARG002
        materials: Materials,
        ask: Ask,
        answers: Sequence[TokenStats],
    ) -> ProbedLikelihoods:
        """Sums of log-similarities."""
        tokenizer = materials.encoder.tokenizer
        plain, *probed = (
            float(_similarities(tokens, answer, tokenizer, self.encoder).sum())
            for tokens, answer in zip(ask.scored, answers, strict=True)
        )
        return ProbedLikelihoods(len(ask.scored[0]), plain, np.array(probed))


def _similarities(
    tokens: Sequence[int], answer: TokenStats, tokenizer: Tokenizer, encoder: str
) -> FloatArray:
    """Log-similarities of tokens and first choices, shape (n,); 0 where they are the same."""
    if answer.argmax is None:
        reason = "the model does not tell its first choices"
        raise UnscorableError(reason)
    pairs = [
        (tokenizer.decode([choice]), tokenizer.decode([token])) if choice != token else ("", "")
        for choice, token in zip(answer.argmax.tolist(), tokens, strict=True)
    ]
    found: FloatArray = np.log(np.maximum(likeness(encoder).of(pairs), _LOWEST))
    return found


Likelihood = Literal["model", "petal"]


@dataclass(frozen=True)
class Measure:
    """Where the likelihoods without and after probes come from.

    Attributes:
        probes: the probes; a signal that asks the target for log-probabilities.
        likelihood: "model" takes these; "petal" guesses them from first choices (ICP-MIA, section
            VII-A), for probes that are made without any answer.
        similarity: the encoder of petal.
    """

    probes: Any
    likelihood: Likelihood
    similarity: str

    def __post_init__(self) -> None:
        if self.likelihood not in ("model", "petal"):
            msg = f"got likelihood={self.likelihood!r}, expected 'model' or 'petal'"
            raise ValueError(msg)
        if self.likelihood == "model" and self.similarity != LETTERS:
            msg = f"got similarity={self.similarity}, which says nothing without likelihood=petal"
            raise ValueError(msg)
        if self.likelihood == "petal" and not isinstance(self.probes, _PROBES):
            msg = f"likelihood=petal has no likelihoods for {type(self.probes).__name__}"
            raise ValueError(msg)

    def signals(self) -> tuple[Signal, ...]:
        """What is measured: the probes; for petal, what a surrogate says of the text comes after."""
        if self.likelihood == "model":
            return (self.probes,)
        return (
            ProbedSimilarity(encoder=self.similarity, shown=self.probes),
            TokenSimilarity(of=SURROGATE, encoder=self.similarity),
            TokenStatistics(of=SURROGATE),
            SameText(of=SURROGATE),
        )


def load_encoders(signals: Iterable[Signal]) -> None:
    """Loads the encoders that some signals compare texts by, so that what is missing shows at once.

    Such a signal says so by a class variable `needs_encoder`, and has a field `encoder`.

    Raises:
        ModelError: where one cannot be loaded.
        MissingExtraError: where it needs packages that are not installed.
    """
    for signal in signals:
        if getattr(signal, "needs_encoder", False):
            likeness(signal.encoder)  # type: ignore[union-attr]
