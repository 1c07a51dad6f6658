"""WBC: stretch by stretch, a member is likelier than a model without it expects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unseen.attacks.base import Known, gains, score_each
from unseen.errors import UnscorableError
from unseen.signals.base import REFERENCE, Observations, Signal
from unseen.signals.text import SameText
from unseen.signals.token_stats import TokenStatistics
from unseen.targets.access import Access
from unseen.types import FloatArray, Scores

WINDOWS = (2, 3, 4, 6, 9, 13, 18, 25, 32, 40)
"""Lengths of the stretches, in tokens: as good as geometric."""


@dataclass(frozen=True)
class WindowComparison:
    """Share of stretches of a text that the target finds likelier than the reference does.

    A stretch of w tokens that begins at t votes for membership where its loss is larger for the
    reference: v(w, t) = 1 iff sum of (log p - log p_ref) over x_t ... x_(t + w - 1) > 0;
    score = mean over w in {2, 3, 4, 6, 9, 13, 18, 25, 32, 40}, w <= n, of the mean over t of v(w, t)
    (Chen et al. 2026). A vote is one vote, however large the difference: a few tokens that
    fine-tuning has moved far say no more than others. Both models must have the same tokens for
    the text; a text of one token has no stretch, and is unscored.
    """

    access: ClassVar[Access] = Access.LOGPROB
    paper: ClassVar[str] = "Chen et al. 2026, arXiv:2601.02751"

    def signals(self) -> tuple[Signal, ...]:
        return (TokenStatistics(), TokenStatistics(of=REFERENCE), SameText(of=REFERENCE))

    def score(self, audited: Observations, known: Known | None = None) -> Scores:  # noqa: ARG002
        def formula(id_: str) -> float:
            target, reference, same = (audited.get(signal, id_) for signal in self.signals())
            return _votes(gains(target, reference, same))

        return score_each(audited, formula)


def _votes(gain: FloatArray) -> float:
    """The mean over window lengths of the share of windows with a positive sum."""
    shares = [
        # Each window is summed by itself: running sums would decide ties by their rounding.
        float((np.lib.stride_tricks.sliding_window_view(gain, w).sum(axis=-1) > 0).mean())
        for w in WINDOWS
        if w <= len(gain)
    ]
    if not shares:
        reason = f"fewer tokens than the shortest window of {WINDOWS[0]}"
        raise UnscorableError(reason)
    return float(np.mean(shares))
