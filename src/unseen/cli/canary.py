"""`unseen canary`."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from unseen.cli.ended import end
from unseen.cli.output import out, progress, say
from unseen.data.canaries import Kind
from unseen.runs.config import CanaryAudit

if TYPE_CHECKING:
    from unseen.runs.canary import MadeCanaries
    from unseen.runs.results import Results

app = App(
    name="canary", help="Random records, trained on by coin: what gives a lower bound on epsilon."
)


@app.command
def make(
    *,
    n: Annotated[int, Parameter(name="--n")] = 1000,
    out_: Annotated[Path, Parameter(name="--out")] = Path("canaries"),
    seed: int | None = None,
    kind: Kind = "random-words",
    like: str | None = None,
    format_: Annotated[str, Parameter(name="--format")] = "auto",
    column: tuple[str, ...] = (),
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Make canaries before training, and throw a fair coin for each.

    Args:
        n: canaries; about half of them will be trained on.
        out_: folder for key.json and canaries.jsonl; an existing key is never overwritten.
        seed: makes the same canaries and coins again, for whoever knows it; default: the
            operating system throws the coins.
        kind: what the canaries say.
        like: a file of training records, whose form and columns the canaries take.
        format_: form of the canaries, or of that file: text, prompt-completion, messages, alpaca,
            sharegpt.
        column: role=column, for example prompt=question.
        json_: print a JSON object instead of what to do next.
    """
    from unseen.api import canary_make

    made = canary_make(out_, n, seed=seed, kind=kind, like=like, format=format_, column=column)
    if seed is not None:
        say(f"the coins come from seed {seed}: whoever knows it knows the coins")
    if json_:
        print(json.dumps(asdict(made) | {"n": made.n[0], "n_included": made.n[1]}, default=str))
    else:
        _next(made)
    return 0


@app.command
def audit(
    *,
    config: Annotated[CanaryAudit, Parameter(name="*")] = CanaryAudit(),  # noqa: B008 (frozen)
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Does the model know which canaries it was trained on, and which epsilon does that rule out?

    Members are the canaries that the coins have put into the training data. The other options are
    those of `unseen audit finetune`; the same command again continues an audit that was stopped.

    Args:
        config: the audit.
        json_: print results.json instead of the table.
    """
    from unseen.api import canary_audit

    with progress() as tell:
        result = canary_audit(config=config, progress=tell, note=say)
    return end(result, config.gate, json_=json_, also=_bound)


def _bound(results: Results) -> None:
    from unseen.report.language import epsilon

    if results.epsilon is None or results.invalid:
        return
    value, what = epsilon(results.epsilon)
    out().print(f"[bold]EPSILON[/bold]  {value}  ", end="")
    out().print(what, markup=False, soft_wrap=True)


def _next(made: MadeCanaries) -> None:
    key, included = (shlex.quote(str(file)) for file in (made.key, made.included))
    lines = [
        f"canaries  {made.n[0]}, of which coins include {made.n[1]} ({made.format})",
        f"key       {made.key}  sha256 {made.sha256}",
        "",
        f"1. add every line of {included} to the training data, once, and shuffle",
        f"2. keep {key} out of the training data, and away from whoever trains; note its sha256 down",
        "3. train as you would have trained anyway",
        f"4. unseen canary audit --key {key} --model MODEL",
        "",
        f"So many canaries can show an epsilon of at most {made.largest:.1f} (delta 1e-05, 95 %).",
    ]
    for line in lines:
        out().print(line, markup=False, soft_wrap=True)
