"""`--run-of`: an audit that takes model, base, records, who is a member, and template from a train run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from unseen.errors import ConfigError, ModelError, flag
from unseen.runs.trained import LAYOUT, TrainedRun
from unseen.targets.files import fingerprint_of, locate

if TYPE_CHECKING:
    from unseen.data.records import Records
    from unseen.runs.config import FinetuneAudit

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
        _check_base(run, base)
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


def _check_base(run: TrainedRun, name: str) -> None:
    """The base must still be what it was: it is what the trained model is compared with."""
    try:
        found = fingerprint_of(locate(name, revision=run.config.revision))
    except ModelError as error:
        raise ModelError(
            f"the base of {run.path} is not there: {error.problem}",
            fix="put it back, or name it: --reference MODEL (of an adapter: --base-model MODEL)",
        ) from error
    if found != run.base["fingerprint"]:
        raise ModelError(
            f"{name} is not the base that {run.path} was trained from: its weights differ",
            fix="name that one: --reference MODEL (of an adapter: --base-model MODEL)",
        )


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value) or "none"
    return "the model's limit" if value is None else str(value)
