from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

from unseen.attacks import create, label
from unseen.attacks.base import Known
from unseen.attacks.g_drift import FEATURES, GradientDriftAttack, table
from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import ConfigError, TargetError, UnscorableError
from unseen.runs.collect import Model, collect
from unseen.runs.inside.step_check import step_check
from unseen.scoring.store import Store
from unseen.signals.base import Materials, Observations
from unseen.signals.gradient_drift import Drift, GradientDrift, drift_of
from unseen.targets.huggingface import HFTarget
from unseen.types import Passage, Record, Turn

N = 60


def drift(rng: np.random.Generator, *, member: bool) -> Drift:
    loss = rng.gamma(2.0, 0.5 if member else 1.5)
    return Drift(
        loss=loss, logit=10 - loss + rng.normal(), projection=rng.normal(size=1),
        loss_after=3 * loss + rng.normal(), logit_after=4 - loss, projection_after=rng.normal(size=1),
        drift=10 + 5 * loss, norm=40.0, cosine=0.9, n_tokens=1, literal=0,
    )  # fmt: skip


def world(n: int = N, *, seed: int = 0) -> tuple[Observations, np.ndarray]:
    rng = np.random.default_rng(seed)
    member = np.arange(n) % 2 == 0
    ids = tuple(f"r{i:03d}" for i in range(n))
    values = {id_: drift(rng, member=bool(m)) for id_, m in zip(ids, member, strict=True)}
    return Observations(ids, {GradientDrift(): values}, {GradientDrift(): {}}), member


def test_the_score_is_the_log_odds_of_a_standardised_logistic_regression() -> None:
    known, member = world()
    audited, _ = world(20, seed=1)
    found = GradientDriftAttack().score(audited, Known(known, member))
    rows = table(known.values[GradientDrift()].values())
    judged = table(audited.values[GradientDrift()].values())
    mean, sd = rows.mean(0), rows.std(0)
    z, y = (rows - mean) / sd, np.where(member, 1.0, -1.0)

    def fitted(z: np.ndarray, y: np.ndarray, c: float) -> np.ndarray:
        """Newton's method on sum log(1 + exp(-y w.z)) + |w|^2 / 2c, the last column 1 and free."""
        x = np.column_stack([z, np.ones(len(z))])
        w, penalty = np.zeros(x.shape[1]), np.eye(x.shape[1]) / c
        penalty[-1, -1] = 0
        for _ in range(50):
            p = 1 / (1 + np.exp(-(x @ w)))
            gradient = x.T @ (p - (y > 0)) + penalty @ w
            w = w - np.linalg.solve(x.T @ (x * (p * (1 - p))[:, None]) + penalty, gradient)
        return w

    # The penalty is one of a grid: with one of them the log-odds are those of the twin.
    x = np.column_stack([(judged - mean) / sd, np.ones(len(judged))])
    off = [np.abs(x @ fitted(z, y, c) - found.values).max() for c in np.logspace(-3, 3, 7)]
    assert min(off) < 1e-6


def test_features_stand_in_the_order_of_equation_1() -> None:
    one = Drift(1, 2, np.array([3.0]), 4, 5, np.array([6.0]), 7, 8, 0.5, 1, 0)
    assert table([one]).tolist() == [[1, 2, 3, 4, 5, 6, 7]]
    assert FEATURES[2] == "projection_before"
    several = Drift(1, 2, np.array([3.0, 9.0]), 4, 5, np.array([6.0, 9.5]), 7, 8, 0.5, 1, 0)
    assert table([several]).tolist() == [[1, 2, 3, 9, 4, 5, 6, 9.5, 7]]


