import pytest
from scripted import Scripted, copying, ignoring, played

from unseen import attacks
from unseen.attacks.inquiry import Inquiry
from unseen.errors import ConfigError
from unseen.prompts.trials import Game
from unseen.signals.inquired import Inquired, Reply


def test_yes_is_one_and_all_else_is_zero(observed) -> None:
    values = {"a": Reply(1, 1), "b": Reply(0, 1), "c": Reply(0, 0), "d": "because"}
    scores = Inquiry().score(observed({Inquired(): values}))
    assert dict(zip(scores.ids, scores.values.tolist(), strict=True)) == {"a": 1, "b": 0, "c": 0}
    assert scores.unscored == {"d": "because"}


def test_it_tells_who_is_in_the_prompt_of_a_model_that_admits_it() -> None:
    assert played(Inquiry().signals(), Scripted(copying)).auc(Inquiry()) == 1
    same = played(Inquiry().signals(), Scripted(ignoring), game=Game(trials=20, paired=True))
    assert same.auc(Inquiry()) == 0.5


def test_fields_say_what_is_measured() -> None:
    attack = attacks.create("inquiry[wording=Was it “{input}”, or not?,cue=True,longest=3]")
    wording = "Was it “{input}”, or not?"
    assert attack.signals() == (Inquired(wording=wording, cue=True, longest=3),)
    assert attacks.create(attacks.label(attack)) == attack
    with pytest.raises(ConfigError, match=r"expected \{input\} where the sentence goes"):
        attacks.create("inquiry[wording=Was it above?]")
