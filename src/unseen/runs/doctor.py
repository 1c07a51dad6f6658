"""What this machine and this model allow, before anything is audited."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from unseen import __version__
from unseen.attacks import create, everything, label
from unseen.attacks.base import FINETUNE, PROMPT, Attack, is_fusing
from unseen.data.synthetic import people
from unseen.data.templates import RecordEncoder
from unseen.errors import MissingExtraError, UnseenError
from unseen.runs.models import OTHER_FORMAT, one_format, open_models
from unseen.runs.plan import check_run_of, choose_attacks, obstacle, told
from unseen.runs.preflight import preflight
from unseen.runs.rendered import beginning_id
from unseen.runs.results import Check, Part
from unseen.runs.training.run_of import of_run
from unseen.scoring.generation import EachAlone
from unseen.signals.base import CONTROL, GENERATOR, REFERENCE, SURROGATE, TARGET
from unseen.targets.access import Access, InsideTarget, is_adapted
from unseen.targets.endpoint_tried import tried
from unseen.targets.files import default_cache
from unseen.targets.fillers import HasWordEmbeddings
from unseen.targets.openai_compatible import OpenAITarget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from unseen.runs.collect import Model
    from unseen.runs.config import FinetuneAudit
    from unseen.targets.access import LogprobTarget

_PACKAGES = {
    "torch": "hf",
    "transformers": "hf",
    "peft": "hf",
    "safetensors": "hf",
    "gguf": "hf",
    "datasets": "hf",
    "pandas": "pandas",
    "openai": "api",
    "stamina": "api",
    "opacus": "dp",
    "bitsandbytes": "qlora",
}
"""Package -> the extra that brings it."""
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
_GIB = 2**30
_LITTLE_DISK = 2 * _GIB
_N_INVENTED = 8
"""Invented people that a model is tried on; nobody's records are needed."""


class Row(Part):
    """One thing that was looked at."""

    name: str
    ok: bool | None = Field(description="null: neither good nor bad")
    detail: str
    fix: str | None = None


class Diagnosis(Part):
    """What this machine and, where one is named, this model allow."""

    environment: tuple[Row, ...]
    model: tuple[Row, ...] = Field((), description="empty where no model is named")
    checks: tuple[Check, ...] = Field(
        (), description="of the model's numbers, made on invented records"
    )
    usable: tuple[str, ...] = Field((), description="attacks that can be run")
    unusable: dict[str, str] = Field(
        default_factory=dict, description="attacks that cannot be run, and why"
    )
    loaded: bool | None = Field(None, description="null where no model is named")


def diagnose(
    config: FinetuneAudit,
    *,
    target: LogprobTarget | None = None,
    note: Callable[[str], None] | None = None,
) -> Diagnosis:
    """Looks at the machine and, where there is one, at the model.

    Args:
        config: names the model and how it is loaded; the rest of it is left aside.
        target: a target that the caller has made.
        note: told what is being done where it takes a while.

    Returns:
        What was found. What is missing or broken is a row with a fix, never an error.
    """
    environment = _environment(config)
    if target is None and not config.model and config.run_of is None:
        return Diagnosis(environment=environment)
    say = note or (lambda _: None)
    if config.offline:
        os.environ["HF_HUB_OFFLINE"] = "1"  # before anything reads it
    try:
        if config.run_of is not None:
            check_run_of(config, target, None)
            config, _ = of_run(config)
        say(f"loading {target.name if target is not None else config.model}")
        models = open_models(config, target)
        checks = _tried(models, config.seed, say)
        rows = tuple(_of_model(config, models, say))
    except UnseenError as error:
        row = Row(name="model", ok=False, detail=error.problem, fix=error.fix)
        # An extra that is not installed is a state of the machine, not a fault of the model.
        loaded = None if isinstance(error, MissingExtraError) else False
        return Diagnosis(environment=environment, model=(row,), loaded=loaded)
    usable: list[str] = []
    unusable: dict[str, str] = {}
    for name, attack in _attacks(models[TARGET].target):
        why = obstacle(
            attack,
            models[TARGET].target.access,
            reference=REFERENCE in models,
            pool=True,  # these are a matter of other files, not of the model
            corpus=True,
            shadows=True,
            embeddings=isinstance(models[TARGET].target, HasWordEmbeddings),
            helpers=(SURROGATE, GENERATOR),
            probes=True,
            paraphrases=True,
            directions=True,
            inside=isinstance(models[TARGET].target, InsideTarget),
            adapter=is_adapted(models[TARGET].target),
            endpoint=isinstance(models[TARGET].target, EachAlone),
        )
        if why is None:
            usable.append(name)
        else:
            unusable[name] = why
    return Diagnosis(
        environment=environment,
        model=rows,
        checks=checks,
        usable=tuple(usable),
        unusable=unusable,
        loaded=True,
    )


