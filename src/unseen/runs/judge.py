"""Score and judge: attacks turn observations into scores, metrics turn scores into estimates.

This is where scores and membership meet. Attacks that learn are cross-fitted: the records are cut
into folds, and a record is scored by what was learned from the other folds alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from unseen.attacks import label
from unseen.attacks.base import (
    Attack,
    Known,
    is_blind,
    is_fitted,
    is_fusing,
    needs_weights,
    threshold_of,
    unscored,
)
from unseen.errors import TooFewRecordsError
from unseen.metrics._checks import MIN_PER_SIDE
from unseen.metrics.advantage import advantage_at
from unseen.metrics.compare import paired_differences
from unseen.metrics.contrast import contrasts
from unseen.metrics.correlation import difference, mean, spearman
from unseen.metrics.crossfit import choose_and_judge, folds
from unseen.metrics.evaluate import TprAtFpr as MeasuredTpr
from unseen.metrics.evaluate import auc_of, evaluate
from unseen.metrics.roc import allowed, resolution
from unseen.metrics.slices import by_slice
from unseen.runs.fused import LEARNT, gathered, of_learnt, restated, widened, with_lent
from unseen.runs.results import (
    Agreement,
    AttackResult,
    AtThreshold,
    Exposed,
    Gain,
    Headline,
    Number,
    OptimizationGap,
    Roc,
    SharedFeature,
    Slice,
    TprAtFpr,
)
from unseen.runs.subjects import BOTH_SIDES, FIXED, Scored, Subjects, score_columns
from unseen.signals.base import CONTROL, REFERENCE, TARGET, Observations
from unseen.types import BoolArray, Estimate, FloatArray, IntArray, Scores

if TYPE_CHECKING:
    from unseen.runs.config import StatisticsChoices
    from unseen.runs.lent import Lent

FIT_FOLDS = 5
"""Folds in which attacks that learn are cross-fitted."""

ANSWER_ONLY = ("loss", "min_k")
"""Attacks that read the answers' likelihood alone: what others add is told against them."""

GAP = "optimization_gap"
"""The attack that others are held against."""

CHANCE = 0.5
"""The AUC of a score that knows nothing."""

SHARE_COMPARED, FEWEST_COMPARED, MOST_COMPARED = 0.1, 10, 200
"""Of the members, those that rank highest are compared with the others: which share, how many."""

Kind = Literal["attack", "blind", "control"]
Asked = Literal["reference", "control"]

# Each use of randomness has a stream of its own, so that one more draw here changes nothing there.
_FOLDS, _FIT, _ESTIMATES, _HEADLINE, _SLICES, _GAINS = range(2, 8)


@dataclass(frozen=True)
class Said:
    """What findings call both sides.

    Attributes:
        members: the members.
        others: the non-members, after "of the".
    """

    members: str
    others: str


TRAINED = Said("training records", "held-out ones")
PROMPTED = Said("records in the prompt", "records outside it")


@dataclass(frozen=True)
class Verdicts:
    """Everything that judging gives."""

    attacks: tuple[AttackResult, ...]
    control: tuple[AttackResult, ...]
    headline: Headline | None
    headline_note: str | None
    slices: tuple[Slice, ...]
    exposed: Exposed | None
    gap: OptimizationGap | None
    scored: Scored
    gains: tuple[Gain, ...] = ()


