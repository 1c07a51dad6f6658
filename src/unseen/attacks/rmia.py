"""RMIA: beside texts that are no members, a member's likelihood has risen the most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from unseen.attacks.base import Known, check_finite, score_each
from unseen.errors import UnscorableError
from unseen.signals.base import Observations, Signal
from unseen.signals.checks import check_choice
from unseen.signals.likelihoods import PopulationLikelihoods, TextLikelihood
from unseen.targets.access import Access
from unseen.types import FloatArray, Scores

Against = Literal["shadow", "reference"]


@dataclass(frozen=True)
class Rmia:
    """Share of a population that the text beats, by how much likelier training has made it.

    score = Pr_z[ratio(x) / ratio(z) > gamma], ties half, over texts z of a population of known
    non-members, which is set aside; ratio(x) = p(x) / p_bar(x), p_bar = ((1 + a) p_out + (1 - a)) / 2
    (Zarifzadeh et al. 2024, the offline form). p is exp of the mean log-probability of a
    token, p_out its mean over the shadows that the text is out of, or the reference's.

    The population is the same for all records, so that the score is a step function of ratio(x):
    its order is that of the ratio, in as many steps as there are texts. A false-positive rate below
    one in so many cannot be reached. p of a text of less than e^-700 a token is 0; there is none.

    Attributes:
        against: whose likelihoods make p_out: "shadow" models, or one "reference".
        gamma: how many times larger the ratio has to be.
        a: how far p(x) of models with the text lies above p_out, where none were trained with it:
            from 0, where p_bar is (p_out + 1) / 2, to 1, where it is p_out itself. The paper's 0.3 suits
            classifiers, whose p is near 1; with a token's p near 0.1 it leaves p_bar all but the
            same for all texts, and rmia[a=1.0] is run beside it.
        population: texts of the population, at most.
    """

    access: ClassVar[Access] = Access.LOGPROB
    variants: ClassVar[tuple[str, ...]] = ("rmia[a=1.0]",)
    paper: ClassVar[str] = "Zarifzadeh et al. 2024, arXiv:2312.03262"

    against: Against = "shadow"
    gamma: float = 1.0
    a: float = 0.3
    population: int = 100

    def __post_init__(self) -> None:
        check_choice("against", self.against, get_args(Against))
        if not self.gamma > 0:
            msg = f"got gamma={self.gamma}, expected a number above 0"
            raise ValueError(msg)
        if not 0 <= self.a <= 1:
            msg = f"got a={self.a}, expected 0 to 1"
            raise ValueError(msg)
        self.signals()  # refuses what cannot be set aside

    def signals(self) -> tuple[Signal, ...]:
        return (
            TextLikelihood(),
            TextLikelihood(of=self.against),
            PopulationLikelihoods(size=self.population),
            PopulationLikelihoods(of=self.against, size=self.population),
        )

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        def formula(id_: str) -> float:
            target, others, of_target, of_others = (
                audited.get(signal, id_) for signal in self.signals()
            )
            check_finite(target.logprob, others.logprob, of_target.logprob, of_others.logprob)
            n = target.n_tokens[0]
            out = others.logprob[~others.inside] / n
            if not len(out):
                reason = "every shadow was trained on this record, or reads other text"
                raise UnscorableError(reason)
            own = self._ratio(target.logprob[0] / n, out)
            theirs = []
            for text, n, logprob in zip(
                of_target.text, of_target.n_tokens, of_target.logprob, strict=True
            ):
                outside = (of_others.text == text) & ~of_others.inside
                if outside.any():
                    theirs.append(self._ratio(logprob / n, of_others.logprob[outside] / n))
            if not theirs:
                reason = "no text of the population can be compared"
                raise UnscorableError(reason)
            beaten = np.sign(own - self.gamma * np.array(theirs))
            return float((beaten.mean() + 1) / 2)

        return score_each(audited, formula)

    def _ratio(self, mean: float, out: FloatArray) -> float:
        """P / p_bar, from mean log-probabilities of a token."""
        p_bar = ((1 + self.a) * float(np.exp(out).mean()) + (1 - self.a)) / 2
        return float(np.exp(mean)) / p_bar
