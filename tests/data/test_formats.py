"""Which columns become which turns, and which form a first row has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from unseen.data.formats import FORMS, Cells, Row, schema_of, shown
from unseen.errors import ConfigError, DataError, UnknownNameError
from unseen.types import Turn

USER, ANSWER = Turn("user", "q"), Turn("assistant", "a")
CHAT = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
SHARED = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]


def turns(values: dict[str, Any], **options: Any) -> tuple[Turn, ...]:
    row = Row(values, "x.jsonl", 1)
    return schema_of(row, **options).record(row).turns


@pytest.mark.parametrize(
    ("values", "form", "expected"),
    [
        ({"text": "t"}, "text", (Turn("text", "t"),)),
        ({"prompt": "q", "completion": "a"}, "prompt-completion", (USER, ANSWER)),
        ({"prompt": "q", "response": "a"}, "prompt-completion", (USER, ANSWER)),
        ({"prompt": "", "response": "a"}, "prompt-completion", (Turn("user", ""), ANSWER)),
        ({"prompt": CHAT[:1], "completion": CHAT[1:]}, "prompt-completion", (USER, ANSWER)),
        ({"prompt": CHAT[:1], "completion": "a"}, "prompt-completion", (USER, ANSWER)),
        ({"messages": CHAT}, "messages", (USER, ANSWER)),
        ({"messages": json.dumps(CHAT)}, "messages", (USER, ANSWER)),
        ({"messages": SHARED}, "messages", (USER, ANSWER)),
        ({"messages": {"role": ["user", "assistant"], "content": ["q", "a"]}}, "messages", (USER, ANSWER)),
        ({"messages": [{"role": "system", "content": "s"}, *CHAT]}, "messages", (Turn("system", "s"), USER, ANSWER)),
        ({"messages": [{**m, "tool_calls": None} for m in CHAT]}, "messages", (USER, ANSWER)),
        ({"messages": [CHAT[0], {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]},
         "messages", (USER, Turn("assistant", "ab"))),
        ({"conversations": SHARED}, "sharegpt", (USER, ANSWER)),
        ({"conversations": CHAT}, "sharegpt", (USER, ANSWER)),
        ({"conversations": SHARED, "system": "s"}, "sharegpt", (Turn("system", "s"), USER, ANSWER)),
        ({"instruction": "q", "output": "a"}, "alpaca", (USER, ANSWER)),
        ({"instruction": "q", "input": " ", "output": "a", "text": "rendered"}, "alpaca", (USER, ANSWER)),
        ({"instruction": "q", "input": None, "output": "a"}, "alpaca", (USER, ANSWER)),
        ({"instruction": "q", "input": "i", "output": "a"}, "alpaca", (Turn("user", "q\n\ni"), ANSWER)),
        ({"instruction": "q", "output": "a", "system": "s"}, "alpaca", (Turn("system", "s"), USER, ANSWER)),
    ],
)  # fmt: skip
def test_forms(values: dict[str, Any], form: str, expected: tuple[Turn, ...]) -> None:
    row = Row(values, "x.jsonl", 1)
    assert schema_of(row).form.name == form
    assert turns(values) == turns(values, format=form) == expected


@pytest.mark.parametrize(
    ("values", "column", "expected"),
    [
        ({"body": "t"}, {"text": "body"}, (Turn("text", "t"),)),
        ({"instruction": "q", "output": "t"}, {"text": "output"}, (Turn("text", "t"),)),
        ({"q": "q", "a": "a"}, {"prompt": "q", "completion": "a"}, (USER, ANSWER)),
        ({"q": "q", "a": "a"}, {"prompt": "q", "response": "a"}, (USER, ANSWER)),
        ({"prompt": "q", "completion": "x", "a": "a"}, {"completion": "a"}, (USER, ANSWER)),
        ({"chat": CHAT}, {"messages": "chat"}, (USER, ANSWER)),
        ({"instruction": "q", "answer": "a"}, {"output": "answer"}, (USER, ANSWER)),
    ],
)
def test_columns_of_other_names(
    values: dict[str, Any], column: dict[str, str], expected: Any
) -> None:
    assert turns(values, column=column) == expected


def test_a_column_for_an_optional_role() -> None:
    values = {"instruction": "q", "context": "i", "output": "a"}
    assert turns(values, column={"input": "context"})[0] == Turn("user", "q\n\ni")


def test_the_other_forms_that_fit_are_known() -> None:
    row = Row({"messages": CHAT, "text": "rendered"}, "x.jsonl", 1)
    assert schema_of(row).others == ("text",)
    assert schema_of(row, format="text").others == ()


@pytest.mark.parametrize(
    ("values", "fix"),
    [
        ({"instruction": "q", "answer": "a", "src": "s"}, "--format alpaca --column output=answer"),
        ({"question": "q", "answer": "a"}, "--format prompt-completion --column prompt=question --column completion=answer"),
        ({"Prompt": "q", "Completion": "a"}, "--column prompt=Prompt --column completion=Completion"),
        ({"chat": CHAT}, "--format messages --column messages=chat"),
        ({"id": "long long long", "body text": "tt", "n": 1}, "--column 'text=body text'"),
        ({"mesages": CHAT}, "--column messages=mesages"),
        ({"n": 1}, '{"text": "..."}'),
    ],
)  # fmt: skip
def test_what_fits_no_form_is_told_how_to(values: dict[str, Any], fix: str) -> None:
    with pytest.raises(DataError, match=r"x\.jsonl line 1: has columns") as caught:
        schema_of(Row(values, "x.jsonl", 1))
    assert fix in (caught.value.fix or "")


def test_a_format_that_does_not_fit_names_one_that_does() -> None:
    row = Row({"instruction": "q", "answer": "a", "text": "t"}, "x.jsonl", 1)
    with pytest.raises(DataError, match="format alpaca also needs output") as caught:
        schema_of(row, format="alpaca")
    assert caught.value.fix == (
        "map columns:  --column output=answer\n  or write both sides as text, "
        "which these columns fit, without --format alpaca"
    )


def test_the_suggested_flags_work() -> None:
    values = {"instruction": "q", "answer": "a", "src": "s"}
    assert turns(values, format="alpaca", column={"output": "answer"}) == (USER, ANSWER)


def test_unknown_names() -> None:
    row = Row({"text": "t"}, "x.jsonl", 1)
    with pytest.raises(UnknownNameError, match="did you mean 'alpaca'"):
        schema_of(row, format="alpacca")
    with pytest.raises(UnknownNameError, match="did you mean 'text'"):
        schema_of(row, column={"txt": "text"})
    with pytest.raises(UnknownNameError, match=r"x.jsonl line 1 'texd'\n  did you mean 'text'"):
        schema_of(row, column={"text": "texd"})
    with pytest.raises(ConfigError, match="no format has the roles text, prompt together"):
        schema_of(row, column={"text": "text", "prompt": "text"})


def test_column_names_that_may_be_text_are_not_shown() -> None:
    sentence = "my secret diary entry of the third of March, which nobody may ever read"
    with pytest.raises(DataError) as caught:
        schema_of(Row({sentence: "more", "a\nb": "c"}, "x.csv", 2))
    assert "diary" not in str(caught.value)
    assert "a\nb" not in str(caught.value)
    assert shown(sentence) == f"(a name of {len(sentence)} characters)"


def test_form_names_are_unique_and_every_form_builds() -> None:
    assert len({form.name for form in FORMS}) == len(FORMS)
    for form in FORMS:
        with pytest.raises(DataError, match="is missing"):
            form.build(Cells(Row({}, "x.jsonl", 1), {}))
