import numpy as np
import pytest
from scripted import Scripted, copying, ignoring, played

from unseen import attacks
from unseen.attacks.base import Known
from unseen.attacks.brainwash import Brainwash
from unseen.errors import ConfigError
from unseen.prompts.trials import Game
from unseen.signals.flipped import FlippedChoice, FlippedText, Flips
from unseen.targets.access import Access
from unseen.targets.fake import FakeTarget

TEXT, CHOICE, CALIBRATED = Brainwash(), Brainwash(mode="choice"), Brainwash(calibrate=True)


def flips(*counts: int, label: int = 0) -> Flips:
    never = np.array([count == 10 for count in counts])
    return Flips(label, np.array(counts), never, np.zeros(len(counts), dtype=bool))


def test_the_score_is_the_mean_over_wrong_labels(observed) -> None:
    values = {"a": flips(0, 3, 10), "b": flips(10, 10), "c": flips(0), "d": "because"}
    for attack, signal in ((TEXT, FlippedText()), (CHOICE, FlippedChoice())):
        scores = attack.score(observed({signal: values}))
        assert scores.ids == ("a", "b", "c")
        assert scores.values == pytest.approx([13 / 3, 10, 0])
        assert scores.unscored == {"d": "because"}


def test_calibrated_the_mean_of_known_nonmembers_of_its_label_is_taken_off(observed) -> None:
    known = {
        "k1": flips(2, 4, label=0),
        "k2": flips(6, 6, label=0),
        "k3": flips(1, 1, label=1),
        "k4": flips(10, 10, label=0),  # a member: it teaches nothing
        "k5": flips(9, 9, label=2),  # so does this
        "k6": "because",
    }
    seen = observed(
        {
            FlippedText(): known
            | {"a": flips(7, 8, label=0), "b": flips(0, 1, label=1), "c": flips(3, label=2)}
        }
    )
    member = np.array([False, False, False, True, True, False])
    scores = CALIBRATED.score(
        seen.select("abc"), Known(seen.select(["k1", "k2", "k3", "k4", "k5", "k6"]), member)
    )
    assert dict(zip(scores.ids, scores.values.tolist(), strict=True)) == {"a": 7.5 - 4.5, "b": -0.5}
    assert scores.unscored == {"c": "no known non-member has its label"}
    nobody = CALIBRATED.score(seen.select("abc"))
    assert set(nobody.unscored.values()) == {"no records of known membership to learn from"}


def test_it_tells_who_is_in_the_prompt_of_a_model_that_is_firm() -> None:
    game = Game(trials=20, shots=2)
    found = played(TEXT.signals(), Scripted(copying), game=game)
    scores = found.scores(TEXT)
    assert set(scores.values[found.member]) == {3}
    assert set(scores.values[~found.member]) == {1}
    assert found.auc(CALIBRATED) > 0.9
    same = played(TEXT.signals(), Scripted(ignoring), game=Game(trials=20, paired=True))
    assert same.auc(TEXT) == 0.5
    choice = Brainwash(mode="choice", cap=3)
    likely = played(choice.signals(), FakeTarget(strength=4.0), game=Game(trials=4))
    assert likely.auc(choice) > 0.5


def test_fields_say_what_is_measured() -> None:
    attack = attacks.create("brainwash[cap=5,longest=4]")
    assert attack.signals() == (FlippedText(cap=5, longest=4),)
    assert attacks.create("brainwash[mode=choice,cap=5]").signals() == (FlippedChoice(cap=5),)
    assert (TEXT.access, CHOICE.access) == (Access.TEXT, Access.LOGPROB)
    assert (TEXT.fitted, CALIBRATED.fitted, Brainwash.fitted) == (False, True, False)
    assert (TEXT.threshold, Brainwash(cap=4).threshold) == (3.5, 3.5)
    assert CALIBRATED.threshold is Brainwash(cap=3).threshold is None
    for spec, message in (
        ("brainwash[mode=logits]", "got mode='logits', expected one of text, choice"),
        ("brainwash[cap=0]", "got cap=0, expected at least 1"),
        ("brainwash[longest=-1]", "got longest=-1"),
    ):
        with pytest.raises(ConfigError, match=message):
            attacks.create(spec)