@pytest.mark.parametrize(
    ("without", "left"),
    [
        ("drift", 6),
        ("before", 4),
        ("after", 4),
        ("projection", 5),
        ("loss_before", 6),
        ("projection+drift", 4),
    ],
)
def test_ablations_of_table_2(without: str, left: int) -> None:
    attack = create(f"g_drift[without={without}]")
    assert isinstance(attack, GradientDriftAttack)
    assert len(attack.features) == left
    assert label(attack) == f"g_drift[without={without}]"
    assert attack.signals() == GradientDriftAttack().signals(), "measured once"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("g_drift[without=hope]", "expected names of loss_before"),
        ("g_drift[without=before+after+drift]", "leaves nothing"),
        ("g_drift[eta=-1]", "got eta=-1.0, expected a number of at least 0"),
        ("g_drift[tokens=last]", "expected one of first, all"),
        ("g_drift[axes=0]", "expected at least 1"),
        ("g_drift[weights=some]", "expected one of all, adapter"),
        ("g_drift[state=middle]", "expected one of after, before"),
    ],
)
def test_what_cannot_be_is_refused(spec: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        create(spec)


def test_too_few_to_learn_from() -> None:
    known, member = world(38)
    audited, _ = world(20, seed=1)
    found = GradientDriftAttack().score(audited, Known(known, member))
    assert not found.ids
    assert set(found.unscored.values()) == {"fewer than 20 known records of a side to learn from"}
    assert GradientDriftAttack().score(audited).unscored["r000"].startswith("no records of known")


def test_what_is_not_finite_is_a_reason() -> None:
    seen = {name: np.array(1.0) for name in ("loss", "logit", "norm", "loss_after", "logit_after")}
    seen |= {"drift": np.array(np.nan), "cosine": np.array(1.0), "projection": np.ones(1)}
    with pytest.raises(UnscorableError, match="numbers that are not finite"):
        drift_of(seen | {"projection_after": np.ones(1), "n_tokens": 1, "literal": 0})


# --- what is asked about ------------------------------------------------------------------------


def materials(folder: Path, *, limit: int = 512) -> Materials:
    target = HFTarget(tiny.folder(folder, "llama"), dtype="float32")
    return Materials(RecordEncoder(target.tokenizer, Layout(), limit=limit))


def asked(record: Record, materials: Materials, **how: str) -> tuple[Passage, str]:
    (passage,) = GradientDrift(**how).passages(record, materials)  # type: ignore[arg-type]
    return passage, materials.encoder.tokenizer.decode([passage.ids[i] for i in passage.places])


def test_the_first_token_that_says_something(tmp_path: Path) -> None:
    made = materials(tmp_path / "m")
    turns = (Turn("user", "The quick fox?"), Turn("assistant", "brown dog"))
    passage, said = asked(Record("a", turns), made)
    assert "brown dog".startswith(said)
    assert said.strip()
    assert passage.places == (len(passage.ids) - 1,)
    everything, text = asked(Record("a", turns), made, tokens="all")
    assert text.strip() == "brown dog"
    assert everything.ids[: len(passage.ids)] == passage.ids
    blank = (turns[0], Turn("assistant", "\n\n brown dog"))
    later, said = asked(Record("a", blank), made)
    assert said.strip()
    assert len(later.ids) > len(passage.ids), "blank tokens stand before it"


def test_empty_answers_and_prompts_that_are_too_long(tmp_path: Path) -> None:
    made = materials(tmp_path / "m", limit=12)
    for turns in (
        (Turn("user", "The quick fox?"), Turn("assistant", "   ")),
        (
            Turn("user", "The quick brown fox jumps over the lazy dog. " * 4),
            Turn("assistant", "dog"),
        ),
    ):
        with pytest.raises(UnscorableError):
            GradientDrift().passages(Record("a", turns), made)


# --- on a real model ------------------------------------------------------------------------------

WORDS = ("fox", "dog", "Mina", "owes", "fever", "sleep", "quick", "brown", "lazy", "Harrow")


def records(n: int) -> list[Record]:
    rng = np.random.default_rng(3)
    return [
        Record(
            f"r{i}",
            (
                Turn("user", " ".join(rng.choice(WORDS, size=rng.integers(2, 6)))),
                Turn("assistant", " ".join(rng.choice(WORDS, size=rng.integers(1, 5)))),
            ),
        )
        for i in range(n)
    ]


def test_measured_once_and_kept(tmp_path: Path) -> None:
    target = HFTarget(tiny.folder(tmp_path / "m", "gpt2"), dtype="float32")
    encoder = RecordEncoder(target.tokenizer, Layout(), limit=target.max_length)
    models = {"target": Model(target, encoder)}
    some = records(9)
    signals = [GradientDrift(), GradientDrift(eta=1e-3), GradientDrift(tokens="all")]
    with Store() as store:
        seen, cost = collect(signals, some, models, store=store)
        assert cost.scored["target"] == 3 * len(some)
        target.look = lambda *_: pytest.fail("it was looked at")  # type: ignore[method-assign]
        again, cost = collect(signals, some, models, store=store)
    assert cost.scored["target"] == 0
    for signal in signals:
        for record in some:
            one, other = seen.get(signal, record.id), again.get(signal, record.id)
            assert one.drift == other.drift
            assert one.projection.tolist() == other.projection.tolist()


def test_the_check_before_an_audit(tmp_path: Path) -> None:
    folder = tiny.folder(tmp_path / "m", "llama")
    target = HFTarget(folder, dtype="float32")
    encoder = RecordEncoder(target.tokenizer, Layout(), limit=target.max_length)
    models = {"target": Model(target, encoder)}
    row = step_check([GradientDrift()], models, records(3))
    assert row is not None
    assert row.status == "pass"
    assert row.value is not None
    assert row.value < 1e-4
    assert "batched and literal differ by" in row.detail
    assert step_check([], models, records(3)) is None
    half = HFTarget(folder, dtype="bfloat16")
    row = step_check([GradientDrift()], {"target": Model(half, encoder)}, records(3))
    assert row is not None
    assert (row.status, row.fix) == ("fail", "--dtype float32")


def test_an_adapter_that_is_not_there(tmp_path: Path) -> None:
    target = HFTarget(tiny.folder(tmp_path / "m", "llama"), dtype="float32")
    look = GradientDrift(weights="adapter").look(
        Materials(RecordEncoder(target.tokenizer, Layout(), limit=64))
    )
    with pytest.raises(TargetError, match="has no adapter"):
        target.look([look], [Passage((1, 2, 3), (2,))])


def test_too_few_records_are_told_before_anything_is_measured(tmp_path: Path) -> None:
    import records as made

    import unseen

    folder = tiny.folder(tmp_path / "m", "gpt2", dtype=torch.float32)
    members, nonmembers = made.sides(tmp_path, 24)
    result = unseen.audit_finetune(
        model=str(folder), members=str(members), nonmembers=str(nonmembers), reference="none",
        attacks=("g_drift", "loss"), run_dir=tmp_path / "run", bootstrap=200, cache=False,
        preflight=False,
    )  # fmt: skip
    why = "it learns from 20 members at least, beside those that it judges, which takes 25"
    assert why in result.results.skipped["g_drift"]


def test_weights_that_are_no_numbers_are_found_before(tmp_path: Path) -> None:
    target = HFTarget(tiny.folder(tmp_path / "m", "llama"), dtype="float32")
    encoder = RecordEncoder(target.tokenizer, Layout(), limit=target.max_length)
    with torch.no_grad():
        target.model.get_input_embeddings().weight.fill_(torch.nan)
    row = step_check([GradientDrift()], {"target": Model(target, encoder)}, records(3))
    assert row is not None
    assert row.status == "fail"
    assert "not finite" in row.detail
