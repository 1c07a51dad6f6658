"""`unseen audit`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from unseen.cli.ended import end
from unseen.cli.output import progress, say
from unseen.cli.plan import announce as announce_plan
from unseen.runs.config import FinetuneAudit
from unseen.runs.prompt.config import PromptAudit

app = App(name="audit", help="Audit a model: was this record in its data, or in its prompt?")


@app.command
def finetune(
    *,
    config: Annotated[FinetuneAudit, Parameter(name="*")] = FinetuneAudit(),  # noqa: B008 (frozen)
    dry_run: Annotated[bool, Parameter(negative=())] = False,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Was this record in the data that the model was fine-tuned on?

    Every option is also an environment variable (UNSEEN_MODEL), a key of unseen.yaml (or of the
    file that --config names) and an argument of `unseen.audit_finetune`. The same command again
    continues an audit that was stopped.

    Args:
        config: the audit.
        dry_run: say what the audit would take, and do no more; as unseen plan.
        json_: print results.json instead of the table.
    """
    if dry_run:
        return announce_plan(config, json_=json_)
    from unseen.api import audit_finetune

    with progress() as tell:
        result = audit_finetune(config=config, progress=tell, note=say)
    return end(result, config.gate, json_=json_)


@app.command
def prompt(
    *,
    config: Annotated[PromptAudit, Parameter(name="*")] = PromptAudit(),  # noqa: B008 (frozen)
    dry_run: Annotated[bool, Parameter(negative=())] = False,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Was this record among the demonstrations of the prompt that the model stands behind?

    Demonstrations are drawn from a file of labelled records, so that a coin decides who is in the
    prompt; an attacker who holds a record asks the model and tells. Every option is also an environment
    variable, a key of unseen.yaml and an argument of `unseen.audit_prompt`. The same command again
    continues an audit that was stopped.

    Args:
        config: the audit.
        dry_run: say what the audit would take, and do no more; as unseen plan prompt.
        json_: print results.json instead of the table.
    """
    if dry_run:
        return announce_plan(config, json_=json_)
    from unseen.api import audit_prompt

    with progress() as tell:
        result = audit_prompt(config=config, progress=tell, note=say)
    return end(result, config.gate, json_=json_)
