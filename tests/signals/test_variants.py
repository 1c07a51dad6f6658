from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import UnscorableError
from unseen.runs.collect import Model, collect, prompts_of, questions
from unseen.scoring.store import Store
from unseen.signals.base import (
    GENERATOR,
    TARGET,
    Materials,
    Shown,
    helpers_needed,
    probes_needed,
)
from unseen.signals.variants import VariantProbes, Variants, WrittenVariants
from unseen.targets.fake import FakeTarget
from unseen.types import Prompt, Record, Turn

RECORD = Record("r", (Turn("user", "Who sings?"), Turn("assistant", "Mina Okafor sings.")))
DOCUMENT = Record("d", (Turn("text", "Mina Okafor sings."),))


def encoder(limit: int = 4096, **layout: str) -> RecordEncoder:
    return RecordEncoder(FakeTarget().tokenizer, Layout(**layout), limit=limit)


class Parrot(FakeTarget):
    """Writes one text after another from a list, over and over."""

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__()
        self.texts, self.asked = texts, []

    def generate(self, prompts: Sequence[Sequence[int]], **how: Any) -> list[list[int]]:
        self.asked += [self.tokenizer.decode(prompt) for prompt in prompts]
        said = [self.texts[number % len(self.texts)] for number in how["numbers"]]
        return [[*text.encode(), 257] for text in said]


def written(texts: Sequence[str], record: Record = RECORD, **fields: Any) -> tuple[Any, Parrot]:
    parrot = Parrot(texts)
    signal = WrittenVariants(**fields)
    models = {GENERATOR: Model(parrot, encoder())}
    with Store() as store:
        seen, _ = collect([signal], [record], models, store=store)
    return seen.values[signal].get(record.id, seen.missing[signal].get(record.id)), parrot


def shown(texts: Mapping[str, Sequence[str]], limit: int = 4096, **fields: Any) -> list[str]:
    """What stands before the record in each request, but for the question."""
    signal = VariantProbes(source="file", **fields)
    ask = signal.ask(RECORD, Materials(encoder(limit), probes=texts))
    assert len(set(ask.scored)) == 1
    decode = FakeTarget().tokenizer.decode
    return [decode(request.context).removesuffix("Who sings?") for request in ask.requests]


def test_variants_are_different_and_none_is_the_response() -> None:
    said = ["She does.", "mina  okafor SINGS.", "She  does.", "", "I'm sorry, I cannot.", "A bird."]
    found, parrot = written(said, variants=3)
    assert found == Variants(("She does.", "A bird."))
    assert len(parrot.asked) == 9, "bounded: three times as many as are wanted"
    assert written(["One.", "Two.", "Three."], variants=3)[1].asked == parrot.asked[:3]
    assert all("Who sings?" in one and "Mina Okafor sings." in one for one in parrot.asked)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Here is another answer:\n\nShe does.", "She does."),
        ('"She does."', "She does."),
        ("Answer: She does.", "She does."),
        ("Two things: she does.", "Two things: she does."),
    ],
)
def test_what_models_put_around_an_answer_is_taken_off(said: str, kept: str) -> None:
    assert written([said], variants=1)[0] == Variants((kept,))


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("", "writes nothing"),
        ("Mina okafor sings.", "repeats the response"),
        ("As an AI, I cannot.", "refuses to write"),
    ],
)
def test_where_nothing_can_be_used_there_is_a_reason(said: str, reason: str) -> None:
    assert reason in written([said], variants=2)[0]


def test_a_document_is_written_anew_and_a_record_without_a_response_is_not() -> None:
    found, parrot = written(["Someone sings."], DOCUMENT, variants=1)
    assert found == Variants(("Someone sings.",))
    assert "Write this text anew" in parrot.asked[0]
    mute = Record("m", (Turn("user", "Say it."),))
    assert written(["x"], mute)[0] == "the record does not end with a response"


def test_probes_of_a_file_are_shown_but_for_copies_and_what_does_not_fit() -> None:
    given = {"r": ["MINA okafor  sings.", "She does.", "She  does.", "A bird. " * 40, "Nobody."]}
    question = "Who sings?"
    assert shown(given, 120) == ["", f"{question}She  does.", f"{question}Nobody."]
    assert shown(given, probes=1) == ["", f"{question}She  does."]
    for texts, limit, reason in (
        ({}, 4096, "no probe is given for this record"),
        ({"r": ["Mina Okafor sings."]}, 4096, "every probe that is given repeats the response"),
        ({"r": ["A bird. " * 40]}, 120, "does not fit into the context"),
    ):
        with pytest.raises(UnscorableError, match=reason):
            shown(texts, limit)


def test_more_than_the_last_response_cannot_be_varied() -> None:
    turns = (*RECORD.turns, Turn("user", "And?"), Turn("assistant", "Dances."))
    record, materials = Record("r", turns), {"probes": {"r": ["Sleeps."]}}
    VariantProbes(source="file").ask(record, Materials(encoder(), **materials))
    with pytest.raises(UnscorableError, match="more than the last response counts"):
        VariantProbes(source="file").ask(
            record, Materials(encoder(loss_on="assistant"), **materials)
        )


def test_the_target_is_asked_after_what_the_generator_wrote() -> None:
    signal = VariantProbes(probes=2)
    target, parrot = FakeTarget(), Parrot(["One.", "Two."])
    models = {TARGET: Model(target, encoder()), GENERATOR: Model(parrot, encoder())}
    silent = Record("s", (Turn("user", "Who?"), Turn("assistant", "One.")))
    with Store() as store:
        seen, cost = collect([signal], [RECORD, silent], models, store=store)
    given = {"r": ["One.", "Two."], "s": ["Two."]}
    by_file = VariantProbes(source="file", probes=2)
    with Store() as store:
        same, _ = collect(
            [by_file], [RECORD, silent], models, store=store, shown=Shown(probes=given)
        )
    for id_ in ("r", "s"):
        one, other = seen.get(signal, id_), same.get(by_file, id_)
        assert (one.plain, one.probed.tolist()) == (other.plain, other.probed.tolist())
    assert cost.requests == {TARGET: 3 + 2, GENERATOR: 2 + 2 + 4}


def test_a_plan_counts_texts_and_foresees_as_many_questions() -> None:
    signal = VariantProbes(probes=3)
    models = {role: Model(FakeTarget(), encoder()) for role in (TARGET, GENERATOR)}
    assert len(questions([signal], [RECORD], models)[TARGET]) == 4
    prompts = prompts_of([signal], [RECORD], models)
    assert (len(prompts[GENERATOR]), prompts[TARGET]) == (3, [])
    assert all(isinstance(prompt, Prompt) for prompt in prompts[GENERATOR])


def test_signals_say_what_they_need() -> None:
    assert helpers_needed([VariantProbes()]) == {GENERATOR}
    assert helpers_needed([VariantProbes(source="file")]) == set()
    assert probes_needed([VariantProbes(source="file")])
    assert not probes_needed([VariantProbes()])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"source": "x"}, "got source='x'"),
        ({"probes": 0}, "got probes=0"),
        ({"join": "x"}, "got join='x'"),
        ({"temperature": 0.0}, "got temperature=0"),
        ({"temperature": -1.0}, "got temperature=-1.0"),
    ],
)
def test_refuses_what_makes_no_sense(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VariantProbes(**fields)
