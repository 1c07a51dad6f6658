"""A record in other words: which paraphrases are looked at, and what is written to be one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import UnscorableError
from unseen.runs.collect import Model, collect, glances_of
from unseen.scoring.store import Store
from unseen.signals.base import Materials, Shown
from unseen.signals.gradient_drift import GradientDrift
from unseen.signals.paraphrased import ParaphrasedDrift
from unseen.signals.variants import Variants, WrittenParaphrases
from unseen.targets.fake import FakeTarget
from unseen.targets.huggingface import HFTarget
from unseen.types import Record, Turn

RECORD = Record("r", (Turn("user", "Where is it?"), Turn("assistant", "In Paris.")))


@pytest.fixture
def materials() -> Materials:
    tokenizer = FakeTarget().tokenizer
    return Materials(RecordEncoder(tokenizer, Layout(), limit=400))


def texts(materials: Materials, signal: ParaphrasedDrift, record: Record = RECORD) -> list[str]:
    passages = signal.passages(record, materials)
    return [materials.encoder.tokenizer.decode(one.ids) for one in passages]


def given(materials: Materials, *said: str) -> Materials:
    return dataclasses.replace(materials, paraphrases={"r": said})


def test_the_record_comes_first_and_its_answer_stays(materials) -> None:
    made = given(materials, "Which town has it?", "It is where?", "And a third")
    found = texts(made, ParaphrasedDrift())
    for text, said in zip(found, ("Where is it?", "Which town", "It is where"), strict=False):
        assert said in text
        assert text.endswith("I"), "the first token of the answer that says something"
    assert len(found) == 3, "two, if not said otherwise"
    assert len(texts(made, ParaphrasedDrift(paraphrases=9))) == 4
    (alone,) = GradientDrift().passages(RECORD, materials)
    assert ParaphrasedDrift().passages(RECORD, made)[0] == alone


def test_repetitions_are_left_out_and_records_without_have_their_reason(materials) -> None:
    made = given(materials, "where  IS it?", "Which town?", "which town?", " ")
    assert len(texts(made, ParaphrasedDrift(paraphrases=9))) == 2
    for said, reason in (
        ((), "no paraphrase is given for this record"),
        (("Where is it?",), "every paraphrase that is given repeats the prompt"),
    ):
        with pytest.raises(UnscorableError, match=reason):
            texts(given(materials, *said), ParaphrasedDrift())
    document = Record("r", (Turn("text", "Paris is in France."),))
    with pytest.raises(UnscorableError, match="has no prompt"):
        texts(made, ParaphrasedDrift(), document)


def test_a_generator_is_asked_for_the_prompt_and_what_it_writes_is_cleaned(materials) -> None:
    writing = WrittenParaphrases()
    first, second = writing.prompts(RECORD, materials)
    assert first.number != second.number
    asked = materials.encoder.tokenizer.decode(first.ids)
    assert "Where is it?" in asked
    assert "Paris" not in asked, "the answer has no say in how it is asked for"
    found = writing.observe(RECORD, materials, ["Where is it?", "In which town?"])
    assert found == Variants(("In which town?",))
    with pytest.raises(UnscorableError, match="the generator repeats the prompt"):
        writing.observe(RECORD, materials, ["where is  it?"])


def test_what_was_written_is_looked_at(materials) -> None:
    signal = ParaphrasedDrift(source="generate")
    (writing,) = signal.built_on
    assert writing == WrittenParaphrases()
    written = {writing: {"r": Variants(("In which town?",))}}
    assert len(texts(dataclasses.replace(materials, written=written), signal)) == 2
    written = {writing: {"r": UnscorableError("the generator writes nothing")}}
    with pytest.raises(UnscorableError, match="writes nothing"):
        texts(dataclasses.replace(materials, written=written), signal)


def test_steps_are_those_of_each_wording_alone(tmp_path: Path) -> None:
    target = HFTarget(tiny.folder(tmp_path / "m", "llama"), dtype="float64")
    encoder = RecordEncoder(target.tokenizer, Layout(), limit=target.max_length)
    models = {"target": Model(target, encoder)}
    plain, asked = GradientDrift(), ParaphrasedDrift()
    other = Record("s", (Turn("user", "In which town?"), RECORD.turns[1]))
    more: dict[str, Any] = {"shown": Shown(paraphrases={"r": ["In which town?"]})}
    glances = glances_of([asked], [RECORD, other], models, **more)
    assert len(glances["target"]) == 2, "of one record; the other has none"
    with Store() as store:
        seen, cost = collect([plain, asked], [RECORD, other], models, store=store, **more)
    assert cost.requests["target"] == 2, "what is asked twice is looked at once"
    found = seen.get(asked, "r")
    for at, id_ in enumerate("rs"):
        one = seen.get(plain, id_)
        assert found.moved[at] == pytest.approx(one.projection_after[0] - one.projection[0])
        assert found.drift[at] == pytest.approx(one.drift)
    assert found.norm.shape == (2,)
    assert not np.isclose(*found.drift)
