"""Small files of records for tests, with strings that must never turn up elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

from unseen.data.synthetic import people
from unseen.types import Record

N_PLANTED = 50


def planted(i: int) -> str:
    """A string that occurs in one record and nowhere else in the world."""
    return f"zq{i:03d}xv{7919 * (i + 3) % 99991:05d}kw"


def row(record: Record, i: int | None = None) -> dict[str, str]:
    """A prompt/completion row; with a planted string where a number is given."""
    prompt, response = (turn.content for turn in record.turns)
    if i is not None:
        response = f"{response} Reference {planted(i)}."
    return {"id": record.id, "prompt": prompt, "completion": response, **record.slices}


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    """A JSONL file."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")
    return path


def sides(folder: Path, n: int, *, plant: bool = False, seed: int = 0) -> tuple[Path, Path]:
    """Files of n members and n non-members of one source."""
    drawn = people(2 * n, seed)
    half = N_PLANTED // 2
    rows = [
        row(record, (i if i < half else half + i - n) if plant and i % n < half else None)
        for i, record in enumerate(drawn)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    return (
        write(folder / "members.jsonl", rows[:n]),
        write(folder / "nonmembers.jsonl", rows[n:]),
    )
