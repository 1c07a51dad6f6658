"""A limit on leakage that a build can be stopped by: passed, failed, or not decided by this data.

A limit is held against the interval, not against the number: it is passed where the whole interval
lies at or below it, failed where the whole interval lies above it, and otherwise more records are
needed. Both errors are kept small whatever the number of attacks. To pass, every attack has to be
below, so a model that is truly above passes only if the interval of the attack that is above
misses: with (1 - confidence) / 2 at the most. To fail, one attack is enough, so each has to be above
at a level that is divided by the number of attacks and limits (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from unseen.errors import ConfigError, GateError, UnknownNameError
from unseen.metrics.roc import resolution
from unseen.runs.fused import is_learnt
from unseen.runs.judge import Judge
from unseen.runs.limits import HEADLINE, Limit, parse
from unseen.runs.results import Number, Part
from unseen.runs.subjects import Subjects
from unseen.runs.verify import FinishedRun, finished

if TYPE_CHECKING:
    from unseen.runs.results import AttackResult

Outcome = Literal["pass", "fail", "inconclusive"]

_TOO_MANY = 100
"""A gate that takes so many times more records is too close to its limit to be decided."""


class GateRow(Part):
    """One attack's number, held against the limit."""

    attack: str
    number: Number
    sure: float = Field(
        description="lower end of the interval, corrected for all attacks and limits; equal to "
        "that of `number` where this is not above the limit anyway"
    )


class GateCheck(Part):
    """One limit."""

    metric: str
    limit: float
    outcome: Outcome
    worst: GateRow | None = Field(None, description="the attack that decides")
    rows: tuple[GateRow, ...] = ()
    reason: str
    needs: tuple[int, int] | None = Field(
        None, description="members and non-members that would decide, if the number stays"
    )


class GateResult(Part):
    """All limits: failed where one is failed, else inconclusive where one is, else passed."""

    run: str
    outcome: Outcome
    confidence: float
    tests: int = Field(description="attacks and limits that failing is corrected for (Bonferroni)")
    checks: tuple[GateCheck, ...]
    notes: tuple[str, ...] = ()

    def raise_for_status(self) -> None:
        """Nothing where the gate is passed.

        Raises:
            GateError: where it is failed or inconclusive, with every reason.
        """
        if self.outcome != "pass":
            reasons = [
                f"{check.metric} is not known to be at most {check.limit:g}: {check.reason}"
                for check in self.checks
                if check.outcome != "pass"
            ]
            raise GateError(f"gate {self.outcome}: {'; '.join(reasons)}", self.outcome)


def gate(
    path: Path,
    limits: Mapping[str, float] | Iterable[str] = (),
    *,
    confidence: float | None = None,
) -> GateResult:
    """Holds a finished run against limits.

    Args:
        path: the run folder.
        limits: as `parse` reads them; none means the gate that the run was configured with.
        confidence: of the intervals; None means that of the run.

    Raises:
        ConfigError: where there is no run, or a limit is wrong.
        UnknownNameError: where a limit names an attack that the run does not have.
        StoreError: where the run is unfinished, changed or damaged.
    """
    if confidence is not None and not 0.5 < confidence < 1:
        raise ConfigError(
            f"got the confidence {confidence:g}, expected one above 0.5 and below 1",
            fix="--confidence 0.95",
        )
    chosen = parse(limits)
    run = finished(path)
    chosen = chosen or parse(run.config.get("gate") or ())
    if not chosen:
        raise ConfigError(
            "no limit is named, and the audit of this run had none",
            fix="unseen gate RUN --max auc=0.6   (a gate: block in unseen.yaml is read by the audit)",
        )
    return _Gate(run, chosen, confidence).result()


