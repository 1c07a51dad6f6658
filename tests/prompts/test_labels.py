import random

import pytest

from unseen.errors import ConfigError
from unseen.prompts.labels import Labels
from unseen.prompts.templates import PAPERS
from unseen.targets.ending import first_line

TREC = PAPERS["trec"].labels
PIECES = [
    "\n", "\n", "\r\n", "\x0b", "\u2028", " ", '"', "*", "([", "-", "...", "_", "#1", "Number", " person", "Entity",
    "Numbers", "Ab", "I do not know", "Question: Who?", "İ", "ß",
]  # fmt: skip
YES_NO = Labels.of(("yes", "no"))


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("Number", "Number"),
        (" number\n\nQuestion: Who?", "Number"),
        ("\n\n  Entity.", "Entity"),
        ("**Location**", "Location"),
        ("_Location_", "Location"),
        ("'Person'", "Person"),
        ("Person or Entity", "Person"),  # it begins with one
        ("The answer type is Description.", "Description"),
        ("Ab", "Abbreviation"),
        ("Abbreviation", "Abbreviation"),
        ("Absolutely", None),  # no word of its own
        ("Numbers", None),
        ("either a Person or an Entity", None),
        ("I do not know\nNumber", None),  # only the first line that says something
        ("", None),
        (" \n ", None),
        ('"*', None),
    ],
)
def test_an_answer_is_read_by_its_first_line(answer: str, label: str | None) -> None:
    assert TREC is not None
    assert TREC.parse(answer) == label


def test_what_follows_the_first_line_with_a_letter_is_not_read() -> None:
    assert TREC is not None
    chance, found = random.Random(0), set()
    for _ in range(3000):
        answer = "".join(chance.choices(PIECES, k=chance.randrange(9)))
        label = TREC.parse(answer)
        found.add(label)
        assert TREC.parse(first_line(answer)) == label
        assert TREC.parse(f"{first_line(answer)}Person") == label or first_line(answer) == answer
    assert {"Number", "Person", "Entity", "Abbreviation", None} <= found


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("No, but yes", "no"),
        ("yes and no", "yes"),
        ("Not sure, yes", "yes"),
        ("Well, no. Or yes.", None),
        ("Notyes", None),
        ("YES!", "yes"),
    ],
)
def test_what_it_begins_with_comes_before_what_it_holds(answer: str, label: str | None) -> None:
    assert YES_NO.parse(answer) == label


def test_the_longest_label_is_the_one_that_is_meant() -> None:
    labels = Labels.of(("New", "New York", "York"))
    assert labels.parse("New York, surely") == "New York"
    assert labels.parse("New Yorkers") == "New"
    assert labels.parse("in York") == "York"
    assert labels.parse("in New York") is None  # holds all three


def test_a_spelling_stands_for_a_label() -> None:
    labels = PAPERS["trec-paper"].labels
    assert labels is not None
    assert [labels.word(one) for one in ("Abbreviation", "ab ", "Person", "A")] == [
        "Ab", "Ab", "Person", None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "synonyms", "message"),
    [
        (["one"], {}, "got 1 labels, expected at least 2"),
        (["one", "one"], {}, "got 1 labels"),
        (["one", "One"], {}, "the labels 'one' and 'One' are both read as 'one'"),
        (["one", "two"], {"one": ["2", "Two"]}, "the labels 'one' and 'two' are both read"),
        (["one", "two"], {"three": ["3"]}, "synonyms are given for 'three', which is no label"),
        (["one", " "], {}, "a label is empty"),
        (["one", "*"], {}, "a label is empty"),
        (["one", "two\nthree"], {}, "a label holds a line break"),
    ],
)
def test_labels_that_cannot_be_told_apart_are_refused(
    words: list[str], synonyms: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Labels.of(words, synonyms)