def _attacks(target: LogprobTarget) -> list[tuple[str, Attack]]:
    """The attacks of an ordinary audit; of what gives text alone, all that can do with it are told too."""
    found = {name: attack for name, (attack, _) in choose_attacks(("default",)).items()}
    if target.access is Access.TEXT:
        for spec in (*everything(FINETUNE), *everything(PROMPT)):
            attack = create(spec)
            if attack.access is Access.TEXT and not is_fusing(attack):
                attack = told(attack) if isinstance(target, EachAlone) else attack
                found.setdefault(label(attack), attack)
    return list(found.items())


def _tried(models: dict[str, Model], seed: int, say: Callable[[str], None]) -> tuple[Check, ...]:
    """The checks of an audit, on invented records; none where the model gives text alone."""
    if models[TARGET].target.access < Access.LOGPROB:
        return ()
    say("asking it about a few invented people")
    invented = people(_N_INVENTED, seed)
    half = _N_INVENTED // 2
    return tuple(
        # Fine-tuning need not change what a model says of people that it never met.
        check.model_copy(update={"status": "warn"})
        if check.id == "adapter_effect" and check.status == "fail"
        else check
        for check in preflight(models, invented[:half], invented[half:], seed=seed)
    )


# --- the machine ------------------------------------------------------------------------------


def _environment(config: FinetuneAudit) -> tuple[Row, ...]:
    return (
        Row(name="unseen", ok=True, detail=f"{__version__}, Python {platform.python_version()}"),
        *_packages(),
        _processors(),
        _memory(),
        _gpu(),
        _cache(config),
        _folder(config.runs),
        _hub(config),
    )


