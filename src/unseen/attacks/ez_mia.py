"""EZ-MIA: where the target is wrong, a member is still likelier than before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from unseen.attacks.base import Known, gains, score_each
from unseen.errors import UnscorableError
from unseen.signals.base import REFERENCE, Observations, Signal
from unseen.signals.text import SameText
from unseen.signals.token_stats import FirstChoices, TokenStatistics
from unseen.targets.access import Access
from unseen.types import BoolArray, Scores, TokenStats


@dataclass(frozen=True)
class ErrorZone:
    """Gains against losses of probability, at the tokens that the target would not have chosen.

    With d_t = log p(x_t | x_<t) - log p_ref(x_t | x_<t), and t over the tokens where another token
    is likelier for the target, score = log(sum_t max(d_t, 0) + e) - log(sum_t max(-d_t, 0) + e)
    (Ilic et al. 2026, whose ratio has this logarithm but for e, and ranks alike). e keeps the
    score finite, and that of a text in which hardly anything moved near 0.

    Where the target's first choice is right everywhere, all tokens are compared instead, by the same
    equation. It is members that are remembered word by word, so that they must not be left out; but
    a short answer that anybody would guess looks so too: the authors take both for members, and here
    the second stays near 0.

    Attributes:
        tokens: "errors" as in the paper, or "all" tokens, for which log-probabilities are enough.
        smoothing: e, in nats, above 0.
    """

    access: ClassVar[Access] = Access.LOGIT
    paper: ClassVar[str] = "Ilic et al. 2026, arXiv:2601.12104"
    variants: ClassVar[tuple[str, ...]] = ("ez_mia[tokens=all]",)

    tokens: Literal["errors", "all"] = "errors"
    smoothing: float = 0.1

    def __post_init__(self) -> None:
        if self.tokens not in ("errors", "all"):
            msg = f"got tokens={self.tokens!r}, expected 'errors' or 'all'"
            raise ValueError(msg)
        if not 0 < self.smoothing < np.inf:
            msg = f"got smoothing={self.smoothing}, expected nats above 0"
            raise ValueError(msg)
        if self.tokens == "all":  # needs less, of this object alone
            object.__setattr__(self, "access", Access.LOGPROB)

    def signals(self) -> tuple[Signal, ...]:
        own = FirstChoices() if self.tokens == "errors" else TokenStatistics()
        return (own, TokenStatistics(of=REFERENCE), SameText(of=REFERENCE))

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        def formula(id_: str) -> float:
            target, reference, same = (audited.get(signal, id_) for signal in self.signals())
            gain = gains(target, reference, same)
            if self.tokens == "errors":
                gain = gain[_errors(target)]
            risen, fallen = np.maximum(gain, 0).sum(), np.maximum(-gain, 0).sum()
            return float(np.log(risen + self.smoothing) - np.log(fallen + self.smoothing))

        return score_each(audited, formula)


def _errors(target: TokenStats) -> BoolArray:
    """Where another token is likelier, shape (n,); everywhere where that is nowhere."""
    if target.rank is None:
        reason = "the target does not give its first choices"
        raise UnscorableError(reason)
    errors: BoolArray = target.rank > 0
    return errors if errors.any() else ~errors
