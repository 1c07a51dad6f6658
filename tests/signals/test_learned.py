import dataclasses
import json
import warnings
from math import exp

import numpy as np
import pytest

from unseen.signals.learned import KINDS, Kernel, Kind, Net, Training, learn
from unseen.types import BoolArray, FloatArray


def world(n: int = 80, *, seed: int = 0) -> tuple[FloatArray, BoolArray]:
    """Features of which a sum of squares tells who is a member, and one that says nothing."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(3.0, 2.0, size=(n, 3))
    member = ((rows[:, 0] - 3) ** 2 + (rows[:, 1] - 3) ** 2) > 5
    return rows, member


def auc(values: FloatArray, member: BoolArray) -> float:
    return float(np.mean(np.sign(values[member][:, None] - values[~member]) + 1) / 2)


def slow(model: Net | Kernel, row: list[float]) -> float:
    """The score of one record by loops."""
    z = [(x - m) / s for x, m, s in zip(row, model.mean, model.scale, strict=True)]
    if isinstance(model, Kernel):
        near = [
            exp(-model.gamma * sum((a - b) ** 2 for a, b in zip(z, one, strict=True)))
            for one in model.support
        ]
        return model.intercept + sum(a * b for a, b in zip(model.coef, near, strict=True))
    for i, (weights, bias) in enumerate(zip(model.weights, model.bias, strict=True)):
        out = [
            b + sum(w * x for w, x in zip(row_, z, strict=True))
            for row_, b in zip(weights, bias, strict=True)
        ]
        z = out if i == len(model.bias) - 1 else [max(x, 0.0) for x in out]
    (value,) = z
    return value


@pytest.mark.parametrize("kind", KINDS)
def test_a_score_is_that_of_slow_arithmetic_alone_and_in_company(kind: Kind) -> None:
    rows, member = world()
    model = learn(rows, member, kind)
    scores = model.score(rows)
    assert scores == pytest.approx([slow(model, row) for row in rows.tolist()], rel=1e-9)
    assert [model.score(row[None]).item() for row in rows] == scores.tolist()
    assert model.score(rows[:0]).shape == (0,)
    assert model == learn(rows, member, kind), "nothing is left to chance"
    assert model.fits


@pytest.mark.parametrize("kind", ["net", "svm"])
def test_what_no_line_can_tell_apart_is_learned(kind: Kind) -> None:
    rows, member = world(160)
    model = learn(rows, member, kind)
    rows, member = world(160, seed=1)
    assert auc(model.score(rows), member) > 0.9


def test_the_net_is_the_librarys() -> None:
    from sklearn.neural_network import MLPClassifier
    from sklearn.preprocessing import StandardScaler

    rows, member = world()
    standard = StandardScaler().fit_transform(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = MLPClassifier(
            (5,), learning_rate_init=0.01, alpha=0.001 * 80, batch_size=80, max_iter=30,
            n_iter_no_change=31, random_state=4,
        ).fit(standard, member, sample_weight=np.where(member, 40 / member.sum(), 40 / (~member).sum()))  # fmt: skip
    training = Training((5,), learning_rate=0.01, weight_decay=0.001, epochs=30, batch=0, seed=4)
    odds = learn(rows, member, "net", training).score(rows)
    assert 1 / (1 + np.exp(-odds)) == pytest.approx(theirs.predict_proba(standard)[:, 1])
    other = learn(rows, member, "net", dataclasses.replace(training, seed=5))
    assert other.score(rows).tolist() != odds.tolist()


def test_the_logistic_model_is_at_the_minimum_of_its_loss() -> None:
    rows, member = world()
    model = learn(rows, member, "logistic")
    assert isinstance(model, Net)
    standard = (rows - np.array(model.mean)) / np.array(model.scale)
    weight = np.where(member, 80 / (2 * member.sum()), 80 / (2 * (~member).sum()))
    residual = weight * (1 / (1 + np.exp(-model.score(rows))) - member)
    assert np.abs(standard.T @ residual + np.array(model.weights[0][0])).max() < 1e-6
    assert abs(residual.sum()) < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_a_feature_that_is_the_same_for_all_has_no_say(kind: Kind) -> None:
    rows, member = world()
    rows[:, 2] = 0.1 + np.arange(len(rows)) % 2 * 1e-16
    scores = learn(rows, member, kind).score(rows)
    assert np.isfinite(scores).all()
    assert auc(scores, member) > 0.4


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_numbers_that_can_be_written_down(kind: Kind) -> None:
    rows, member = world()
    model = learn(rows, member, kind)

    def tuples(value):
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    read = json.loads(json.dumps(dataclasses.asdict(model)))
    again = type(model)(**{name: tuples(value) for name, value in read.items()})
    assert again == model
    assert again.score(rows).tolist() == model.score(rows).tolist()


def test_numbers_that_do_not_fit_are_seen() -> None:
    rows, member = world()
    net, kernel = (learn(rows, member, kind) for kind in ("net", "svm"))
    assert isinstance(net, Net)
    assert isinstance(kernel, Kernel)
    for broken in (
        dataclasses.replace(net, mean=net.mean[1:]),
        dataclasses.replace(net, bias=net.bias[1:]),
        dataclasses.replace(net, weights=net.weights[:-1], bias=net.bias[:-1]),
        dataclasses.replace(net, weights=(), bias=()),
        dataclasses.replace(net, weights=(net.weights[0][1:], *net.weights[1:])),
        dataclasses.replace(kernel, coef=kernel.coef[1:]),
        dataclasses.replace(kernel, support=kernel.support[1:]),
        dataclasses.replace(kernel, support=(), coef=()),
        dataclasses.replace(kernel, scale=kernel.scale[1:]),
        dataclasses.replace(kernel, support=(kernel.support[0][1:], *kernel.support[1:])),
    ):
        assert not broken.fits
