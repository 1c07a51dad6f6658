import pytest

from unseen.errors import ConfigError
from unseen.runs.prompt.config import PromptAudit, configure
from unseen.runs.prompt.game import PromptGame
from unseen.runs.prompt.plan import check_inputs


def test_one_is_a_list_of_one() -> None:
    made = configure(shots=4, position=2, labels="A,B", attacks="gap", defenses="shots[n=4],none")
    assert (made.shots, made.position, made.labels) == ((4,), ("2",), ("A", "B"))
    assert made.attacks == ("gap",)
    assert made.defenses == ("shots[n=4]", "none")
    assert configure(shots="1,4,4", position=["first", 3]).shots == (1, 4)
    assert configure(position=["first", 3]).position == ("first", "3")


def test_synonyms_are_pairs_or_a_mapping() -> None:
    expected = {"Abbreviation": ("Ab", "Abbr"), "Number": ("Count",)}
    assert configure(synonyms="Abbreviation=Ab|Abbr,Number=Count").spellings == expected
    assert configure(synonyms={"Abbreviation": ["Ab", "Abbr"], "Number": "Count"}).spellings == (
        expected
    )


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"shots": 0}, "shots: got 0, expected numbers of at least 1"),
        ({"shots": []}, "expected numbers of at least 1"),
        ({"position": "nowhere"}, "expected first, middle, last, random, or a number from 1"),
        ({"position": 0}, "or a number from 1"),
        ({"synonyms": "Ab"}, "expected label=word|word"),
        ({"trials": 1}, "trials: got 1"),
        ({"control": "all"}, "control: got 'all', expected 'k0' or 'none'"),
        ({"gate": "speed=1"}, "gate"),
        ({"template": ""}, "expected a name, or leave it out"),
        ({"near_duplicate": 1}, "there is no such option; did you mean 'near_duplicates'?"),
    ],
)
def test_bad_choices_are_refused(choices: dict, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        configure(**choices)
    assert message in str(raised.value)


def test_a_game_gives_what_differs_from_where_nothing_is_said() -> None:
    game = PromptGame("trec", demos=[("a", "b")], shots=(1, 4), synonyms={"b": ["c"]})
    assert game.choices == {"template": "trec", "shots": (1, 4), "synonyms": {"b": ["c"]}}
    made = configure(**PromptGame("trec", "pool.csv", position="first", chat=True).choices)
    assert (made.demos, made.position, made.chat) == ("pool.csv", ("first",), True)
    assert made.trials == PromptAudit().trials == PromptGame("trec", "").trials


def test_faults_of_an_observed_prompt_are_mended_by_what_is_shown() -> None:
    with pytest.raises(ConfigError, match="--trials without effect") as raised:
        check_inputs(configure(model="m", template="t", observed_prompt=True, trials=9), None, None)
    assert "--observed-prompt --members FILE --nonmembers FILE" in str(raised.value.fix)
    assert "--demos" not in str(raised.value.fix)
