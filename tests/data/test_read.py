"""Sources become rows, rows become records and membership."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from unseen.data.read import read_rows
from unseen.data.records import Records
from unseen.errors import ConfigError, DataError, MissingExtraError, UnknownNameError
from unseen.types import Membership, Turn


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """The rows in the file kind that the ending says."""
    if path.suffix == ".jsonl":
        path.write_text(
            "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8"
        )
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows, ensure_ascii=False, indent=1), "utf-8")
    elif path.suffix in (".csv", ".tsv"):
        text = io.StringIO()
        mark = "," if path.suffix == ".csv" else "\t"
        writer = csv.DictWriter(text, list(rows[0]), delimiter=mark)
        writer.writeheader()
        writer.writerows(rows)
        path.write_bytes(text.getvalue().encode())
    else:
        parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


def sides(folder: Path, suffix: str, members: list[Any], nonmembers: list[Any]) -> Records:
    return Records.from_files(
        write(folder / f"train{suffix}", members), write(folder / f"held{suffix}", nonmembers)
    )


# --- rows --------------------------------------------------------------------------------------


def rows_of(path: Path) -> list[tuple[int, dict[str, Any]]]:
    return [(row.number, dict(row.values)) for row in read_rows(path)]


def test_jsonl_takes_bom_crlf_blank_lines_and_ragged_keys(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "a"}\r\n\r\n  \n{"other": 1}\n{"text": "no end"}')
    assert rows_of(path) == [(1, {"text": "a"}), (4, {"other": 1}), (5, {"text": "no end"})]


def test_jsonl_lines_end_at_line_feeds_only(tmp_path: Path) -> None:
    text = "one\u2028two\u2029three\x85four\x0cfive"
    path = write(tmp_path / "a.jsonl", [{"text": text}, {"text": "b"}])
    assert [values["text"] for _, values in rows_of(path)] == [text, "b"]


def test_json_list_on_one_line_or_many(tmp_path: Path) -> None:
    many, one = tmp_path / "a.json", tmp_path / "b.json"
    many.write_text('\n [\n{"text":\n "a"}\n,{"text": "]"}]\n\n')
    one.write_text('[{"text":"a"},{"text":"]"}]')
    assert rows_of(many) == rows_of(one) == [(1, {"text": "a"}), (2, {"text": "]"})]


def test_csv_rows_are_named_by_their_first_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbfid,text\r\n1,"two\r\nlines, ""quoted"""\r\n\r\n2,b\r\n')
    assert rows_of(path) == [
        (2, {"id": "1", "text": 'two\r\nlines, "quoted"'}),
        (5, {"id": "2", "text": "b"}),
    ]


