import json
from pathlib import Path

import pytest

from unseen.errors import ConfigError, DataError, UnknownNameError, UnseenError
from unseen.prompts.labels import Labels
from unseen.prompts.templates import Example
from unseen.runs.prompt.demos import Demos, labelled, labels_of, read_demos
from unseen.types import Record, Turn

TALK = [{"role": role, "content": "one"} for role in ("user", "assistant") * 2]


def read(given, **options) -> Demos:
    return read_demos(given, **({"format_": "auto", "column": {}, "option": "--demos"} | options))


def lines(path: Path, *rows: dict) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_text_and_label_are_columns(tmp_path: Path) -> None:
    file = lines(
        tmp_path / "a.jsonl",
        {"id": "x", "text": "one", "label": " Yes "},
        {"text": "two", "label": 3},
    )
    found = read(file)
    assert found.examples == (Example("x", "one", "Yes"), Example("2", "two", "3"))
    assert found.places == ("line 1", "line 2")
    assert found.labels == ("3", "Yes")
    other = tmp_path / "b.csv"
    other.write_text("body,kind\none,Yes\n")
    assert read(other, column={"text": "body", "label": "kind"}).examples[0].label == "Yes"


def test_prompts_and_completions_are_texts_and_labels(tmp_path: Path) -> None:
    file = lines(tmp_path / "a.jsonl", {"prompt": "one", "completion": "Yes"})
    assert [(e.text, e.label) for e in read(file).examples] == [("one", "Yes")]
    alpaca = lines(tmp_path / "b.jsonl", {"instruction": "one", "output": "Yes"})
    assert [(e.text, e.label) for e in read(alpaca).examples] == [("one", "Yes")]


def test_records_come_from_python_too() -> None:
    record = Record("r", (Turn("user", "three"), Turn("assistant", "No")))
    found = read([("one", "Yes"), {"id": 7, "text": "two", "label": "No"}, record])
    assert [(e.id, e.text, e.label) for e in found.examples] == [
        ("1", "one", "Yes"),
        ("7", "two", "No"),
        ("r", "three", "No"),
    ]
    assert found.source.sha256 == read(
        [(e.text, e.label) for e in found.examples]
    ).source.sha256 or (found.examples[1].id == "7")


def test_a_table_is_its_rows() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    rows = [{"text": "one", "label": 1, "id": "a"}, {"text": "two", "label": 0, "id": "b"}]
    assert read(pandas.DataFrame(rows)) == read(rows)


def test_an_id_is_given_once() -> None:
    with pytest.raises(DataError, match="record 1 and record 2 have the same id"):
        read([{"id": 2, "text": "one", "label": "A"}, {"text": "two", "label": "B"}])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": "one"}], "--column text=text --column label=COLUMN"),
        (
            [{"body": "one two", "kind": "A"}],
            "line 1: has columns body, kind, and none for text and label\n"
            "  name the columns: --column text=body --column label=kind",
        ),
        ([{"text": "one"}, {"text": "two", "label": "A"}], "line 1 field 'label': is missing"),
        (
            [{"id": 7, "text": "a", "label": "A"}, {"id": "7", "text": "b", "label": "A"}],
            "line 1 and line 2 have the same id",
        ),
        ([{"prompt": "one"}], "has columns prompt, and none for text and label"),
        ([{"text": "one", "label": ""}], "line 1 field 'label': is empty"),
        (
            [{"text": "one", "label": "A"}, {"text": None, "label": "A"}],
            "line 2 field 'text': is null",
        ),
        ([{"messages": TALK}], "no text with a label"),
    ],
)
def test_a_file_that_is_no_pool_says_what_to_type(tmp_path: Path, rows, message: str) -> None:
    with pytest.raises(UnseenError) as raised:
        read(lines(tmp_path / "a.jsonl", *rows))
    assert message in str(raised.value)


def test_a_column_that_is_not_there_is_the_fault_and_not_its_role(tmp_path: Path) -> None:
    file = lines(tmp_path / "a.jsonl", {"body": "one", "kind": "A"})
    with pytest.raises(UnknownNameError, match=r"unknown column .* 'kin'") as raised:
        read(file, column={"text": "body", "label": "kin"})
    assert "kind" in str(raised.value.fix)
    with pytest.raises(DataError) as raised:
        read(file, column={"text": "body"})
    assert raised.value.fix == "name the columns: --column text=body --column label=kind"
    with pytest.raises(ConfigError, match="role in column 'foo'"):
        read(file, column={"foo": "body"})
    assert read(file, column={"text": "body", "label": "kind"}).labels == ("A",)


def test_items_of_python_that_are_no_records_are_refused() -> None:
    with pytest.raises(DataError, match="record 1 is no text with a label"):
        read(["one"])
    with pytest.raises(DataError, match="holds no records"):
        read([])


def test_labels_are_those_that_are_named_or_the_templates_or_the_records() -> None:
    pool = read([("a", "x"), ("b", "y"), ("c", "x"), ("d", "y")])
    own = Labels.of(("x", "z"), {"z": ("y",)})
    assert labels_of([pool], ["y", "x"], {"x": ["ex"]}, own) == Labels.of(("y", "x"), {"x": ["ex"]})
    assert labels_of([pool], [], {"x": ["ex"]}, own).words == ("x", "z")
    assert labels_of([pool], [], {"x": ["ex"]}, own).parse("ex") == "x"
    assert labels_of([pool], [], {}, None).words == ("x", "y")


def test_answers_that_hardly_repeat_are_free_text() -> None:
    pool = read([(f"t{i}", f"answer {i}") for i in range(9)])
    assert labels_of([pool], [], {}, None) is None
    assert labelled(pool, None) is pool


def test_records_of_one_label_are_no_pool() -> None:
    with pytest.raises(ConfigError, match="all 2 records have the same label"):
        labels_of([read([("a", "x"), ("b", "x")])], [], {}, None)


def test_labels_take_the_spelling_of_the_list_and_strange_ones_are_placed_not_quoted() -> None:
    pool = read([("a", "NUMBER"), ("b", "ab"), ("c", "secret"), ("d", "word")])
    labels = Labels.of(("Number", "Abbreviation"), {"Abbreviation": ("Ab",)})
    with pytest.raises(ConfigError) as raised:
        labelled(pool, labels)
    assert "2 records of --demos have a label that is none of Number, Abbreviation" in str(
        raised.value
    )
    assert "(record 3, record 4)" in str(raised.value)
    assert "secret" not in str(raised.value)
    kept = read([("a", "NUMBER"), ("b", "ab")])
    assert [e.label for e in labelled(kept, labels).examples] == ["Number", "Abbreviation"]
