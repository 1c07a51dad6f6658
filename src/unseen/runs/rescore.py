"""A run, scored and judged again from what was measured: no model, no texts."""

from __future__ import annotations

import itertools
import shlex
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from unseen.attacks import create, label
from unseen.attacks.base import (
    FINETUNE,
    PROMPT,
    Attack,
    is_blind,
    is_fitted,
    is_fusing,
    needs_reference,
)
from unseen.attacks.transferred import Transferred
from unseen.errors import ConfigError
from unseen.runs.apart import again
from unseen.runs.config import AuditChoices, FinetuneAudit, StatisticsChoices, made_of
from unseen.runs.ending import Report, seal, write_results
from unseen.runs.folder import RunFolder
from unseen.runs.fused import obstacles, repeated, sources
from unseen.runs.inside.drifted import drifted, stability
from unseen.runs.judge import PROMPTED, TRAINED, Judge, Verdicts
from unseen.runs.lending import FILE, borrow, check_apart, kept, sketch_kept
from unseen.runs.lent import Lent, borrower, lacking, refusal
from unseen.runs.plan import of_scenario
from unseen.runs.prompt.config import PromptAudit
from unseen.runs.prompt.defended import again as defences_again
from unseen.runs.prompt.judged import again as setting_again
from unseen.runs.prompt.validity import checks as checks_of_prompt
from unseen.runs.results import Check, Results
from unseen.runs.subjects import Scored
from unseen.runs.validity import checks, conclude, of_preflight
from unseen.runs.verify import FinishedRun, finished
from unseen.signals.base import (
    CONTROL,
    REFERENCE,
    TARGET,
    LentSignal,
    Observations,
    ScoreSignal,
    Signal,
    as_control,
)
from unseen.types import Scores

_SCENARIOS = {"prompt": "prompt"}
"""Kind of audit -> the command that runs it, where that is not finetune."""

TRANSFERRED = tuple(label(Transferred(reference=with_it)) for with_it in (True, False))


def rescore(
    path: Path,
    attacks: tuple[str, ...] = (),
    *,
    trained_from: str | None = None,
    report: Report | None = None,
    **choices: Any,
) -> tuple[RunFolder, Results]:
    """Scores and judges a finished run again; results.json and records.parquet are replaced.

    Attacks whose measurements are not kept (words, and single tokens unless the run kept them)
    keep the scores that they have. Attacks that learn from scores learn anew, from all there are.

    Args:
        path: the run folder.
        attacks: specs of attacks to add to those of the run.
        trained_from: run folder or learned.json of what attacks of another run have learned: `transferred`,
            and those that borrow a classifier, use it.
        report: writes the results for people into the folder, before it is sealed.
        **choices: statistics to change: fpr, confidence, bootstrap, folds.

    Raises:
        ConfigError: where there is no run, or an attack needs what was not measured or not kept.
        StoreError: where the run is unfinished, changed or damaged.
    """
    started = time.monotonic()
    folder = RunFolder.existing(path)
    with folder.locked():
        done = finished(path)
        before, subjects, scored = done.results, done.subjects, done.scored
        config = _config(done, choices)
        lent = kept(folder) if trained_from is None else borrow(trained_from)
        if trained_from is not None:
            attacks = (*attacks, *_borrowing(lent, before, attacks, folder))
        run = _attacks(attacks, before, lent)
        observations = folder.read_observations(_signals(run), subjects.ids)
        control = _repeated(run, before, observations, REFERENCE)
        control_model = _repeated(run, before, observations, CONTROL)
        given = Scored(
            _taken_over(run, observations, scored.target, TARGET, done),
            _taken_over(control, observations, scored.control, REFERENCE, done),
            _taken_over(control_model, observations, scored.control_model, CONTROL, done),
        )
        judge = Judge(config, subjects, lent, TRAINED if before.prompt is None else PROMPTED)
        verdicts = judge.judge(run, control, observations, control_model=control_model, given=given)
        main = (judge, verdicts.scored.target)
        settings = tuple(setting_again(one, config, folder, main) for one in before.settings)
        facts = before.run.model_copy(update={"seconds": round(time.monotonic() - started, 1)})
        results = before.model_copy(
            update={
                "run": facts,
                "skipped": _skipped(before, run, lent, asked=trained_from is not None),
                "notes": _notes(before, run),
                "drift": drifted(judge, run, observations, verdicts.scored.target),
                "apart": tuple(
                    again(one, config, folder, (subjects, verdicts.scored)) for one in before.apart
                ),
                "stability": stability(judge, run, observations),
                "settings": settings,
                "defences": defences_again(
                    before, settings, config, folder, verdicts.scored.target
                ),
                **conclude(
                    verdicts, (*of_preflight(before.checks), *_checks(judge, verdicts, before))
                ),
            }
        )
        now = {name: getattr(config, name) for name in StatisticsChoices.model_fields}
        folder.unsealed()
        folder.write_json("run.json", done.about | {"config": done.config | now})
        write_results(folder, results, judge, verdicts, run, observations, lent)
        seal(folder, results, report)
    return folder, results


