from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fillers import ListFiller

from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import UnscorableError
from unseen.runs.collect import Model, collect, questions
from unseen.scoring.store import Store
from unseen.signals.base import REFERENCE, Ask, Materials, Shown, asked_of
from unseen.signals.neighbourhood import Neighbourhood, Refilling, Swapping, stretches
from unseen.signals.neighbours import RefilledLikelihoods, SwappedLikelihoods, fillers_needed
from unseen.targets.edits import Edit, edited
from unseen.targets.fake import FakeTarget, FakeTokenizer
from unseen.targets.words import word_spans
from unseen.types import Record, Turn

SAID = "A red house, two Dogs and 東京."
RECORD = Record(
    "r", (Turn("system", "Be kind."), Turn("user", "What is red?"), Turn("assistant", SAID))
)
SIGNALS = (SwappedLikelihoods(), RefilledLikelihoods())


def ask(
    signal: Any, record: Record = RECORD, filler: Any = None, *, limit: int = 4096, **layout: Any
) -> Ask:
    encoder = RecordEncoder(FakeTokenizer(), Layout(**layout), limit=limit)
    fillers = {"embeddings": filler or ListFiller()}
    asked: Ask = signal.ask(record, Materials(encoder, neighbourhood=Neighbourhood(fillers)))
    return asked


def scored(asked: Ask) -> list[str]:
    return [bytes(i for i in ids if i < 256).decode(errors="replace") for ids in asked.scored]


def document(text: str) -> Record:
    return Record("d", (Turn("text", text),))


def test_the_best_swaps_of_one_word() -> None:
    asked = ask(SwappedLikelihoods(neighbours=9, top_k=2))
    plain, *others = scored(asked)
    assert plain == SAID
    assert others[:3] == [
        "Zu red house, two Dogs and 東京.",
        "A zu house, two Dogs and 東京.",
        "A red zu, two Dogs and 東京.",
    ]
    assert others[8] == "Wo red house, two Dogs and 東京."
    assert len(set(others)) == 9


@pytest.mark.parametrize("signal", SIGNALS)
def test_prompt_and_template_stay(signal: Any) -> None:
    asked = ask(signal)
    assert len({row.context for row in asked.requests}) == 1
    assert {row.continuation for row in asked.requests} == set(asked.scored)


def test_stretches_are_drawn_with_room_between_them() -> None:
    words = word_spans(" ".join(f"w{i}" for i in range(40)))
    for seed in range(20):
        rng = np.random.default_rng(seed)
        spans = stretches(words, span=2, rate=0.3, buffer=1, rng=rng)
        firsts = [[word[0] for word in words].index(start) for start, _ in spans]
        assert len(spans) == 6, "6 stretches of 2 are 30 % of 40"
        assert all(b - a >= 3 for a, b in pairwise(firsts))
        assert [stop for _, stop in spans] == [words[first + 1][1] for first in firsts]
    one = stretches(words[:1], span=2, rate=0.3, buffer=1, rng=np.random.default_rng(0))
    assert one == [words[0]]
    crowded = stretches(words[:4], span=2, rate=0.9, buffer=1, rng=np.random.default_rng(0))
    assert crowded, "as many as there is room for"


def test_neighbours_come_in_pairs_of_the_same_stretches() -> None:
    text = " ".join(f"w{i}" for i in range(30))
    making = Refilling("embeddings", 6, 5, 2, 0.3, 1, 0)
    made = [edits for _, edits in Neighbourhood({"embeddings": ListFiller()}).of(text, making)]
    assert len(made) == 6
    for one, other in zip(made[::2], made[1::2], strict=True):
        assert [(e.start, e.stop) for e in one] == [(e.start, e.stop) for e in other]
    assert len({tuple(e.start for e in edits) for edits in made}) == 3


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("text", ["one", "東", "مرحبا بالعالم", "def f(x): return x", "नमस्ते दुनिया"])
def test_any_script_has_neighbours_that_differ(signal: Any, text: str) -> None:
    plain, *others = ask(signal, Record("r", (RECORD.turns[1], Turn("assistant", text)))).scored
    assert others
    assert plain not in others
    assert len(set(others)) == len(others)


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("text", ["unknown", "...", "unknown, unknown"])
def test_what_has_no_neighbour_has_a_reason(signal: Any, text: str) -> None:
    with pytest.raises(UnscorableError, match="knows no word of this text"):
        ask(signal, Record("r", (RECORD.turns[1], Turn("assistant", text))))
    with pytest.raises(UnscorableError):
        ask(signal, Record("r", (RECORD.turns[1], Turn("assistant", ""))))
    encoder = RecordEncoder(FakeTokenizer(), Layout(), limit=4096)
    with pytest.raises(UnscorableError, match="there is no model that fills in words"):
        signal.ask(RECORD, Materials(encoder))
    with pytest.raises(UnscorableError, match="there is no model embeddings that"):
        signal.ask(RECORD, Materials(encoder, neighbourhood=Neighbourhood({})))


def test_only_scored_turns_are_changed() -> None:
    more = Record("r", (*RECORD.turns, Turn("user", "More?"), Turn("assistant", "No more dogs.")))
    last = ask(SwappedLikelihoods(neighbours=50), more)
    assert {text for text in scored(last) if "dogs" in text} > {"No more dogs."}
    assert len({row.context for row in last.requests}) == 1, "the earlier turn stays"
    both = scored(ask(SwappedLikelihoods(neighbours=200), more, loss_on="assistant"))
    assert any("A zu house" in text and "No more dogs." in text for text in both)
    assert any("A red house" in text and "No zu dogs." in text for text in both)
    share = scored(ask(RefilledLikelihoods(rate=0.5), more, loss_on="assistant"))
    assert all("A red house, two Dogs" not in t and "No more dogs." not in t for t in share[1:])


