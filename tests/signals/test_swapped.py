import numpy as np
import pytest

from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import UnscorableError
from unseen.signals.base import Materials
from unseen.signals.swapped import SwappedPolarity, swapped
from unseen.targets.access import stats_of_one
from unseen.targets.fake import FakeTarget
from unseen.types import Record, Turn

TEXT = "Mina Okafor, of Harrow Lane,\nowes 412.70 since 3 March."
RECORD = Record("a", (Turn("user", "Who owes?"), Turn("assistant", TEXT)))


def slow(logprob: list[float], top: float, bottom: float) -> float:
    ordered = sorted(logprob, reverse=True)
    n_top, n_bottom = max(1, int(top * len(ordered))), max(1, int(bottom * len(ordered)))
    return sum(ordered[:n_top]) / n_top - sum(ordered[-n_bottom:]) / n_bottom


def test_words_change_places_and_nothing_else_does() -> None:
    rng = np.random.default_rng(0)
    for share in (0.01, 0.3, 1.0):
        made = swapped(TEXT, share, rng)
        assert made != TEXT
        assert sorted(made.split()) == sorted(TEXT.split())
        assert [c for c in made if c.isspace()] == [c for c in TEXT if c.isspace()]
    one_swap = swapped(TEXT, 0.01, rng)
    assert sum(a != b for a, b in zip(one_swap.split(), TEXT.split(), strict=True)) == 2
    assert sorted(swapped("東京は静かだった。", 0.3, rng)) == sorted("東京は静かだった。")


def test_the_same_record_is_swapped_alike_and_others_are_not() -> None:
    signal = SwappedPolarity()
    first = [signal.augmented(RECORD, i) for i in range(5)]
    assert first == [signal.augmented(RECORD, i) for i in range(5)]
    assert len({record.response for record in first}) > 1
    assert all(record.turns[0] == RECORD.turns[0] for record in first), "prompts stay"
    assert first != [SwappedPolarity(seed=1).augmented(RECORD, i) for i in range(5)]


def test_values_are_the_distances_of_each_text() -> None:
    target = FakeTarget([TEXT])
    encoder = RecordEncoder(target.tokenizer, Layout(), limit=target.max_length)
    signal = SwappedPolarity(augments=3, top=0.2, bottom=0.4)
    ask = signal.ask(RECORD, Materials(encoder))
    found = signal.observe(ask.read([stats_of_one(target, row) for row in ask.requests]))
    texts = [RECORD, *(signal.augmented(RECORD, i) for i in range(3))]
    expected = []
    for record in texts:
        encoded = encoder.encode(record)
        first = int(np.flatnonzero(encoded.scored)[0])
        own = target.logits(encoded.ids)
        logprob = [
            float(own[t - 1][encoded.ids[t]] - np.logaddexp.reduce(own[t - 1]))
            for t in range(first, len(encoded.ids))
            if encoded.scored[t]
        ]
        expected.append(slow(logprob, 0.2, 0.4))
    assert [found.own, *found.swapped] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("text", ["Yes", "no no no", "!"])
def test_a_text_that_swapping_does_not_change_is_unscored(text: str) -> None:
    record = Record("a", (Turn("user", "?"), Turn("assistant", text)))
    if text == "Yes":  # one word is swapped letter by letter
        assert sorted(SwappedPolarity().augmented(record, 0).response) == sorted(text)
        return
    with pytest.raises(UnscorableError, match="does not change this text"):
        SwappedPolarity().augmented(record, 0)
