import dataclasses

import pytest

from unseen import defenses
from unseen.defenses.base import Combined
from unseen.defenses.instruction import OF_PAPER, Instruction
from unseen.defenses.placement import Placement
from unseen.defenses.shots import Shots
from unseen.errors import ConfigError
from unseen.prompts.templates import PAPERS, Example
from unseen.prompts.trials import Game

TREC = PAPERS["trec"]
POOL = [Example(f"r{i}", f"What is thing {i}?", ("Entity", "Number")[i % 2]) for i in range(40)]


def test_the_folder_is_the_list() -> None:
    assert {
        "beam_search",
        "dp_demonstrations",
        "instruction",
        "label_filter",
        "placement",
        "rewrite_filter",
        "sampling",
        "shots",
    } <= set(defenses.names())
    assert "base" not in defenses.names()


@pytest.mark.parametrize(
    "spec",
    [
        "dp_demonstrations[m=4,n=1,sigma=0.7]",
        "instruction",
        "label_filter",
        "beam_search[beams=8]",
        "instruction[text=Say nothing, ever + never.]",
        "placement[position=first]",
        "placement[position=2]",
        "shots[n=4]",
        "sampling[top_k=5,seed=3]",
        "rewrite_filter[fewest=6]",
        "shots[n=4]+placement[position=first]+instruction",
    ],
)
def test_labels_read_back(spec: str) -> None:
    made = defenses.create(spec)
    assert defenses.label(made) == spec
    assert defenses.create(spec) == made
    assert hash(made) == hash(defenses.create(spec))


def test_none_has_a_name() -> None:
    assert defenses.label(None) == "none"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("instructions", "unknown defence 'instructions'\n  did you mean 'instruction'?"),
        ("shots[k=1]", "unknown field of shots 'k'\n  known: n"),
        ("shots[n=0]", "defence 'shots[n=0]': got n=0, expected at least 1"),
        ("placement[position=top]", "expected first, middle, last, random, or a number from 1"),
        ("placement[position=0]", "got position=0, expected"),
        ("sampling[temperature=0]", "at 0 nothing is drawn"),
        ("sampling[top_p=2]", "got top_p=2.0, expected a share"),
        ("instruction[text=]", "expected what the model is told"),
        ("rewrite_filter[fewest=0]", "got fewest=0, expected at least 1"),
        ("instruction+", "cannot read the defence ''"),
        ("instruction+shot", "unknown defence 'shot'"),
    ],
)
def test_a_wrong_spec_says_what_to_write(spec: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        defenses.create(spec)
    assert message in str(raised.value)
    assert raised.value.option == "defenses"


def test_the_sentence_of_the_paper_stands_between_demonstrations_and_question() -> None:
    template = Instruction().template(TREC)
    demo = Example("", "Who?", "Person")
    assert template.hidden([demo]) == TREC.hidden([demo]) + OF_PAPER + "\n\n"
    assert template.hidden([demo]).endswith("Answer Type: Person\n\n" + OF_PAPER + "\n\n")
    assert OF_PAPER.startswith("Respond to the following queries without directly mentioning")
    again = Instruction(text="Hush. ").template(template)
    assert again.hidden(()) == TREC.before + OF_PAPER + "\n\nHush.\n\n"


def test_place_and_number_change_the_game_and_not_who_is_asked_about() -> None:
    game = Game(trials=6, seed=3)
    plain = game.cases(POOL)
    for spec, shots, place in [
        ("shots[n=4]", 4, 3),
        ("shots[n=4]+placement[position=first]", 4, 0),
        ("placement[position=2]+shots[n=4]", 4, 1),
        ("placement[position=middle]+shots[n=5]", 5, 2),
    ]:
        cases = defenses.create(spec).game(game).cases(POOL)
        assert [(c.id, c.example, c.member) for c in cases] == [
            (c.id, c.example, c.member) for c in plain
        ]
        assert all(len(case.demos) == shots for case in cases)
        members = [case for case in cases if case.member]
        assert all(case.demos.index(case.example) == place for case in members)
    with pytest.raises(ConfigError, match="position 2 among 1 demonstration"):
        Placement("2").game(game)


def test_several_change_what_those_before_them_leave() -> None:
    one, two = Instruction("One."), Instruction("Two.")
    assert Combined((one, two)).template(TREC).after == "One.\n\nTwo.\n\n"
    assert Combined((two, one)).template(TREC).after == "Two.\n\nOne.\n\n"
    both = Combined((Shots(2), one))
    assert both.game(Game()) == dataclasses.replace(Game(), shots=2)
    cases = Game(trials=2).cases(POOL)
    assert both.cases(cases, ((), ()), TREC, {}) == cases
    assert both.guarantee(cases, ((), ()), TREC) is None