@pytest.mark.parametrize(("suffix", "mark"), [(".tsv", "\t"), (".csv", "\t"), (".csv", ";")])
def test_csv_with_other_separators(tmp_path: Path, suffix: str, mark: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_text(f"id{mark}text\n1{mark}a, b\n")
    assert rows_of(path) == [(2, {"id": "1", "text": "a, b"})]


def test_csv_cells_may_be_longer_than_the_standard_limit(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    path = write(tmp_path / "a.csv", [{"text": "word " * 100_000}])
    assert len(rows_of(path)[0][1]["text"]) == 500_000
    assert csv.field_size_limit() == before


def test_parquet_with_times_nulls_and_nested_lists(tmp_path: Path) -> None:
    table = pa.table(
        {
            "text": ["a", None],
            "at": pa.array([1, None], pa.timestamp("ns")),
            "messages": [[{"role": "user", "content": "x"}], None],
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    (first, a), (second, b) = rows_of(tmp_path / "a.parquet")
    assert (first, second) == (1, 2)
    assert a == {
        "text": "a",
        "at": "1970-01-01 00:00:00.000000001",
        "messages": [{"role": "user", "content": "x"}],
    }
    assert b == {"text": None, "at": None, "messages": None}


def test_a_line_of_a_hundred_thousand_tokens(tmp_path: Path) -> None:
    text = " ".join(f"token{i}" for i in range(100_000))
    for suffix in (".jsonl", ".json", ".csv", ".parquet"):
        records = sides(tmp_path, suffix, [{"text": text}], [{"text": "short"}])
        assert records.members[0].text == text


# --- data sets ---------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """One data set in the three ways that the package `datasets` leaves in a folder."""
    bars = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    data = datasets.Dataset.from_list(
        [
            {
                "messages": [
                    {"role": "user", "content": "q"},
                    {"role": "assistant", "content": f"a{i}"},
                ]
            }
            for i in range(3)
        ]
    )
    data.save_to_disk(tmp_path / "one")
    datasets.DatasetDict(train=data, test=data.select([0])).save_to_disk(tmp_path / "dict")
    (tmp_path / "files" / "data").mkdir(parents=True)
    data.to_parquet(tmp_path / "files" / "data" / "train-00000-of-00001.parquet")
    if bars:
        datasets.enable_progress_bars()
    return tmp_path


@pytest.mark.parametrize("place", ["one", "dict#train", "files#train"])
def test_folders_written_by_datasets(saved: Path, place: str) -> None:
    rows = list(read_rows(f"{saved}/{place}"))
    assert [row.number for row in rows] == [1, 2, 3]
    assert rows[2].values["messages"][1] == {"role": "assistant", "content": "a2"}
    records = Records.from_files(
        f"{saved}/{place}", write(saved / "held.jsonl", [{"messages": rows[0].values["messages"]}])
    )
    assert records.ids[0] == f"{place}:1"
    assert records.format == "messages"


@pytest.mark.parametrize("place", ["dict", "files"])
def test_unknown_splits_are_named(saved: Path, place: str) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'train'"):
        list(read_rows(f"{saved}/{place}#trian"))
    with pytest.raises(DataError, match=f"{place}#train"):
        list(read_rows(f"{saved}/{place}"))


def test_a_folder_cannot_be_both_sides(saved: Path) -> None:
    with pytest.raises(DataError, match="on both sides"):
        Records.from_files(f"{saved}/one", f"{saved}/dict#train")


def test_a_hub_name_without_network_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match="hub cannot be reached") as caught:
        Records.from_files("hf://datasets/acme/no-such-data#train", "hf://datasets/acme/b#test")
    assert "hf download acme/no-such-data --repo-type dataset" in str(caught.value)


def test_hub_names_are_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def load(*args: object, **options: object) -> datasets.Dataset:
        calls.append((args, options))
        return datasets.Dataset.from_dict({"text": [str(len(calls))]})

    monkeypatch.setattr("datasets.load_dataset", load)
    names = ["acme/hr@abc123/legal#test", "acme/hr#train[:10%]"]
    records = Records.from_files(*(f"hf://datasets/{name}" for name in names))
    assert calls == [
        (("acme/hr", "legal"), {"split": "test", "revision": "abc123"}),
        (("acme/hr", None), {"split": "train[:10%]", "revision": None}),
    ]
    assert records.ids == ("legal#test:1", "hr#train[:10%]:1")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (datasets.exceptions.DatasetNotFoundError("secret"), "no such data set"),
        (RuntimeError("secret"), "cannot be loaded"),
    ],
)
def test_other_hub_errors(monkeypatch: pytest.MonkeyPatch, error: Exception, says: str) -> None:
    def fail(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("datasets.load_dataset", fail)
    monkeypatch.setattr("datasets.get_dataset_config_names", fail)
    with pytest.raises(DataError, match=says) as caught:
        list(read_rows("hf://datasets/acme/hr#train"))
    assert "secret" not in str(caught.value)


def test_unknown_hub_splits_and_configurations(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> None:
        raise ValueError("no")

    monkeypatch.setattr("datasets.load_dataset", fail)
    monkeypatch.setattr("datasets.get_dataset_config_names", lambda name: ["legal", "sales"])
    monkeypatch.setattr("datasets.get_dataset_split_names", lambda name, config: ["train"])
    with pytest.raises(UnknownNameError, match="did you mean 'legal'"):
        list(read_rows("hf://datasets/acme/hr/leagl#train"))
    with pytest.raises(UnknownNameError, match="did you mean 'train'"):
        list(read_rows("hf://datasets/acme/hr/legal#trian"))
    with pytest.raises(DataError, match="hf://datasets/acme/hr/legal#train"):
        list(read_rows("hf://datasets/acme/hr#train"))


def test_without_the_package_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(module: str, extra: str) -> None:
        raise MissingExtraError(module, extra)

    monkeypatch.setattr("unseen.data.read.need", absent)
    with pytest.raises(MissingExtraError, match=r"unseen\[hf\]"):
        list(read_rows("hf://datasets/acme/hr#train"))


# --- records -----------------------------------------------------------------------------------

TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1
).filter(str.strip)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    members=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4),
    nonmembers=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4),
)
def test_every_kind_of_file_gives_the_same_records(
    tmp_path: Path, members: list[tuple[str, str]], nonmembers: list[tuple[str, str]]
) -> None:
    def rows(pairs: list[tuple[str, str]], side: str) -> list[dict[str, str]]:
        return [
            {"id": f"{side}{i}", "prompt": prompt, "completion": completion, "group": str(i % 2)}
            for i, (prompt, completion) in enumerate(pairs)
        ]

    given_rows = rows(members, "m"), rows(nonmembers, "n")
    expected = Records.from_texts(*given_rows, cluster_by="group", slice_by=["group"])
    assert [r.turns for r in expected.members] == [
        (Turn("user", prompt), Turn("assistant", completion)) for prompt, completion in members
    ]
    for suffix in (".jsonl", ".json", ".csv", ".tsv", ".parquet"):
        files = [
            write(tmp_path / f"{i}{suffix}", side_rows) for i, side_rows in enumerate(given_rows)
        ]
        records = Records.from_files(*files, cluster_by="group", slice_by=["group"])
        assert records.records == expected.records, suffix
        assert records.membership.member.tolist() == expected.membership.member.tolist()


