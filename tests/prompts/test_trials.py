from collections import Counter

import numpy as np
import pytest

from unseen.errors import ConfigError, TooFewRecordsError
from unseen.prompts.templates import Example
from unseen.prompts.trials import Case, Game, membership
from unseen.types import Turn

LABELS = ("Entity", "Location", "Number", "Person")


def pool(n: int) -> list[Example]:
    return [Example(f"r{i}", f"What is thing {i}?", LABELS[i % len(LABELS)]) for i in range(n)]


def trials(cases: tuple[Case, ...]) -> list[tuple[Case, Case]]:
    """Member and non-member of each trial."""
    pairs = [cases[i : i + 2] for i in range(0, len(cases), 2)]
    assert all({one.trial for one in pair} == {i} for i, pair in enumerate(pairs))
    return [tuple(sorted(pair, key=lambda one: not one.member)) for pair in pairs]


def test_each_trial_has_a_member_in_its_prompt_and_a_nonmember_that_is_not() -> None:
    for member, other in trials(Game(trials=50, shots=3, position="random").cases(pool(20))):
        assert member.member
        assert not other.member
        assert member.demos == other.demos
        assert member.demos[member.position] == member.example
        assert other.example.text not in {demo.text for demo in other.demos}
        assert len({demo.id for demo in member.demos}) == 3


def test_demonstrations_and_nonmembers_come_from_halves_that_a_coin_gives_their_parts() -> None:
    cases = Game(trials=200, shots=2).cases(pool(20))
    inside = [{demo.id for demo in member.demos} for member, _ in trials(cases)]
    outside = [other.example.id for _, other in trials(cases)]
    half = {"r0"}
    for _ in range(20):  # who is ever shown beside one of a half is of that half
        half = half.union(*(shown for shown in inside if shown & half))
    assert len(half) == 10
    sides = [bool(shown & half) for shown in inside]
    assert all(shown <= half or not shown & half for shown in inside)
    assert all((other in half) != side for other, side in zip(outside, sides, strict=True))
    assert 70 < sum(sides) < 130
    # Whoever is a member in one trial is a non-member in others: nothing but the coin says which.
    asked = Counter((case.example.id, case.member) for case in cases)
    assert all(asked[f"r{i}", is_in] for i in range(20) for is_in in (True, False))


def test_paired_asks_about_one_record_both_ways() -> None:
    for member, other in trials(Game(trials=20, shots=3, paired=True).cases(pool(20))):
        assert member.example == other.example
        assert member.position == other.position == 2
        assert member.demos[:2] == other.demos[:2]
        assert other.example not in other.demos
        assert len(set(other.demos)) == 3


@pytest.mark.parametrize(
    ("position", "shots", "places"),
    [
        ("first", 4, {0}),
        ("middle", 4, {1}),
        ("middle", 5, {2}),
        ("last", 4, {3}),
        (2, 4, {1}),
        ("random", 4, {0, 1, 2, 3}),
        ("random", 1, {0}),
    ],
)
def test_the_member_stands_where_it_is_told_to(
    position: str | int, shots: int, places: set[int]
) -> None:
    cases = Game(trials=60, shots=shots, position=position).cases(pool(20))  # type: ignore[arg-type]
    assert {case.position for case in cases} == places


def test_whom_a_trial_asks_about_depends_on_neither_position_nor_shots() -> None:
    def asked(**choices: int | str) -> list[tuple[str, str, bool, tuple[str, ...]]]:
        cases = Game(trials=25, **choices).cases(pool(20))  # type: ignore[arg-type]
        return [(one.id, one.example.id, one.member, one.wrong) for one in cases]

    assert asked() == asked(shots=3, position="first") == asked(shots=4, position=2)
    first, last = (
        Game(trials=10, shots=3, position=position).cases(pool(20)) for position in ("first", 3)
    )
    for one, other in zip(first, last, strict=True):
        assert one.demos == (other.demos[-1], *other.demos[:-1])