class _Gate:
    """One run and its limits: numbers come from results.json where it has them."""

    def __init__(
        self, run: FinishedRun, limits: tuple[Limit, ...], confidence: float | None
    ) -> None:
        self._run = run
        self._limits = limits
        self._attacks = {row.name: row for row in run.results.attacks if row.kind == "attack"}
        levels = [row.auc.confidence for row in self._attacks.values() if row.auc is not None]
        self._of_run = levels[0] if levels else run.choices.confidence
        self._confidence = self._of_run if confidence is None else confidence
        self._made: dict[tuple[str, float], AttackResult] = {}

    def result(self) -> GateResult:
        """Every limit, judged."""
        numbers = {limit.name: self._numbers(limit) for limit in self._limits}
        tests = max(1, sum(map(len, numbers.values())))
        sure = 1 - (1 - self._confidence) / tests
        checks = tuple(self._check(limit, numbers[limit.name], sure) for limit in self._limits)
        return GateResult(
            run=self._run.results.run.id,
            outcome=worst_of([check.outcome for check in checks]),
            confidence=self._confidence,
            tests=tests,
            checks=checks,
            notes=self._notes(),
        )

    def _numbers(self, limit: Limit) -> dict[str, Number]:
        """Attack -> its number, for every attack that has one."""
        if limit.kind == HEADLINE:
            number = self._headline(self._confidence)
            return {} if number is None else {HEADLINE: number}
        found = {}
        for name in self._named(limit):
            number = self._number(limit, name, self._confidence)
            if number is not None:
                found[name] = number
        return found

    def _named(self, limit: Limit) -> list[str]:
        if limit.attack is None:
            return list(self._attacks)
        if limit.attack not in self._attacks:
            raise UnknownNameError("attack of this run", limit.attack, self._attacks)
        return [limit.attack]

    def _check(self, limit: Limit, numbers: Mapping[str, Number], sure: float) -> GateCheck:
        rows = []
        for name, number in numbers.items():
            low = number.ci[0]
            if low > limit.at_most and sure > self._confidence:
                again = (
                    self._headline(sure)
                    if limit.kind == HEADLINE
                    else self._number(limit, name, sure)
                )
                low = min(low, low if again is None else again.ci[0])
            rows.append(GateRow(attack=name, number=number, sure=low))
        about = {"metric": limit.name, "limit": limit.at_most, "rows": tuple(rows)}
        withheld = self._withheld(limit, rows)
        if withheld is not None:
            return GateCheck(**about, outcome="inconclusive", reason=withheld)
        outcome = decide(
            [row.sure for row in rows], [row.number.ci[1] for row in rows], limit.at_most
        )
        worst = max(rows, key=lambda row: row.sure if outcome == "fail" else row.number.ci[1])
        needs = (
            needed(rows, limit.at_most, self._confidence, sure)
            if outcome == "inconclusive"
            else None
        )
        return GateCheck(
            **about,
            outcome=outcome,
            worst=worst,
            reason=_reason(outcome, worst, limit.at_most, len(rows), needs),
            needs=needs,
        )

    def _withheld(self, limit: Limit, rows: Sequence[GateRow]) -> str | None:
        """Why nothing can be said, or None."""
        results = self._run.results
        if results.validity is not None and results.invalid:
            why = "; ".join(results.validity.reasons) or "see the checks of the run"
            return f"the evidence of this run is invalid, so no number of it counts: {why}"
        if limit.kind == HEADLINE:
            headline = results.headline
            if headline is None:
                return f"the run has no headline: {results.headline_note or 'no reason is given'}"
            if limit.at_most <= headline.fpr:
                raise ConfigError(
                    f"headline: the limit {limit.at_most:g} is not above the false-positive rate "
                    f"{headline.fpr:g} that the headline of this run stands at",
                    fix=f"--max headline={2 * headline.fpr:g}",
                )
        if rows:
            return None
        if limit.fpr is not None:
            return self._unresolved(limit.fpr)
        reasons = [row.note for row in self._attacks.values() if row.note]
        return f"no attack could be judged{': ' if reasons else ''}{'; '.join(set(reasons))}"

    def _unresolved(self, fpr: float) -> str:
        n = int((~self._run.subjects.member).sum())
        asked = resolution(n, fpr)
        if asked.status != "unresolvable":
            return "no attack has scored enough records to say anything at this rate"
        return (
            f"{n} non-members cannot resolve a false-positive rate of {fpr:g}: that takes "
            f"{asked.needs_nonmembers:,}, and {math.ceil(round(10 / fpr, 9)):,} to be reliable; the "
            f"smallest rate that these resolve is {_rounded_up(1 / n):g}"
        )

    def _notes(self) -> tuple[str, ...]:
        results = self._run.results
        notes = [
            f"{row.name} is not judged: {row.note}"
            for row in self._attacks.values()
            if row.note is not None
        ]
        validity = results.validity
        if validity is None:
            notes.append("whether the evidence is valid was not checked in this run")
        elif validity.verdict == "caution":
            notes.append(f"caution: {'; '.join(validity.reasons)}")
        n = int((~self._run.subjects.member).sum())
        notes += [
            f"{limit.name}: fewer than 10 expected false positives, indicative only"
            for limit in self._limits
            if limit.fpr is not None and 1 <= round(n * limit.fpr, 9) < 10
        ]
        return tuple(notes)

    # --- where numbers come from

    def _number(self, limit: Limit, name: str, confidence: float) -> Number | None:
        if confidence == self._of_run:
            row = self._attacks[name]
            number = _number_of(row, limit)
            has = limit.fpr is None or any(at.fpr == limit.fpr for at in row.tpr_at_fpr)
            if number is not None or has or row.note is not None:
                return number
        if (name, confidence) not in self._made:
            scores = self._run.scored.target.get(name)
            if scores is None:
                return None
            rates = {one.fpr for one in self._limits if one.fpr is not None}
            judge = self._judge(confidence, fpr=tuple(sorted(rates)))
            self._made[name, confidence] = judge.row(
                name, scores, kind="attack", learnt=is_learnt(self._attacks[name])
            )
        return _number_of(self._made[name, confidence], limit)

    def _headline(self, confidence: float) -> Number | None:
        """TPR of the headline; the same choice of attack and threshold at every level."""
        headline = self._run.results.headline
        if headline is None or confidence == self._of_run:
            return None if headline is None else headline.tpr
        # Rate and folds as they were: they decide which records are flagged.
        judge = self._judge(confidence, fpr=(headline.fpr,), folds=len(headline.chosen))
        again = judge.verdicts(list(self._attacks.values()), self._run.scored, []).headline
        return None if again is None else again.tpr

    def _judge(self, confidence: float, **choices: Any) -> Judge:
        update = {"confidence": confidence, **choices}
        subjects = self._run.subjects
        bare = Subjects(subjects.ids, subjects.member, subjects.clusters)
        return Judge(self._run.choices.model_copy(update=update), bare)


