"""`unseen plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from unseen.cli.output import out, progress, say
from unseen.errors import visible
from unseen.runs.config import FinetuneAudit
from unseen.runs.prompt.config import PromptAudit

if TYPE_CHECKING:
    from unseen.runs.estimate import Asked, Forecast, Looked, Written


app = App(name="plan", help="What would an audit take?")


@app.default
def plan(
    *,
    config: Annotated[FinetuneAudit, Parameter(name="*")] = FinetuneAudit(),  # noqa: B008 (frozen)
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """What would this audit take? Requests, tokens, memory and time; no run folder is made.

    Takes the options of unseen audit finetune, for which it is --dry-run. A few batches are run to
    see how fast the model is; the times that follow are estimates.

    Args:
        config: the audit.
        json_: print JSON instead of the list.
    """
    return announce(config, json_=json_)


@app.command
def prompt(
    *,
    config: Annotated[PromptAudit, Parameter(name="*")] = PromptAudit(),  # noqa: B008 (frozen)
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """What would this audit of a prompt take? Questions, tokens, memory and time; no run folder is made.

    Takes the options of unseen audit prompt, for which it is --dry-run.

    Args:
        config: the audit.
        json_: print JSON instead of the list.
    """
    return announce(config, json_=json_)


def announce(config: FinetuneAudit | PromptAudit, *, json_: bool) -> int:
    """Prints what an audit would take."""
    from unseen.api import plan as plan_

    with progress() as tell:
        forecast = plan_(config=config, progress=tell, note=say)
    if json_:
        print(forecast.model_dump_json(indent=1))
    else:
        for name, value in lines(forecast):
            out().print(visible(f"{name:<10} {value}"), markup=False, soft_wrap=True)
    return 0


def lines(forecast: Forecast) -> list[tuple[str, str]]:
    """What `unseen plan` says, as a name and a value a line."""
    from unseen.report.summary import percent_rate
    from unseen.runs.rendered import in_a_line

    about = forecast.target
    made = [
        (
            "target",
            ", ".join(filter(None, (about.get(k) for k in ("model", "dtype", "device", "url"))))
            + f" ({forecast.access})",
        )
    ]
    if forecast.reference is not None:
        made.append(("reference", forecast.reference.get("model", "")))
    if forecast.control_model is not None:
        made.append(("control", forecast.control_model.get("model", "")))
    if forecast.shadows:
        made.append(("shadows", ", ".join(one["model"] for one in forecast.shadows)))
    more = [
        f"{sum(forecast.set_aside)} set aside as known" if sum(forecast.set_aside) else "",
        f"{forecast.dropped} dropped, on both sides" if forecast.dropped else "",
    ]
    counts = f"{forecast.n[0]:,} members, {forecast.n[1]:,} non-members"
    made.append(("records", "; ".join(filter(None, (counts, *more)))))
    made += [("", f"{n:,} {kind} non-members, judged apart") for kind, n in forecast.apart.items()]
    made += [
        ("settings" if at == 0 else "", name)
        for at, name in enumerate(forecast.settings)
        if len(forecast.settings) > 1
    ]
    if forecast.example:
        made.append(("example", in_a_line(forecast.example)))
    made.append(("attacks", ", ".join(forecast.attacks)))
    made.append(("control", ", ".join(forecast.control) or f"none: {forecast.control_note}"))
    if forecast.control_model is not None:
        repeated = ", ".join(forecast.repeated) or "none"
        made.append(("", f"on the control model: {repeated}"))
    if forecast.control_model_note is not None:
        made.append(("", forecast.control_model_note))
    made += [("not run", f"{name}: {why}") for name, why in sorted(forecast.skipped.items())]
    made += [
        ("requests", f"{role}: {_asked(asked)}")
        for role, asked in forecast.asked.items()
        if asked.requests or asked.texts is None
    ]
    made += [
        ("texts", f"{role}: {_written(asked.texts)}")
        for role, asked in forecast.asked.items()
        if asked.texts is not None
    ]
    made += [
        ("looks", f"{role}: {_looked(asked.looked)}")
        for role, asked in forecast.asked.items()
        if asked.looked is not None
    ]
    if forecast.requests_to_send is not None:
        most = forecast.max_requests
        allowed = "" if most is None else f", of {most:,} allowed"
        made.append(("endpoint", f"{forecast.requests_to_send:,} requests left to send{allowed}"))
    made.append(("time", _time(forecast)))
    if forecast.memory_bytes is not None:
        made.append(
            (
                "memory",
                f"{forecast.memory_bytes / 2**30:.1f} GiB {forecast.memory_basis} at most, with the "
                "models loaded and the longest of these batches run",
            )
        )
    rates = [
        f"{percent_rate(one.fpr)} {one.resolution}"
        + (f" (better with {one.needs_nonmembers:,} non-members)" if one.needs_nonmembers else "")
        for one in forecast.fpr
    ]
    made.append(("FPR", "; ".join(rates)))
    return [*made, *(("note", note) for note in forecast.notes)]


def _asked(asked: Asked) -> str:
    return (
        f"{asked.requests:,}, of them {asked.distinct:,} different and {asked.cached:,} in the cache; "
        f"left: {asked.tokens:,} tokens in {asked.batches:,} batches"
    )


def _written(texts: Written) -> str:
    from unseen.targets.endpoint import dollars

    return (
        f"{texts.prompts:,}, of them {texts.distinct:,} different and {texts.cached:,} in the cache; "
        f"left: {texts.tokens:,} tokens to read and, at most, to write"
        + ("" if texts.cost is None else f", about {dollars(texts.cost)}")
    )


def _looked(looked: Looked) -> str:
    return (
        f"{looked.looks:,}, of them {looked.distinct:,} different and {looked.cached:,} in the cache; "
        f"left: {looked.passages:,} passages of {looked.tokens:,} tokens in {looked.batches:,} batches, as "
        f"dear as reading about {looked.read:,} tokens"
    )


def _time(forecast: Forecast) -> str:
    texts = [asked.texts for asked in forecast.asked.values() if asked.texts is not None]
    looks = [asked.looked for asked in forecast.asked.values() if asked.looked is not None]
    left = [asked.batches for asked in forecast.asked.values()]
    if not any((*left, *(one.tokens for one in texts), *(one.batches for one in looks))):
        return "nothing is left to ask"
    if forecast.seconds is None:
        return "not known: no batch could be timed"
    seconds, low, high = forecast.seconds
    times = forecast.times
    return (
        f"about {_span(seconds)} of asking ({_span(low)} to {_span(high)} at the speeds of "
        f"{sum(one.batches for one in times)} batches, {sum(one.tokens for one in times):,} tokens, "
        "that were timed); preflight and statistics come on top"
    )


def _span(seconds: float) -> str:
    """A time as people say it.

    >>> _span(0.42), _span(42), _span(300), _span(9000)
    ('0.4 s', '42 s', '5 min', '2.5 h')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
