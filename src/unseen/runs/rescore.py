"""A run, scored and judged again from what was measured: no model, no texts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from unseen.attacks import create, label
from unseen.attacks.base import Attack, is_blind
from unseen.errors import ConfigError, StoreError
from unseen.runs.config import FinetuneAudit, configure
from unseen.runs.folder import RunFolder
from unseen.runs.judge import Judge, Subjects
from unseen.runs.results import Results
from unseen.signals.base import REFERENCE, TARGET, Observations, Signal, asked_of
from unseen.types import Scores


def rescore(path: Path, attacks: tuple[str, ...] = (), **choices: Any) -> tuple[RunFolder, Results]:
    """Scores and judges a finished run again; results.json and records.parquet are replaced.

    Scores of attacks whose signals are never kept (word counts) are taken over as they are.

    Args:
        path: the run folder.
        attacks: specs of attacks to add to those of the run.
        **choices: statistics to change: fpr, confidence, bootstrap, folds.

    Raises:
        ConfigError: where there is no run, or an attack needs what was not measured.
        StoreError: where the run is unfinished or damaged.
    """
    started = time.monotonic()
    folder = RunFolder.existing(path)
    about = folder.read_json("run.json")
    if about.get("status") != "complete":
        raise StoreError(
            f"{path} is not finished", fix="run the command that began it again: it continues"
        )
    before = _results(folder)
    config = _config(about, choices)
    subjects, scored = Subjects.from_table(folder.read_table("records.parquet"))
    run = _attacks(attacks, before)
    observations = folder.read_observations(_signals(run), subjects.ids)
    given = _taken_over(run, observations, scored, path)
    control = tuple(
        attack for attack in run if before.control and _repeatable(attack, observations)
    )
    judge = Judge(config, subjects)
    verdicts = judge.judge(run, control, observations, given=given)
    facts = before.run.model_copy(update={"seconds": round(time.monotonic() - started, 1)})
    results = before.model_copy(
        update={
            "run": facts,
            "attacks": verdicts.attacks,
            "control": verdicts.control,
            "headline": verdicts.headline,
            "headline_note": verdicts.headline_note,
            "slices": verdicts.slices,
        }
    )
    folder.write_table("records.parquet", judge.table(verdicts))
    folder.write_json("results.json", results.model_dump(mode="json"))
    return folder, results


def _attacks(specs: tuple[str, ...], before: Results) -> tuple[Attack, ...]:
    """The attacks named, then all of the run: scoring again adds, and takes nothing away."""
    named = {label(attack): attack for attack in map(create, specs)}
    kept = {row.name: create(row.name) for row in before.attacks}
    return tuple((named | kept).values())


def _taken_over(
    run: tuple[Attack, ...], observations: Observations, scored: dict[str, Scores], path: Path
) -> dict[str, Scores]:
    taken: dict[str, Scores] = {}
    for attack in run:
        if all(signal in observations.values for signal in attack.signals()):
            continue
        name = label(attack)
        if name not in scored:
            raise ConfigError(
                f"attack {name} needs what this run has not measured",
                fix=f"unseen audit finetune --config {path / 'config.yaml'} --attacks {name}",
            )
        taken[name] = scored[name]
    return taken


def _repeatable(attack: Attack, observations: Observations) -> bool:
    """Whether everything that the attack needs was measured of the reference too."""
    return not is_blind(attack) and all(
        signal.of == TARGET and twin in observations.values
        for signal, twin in zip(attack.signals(), _on_reference(attack), strict=True)
    )


def _signals(run: tuple[Attack, ...]) -> list[Signal]:
    own = [signal for attack in run for signal in attack.signals()]
    twins = [twin for attack in run for twin in _on_reference(attack)]
    return list(dict.fromkeys(own + twins))


def _on_reference(attack: Attack) -> list[Signal]:
    return [asked_of(signal, REFERENCE) for signal in attack.signals()]


def _results(folder: RunFolder) -> Results:
    try:
        return Results.model_validate(folder.read_json("results.json"))
    except ValidationError as error:
        raise StoreError(
            f"{folder.path / 'results.json'} does not fit this version of unseen "
            f"({error.error_count()} faults)",
            fix="run the audit again with this version",
        ) from error


def _config(about: dict[str, Any], choices: dict[str, Any]) -> FinetuneAudit:
    given = {k: v for k, v in about["config"].items() if k in FinetuneAudit.model_fields}
    return configure(**(given | choices))
