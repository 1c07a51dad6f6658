from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fillers import ListFiller
from scripted import Scripted, copying, ignoring, played, pool

from unseen.attacks.base import Known
from unseen.attacks.neighbor_deviation import NeighborDeviation
from unseen.prompts.trials import Game
from unseen.signals.base import Observations
from unseen.signals.deviation import Deviating, DeviatingPerplexity, Deviations, Perplexities
from unseen.signals.learned import LentModel, Training, learn

LEARNED = {"model": "logistic", "encoder": "letters"}


def value(rng: np.random.Generator, *, copies: float = 0.0, n: int = 4) -> Deviations:
    own, others = np.full(1, copies), np.full(n - 1, copies / 4)
    parts = (np.concatenate([own, others]) + 0.1 * rng.random(n) for _ in range(3))
    return Deviations(*parts)


def known(attack: NeighborDeviation, n: int = 40) -> Known:
    rng = np.random.default_rng(0)
    member = np.arange(n) % 2 == 0
    ids = tuple(f"k{i:02d}" for i in range(n))
    of_text, *of_other = attack.signals()
    values: dict[Any, dict[str, Any]] = {
        of_text: {
            id_: value(rng, copies=0.3 * m) for id_, m in zip(ids, member.tolist(), strict=True)
        }
    }
    for signal in of_other:
        values[signal] = {
            id_: Perplexities(np.array([4.0 - m, 5.0, 6.0]) + rng.random(3))
            for id_, m in zip(ids, member.tolist(), strict=True)
        }
    return Known(Observations(ids, values), member)


def by_hand(attack: NeighborDeviation, seen: Observations, id_: str) -> list[float]:
    """Equation 8, or its two parts, by loops."""
    own, others = [], []
    for signal in attack.signals():
        for c in vars(seen.values[signal][id_]).values():
            first, *neighbours = c.tolist()
            own.append(first)
            others.append(sum(neighbours) / len(neighbours))
    if attack.features == "deltas":
        return [c - mean for c, mean in zip(own, others, strict=True)]
    return own + others


@pytest.mark.parametrize("model", ["net", "svm", "logistic"])
@pytest.mark.parametrize(
    ("fields", "width"),
    [
        ({}, 3),
        ({"features": "all"}, 6),
        ({"perplexity": True}, 4),
        ({"features": "all", "perplexity": True}, 8),
    ],
)
def test_equals_the_formula(model: str, fields: dict[str, Any], width: int) -> None:
    attack = NeighborDeviation(encoder="letters", model=model, **fields)
    lessons = known(attack)
    rows = [by_hand(attack, lessons.observations, id_) for id_ in lessons.observations.ids]
    assert {len(row) for row in rows} == {width}
    learned = learn(np.array(rows), lessons.member, attack.model, Training(seed=0))
    scores = attack.score(lessons.observations.select(("k00", "k01")), lessons)
    assert scores.values == pytest.approx(learned.score(np.array(rows[:2])), rel=1e-9)
    assert scores.values[0] > scores.values[1]


def test_known_records_without_a_value_teach_nothing_and_are_no_fault() -> None:
    attack = NeighborDeviation(**LEARNED, perplexity=True)
    lessons = known(attack)
    whole = attack.score(lessons.observations.select(("k00",)), lessons)
    text, other = attack.signals()
    values = {
        text: lessons.observations.values[text],
        other: {id_: v for id_, v in lessons.observations.values[other].items() if id_ != "k39"},
    }
    fewer = Observations(lessons.observations.ids, values, {other: {"k39": "why"}})
    scores = attack.score(fewer.select(("k00", "k39")), Known(fewer, lessons.member))
    assert scores.unscored == {"k39": "why"}
    assert scores.values[0] != whole.values[0]


def test_fields_are_those_of_what_is_measured() -> None:
    attack = NeighborDeviation(
        compare="full", prefix=0.3, neighbours=7, filler="list", dropout=0.1, encoder="letters",
        rouge="f1", longest=9, seed=3, replacements=2, perplexity=True,
    )  # fmt: skip
    deviating, perplexity = attack.signals()
    assert deviating == Deviating(
        compare="full", prefix=0.3, neighbours=7, filler="list", dropout=0.1, encoder="letters",
        rouge="f1", longest=9, seed=3, replacements=2,
    )  # fmt: skip
    assert perplexity == DeviatingPerplexity(written=deviating.texts)
    assert perplexity.written.neighbours == 7
    assert NeighborDeviation().signals() == (Deviating(),)
    assert NeighborDeviation(model="svm").signals() == (Deviating(),), "asked once for all models"


def test_a_value_that_is_not_finite_has_a_reason(observed: Callable[..., Observations]) -> None:
    attack = NeighborDeviation(**LEARNED)
    (signal,) = attack.signals()
    bad = Deviations(np.array([1.0, np.nan]), np.ones(2), np.ones(2))
    scores = attack.score(observed({signal: {"a": bad}}), known(attack))
    assert scores.unscored == {"a": "a text has no finite likelihood"}


def test_a_lent_classifier_judges_without_any_known_record() -> None:
    attack = NeighborDeviation(**LEARNED, lent=True)
    teacher = NeighborDeviation(**LEARNED)
    lessons = known(teacher)
    (signal,) = teacher.signals()
    assert attack.signals() == (signal, LentModel())
    assert (attack.fitted, teacher.fitted) == (False, True)
    lent = teacher.learn(lessons)
    values = {**lessons.observations.values, LentModel(): {"k00": lent}}
    seen = Observations(("k00", "k01"), values, {LentModel(): {"k01": "why"}})
    scores = attack.score(seen)
    assert scores.values == pytest.approx(
        teacher.score(lessons.observations.select(("k00",)), lessons).values
    )
    assert scores.unscored == {"k01": "why"}
    wider = NeighborDeviation(**LEARNED, features="all", lent=True).score(seen.select(("k00",)))
    assert wider.unscored == {"k00": "what is lent was learned from other features"}


@pytest.mark.parametrize("paired", [True, False])
def test_a_model_that_copies_is_found_out_and_one_that_ignores_its_prompt_is_not(
    paired: bool,
) -> None:
    attack = NeighborDeviation(encoder="letters")
    game = Game(trials=24, shots=2, paired=paired)
    words = ListFiller(["bake", "lomi", "nura", "soti", "vuwem"])

    def auc(rule: Any) -> float:
        found = played(
            attack.signals(),
            Scripted(rule),
            game=game,
            examples=pool(48),
            fillers={"embeddings": words},
        )
        return found.auc(attack)

    assert auc(copying) == 1, "advantage 1"
    assert auc(ignoring) == 0.5 if paired else abs(auc(ignoring) - 0.5) < 0.25


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"features": "x"}, "got features='x', expected one of deltas, all"),
        ({"model": "tree"}, "got model='tree', expected one of net, svm, logistic"),
        ({"prefix": 0.0}, "got prefix=0.0"),
    ],
)
def test_refuses_what_makes_no_sense(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NeighborDeviation(**fields)