@pytest.mark.parametrize(
    "text",
    [
        "Ответ пришёл поздно вечером",
        "שלום עולם \u200f(ימין)",
        "مرحبا بالعالم",
        "東京は静かだった。",
        "नमस्ते दुनिया",
        "e\u0301 stays as it is",
        "👩\u200d👩\u200d👧",
        "<script>alert(1)</script>",
        " leading and trailing ",
    ],
)
def test_text_of_any_script_is_kept_as_it_is(tmp_path: Path, text: str) -> None:
    for suffix in (".jsonl", ".json", ".csv", ".parquet"):
        records = sides(
            tmp_path, suffix, [{"id": text.strip(), "text": text}], [{"id": "b", "text": "b"}]
        )
        assert records.members[0].text == text
        assert records.ids == (text.strip(), "b")


def test_membership_is_apart_from_records(tmp_path: Path) -> None:
    records = sides(tmp_path, ".jsonl", [{"text": "a"}, {"text": "b"}], [{"text": "c"}])
    assert (
        records.ids == records.membership.ids == ("train.jsonl:1", "train.jsonl:2", "held.jsonl:1")
    )
    assert records.membership.member.tolist() == [True, True, False]
    assert [r.text for r in records.members] == ["a", "b"]
    assert [r.text for r in records.nonmembers] == ["c"]
    assert len(records) == 3
    with pytest.raises(ValueError, match="read-only"):
        records.membership.member[0] = False


def test_sources_have_the_hash_of_the_bytes(tmp_path: Path) -> None:
    records = sides(tmp_path, ".csv", [{"text": "a"}, {"text": "b"}], [{"text": "c"}])
    source = records.sources["members"]
    assert (source.path, source.n) == (str(tmp_path / "train.csv"), 2)
    assert source.sha256 == hashlib.sha256((tmp_path / "train.csv").read_bytes()).hexdigest()