class Judge:
    """Scores attacks and judges them, always on records that they have not learned from.

    Args:
        choices: rates, confidence, folds, seed.
        subjects: the judged records.
        lent: what another audit's fusion has learned, for attacks that use it.
        said: what findings call both sides.
    """

    def __init__(
        self,
        choices: StatisticsChoices,
        subjects: Subjects,
        lent: Lent | None = None,
        said: Said = TRAINED,
    ) -> None:
        self._choices = choices
        self._said = said
        self._lent = lent
        self._subjects = subjects
        self._place = {id_: i for i, id_ in enumerate(subjects.ids)}
        self._folds = self._cut(choices.folds, _FOLDS)
        self._fit_folds = self._cut(FIT_FOLDS, _FIT)

    def _cut(self, n: int, stream: int) -> IntArray | None:
        """Folds of all records, or None where there are too few of them."""
        subjects = self._subjects
        try:
            return folds(subjects.member, n=n, rng=self._rng(stream), clusters=subjects.clusters)
        except TooFewRecordsError:
            return None

    @property
    def n(self) -> tuple[int, int]:
        """Members and non-members that are judged."""
        member = self._subjects.member
        return int(member.sum()), int((~member).sum())

    @property
    def choices(self) -> StatisticsChoices:
        """Rates, confidence, draws, folds, seed."""
        return self._choices

    @property
    def subjects(self) -> Subjects:
        """The judged records."""
        return self._subjects

    @property
    def rates(self) -> tuple[float, ...]:
        """False-positive rates that are asked for."""
        return self._choices.fpr

    @property
    def folds(self) -> IntArray | None:
        """(n,) folds that attacks and thresholds are chosen across; None where there are too few records."""
        return self._folds

    @property
    def rate(self) -> float | None:
        """The false-positive rate of the finding; None where these records resolve none."""
        return self._headline_rate()

    @property
    def enough(self) -> bool:
        """Whether there are records enough, or clusters of them, to judge anything."""
        return self._folds is not None and min(self.n) >= MIN_PER_SIDE

    def auc(self, scores: Scores, confidence: float, *, learnt: bool = False) -> Number:
        """The AUC with an interval at another level than that of the rows.

        Args:
            scores: of one attack.
            confidence: of the interval.
            learnt: whether the scores were learnt from other records.
        """
        found = self._places(scores)
        number = Number.of(
            auc_of(
                scores.values,
                self._subjects.member[found],
                rng=self._rng(_ESTIMATES),
                confidence=widened(confidence) if learnt else confidence,
                bootstrap=self._choices.bootstrap,
                clusters=self._clusters(found),
                together=self._subjects.on_both_sides,
            )
        )
        return restated(number, confidence) if learnt else number

    def judge(
        self,
        attacks: tuple[Attack, ...],
        control: tuple[Attack, ...],
        observations: Observations,
        *,
        control_model: tuple[Attack, ...] = (),
        given: Scored | None = None,
    ) -> Verdicts:
        """Scores and judges attacks on the target, and some of them on the models beside it.

        Args:
            attacks: judged on the target.
            control: judged on the reference, as if it were the target.
            observations: what was measured of all models.
            control_model: judged on the control model, as if it were the target.
            given: scores that are taken over instead of being made.
        """
        scored = self.scored(
            attacks, control, observations, control_model=control_model, given=given
        )
        rows, controls = self.rows(attacks, control, control_model, scored)
        verdicts = self.verdicts(rows, scored, controls)
        return replace(verdicts, gains=tuple(self._gains(attacks, scored.target)))

    def scored(
        self,
        attacks: tuple[Attack, ...],
        control: tuple[Attack, ...],
        observations: Observations,
        *,
        control_model: tuple[Attack, ...] = (),
        given: Scored | None = None,
    ) -> Scored:
        """Scores of attacks on all models; arguments as those of `judge`."""
        given = given or Scored()
        return Scored(
            self._scores(attacks, observations, given.target),
            self._scores(control, observations.seen_as_target(REFERENCE), given.control),
            self._scores(control_model, observations.seen_as_target(CONTROL), given.control_model),
        )

    def rows(
        self,
        attacks: tuple[Attack, ...],
        control: tuple[Attack, ...],
        control_model: tuple[Attack, ...],
        scored: Scored,
    ) -> tuple[list[AttackResult], list[AttackResult]]:
        """Rows of the target, and of the models that are seen as target."""
        rows = [self._row(attack, scored.target, _kind(attack)) for attack in attacks]
        controls = [
            self._row(attack, scored.control, "control", "reference") for attack in control
        ] + [
            self._row(attack, scored.control_model, "control", "control")
            for attack in control_model
        ]
        return rows, controls

    def _gains(self, attacks: tuple[Attack, ...], made: Mapping[str, Scores]) -> Iterator[Gain]:
        """What attacks on weights, and those that learn, add to what the answers say by themselves."""
        for attack in attacks:
            if is_blind(attack) or is_fusing(attack):
                continue
            if needs_weights(attack) or is_fitted(attack):
                name = label(attack)
                for baseline in ANSWER_ONLY:
                    if baseline in made:
                        first, second = made[baseline], made[name]
                        yield self.gain(name, baseline, first, second, learnt=is_fitted(attack))

    def gain(
        self, name: str, baseline: str, first: Scores, second: Scores, *, learnt: bool
    ) -> Gain:
        """The AUC of an attack minus that of a baseline, on the records that both have scored.

        Args:
            name: of the attack.
            baseline: its name.
            first: scores of the baseline.
            second: scores of the attack.
            learnt: whether those were learnt from other records.
        """
        ours, theirs = (
            dict(zip(one.ids, one.values.tolist(), strict=True)) for one in (second, first)
        )
        both = [i for i, id_ in enumerate(self._subjects.ids) if id_ in ours and id_ in theirs]
        ids, found = [self._subjects.ids[i] for i in both], np.array(both, dtype=np.int64)
        member = self._subjects.member[found]
        if not member.any() or member.all():
            note = "no records of one side are scored by both"
            return Gain(attack=name, baseline=baseline, note=note)
        try:
            (auc,) = paired_differences(
                [theirs[id_] for id_ in ids],
                [ours[id_] for id_ in ids],
                member,
                rng=self._rng(_GAINS),
                confidence=self._choices.confidence,
                draws=self._choices.bootstrap,
                clusters=self._clusters(found),
                together=self._subjects.on_both_sides,
                wider=LEARNT if learnt else 1.0,
            )
        except TooFewRecordsError as error:
            return Gain(attack=name, baseline=baseline, note=error.problem)
        return Gain(attack=name, baseline=baseline, difference=Number.of(auc.difference))

    def _row(
        self, attack: Attack, made: Mapping[str, Scores], kind: Kind, model: Asked | None = None
    ) -> AttackResult:
        name = label(attack)
        return self.row(name, made[name], kind=kind, attack=attack, model=model)

    def _scores(
        self, attacks: tuple[Attack, ...], observations: Observations, given: Mapping[str, Scores]
    ) -> dict[str, Scores]:
        """By label: what is given, and otherwise made; last what learns from the others' scores."""
        made = dict(given)
        for attack in sorted(attacks, key=is_fusing):
            name = label(attack)
            if name not in made:
                seen = with_lent(attack, observations, self._lent)
                if is_fusing(attack):
                    seen = gathered(attack, attacks, made, observations, self._lent)
                made[name] = self.score(attack, seen)
        return {label(attack): made[label(attack)] for attack in attacks}

    def verdicts(
        self,
        rows: list[AttackResult],
        scored: Scored,
        control: list[AttackResult],
    ) -> Verdicts:
        """Headline and slices for rows that are made."""
        headline, note = self._headline(rows, scored.target)
        slices = () if headline is None else self._slices(headline, scored.target)
        exposed = None
        if headline is not None:
            name = headline.chosen[0]
            exposed = self._exposed(name, scored.target[name])
        kinds = {row.name: row.kind for row in rows}
        gap = self._gap({n: s for n, s in scored.target.items() if kinds.get(n) == "attack"})
        return Verdicts(tuple(rows), tuple(control), headline, note, slices, exposed, gap, scored)

    def score(
        self,
        attack: Attack,
        observations: Observations,
        *,
        learn_from: Observations | None = None,
    ) -> Scores:
        """Scores of every record; attacks that learn are cross-fitted.

        Args:
            attack: the attack.
            observations: of the judged records.
            learn_from: other observations of the same records, that it learns from instead.
        """
        if not is_fitted(attack):
            return attack.score(observations)
        if self._fit_folds is None:
            reason = f"too few records to learn from in {FIT_FOLDS} folds"
            return unscored(self._subjects.ids, reason)
        ids = np.array(self._subjects.ids, dtype=object)
        parts = []
        for fold in range(FIT_FOLDS):
            judged = self._fit_folds == fold
            lessons = (learn_from or observations).select(tuple(ids[~judged]))
            known = Known(lessons, self._subjects.member[~judged])
            parts.append(attack.score(observations.select(tuple(ids[judged])), known))
        return _joined(self._subjects.ids, parts)

    def row(
        self,
        name: str,
        scores: Scores,
        *,
        kind: Kind,
        attack: Attack | None = None,
        learnt: bool = False,
        model: Asked | None = None,
    ) -> AttackResult:
        """Estimates of one attack, over the records that it has scored.

        Args:
            name: what the attack is called.
            scores: what it says.
            kind: attack, baseline or control.
            attack: the attack itself, where it is at hand.
            learnt: whether the scores were learnt from other records, where it is not.
            model: which model a control is of.
        """
        learnt = learnt or (attack is not None and is_fitted(attack))
        confidence = self._choices.confidence
        found = self._places(scores)
        member = self._subjects.member[found]
        n = (int(member.sum()), int((~member).sum()))
        facts: dict[str, Any] = {
            "name": name,
            "kind": kind,
            "model": model,
            "paper": "" if attack is None else attack.paper,
            "access": "" if attack is None else attack.access.word,
            "n": n,
            "unscored": dict(Counter(scores.unscored.values())),
        }
        if 0 in n:
            side = "members" if n[0] == 0 else "non-members"
            return AttackResult(**facts, note=f"no {side} have a score")
        try:
            judged = evaluate(
                scores.values,
                member,
                fprs=self._choices.fpr,
                confidence=widened(confidence) if learnt else confidence,
                bootstrap=self._choices.bootstrap,
                clusters=self._clusters(found),
                together=self._subjects.on_both_sides,
                rng=self._rng(_ESTIMATES),
            )
        except TooFewRecordsError as error:
            return AttackResult(**facts, note=error.problem)
        row = AttackResult(
            **facts,
            by_paper=self._by_paper(attack, scores, found, learnt=learnt),
            auc=Number.of(judged.auc),
            tpr_at_fpr=tuple(_at(at) for at in judged.tpr_at_fpr),
            advantage=Number.of(judged.advantage),
            inverted=judged.inverted,
            roc=Roc(fpr=judged.roc.fpr, tpr=judged.roc.tpr),
        )
        return of_learnt(row, confidence) if learnt else row

    def _by_paper(
        self, attack: Attack | None, scores: Scores, found: IntArray, *, learnt: bool
    ) -> AtThreshold | None:
        """How far it gets by the rule of its paper, where that names a threshold."""
        threshold = None if attack is None else threshold_of(attack)
        if threshold is None:
            return None
        confidence = self._choices.confidence
        estimate = advantage_at(
            scores.values,
            self._subjects.member[found],
            threshold,
            confidence=widened(confidence) if learnt else confidence,
            clusters=self._clusters(found),
        )
        return AtThreshold(threshold=threshold, advantage=Number.of(estimate))

    def table(self, scored: Scored) -> dict[str, list[Any]]:
        """Columns of records.parquet: a row a record, and no text unless it is revealed."""
        subjects = self._subjects
        columns: dict[str, list[Any]] = {
            "id": list(subjects.ids),
            "member": subjects.member.tolist(),
        }
        if self._folds is not None:
            columns["fold"] = self._folds.tolist()
        if subjects.lengths is not None:
            columns["n_tokens"] = list(subjects.lengths)
        if subjects.clusters is not None:
            columns["cluster"] = list(subjects.clusters)
        if subjects.on_both_sides:
            columns[BOTH_SIDES] = [True] * len(subjects.ids)
        if subjects.texts is not None:
            columns["text"] = list(subjects.texts)
        for name, values in subjects.groups.items():
            columns[f"slice.{name}"] = list(values)
        for name, numbers in subjects.features.items():
            columns[f"feature.{name}"] = numbers.tolist()
        for name, scores in scored.target.items():
            columns |= score_columns(subjects.ids, TARGET, name, scores)
            fprs = self._population_fprs(scores)
            columns[f"population_fpr.{name}"] = [fprs.get(id_) for id_ in subjects.ids]
        for name, scores in scored.control.items():
            columns |= score_columns(subjects.ids, REFERENCE, name, scores)
        for name, scores in scored.control_model.items():
            columns |= score_columns(subjects.ids, CONTROL, name, scores)
        for name, scores in scored.fixed.items():
            columns |= score_columns(subjects.ids, FIXED, name, scores)
        return columns

    def _headline(
        self, rows: list[AttackResult], made: Mapping[str, Scores]
    ) -> tuple[Headline | None, str | None]:
        """The finding: attack and threshold chosen on other folds than they are judged on."""
        member, confidence = self._subjects.member, self._choices.confidence
        attacks = [row for row in rows if row.kind == "attack"]
        aucs = {row.name: row.auc for row in attacks if row.auc is not None}
        scores = {name: made[name] for name in aucs}
        if not any(sum(row.n) for row in attacks):
            return None, "no attack has scored any record: the reasons stand under the table"
        if not scores or self._folds is None:
            return None, "there are too few records with a score to judge any attack"
        fpr = self._headline_rate()
        if fpr is None:
            rates = ", ".join(f"{100 * rate:g}%" for rate in self._choices.fpr)
            n = int((~member).sum())
            return None, (
                f"{n} non-members cannot resolve a false-positive rate of {rates} where the "
                "threshold is set on some of them and judged on the others"
            )
        values, scored = self._aligned(scores)
        judged = choose_and_judge(
            values,
            member,
            self._folds,
            fpr,
            scored=scored,
            confidence=confidence,
            clusters=self._subjects.clusters,
        )
        found = judged.tpr.low > judged.fpr.high
        return (
            Headline(
                metric=f"tpr@fpr={fpr:g}",
                fpr=fpr,
                chosen=judged.chosen,
                tpr=Number.of(judged.tpr),
                realised_fpr=Number.of(judged.fpr),
                found=found,
                sentence=_sentence(
                    fpr,
                    judged.tpr,
                    judged.fpr,
                    found=found,
                    auc=aucs[judged.chosen[0]],
                    said=self._said,
                ),
            ),
            None,
        )

    def _headline_rate(self) -> float | None:
        """The smallest rate that is resolved reliably, or else the largest that is indicated."""
        nonmember = ~self._subjects.member
        n, folds_ = int(nonmember.sum()), self._folds
        if folds_ is None:
            return None
        # A threshold is set on the other folds: it has to exist on the fewest that they hold.
        fewest = n - int(np.bincount(folds_[nonmember]).max())
        able = [fpr for fpr in self._choices.fpr if allowed(fewest + 1, fpr)]
        status = {fpr: resolution(n, fpr).status for fpr in able}
        reliable = [fpr for fpr in able if status[fpr] == "reliable"]
        indicative = [fpr for fpr in able if status[fpr] == "indicative"]
        return min(reliable) if reliable else max(indicative, default=None)

    def _aligned(
        self, scores: Mapping[str, Scores]
    ) -> tuple[dict[str, FloatArray], dict[str, BoolArray]]:
        """Scores and who has one, in the order of the records."""
        n = len(self._subjects.ids)
        values: dict[str, FloatArray] = {}
        scored: dict[str, BoolArray] = {}
        for name, one in scores.items():
            places = self._places(one)
            values[name], scored[name] = np.zeros(n), np.zeros(n, dtype=bool)
            values[name][places], scored[name][places] = one.values, True
        return values, scored

    def _slices(self, headline: Headline, scores: Mapping[str, Scores]) -> tuple[Slice, ...]:
        """Groups, by the attack that the headline chose first."""
        subjects, name = self._subjects, headline.chosen[0]
        if not subjects.groups:
            return ()
        found = self._places(scores[name])
        parts = by_slice(
            scores[name].values,
            subjects.member[found],
            {by: [values[i] for i in found] for by, values in subjects.groups.items()},
            rng=self._rng(_SLICES),
            fprs=(headline.fpr,),
            confidence=self._choices.confidence,
            bootstrap=self._choices.bootstrap,
            clusters=self._clusters(found),
        )
        return tuple(
            Slice(
                by=part.by,
                value=part.value,
                attack=name,
                n=(part.n_members, part.n_nonmembers),
                note=part.reason,
                auc=None if part.auc is None else Number.of(part.auc),
                tpr_at_fpr=tuple(_at(at) for at in part.tpr_at_fpr),
                p=part.p,
                p_holm=part.p_holm,
            )
            for part in parts
        )

    def _exposed(self, name: str, scores: Scores) -> Exposed:
        """The members that rank highest, and what they have in common."""
        subjects = self._subjects
        found = self._places(scores)
        member = subjects.member[found]
        top = scores.values[~member].max(initial=-np.inf)
        places, values = found[member], scores.values[member]
        n = min(MOST_COMPARED, max(FEWEST_COMPARED, round(SHARE_COMPARED * len(places))))
        picked = np.zeros(len(places), dtype=bool)
        if 2 * n <= len(places):  # below that there are too few others to compare with
            picked[np.argsort(-values, kind="stable")[:n]] = True
        about = dict(subjects.features)
        if subjects.lengths is not None:
            about = {"length": np.array(subjects.lengths, dtype=np.float64), **about}
        compared = contrasts({feature: one[places] for feature, one in about.items()}, picked)
        return Exposed(
            attack=name,
            n_above_all=int((values > top).sum()),
            n_compared=int(picked.sum()),
            features=tuple(
                SharedFeature(
                    name=feature,
                    exposed=one.picked,
                    others=one.others,
                    auc=one.auc,
                    p_holm=one.p_holm,
                )
                for feature, one in compared.items()
            ),
        )

    def _gap(self, scored: Mapping[str, Scores]) -> OptimizationGap | None:
        """The gain of one real step by side, and who orders the records as it does."""
        name = next((name for name in scored if name.partition("[")[0] == GAP), None)
        if name is None:
            return None
        confidence = self._choices.confidence
        places, member = self._places(scored[name]), self._subjects.member
        gain, of = -scored[name].values, member[places]
        means = (
            mean(gain[of], confidence, members=True),
            mean(gain[~of], confidence, members=False),
            difference(gain[of], gain[~of], confidence),
        )
        if any(one is None for one in means):
            return None
        members, nonmembers, apart = (Number.of(one) for one in means if one is not None)
        agreement = []
        by_id = dict(zip(scored[name].ids, scored[name].values.tolist(), strict=True))
        for other, scores in scored.items():
            if other == name:
                continue
            both = [i for i, id_ in enumerate(scores.ids) if id_ in by_id]
            ids = [scores.ids[i] for i in both]
            found = member[[self._place[id_] for id_ in ids]]
            r = spearman([by_id[id_] for id_ in ids], scores.values[both], found, confidence)
            if r is not None:
                agreement.append(Agreement(attack=other, spearman=Number.of(r)))
        return OptimizationGap(
            attack=name,
            members=members,
            nonmembers=nonmembers,
            difference=apart,
            agreement=tuple(agreement),
        )

    def _population_fprs(self, scores: Scores) -> dict[str, float]:
        """Share of non-members that score at least as high: of the population, not the record."""
        member = self._subjects.member[self._places(scores)]
        others = np.sort(scores.values[~member])
        if not len(others):
            return {}
        above = len(others) - np.searchsorted(others, scores.values, side="left")
        return dict(zip(scores.ids, (above / len(others)).tolist(), strict=True))

    def _places(self, scores: Scores) -> IntArray:
        return np.array([self._place[id_] for id_ in scores.ids], dtype=np.int64)

    def _clusters(self, found: IntArray) -> list[int | str | None] | None:
        clusters = self._subjects.clusters
        return None if clusters is None else [clusters[i] for i in found]

    def _rng(self, stream: int) -> np.random.Generator:
        return np.random.default_rng([self._choices.seed, stream])


