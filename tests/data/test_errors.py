"""The catalogue of what can be wrong with records: one message, its place, a fix, and no text."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from unseen.data.records import Records
from unseen.errors import ConfigError, DataError, UnknownNameError, UsageError

SECRET = "Zyxhollow"
GOOD = json.dumps({"text": f"{SECRET} good", "id": "ok"}) + "\n"


@dataclass(frozen=True)
class Case:
    """A file, and what the message about it has to hold."""

    name: str
    content: bytes | str | Callable[[Path], None] | None
    says: tuple[str, ...]
    fix: str
    kind: type[UsageError] = DataError
    options: tuple[tuple[str, Any], ...] = ()


def line(value: Any) -> str:
    return GOOD + json.dumps(value) + "\n"


def chat(*messages: Any) -> str:
    good = [{"role": "user", "content": SECRET}, {"role": "assistant", "content": SECRET}]
    return json.dumps({"messages": good}) + "\n" + json.dumps({"messages": list(messages)}) + "\n"


def bad_parquet(path: Path) -> None:
    path.write_bytes(b"PAR1" + SECRET.encode() * 10)


def number_parquet(path: Path) -> None:
    parquet.write_table(pa.table({"text": [1, 2]}), path)


def double_parquet(path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([SECRET]), pa.array([SECRET])], names=["text", "text"])
    parquet.write_table(table, path)


USER = {"role": "user", "content": SECRET}
ASSISTANT = {"role": "assistant", "content": SECRET}

CASES = [
    # the file
    Case("trian.jsonl", None, ("no such file",), "did you mean"),
    Case("away/train.jsonl", None, ("no such file",), "does not exist either"),
    Case("folder", lambda p: p.mkdir(), ("is a folder",), "folder#train"),
    Case("empty.jsonl", b"", ("empty file",), '{"text": "..."}'),
    Case("blank.jsonl", b"\n \r\n\n", ("holds no records",), '{"text": "..."}'),
    Case("notes.txt", GOOD, ("unknown ending", ".parquet"), "mv "),
    Case("train.jsonl.gz", b"\x1f\x8b", ("unknown ending",), "gunzip -k"),
    Case("train", GOOD, ("unknown ending",), "mv "),
    Case("x" * 300 + ".jsonl", None, ("cannot be read",), "ls -l"),
    # lines of JSONL
    Case("a.jsonl", GOOD + '{"text": "' + SECRET, ("line 2", "column 10", "unterminated string"), "sed -n '2p'"),
    Case("a.jsonl", GOOD + '{"text": "' + SECRET + '",}\n', ("line 2", "valid JSON"), "sed -n '2p'"),
    Case("a.jsonl", GOOD + f"{{'text': '{SECRET}'}}\n", ("line 2", "valid JSON"), "json.dumps"),
    Case("a.jsonl", "[\n" + GOOD, ("line 1", "valid JSON"), "mv "),
    Case("a.jsonl", line([SECRET]), ("line 2", "a list, expected an object"), "sed -n '2p'"),
    Case("a.jsonl", line(SECRET), ("line 2", "a text, expected an object"), "sed -n '2p'"),
    Case("a.jsonl", GOOD + "\n" + "7\n", ("line 3", "a number, expected an object"), "sed -n '3p'"),
    Case("a.jsonl", GOOD + "[" * 200_000 + "\n", ("line 2", "nested too deep"), "sed -i.bak '2d'"),
    Case("a.jsonl", GOOD + '{"n": ' + "9" * 5000 + "}\n", ("line 2", "number too long"), "sed -i.bak '2d'"),
    Case("a.jsonl", GOOD.encode() + b'{"text": "\x00"}\n', ("line 2", "NUL byte"), "tr -d"),
    Case("a.jsonl", GOOD.encode() + b'{"text": "caf\xe9"}\n', ("line 2", "UTF-8", "byte 14"), "iconv -f WINDOWS-1252"),
    Case("a.jsonl", GOOD.encode("utf-16"), ("line 1", "UTF-16"), "iconv -f UTF-16"),
    # lists of JSON
    Case("a.json", '{"text": "' + SECRET + '"}', ("line 1", "no list"), "mv "),
    Case("a.json", '{"data": [{"text": "' + SECRET + '"}]}', ("no list",), "jq -c"),
    Case("a.json", "[\n" + GOOD + ",\n" + GOOD + "oops]", ("line 5", "record 2"), "json.tool"),
    Case("a.json", f"[{GOOD}", ("valid JSON", "record 1"), "json.tool"),
    Case("a.json", f"[{GOOD},]", ("line 2", "record 2"), "json.tool"),
    Case("a.json", f"[{GOOD}, 3]", ("record 2", "a number, expected an object"), '[{"text": "..."}'),
    Case("a.json", f"[{GOOD}]\n{GOOD}", ("line 2", "after the end"), "json.tool"),
    Case("a.json", "[]", ("holds no records",), '{"text": "..."}'),
    Case("a.json", "  ", ("holds no records",), '{"text": "..."}'),
    # CSV
    Case("a.csv", f"id,text\n1,{SECRET}\n2,{SECRET},x\n", ("line 3", "3 columns, expected 2 (id, text)"), '""yes""'),
    Case("a.csv", f'id,text\n1,"a\nb"\n2\n3,{SECRET}', ("line 4", "1 columns, expected 2"), '""yes""'),
    Case("a.csv", f'text\n"{SECRET}\nx\n', ("line 2", "not closed", "line 3"), '""yes""'),
    Case("a.csv", f'text\n"{SECRET}" x\n', ("line 2", "closing quote"), '""yes""'),
    Case("a.csv", f"text,text\n{SECRET},x\n", ("line 1", "column 'text' twice"), "name of its own"),
    Case("a.csv", "text\n", ("holds no records",), "header line"),
    Case("a.csv", "", ("empty file",), "header line"),
    Case("a.tsv", "", ("empty file",), "header line"),
    Case("a.parquet", "", ("empty file",), "to_parquet"),
    Case("a.csv", b"text\n\xff\n", ("line 2", "UTF-8"), "iconv"),
    Case("a.csv", f"text\n{SECRET}\n  \n", ("line 3", "field 'text'", "is empty"), "remove line 3"),
    # Parquet
    Case("a.parquet", bad_parquet, ("no readable Parquet",), "to_parquet"),
    Case("a.parquet", number_parquet, ("row 1", "field 'text'", "a number, expected a text"), "--column text="),
    Case("a.parquet", double_parquet, ("column 'text' twice",), "rename"),
    # texts
    Case("a.jsonl", line({"text": ""}), ("line 2", "field 'text'", "is empty"), "sed -i.bak '2d'"),
    Case("a.jsonl", line({"text": " \t\n\u3000"}), ("line 2", "field 'text'", "is empty"), "sed -i.bak '2d'"),
    Case("a.jsonl", line({"text": None}), ("line 2", "field 'text'", "is null"), "sed -i.bak '2d'"),
    Case("a.jsonl", line({"text": float("nan")}), ("line 2", "field 'text'", "is null"), "sed -i.bak '2d'"),
    Case("a.jsonl", line({"body": SECRET}), ("line 2", "field 'text'", "is missing; there are body"), "sed"),
    Case("a.jsonl", line({"text": 12}), ("line 2", "field 'text'", "a number, expected a text"), "--column text="),
    Case("a.jsonl", line({"text": [SECRET]}), ("line 2", "field 'text'", "a list, expected a text"), "--column text="),
    Case("a.jsonl", line({"text": SECRET + "\0"}), ("line 2", "field 'text'", "NUL character"), "sed"),
    Case("a.jsonl", line({"text": SECRET + "\ud800"}), ("line 2", "field 'text'", "surrogate"), "sed"),
    Case("a.jsonl", '{"instruction": "", "output": "x"}\n', ("line 1", "field 'instruction'", "is empty"), "sed"),
    # conversations
    Case("a.jsonl", chat(), ("line 2", "field 'messages'", "no assistant turn"), "sed -i.bak '2d'"),
    Case("a.jsonl", chat(USER), ("line 2", "field 'messages'", "no assistant turn"), "sed -i.bak '2d'"),
    Case("a.jsonl", chat(USER, {"role": SECRET, "content": "x"}), ("messages[1].role", "system, user, assistant"), "rename"),
    Case("a.jsonl", chat(USER, {"from": SECRET, "value": "x"}), ("messages[1].from", "human, gpt"), "rename"),
    Case("a.jsonl", chat(USER, {"content": SECRET}), ("messages[1].role", "is none of"), "rename"),
    Case("a.jsonl", chat(USER, {"role": "assistant"}), ("messages[1].content", "holds null"), '"content": "..."'),
    Case("a.jsonl", chat(USER, {"role": "tool", "content": SECRET}), ("messages[1].role", "calls a tool"), "sed"),
    Case("a.jsonl", chat(USER, {**ASSISTANT, "tool_calls": [SECRET]}), ("messages[1].tool_calls", "calls a tool"), "sed"),
    Case("a.jsonl", chat(USER, {"role": "assistant", "content": [{"type": "image_url"}]}), ("messages[1].content", "no text"), "sed"),
    Case("a.jsonl", chat(SECRET), ("line 2", "messages[0]", "a text, expected an object"), '"role": "user"'),
    Case("a.jsonl", '{"messages": "hello"}\n', ("line 1", "field 'messages'", "expected a list"), "--column text=messages"),
    Case("a.jsonl", '{"messages": 3}\n', ("line 1", "field 'messages'", "expected a list"), '"role": "user"'),
    # columns
    Case("a.jsonl", '{"instruction": "q", "src": "s"}\n', ("line 1 has columns instruction, src".replace(" has", ": has"),), "--column text="),
    Case("a.jsonl", GOOD, ("line 1", "format alpaca also needs instruction, output"), "--column instruction=COLUMN --column output=COLUMN", options=(("format", "alpaca"),)),
    Case("a.jsonl", GOOD, ("format 'alpacca'",), "did you mean 'alpaca'", UnknownNameError, (("format", "alpacca"),)),
    Case("a.jsonl", GOOD, ("a.jsonl line 1", "'txt'"), "did you mean 'text'", UnknownNameError, (("column", {"text": "txt"}),)),
    Case("a.jsonl", GOOD, ("slice_by in", "a.jsonl", "'idd'"), "did you mean 'id'", UnknownNameError, (("slice_by", ["idd"]),)),
    Case("a.jsonl", GOOD, ("cluster_by in", "a.jsonl", "'user'"), "known: id, text", UnknownNameError, (("cluster_by", "user"),)),
    Case("a.jsonl", GOOD, ("line 1", "field 'key'", "no id"), "--id-column none", options=(("id_column", "key"),)),
    Case("a.jsonl", line({"text": "x", "id": "ok"}), ("line 2", "field 'id'", "the id ok, which line 1"), "--id-column none"),
    Case("a.jsonl", line({"text": "x", "id": [SECRET]}), ("line 2", "field 'id'", "a list"), "there are text, id"),
    Case("a.jsonl", GOOD, ("limit=0",), "leave it out", ConfigError, (("limit", 0),)),
]  # fmt: skip


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """A good file for the other side."""
    rows = {"text": "other", "prompt": "p", "completion": "c", "instruction": "i", "output": "o"}
    rows |= {"messages": [USER, ASSISTANT]}
    (tmp_path / "train.jsonl").write_text(json.dumps(rows) + "\n")
    return tmp_path / "train.jsonl"


def make(folder: Path, case: Case) -> Path:
    path = folder / case.name
    if callable(case.content):
        case.content(path)
    elif isinstance(case.content, str):
        path.write_text(case.content, "utf-8", "surrogatepass")
    elif case.content is not None:
        path.write_bytes(case.content)
    return path


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name[:20]}-{case.says[-1][:30]}")
def test_catalogue(tmp_path: Path, held: Path, case: Case) -> None:
    path = make(tmp_path, case)
    with pytest.raises(case.kind) as caught:
        Records.from_files(path, held, **dict(case.options))
    error = caught.value
    assert type(error) is case.kind
    if case.kind is DataError:
        shown = str(path) if len(str(path)) <= 200 else "(a name of"
        assert str(error.path).startswith(shown)
        assert str(error).startswith(shown)
    for part in case.says:
        assert part in error.problem
    assert case.fix in (error.fix or "")
    assert SECRET not in str(error)
    assert "\n" not in error.problem


LABELS = [
    ([{"text": SECRET, "y": 1}, {"text": "b", "y": 2}], ("line 2", "field 'y'", "is no label"), "write 1"),
    ([{"text": SECRET, "y": SECRET}], ("line 1", "field 'y'", "is no label"), "--label-column"),
    ([{"text": SECRET, "y": 1}, {"text": "b"}], ("line 2", "field 'y'", "is missing"), "--label-column"),
    ([{"text": SECRET, "y": 1}, {"text": "b", "y": True}], ("field 'y'", "has no non-members"), "--label-column"),
    ([{"text": SECRET, "y": "no"}], ("field 'y'", "has no members"), "--label-column"),
    ([{"text": SECRET, "Y": 1}], ("label_column in", "'y'"), "known: Y, text"),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "says", "fix"), LABELS)
def test_labels(tmp_path: Path, rows: list[Any], says: tuple[str, ...], fix: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UsageError) as caught:
        Records.from_file(path, label_column="y")
    for part in ("a.jsonl", *says):
        assert part in caught.value.problem
    assert fix in (caught.value.fix or "")
    assert SECRET not in str(caught.value)


def test_one_file_on_both_sides(tmp_path: Path, held: Path) -> None:
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(held.read_bytes())
    link = tmp_path / "link.jsonl"
    link.symlink_to(held)
    for other in (held, copy, link):
        with pytest.raises(DataError, match="on both sides") as caught:
            Records.from_files(held, other)
        assert "--nonmembers" in (caught.value.fix or "")


def test_files_without_the_right_to_read(
    held: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, *args: Any, **options: Any) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    (tmp_path / "b.jsonl").write_text(GOOD)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match=r"train\.jsonl: cannot be read: Permission denied"):
        Records.from_files(held, tmp_path / "b.jsonl")


def test_no_file_but_a_pipe(tmp_path: Path, held: Path) -> None:
    with pytest.raises(DataError, match="no regular file"):
        Records.from_files("/dev/null", held)


def test_the_other_side_needs_the_same_form(tmp_path: Path, held: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"body": SECRET}) + "\n")
    with pytest.raises(DataError, match=r"a\.jsonl line 1.*messages") as caught:
        Records.from_files(held, path)
    assert caught.value.line == 1


@pytest.mark.parametrize(
    "name",
    ["hf://datasets/acme/hr", "hf://datasets/#train", "hf://datasets/a/b/c/d#train", "hf://datasets/a//b#x"],
)  # fmt: skip
def test_names_that_are_no_data_set(name: str, held: Path) -> None:
    with pytest.raises(ConfigError, match="#SPLIT") as caught:
        Records.from_files(name, held)
    assert "hf://datasets/" in (caught.value.fix or "")
