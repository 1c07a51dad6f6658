"""Labelled records for prompts: invented sentences whose labels a coin has drawn."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

LABELS = ("Amber", "Birch", "Cobalt")
TEMPLATE = "Sort each note.\n\n{demos}Note: {input}\nKind:"
_SYLLABLES = ("ba", "ke", "lo", "mi", "nu", "ra", "so", "ti", "vu", "we", "xo", "zi")


def rows(n: int, seed: int = 0) -> list[dict[str, str]]:
    """Rows with id, text and label; every text occurs once."""
    rng = np.random.default_rng(seed)

    def word() -> str:
        return "".join(_SYLLABLES[i] for i in rng.integers(len(_SYLLABLES), size=3))

    return [
        {
            "id": f"p{i:03d}",
            "text": f"{' '.join(word() for _ in range(6))}.",
            "label": LABELS[int(rng.integers(len(LABELS)))],
        }
        for i in range(n)
    ]


def pool(path: Path, n: int = 60, seed: int = 0) -> Path:
    """A file of them."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(n, seed)))
    return path


def template(path: Path, text: str = TEMPLATE) -> Path:
    """A file of a template."""
    path.write_text(text)
    return path