def _checks(judge: Judge, verdicts: Verdicts, before: Results) -> tuple[Check, ...]:
    """The checks of what was audited."""
    if before.prompt is not None:
        return checks_of_prompt(judge, verdicts, before.prompt)
    return checks(judge, verdicts, before.data)


def _borrowing(
    lent: Lent | None, before: Results, specs: tuple[str, ...], folder: RunFolder
) -> tuple[str, ...]:
    """Specs of the attacks that can use what is lent, beside those of the run and those named.

    Raises:
        ConfigError: where it was learned from the records of the run, or none can.
    """
    if lent is None:
        return ()
    if before.data is not None:
        check_apart(lent, sketch_kept(folder))
    names = [*(row.name for row in before.attacks), *(label(create(spec)) for spec in specs)]
    own = [label(borrower(create(name))) for name in lent.models if name in names]
    why = {spec: refusal(lent, create(spec), names) for spec in (*TRANSFERRED, *own)}
    able = tuple(spec for spec, reason in why.items() if reason is None)
    if not able:
        raise ConfigError(
            f"nothing can be transferred: {why[TRANSFERRED[0]]}",
            fix=_adding(specs, lacking(lent, create(TRANSFERRED[0]), names)),
        )
    return able


def _attacks(specs: tuple[str, ...], before: Results, lent: Lent | None) -> tuple[Attack, ...]:
    """The attacks named, then all of the run: scoring again adds, and takes nothing away."""
    scenario = FINETUNE if before.prompt is None else PROMPT
    named = {label(attack): attack for attack in (of_scenario(create(s), scenario) for s in specs)}
    kept = {row.name: create(row.name) for row in before.attacks}
    run = tuple((named | kept).values())
    for name, why in obstacles(run).items():
        raise ConfigError(
            f"attack {name} cannot be run: {why}",
            fix="name more attacks: --attacks NAME --attacks NAME",
        )
    labels = [label(attack) for attack in run]
    for attack in run:
        if (reason := refusal(lent, attack, labels)) is not None:
            raise ConfigError(
                f"attack {label(attack)} cannot be run: {reason}",
                fix=_adding(specs, lacking(lent, attack, labels)),
            )
    return run


def _adding(specs: tuple[str, ...], more: list[str]) -> str:
    """What to type where a fusion weighs attacks that the run has not."""
    if not more:
        return "unseen score RUN --trained-from RUN"
    return f"--attacks {shlex.quote(','.join(dict.fromkeys([*specs, *more])))}"


def _skipped(
    before: Results, run: tuple[Attack, ...], lent: Lent | None, *, asked: bool
) -> dict[str, str]:
    """Attacks that are not in the run, and why not, as things are now.

    Args:
        before: what the run has said.
        run: its attacks now.
        lent: what it has taken from another run.
        asked: whether the user wants everything run that can use it.
    """
    labels = [label(attack) for attack in run]
    found = {}
    for name in dict.fromkeys(
        [*before.skipped, *(TRANSFERRED if asked and before.prompt is None else ())]
    ):
        if name in labels:
            continue
        attack = create(name)
        why: str | None = before.skipped.get(name, "")
        if is_fusing(attack):
            beside = (*run, attack)
            why = refusal(lent, attack, labels) or (obstacles(beside) | repeated(beside)).get(name)
        found[name] = why or f"it can be: unseen score RUN --attacks '{name}'"
    return found


