import dataclasses

import pytest
from scripted import Scripted, copying, ignoring, played, pool

from unseen import attacks
from unseen.attacks.repeat import Repeat
from unseen.errors import ConfigError
from unseen.prompts.trials import Game
from unseen.signals.completed import Completed, Completion

LETTERS = Repeat(encoder="letters")


def test_a_similarity_is_the_score(observed) -> None:
    seen = observed(
        {Completed(): {"a": Completion(0.9, 0.2), "b": Completion(0.5, 0.7), "c": "so"}}
    )
    for compare, right in (("full", [0.9, 0.5]), ("completion", [0.2, 0.7])):
        scores = Repeat(compare=compare).score(seen)  # type: ignore[arg-type]
        assert scores.values.tolist() == right
        assert scores.unscored == {"c": "so"}


@pytest.mark.parametrize("compare", ["full", "completion"])
def test_it_tells_who_is_in_the_prompt_of_a_model_that_copies(compare: str) -> None:
    attack = dataclasses.replace(LETTERS, compare=compare)
    found = played(LETTERS.signals(), Scripted(copying), game=Game(trials=20, shots=2))
    scores = found.scores(attack)
    assert found.auc(attack) == 1
    assert (scores.values[found.member] == 1).all(), "word for word"
    assert (scores.values[~found.member] < 0.85).all()
    same = played(LETTERS.signals(), Scripted(ignoring), game=Game(trials=20, paired=True))
    assert same.auc(attack) == 0.5
    empty = played(LETTERS.signals(), Scripted(copying), empty=True)
    assert abs(empty.auc(attack) - 0.5) < 0.25


def test_records_of_three_words_are_counted_and_not_scored() -> None:
    examples = [
        dataclasses.replace(one, text=" ".join(one.text.split()[: 3 if i % 4 == 0 else 9]))
        for i, one in enumerate(pool(24))
    ]
    found = played(LETTERS.signals(), Scripted(copying), game=Game(trials=12), examples=examples)
    scores = found.scores(LETTERS)
    short = {case.id for case in found.cases if len(case.example.text.split()) <= 3}
    assert short
    assert set(scores.unscored) == short
    assert set(scores.unscored.values()) == {"too short to be completed: it has 3 words or fewer"}


def test_fields_say_what_is_measured() -> None:
    attack = attacks.create("repeat[words=5,compare=completion,longest=9,fewest=2,encoder=letters]")
    assert attack.signals() == (Completed(words=5, longest=9, fewest=2, encoder="letters"),)
    (rest,) = map(attacks.create, Repeat.variants)
    assert rest == Repeat(compare="completion")
    assert rest.signals() == Repeat().signals(), "nothing more is asked"
    assert (Repeat().threshold, LETTERS.threshold, attack.threshold) == (0.85, None, None)
    with pytest.raises(ConfigError, match="got compare='rest', expected one of full, completion"):
        attacks.create("repeat[compare=rest]")
    with pytest.raises(ConfigError, match="got words=0"):
        attacks.create("repeat[words=0]")
