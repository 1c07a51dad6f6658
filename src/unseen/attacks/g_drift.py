"""G-Drift: how the model's state answers to being pushed away from a record by one gradient step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from unseen.attacks.base import Known, lessons, measured, score_each, unscored
from unseen.errors import UnscorableError
from unseen.signals.base import Observations, Signal
from unseen.signals.gradient_drift import Drift, GradientDrift, Tokens
from unseen.targets.access import Access
from unseen.targets.looks import Axis, State, Weights
from unseen.types import BoolArray, FloatArray, Scores

FEWEST = 20
"""Known records of each side, at least: seven features are fitted to them."""

FEATURES = (
    "loss_before",
    "logit_before",
    "projection_before",
    "loss_after",
    "logit_after",
    "projection_after",
    "drift",
)
"""f_x of equation 1, in its order."""

GROUPS = {
    "before": ("loss_before", "logit_before", "projection_before"),
    "after": ("loss_after", "logit_after", "projection_after"),
    "loss": ("loss_before", "loss_after"),
    "logit": ("logit_before", "logit_after"),
    "projection": ("projection_before", "projection_after"),
}
"""What Table 2 leaves out together; "before" and "after" leave the drift in."""


@dataclass(frozen=True)
class GradientDriftAttack:
    """A classifier of loss, logit and state before and after one step of gradient ascent.

    The features of a record (x, y) are f = [L, z_y, h . v, L', z'_y, h' . v, |h' - h|] (equation 1):
    loss, logit and last hidden state of y given x under theta, and, with a prime, under
    theta' = theta + eta * grad L(x, y). score = w . f + b, the log-odds of membership: a logistic
    regression on standardised features, fitted to known records, both classes weighing alike, with
    an L2 penalty that is chosen by cross-validation on them. No record is judged by a classifier
    that was fitted to it.

    What it knows beyond the loss is not promised: hold it against `loss` on the same records, and
    against the same classifier on a model that never saw the members (--control-model).

    Attributes:
        eta: length of the step, in units of the gradient.
        tokens: y: the "first" token of the answer that is not blank (the paper's), or "all".
        state: h is read "after" the final norm, or "before" it.
        axis: v: "random" unit vectors (the paper's), "state" (along h), "given" (--directions).
        axes: how many random ones.
        seed: of the random ones.
        weights: "all" take the step, or the "adapter"'s alone.
        method: "batched" (exact, without copies of the weights), or "literal" (Algorithm 1).
        without: features or groups that are left out (Table 2), joined by "+": loss_before, before,
            projection, drift, …
    """

    access: ClassVar[Access] = Access.WHITE_BOX
    paper: ClassVar[str] = "G-Drift 2026, arXiv:2604.00419"
    fitted: ClassVar[bool] = True
    fewest: ClassVar[int] = FEWEST
    on_request: ClassVar[bool] = True
    with_weights: ClassVar[bool] = True

    eta: float = 1e-2
    tokens: Tokens = "first"
    state: State = "after"
    axis: Axis = "random"
    axes: int = 1
    seed: int = 0
    weights: Weights = "all"
    method: Literal["batched", "literal"] = "batched"
    without: str = ""

    def __post_init__(self) -> None:
        self.signals()  # refuses what cannot be
        if not self.features:
            msg = f"got without={self.without!r}, which leaves nothing"
            raise ValueError(msg)

    @property
    def features(self) -> tuple[str, ...]:
        """Those that are left, in the order of equation 1."""
        names = [name for name in self.without.split("+") if name]
        for name in names:
            if name not in GROUPS and name not in FEATURES:
                msg = f"got without={self.without!r}, expected names of {', '.join([*FEATURES, *GROUPS])}"
                raise ValueError(msg)
        out = {one for name in names for one in GROUPS.get(name, (name,))}
        return tuple(name for name in FEATURES if name not in out)

    def signals(self) -> tuple[Signal, ...]:
        return (
            GradientDrift(
                eta=self.eta,
                tokens=self.tokens,
                state=self.state,
                axis=self.axis,
                axes=self.axes,
                seed=self.seed,
                weights=self.weights,
                method=self.method,
            ),
        )

    def score(self, audited: Observations, known: Known | None = None) -> Scores:
        (signal,) = self.signals()
        try:
            values = self._judge(measured(audited, signal), known, signal)
        except UnscorableError as error:
            return unscored(audited.ids, error.problem)

        def formula(id_: str) -> float:
            audited.get(signal, id_)
            return values[id_]

        return score_each(audited, formula)

    def _judge(
        self, audited: dict[str, Drift], known: Known | None, signal: Signal
    ) -> dict[str, float]:
        seen, member = lessons(known, signal)
        if min(member.sum(), (~member).sum()) < FEWEST:
            reason = f"fewer than {FEWEST} known records of a side to learn from"
            raise UnscorableError(reason)
        if not audited:
            return {}
        model = classifier(table(seen.values(), self.features), member)
        rows = table(audited.values(), self.features)
        # One by one: in company, a product is rounded in another way.
        odds = [float(model.decision_function(row[None])[0]) for row in rows]
        return dict(zip(audited, odds, strict=True))


def table(drifts: Any, features: tuple[str, ...] = FEATURES) -> FloatArray:
    """Features of n records, shape (n, columns): a column a feature, projections one for each axis."""
    rows = [np.concatenate([_columns(one, name) for name in features]) for one in drifts]
    return np.array(rows, dtype=np.float64)


def classifier(rows: FloatArray, member: BoolArray) -> Any:
    """A logistic regression on standardised columns, its L2 penalty chosen by cross-validation.

    Args:
        rows: (n, columns) features.
        member: (n,) membership, both kinds.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    # The solver that ends at the minimum itself, not near it.
    fitted = LogisticRegression(
        class_weight="balanced", solver="newton-cholesky", tol=1e-9, max_iter=1000
    )
    chosen = GridSearchCV(fitted, {"C": np.logspace(-3, 3, 7)}, scoring="neg_log_loss", cv=5)
    return make_pipeline(StandardScaler(), chosen).fit(rows, member)


def _columns(drift: Drift, feature: str) -> FloatArray:
    name = feature.removesuffix("_before")
    return np.atleast_1d(np.asarray(getattr(drift, name), dtype=np.float64))