def _packages() -> list[Row]:
    rows: list[Row] = []
    for name, extra in _PACKAGES.items():
        try:
            rows.append(Row(name=name, ok=True, detail=importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            fix = f'pip install "unseen[{extra}]"'
            rows.append(Row(name=name, ok=False, detail="not installed", fix=fix))
    return rows


def _processors() -> Row:
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdigit() and int(threads) > cores:
        return Row(
            name="cores",
            ok=False,
            detail=f"{cores}, but OMP_NUM_THREADS={threads}: more threads than cores are slower",
            fix=f"export OMP_NUM_THREADS={cores}",
        )
    set_to = f", OMP_NUM_THREADS={threads}" if threads.isdigit() else ""
    return Row(name="cores", ok=True, detail=f"{cores}{set_to}")


def _memory() -> Row:
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        total, free = (os.sysconf(name) * page for name in ("SC_PHYS_PAGES", "SC_AVPHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # not on this system
        return Row(name="memory", ok=None, detail="not known on this system")
    return Row(
        name="memory", ok=None, detail=f"{total / _GIB:.1f} GiB, {free / _GIB:.1f} GiB of it unused"
    )


def _gpu() -> Row:
    try:
        import torch
    except ImportError:
        return Row(name="GPU", ok=None, detail="not known without torch")
    if not torch.cuda.is_available():
        return Row(name="GPU", ok=None, detail="none: models run on the CPU, in float32")
    found: list[str] = []
    for number in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(number)
        name = torch.cuda.get_device_name(number)
        found.append(f"cuda:{number} {name}, {free / _GIB:.0f} of {total / _GIB:.0f} GiB free")
    return Row(name="GPU", ok=True, detail="; ".join(found))


def _cache(config: FinetuneAudit) -> Row:
    folder = config.cache_dir or default_cache()
    if not config.cache:
        return Row(name="cache", ok=None, detail="switched off: --no-cache")
    why = _obstacle_to_writing(folder)
    if why is not None:
        return Row(name="cache", ok=False, detail=f"{folder}: {why}", fix="--cache-dir DIR")
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    free = shutil.disk_usage(_existing(folder)).free
    detail = f"{folder}: {size / _GIB:.2f} GiB used, {free / _GIB:.1f} GiB free on the disk"
    if free < _LITTLE_DISK:
        return Row(name="cache", ok=False, detail=detail, fix="free some space, or --cache-dir DIR")
    return Row(name="cache", ok=True, detail=detail)


def _folder(runs: Path) -> Row:
    why = _obstacle_to_writing(runs)
    if why is not None:
        return Row(name="runs", ok=False, detail=f"{runs.absolute()}: {why}", fix="--runs DIR")
    return Row(name="runs", ok=True, detail=f"{runs.absolute()} can be written")


def _obstacle_to_writing(folder: Path) -> str | None:
    """Why nothing can be written there, or None; a folder that is not there yet is not made."""
    nearest = _existing(folder)
    if not nearest.is_dir():
        return f"{nearest} is a file"
    try:
        with tempfile.TemporaryFile(dir=nearest):
            return None
    except OSError as error:
        return error.strerror or type(error).__name__


def _existing(path: Path) -> Path:
    """The path itself, or the nearest one above it that is there."""
    return next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())


def _hub(config: FinetuneAudit) -> Row:
    given = [f"{name}={os.environ[name]}" for name in _OFFLINE if os.environ.get(name)]
    given += ["--offline"] if config.offline else []
    if not given:
        return Row(name="hub", ok=None, detail="asked for models that are no local folders")
    return Row(name="hub", ok=None, detail=f"never asked: {', '.join(given)}")


# --- the model --------------------------------------------------------------------------------


def _of_model(
    config: FinetuneAudit, models: dict[str, Model], say: Callable[[str], None]
) -> list[Row]:
    target = models[TARGET].target
    about = target.describe()
    named = ("architecture", "dtype", "device", "url", "adapter", "revision", "system_fingerprint")
    facts = [f"{name} {about[name]}" for name in named if name in about]
    first = [
        Row(name="model", ok=True, detail=", ".join([target.name, *facts])),
        Row(name="access", ok=True, detail=target.access.word),
    ]
    if isinstance(target, OpenAITarget):
        return [*first, *_of_endpoint(target, say), _reference(config, models)]
    return [
        *first,
        Row(name="context", ok=True, detail=f"{target.max_length:,} tokens"),
        _template(models[TARGET]),
        _beginning(models[TARGET]),
        _reference(config, models),
        *_control_model(models),
    ]


def _of_endpoint(target: OpenAITarget, say: Callable[[str], None]) -> Iterator[Row]:
    say("trying what the endpoint gives, in some ten short questions")
    for one in tried(target):
        yield Row(name=one.name, ok=one.ok, detail=one.detail)


def _template(model: Model) -> Row:
    if model.encoder.tokenizer.chat_template is not None:
        return Row(name="chat template", ok=True, detail="comes with the tokenizer")
    written = isinstance(model.encoder, RecordEncoder) and model.encoder.template is not None
    if written:
        return Row(name="chat template", ok=True, detail="from --template")
    return Row(
        name="chat template",
        ok=None,
        detail="none: documents can be audited, conversations need one",
        fix="--template FILE.jinja, or --template plain",
    )


def _beginning(model: Model) -> Row:
    tokenizer = model.encoder.tokenizer
    id_ = beginning_id(tokenizer)
    if tokenizer.bos_id is not None:
        detail = f"id {tokenizer.bos_id}, put before plain text by the tokenizer"
    elif id_ is not None:
        detail = f"id {id_}, only where a template writes it"
    else:
        detail = "none: the first token of plain text is not scored"
    return Row(name="beginning of text", ok=True, detail=detail)


def _reference(config: FinetuneAudit, models: dict[str, Model]) -> Row:
    if REFERENCE in models:
        return Row(name="reference", ok=True, detail=models[REFERENCE].target.name)
    why = "switched off" if config.reference == "none" else "no adapter, so there is no base"
    return Row(
        name="reference",
        ok=None,
        detail=f"none ({why}): no control, and no attack that compares",
        fix="--reference MODEL, the one that it was fine-tuned from",
    )


def _control_model(models: dict[str, Model]) -> list[Row]:
    """The row of a control model; none where none is named, for it has to be trained."""
    if CONTROL not in models:
        return []
    detail = models[CONTROL].target.name
    if one_format(models, CONTROL):
        return [Row(name="control model", ok=True, detail=detail)]
    fix = "train it as the target was: unseen train control --not-in TARGET_RUN"
    return [Row(name="control model", ok=None, detail=f"{detail}: {OTHER_FORMAT}", fix=fix)]
