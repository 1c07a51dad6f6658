"""`--run-of`: an audit that takes model, base, records, who is a member, and template from a train run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from unseen.errors import ConfigError, ModelError, flag
from unseen.runs.training.trained import LAYOUT, TrainedRun, runs_named
from unseen.targets.files import fingerprint_of, locate

if TYPE_CHECKING:
    from unseen.data.records import Records
    from unseen.runs.config import FinetuneAudit
    from unseen.runs.training.config import TrainRun

_OF_THE_RUN = ("model", *LAYOUT[:-1], "format", "column", "id_column")
_IDLE = ("adapter", "revision", "tokenizer", "label_column")


def of_run(config: FinetuneAudit) -> tuple[FinetuneAudit, TrainedRun]:
    """The choices of an audit of a train run: model, reference, template from the run.

    Raises:
        ConfigError: where an option contradicts the run.
    """
    run = TrainedRun(Path(config.run_of or ""))
    given = {
        name: getattr(config, name)
        for name in (*_OF_THE_RUN, *_IDLE)
        if name in config.model_fields_set and getattr(config, name) not in ("", None)
    }
    models = {str(folder): folder for folder in (run.model, *sorted(run.path.glob("epoch-*")))}
    wanted: dict[str, Any] = {name: getattr(run.config, name) for name in _OF_THE_RUN[1:]}
    faults: dict[str, str] = {}
    for name, value in given.items():
        said = flag(name)
        if name in _IDLE:
            faults[said] = f"{said} says nothing of a train run"
        elif name == "model":
            if Path(value).resolve() not in {folder.resolve() for folder in models.values()}:
                faults[said] = f"{said} names {value}, which is no model of {run.path}"
        elif value != wanted[name]:
            faults[said] = (
                f"{said}: got {_shown(value)}, but it was trained with {_shown(wanted[name])}"
            )
    files = [
        name for name in ("data", "members", "nonmembers") if getattr(config, name) is not None
    ]
    own = ("data",) if run.config.data is not None else ("members", "nonmembers")
    for name in files:
        if name not in own:
            faults[f"--{name}"] = (
                f"--{name}: the records of {run.path} come from {' and '.join(f'--{one}' for one in own)}"
            )
    if faults:
        raise ConfigError(
            f"--run-of {run.path}: {'; '.join(faults.values())}",
            fix=f"leave out {' '.join(faults)}",
        )
    chosen: dict[str, Any] = dict(wanted)
    chosen["model"] = given.get("model", str(run.model))
    if "end_of_turn" not in config.model_fields_set:
        chosen["end_of_turn"] = run.config.end_of_turn
    if config.reference in ("auto", "base"):
        base = config.base_model or run.place(run.base)
        fix = "put it back, or name it: --reference MODEL (of an adapter: --base-model MODEL)"
        _check_weights(run, base, fix)
        if not (Path(chosen["model"]) / "adapter_config.json").is_file():
            chosen["reference"] = base
    if config.split_origin == "unknown" and run.config.data is not None:
        chosen["split_origin"] = "random"
    return config.model_copy(update=chosen), run


def records_of_run(config: FinetuneAudit, run: TrainedRun) -> Records:
    """The records of an audit of a train run; with `limit`, so many of each side.

    Raises:
        DataError: where a record is not as it was.
    """
    found = run.records(
        data=config.data,
        members=config.members,
        nonmembers=config.nonmembers,
        cluster_by=config.cluster_by,
        slice_by=config.slice_by,
    )
    for side, of_side in (("trained on", found.members), ("held out", found.nonmembers)):
        if not of_side:
            raise ConfigError(
                f"no record of {run.path} was {side}",
                fix="unseen train target --data FILE --share 0.5",
            )
    return run.with_partitions(found.sample(config.limit, seed=config.seed))


def check_base(config: TrainRun, run: TrainedRun) -> tuple[str, ...]:
    """A model that is trained as another was starts from the very same weights, or it is said.

    Args:
        config: of the model to be trained, with its base.
        run: the training that it is to be like.

    Returns:
        What the user should know, where another base is named on purpose.

    Raises:
        ModelError: where the base of the run is not there, or has changed since.
    """
    own = run.place(run.base)
    same = config.revision == run.config.revision and (
        config.model in (own, run.base["name"])
        or Path(config.model).expanduser().resolve() == Path(own).expanduser().resolve()
    )
    if same:
        fix = "put it back, or name another base on purpose: --model MODEL"
        _check_weights(run, config.model, fix, cache_dir=config.cache_dir)
        return ()
    source = locate(config.model, revision=config.revision, cache_dir=config.cache_dir)
    if fingerprint_of(source) == run.base["fingerprint"]:
        return ()
    return (
        f"the base {config.model} is another than that of {run.path} ({run.base['name']}): what "
        "differs between the two models is not their records alone",
    )


def of_other_bases(config: FinetuneAudit, run: TrainedRun) -> dict[str, TrainedRun]:
    """The train runs that an audit compares with whose base is another than the target's.

    Args:
        config: names reference, control model and shadows.
        run: the training of the target.

    Returns:
        Role and folder -> run.
    """
    named = [("reference", config.reference), *(("shadow", one) for one in config.shadow)]
    if config.control_model is not None:
        named.append(("control model", config.control_model))
    return {
        f"{role} {other.path}": other
        for role, name in named
        for other in runs_named(name)
        if other.base.get("fingerprint") != run.base.get("fingerprint")
    }


def _check_weights(run: TrainedRun, name: str, fix: str, cache_dir: Path | None = None) -> None:
    """The base must still be what it was: it is what the trained model is compared with."""
    try:
        source = locate(name, revision=run.config.revision, cache_dir=cache_dir)
    except ModelError as error:
        raise ModelError(
            f"the base of {run.path} is not there: {error.problem}", fix=fix
        ) from error
    if fingerprint_of(source) != run.base["fingerprint"]:
        raise ModelError(
            f"{name} is not the base that {run.path} was trained from: its weights differ", fix=fix
        )


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value) or "none"
    return "the model's limit" if value is None else str(value)