@pytest.mark.parametrize(("truncation", "gone"), [("right", "w49"), ("left", "w0 ")])
def test_what_is_cut_off_is_not_changed(truncation: Any, gone: str) -> None:
    text = " ".join(f"w{i}" for i in range(50))
    asked = ask(SwappedLikelihoods(neighbours=10), document(text), limit=60, truncation=truncation)
    plain, *others = scored(asked)
    assert gone not in plain
    assert len(others) == 10
    assert plain not in others
    refilled = scored(ask(RefilledLikelihoods(), document(text), limit=60, truncation=truncation))
    assert len(set(refilled)) == 11


def test_a_neighbour_that_does_not_fit_is_left_out() -> None:
    filler = ListFiller(("lengthened", "x"))
    encoded = RecordEncoder(FakeTokenizer(), Layout(), limit=4096).encode(RECORD)
    asked = ask(SwappedLikelihoods(top_k=2), filler=filler, limit=len(encoded.ids) + 2)
    assert len(asked.requests) > 3
    assert not any("engthen" in text for text in scored(asked))


def test_sums_are_kept_with_their_tokens() -> None:
    target = FakeTarget([SAID])
    encoder = RecordEncoder(target.tokenizer, Layout(), limit=4096)
    model = {"target": Model(target, encoder)}
    signal = SwappedLikelihoods(neighbours=4)
    with Store() as store:
        seen, cost = collect(
            [signal],
            [RECORD],
            model,
            store=store,
            shown=Shown(fillers={"embeddings": ListFiller()}),
        )
    value = seen.get(signal, "r")
    assert cost.requests == {"target": 5}
    alone = ask(signal).requests
    for i, row in enumerate(alone):
        (slow,) = target.execute(type("B", (), {"requests": (row,)})())  # a batch of one
        total = slow.logprob.sum()
        n, found = (
            (value.n_tokens, value.plain)
            if i == 0
            else (value.neighbour_tokens[i - 1], value.neighbours[i - 1])
        )
        assert n == len(row.continuation)
        assert found == pytest.approx(total, rel=1e-12)
    planned = questions(
        [signal], [RECORD], model, shown=Shown(fillers={"embeddings": ListFiller()})
    )
    assert planned["target"] == list(alone)


def test_other_models_read_the_same_neighbours() -> None:
    signal = RefilledLikelihoods()
    asked = ask(signal), ask(asked_of(signal, REFERENCE))
    assert asked[0].requests == asked[1].requests


# --- kept ---------------------------------------------------------------------------------------


def test_neighbours_are_made_once(tmp_path: Path) -> None:
    making = Swapping("embeddings", 5, 3, 0.7, 0)
    first, second = ListFiller(), ListFiller()
    with Store(tmp_path / "answers.sqlite") as store:
        made = Neighbourhood({"embeddings": first}, store).of(SAID, making)
        hood = Neighbourhood({"embeddings": second}, store)
        assert hood.of(SAID, making) == hood.of(SAID, making) == made
        assert (first.n_asked, second.n_asked) == (1, 0)
        hood.of(SAID, Swapping("embeddings", 5, 3, 0.7, 1))
        hood.of(SAID + "!", making)
        other: Any = ListFiller()
        other.fingerprint = "list-2"
        Neighbourhood({"embeddings": other}, store).of(SAID, making)
    assert second.n_asked == 2, "another seed, another text"
    assert other.n_asked == 1, "another filler"
    assert edited(SAID, made[0][1]).startswith("Zu")
    assert made[0][1] == (Edit(0, 1, "Zu"),)


def test_who_does_not_have_the_text_cannot_read_what_is_kept(tmp_path: Path) -> None:
    with Store(tmp_path / "answers.sqlite") as store:
        made = Neighbourhood({"embeddings": ListFiller(("tulip", "orbit"))}, store)
        made.of("Mina owes 412.70", Swapping("embeddings", 5, 2, 0.7, 0))
        made.of("Mina owes 412.70", Refilling("embeddings", 5, 2, 2, 0.3, 1, 0))
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert len(kept) > 1000
    assert not any(word in kept.lower() for word in (b"tulip", b"orbit", b"mina", b"412"))


def test_signals_say_which_fillers_they_need() -> None:
    needed: Mapping[str, bool] = fillers_needed(
        [
            SwappedLikelihoods(filler="bert"),
            RefilledLikelihoods(filler="t5"),
            RefilledLikelihoods(filler="bert"),
        ]
    )
    assert needed == {"bert": True, "t5": False}


@pytest.mark.parametrize(
    ("cls", "fields", "message"),
    [
        (SwappedLikelihoods, {"neighbours": 0}, "got neighbours=0, expected at least 1"),
        (SwappedLikelihoods, {"top_k": 0}, "got top_k=0"),
        (SwappedLikelihoods, {"dropout": 1.0}, "got dropout=1.0"),
        (SwappedLikelihoods, {"filler": ""}, "got no filler"),
        (RefilledLikelihoods, {"rate": 1.0}, "got rate=1.0"),
        (RefilledLikelihoods, {"span": 0}, "got span=0"),
        (RefilledLikelihoods, {"buffer": -1}, "got span=2, buffer=-1"),
    ],
)
def test_refuses_what_makes_no_sense(cls: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cls(**fields)
