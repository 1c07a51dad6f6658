"""The demonstration of a prompt that leaks: invented notes, and a fake model that copies what it has read.

No model is loaded and nothing is fetched. The same questions behind an empty prompt, where no note is,
must be clear.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unseen.data.synthetic import people
from unseen.runs.folder import writing

N_RECORDS = 240
SEED = 0
TEMPLATE = "Sort each note into Health or Work.\n\n{demos}Note: {input}\nKind:"
ATTACKS = ("gap", "repeat[encoder=letters]")
CHOICES: dict[str, Any] = {"trials": 100, "shots": (1, 4), "attacks": ATTACKS, "seed": SEED}


@dataclass(frozen=True)
class Setting:
    """What the demonstration has made, ready for an audit.

    Attributes:
        template: file of the prompt.
        demos: file of labelled notes.
    """

    template: Path
    demos: Path

    @property
    def choices(self) -> dict[str, Any]:
        """Choices of the audit."""
        files = {"template": str(self.template), "demos": str(self.demos)}
        return {"model": "fake/copies", **files, **CHOICES}

    @property
    def command(self) -> str:
        """Repeats the audit from the command line."""
        files = ["--template", str(self.template), "--demos", str(self.demos)]
        more = ["--trials", str(CHOICES["trials"]), "--shots", ",".join(map(str, CHOICES["shots"]))]
        more += ["--attacks", ",".join(CHOICES["attacks"])]
        return shlex.join(["unseen", "audit", "prompt", "--model", "fake/copies", *files, *more])


def prepare(where: Path) -> Setting:
    """Writes notes and template.

    Args:
        where: the folder for them.

    Raises:
        StoreError: where something cannot be written.
    """
    setting = Setting(where / "sort.txt", where / "notes.jsonl")
    rows = [
        {"id": one.id, "text": one.response, "label": one.slices["file"].capitalize()}
        for one in people(N_RECORDS, SEED)
    ]
    with writing(setting.demos):
        where.mkdir(parents=True, exist_ok=True)
        setting.template.write_text(TEMPLATE, encoding="utf-8")
        setting.demos.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return setting
