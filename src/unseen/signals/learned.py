"""What attacks learn from a few numbers of each record: small models, as weights that can be lent.

A model is fitted by a library and kept as numbers, so that it can be written to a file, and a record
gets the same score alone as in company, to the last bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from unseen.signals.base import TARGET
from unseen.types import BoolArray, FloatArray

Kind = Literal["net", "svm", "logistic"]
KINDS: tuple[Kind, ...] = ("net", "svm", "logistic")


@dataclass(frozen=True)
class Net:
    """Fully connected layers with ReLU between them; a single layer is a logistic model.

    log-odds = (W_l relu(... relu(W_1 z + b_1) ...) + b_l), z_j = (x_j - mean_j) / scale_j.

    Attributes:
        mean: of each feature.
        scale: of each feature.
        weights: W of each layer, a row an output.
        bias: b of each layer.
    """

    mean: tuple[float, ...]
    scale: tuple[float, ...]
    weights: tuple[tuple[tuple[float, ...], ...], ...]
    bias: tuple[tuple[float, ...], ...]

    def score(self, rows: FloatArray) -> FloatArray:
        """Log-odds of membership, shape (n,), of features of shape (n, d)."""
        layers = [
            (np.array(weights), np.array(bias))
            for weights, bias in zip(self.weights, self.bias, strict=True)
        ]

        def of_one(row: FloatArray) -> float:
            for weights, bias in layers[:-1]:
                row = np.maximum(weights @ row + bias, 0)
            weights, bias = layers[-1]
            return float((weights @ row + bias).item())

        return np.array([of_one(row) for row in _standard(self, rows)])

    @property
    def fits(self) -> bool:
        """Whether the numbers are as many as they have to be."""
        width = len(self.mean)
        if len(self.scale) != width or len(self.weights) != len(self.bias) or not self.weights:
            return False
        for weights, bias in zip(self.weights, self.bias, strict=True):
            if len(weights) != len(bias) or any(len(row) != width for row in weights):
                return False
            width = len(bias)
        return width == 1


@dataclass(frozen=True)
class Kernel:
    """A support-vector machine with a Gaussian kernel. Its score is a margin, not log-odds.

    score = b + sum_i a_i exp(-gamma |z - v_i|^2). The support vectors v are standardised features of
    records that it has learned from: numbers, and no text.

    Attributes:
        mean: of each feature.
        scale: of each feature.
        support: the support vectors.
        coef: a, one for each of them.
        gamma: how narrow the kernel is.
        intercept: b.
    """

    mean: tuple[float, ...]
    scale: tuple[float, ...]
    support: tuple[tuple[float, ...], ...]
    coef: tuple[float, ...]
    gamma: float
    intercept: float

    def score(self, rows: FloatArray) -> FloatArray:
        """Margins, shape (n,), of features of shape (n, d)."""
        support, coef = np.array(self.support), np.array(self.coef)

        def of_one(row: FloatArray) -> float:
            near = np.exp(-self.gamma * ((support - row) ** 2).sum(axis=1))
            return float((near * coef).sum() + self.intercept)

        return np.array([of_one(row) for row in _standard(self, rows)])

    @property
    def fits(self) -> bool:
        """Whether the numbers are as many as they have to be."""
        width = len(self.mean)
        rows = all(len(row) == width for row in self.support)
        return rows and len(self.scale) == width and 0 < len(self.support) == len(self.coef)


Learned = Net | Kernel


@dataclass(frozen=True)
class LentModel:
    """What the same attack has learned in another audit: it is borrowed, and never measured.

    Attributes:
        of: the role of the model that is attacked.
    """

    gives: ClassVar[type] = object
    lent: ClassVar[bool] = True
    of: str = TARGET


@dataclass(frozen=True)
class Training:
    """How a net is trained: Adam on the binary cross-entropy.

    Attributes:
        hidden: widths of the layers between features and log-odds.
        learning_rate: of Adam.
        weight_decay: L2 penalty on the weights, as Adam's gradient has it.
        epochs: passes over the known records.
        batch: records of a step; 0 takes all.
        seed: of the first weights and of the order of the records.
    """

    hidden: tuple[int, ...] = (32, 16)
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    epochs: int = 200
    batch: int = 32
    seed: int = 0


def learn(
    rows: FloatArray, member: BoolArray, kind: Kind, training: Training = Training()
) -> Learned:
    """A model that tells members from non-members by their features.

    Both sides weigh alike, however many there are of each, so that scores of folds with unequal shares of
    members compare. A feature that is the same for all has no say.

    Args:
        rows: (n, d) features of known records, in an order that follows from the records.
        member: (n,) their membership, both kinds.
        kind: "net", "svm" (Gaussian kernel, C = 1, gamma = 1 / d) or "logistic" (|w|^2 / 2).
        training: of a net.
    """
    mean, spread = rows.mean(axis=0), rows.std(axis=0)
    flat = spread < 1e-12  # what rounding alone makes differ
    scale = np.where(flat, 1.0, spread)
    standard = np.where(flat, 0.0, (rows - mean) / scale)
    if kind == "svm":
        return _kernel(standard, member, mean, scale)
    if kind == "logistic":
        return _logistic(standard, member, mean, scale)
    return _net(standard, member, mean, scale, training)


def _standard(model: Learned, rows: FloatArray) -> FloatArray:
    standard: FloatArray = (rows - np.array(model.mean)) / np.array(model.scale)
    return standard


def _logistic(standard: FloatArray, member: BoolArray, mean: FloatArray, scale: FloatArray) -> Net:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(
        class_weight="balanced", solver="newton-cholesky", tol=1e-9, max_iter=1000
    ).fit(standard, member)
    return Net(
        _row(mean), _row(scale), ((_row(model.coef_[0]),),), ((float(model.intercept_[0]),),)
    )


def _kernel(standard: FloatArray, member: BoolArray, mean: FloatArray, scale: FloatArray) -> Kernel:
    from sklearn.svm import SVC

    gamma = 1 / standard.shape[1]
    model = SVC(kernel="rbf", gamma=gamma, class_weight="balanced").fit(standard, member)
    return Kernel(
        _row(mean),
        _row(scale),
        _rows(model.support_vectors_),
        _row(model.dual_coef_[0]),
        gamma,
        float(model.intercept_[0]),
    )


def _net(
    standard: FloatArray,
    member: BoolArray,
    mean: FloatArray,
    scale: FloatArray,
    training: Training,
) -> Net:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    batch = min(training.batch or len(member), len(member))
    model: Any = MLPClassifier(
        training.hidden,
        learning_rate_init=training.learning_rate,
        alpha=training.weight_decay * batch,  # the library divides by the records of a step
        batch_size=batch,
        max_iter=training.epochs,
        n_iter_no_change=training.epochs + 1,  # it does not end before
        random_state=training.seed,
    )
    share = member.mean()
    weight = np.where(member, 0.5 / share, 0.5 / (1 - share))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # so many epochs are what was asked for
        model.fit(standard, member, sample_weight=weight)
    return Net(
        _row(mean),
        _row(scale),
        tuple(_rows(weights.T) for weights in model.coefs_),
        tuple(_row(bias) for bias in model.intercepts_),
    )


def _row(values: Sequence[float] | FloatArray) -> tuple[float, ...]:
    return tuple(np.asarray(values, dtype=np.float64).tolist())


def _rows(values: FloatArray) -> tuple[tuple[float, ...], ...]:
    return tuple(_row(row) for row in values)
