"""The settings of a prompt beside the main one: judged by themselves, and held against it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from unseen.attacks import create, label
from unseen.runs.fused import is_learnt
from unseen.runs.judge import PROMPTED, Judge
from unseen.runs.plan import Plan
from unseen.runs.results import SettingResult, Shift
from unseen.runs.subjects import Scored, Subjects
from unseen.signals.base import TARGET, Observations, Signal
from unseen.signals.flipped import Flips
from unseen.types import Scores

if TYPE_CHECKING:
    from unseen.runs.config import StatisticsChoices
    from unseen.runs.folder import RunFolder


def unparsed(plan: Plan, observations: Observations) -> dict[str, float]:
    """Share of the answers that were none of those asked for, by attack that reads answers."""
    found = {}
    for attack in plan.attacks:
        flags = [
            float(np.mean(value.parsed))
            for signal in attack.signals()
            if signal.of == TARGET
            for value in observations.values.get(signal, {}).values()
            if hasattr(value, "parsed")
        ]
        if flags:
            found[label(attack)] = 1 - float(np.mean(flags))
    return found


def insisted(plan: Plan, observations: Observations) -> dict[str, dict[str, float]]:
    """How often insisting on a wrong label led to nothing, as fields of results, by attack that does.

    Attacks that insist alike are named once, by the first.
    """
    never: dict[str, float] = {}
    no_room: dict[str, float] = {}
    told: set[Signal] = set()
    for attack in plan.attacks:
        for signal in attack.signals():
            seen = list(observations.values.get(signal, {}).values())
            if getattr(signal, "gives", None) is not Flips or signal in told or not seen:
                continue
            told.add(signal)
            never[label(attack)] = float(np.concatenate([one.censored for one in seen]).mean())
            no_room[label(attack)] = float(np.concatenate([one.cut for one in seen]).mean())
    return {"never": never, "no_room": no_room}


def judged_setting(
    about: SettingResult,
    judge: Judge,
    plan: Plan,
    scored: Scored,
    main: tuple[Judge, Mapping[str, Scores]],
) -> SettingResult:
    """What a setting shows, and how far that is from the main one.

    Args:
        about: the setting; rows that it has are replaced.
        judge: of this setting.
        plan: attacks, and those that are repeated.
        scored: their scores.
        main: the judge of the main setting, and its scores.
    """
    rows, controls = judge.rows(plan.attacks, plan.control, (), scored)
    first, own = main
    differences = []
    for row in rows:
        if row.kind == "attack" and row.name in own:
            gain = first.gain(
                row.name,
                "main",
                own[row.name],
                scored.target[row.name],
                learnt=is_learnt(row),
            )
            differences.append(Shift(attack=row.name, difference=gain.difference, note=gain.note))
    return about.model_copy(
        update={
            "attacks": tuple(row.model_copy(update={"roc": None}) for row in rows),
            "control": tuple(row.model_copy(update={"roc": None}) for row in controls),
            "differences": tuple(differences),
        }
    )


def file_of(name: str) -> str:
    """Where a run keeps the scores of a setting."""
    return f"settings/{name}.parquet"


def again(
    before: SettingResult,
    choices: StatisticsChoices,
    folder: RunFolder,
    main: tuple[Judge, Mapping[str, Scores]],
) -> SettingResult:
    """The same scores with other statistics; attacks that a run has added since are not among them.

    Raises:
        StoreError: where the scores are missing or damaged.
    """
    subjects, scored = Subjects.from_table(folder.read_table(file_of(before.name)))
    plan = Plan(
        tuple(create(row.name) for row in before.attacks),
        tuple(create(row.name) for row in before.control),
        {},
        None,
    )
    return judged_setting(before, Judge(choices, subjects, said=PROMPTED), plan, scored, main)