def decide(sure: Sequence[float], high: Sequence[float], limit: float) -> Outcome:
    """What intervals say of a limit on the largest of the numbers.

    Args:
        sure: lower ends, at a level that is corrected for all attacks and limits.
        high: upper ends, not corrected: all of them have to be below.
        limit: the largest number that is allowed.
    """
    if any(low > limit for low in sure):
        return "fail"
    return "pass" if all(end <= limit for end in high) else "inconclusive"


def worst_of(outcomes: Iterable[Outcome]) -> Outcome:
    """Fail wins over inconclusive, which wins over pass."""
    found = set(outcomes)
    return "fail" if "fail" in found else "inconclusive" if "inconclusive" in found else "pass"


def needed(
    rows: Sequence[GateRow], limit: float, confidence: float, sure: float
) -> tuple[int, int] | None:
    """Members and non-members that would decide, if the numbers stay and intervals shrink as 1 / sqrt(n).

    Where a number lies above the limit, its lower end has to come above it; otherwise every upper
    end has to come below. None where a number is so close that no sensible number would do.
    """
    above = [row for row in rows if row.number.value > limit]
    factors = []
    for row in above or rows:
        value, (low, high) = row.number.value, row.number.ci
        gap = abs(value - limit)
        reach = (value - low) * _quantile(sure) / _quantile(confidence) if above else high - value
        if not above and high <= limit:
            continue
        factors.append((reach / gap) ** 2 if gap > 0 else math.inf)
    factor = min(factors) if above else max(factors, default=1.0)
    if factor > _TOO_MANY:
        return None
    # A number that came out decided after all, by a hair, still asks for no fewer than there are.
    members, nonmembers = rows[0].number.n
    return _rounded(max(factor, 1.0) * members), _rounded(max(factor, 1.0) * nonmembers)


def _quantile(confidence: float) -> float:
    return NormalDist().inv_cdf(1 - (1 - confidence) / 2)


def _rounded(number: float) -> int:
    """Up, to two digits: an extrapolation has no more.

    >>> _rounded(1234)
    1300
    """
    exact = round(number, 6)  # what rounding errors add is no record
    scale = int(10 ** max(0, len(str(math.ceil(exact))) - 2))
    return math.ceil(exact / scale) * scale


def _rounded_up(rate: float) -> float:
    """A rate, up to two digits."""
    scale = float(10 ** (1 - math.floor(math.log10(rate))))
    return math.ceil(round(rate * scale, 9)) / scale


def _number_of(row: AttackResult, limit: Limit) -> Number | None:
    if limit.kind == "auc":
        return row.auc
    if limit.kind == "advantage":
        return row.advantage
    return next((at.tpr for at in row.tpr_at_fpr if at.fpr == limit.fpr), None)


def _reason(
    outcome: Outcome, worst: GateRow, limit: float, n: int, needs: tuple[int, int] | None
) -> str:
    low, high = worst.number.ci
    many = f", the worst of {n} attacks," if n > 1 else ""
    who = "the finding" if worst.attack == HEADLINE else worst.attack
    shown = f"{who}{many} has {worst.number.value:.3f} [{low:.3f}, {high:.3f}]"
    if outcome == "pass":
        return shown
    if outcome == "fail":
        corrected = (
            f"; corrected for all tests from {worst.sure:.3f} up" if worst.sure < low else ""
        )
        return f"{shown}, all of it above{corrected}"
    why = "only corrected for all tests it" if low > limit else "which"
    more = (
        f"about {needs[0]:,} members and {needs[1]:,} non-members would decide, if the number stays"
        if needs is not None
        else "it is too close to the limit for any sensible number of records"
    )
    return f"{shown}, {why} reaches to both sides of the limit; {more}"
