"""Text that a model writes by itself, for a reference that is trained on it (SPV-MIA).

Who attacks with it needs no records that the target was trained on, and none of the same source but for
how some begin: the target says itself what they are like (Fu et al. 2024).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unseen.data.formats import not_carried
from unseen.data.records import read_source
from unseen.data.templates import RecordEncoder
from unseen.errors import ConfigError, DataError, UnscorableError, flag, need
from unseen.runs.folder import writing
from unseen.runs.models import layout_of
from unseen.runs.training.trained import runs_named
from unseen.scoring.generation import Generation
from unseen.scoring.store import Store
from unseen.targets.files import default_cache
from unseen.types import Prompt, Record, Sampling, Turn

if TYPE_CHECKING:
    from unseen.runs.collect import Progress
    from unseen.runs.training.config import TrainRun

_REDRAWS = 4
"""How often a text that no record can hold is drawn again."""

_FORM = ("format", "column", "id_column", "cluster_by", "slice_by")
"""What is said of `--data`, and not of what is written."""


def self_prompted(
    config: TrainRun,
    usable: Callable[[Sequence[Record]], Sequence[bool]],
    *,
    progress: Progress | None = None,
    note: Callable[[str], None],
) -> TrainRun:
    """The training of a reference on what another model writes after the beginnings of `--data`.

    A conversation begins with everything before its last response, a document with its first tokens.
    The texts are drawn at temperature 1 from all tokens, each the same in any company. They may hold
    what the model has learned by heart, so they are written into the cache, which only its user can
    read, and never into the run folder.

    Args:
        config: names the model, the file of beginnings, and how many texts.
        usable: says of records whether they may be begun with.
        progress: told how far it is.
        note: told what the user should know.

    Returns:
        The same choices, with the file of texts as all that is learned.

    Raises:
        ConfigError: where choices do not go together.
        DataError: where no record has a beginning.
    """
    _check(config)
    need("torch", "train")
    from unseen.targets.huggingface import HFTarget

    name = config.self_prompt_of or ""
    runs = runs_named(name)
    target = HFTarget(
        str(runs[0].model) if runs else name, device=config.device, cache_dir=config.cache_dir,
        attn_implementation=config.attn_implementation, trust_remote_code=config.trust_remote_code,
    )  # fmt: skip
    encoder = RecordEncoder(target.tokenizer, layout_of(config), limit=target.max_length)
    found = read_source(
        config.data or "",
        format=config.format,
        column=config.columns,
        id_column=config.id_column,
    )
    free = [r for r, may in zip(found.records, usable(found.records), strict=True) if may]
    begun = list(_begun(free, encoder, config))
    if not begun:
        raise DataError(
            "holds no beginning that the model could go on from", path=config.data or ""
        )
    cache = config.cache_dir or default_cache()
    with Store(cache / "answers.sqlite") as store:
        generation = Generation(target, store)

        def write(asked: Sequence[tuple[int, int]]) -> list[tuple[str, bool]]:
            sampling = Sampling(1.0, seed=config.recipe.seed)
            prompts = [
                Prompt(begun[at][1], config.text_tokens, sampling, number=number)
                for at, number in asked
            ]
            generation.ensure(
                prompts,
                progress=None if progress is None else lambda a, b: progress("writing", a, b),
            )
            answers = [generation.answer(prompt) for prompt in prompts]
            return [
                (target.tokenizer.decode(ids), len(ids) >= config.text_tokens) for ids in answers
            ]

        drawn = draw_texts(config.n or len(begun), len(begun), write)
    if not drawn.texts:
        raise DataError(
            "was gone on from with texts only that cannot be learned", path=config.data or ""
        )
    rows = [_row(begun[at][0], text) for at, text in drawn.texts]
    file = _kept(rows, cache / "self-prompted")
    note(f"{len(rows)} texts that {name} has written are what the reference learns (in the cache)")
    if drawn.refused:
        note(
            f"{drawn.refused} texts that it wrote are left out, as they are empty or hold characters "
            f"that no record can (U+0000); others were drawn in their place, but for {drawn.lacking}"
        )
    if drawn.cut:
        note(
            f"{drawn.cut} of them end at --text-tokens {config.text_tokens}, and are learned as if "
            "whole"
        )
    kept = config.model_fields_set - {"n", "data", *_FORM}
    return type(config)(**{name: getattr(config, name) for name in kept}, members=str(file))


def _check(config: TrainRun) -> None:
    faults, given = [], config.model_fields_set
    if config.data is None:
        faults.append(
            "--self-prompt-of needs --data FILE: records whose beginnings are gone on from"
        )
    idle = [flag(name) for name in ("share", "held_out") if name in given]
    if idle:
        faults.append(f"{', '.join(idle)} say nothing of --self-prompt-of: how many texts is --n")
    if config.members is not None or config.nonmembers is not None:
        faults.append(
            "--self-prompt-of writes what is learned: --members and --nonmembers say nothing"
        )
    if faults:
        raise ConfigError(
            "; ".join(faults),
            fix="unseen train reference --self-prompt-of TARGET --model BASE --data FILE --out DIR",
        )


def _begun(
    records: Sequence[Record], encoder: RecordEncoder, config: TrainRun
) -> Iterator[tuple[tuple[Turn, ...], tuple[int, ...]]]:
    """What stands before an answer, and the token ids that ask for it; each beginning once."""
    seen: set[tuple[int, ...]] = set()
    for record in records:
        turns, begin = record.turns[:-1], ""
        if record.turns[0].role == "text":
            ids = encoder.tokenizer.encode(record.text)[: config.prompt_tokens]
            begin = encoder.tokenizer.decode(ids)
            turns = (Turn("text", begin),)
        elif not record.turns[-1].is_response:
            turns = record.turns
        try:
            prompt = encoder.prompt(() if begin else turns, begin)
        except UnscorableError:
            continue
        if prompt not in seen:
            seen.add(prompt)
            yield turns, prompt


@dataclass(frozen=True)
class Drawn:
    """What a model has written.

    Attributes:
        texts: the place of a beginning, and what was written after it.
        cut: how many of them are as long as a text may become.
        refused: how many were thrown away.
        lacking: how many of those wanted there are not.
    """

    texts: tuple[tuple[int, str], ...]
    cut: int
    refused: int
    lacking: int


def draw_texts(
    n: int,
    n_begun: int,
    write: Callable[[Sequence[tuple[int, int]]], Sequence[tuple[str, bool]]],
) -> Drawn:
    """Draws n texts that a file of records can hold; one that it cannot is drawn again, a few times.

    More texts than beginnings are further draws after the same ones.

    Args:
        n: how many.
        n_begun: beginnings.
        write: (beginning, number of the draw) -> its text, and whether it is as long as it may be.
    """
    fresh = [-(-n // n_begun)] * n_begun  # the next number of each beginning that nobody has drawn
    wanted = {i: (i % n_begun, i // n_begun) for i in range(n)}
    found: dict[int, tuple[int, str, bool]] = {}
    refused = 0
    for _ in range(1 + _REDRAWS):
        places = list(wanted)
        said = write([wanted[i] for i in places]) if places else ()
        for i, (text, cut) in zip(places, said, strict=True):
            at, _number = wanted.pop(i)
            if text.strip() and not_carried(text) is None:
                found[i] = (at, text, cut)
                continue
            refused += 1
            wanted[i] = (at, fresh[at])
            fresh[at] += 1
    texts = [found[i] for i in sorted(found)]
    return Drawn(
        tuple((at, text) for at, text, _ in texts),
        cut=sum(cut for _, _, cut in texts),
        refused=refused,
        lacking=n - len(texts),
    )


def _row(turns: Sequence[Turn], text: str) -> dict[str, object]:
    if turns[0].role == "text":
        return {"text": turns[0].content + text}
    said = [*turns, Turn("assistant", text)]
    return {"messages": [{"role": turn.role, "content": turn.content} for turn in said]}


def _kept(rows: Sequence[dict[str, object]], folder: Path) -> Path:
    """A file of records in the private cache; equal ones are one file."""
    lines = [
        json.dumps(row | {"id": f"written-{i}"}, ensure_ascii=False) for i, row in enumerate(rows)
    ]
    content = ("\n".join(lines) + "\n").encode()
    file = folder / f"{hashlib.sha256(content).hexdigest()[:16]}.jsonl"
    with writing(file):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = file.with_suffix(f".{os.getpid()}.part")
        part.touch(mode=0o600)
        part.write_bytes(content)
        part.replace(file)
    return file


def who_taught(reference: str) -> str | None:
    """Whose text a reference was trained on, where it was trained on another model's own."""
    for run in runs_named(reference):
        if run.config.self_prompt_of is not None:
            return f"yes: on {run.n_trained} texts that {run.config.self_prompt_of} has written"
    return None
