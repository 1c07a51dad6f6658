import numpy as np
import pytest

from unseen.targets.fake import FakeTarget
from unseen.targets.sampling import chance, draw, largest_first
from unseen.types import Prompt, Sampling

WARM = Sampling(1.0, seed=1)


def shares(sampling: Sampling, logits: np.ndarray, n: int = 4000) -> np.ndarray:
    us = (np.arange(n) + 0.5) / n
    return np.bincount([draw(logits, sampling, u) for u in us], minlength=len(logits)) / n


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05])) + 7
    assert shares(WARM, logits) == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=1e-3)
    assert shares(Sampling(0.5), logits)[0] == pytest.approx(0.25 / 0.365, abs=1e-3)
    assert shares(Sampling(1.0, top_p=0.8), logits) == pytest.approx([0.625, 0.375, 0, 0], abs=1e-3)
    assert shares(Sampling(1.0, top_p=0.81), logits)[2] > 0, "the one that reaches the share counts"
    assert shares(Sampling(1.0, top_p=1e-9), logits)[0] == 1


def test_the_likeliest_come_first_and_equal_ones_by_their_id() -> None:
    logits = np.array([1.0, 3.0, 1.0, 2.0])
    assert largest_first(logits, 0).tolist() == [1, 3, 0, 2]
    assert largest_first(logits, 2).tolist() == [1, 3]


def test_chances_follow_from_prompt_seed_and_number_alone() -> None:
    one = chance([1, 2], WARM, 0).random(3).tolist()
    assert one == chance((1, 2), Sampling(0.2, 5, 0.5, seed=1), 0).random(3).tolist()
    others = [chance([1, 3], WARM, 0), chance([1, 2], WARM, 1), chance([1, 2], Sampling(1.0), 0)]
    assert one not in [other.random(3).tolist() for other in others]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": -1.0}, "got temperature=-1.0, expected 0 or more"),
        ({"temperature": float("nan")}, "got temperature=nan"),
        ({"top_k": -1}, "got top_k=-1"),
        ({"top_p": 0.0}, "got top_p=0.0"),
        ({"top_p": 1.5}, "got top_p=1.5"),
        ({"fewest": -1}, "got fewest=-1, expected 0 or more tokens"),
    ],
)
def test_refuses_what_makes_no_sense(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sampling(**fields)


def test_a_prompt_needs_tokens_and_room() -> None:
    for ids, room in (((), 1), ((1,), 0)):
        with pytest.raises(ValueError, match="a prompt needs"):
            Prompt(ids, room)


@pytest.mark.parametrize("sampling", [Sampling(), WARM, Sampling(2.0, top_k=20, top_p=0.7)])
def test_the_fake_model_writes_what_its_logits_say(sampling: Sampling) -> None:
    target = FakeTarget(["over the hill and over the hill and far away"], strength=6.0)
    prompt = [256, *b"over the hill and over"]
    (made,) = target.generate([prompt], max_new_tokens=25, sampling=sampling, numbers=[4])
    chances, ids = chance(prompt, sampling, 4), list(prompt)
    for token in made:
        logits = target.logits(ids, len(ids) - 1)[0]
        order = largest_first(logits, sampling.top_k)
        first = 0 if not sampling.temperature else draw(logits[order], sampling, chances.random())
        assert token == order[first]
        ids.append(token)
    both = target.generate([[1], prompt], max_new_tokens=25, sampling=sampling, numbers=[0, 4])
    assert both[1] == made


def test_the_fake_model_does_not_end_before_the_fewest_tokens() -> None:
    target = FakeTarget(["The end<|end|>, my friend"], strength=20.0)
    prompt = [256, *b"The en"]
    (short,) = target.generate([prompt], max_new_tokens=30)
    (longer,) = target.generate([prompt], max_new_tokens=30, sampling=Sampling(fewest=5))
    assert short == [*b"d", 257]
    assert len(longer) >= 5
    assert 257 not in longer[:5]
    assert longer[:1] == short[:1]
    assert len(target.generate([prompt], max_new_tokens=3, sampling=Sampling(fewest=5))[0]) == 3
