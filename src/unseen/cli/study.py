"""`unseen study`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from cyclopts import App, Parameter

from unseen.cli.codes import DONE, FAILED, INCONCLUSIVE
from unseen.cli.output import out, progress, say
from unseen.runs.studies.config import AttackStudy, TrainStudy

app = App(name="study", help="One question at several points: a table and a plot, as in the paper.")


def _audits(name: str, doc: str) -> None:
    def command(
        *,
        config: Annotated[AttackStudy, Parameter(name="*")] = AttackStudy(),  # noqa: B008 (frozen)
        json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
    ) -> int:
        return _study(name, config, json_=json_)

    _named(command, name, doc)


def _trains(name: str, doc: str) -> None:
    def command(
        *,
        config: Annotated[TrainStudy, Parameter(name="*")] = TrainStudy(),  # noqa: B008 (frozen)
        json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
    ) -> int:
        return _study(name, config, json_=json_)

    _named(command, name, doc)


def _named(command: Callable[..., int], name: str, doc: str) -> None:
    command.__name__ = name.replace("-", "_")
    command.__doc__ = f"""{doc}

    The same command again continues a study that was stopped.

    Args:
        config: the study.
        json_: print study.json instead of the table.
    """
    app.command(command, name=name)


_audits("probes", "How many probes does in-context probing need? --values 1,5,10,15,20,50")
_audits("mask-rate", "How much of a response should a probe mask? --values 0.1,0.5,0.9")
_audits("masking", "Which tokens should a probe mask: random, or the least or most likely?")
_audits("sources", "Where should probes come from? --values mask,generate,file,ref")
_audits("pools", "How much does the reference pool matter? --values one.jsonl,other.jsonl")
_audits("residual", "What if the base model had seen the non-members? --pretraining FILE")
_trains("peft", "Does parameter-efficient fine-tuning leak less? --values full,lora-32,ia3")
_trains("epsilon", "Does differential privacy protect? --values 10,50,100,none")
_trains("epochs", "How does leakage grow with training? --values 1,2,3")
_trains("order", "Are records that were seen late more exposed? --values 10 (partitions)")


def _study(name: str, config: AttackStudy | TrainStudy, *, json_: bool) -> int:
    from unseen.api import study
    from unseen.report.study import show

    with progress() as tell:
        done = study(name, config=config, progress=tell, note=say)
    if json_:
        print(done.results.model_dump_json(indent=1))
    else:
        show(done.results, out())
        say(f"report   {done.folder / 'study.html'}")
    if any(row.failure for row in done.results.rows):
        return FAILED
    return INCONCLUSIVE if done.results.invalid else DONE
