"""What one step of gradient ascent on each record shows (G-Drift), from what was measured alone.

How long the step was, what each feature of the classifier is worth (Table 2 of the paper), what the
paper's own way of judging gives (section 4.3), how far the drifts of both sides lie apart (Figure 3), and
whether they stay the same under paraphrase (Table 3).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from unseen.attacks import create, label
from unseen.attacks.g_drift import FEWEST, GradientDriftAttack, table
from unseen.attacks.g_drift_stability import ParaphraseStability
from unseen.errors import TooFewRecordsError
from unseen.metrics.correlation import difference, mean, spearman
from unseen.metrics.repeats import repeated
from unseen.metrics.splits import fixed_aucs, learnt_aucs, splits
from unseen.runs.results import (
    DriftReport,
    DriftShape,
    DriftStability,
    DriftStep,
    FeatureSet,
    Middle,
    Number,
    OnSplits,
    Sides,
    SplitProtocol,
    SplitRow,
    Steadiness,
)

if TYPE_CHECKING:
    from unseen.attacks.base import Attack
    from unseen.runs.judge import Judge
    from unseen.signals.base import Observations, Signal
    from unseen.signals.gradient_drift import Drift
    from unseen.types import BoolArray, FloatArray, Scores

# The paper asks for a step that changes something "without destabilizing the model". Of a drift of a
# tenth of |h|, what is left out of a first-order account is about a hundredth of it; beyond, the state
# is another one, and what is compared is no longer the model and its neighbour.
MOST_MOVEMENT = 0.1
"""Median of |h' - h| / |h|, above which a step is not small."""

LEAST_COSINE = 0.9
"""Median of the cosine of h and h', below which a step is not small."""

OFFERED_MOVEMENT = 0.05
"""Median of |h' - h| / |h| of the step that is offered instead."""

N_QUANTILES = 21
"""Of each side, from the smallest to the largest, 5 % apart."""

ALL = "all"
ABLATION = {
    ALL: "",
    "all but loss before": "loss_before",
    "all but logit before": "logit_before",
    "all but projection before": "projection_before",
    "all but loss after": "loss_after",
    "all but logit after": "logit_after",
    "all but projection after": "projection_after",
    "all but drift": "drift",
    "all but what is before": "before",
    "all but what is after": "after",
    "all but loss": "loss",
    "all but logit": "logit",
    "all but projection": "projection",
    "drift alone": "before+after",
    "projections alone": "loss+logit+drift",
    "loss before alone": "loss_after+logit+projection+drift",
}
"""The rows of Table 2 in their order, then features that stand alone; and what is left out for each."""

N_SPLITS = 20
"""Random splits by 7 : 1 : 2: section 4.3 has one."""

LEARNT_SHARE = 0.7
"""Of the records, to learn from in each split."""

CLASSIFIER = "all features, learnt"
LOSS = "loss"
"""The attack that the classifier is held against."""

FIRST_LOSS = "loss of the same tokens"
"""L before the step, without any training: the first of the features."""

ShapeName = Literal["loss", "logit", "projection", "state"]

_SPLITS, _REPEATS = 20, 21  # streams of random numbers beside those of `judge`


@dataclass(frozen=True)
class _Seen:
    """Records that a step was taken on: n drifts, membership, (n,), and clusters where there are any."""

    ids: tuple[str, ...]
    drifts: tuple[Drift, ...]
    member: BoolArray
    clusters: tuple[int | str | None, ...] | None

    def of(self, name: str) -> FloatArray:
        """A number of each record, (n,)."""
        return np.array([getattr(one, name) for one in self.drifts], dtype=np.float64)

    def select(self, some: Sequence[bool]) -> _Seen:
        """The same, of some records."""
        places = np.flatnonzero(some)
        return _Seen(
            tuple(self.ids[i] for i in places),
            tuple(self.drifts[i] for i in places),
            self.member[places],
            None if self.clusters is None else tuple(self.clusters[i] for i in places),
        )

    @property
    def n(self) -> tuple[int, int]:
        """Members and non-members."""
        return int(self.member.sum()), int((~self.member).sum())


