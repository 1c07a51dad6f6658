"""Before an audit of a prompt: proof that the model answers, and that it answers alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unseen.errors import UnscorableError
from unseen.runs.preflight import conclude, kept, preflight
from unseen.runs.results import Check
from unseen.signals.base import TARGET, LikelihoodSignal, Signal
from unseen.targets.access import Withheld, is_withheld

if TYPE_CHECKING:
    from unseen.prompts.behind import HiddenPrompts
    from unseen.runs.collect import Model
    from unseen.runs.folder import RunFolder
    from unseen.runs.prompt.config import PromptAudit
    from unseen.runs.prompt.settings import Setting

ID = "answers"
_TITLE = "the model answers, and twice alike"
_N = 4
_LONGEST = 8
_STREAM = 2
_EXACT = ("float64", "float32")


def checked_first(
    config: PromptAudit,
    model: Model,
    setting: Setting,
    signals: Sequence[Signal],
    folder: RunFolder,
    about: dict[str, Any],
    say: Callable[[str], None],
) -> tuple[Check, ...]:
    """The checks of a run, made once for its folder, or read where they were made before.

    Args:
        config: whether there are any, and the seed.
        model: the target.
        setting: the main one.
        signals: that will be measured.
        folder: the run folder.
        about: its header, run.json, which keeps the checks.
        say: told a line for each check.

    Raises:
        PreflightError: where a check fails; the header then says which.
    """
    if not config.preflight:
        return (Check(id=ID, title=_TITLE, status="skip", detail="switched off: --no-preflight"),)
    checks = kept(about) or made(model, setting, signals, seed=config.seed)
    conclude(checks, folder, about, say)
    return checks


def made(
    model: Model, setting: Setting, signals: Sequence[Signal], *, seed: int
) -> tuple[Check, ...]:
    """Whether text can be relied on, and, where likelihoods are asked for, those too."""
    first = _answers(model, setting, seed)
    if not any(isinstance(signal, LikelihoodSignal) for signal in signals):
        return (first,)
    records = setting.records
    of_likelihoods = preflight({TARGET: model}, records.members, records.nonmembers, seed=seed)
    return (
        first,
        *(check for check in of_likelihoods if check.id not in ("template", "adapter_effect")),
    )


def _answers(model: Model, setting: Setting, seed: int) -> Check:
    """Asks a few questions alone, and again together."""
    about = {"id": ID, "title": _TITLE, "limit": "the same text each time"}
    hidden = setting.behind(model.encoder, control=False)[TARGET]
    prompts = _some(hidden, setting, seed)
    if not prompts:
        return Check(**about, status="skip", detail="no prompt fits into the context")
    alone = [_written(model, [prompt])[0] for prompt in prompts]
    together = _written(model, prompts)
    n_other = sum(one != other for one, other in zip(alone, together, strict=True))
    found = f"{n_other} of {len(prompts)} answers differ, asked alone and then together"
    reasons = {Withheld(ids[0]).reason for ids in alone if is_withheld(ids)}
    if all(map(is_withheld, alone)):
        return Check(
            **about,
            status="fail",
            value=0.0,
            detail=f"none of {len(prompts)} questions is answered: {'; '.join(sorted(reasons))}",
            fix="a model that thinks first uses the tokens of its answer up: name one that does not; fewer "
            "--shots make prompts shorter",
        )
    if not any(alone):
        return Check(
            **about,
            status="fail",
            value=0.0,
            detail="the model writes nothing after the prompt",
            fix="--chat for a model that is talked to; does the template end where an answer begins?",
        )
    exact = model.target.describe().get("dtype", "") in _EXACT
    if n_other and exact:
        return Check(
            **about,
            status="fail",
            value=n_other / len(prompts),
            detail=f"{found}: an answer depends on what else is asked, or is drawn at random",
            fix="likely causes: padding that is not masked, or sampling that is switched on",
        )
    status = "warn" if n_other else "pass"
    more = ": rounding of this precision, or sampling" if n_other else ""
    return Check(**about, status=status, value=n_other / len(prompts), detail=f"{found}{more}")


def _some(hidden: HiddenPrompts, setting: Setting, seed: int) -> list[tuple[int, ...]]:
    order = np.random.default_rng([seed, _STREAM]).permutation(len(setting.cases))
    found: list[tuple[int, ...]] = []
    for place in order.tolist():
        case = setting.cases[place]
        try:
            found.append(hidden.prompt(case.id, hidden.asked(case.example.text)))
        except UnscorableError:
            continue
        if len(found) == _N:
            break
    return found


def _written(model: Model, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    return model.target.generate(prompts, max_new_tokens=_LONGEST)