def _notes(before: Results, run: tuple[Attack, ...]) -> tuple[str, ...]:
    """What the reader should know of a run that was scored again."""
    had = [create(row.name) for row in before.attacks]
    notes = list(before.notes)
    for attack in had:
        old, new = sources(attack, had), sources(attack, run)
        if is_fusing(attack) and is_fitted(attack) and set(old) != set(new):
            more = ", ".join(sorted(set(new) - set(old)))
            notes.append(
                f"{label(attack)} has learned again, with {more} beside the {len(old)} attacks that "
                f"it knew: its scores are others than before, and so are the weights in {FILE}"
            )
    return tuple(notes)


def _repeated(
    run: tuple[Attack, ...], before: Results, observations: Observations, role: str
) -> tuple[Attack, ...]:
    """The attacks that the run repeated on the model in `role`, and those that can be now."""
    names = {row.name for row in before.control if (row.model or REFERENCE) == role}
    if not names:
        return ()
    # A control model of the target's own format is compared with the reference just as the target is.
    compared = role == CONTROL and "format" not in (before.control_model or {})
    return tuple(
        attack
        for attack in run
        if label(attack) in names
        or (
            not (is_blind(attack) or is_fusing(attack))
            and (compared or not needs_reference(attack))
            and _measured(_asked_of(attack, role), observations)
        )
    )


def _taken_over(
    attacks: tuple[Attack, ...],
    observations: Observations,
    had: Mapping[str, Scores],
    role: str,
    done: FinishedRun,
) -> dict[str, Any]:
    """Scores of the attacks on the model in `role` that cannot be made again from what was kept."""
    taken = {}
    for attack in attacks:
        if _measured(_asked_of(attack, role), observations):
            continue
        name = label(attack)
        if name not in had:
            raise _lacking(attack, done)
        taken[name] = had[name]
    return taken


def _lacking(attack: Attack, done: FinishedRun) -> ConfigError:
    """Why an attack cannot be added to a run, and the command that runs it."""
    name, aside = label(attack), "what is in the cache is not asked again"
    if any(getattr(signal, "private", False) for signal in attack.signals()):
        why = "no run folder keeps: text could be read back from it"
    else:
        why = "this run has not measured, or not kept"
        aside = f"{aside}; --keep-tokens lets unseen score add attacks"
    return ConfigError(f"attack {name} needs what {why}", fix=f"{_anew(done, name)}   ({aside})")


def _anew(done: FinishedRun, name: str) -> str:
    """The command that runs the same audit with one attack more, in a folder of its own."""
    path = done.folder.path
    specs = [*done.config.get("attacks", ()), name]
    folders = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    folder = next(folder for folder in folders if not folder.exists())
    words = [
        "unseen",
        "audit",
        _SCENARIOS.get(done.results.run.scenario, "finetune"),
        "--config",
        str(path / "config.yaml"),
    ]
    words += ["--run-dir", str(folder), "--attacks", ",".join(specs)]
    return shlex.join(words)


def _measured(signals: Iterable[Signal], observations: Observations) -> bool:
    """Whether all is there; scores are made again in any case."""
    return all(
        isinstance(signal, ScoreSignal | LentSignal) or signal in observations.values
        for signal in signals
    )


def _signals(run: tuple[Attack, ...]) -> list[Signal]:
    roles = (TARGET, REFERENCE, CONTROL)
    return list(
        dict.fromkeys(one for role in roles for attack in run for one in _asked_of(attack, role))
    )


def _asked_of(attack: Attack, role: str) -> list[Signal]:
    """What the attack measures where the model in `role` is attacked."""
    return [as_control(signal, role) for signal in attack.signals()]


def _config(done: FinishedRun, choices: dict[str, Any]) -> AuditChoices:
    kind: type[AuditChoices] = FinetuneAudit if done.results.prompt is None else PromptAudit
    given = {k: v for k, v in done.config.items() if k in kind.model_fields}
    return made_of(kind, given | choices)