def drifted(
    judge: Judge,
    attacks: Sequence[Attack],
    observations: Observations,
    made: Mapping[str, Scores],
) -> DriftReport | None:
    """Everything that the section about steps says; None where none was taken on both sides.

    Args:
        judge: of the run: records, folds, intervals.
        attacks: of the run.
        observations: what was measured.
        made: attack -> its scores of the target.
    """
    stepping = [attack for attack in attacks if isinstance(attack, GradientDriftAttack)]
    seen = {attack: _seen(judge, attack, observations) for attack in stepping}
    stepping = [attack for attack in stepping if 0 not in seen[attack].n]
    if not stepping:
        return None
    steps = _steps(stepping, seen, judge.choices.confidence)
    main = _main(stepping)
    return DriftReport(
        steps=tuple(_offering(step, steps) for step in steps),
        floor=_floor(steps),
        attack=label(main),
        features=ablation(judge, main, observations, made),
        protocol=protocol(judge, seen[main], made.get(LOSS)),
        shapes=tuple(shapes(seen[main], judge.choices.confidence)),
    )


def stability(
    judge: Judge, attacks: Sequence[Attack], observations: Observations
) -> DriftStability | None:
    """How far drifts are the same under paraphrase (Table 3); None where that was not asked.

    Args:
        judge: of the run.
        attacks: of the run; the first that asks for it is told.
        observations: what was measured.
    """
    attack = next((attack for attack in attacks if isinstance(attack, ParaphraseStability)), None)
    if attack is None:
        return None
    (signal,) = attack.signals()
    judged, values = judge.subjects, observations.values.get(signal, {})
    places = np.flatnonzero([id_ in values for id_ in judged.ids])
    moved: list[FloatArray] = [values[judged.ids[i]].moved for i in places]
    member = judged.member[places]
    sides = [np.flatnonzero(side).tolist() for side in (member, ~member)]
    missing = observations.missing.get(signal, {})
    about = {
        "attack": label(attack),
        "n": tuple(map(len, sides)),
        "n_paraphrases": sum(len(one) - 1 for one in moved),
        "unscored": dict(Counter(missing[id_] for id_ in judged.ids if id_ in missing)),
    }

    def of_side(side: Sequence[int]) -> list[Any] | None:
        return None if judged.clusters is None else [judged.clusters[places[i]] for i in side]

    try:
        found = repeated(
            *([moved[i] for i in side] for side in sides),
            rng=np.random.default_rng([judge.choices.seed, _REPEATS]),
            confidence=judge.choices.confidence,
            draws=judge.choices.bootstrap,
            clusters=(of_side(sides[0]), of_side(sides[1])),
        )
    except TooFewRecordsError as error:
        return DriftStability(**about, note=error.problem)
    members, nonmembers, apart = (
        Steadiness(
            size=Number.of(one.size),
            spread=Number.of(one.spread),
            agreement=None if one.agreement is None else Number.of(one.agreement),
        )
        for one in found
    )
    return DriftStability(**about, members=members, nonmembers=nonmembers, difference=apart)


def _seen(judge: Judge, attack: GradientDriftAttack, observations: Observations) -> _Seen:
    (signal,) = attack.signals()
    values = observations.values.get(signal, {})
    judged = judge.subjects
    everybody: tuple[Any, ...] = tuple(values.get(id_) for id_ in judged.ids)
    return _Seen(judged.ids, everybody, judged.member, judged.clusters).select(
        [drift is not None for drift in everybody]
    )


def _main(attacks: Sequence[GradientDriftAttack]) -> GradientDriftAttack:
    """The attack that is shown in full: the default one, or else the first that takes a step."""
    stepping = [attack for attack in attacks if attack.eta > 0] or list(attacks)
    default = GradientDriftAttack()
    return default if default in stepping else stepping[0]