def test_ids_of_any_kind_become_strings() -> None:
    given_ids = [7, 7.5, "x", True, np.int64(8), 9.0, "x" * 10_000, "<script>"]
    members = [{"id": id_, "text": "t"} for id_ in given_ids]
    records = Records.from_texts(members, [{"id": None, "text": "u"}, {"id": "", "text": "v"}])
    assert records.ids[:8] == ("7", "7.5", "x", "true", "8", "9", "x" * 10_000, "<script>")
    assert records.ids[8:] == ("nonmembers:1", "nonmembers:2")


def test_the_same_id_on_both_sides_gets_the_file_name(tmp_path: Path) -> None:
    records = sides(
        tmp_path,
        ".jsonl",
        [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}],
        [{"id": 2, "text": "c"}],
    )
    assert records.ids == ("train.jsonl/1", "train.jsonl/2", "held.jsonl/2")
    assert records.notes == (
        "1 ids occur on both sides: every id now begins with train.jsonl/ or held.jsonl/",
    )


def test_files_of_the_same_name_are_told_apart_by_side(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    files = [write(tmp_path / side / "x.jsonl", [{"text": side}]) for side in "ab"]
    assert Records.from_files(*files).ids == ("members/x.jsonl:1", "nonmembers/x.jsonl:1")


def test_ids_by_file_and_line_on_demand(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl", [{"id": 1, "text": "a", "y": 1}, {"id": 1, "text": "b", "y": 0}]
    )
    with pytest.raises(DataError, match="has the id 1, which line 1 has already"):
        Records.from_file(path, label_column="y")
    records = Records.from_file(path, label_column="y", id_column="none")
    assert records.ids == ("a.jsonl:1", "a.jsonl:2")


def test_clusters_and_slices() -> None:
    records = Records.from_texts(
        [{"text": "a", "user": 3, "dep": "legal"}, {"text": "b", "dep": float("nan")}],
        [{"text": "c", "user": "x", "dep": True}],
        cluster_by="user",
        slice_by=["dep"],
    )
    assert [r.cluster for r in records.records] == ["3", None, "x"]
    assert [r.slices["dep"] for r in records.records] == ["legal", "(none)", "true"]
    assert records.notes == ("members: 1 records have no user and count as clusters of one",)


@pytest.mark.parametrize(
    ("yes", "no"),
    [
        (1, 0),
        ("1", "0"),
        (1.0, 0.0),
        ("1.0", "0.0"),
        (True, False),
        ("TRUE", "False"),
        ("yes", "no"),
        ("Member", "nonmember"),
        ("member ", "non-member"),
        (np.int64(1), np.bool_(False)),
    ],
)
def test_labels(tmp_path: Path, yes: object, no: object) -> None:
    def plain(value: object) -> object:
        return value.item() if isinstance(value, np.generic) else value

    rows = [{"text": t, "m": plain(v)} for t, v in [("a", no), ("b", yes), ("c", no)]]
    records = Records.from_file(write(tmp_path / "a.jsonl", rows), label_column="m")
    assert [r.text for r in records.members] == ["b"]
    assert [r.text for r in records.nonmembers] == ["a", "c"]
    assert records.sources["members"].n == 1
    assert records.sources["nonmembers"].n == 2


def test_limit_is_a_seeded_sample_of_each_side() -> None:
    texts = [f"m{i}" for i in range(50)], [f"n{i}" for i in range(7)]
    whole = Records.from_texts(*texts)
    some = Records.from_texts(*texts, limit=10, seed=1)
    assert (len(some.members), len(some.nonmembers)) == (10, 7)
    assert [i for i in whole.ids if i in some.ids] == list(some.ids)
    assert some.ids == Records.from_texts(*texts, limit=10, seed=1).ids
    assert some.ids != Records.from_texts(*texts, limit=10, seed=2).ids
    assert some.sources["members"].n == 50


def test_describe_counts_and_tells_no_text() -> None:
    records = Records.from_texts(
        [{"text": "hidden one", "user": "u1", "dep": "d"}], [{"text": "hidden two", "user": "u2", "dep": "d"}],
        cluster_by="user", slice_by=["dep"],
    )  # fmt: skip
    described = records.describe()
    assert json.loads(json.dumps(described)) == described
    assert "hidden" not in json.dumps(described)
    assert described["members"] == {
        "n": 1,
        "path": "members",
        "read": 1,
        "sha256": records.sources["members"].sha256,
    }
    assert described["clusters"] == 2
    assert described["slices"] == {"dep": 1}
    assert described["format"] == "text"


def test_keep_takes_records_and_labels_together() -> None:
    records = Records.from_texts(["a", "b"], ["c", "d"])
    kept = records.keep(np.array([False, True, False, True]))
    assert kept.ids == kept.membership.ids == ("members:2", "nonmembers:2")
    assert kept.membership.member.tolist() == [True, False]
    assert len(records.keep(np.zeros(4, dtype=bool))) == 0


def test_records_refuse_membership_of_others() -> None:
    records = Records.from_texts(["a"], ["b"])
    with pytest.raises(ValueError, match="different ids"):
        Records(records.records, Membership(("x", "y"), np.array([True, False])), {}, "text")
    double = (records.records[0], records.records[0])
    with pytest.raises(ValueError, match="same id twice"):
        Records(double, Membership(("members:1",) * 2, np.array([True, False])), {}, "text")


def test_python_callers_are_told_what_to_pass() -> None:
    with pytest.raises(ConfigError, match="to_dict"):
        Records.from_texts("a text", ["b"])
    with pytest.raises(ConfigError, match="to_dict"):
        Records.from_texts({"text": "a"}, ["b"])
    with pytest.raises(DataError, match="members item 2: is a number"):
        Records.from_texts(["a", 3], ["b"])  # type: ignore[list-item]
    with pytest.raises(DataError, match="on both sides"):
        Records.from_texts(["a"], ["a"])
    with pytest.raises(DataError, match="nonmembers: holds no records"):
        Records.from_texts(["a"], [])
    with pytest.raises(ConfigError, match="from_texts"):
        Records.from_files(["a"], ["b"])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"slice_by=\['dep'\]"):
        Records.from_texts(["a"], ["b"], slice_by="dep")
    with pytest.raises(ConfigError, match="limit=0"):
        Records.from_texts(["a"], ["b"], limit=0)


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.jsonl", [{"text": "a"}])
    write(tmp_path / "b.jsonl", [{"text": "b"}])
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Records.from_files("~/a.jsonl", "~/b.jsonl").ids == ("a.jsonl:1", "b.jsonl:1")