def _kind(attack: Attack) -> Kind:
    return "blind" if is_blind(attack) else "attack"


def _at(at: MeasuredTpr) -> TprAtFpr:
    return TprAtFpr(
        fpr=at.fpr,
        tpr=None if at.estimate is None else Number.of(at.estimate),
        threshold=at.threshold,
        realised_fpr=at.realised_fpr,
        expected_false_positives=at.expected_false_positives,
        resolution=at.resolution,
        needs_nonmembers=at.needs_nonmembers,
    )


def _sentence(
    fpr: float, tpr: Estimate, realised: Estimate, *, found: bool, auc: Number, said: Said
) -> str:
    """The finding in words: what a reader without statistics takes home."""
    flagged = f"{100 * tpr.value:.0f}% of the {said.members}"
    interval = f"{100 * tpr.confidence:g}% CI {100 * tpr.low:.0f}–{100 * tpr.high:.0f}%"
    alarms = f"{100 * realised.value:.1f}%"
    if found:
        return (
            f"At a threshold set for {100 * fpr:g}% false alarms, {flagged} are identified "
            f"({interval}; chance {100 * fpr:g}%), and {alarms} of the {said.others} are "
            "flagged by mistake."
        )
    alone = (
        f"At a threshold set for {100 * fpr:g}% false alarms, no {said.members} stand out: "
        f"{flagged} are flagged ({interval}), and {alarms} of the {said.others}."
    )
    if auc.ci[0] <= CHANCE:
        return alone
    return (
        f"{alone} As a whole, {said.members} still score higher than {said.others} "
        f"(AUC {auc.value:.2f}, {100 * auc.confidence:g}% CI {auc.ci[0]:.2f}–{auc.ci[1]:.2f})."
    )


def _joined(ids: tuple[str, ...], parts: list[Scores]) -> Scores:
    by_id = {
        id_: value
        for part in parts
        for id_, value in zip(part.ids, part.values.tolist(), strict=True)
    }
    unscored = {id_: why for part in parts for id_, why in part.unscored.items()}
    kept = tuple(id_ for id_ in ids if id_ in by_id)
    return Scores(kept, np.array([by_id[id_] for id_ in kept], dtype=np.float64), unscored)
