from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from unseen.attacks import create, label
from unseen.attacks.activation_probe import PENALTIES, ActivationProbe, probe
from unseen.attacks.base import Known
from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import UnscorableError
from unseen.runs.collect import Model, collect
from unseen.scoring.store import Store
from unseen.signals.activations import Activations, States
from unseen.signals.base import Materials, Observations
from unseen.targets.huggingface import HFTarget
from unseen.types import BoolArray, FloatArray, Record, Turn

LAYERS, WIDTH = 4, 60


def states_of(n: int, seed: int, telling: int | None = 2) -> tuple[dict[str, States], BoolArray]:
    """Random states; in one layer, members lie a little further along a direction."""
    rng = np.random.default_rng(seed)
    member = np.arange(n) % 2 == 0
    states = rng.normal(size=(n, LAYERS, WIDTH)) * np.geomspace(0.01, 100, WIDTH)
    if telling is not None:
        states[member, telling] += 1.5 * np.geomspace(0.01, 100, WIDTH) * (np.arange(WIDTH) < 8)
    rows = states.astype(np.float32)
    return {f"r{seed}{i:03d}": States(rows[i]) for i in range(n)}, member


def world(n: int = 60, *, seed: int, telling: int | None = 2) -> tuple[Observations, BoolArray]:
    values, member = states_of(n, seed, telling)
    return Observations(tuple(values), {Activations(): values}), member


def matrix(seen: Observations, layer: int) -> FloatArray:
    return np.array([one.states[layer] for one in seen.values[Activations()].values()], np.float64)


def twin(rows: FloatArray, member: BoolArray, judged: FloatArray, penalty: float) -> FloatArray:
    """Newton's method on all columns, however many: sum of weighted log(1 + exp(-y f)) + |w|^2 / 2C."""
    mean, scale = rows.mean(0), rows.std(0) * np.sqrt(rows.shape[1])
    x = np.column_stack([(rows - mean) / scale, np.ones(len(rows))])
    weight = np.where(member, len(member) / (2 * member.sum()), len(member) / (2 * (~member).sum()))
    w, shrink = np.zeros(x.shape[1]), np.eye(x.shape[1]) / penalty
    shrink[-1, -1] = 0
    for _ in range(60):
        p = 1 / (1 + np.exp(-(x @ w)))
        gradient = x.T @ (weight * (p - member)) + shrink @ w
        w = w - np.linalg.solve(x.T @ (x * (weight * p * (1 - p))[:, None]) + shrink, gradient)
    return np.column_stack([(judged - mean) / scale, np.ones(len(judged))]) @ w


@pytest.mark.parametrize("n", [50, 100])
def test_a_probe_is_a_penalised_logistic_regression_on_standardised_states(n: int) -> None:
    known, member = world(n, seed=1)
    member = member.copy()
    member[:10] = False  # the sides are of unequal size, folds alike in it
    rows = matrix(known, 2)
    judged = matrix(world(10, seed=2)[0], 2)
    found = probe(rows, member)
    odds = [found.odds(row) for row in judged]
    expected = [twin(rows, member, judged, penalty) for penalty in PENALTIES]
    closest = min(expected, key=lambda one: np.abs(one - odds).max())
    assert odds == pytest.approx(closest.tolist(), abs=1e-3)
    losses = []
    for penalty in PENALTIES:
        own = np.empty(n)
        order = {side: np.flatnonzero(member == side) for side in (True, False)}
        for fold in range(5):
            held = np.concatenate([np.array_split(order[side], 5)[fold] for side in (True, False)])
            learnt = np.setdiff1d(np.arange(n), held)
            # Columns are standardised once, by all known records.
            z = (rows - rows.mean(0)) / rows.std(0)
            own[held] = refitted(z[learnt], member[learnt], z[held], penalty)
        each = np.logaddexp(0, np.where(member, -own, own))
        losses.append((each[member].mean() + each[~member].mean()) / 2)
    assert found.loss == pytest.approx(min(losses), abs=1e-4)
    assert closest is expected[int(np.argmin(losses))]


def refitted(z: FloatArray, member: BoolArray, judged: FloatArray, penalty: float) -> FloatArray:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(
        C=penalty / z.shape[1], class_weight="balanced", solver="newton-cholesky", tol=1e-10
    )
    return model.fit(z, member).decision_function(judged)


def scores(attack: ActivationProbe, seen: Observations, known: Observations, member: BoolArray):
    return attack.score(seen, Known(known, member))


