"""`unseen train`."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from unseen.cli.codes import DONE
from unseen.cli.output import out, progress, say
from unseen.runs.train_config import Role, TrainRun

if TYPE_CHECKING:
    from unseen.api import Trained

app = App(
    name="train",
    help="Train a model of which it is known what it was trained on, record by record.",
)


@app.command
def target(
    *,
    config: Annotated[TrainRun, Parameter(name="*")] = TrainRun(),  # noqa: B008 (frozen)
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Train a model to be audited: on a random part of --data, or on all of --members.

    Every option is also an environment variable (UNSEEN_MODEL), a key of the YAML file that --config
    names, and an argument of `unseen.train`. The same command again continues a training that was
    stopped. Afterwards: unseen audit finetune --run-of DIR.

    Args:
        config: the training.
        json_: print run.json instead of what to do next.
    """
    return _train("target", config, json_=json_)


@app.command
def reference(
    *,
    config: Annotated[TrainRun, Parameter(name="*")] = TrainRun(),  # noqa: B008 (frozen)
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Train a model to compare with, on records that --not-in RUN has neither learned nor held out.

    What is not said is as it was in that run: base, recipe, template, file, number of records.

    Args:
        config: the training.
        json_: print run.json instead of what to do next.
    """
    return _train("reference", config, json_=json_)


@app.command
def control(
    *,
    config: Annotated[TrainRun, Parameter(name="*")] = TrainRun(),  # noqa: B008 (frozen)
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Train a model just as --not-in RUN was, that knows none of its records: what is format alone.

    Args:
        config: the training.
        json_: print run.json instead of what to do next.
    """
    return _train("control", config, json_=json_)


def _train(role: Role, config: TrainRun, *, json_: bool) -> int:
    from unseen.api import train

    with progress() as tell:
        made = train(role, config=config, progress=tell, note=say)
    if json_:
        print(json.dumps(made.about, indent=1))
    else:
        _show(made)
    return DONE


def _show(made: Trained) -> None:
    about = made.about
    folder = shlex.quote(str(made.folder))
    lines = [
        f"trained   {about['n']['trained']:,} records, {about['n']['held_out']:,} held out",
        f"loss      {' → '.join(f'{loss:.3f}' for loss in about['loss'])} nats a token, by epoch",
        f"model     {made.model}",
        f"run       {made.folder}",
    ]
    if about["role"] == "target":
        lines.append(f"next      unseen audit finetune --run-of {folder}")
    else:
        lines.append(f"next      unseen audit finetune --run-of TARGET --reference {folder}/model")
    for line in lines:
        out().print(line, markup=False, soft_wrap=True)
