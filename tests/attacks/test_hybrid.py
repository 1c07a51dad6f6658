from collections.abc import Callable

import numpy as np
import pytest
from scripted import Scripted, copying, ignoring, played

from unseen import attacks
from unseen.attacks.base import Known
from unseen.attacks.hybrid import Hybrid
from unseen.errors import ConfigError
from unseen.prompts.trials import Game
from unseen.signals.base import Observations
from unseen.signals.completed import Completed, Completion
from unseen.signals.flipped import FlippedChoice, FlippedText, Flips
from unseen.signals.learned import Training, learn
from unseen.targets.access import Access

NET, LOGISTIC = Hybrid(), Hybrid(model="logistic")
N = 60


def world(observed: Callable[..., Observations]) -> tuple[Observations, np.ndarray, np.ndarray]:
    """Members are those with either number high and the other low: no line tells them."""
    rng = np.random.default_rng(0)
    alike, counts = rng.uniform(size=N), rng.integers(0, 11, size=(N, 5))
    seen = observed(
        {
            Completed(): {f"r{i:02d}": Completion(a, 1 - a) for i, a in enumerate(alike.tolist())},
            FlippedText(): {
                f"r{i:02d}": Flips(0, row, row == 10, np.zeros(5, dtype=bool))
                for i, row in enumerate(counts)
            },
        }
    )
    means = counts.mean(axis=1)
    member = (alike > np.median(alike)) != (means > np.median(means))
    return seen, np.column_stack([alike, means]), member


@pytest.mark.parametrize("attack", [NET, LOGISTIC])
def test_it_learns_from_similarity_and_mean_count(
    observed: Callable[..., Observations], attack: Hybrid
) -> None:
    seen, rows, member = world(observed)
    known = Known(seen.select(seen.ids[:40]), member[:40])
    scores = attack.score(seen.select(seen.ids[40:]), known)
    training = Training((16,), 1e-2, 1e-4, 500, 0, 0)
    model = learn(rows[:40], member[:40], attack.model, training)
    assert scores.values.tolist() == model.score(rows[40:]).tolist()
    again = attack.score(seen.select(seen.ids[40:]), known)
    assert again.values.tolist() == scores.values.tolist(), "nothing is left to chance"


def test_the_net_learns_what_no_line_can_tell(observed: Callable[..., Observations]) -> None:
    seen, _, member = world(observed)
    known = Known(seen, member)
    right = {
        attack.model: (attack.score(seen, known).values > 0) == member for attack in (NET, LOGISTIC)
    }
    assert right["net"].mean() > 0.9
    assert right["logistic"].mean() < 0.75


def test_compared_without_the_first_words_or_with_another_seed_it_is_another(
    observed: Callable[..., Observations],
) -> None:
    seen, rows, member = world(observed)
    known = Known(seen, member)
    made = [
        Hybrid(**fields).score(seen, known).values.tolist()
        for fields in ({}, {"compare": "completion"}, {"seed": 1})
    ]
    assert made[0] not in made[1:]
    turned = np.column_stack([1 - rows[:, 0], rows[:, 1]])
    training = Training((16,), 1e-2, 1e-4, 500, 0, 0)
    assert made[1] == learn(turned, member, "net", training).score(turned).tolist()


def test_who_lacks_a_number_is_left_out(observed: Callable[..., Observations]) -> None:
    seen, _, member = world(observed)
    values = {signal: dict(by_id) for signal, by_id in seen.values.items()}
    del values[Completed()]["r01"], values[FlippedText()]["r02"]
    values[Completed()]["r03"] = Completion(np.nan, 0.5)
    gone = {Completed(): {"r01": "too short"}, FlippedText(): {"r02": "no labels"}}
    partly = Observations(seen.ids, values, gone)
    scores = NET.score(partly, Known(partly, member))
    assert scores.unscored == {
        "r01": "too short", "r02": "no labels", "r03": "a text has no finite likelihood",
    }  # fmt: skip
    assert len(scores.ids) == N - 3


def test_it_tells_who_is_in_the_prompt() -> None:
    letters = Hybrid(encoder="letters")
    for attack in (letters, Hybrid(encoder="letters", model="logistic")):
        found = played(attack.signals(), Scripted(copying), game=Game(trials=12, shots=2))
        assert found.auc(attack) == 1
    same = played(letters.signals(), Scripted(ignoring), game=Game(trials=12, paired=True))
    assert same.auc(letters) == 0.5


def test_fields_say_what_is_measured() -> None:
    attack = attacks.create("hybrid[words=4,encoder=letters,cap=5,mode=choice]")
    assert attack.signals() == (Completed(words=4, encoder="letters"), FlippedChoice(cap=5))
    assert (NET.access, attack.access) == (Access.TEXT, Access.LOGPROB)
    asked = [
        signal for name in ("repeat", "brainwash") for signal in attacks.create(name).signals()
    ]
    assert NET.signals() == tuple(asked), "nothing is asked that these do not ask"
    for spec, message in (
        ("hybrid[model=svm]", "got model='svm', expected one of net, logistic"),
        ("hybrid[compare=rest]", "got compare='rest'"),
        ("hybrid[mode=logits]", "got mode='logits'"),
        ("hybrid[cap=0]", "got cap=0"),
    ):
        with pytest.raises(ConfigError, match=message):
            attacks.create(spec)