def test_a_name_with_a_hash_is_a_file_where_there_is_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a#1.jsonl", [{"text": "a"}])
    assert rows_of(path) == [(1, {"text": "a"})]


# --- real data ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "form"),
    [("trec", "text"), ("agnews", "text"), ("genmedgpt5k", "prompt-completion"), ("tofu_world_facts", "prompt-completion")],
)  # fmt: skip
def test_real_files_read_without_a_flag(
    real_data: Path, tmp_path: Path, name: str, form: str
) -> None:
    path = real_data / f"{name}.jsonl"
    held = write(tmp_path / "held.jsonl", [{"text": "x", "prompt": "p", "response": "y"}])
    records = Records.from_files(path, held)
    with path.open("rb") as stream:
        assert len(records.members) == sum(1 for _ in stream)
    assert records.format == form
    assert len(set(records.ids)) == len(records)


def test_wikimia_has_labels(real_data: Path) -> None:
    records = Records.from_file(real_data / "wikimia_64.jsonl", label_column="label")
    assert records.format == "text"
    assert len(records) == 276
    assert min(len(records.members), len(records.nonmembers)) > 100


def test_a_table_without_rows_is_told_to_have_some(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="holds no records") as caught:
        rows_of(tmp_path / "a.parquet")
    assert "to_parquet" in (caught.value.fix or "")
