"""One training, step by step: records, split, base, token ids, steps, model, and what was trained on.

The folder that it leaves says which records were trained on and which were held out, so that `unseen
audit finetune --run-of` needs no lists. Its files are those of `runs/folder`.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unseen import __version__
from unseen.data.templates import Layout, RecordEncoder, check_layout
from unseen.errors import ConfigError, ModelError, UsageError, flag, need
from unseen.runs.folder import LOCK, RunFolder, writing
from unseen.runs.models import layout_of
from unseen.runs.provenance import now, versions
from unseen.runs.results import SCHEMA_VERSION
from unseen.runs.training.config import NEEDED_FOR, READ_BY, RECIPE, Role, TrainRun
from unseen.runs.training.drawn import Sides, draw, not_in, partitions
from unseen.runs.training.run_of import check_base
from unseen.runs.training.self_prompt import self_prompted
from unseen.runs.training.trained import (
    LAYOUT,
    MANIFEST,
    MODEL,
    SHADOWS,
    TRAIN,
    Row,
    TrainedRun,
    digest_of_text,
    digest_of_tokens,
    encoded_or_reason,
    noted,
    runs_in,
)
from unseen.targets.files import Source, fingerprint_of, locate
from unseen.targets.quiet import quiet

if TYPE_CHECKING:
    from unseen.runs.collect import Progress
    from unseen.training.recipe import Recipe
    from unseen.types import Encoded

Note = Callable[[str], None]

_STATE = Path("checkpoint") / "state.safetensors"
_LOSSES = "losses.csv"
_LIKE = (*RECIPE, *LAYOUT, "partitions")
"""What a run takes over from the one that it is to be like."""
_OF_DATA = ("data", "format", "column", "id_column", "cluster_by", "slice_by")
_NOT_OF_A_RUN = ("out", "cache_dir", "offline", "threads", "save_every", "save_minutes", "device")
_NOT_OF_THE_PLAN = {
    *_NOT_OF_A_RUN, "data", "members", "nonmembers", "model", "not_in", "like", "count",
}  # fmt: skip


def train(
    config: TrainRun,
    role: Role = "target",
    *,
    progress: Progress | None = None,
    note: Note | None = None,
) -> TrainedRun:
    """Trains one model, or goes on with it; what is complete already is not trained again.

    Args:
        config: every choice.
        role: what the model is for.
        progress: told how far it is.
        note: told, in a sentence, what the user should know.

    Returns:
        The train run.

    Raises:
        UnseenError: with what is wrong and what to do; a run that was begun goes on from its
            checkpoint.
    """
    say = note or (lambda _: None)
    if config.offline:
        os.environ["HF_HUB_OFFLINE"] = "1"  # before anything reads it, data sets included
    others = [run for path in config.not_in for run in runs_in(Path(path))]
    like = _to_be_like(config, others)
    if like is not None:
        config = _as_another(config, like, role)
        for sentence in check_base(config, like):
            say(sentence)
    if config.self_prompt_of is not None and role == "reference" and config.out and config.model:
        config = self_prompted(
            config,
            lambda records: not_in(records, others, config.near_duplicates).tolist(),
            progress=progress,
            note=say,
        )
    _check_inputs(config, role)
    recipe = config.recipe
    sides = draw(config, others)
    for sentence in sides.notes:
        say(sentence)
    if config.partitions > len(sides.trained):
        raise ConfigError(
            f"--partitions {config.partitions} of {len(sides.trained)} records that are trained on: some "
            "parts would be empty",
            fix=f"--partitions {min(10, len(sides.trained))}",
        )
    base = locate(config.model, revision=config.revision, cache_dir=config.cache_dir)
    if base.adapter is not None:
        raise ModelError(
            f"{config.model} is an adapter, and only whole models are trained",
            fix="merge it into its base first (merge_and_unload), or train from the base",
        )
    fingerprint = fingerprint_of(base)
    identity = _identity(config, role, sides, fingerprint)
    folder = _open_folder(config, identity)
    if _is_complete(folder):
        say(f"{folder.path} is trained already: nothing is done")
        return TrainedRun(folder.path)
    with folder.locked():
        about = _begin(folder, config, role, sides, identity, fingerprint)
        say(f"train run {folder.path}")
        losses = _train(folder, config, recipe, sides, base, about, progress, say)
        _finish(folder, about, losses)
    return TrainedRun(folder.path)


def train_shadows(
    config: TrainRun, *, progress: Progress | None = None, note: Note | None = None
) -> list[TrainedRun]:
    """Trains `config.count` models, each on a random part of the same records, one after another.

    Those that are complete already are not trained again, so that more can be added later.

    Args:
        config: every choice of each of them; `out` gets a folder for each.
        progress: told how far it is.
        note: told, in a sentence, what the user should know.

    Raises:
        UnseenError: as `train`.
    """
    say = note or (lambda _: None)
    if config.out is None:
        _check_inputs(config, "shadow")
    like = _to_be_like(config, [run for path in config.not_in for run in runs_in(Path(path))])
    if like is not None:
        check_base(_as_another(config, like, "shadow"), like)  # before a folder is begun
    folder = RunFolder(config.out or Path(), flag="--out")
    about = _begin_shadows(folder, config)
    made: list[TrainedRun] = []
    with folder.locked():
        folder.write_json("run.json", about)
        for number in range(config.count):
            say(f"shadow {number + 1} of {config.count}")
            seed = np.random.SeedSequence([config.recipe.seed, number]).generate_state(1)[0]
            one = {"out": folder.path / f"shadow-{number:03d}", "seed": int(seed), "count": 1}
            made.append(
                train(config.model_copy(update=one), "shadow", progress=progress, note=note)
            )
        folder.write_json("run.json", about | {"status": "complete", "ended": now()})
    return made


def _begin_shadows(folder: RunFolder, config: TrainRun) -> dict[str, Any]:
    """The header of a folder of shadow models, which may be there with fewer of them."""
    chosen = config.model_dump(mode="json", exclude={"count", *_NOT_OF_A_RUN})
    file = folder.path / "run.json"
    if file.is_file():
        before = folder.read_json("run.json")
        if before.get("scenario") != SHADOWS or before.get("config") != chosen:
            raise ConfigError(
                f"--out {folder.path} holds another run (other records, base or choices)",
                fix="name another folder: --out DIR",
            )
        there = len(list(folder.path.glob("shadow-*/run.json")))
        if config.count < there:
            raise ConfigError(
                f"--out {folder.path} holds {there} shadow models already, and --count {config.count} "
                "would have fewer",
                fix=f"--count {there}, or more; an audit takes some of them by their folders: --shadow "
                f"{folder.path / 'shadow-000'}",
            )
    elif folder.path.exists() and (
        not folder.path.is_dir() or any(one.name != LOCK for one in folder.path.iterdir())
    ):
        raise ConfigError(f"--out {folder.path} is not empty and no train run", fix="--out DIR")
    return {
        "schema_version": SCHEMA_VERSION,
        "id": folder.path.name,
        "tool": f"unseen {__version__}",
        "scenario": SHADOWS,
        "status": "running",
        "created": now(),
        "count": config.count,
        "config": chosen,
    }


# --- choices -----------------------------------------------------------------------------------


def _to_be_like(config: TrainRun, others: Sequence[TrainedRun]) -> TrainedRun | None:
    """The run that a training takes its choices from, if any."""
    if config.like is not None:
        return TrainedRun(Path(config.like))
    return others[0] if others else None


def _as_another(config: TrainRun, like: TrainedRun, role: Role) -> TrainRun:
    """The choices, with those that the user did not make taken over from the run to be like."""
    given = config.model_fields_set
    chosen = {name: getattr(like.config, name) for name in _LIKE if name not in given}
    if not config.model:
        chosen |= {"model": like.place(like.base), "revision": like.config.revision}
    if config.data is None and config.members is None and like.config.data is not None:
        chosen |= {n: getattr(like.config, n) for n in _OF_DATA if n not in given or n == "data"}
        chosen["data"] = like.file("data")
    halves = role == "shadow"  # each of them on a half
    if not (halves or "n" in given or "share" in given or config.members is not None):
        chosen["n"] = like.n_trained
    return config.model_copy(update=chosen)


def _check_inputs(config: TrainRun, role: Role) -> None:
    faults: list[str] = []
    if not config.model:
        faults.append("no base model is named: --model MODEL")
    if config.out is None:
        faults.append("no folder is named: --out DIR")
    given = config.model_fields_set
    if config.data is None and config.members is None:
        faults.append(
            "no records are named: --data FILE (a random part is trained on), or --members FILE"
        )
    if config.data is not None and (config.members is not None or config.nonmembers is not None):
        faults.append("--data and --members/--nonmembers exclude each other")
    if config.nonmembers is not None and config.members is None:
        faults.append("--nonmembers needs --members, which says what is trained on")
    if config.n is not None and "share" in given:
        faults.append("--n and --share exclude each other")
    if config.members is not None:
        idle = [f"--{name}" for name in ("n", "share") if name in given]
        idle += ["--held-out"] if config.held_out is not None else []
        faults += [
            f"{flag} says nothing of --members, all of which are trained on" for flag in idle
        ]
    faults += _unread(config, role)
    if faults:
        raise ConfigError(
            "; ".join(faults), fix=f"unseen train {role} --model BASE --data FILE --out DIR"
        )


def _unread(config: TrainRun, role: Role) -> list[str]:
    """Choices that this role would not read, each with the role that does."""
    usual = type(config).model_fields
    changed = {name for name in usual if getattr(config, name) != usual[name].default}
    faults = [
        f"{flag(name)} is read by {' and '.join(f'unseen train {one}' for one in roles)} only"
        for name, roles in READ_BY.items()
        if name in changed and role not in roles
    ]
    faults += [
        f"{flag(name)} says nothing without {flag(needed)}"
        for name, needed in NEEDED_FOR.items()
        if name in changed and role in READ_BY[name] and not getattr(config, needed)
    ]
    if role == "shadow":
        faults += [
            f"{flag(name)} says nothing of shadows: each is on a half of --data (--share, --n)"
            for name in ("members", "nonmembers")
            if name in changed
        ]
    return faults


# --- the folder --------------------------------------------------------------------------------


def _identity(config: TrainRun, role: Role, sides: Sides, fingerprint: str) -> str:
    """A hash of everything that the weights depend on."""
    digest = hashlib.sha256()
    for trained, records in ((True, sides.trained), (False, sides.held_out)):
        for record in records:
            turns = [(turn.role, turn.content) for turn in record.turns]
            digest.update(json.dumps([trained, record.id, turns]).encode())
    about = {
        "version": __version__,
        "role": role,
        "config": config.model_dump(mode="json", exclude=_NOT_OF_THE_PLAN),
        "records": digest.hexdigest(),
        "base": fingerprint,
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]


def _open_folder(config: TrainRun, identity: str) -> RunFolder:
    path = config.out or Path()
    if (path / "run.json").is_file():
        if RunFolder(path).read_json("run.json").get("plan") != identity:
            raise ConfigError(
                f"--out {path} holds another run (other records, base or choices)",
                fix="name another folder: --out DIR",
            )
    elif path.exists() and not path.is_dir():
        raise ConfigError(f"--out {path} is a file", fix="name another folder: --out DIR")
    elif path.is_dir() and any(file.name != LOCK for file in path.iterdir()):
        raise ConfigError(f"--out {path} is not empty and no train run", fix="--out DIR")
    return RunFolder(path, flag="--out")


def _is_complete(folder: RunFolder) -> bool:
    file = folder.path / "run.json"
    return (
        file.is_file()
        and folder.read_json("run.json").get("status") == "complete"
        and ((folder.path / "manifest.sha256").is_file())
    )


def _begin(
    folder: RunFolder,
    config: TrainRun,
    role: Role,
    sides: Sides,
    identity: str,
    fingerprint: str,
) -> dict[str, Any]:
    """Writes the header of the run; returns it, with this attempt as the last."""
    import yaml

    about: dict[str, Any] = {"created": now(), "attempts": [], "key": secrets.token_hex(16)}
    if (folder.path / "run.json").is_file():
        before = folder.read_json("run.json")
        about |= {name: before[name] for name in about if name in before}
    about["attempts"].append({"started": now(), "status": "running"})
    files = {"data": config.data, "members": config.members, "nonmembers": config.nonmembers}
    dumped = config.written()
    about = {
        "schema_version": SCHEMA_VERSION,
        "id": folder.path.name,
        "tool": f"unseen {__version__}",
        "scenario": TRAIN,
        "role": role,
        "plan": identity,
        "status": "running",
        **about,
        "config": dumped,
        "base": noted(config.model, folder.path) | {"fingerprint": fingerprint},
        "files": {name: noted(file, folder.path) for name, file in files.items() if file},
        "data": sides.described,
        "n": {"trained": len(sides.trained), "held_out": len(sides.held_out)},
        "provenance": versions(),
    }
    folder.unsealed()
    folder.write_json("run.json", about)
    folder.write_text("config.yaml", yaml.safe_dump(dumped, sort_keys=False, allow_unicode=True))
    return about


# --- training ----------------------------------------------------------------------------------


def _train(
    folder: RunFolder,
    config: TrainRun,
    recipe: Recipe,
    sides: Sides,
    base: Source,
    about: dict[str, Any],
    progress: Progress | None,
    say: Note,
) -> list[float]:
    """Writes who is trained on, trains, and writes the model; returns the loss of every step."""
    from unseen.targets.huggingface import HFTarget
    from unseen.training.checkpoint import Checkpoints
    from unseen.training.finetune import finetune, save
    from unseen.training.private import budget

    torch = need("torch", "train")
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    target = HFTarget(
        config.model,
        revision=config.revision,
        dtype="float32",
        device=config.device,
        attn_implementation=config.attn_implementation,
        trust_remote_code=config.trust_remote_code,
        cache_dir=config.cache_dir,
        bits=recipe.bits if recipe.method == "qlora" else None,
    )
    layout = layout_of(config)
    in_front = recipe.virtual_tokens if recipe.method in ("prefix", "prompt") else 0
    if in_front >= target.max_length - 1:
        raise ConfigError(
            f"--virtual-tokens {in_front} leave no room for text: the model reads {target.max_length} "
            "tokens",
            fix="--virtual-tokens 20",
        )
    encoder = RecordEncoder(target.tokenizer, layout, limit=target.max_length - in_front)
    check_layout(encoder, (*sides.trained, *sides.held_out))
    template = hashlib.sha256((encoder.template or "plain").encode()).hexdigest()
    about["encoding"] = {"template_sha256": template, "max_length": encoder.max_length}
    folder.write_json("run.json", about)
    parts = partitions(len(sides.trained), config.partitions, recipe.seed, 3)
    rows, examples = _rows(sides, encoder, about, config, recipe, parts)
    learned = [i for i, example in enumerate(examples) if example is not None]
    if not learned:
        reasons = sorted({row.reason for row in rows if row.trained and row.reason})
        raise UsageError(f"no record has a token to learn: {'; '.join(reasons[:3])}")
    if len(learned) < len(examples):
        say(f"{len(examples) - len(learned)} records have no token to learn ({MANIFEST} says why)")
    folder.write_table(MANIFEST, _columns(rows))
    if recipe.privacy is not None:
        say(f"counting what privacy costs ({recipe.privacy.accountant}): this takes some seconds")
        spent = budget(recipe, len(learned))
        about["privacy"] = asdict(spent) | {"epsilon": spent.epsilon()}
        folder.write_json("run.json", about)
        say(
            f"epsilon {about['privacy']['epsilon']:.3g} at delta {spent.delta:.2g}, noise multiplier "
            f"{spent.noise_multiplier:.3g}: for one record added or removed"
        )
    base_folder = Path(base.model)
    told = -1
    losses: list[float] = []

    def tell(step: int, steps: int, loss: float) -> None:
        nonlocal told
        losses.append(loss)
        if progress is not None:
            progress("training", step, steps)
        epoch = step * recipe.epochs // steps
        if epoch > told and step * recipe.epochs % steps == 0:
            told = epoch
            per = steps // recipe.epochs
            say(
                f"epoch {epoch} of {recipe.epochs}: mean loss {np.mean(losses[-per:]):.3f} nats a token"
            )

    def after_epoch(epoch: int, model: Any) -> None:
        place = folder.path / f"epoch-{epoch}"
        if config.keep_epochs and epoch < recipe.epochs and not place.is_dir():
            with quiet():
                save(model, base_folder, place)

    state = folder.path / _STATE
    if state.is_file():
        say("going on from the last checkpoint")
    trained = finetune(
        target.model,
        [example for example in examples if example is not None],
        recipe,
        partitions=None if parts is None else [parts[i] for i in learned],
        progress=tell,
        after_epoch=after_epoch,
        checkpoints=Checkpoints(state, about["plan"], config.save_every, 60 * config.save_minutes),
    )
    if not (folder.path / MODEL).is_dir():  # it appears whole, so that of a killed process is good
        with quiet():
            save(trained, base_folder, folder.path / MODEL)
    _check_tokens(folder.path / MODEL, layout, encoder, sides, config)
    return losses


def _rows(
    sides: Sides,
    encoder: RecordEncoder,
    about: dict[str, Any],
    config: TrainRun,
    recipe: Recipe,
    parts: list[int] | None,
) -> tuple[list[Row], list[Encoded | None]]:
    """What is kept of every record, and what is learned of those that are trained on."""
    key = bytes.fromhex(about["key"])
    held = partitions(len(sides.held_out), config.partitions, recipe.seed, 4)
    rows: list[Row] = []
    examples: list[Encoded | None] = []
    for trained, records, of in ((True, sides.trained, parts), (False, sides.held_out, held)):
        for i, record in enumerate(records):
            encoded, reason = encoded_or_reason(encoder, record)
            rows.append(
                Row(
                    id=record.id,
                    trained=trained,
                    times=_times(recipe) if trained and encoded is not None else 0,
                    partition=None if of is None else of[i],
                    text=digest_of_text(record, key),
                    tokens=None if encoded is None else digest_of_tokens(encoded, key),
                    reason=reason,
                )
            )
            if trained:
                examples.append(encoded)
    return rows, examples


def _times(recipe: Recipe) -> int | None:
    return recipe.epochs if recipe.privacy is None else None


def _columns(rows: Sequence[Row]) -> dict[str, Any]:
    import pyarrow as pa

    kinds = {"trained": pa.bool_(), "times": pa.int32(), "partition": pa.int32()}
    return {
        name: pa.array([getattr(row, name) for row in rows], kinds.get(name, pa.string()))
        for name in Row.__dataclass_fields__
    }


def _check_tokens(
    model: Path, layout: Layout, encoder: RecordEncoder, sides: Sides, config: TrainRun
) -> None:
    """The saved model must be asked with the very ids that were learned: compares them all.

    Raises:
        ModelError: where the saved tokenizer reads a record otherwise.
    """
    from unseen.targets.loading import open_tokenizer

    source = locate(str(model))
    tokenizer, limit = open_tokenizer(source, None, trust_remote_code=config.trust_remote_code)
    limit = min(limit, encoder.max_length)
    saved = RecordEncoder(tokenizer, layout, limit=limit)
    for record in (*sides.trained, *sides.held_out):
        learned, _ = encoded_or_reason(encoder, record)
        asked, _ = encoded_or_reason(saved, record)
        if learned is None or asked is None:
            same = learned is asked
        else:
            same = learned.ids == asked.ids and bool(np.array_equal(learned.scored, asked.scored))
        if not same:
            raise ModelError(
                f"the tokenizer saved in {model} reads record {record.id} otherwise than the base's",
                fix="save the base's tokenizer again with this version of transformers",
            )


def _finish(folder: RunFolder, about: dict[str, Any], losses: Sequence[float]) -> None:
    recipe_epochs = about["config"]["epochs"]
    per_epoch = np.array_split(np.asarray(losses), recipe_epochs)
    folder.write_rows(
        _LOSSES,
        ("step", "epoch", "loss"),
        (
            (str(step), str(epoch), repr(float(loss)))
            for epoch, of_epoch, first in _numbered(per_epoch)
            for step, loss in enumerate(of_epoch, start=first)
        ),
    )
    about["attempts"][-1] |= {"ended": now(), "status": "complete"}
    about |= {
        "status": "complete",
        "steps": len(losses),
        "loss": [round(float(np.mean(of_epoch)), 6) for of_epoch in per_epoch],
        "model": {"fingerprint": fingerprint_of(locate(str(folder.path / MODEL)))},
    }
    folder.write_json("run.json", about)
    with writing(folder.path, "--out"):
        shutil.rmtree(folder.path / _STATE.parent, ignore_errors=True)
    folder.write_manifest()


def _numbered(per_epoch: Sequence[np.ndarray[Any, Any]]) -> list[tuple[int, Any, int]]:
    """Epoch, its losses, and the number of its first step."""
    first, numbered = 1, []
    for epoch, of_epoch in enumerate(per_epoch, start=1):
        numbered.append((epoch, of_epoch.tolist(), first))
        first += len(of_epoch)
    return numbered
