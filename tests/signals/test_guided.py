"""Masks that the model's own likelihoods choose, in a second round of questions."""

from typing import Any

import numpy as np
import pytest

from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import UnscorableError
from unseen.runs.collect import Model, collect, questions
from unseen.scoring.store import Store
from unseen.signals.base import FollowingSignal, Materials
from unseen.signals.guided import GuidedProbes
from unseen.signals.probed import MaskedProbes
from unseen.targets.fake import FakeTarget, FakeTokenizer
from unseen.types import Record, TokenStats, Turn

SAID = "One two three four."


def chat(*said: str) -> Record:
    turns = [(Turn("user", "Go on?"), Turn("assistant", text)) for text in said]
    return Record("c", tuple(turn for pair in turns for turn in pair))


def probe(
    record: Record, logprob: list[float], signal: GuidedProbes, *, bos: bool = True, **choices: Any
) -> str:
    """What the probe says, where the model has answered so."""
    encoder = RecordEncoder(FakeTokenizer(bos=bos), Layout(**choices), limit=4096)
    materials = Materials(encoder)
    ask = signal.ask(record, materials)
    made = signal.made_from(record, encoder.tokenizer, ask.scored[0], TokenStats(np.array(logprob)))
    assert (
        signal.follow(record, materials, ask, [TokenStats(np.array(logprob))]).scored == ask.scored
    )
    return "|".join(turn.content for turn in made.turns if turn.role != "user")


def of_words(text: str, *values: float) -> list[float]:
    """A log-probability for each byte: that of its word; that of a space is the next word's."""
    found: list[float] = []
    for word, value in zip(text.split(" "), values, strict=True):
        found += [value] * (len(word.encode()) + bool(found))
    return found


def test_the_least_or_the_most_likely_words_are_covered() -> None:
    answers = of_words(SAID, -1.0, -4.0, -2.0, -3.0)
    assert probe(chat(SAID), answers, GuidedProbes()) == "One word three word"
    assert probe(chat(SAID), answers, GuidedProbes(strategy="max_k")) == "word two word four."
    assert probe(chat(SAID), answers, GuidedProbes(rate=0.01)) == "One word three four."
    assert probe(chat(SAID), answers, GuidedProbes(rate=0.99)) == "One word word word"


def test_letters_are_covered_one_by_one() -> None:
    signal = GuidedProbes(level="character", placeholder="_", rate=0.5)
    assert probe(chat("abcd"), [-1.0, -4.0, -2.0, -3.0], signal) == "a_c_"
    values = [v for v in (-1.0, -4.0, -2.0, -3.0) for _ in "东".encode()]
    assert probe(chat("多喝热水"), values, signal) == "多_热_", "several tokens are one character"


def test_the_end_of_a_turn_may_be_scored_too() -> None:
    answers = [*of_words(SAID, -1.0, -4.0, -2.0, -3.0), -9.0]
    assert (
        probe(chat(SAID), answers, GuidedProbes(), end_of_turn="include") == "One word three word"
    )


def test_a_first_token_without_context_is_never_chosen() -> None:
    document = Record("d", (Turn("text", "One two three four."),))
    answers = of_words(SAID, -9.0, -4.0, -2.0, -3.0)[1:]
    signal = GuidedProbes(rate=0.99)
    assert probe(document, answers, signal, bos=False) == "One word word word"


def test_turns_that_are_not_scored_stay() -> None:
    record = chat("Yes it is.", SAID)
    last = of_words(SAID, -1.0, -4.0, -2.0, -3.0)
    assert probe(record, last, GuidedProbes()) == "Yes it is.|One word three word"
    both = [*of_words("Yes it is.", -1.0, -2.0, -5.0), *last]
    found = probe(record, both, GuidedProbes(), loss_on="assistant")
    assert found == "Yes it word|One word three word"
    plain = [*of_words("Yes it is.", -1.0, -2.0, -5.0), -1.0, *last]
    signal = GuidedProbes(join="plain")
    assert probe(record, plain, signal, loss_on="assistant") == found


@pytest.mark.parametrize(
    ("record", "answers", "reason"),
    [
        (chat("Y"), [-1.0], "too short to mask a part of it"),
        (chat("a b"), [-1.0, -np.inf, -1.0], "a token has no finite value"),
        (chat("word b"), [-9.0] * 4 + [-1.0] * 2, "too short to mask a part of it"),
    ],
)
def test_what_makes_no_probe_has_a_reason(
    record: Record, answers: list[float], reason: str
) -> None:
    with pytest.raises(UnscorableError, match=reason):
        probe(record, answers, GuidedProbes())


def test_the_second_round_is_asked_counted_and_foreseen() -> None:
    target = FakeTarget([SAID])
    model = Model(target, RecordEncoder(target.tokenizer, Layout(), limit=400))
    records = [
        Record("a", chat(SAID).turns),
        Record("b", chat("Y").turns),
        Record("c", chat("Something else is said here.").turns),
        Record("d", chat("Long. " * 55).turns),
    ]
    signals = [GuidedProbes(), MaskedProbes(probes=2)]
    with Store() as store:
        seen, cost = collect(signals, records, {"target": model}, store=store)
        again, stored = collect(signals, records, {"target": model}, store=store)
    assert isinstance(signals[0], FollowingSignal)
    assert not isinstance(signals[1], FollowingSignal)
    assert list(seen.values[signals[0]]) == ["a", "c"]
    assert seen.missing[signals[0]] == {
        "b": "too short to mask a part of it",
        "d": "does not fit into the context after a probe",
    }
    value = seen.get(signals[0], "a")
    assert value.plain == seen.get(signals[1], "a").plain
    assert value.probed.shape == (1,)
    assert value.probed[0] == again.get(signals[0], "a").probed[0]
    assert (cost.requests, stored.scored) == ({"target": target.n_executed}, {"target": 0})
    planned = questions(signals, records, {"target": model})["target"]
    assert len(set(planned)) >= cost.requests["target"] - 2
    alone, follow = questions([GuidedProbes()], records[:1], {"target": model})["target"]
    assert len(follow.context) > 2 * len(alone.context)
