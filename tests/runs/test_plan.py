from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import records

import unseen
from unseen.attacks import create
from unseen.errors import ConfigError
from unseen.runs.config import FinetuneAudit
from unseen.runs.plan import _control, check_inputs
from unseen.signals.base import REFERENCE

FILES = {"members": "a.jsonl", "nonmembers": "b.jsonl"}
FAKE = {"model": "fake/a.jsonl", **FILES}
RECORDS = unseen.Records.from_texts(["a text"], ["another text"])


def fault(
    choices: dict[str, Any], target: Any = None, records: unseen.Records | None = None
) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        check_inputs(FinetuneAudit(**choices), target, records)
    return caught.value


@pytest.mark.parametrize(
    ("choices", "flags"),
    [
        ({**FAKE, "adapter": "x"}, "--adapter"),
        ({**FAKE, "tokenizer": "x", "reference": "org/name"}, "--tokenizer"),
        ({**FAKE, "dtype": "float16", "device": "cuda"}, "--dtype --device"),
        ({**FAKE, "revision": "main"}, "--revision"),
        ({**FAKE, "label_column": "member"}, "--label-column"),
    ],
)
def test_what_nothing_reads_is_refused(choices: dict[str, Any], flags: str) -> None:
    error = fault(choices)
    assert error.fix == f"leave out {flags}"
    for flag in flags.split():
        assert flag in error.problem


def test_a_reference_by_name_is_loaded_as_the_options_say() -> None:
    check_inputs(FinetuneAudit(**FAKE, reference="org/name", dtype="float16"), None, None)


def test_a_revision_is_of_a_hub_name(tmp_path: Path) -> None:
    assert "local model" in fault({**FILES, "model": str(tmp_path), "revision": "main"}).problem
    check_inputs(FinetuneAudit(**FILES, model="org/name", revision="main"), None, None)
    (tmp_path / "adapter_config.json").write_text("{}")  # then it is of the base
    check_inputs(FinetuneAudit(**FILES, model=str(tmp_path), revision="main"), None, None)


def test_objects_and_names_exclude_each_other() -> None:
    target = unseen.FakeTarget()
    assert "given twice" in fault({"model": "x"}, target, RECORDS).problem
    assert "given twice" in fault(FILES, target, RECORDS).problem
    assert fault({"dtype": "float16"}, target, RECORDS).fix == "leave out --dtype"
    assert fault({"slice_by": "x"}, target, RECORDS).fix == "leave out --slice-by"
    check_inputs(FinetuneAudit(), target, RECORDS)


def test_a_reference_that_is_its_own_surrogate_is_no_control_of_petal() -> None:
    attacks = [create("loss"), create("petal"), create("icp_sp[likelihood=petal]")]
    models: Any = {REFERENCE: SimpleNamespace(target=None)}
    able, note = _control(FinetuneAudit(control="all"), attacks, models)
    assert able == (attacks[0], attacks[2])
    assert "petal is not repeated on the reference: this is its own surrogate" in str(note)
    able, note = _control(FinetuneAudit(control="all", surrogate="x"), attacks, models)
    assert (able, note) == (tuple(attacks), None)


def test_attacks_that_need_more_known_records_than_can_be_set_aside_are_left_out(tmp_path) -> None:
    members, nonmembers = records.sides(tmp_path, 30)
    said: list[str] = []
    result = unseen.audit_finetune(
        model=f"fake/{members}", members=str(members), nonmembers=str(nonmembers),
        reference="fake/", attacks=("loss", "recall", "con_recall", "rmia[against=reference]"),
        run_dir=tmp_path / "run", bootstrap=200, cache=False, preflight=False, note=said.append,
    )  # fmt: skip
    rows = {row.name: row for row in result.results.attacks}
    assert not {"recall", "con_recall"} & rows.keys()
    why = "it needs 7 non-members set aside, which takes 35 non-members"
    assert why in result.results.skipped["recall"]
    assert "members set aside" in result.results.skipped["con_recall"]
    assert any(sentence.startswith("recall is not run: it needs 7") for sentence in said)
    assert not sum(rows["rmia[against=reference]"].unscored.values()), "a population is set aside"
    assert result.results.data.set_aside == (0, 6)