# --- the step -----------------------------------------------------------------------------------


def _steps(
    attacks: Iterable[GradientDriftAttack],
    seen: Mapping[GradientDriftAttack, _Seen],
    confidence: float,
) -> list[DriftStep]:
    """Each step once, however many attacks look at it."""
    first: dict[tuple[Signal, ...], GradientDriftAttack] = {}
    for attack in attacks:
        first.setdefault(attack.signals(), attack)
    return [_step(attack, seen[attack], confidence) for attack in first.values()]


def _step(attack: GradientDriftAttack, seen: _Seen, confidence: float) -> DriftStep:
    loss, drift = seen.of("loss"), seen.of("drift")
    rank = spearman(loss, drift, seen.member, confidence)
    movement = _sides(drift / np.maximum(seen.of("norm"), np.finfo(np.float64).tiny), seen.member)
    cosine = _sides(seen.of("cosine"), seen.member)
    return DriftStep(
        attack=label(attack),
        eta=attack.eta,
        tokens=attack.tokens,
        state=attack.state,
        weights=attack.weights,
        n=seen.n,
        n_literal=int(seen.of("literal").sum()),
        movement=movement,
        cosine=cosine,
        ascent=_sides(seen.of("loss_after") - loss, seen.member),
        rank=None if rank is None else Number.of(rank),
        small=movement.all.median <= MOST_MOVEMENT and cosine.all.median >= LEAST_COSINE,
    )


def _sides(values: FloatArray, member: BoolArray) -> Sides:
    return Sides(
        all=_middle(values), members=_middle(values[member]), nonmembers=_middle(values[~member])
    )


def _middle(values: FloatArray) -> Middle:
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    return Middle(median=median, half=(low, high), n=len(values))


def _offering(step: DriftStep, steps: Iterable[DriftStep]) -> DriftStep:
    """The step with the eta of one that would be small, where it is not."""
    if step.small:
        return step
    alike = {
        other.eta: other.movement.all.median
        for other in steps
        if (other.tokens, other.state, other.weights) == (step.tokens, step.state, step.weights)
        and other.eta > 0
        and other.movement.all.median > 0
    }
    if not alike:
        return step
    points = sorted((np.log(eta), np.log(moved)) for eta, moved in alike.items())
    wanted = np.log(OFFERED_MOVEMENT)
    for (x, y), (next_x, next_y) in pairwise(points):
        if y != next_y and min(y, next_y) <= wanted <= max(y, next_y):
            eta = np.exp(x + (wanted - y) / (next_y - y) * (next_x - x))
            return _with_offer(step, eta, "interpolation")
    # A small step moves the state in proportion; the nearest that was taken knows best.
    x, y = min(points, key=lambda point: abs(point[1] - wanted))
    return _with_offer(step, np.exp(x + wanted - y), "scaling")


def _with_offer(step: DriftStep, eta: float, how: str) -> DriftStep:
    rounded = float(f"{eta:.2g}")
    spec = label(dataclasses.replace(cast("Any", create(step.attack)), eta=rounded))
    return step.model_copy(update={"offered": spec, "offered_eta": rounded, "offered_by": how})


def _floor(steps: Iterable[DriftStep]) -> float | None:
    return next((step.movement.all.median for step in steps if step.eta == 0), None)


# --- Table 2 ------------------------------------------------------------------------------------


