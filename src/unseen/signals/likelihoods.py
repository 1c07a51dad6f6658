"""Likelihoods of whole texts, to compare models by: the target, a reference, or many shadows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unseen.errors import UnscorableError
from unseen.signals.base import TARGET, Ask, Materials, OfShadow, one_request
from unseen.signals.checks import check_count
from unseen.signals.text import common_text
from unseen.types import BoolArray, FloatArray, IntArray, Record, TokenStats

SURE = 1e-6
"""1 - p is at least this in log(p / (1 - p)): single precision resolves no more."""


@dataclass(frozen=True)
class Likelihoods:
    """How likely a text is for k models: one, or the shadows that can be asked about it.

    Attributes:
        model: (k,) their numbers.
        inside: (k,) whether the text is known to be in their training data.
        n_tokens: (k,) scored tokens of the text, for each model.
        logprob: (k,) sums of log p(token | everything before), in nats.
        odds: (k,) sums of log(p / (1 - p)), with 1 - p at least 1e-6.
    """

    model: IntArray
    inside: BoolArray
    n_tokens: IntArray
    logprob: FloatArray
    odds: FloatArray

    @property
    def outside(self) -> BoolArray:
        """(k,) the models whose training data is not known to hold the text."""
        return ~self.inside


@dataclass(frozen=True)
class TextLikelihood:
    """`Likelihoods` of each record.

    Only a text that the model reads just as the target does is measured: likelihoods of other text
    would be other likelihoods. Into how many tokens it is cut does not matter to a sum of
    log-probabilities; it does to a sum of log(p / (1 - p)).

    Attributes:
        of: the role of the models asked.
        same_tokens: whether the tokens have to be the target's too.
    """

    gives: ClassVar[type] = Likelihoods
    of: str = TARGET
    same_tokens: bool = False

    def ask(self, record: Record, materials: Materials) -> Ask:
        """One request, just that of `TokenStatistics`: nothing more is asked."""
        if self.of != TARGET:
            common = common_text(record, materials)
            if self.same_tokens and not common.same_tokens:
                reason = "the two models cut this record into other tokens"
                raise UnscorableError(reason)
        return one_request(materials.encoder.encode(record))

    def observe(self, answers: Sequence[TokenStats]) -> Likelihoods:
        """The likelihoods for one model."""
        logprob = answers[0].logprob.astype(np.float64)
        odds = logprob - np.log(np.maximum(-np.expm1(logprob), SURE))
        return Likelihoods(
            model=np.array([0]),
            inside=np.array([False]),
            n_tokens=np.array([len(logprob)]),
            logprob=np.array([logprob.sum()]),
            odds=np.array([odds.sum()]),
        )

    def combine(self, parts: Mapping[int, OfShadow]) -> Likelihoods:
        """The likelihoods for all shadows."""
        return Likelihoods(
            model=np.array(list(parts)),
            inside=np.array([part.inside for part in parts.values()]),
            n_tokens=np.concatenate([part.value.n_tokens for part in parts.values()]),
            logprob=np.concatenate([part.value.logprob for part in parts.values()]),
            odds=np.concatenate([part.value.odds for part in parts.values()]),
        )


@dataclass(frozen=True)
class Population:
    """How likely the texts of a population are; a row for each text and each model, m in all.

    Attributes:
        text: (m,) the number of the text.
        model: (m,) the number of the model.
        inside: (m,) whether the text is known to be in the model's training data.
        n_tokens: (m,) scored tokens of the text, for the model.
        logprob: (m,) sums of log-probabilities, in nats.
        odds: (m,) sums of log(p / (1 - p)).
    """

    text: IntArray
    model: IntArray
    inside: BoolArray
    n_tokens: IntArray
    logprob: FloatArray
    odds: FloatArray


@dataclass(frozen=True)
class PopulationLikelihoods:
    """`Likelihoods` of non-members that are set aside: what those who are no members look like.

    None of them is judged. Up to `size` are set aside, a fifth of the non-members at most.

    Attributes:
        of: the role of the models asked.
        size: how many, at most.
        same_tokens: as in `TextLikelihood`.
    """

    gives: ClassVar[type] = Population
    of: str = TARGET
    size: int = 100
    same_tokens: bool = False

    def __post_init__(self) -> None:
        check_count("population", self.size)

    @property
    def each(self) -> TextLikelihood:
        """What is measured of each text."""
        return TextLikelihood(self.of, self.same_tokens)

    def gather(self, population: Sequence[Likelihoods | None]) -> Population:
        """The rows of all texts that could be measured."""
        found = [(i, value) for i, value in enumerate(population) if value is not None]
        if not found:
            reason = "no known non-members are set aside as a population"
            raise UnscorableError(reason)
        return Population(
            text=np.concatenate([np.full(len(value.model), i) for i, value in found]),
            model=np.concatenate([value.model for _, value in found]),
            inside=np.concatenate([value.inside for _, value in found]),
            n_tokens=np.concatenate([value.n_tokens for _, value in found]),
            logprob=np.concatenate([value.logprob for _, value in found]),
            odds=np.concatenate([value.odds for _, value in found]),
        )
