"""Brainwash: a model gives up the answer that it was shown only after many wrong ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from unseen.attacks.base import PROMPT, Known, lessons, score_each, unscored
from unseen.errors import UnscorableError
from unseen.signals.base import Observations, Signal
from unseen.signals.checks import check_choice
from unseen.signals.flipped import FlippedChoice, FlippedText, Flips
from unseen.targets.access import Access
from unseen.types import Scores

Mode = Literal["text", "choice"]


@dataclass(frozen=True)
class Brainwash:
    """How often a model has to be shown a record with a wrong label before it gives that label.

    score = mean_w n_w, where n_w is the fewest demonstrations (x, w) in a row, from 0, after which the
    model answers x by w; cap where it never does with fewer (Wen et al. 2024, section 4.4). w are
    all wrong labels, or three where there are more than five; the paper puts the threshold between
    3 and 4. Some labels are given up later than others, whoever has them: calibrated, the mean score
    of known non-members with the record's own label is taken off.

    Attributes:
        mode: the answer is what the model writes ("text"), or the likeliest label ("choice").
        cap: demonstrations from which on nothing is tried, the score of who is never convinced.
        calibrate: whether records are compared with known non-members of their label.
        longest: the most tokens of a text; 0 means those of the longest label, and a few more.
    """

    access: ClassVar[Access] = Access.TEXT
    paper: ClassVar[str] = "Wen et al. 2024, arXiv:2409.01380"
    scenario: ClassVar[str] = PROMPT
    threshold: ClassVar[float | None] = 3.5
    fitted: ClassVar[bool] = False

    mode: Mode = "text"
    cap: int = 10
    calibrate: bool = False
    longest: int = 0

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, ("text", "choice"))
        self.signals()  # refuses what cannot be done
        # Of this object alone: it needs more, or learns.
        if self.mode == "choice":
            object.__setattr__(self, "access", Access.LOGPROB)
        if self.calibrate:
            object.__setattr__(self, "fitted", True)
        if self.calibrate or self.cap < 4:  # the paper's is for counts that can be above it
            object.__setattr__(self, "threshold", None)

    def signals(self) -> tuple[Signal, ...]:
        if self.mode == "choice":
            return (FlippedChoice(cap=self.cap),)
        return (FlippedText(cap=self.cap, longest=self.longest),)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:
        (signal,) = self.signals()
        try:
            usual = _usual(known, signal) if self.calibrate else {}
        except UnscorableError as error:
            return unscored(audited.ids, error.problem)

        def formula(id_: str) -> float:
            seen: Flips = audited.get(signal, id_)
            if not self.calibrate:
                return float(seen.counts.mean())
            if seen.label not in usual:
                reason = "no known non-member has its label"
                raise UnscorableError(reason)
            return float(seen.counts.mean() - usual[seen.label])

        return score_each(audited, formula)


def _usual(known: Known | None, signal: Signal) -> dict[int, float]:
    """Label -> mean score of the known non-members that have it."""
    values, member = lessons(known, signal)
    by_label: dict[int, list[float]] = {}
    for seen, is_member in zip(values.values(), member.tolist(), strict=True):
        if not is_member:
            by_label.setdefault(seen.label, []).append(float(seen.counts.mean()))
    return {label: float(np.mean(scores)) for label, scores in by_label.items()}