def ablation(
    judge: Judge,
    attack: GradientDriftAttack,
    observations: Observations,
    made: Mapping[str, Scores],
) -> tuple[FeatureSet, ...]:
    """The classifier with all features and with some, on the same folds (Table 2).

    Args:
        judge: of the run.
        attack: whose step it is.
        observations: what was measured.
        made: attack -> its scores, for those that are there already.
    """
    found: list[FeatureSet] = []
    of_all: Scores | None = None
    for name, without in ABLATION.items():
        one = dataclasses.replace(attack, without=without)
        scores = made.get(label(one)) or judge.score(one, observations)
        row = judge.row(name, scores, kind="attack", attack=one)
        versus = None
        if of_all is not None:
            versus = judge.gain(name, ALL, of_all, scores, learnt=True).difference
        found.append(
            FeatureSet(
                name=name,
                without=without,
                auc=row.auc,
                difference=versus,
                note=row.note and "; ".join([row.note, *row.unscored]),
            )
        )
        if row.auc is None:
            break  # the same records, and the same folds: no other row would have one
        of_all = of_all or scores
    return tuple(found)


# --- the paper's own protocol -------------------------------------------------------------------


def protocol(judge: Judge, seen: _Seen, loss: Scores | None) -> SplitProtocol:
    """The classifier on random splits, and the loss on the very same parts (section 4.3).

    Args:
        judge: of the run.
        seen: records with a drift.
        loss: what the attack `loss` says, where it was run; records without it are left out.
    """
    said = {} if loss is None else dict(zip(loss.ids, loss.values.tolist(), strict=True))
    if said:
        seen = seen.select([id_ in said for id_ in seen.ids])
    about = {"n_splits": N_SPLITS, "n": seen.n}
    if LEARNT_SHARE * min(seen.n) < FEWEST:
        few = f"fewer than {FEWEST} records of a side to learn from in seven tenths of the records"
        return SplitProtocol(**about, note=few)
    rng = np.random.default_rng([judge.choices.seed, _SPLITS])
    try:
        parts = splits(seen.member, rng=rng, n=N_SPLITS, clusters=seen.clusters)
    except TooFewRecordsError as error:
        return SplitProtocol(**about, note=error.problem)
    learnt = learnt_aucs(table(seen.drifts), seen.member, parts)
    beside = {FIRST_LOSS: -seen.of("loss")}
    if said:
        beside[LOSS] = np.array([said[id_] for id_ in seen.ids])
    rows = [SplitRow(name=CLASSIFIER, auc=_on_splits(learnt))]
    for name, scores in beside.items():
        aucs = fixed_aucs(scores, seen.member, parts)
        rows.append(SplitRow(name=name, auc=_on_splits(aucs), difference=_on_splits(learnt - aucs)))
    return SplitProtocol(**about, rows=tuple(rows))


def _on_splits(values: FloatArray) -> OnSplits:
    return OnSplits(mean=float(values.mean()), sd=float(values.std(ddof=1)))


# --- Figure 3 -----------------------------------------------------------------------------------


def shapes(seen: _Seen, confidence: float) -> Iterator[DriftShape]:
    """The four drifts, min-max normalised over all records; one that is the same for all is left out."""
    first_axis = [one.projection_after[0] - one.projection[0] for one in seen.drifts]
    drifts: dict[ShapeName, FloatArray] = {
        "loss": seen.of("loss_after") - seen.of("loss"),
        "logit": seen.of("logit_after") - seen.of("logit"),
        "projection": np.array(first_axis),
        "state": seen.of("drift"),
    }
    for name, values in drifts.items():
        low, high = float(values.min()), float(values.max())
        if not high > low:
            continue
        scaled = (values - low) / (high - low)
        sides = scaled[seen.member], scaled[~seen.member]
        means = (
            mean(sides[0], confidence, members=True),
            mean(sides[1], confidence, members=False),
            difference(*sides, confidence),
        )
        numbers = [Number.of(one) for one in means if one is not None]
        if len(numbers) < len(means):
            continue  # a side of one record
        levels = np.linspace(0, 1, N_QUANTILES)
        members, nonmembers = (tuple(np.quantile(one, levels).tolist()) for one in sides)
        yield DriftShape(
            name=name,
            low=low,
            high=high,
            quantiles=(members, nonmembers),
            members=numbers[0],
            nonmembers=numbers[1],
            difference=numbers[2],
        )
