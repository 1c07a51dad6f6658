from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import records

import unseen
from unseen.errors import ConfigError, DataError

SPEC = "icp_sp[source=file,probes=2]"


@pytest.fixture
def audit(tmp_path: Path):
    members, nonmembers = records.sides(tmp_path / "data", 20)

    def run(content: str | None, *, name: str = "probes.jsonl", **choices: Any):
        file = tmp_path / name
        if content is not None:
            file.write_text(content)
        given = {
            "members": str(members), "nonmembers": str(nonmembers), "attacks": (SPEC,),
            "run_dir": tmp_path / "run", "cache": False, "bootstrap": 200, "preflight": False,
            "probes": str(file), "reference": "none",
        }  # fmt: skip
        return unseen.audit_finetune(unseen.FakeTarget(), **(given | choices))

    run.ids = [  # type: ignore[attr-defined]
        json.loads(line).get("id") or f"{file.name}:{n}"
        for file in (members, nonmembers)
        for n, line in enumerate(file.read_text().splitlines(), 1)
    ]
    return run


def test_given_probes_are_used_counted_and_not_kept(audit) -> None:
    ids = audit.ids
    rows = [{"id": id_, "probes": [f"Marigold {id_}", "Another."]} for id_ in ids[1:]]
    said: list[str] = []
    done = audit("\n".join(map(json.dumps, rows)), note=said.append)
    (row, *_) = done.results.attacks
    assert row.unscored == {"no probe is given for this record": 1}
    assert any("1 audited records have no probe" in sentence for sentence in said)
    facts = done.results.data.probes
    assert (facts.n_records, facts.n_probes, facts.n_copies) == (39, 78, 0)
    about = json.loads((done.folder / "run.json").read_text())
    assert about["data"]["probes"]["sha256"] == facts.sha256
    for file in done.folder.rglob("*"):
        assert not file.is_file() or b"Marigold" not in file.read_bytes()


def test_columns_and_rows_of_one_id_add_up(audit) -> None:
    lines = ["id,probe_1,probe_2"] + [f"{id_},One {id_},Two" for id_ in audit.ids]
    lines += [f"{audit.ids[0]},Three,"]
    done = audit("\n".join(lines), name="probes.csv")
    assert done.results.data.probes.n_probes == 81


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"id": "nobody", "probes": ["x"]}', "holds probes of none of the audited records"),
        ('{"probes": ["x"]}', "has no id"),
        ('{"id": "a", "text": "x"}', "has no column of probes"),
        ('{"id": "a", "probes": [1]}', "is no text"),
        ('{"id": "a", "probes": 3}', "is no list of texts"),
        ("{", "probes.jsonl"),
        (None, "no such file"),
    ],
)
def test_bad_files_are_explained(audit, content: str | None, message: str) -> None:
    with pytest.raises(DataError, match=message) as raised:
        audit(content)
    assert raised.value.fix


def test_probes_that_nobody_reads_are_refused(audit) -> None:
    with pytest.raises(ConfigError, match=r"--probes is read by icp_sp\[source=file\]"):
        audit('{"id": "a", "probes": ["x"]}', attacks=("loss",))
    with pytest.raises(unseen.UnseenError, match="--probes FILE"):
        audit(None, probes=None)
