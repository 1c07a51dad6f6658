"""A reference that has learned what the target writes by itself."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import records
import tiny
import torch

import unseen
from unseen.data.records import read_side
from unseen.errors import UsageError
from unseen.runs.training.self_prompt import draw_texts
from unseen.types import Sampling

N = 40


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    where = tmp_path_factory.mktemp("self")
    base = tiny.folder(where / "base", dtype=torch.float32)
    members, nonmembers = records.sides(where, N // 2)
    data = where / "all.jsonl"
    data.write_text(members.read_text() + nonmembers.read_text())
    target = unseen.train(
        model=str(base), data=str(data), n=10, held_out=10, epochs=1, out=where / "target"
    )
    said: list[str] = []
    choices: dict[str, Any] = {
        "self_prompt_of": str(target.folder),
        "not_in": (str(target.folder),),
        "data": str(data),
        "epochs": 1,
        "text_tokens": 12,
        "cache_dir": where / "cache",
    }
    reference = unseen.train(
        "reference", **choices, n=24, out=where / "reference", note=said.append
    )
    return SimpleNamespace(
        where=where, base=base, data=data, target=target, reference=reference, choices=choices,
        said=said,
    )  # fmt: skip


def texts_of(where: Path) -> list[Any]:
    (file,) = (where / "cache" / "self-prompted").glob("*.jsonl")
    return read_side(file)


def test_it_learns_what_the_target_writes(made: SimpleNamespace) -> None:
    about = made.reference.about
    assert about["n"] == {"trained": 24, "held_out": 0}
    assert about["config"]["self_prompt_of"] == str(made.target.folder)
    assert f"24 texts that {made.target.folder} has written" in " ".join(made.said)
    assert "end at --text-tokens 12, and are learned as if whole" in " ".join(made.said)
    written = texts_of(made.where)
    ours = {record.turns[:-1] for record in read_side(made.data)}
    assert all(record.turns[:-1] in ours for record in written)
    assert len({record.response for record in written}) > 12


def test_nobody_who_is_judged_is_begun_with(made: SimpleNamespace) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(made.target.folder / "trained.parquet").to_pylist()
    used = {row["id"] for row in table}
    theirs = {r.turns[:-1] for r in read_side(made.data) if r.id in used}
    others = {r.turns[:-1] for r in read_side(made.data) if r.id not in used}
    assert len(used) == 20
    begun = {record.turns[:-1] for record in texts_of(made.where)}
    assert begun <= others
    assert not begun & (theirs - others)


def test_its_texts_stay_in_the_private_cache(made: SimpleNamespace) -> None:
    (file,) = (made.where / "cache" / "self-prompted").glob("*")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    kept = b"".join(f.read_bytes() for f in made.reference.folder.rglob("*") if f.is_file())
    long = [r.response for r in texts_of(made.where) if len(r.response) > 12]
    assert long
    assert not any(text.encode() in kept for text in long)


def test_the_same_again_writes_and_trains_nothing(made: SimpleNamespace) -> None:
    said: list[str] = []
    unseen.train("reference", **made.choices, n=24, out=made.where / "reference", note=said.append)
    assert any("is trained already" in sentence for sentence in said)
    texts_of(made.where)  # one file


def test_an_audit_says_what_the_reference_has_learned(made: SimpleNamespace) -> None:
    said: list[str] = []
    choices: dict[str, Any] = {
        "run_of": str(made.target.folder),
        "attacks": ("spv[neighbours=2]",),
        "preflight": False,
        "bootstrap": 200,
        "fpr": (0.3,),
        "cache_dir": made.where / "cache",
        "note": said.append,
    }
    run = unseen.audit_finetune(
        reference=str(made.reference.folder), run_dir=made.where / "run", **choices
    )
    about = run.results.reference["self-prompted"]
    assert about == f"yes: on 24 texts that {made.target.folder} has written"
    assert not any("spv: the reference" in sentence for sentence in said)
    assert "self-prompted" in (made.where / "run" / "report.md").read_text()
    other = unseen.audit_finetune(reference=str(made.base), run_dir=made.where / "other", **choices)
    assert other.results.reference["self-prompted"] == "no"
    assert any("unseen train reference --self-prompt-of" in sentence for sentence in said)


def test_documents_are_gone_on_from_their_first_tokens(
    made: SimpleNamespace, tmp_path: Path
) -> None:
    texts = [f"The quick brown fox number {i} jumps over the lazy dog" for i in range(6)]
    file = tmp_path / "texts.jsonl"
    file.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    choices: dict[str, Any] = {
        "model": str(made.base), "self_prompt_of": str(made.base), "data": str(file), "epochs": 1,
        "prompt_tokens": 4, "text_tokens": 8, "cache_dir": tmp_path / "cache",
    }  # fmt: skip
    unseen.train("reference", **choices, n=3, out=tmp_path / "out")
    written = texts_of(tmp_path)
    target = unseen.HFTarget(made.base)
    tok = target.tokenizer
    begin = tok.decode(tok.encode(texts[0])[:4])
    assert len(written) == 3, "more than there are beginnings: further draws"
    assert all(record.text.startswith(begin) for record in written)
    assert len({record.text for record in written}) == 3
    (first,) = target.generate(
        [tok.encode(begin)], max_new_tokens=8, sampling=Sampling(1.0), numbers=[0]
    )
    assert written[0].text == begin + tok.decode(first)


def test_texts_that_no_record_can_hold_are_drawn_again() -> None:
    asked: list[tuple[int, int]] = []

    def write(wanted: Any) -> list[tuple[str, bool]]:
        asked.extend(wanted)
        bad = {(0, 0): "a\0b", (1, 1): " \n", (0, 2): "", (2, 0): "\ud800"}
        return [(bad.get(one, f"text {one}"), one == (0, 1)) for one in wanted]

    drawn = draw_texts(5, 3, write)
    assert drawn.texts == (
        (0, "text (0, 3)"), (1, "text (1, 0)"), (2, "text (2, 2)"), (0, "text (0, 1)"),
        (1, "text (1, 2)"),
    )  # fmt: skip
    assert (drawn.cut, drawn.refused, drawn.lacking) == (1, 4, 0)
    assert len(set(asked)) == len(asked) == 9, "no draw is asked for twice"


def test_redraws_end() -> None:
    drawn = draw_texts(2, 2, lambda wanted: [("x" if at else "\0", False) for at, _ in wanted])
    assert drawn.texts == ((1, "x"),)
    assert (drawn.refused, drawn.lacking) == (5, 1)


def test_what_a_model_writes_can_always_be_read(made: SimpleNamespace, tmp_path: Path) -> None:
    """The tiny model knows all bytes: it writes NUL now and then."""
    said: list[str] = []
    choices = made.choices | {
        "not_in": (),
        "model": str(made.base),
        "self_prompt_of": str(made.base),
    }
    choices |= {"cache_dir": tmp_path / "cache", "epochs": 1, "text_tokens": 24}
    run = unseen.train("reference", **choices, n=60, out=tmp_path / "out", note=said.append)
    assert run.about["n"]["trained"] == 60
    assert any("texts that it wrote are left out" in sentence for sentence in said), said
    assert "\0" not in "".join(record.text for record in texts_of(tmp_path))


@pytest.mark.parametrize(
    ("role", "changes", "problem"),
    [
        ("target", {}, "--self-prompt-of is read by unseen train reference only"),
        ("reference", {"data": None}, "--self-prompt-of needs --data FILE"),
        ("reference", {"members": "x.jsonl"}, "--members and --nonmembers say nothing"),
        ("reference", {"self_prompt_of": "./nowhere"}, "there is no model folder ./nowhere"),
    ],
)
def test_choices_that_do_not_go_together(
    made: SimpleNamespace, role: Any, changes: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    choices = made.choices | {"not_in": (), "model": str(made.base)} | changes
    with pytest.raises(UsageError, match=problem.replace(".", r"\.")):
        unseen.train(role, **choices, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
