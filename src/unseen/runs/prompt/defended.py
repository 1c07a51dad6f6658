"""What a defence takes from attackers, and what it costs.

A defence is judged twice. An attacker who does not know of it keeps the thresholds, and whatever else was
learned, from the prompt without it: so attackers of today are told. One who knows of it learns anew, from
other defended trials: so are those of tomorrow. Of both, what is learned comes from other trials than it is
judged on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unseen.attacks import label
from unseen.attacks.base import Attack, is_fitted, is_fusing
from unseen.defenses import UNDEFENDED
from unseen.errors import TooFewRecordsError
from unseen.metrics.advantage import advantage
from unseen.metrics.crossfit import tpr_at_fitted_threshold
from unseen.runs.fused import gathered, is_learnt, restated, widened
from unseen.runs.judge import PROMPTED, Judge
from unseen.runs.prompt.judged import file_of
from unseen.runs.results import Attacker, AttackResult, Defence, Defended, GuaranteeFacts, Number
from unseen.runs.subjects import Subjects
from unseen.signals.base import Observations
from unseen.types import Estimate, FloatArray, IntArray, Scores

if TYPE_CHECKING:
    from unseen.defenses.base import Guarantee
    from unseen.runs.config import StatisticsChoices
    from unseen.runs.folder import RunFolder
    from unseen.runs.results import Results, SettingResult


@dataclass(frozen=True)
class Seen:
    """What was measured of a setting, and what attacks said of it.

    Attributes:
        observations: of its cases.
        scores: attack -> scores.
    """

    observations: Observations
    scores: Mapping[str, Scores]


def fixed_scores(
    judge: Judge, attacks: Sequence[Attack], before: Seen, after: Seen
) -> dict[str, Scores]:
    """Attack -> scores of the defended trials, by what it has learned from others without the defence.

    An attack that learns nothing says the same as anybody.

    Args:
        judge: of these trials: its folds say from which others is learned.
        attacks: all of the run.
        before: the same trials without the defence.
        after: with it.
    """
    made: dict[str, Scores] = {}
    for attack in sorted(attacks, key=is_fusing):
        name = label(attack)
        if not is_fitted(attack):
            made[name] = after.scores[name]
            continue
        learn_from, judged = before.observations, after.observations
        if is_fusing(attack):
            learn_from = gathered(attack, attacks, before.scores, learn_from)
            judged = gathered(attack, attacks, made, judged)
        made[name] = judge.score(attack, judged, learn_from=learn_from)
    return made


def defence(
    about: Defence,
    judge: Judge,
    rows: Sequence[AttackResult],
    before: Mapping[str, Scores],
    after: Mapping[str, Scores],
    fixed: Mapping[str, Scores],
) -> Defence:
    """Every attack before a defence and against it.

    Args:
        about: the defence and its cost; attacks that it has are replaced.
        judge: of the defended trials.
        rows: of the attacks on them.
        before: attack -> scores without the defence.
        after: attack -> scores with it, of attackers who know of it.
        fixed: the same of those who do not.
    """
    fpr = judge.rate
    found = []
    for row in rows:
        name = row.name
        if row.kind != "attack" or name not in before:
            continue
        learnt = is_learnt(row)
        gain = judge.gain(name, UNDEFENDED, before[name], after[name], learnt=learnt)
        found.append(
            Defended(
                attack=name,
                before=_attacker(judge, fpr, before[name], learnt=learnt),
                fixed=_attacker(judge, fpr, fixed[name], before[name], learnt=learnt),
                recalibrated=_attacker(judge, fpr, after[name], learnt=learnt),
                difference=gain.difference,
            )
        )
    return about.model_copy(update={"fpr": fpr, "attacks": tuple(found)})


def again(
    before: Results,
    settings: Sequence[SettingResult],
    choices: StatisticsChoices,
    folder: RunFolder,
    main: Mapping[str, Scores],
) -> tuple[Defence, ...]:
    """The same scores with other statistics.

    Args:
        before: what the run has said; what defences cost is taken over.
        settings: of the run, judged again.
        choices: statistics.
        folder: holds the scores of the settings.
        main: attack -> scores of the main setting.

    Raises:
        StoreError: where scores are missing or damaged.
    """
    about = before.prompt
    by_name = {one.name: one for one in settings}
    kept = {
        name: Subjects.from_table(folder.read_table(file_of(name)))
        for name in by_name
        if before.defences
    }
    undefended = {
        (one.shots, one.position): kept[one.name][1].target
        for one in settings
        if one.name in kept and one.defense == UNDEFENDED
    }
    if about is not None:
        undefended[about.shots or 0, about.position or ""] = main
    return tuple(
        defence(
            one,
            Judge(choices, kept[one.name][0], said=PROMPTED),
            by_name[one.name].attacks,
            undefended[one.shots, one.position],
            kept[one.name][1].target,
            kept[one.name][1].fixed,
        )
        for one in before.defences
    )


def guarantee_facts(given: Guarantee | None) -> GuaranteeFacts | None:
    """A guarantee as results.json holds it."""
    if given is None:
        return None
    return GuaranteeFacts(**dataclasses.asdict(given))


def _attacker(
    judge: Judge,
    fpr: float | None,
    scores: Scores,
    chosen_on: Scores | None = None,
    *,
    learnt: bool,
) -> Attacker:
    """How far scores get with thresholds that come from others.

    Args:
        judge: whose folds say which are others.
        fpr: that thresholds are set for.
        scores: that are judged.
        chosen_on: of the same trials, that thresholds are set on instead; trials without a score of
            either kind are left out.
        learnt: whether the scores were learnt from other trials.
    """
    folds, subjects = judge.folds, judge.subjects
    if folds is None:
        return Attacker(note="there are too few trials to set thresholds on others")
    values, others, found = _aligned(subjects.ids, scores, chosen_on or scores)
    member = subjects.member[found]
    if not member.any() or member.all():
        return Attacker(note="no records of one side have a score")
    clusters = None if subjects.clusters is None else [subjects.clusters[i] for i in found]
    confidence = judge.choices.confidence
    options: dict[str, Any] = {
        "confidence": widened(confidence) if learnt else confidence,
        "clusters": clusters,
        "chosen_on": others,
    }

    def said(estimate: Estimate) -> Number:
        number = Number.of(estimate)
        return restated(number, confidence) if learnt else number

    kept = Scores(tuple(subjects.ids[i] for i in found), values)
    try:
        auc = judge.auc(kept, confidence, learnt=learnt)
        gap = advantage(values, member, folds[found], **options)
        if fpr is None:
            return Attacker(auc=auc, advantage=said(gap))
        at = tpr_at_fitted_threshold(values, member, folds[found], fpr, **options)
    except TooFewRecordsError as error:
        return Attacker(note=error.problem)
    except ValueError:  # a fold is left with one side
        return Attacker(note="too few trials have a score to set thresholds on others")
    return Attacker(auc=auc, advantage=said(gap), tpr=said(at.tpr), fpr=said(at.fpr))


def _aligned(
    ids: Sequence[str], scores: Scores, others: Scores
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Values of both, and the places of the records that both have scored."""
    first, second = (
        dict(zip(one.ids, one.values.tolist(), strict=True)) for one in (scores, others)
    )
    found = np.array([i for i, id_ in enumerate(ids) if id_ in first and id_ in second], dtype=int)
    return (
        np.array([first[ids[i]] for i in found]),
        np.array([second[ids[i]] for i in found]),
        found,
    )
