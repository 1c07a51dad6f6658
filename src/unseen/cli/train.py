"""`unseen train`."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from unseen.cli.codes import DONE
from unseen.cli.output import out, progress, say
from unseen.runs.training.config import Role, TrainRun

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


@app.command
def shadow(
    *,
    config: Annotated[TrainRun, Parameter(name="*")] = TrainRun(),  # noqa: B008 (frozen)
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Train --count models, each on a random half of --data, for attacks that compare with them.

    --like RUN takes base, recipe and file over from a run. Of each model it is known which records it
    was trained on: unseen audit finetune --run-of TARGET --shadow DIR --attacks lira,rmia. The same
    command with a larger --count adds models.

    Args:
        config: the training of each of them.
        json_: print run.json of each instead of what to do next.
    """
    from unseen.api import train_shadows

    with progress() as tell:
        made = train_shadows(config=config, progress=tell, note=say)
    if json_:
        print(json.dumps([one.about for one in made], indent=1))
        return DONE
    folder = shlex.quote(str(config.out))
    for line in (
        f"trained   {len(made)} shadow models, each on {made[0].about['n']['trained']:,} records",
        f"run       {config.out}",
        f"next      unseen audit finetune --run-of TARGET --shadow {folder} --attacks lira,rmia",
    ):
        out().print(line, markup=False, soft_wrap=True)
    return DONE


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
        lines.append(f"next      unseen audit finetune --run-of TARGET --reference {folder}")
    for line in lines:
        out().print(line, markup=False, soft_wrap=True)
