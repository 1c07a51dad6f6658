"""`unseen doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from unseen.cli.codes import DONE, INCONCLUSIVE, USAGE
from unseen.cli.output import out, say
from unseen.errors import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from unseen.runs.doctor import Diagnosis, Row

_MARKS = {True: "ok", False: "no", None: "–"}
_STATUS = {"pass": True, "warn": None, "fail": False, "skip": None}


def doctor(
    model: str | None = None,
    *,
    run_of: str | None = None,
    reference: str | None = None,
    control_model: str | None = None,
    adapter: str | None = None,
    base_model: str | None = None,
    revision: str | None = None,
    tokenizer: str | None = None,
    template: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    attn_implementation: str | None = None,
    trust_remote_code: Annotated[bool, Parameter(negative=())] = False,
    access: Literal["auto", "text", "label", "logprob", "logit", "weights"] | None = None,
    base_url: str | None = None,
    api: Literal["chat", "completions"] | None = None,
    api_key_env: str | None = None,
    rpm: float | None = None,
    timeout: float | None = None,
    max_retries: int | None = None,
    cache_dir: Path | None = None,
    offline: Annotated[bool, Parameter(negative=())] = False,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """What do this machine and this model allow? Which attacks can be run, and why not the others?

    A model is loaded and asked about a few invented people, so that its numbers are checked too.

    Args:
        model: model folder, hub name, PEFT adapter folder, GGUF file, or openai/NAME (a model behind an
            endpoint); without one, the machine alone is looked at.
        run_of: a run of unseen train, whose model, base and template are taken.
        reference: model to compare with; an adapter brings its own.
        control_model: model of the same format that was trained on other records.
        adapter: PEFT adapter folder to put on the model.
        base_model: an adapter's base, if not where its configuration says.
        revision: of a hub name.
        tokenizer: if it is not beside the model.
        template: auto, chat, plain, or a Jinja file.
        dtype: auto, float32, bfloat16, float16.
        device: auto, cpu, cuda, cuda:1, …
        attn_implementation: as in transformers.
        trust_remote_code: run code that comes with the model.
        access: the most that attacks may use of the model.
        base_url: where the endpoint of openai/NAME is, up to /v1.
        api: what the endpoint is sent: chat or completions.
        api_key_env: environment variable that holds the endpoint's key.
        rpm: requests a minute that the endpoint is sent, at most.
        timeout: seconds after which an answer of the endpoint is given up.
        max_retries: times that a request is sent again.
        cache_dir: where answers and converted models are kept.
        offline: never ask the hub.
        json_: print JSON instead of the list.
    """
    from unseen.api import doctor as doctor_

    given = {
        "run_of": run_of,
        "reference": reference,
        "control_model": control_model,
        "adapter": adapter,
        "base_model": base_model,
        "revision": revision,
        "tokenizer": tokenizer,
        "template": template,
        "dtype": dtype,
        "device": device,
        "attn_implementation": attn_implementation,
        "trust_remote_code": trust_remote_code or None,
        "access": access,
        "base_url": base_url,
        "api": api,
        "api_key_env": api_key_env,
        "rpm": rpm,
        "timeout": timeout,
        "max_retries": max_retries,
        "cache_dir": cache_dir,
        "offline": offline or None,
    }
    found = doctor_(model, note=say, **{k: v for k, v in given.items() if v is not None})
    if json_:
        print(found.model_dump_json(indent=1))
    else:
        _show(found)
    if found.loaded is False:
        return USAGE
    return INCONCLUSIVE if any(check.status == "fail" for check in found.checks) else DONE


def _show(found: Diagnosis) -> None:
    _rows(found.environment)
    if found.model:
        out().print()
        _rows(found.model)
    for check in found.checks:
        _line(check.title, _STATUS[check.status], check.detail, check.fix)
    if found.usable:
        out().print()
        _line("attacks", True, ", ".join(found.usable), None)  # noqa: FBT003
    for name, why in sorted(found.unusable.items()):
        _line(name, False, why, None)  # noqa: FBT003


def _rows(rows: Iterable[Row]) -> None:
    for row in rows:
        _line(row.name, row.ok, row.detail, row.fix)


def _line(name: str, ok: bool | None, detail: str, fix: str | None) -> None:  # noqa: FBT001
    shown = out()
    shown.print(visible(f"{name:<39} {_MARKS[ok]:<3} {detail}"), markup=False, soft_wrap=True)
    if fix is not None and not ok:
        for line in fix.splitlines():
            shown.print(visible(f"{'':<39}     {line.strip()}"), markup=False, soft_wrap=True)
