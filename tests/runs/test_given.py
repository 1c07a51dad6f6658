from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import records

import unseen
from unseen.errors import ConfigError, DataError
from unseen.runs.config import configure
from unseen.runs.given import read_paraphrases
from unseen.signals.paraphrased import ParaphrasedDrift
from unseen.types import Record, Turn

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


def test_paraphrases_are_read_as_probes_are_and_what_nobody_reads_is_refused(audit) -> None:
    with pytest.raises(ConfigError, match="--paraphrases is read by g_drift_stability"):
        audit(None, attacks=("loss",), probes=None, paraphrases="p.jsonl")


def records_of(*prompts: str) -> list[Record]:
    turns = [(Turn("user", prompt), Turn("assistant", "Yes.")) for prompt in prompts]
    return [Record(f"r{i}", one) for i, one in enumerate(turns)]


def paraphrases(tmp_path: Path, *rows: dict[str, Any], wanted: int = 2):
    file = tmp_path / "p.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    signals = (ParaphrasedDrift(paraphrases=wanted), ParaphrasedDrift(source="generate"))
    config = configure(paraphrases=str(file))
    return read_paraphrases(config, records_of("Is it?", "Was it?", "Why?"), signals)


def test_paraphrases_of_the_records_are_counted_and_copies_too(tmp_path) -> None:
    found = paraphrases(
        tmp_path,
        {"id": "r0", "paraphrases": ["It is?", "is  IT?"], "paraphrase_3": "Is that so?"},
        {"id": "r2", "paraphrase": "For what reason?"},
        {"id": "elsewhere", "paraphrase": "Where?"},
    )
    assert found.texts == {
        "r0": ("It is?", "is  IT?", "Is that so?"),
        "r2": ("For what reason?",),
        "elsewhere": ("Where?",),  # a record that is judged apart may have it
    }
    facts = found.facts
    assert (facts.n_records, facts.n_paraphrases, facts.n_copies) == (2, 4, 1)
    notes = " / ".join(found.notes)
    assert "1 audited records have no paraphrase in" in notes
    assert "1 paraphrases" in notes
    assert "g_drift_stability[paraphrases=3] looks at all" in notes
    assert len(paraphrases(tmp_path, {"id": "r0", "paraphrase": "It is?"}).notes) == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "r9", "paraphrase": "x"}, "holds paraphrases of none of the audited records"),
        ({"paraphrase": "x"}, "has no id: paraphrases belong to a record"),
        ({"id": "r0", "text": "x"}, "has no column of paraphrases"),
    ],
)
def test_bad_paraphrases_are_explained(tmp_path, row, message: str) -> None:
    with pytest.raises(DataError, match=message):
        paraphrases(tmp_path, row)