def auc(values: FloatArray, member: BoolArray) -> float:
    return float((np.sign(values[member][:, None] - values[~member]).mean() + 1) / 2)


def test_the_best_layer_is_chosen_on_known_records_alone() -> None:
    known, member = world(seed=1, telling=2)
    audited, truth = world(seed=2, telling=3)  # the judged ones differ in another layer
    best = scores(ActivationProbe(), audited, known, member)
    second = scores(ActivationProbe(layer=2), audited, known, member)
    assert best.values.tolist() == second.values.tolist()
    same, truth = world(seed=3, telling=2)
    assert auc(scores(ActivationProbe(), same, known, member).values, truth) > 0.8
    assert auc(scores(ActivationProbe(layer=1), same, known, member).values, truth) < 0.75


def test_all_layers_are_a_mean_of_log_odds() -> None:
    known, member = world(seed=1)
    audited, _ = world(seed=2)
    each = [
        scores(ActivationProbe(layer=layer), audited, known, member).values
        for layer in range(LAYERS)
    ]
    whole = scores(ActivationProbe(layer="all"), audited, known, member)
    assert whole.values == pytest.approx(np.mean(each, axis=0), rel=1e-12)


def test_constant_states_tell_nothing_and_break_nothing() -> None:
    known, member = world(seed=1)
    values = {
        id_: States(np.where(np.arange(WIDTH) < 30, one.states, np.float32(7)))
        for id_, one in known.values[Activations()].items()
    }
    found = scores(
        ActivationProbe(), known, Observations(known.ids, {Activations(): values}), member
    )
    assert np.isfinite(found.values).all()


def test_what_cannot_be_learned_from_has_a_reason() -> None:
    known, member = world(39, seed=1)
    audited, _ = world(seed=2)
    few = scores(ActivationProbe(), audited, known, member)
    assert set(few.unscored.values()) == {"fewer than 20 known records of a side to learn from"}
    known, member = world(seed=1)
    none = scores(ActivationProbe(layer=LAYERS), audited, known, member)
    assert set(none.unscored.values()) == {"the model has no layer 4: its last one is 3"}


@pytest.mark.parametrize("layer", ["worst", -1, "-1", 1.5, True])
def test_impossible_layers(layer: Any) -> None:
    with pytest.raises(ValueError, match="expected the number of a layer, 'best' or 'all'"):
        ActivationProbe(layer=layer)


def test_labels_read_back() -> None:
    assert create("activation_probe[layer=3]") == ActivationProbe(layer=3)
    assert label(ActivationProbe(layer=3)) == "activation_probe[layer=3]"
    assert label(create("activation_probe[layer=all,tokens=response]")) == (
        "activation_probe[layer=all,tokens=response]"
    )
    with pytest.raises(ValueError, match="got tokens='prompt', expected one of all, response"):
        ActivationProbe(tokens="prompt")


def test_states_are_those_of_the_tokens_that_count(tmp_path: Path) -> None:
    target = HFTarget(tiny.folder(tmp_path / "m", "gpt2"), dtype="float32")
    encoder = RecordEncoder(target.tokenizer, Layout(), limit=target.max_length)
    record = Record("a", (Turn("user", "The quick fox"), Turn("assistant", "owes Mina")))
    encoded = encoder.encode(record)
    with torch.no_grad():
        layers = target.model(
            input_ids=torch.tensor([encoded.ids]), output_hidden_states=True
        ).hidden_states
    places = {"all": list(range(1, len(encoded.ids))), "response": np.flatnonzero(encoded.scored)}
    for tokens, at in places.items():
        signal = Activations(tokens=tokens)
        with Store() as store:
            seen, _ = collect([signal], [record], {"target": Model(target, encoder)}, store=store)
        found: States = seen.get(signal, "a")
        assert found.states.shape == (3, 32)
        assert found.states == pytest.approx(
            np.array([layer[0, at].mean(0).numpy() for layer in layers]), abs=1e-5
        )


def test_a_record_of_one_token_has_no_states_and_a_reason(tmp_path: Path) -> None:
    target = HFTarget(tiny.folder(tmp_path / "m", "gpt2", chat=False), dtype="float32")
    encoder = RecordEncoder(target.tokenizer, Layout(), limit=target.max_length)
    with pytest.raises(UnscorableError):
        Activations().passages(Record("a", (Turn("text", "t"),)), Materials(encoder))
