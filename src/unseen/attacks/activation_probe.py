"""Activation probe: do the model's hidden states say whether it has seen a record?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unseen.attacks.base import Known, lessons, measured, score_each, unscored
from unseen.errors import UnscorableError
from unseen.signals.activations import Activations, Pooled, States
from unseen.signals.base import Observations, Signal
from unseen.targets.access import Access
from unseen.types import BoolArray, FloatArray, Scores

FEWEST = 20
"""Known records of each side, at least: a direction in hundreds of dimensions is fitted to them."""

FOLDS = 5
"""Of the known records, in which penalty and layer are chosen."""

PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""Inverse penalties C that are tried, where a record's states are about 1 long."""


@dataclass(frozen=True)
class ActivationProbe:
    """A linear classifier of the hidden states of one layer, averaged over a record's tokens (LUMIA).

    score = w . (a_l - m) / s + b, the log-odds of membership: a_l the mean over tokens of what layer l
    gives, m and s its mean and standard deviation over known records, w and b a logistic regression
    that is fitted to them, both classes weighing alike, with an L2 penalty that is chosen by
    cross-validation on them. No record is judged by a probe that was fitted to it.

    States follow the text itself, so a probe tells apart any two kinds of text, remembered or not:
    hold it against the blind baselines, and against the same probe on a model that never saw the
    members (--reference, --control-model).

    Attributes:
        layer: l: 0 is the embedding's output, the last the final norm's; "best" is the one whose
            probe has the least cross-validated log-loss on known records, "all" the mean of the
            log-odds of all layers.
        tokens: "all" tokens but the first, or those of the "response", which are scored.
    """

    access: ClassVar[Access] = Access.WHITE_BOX
    paper: ClassVar[str] = "Ibanez-Lissen et al. 2024 (LUMIA), arXiv:2411.19876"
    fitted: ClassVar[bool] = True
    fewest: ClassVar[int] = FEWEST
    on_request: ClassVar[bool] = True
    with_weights: ClassVar[bool] = True

    layer: int | str = "best"
    tokens: Pooled = "all"

    def __post_init__(self) -> None:
        self.signals()  # refuses what cannot be
        if isinstance(self.layer, str) and self.layer.isdecimal():
            object.__setattr__(self, "layer", int(self.layer))
        if self.layer not in ("best", "all") and not (type(self.layer) is int and self.layer >= 0):
            msg = f"got layer={self.layer!r}, expected the number of a layer, 'best' or 'all'"
            raise ValueError(msg)

    def signals(self) -> tuple[Signal, ...]:
        return (Activations(tokens=self.tokens),)

    def score(self, audited: Observations, known: Known | None = None) -> Scores:
        (signal,) = self.signals()
        try:
            seen, member = lessons(known, signal)
            probes = self._learn(list(seen.values()), member) if measured(audited, signal) else {}
        except UnscorableError as error:
            return unscored(audited.ids, error.problem)

        def formula(id_: str) -> float:
            states: FloatArray = audited.get(signal, id_).states
            return float(np.mean([one.odds(states[layer]) for layer, one in probes.items()]))

        return score_each(audited, formula)

    def _learn(self, known: Sequence[States], member: BoolArray) -> dict[int, Probe]:
        """Layer -> its probe, for the layers that have a say."""
        if min(member.sum(), (~member).sum()) < FEWEST:
            reason = f"fewer than {FEWEST} known records of a side to learn from"
            raise UnscorableError(reason)
        n = len(known[0].states)
        if isinstance(self.layer, int) and self.layer >= n:
            reason = f"the model has no layer {self.layer}: its last one is {n - 1}"
            raise UnscorableError(reason)
        layers = [self.layer] if isinstance(self.layer, int) else range(n)
        probes = {at: probe(np.array([one.states[at] for one in known]), member) for at in layers}
        if self.layer == "best":
            best = min(probes, key=lambda at: probes[at].loss)
            return {best: probes[best]}
        return probes


@dataclass(frozen=True)
class Probe:
    """A linear classifier of the states of one layer.

    Attributes:
        weights: (width,) w / s.
        bias: b - w . m / s.
        loss: log-loss on the known records, in nats, each judged by what was fitted to others; both
            sides weigh alike.
    """

    weights: FloatArray
    bias: float
    loss: float

    def odds(self, states: FloatArray) -> float:
        """Log-odds of membership of one record, from its (width,) states."""
        # By itself, and not as a row of a matrix, so that its company does not change how it is rounded.
        return float((states * self.weights).sum()) + self.bias


def probe(states: FloatArray, member: BoolArray) -> Probe:
    """Fits a probe to known records, and chooses its penalty among `PENALTIES` by cross-validation.

    Where there are more numbers than records, the fit lies in the space that the records span: turned
    into it, they have as many numbers as there are records, and the fit is the same.

    Args:
        states: (n, width) of one layer.
        member: (n,) membership, at least `FOLDS` of each kind.
    """
    from sklearn.preprocessing import StandardScaler

    n, width = states.shape
    scaler = StandardScaler().fit(states.astype(np.float64))
    scale = scaler.scale_ * np.sqrt(width)
    rows = (states - scaler.mean_) / scale
    turn: FloatArray | None = None
    if n < width:
        turn, lower = np.linalg.qr(rows.T)
        rows = lower.T
    losses = [_loss(rows, member, penalty) for penalty in PENALTIES]
    fitted = _fit(rows, member, PENALTIES[int(np.argmin(losses))])
    w = fitted.coef_[0] if turn is None else turn @ fitted.coef_[0]
    weights = w / scale
    return Probe(weights, float(fitted.intercept_[0] - weights @ scaler.mean_), min(losses))


def _loss(rows: FloatArray, member: BoolArray, penalty: float) -> float:
    """Cross-validated log-loss, in nats."""
    from sklearn.model_selection import StratifiedKFold

    odds = np.empty(len(rows))
    for learnt, judged in StratifiedKFold(FOLDS).split(rows, member):
        fitted = _fit(rows[learnt], member[learnt], penalty)
        odds[judged] = fitted.decision_function(rows[judged])
    losses = np.logaddexp(0, np.where(member, -odds, odds))
    return float((losses[member].mean() + losses[~member].mean()) / 2)


def _fit(rows: FloatArray, member: BoolArray, penalty: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=penalty, class_weight="balanced", tol=1e-7, max_iter=10_000).fit(
        rows, member
    )
