"""LiRA: a member is likelier than models that were trained without it make it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from unseen.attacks.base import Known, check_finite, score_each
from unseen.errors import UnscorableError
from unseen.signals.base import SHADOW, Observations, Signal
from unseen.signals.checks import check_choice
from unseen.signals.likelihoods import (
    Likelihoods,
    Population,
    PopulationLikelihoods,
    TextLikelihood,
)
from unseen.targets.access import Access
from unseen.types import FloatArray, IntArray, Scores

Phi = Literal["mean", "odds"]


@dataclass(frozen=True)
class LikelihoodRatio:
    """How far the likelihood stands out among shadow models that have not seen the record.

    score = log(L / (1 - L)), L = Pr[N(mu, sigma^2) <= phi(x)] = 1 - Pr[Z > phi(x)]: the offline,
    one-sided attack (Carlini et al. 2022, equation 4), as log-odds, for L itself is 1 in double
    precision from 9 sigma on. phi is the mean log-probability of a
    token, or the sum over tokens of log(p / (1 - p)), the paper's phi for each token as an answer
    of its own. mu is the mean of phi over the shadows that the record is out of. sigma is their
    standard deviation (with n - 1) where they are many. Where they are few it would be noise, and
    sigma is common to all records: that of the shadows around their mean for each text of a
    population of known non-members, which is set aside; the order is then that of phi(x) - mu.

    Without a shadow that the record is out of, it is unscored.

    Attributes:
        phi: the statistic: "mean" log-probability, or log-"odds".
        own_sd: from so many shadows on, each record has a sigma of its own.
        population: texts for the common sigma, at most.
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "Carlini et al. 2022, arXiv:2112.03570"

    phi: Phi = "mean"
    own_sd: int = 64
    population: int = 100

    def __post_init__(self) -> None:
        check_choice("phi", self.phi, get_args(Phi))
        if self.own_sd < 2:
            msg = f"got own_sd={self.own_sd}, expected at least 2"
            raise ValueError(msg)
        self.signals()  # refuses what cannot be set aside

    def signals(self) -> tuple[Signal, ...]:
        same = self.phi == "odds"
        return (
            TextLikelihood(),
            TextLikelihood(of=SHADOW, same_tokens=same),
            PopulationLikelihoods(size=self.population),
            PopulationLikelihoods(of=SHADOW, size=self.population, same_tokens=same),
        )

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        def formula(id_: str) -> float:
            target, shadows, of_target, of_shadows = (
                audited.get(signal, id_) for signal in self.signals()
            )
            n = target.n_tokens[0]
            own = self._phi(target, n)[0]
            out = self._phi(shadows, n)[~shadows.inside]
            check_finite(own, out)
            if not len(out):
                reason = "every shadow was trained on this record, or reads other text"
                raise UnscorableError(reason)
            if len(out) >= self.own_sd:
                sigma = float(out.std(ddof=1))
            else:
                sigma = self._common_sigma(of_target, of_shadows)
            if sigma <= 0:
                reason = "the shadows all say the same: there is no spread to compare with"
                raise UnscorableError(reason)
            z = float(own - out.mean()) / sigma
            return _log_cdf(z) - _log_cdf(-z)

        return score_each(audited, formula)

    def _phi(self, said: Likelihoods | Population, n_tokens: IntArray) -> FloatArray:
        """The statistic, per token of the target."""
        if self.phi == "odds":
            return said.odds
        mean: FloatArray = said.logprob / n_tokens
        return mean

    def _common_sigma(self, of_target: Population, of_shadows: Population) -> float:
        """Standard deviation of phi around the mean of each text, over shadows out of it."""
        n_tokens = dict(zip(of_target.text.tolist(), of_target.n_tokens.tolist(), strict=True))
        usable = ~of_shadows.inside & np.isin(of_shadows.text, of_target.text)
        n = np.array([n_tokens.get(text, 1) for text in of_shadows.text.tolist()])
        phi = self._phi(of_shadows, n)
        check_finite(of_target.logprob, phi)
        squares, freedom = 0.0, 0
        for text in np.unique(of_shadows.text[usable]):
            values = phi[usable & (of_shadows.text == text)]
            squares += float(((values - values.mean()) ** 2).sum())
            freedom += len(values) - 1
        if not freedom:
            reason = "one shadow shows no spread: it takes two that were not trained on a record"
            raise UnscorableError(reason)
        return math.sqrt(squares / freedom)


def _log_cdf(z: float) -> float:
    """Log Pr[N(0, 1) <= z], also where the probability is too small for a number."""
    if z > 0:
        return math.log1p(-math.erfc(z / math.sqrt(2)) / 2)
    if z > -25:
        return math.log(math.erfc(-z / math.sqrt(2)) / 2)
    series, term = 1.0, 1.0  # of Mills' ratio: at this distance exact to the last digit
    for k in range(1, 8):
        term *= -(2 * k - 1) / z**2
        series += term
    return -z * z / 2 - math.log(-z * math.sqrt(2 * math.pi)) + math.log(series)
