import dataclasses

import demos
import numpy as np
import pytest

from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import ConfigError, DataError, TooFewRecordsError
from unseen.prompts.labels import Labels
from unseen.prompts.templates import PAPERS, PromptTemplate
from unseen.runs.prompt.config import configure
from unseen.runs.prompt.demos import read_demos
from unseen.runs.prompt.settings import Setting, drawn, observed
from unseen.signals.base import REFERENCE, TARGET
from unseen.targets.fake import FakeTarget

TEMPLATE = PromptTemplate(
    "t", "Sort.\n\n", "Note: {input}\nKind:", "Note: {input}\nKind: {output}\n\n"
)


def pool(n: int = 30, seed: int = 0):
    return read_demos(
        [(row["text"], row["label"]) for row in demos.rows(n, seed)],
        format_="auto", column={}, option="--demos",
    )  # fmt: skip


def settings(**choices) -> tuple[Setting, ...]:
    return drawn(configure(trials=8, **choices), TEMPLATE, pool())


def encoder(limit: int = 8192) -> RecordEncoder:
    return RecordEncoder(FakeTarget().tokenizer, Layout(), limit=limit)


def test_settings_are_all_combinations_and_the_first_is_the_main_one() -> None:
    found = settings(shots=(1, 3), position=("last", "first"), defenses="instruction")
    assert [(one.shots, one.position, one.defended) for one in found] == [
        (1, "last", "none"),  # of one demonstration, every place is the same
        (3, "last", "none"),
        (3, "first", "none"),
        (1, "last", "instruction"),
        (3, "last", "instruction"),
        (3, "first", "instruction"),
    ]
    assert len({one.name for one in found}) == 6


def test_all_settings_ask_about_the_same_records() -> None:
    first, *others = settings(shots=(1, 3), position=("last", "first", "middle"))
    for other in others:
        for one, same in zip(first.cases, other.cases, strict=True):
            assert (one.id, one.example, one.member) == (same.id, same.example, same.member)


def test_a_place_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="position 3 among 1"):
        settings(position="3")
    with pytest.raises(TooFewRecordsError, match="prompts of 20 demonstrations need 42"):
        settings(shots=20)


def test_names_of_files_are_plain_and_differ() -> None:
    one, two = (
        next(s for s in settings(defenses=[d]) if s.defense is not None)
        for d in ("instruction[text=Hush: say nothing!]", "instruction[text=Hush; say nothing!]")
    )
    assert one.name != two.name
    assert all(char.isalnum() or char in "-_.+" for char in one.name)


def test_the_control_asks_the_same_behind_a_prompt_without_demonstrations() -> None:
    setting, *_ = settings(shots=2)
    hidden = setting.behind(encoder(), control=True)
    case = setting.cases[0]
    whole, empty = (
        encoder().tokenizer.decode(hidden[role].prompt(case.id, hidden[role].asked("x")))
        for role in (TARGET, REFERENCE)
    )
    assert empty == "Sort.\n\nNote: x\nKind:"
    assert whole == TEMPLATE.hidden(case.demos) + "Note: x\nKind:"
    assert set(setting.behind(encoder(), control=False)) == {TARGET}


def test_prompts_that_do_not_fit_have_no_length() -> None:
    setting, *_ = settings(shots=2)
    lengths = setting.lengths(encoder())
    limit = int(np.median(list(lengths.values())))
    shorter = setting.lengths(encoder(limit))
    assert {id_ for id_, n in shorter.items() if n is None} == {
        id_ for id_, n in lengths.items() if n >= limit
    }


def test_places_are_groups_where_they_differ() -> None:
    (fixed,) = settings(shots=3)
    (mixed,) = settings(shots=3, position="random")
    assert all(row.slices == {} for row in fixed.records.records)
    assert {row.slices["position"] for row in mixed.records.records} == {"1", "2", "3"}
    assert len({row.cluster for row in mixed.records.records}) == 8


@pytest.mark.parametrize("defenses", [(), ("instruction",)])
def test_wrong_labels_are_those_of_the_task(defenses: tuple[str, ...]) -> None:
    words = (*demos.LABELS, "Dusk")
    template = dataclasses.replace(TEMPLATE, labels=Labels.of(words))
    for setting in drawn(configure(trials=8, defenses=defenses), template, pool()):
        for case in setting.cases:
            assert sorted((*case.wrong, case.example.label)) == sorted(words)


def test_who_is_asked_about_behind_what_is_what_is_hashed() -> None:
    one, two, again = (settings(**c)[0].sources for c in ({"shots": 1}, {"shots": 2}, {"shots": 1}))
    assert one == again
    assert one[0].sha256 != two[0].sha256
    assert one[0].sha256 != one[1].sha256


def test_an_observed_prompt_has_nothing_before_what_is_sent() -> None:
    config = configure(observed_prompt=True, members="m", nonmembers="n")
    members, others = pool(10), pool(10, seed=5)
    words = (*demos.LABELS, "Dusk")
    setting, dropped = observed(
        config, dataclasses.replace(PAPERS["trec"], labels=Labels.of(words)), members, others
    )
    assert (len(setting.records.members), len(setting.records.nonmembers)) == (10, 10)
    assert not dropped
    case = setting.cases[3]
    hidden = setting.behind(encoder(), control=False)[TARGET]
    assert encoder().tokenizer.decode(hidden.prompt(case.id, hidden.asked("x"))) == (
        "Question: x\nAnswer Type:"
    )
    assert all(row.cluster is None for row in setting.records.records)
    assert sorted((*case.wrong, case.example.label)) == sorted(words)


def test_records_on_both_sides_of_an_observed_prompt_are_dropped() -> None:
    config = configure(observed_prompt=True, members="m", nonmembers="n")
    here, there = ([(e.text, e.label) for e in pool(8, seed).examples] for seed in (0, 5))
    sides = [
        read_demos(rows, format_="auto", column={}, option="x") for rows in (here, here[:3] + there)
    ]
    setting, dropped = observed(config, TEMPLATE, *sides)
    assert len(dropped) == 6
    assert (len(setting.records.members), len(setting.records.nonmembers)) == (5, 8)
    with pytest.raises(DataError, match="nothing is left"):
        observed(config, TEMPLATE, sides[0], sides[0])