def test_nobody_is_asked_about_in_two_pairs() -> None:
    cases = Game(trials=25, shots=3).cases(pool(20))
    pairs = [{case.example.id for case in cases if case.trial == i} for i in range(25)]
    assert len({frozenset(pair) for pair in pairs}) == 10
    assert pairs[:5] == pairs[10:15] == pairs[20:25]
    again = [one for one in cases if one.trial in (3, 13, 23)]
    assert len({one.demos for one in again}) == 3


def test_the_order_of_the_pool_has_no_say() -> None:
    records = pool(20)
    # Several that read alike, of which one is kept.
    records += [Example("r90", "what  is thing 3?", "Person"), Example("r91", records[4].text, "X")]
    game = Game(trials=30, shots=2)
    expected = game.cases(records)
    rng = np.random.default_rng(0)
    for _ in range(3):
        assert game.cases([records[i] for i in rng.permutation(len(records))]) == expected
    texts = {" ".join(case.example.text.split()).casefold() for case in expected}
    assert len(texts) == 20


def test_another_seed_is_another_game_and_more_trials_change_none_of_the_first() -> None:
    records = pool(20)
    assert Game(trials=8).cases(records)[:6] == Game(trials=3).cases(records)
    assert Game(trials=8, seed=1).cases(records) != Game(trials=8).cases(records)


def test_names_say_nothing_of_membership() -> None:
    cases = Game(trials=200).cases(pool(20))
    by_name = Counter((case.id[-1], case.member) for case in cases)
    assert set(by_name) == {("a", True), ("a", False), ("b", True), ("b", False)}
    assert 70 < by_name["a", True] < 130
    assert len({case.id for case in cases}) == 400


def test_wrong_labels_are_the_same_draw_for_both_of_a_trial() -> None:
    for member, other in trials(Game(trials=20).cases(pool(20))):
        for case in (member, other):
            assert sorted((*case.wrong, case.example.label)) == sorted(LABELS)
        mixed = set(member.wrong) & set(other.wrong)
        assert [w for w in member.wrong if w in mixed] == [w for w in other.wrong if w in mixed]
    assert len({case.wrong for case in Game(trials=40).cases(pool(20))}) > 8


def test_a_label_that_no_record_has_is_wrong_too() -> None:
    words = (*LABELS, "Abbreviation")
    for case in Game(trials=20).cases(pool(20), words):
        assert sorted((*case.wrong, case.example.label)) == sorted(words)
    assert Game(trials=20).cases(pool(20), LABELS[::-1]) == Game(trials=20).cases(pool(20))


def test_a_case_is_a_record_without_a_label() -> None:
    case = Game(trials=3, shots=2, position=1).cases(pool(20))[4]
    assert case.record.id == case.id
    assert case.record.turns == (
        Turn("user", case.example.text),
        Turn("assistant", case.example.label),
    )
    assert (case.record.cluster, case.record.slices) == ("t2", {"position": "1", "shots": "2"})


def test_membership_is_kept_apart() -> None:
    cases = Game(trials=3).cases(pool(20))
    kept = membership(cases)
    assert kept.ids == tuple(case.id for case in cases)
    assert kept.member.tolist() == [case.member for case in cases]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"trials": 0}, "got trials=0, expected at least 1"),
        ({"shots": 0}, "got shots=0"),
        ({"shots": 2, "position": 3}, "got position 3 among 2 demonstrations\n  --position 1 to 2"),
        ({"position": 0}, "got position 0 among 1"),
        ({"position": "frist"}, "unknown position 'frist'\n  did you mean 'first'"),
    ],
)
def test_a_game_that_cannot_be_played_is_refused(choices: dict, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Game(**choices)
    assert message in str(raised.value)


def test_a_pool_that_is_too_small_or_has_one_label_is_refused() -> None:
    Game(shots=4).cases(pool(10))
    with pytest.raises(TooFewRecordsError) as raised:
        Game(shots=4).cases([*pool(9), *pool(9)])
    assert "9 different records, and prompts of 4 demonstrations need 10" in str(raised.value)
    same = [Example(str(i), f"thing {i}", "Entity") for i in range(10)]
    with pytest.raises(ConfigError, match="all records of the pool have one label"):
        Game().cases(same)
