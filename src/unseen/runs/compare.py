"""Two runs on the same records, side by side: what differs between them, and what that changed.

Runs are compared record by record, so they have to be of the same records. What else differs (the
model, a setting, the version of this program) is said first: the numbers cannot tell which of them
made the change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from unseen.errors import ConfigError, TooFewRecordsError, short
from unseen.metrics.compare import PairedDifference, paired_differences
from unseen.metrics.slices import holm
from unseen.runs.fused import LEARNT, is_learnt
from unseen.runs.judge import Judge
from unseen.runs.results import SCHEMA_VERSION, AttackResult, Number, Part, Resolution
from unseen.runs.subjects import Subjects
from unseen.runs.verify import FinishedRun, finished
from unseen.signals.base import CONTROL, SHADOW
from unseen.types import FloatArray, Scores

if TYPE_CHECKING:
    from unseen.runs.collect import Progress

Leakage = Literal["lower leakage", "higher leakage", "cannot be told apart", "not comparable"]

_STREAM = 20  # of random numbers; those of judging a run have other numbers

_NO_CHOICE = {
    "model", "adapter", "base_model", "reference", "control_model", "nonmembers_apart", "shadow", "surrogate",
    "generator",
    "corpus", "members", "nonmembers", "data", "demos", "template", "run_dir",
    "runs", "cache_dir", "cache", "offline", "batch_tokens", "threads", "reveal", "keep_tokens",
    "seed", "attacks", "gate", "run_of", "max_requests", "rpm", "price", "max_cost",
}  # fmt: skip
"""Settings that are reported by what they lead to, or that no number depends on."""


class ComparedRun(Part):
    """One of the runs."""

    id: str
    folder: str
    model: str
    verdict: str | None = Field(None, description="of the run's evidence; null: not checked")


class Difference(Part):
    """Something in which the runs differ."""

    what: str
    values: tuple[str, ...] = Field(description="of each run, in their order")


class Change(Part):
    """One number of one attack, in the first run and in a later one."""

    run: int = Field(description="the later run, by its place in `runs`")
    attack: str
    metric: str
    first: Number
    second: Number
    difference: Number = Field(description="second - first, on the same records")
    p: float = Field(description="two-sided, of no difference")
    p_holm: float = Field(description="the same, corrected for all changes (Holm)")
    smallest: float = Field(
        description="minimum detectable difference: found with 80% chance by one test alone"
    )
    resolution: Resolution
    verdict: Leakage
    note: str | None = None


class Comparison(Part):
    """What `unseen compare` says."""

    schema_version: str = SCHEMA_VERSION
    runs: tuple[ComparedRun, ...]
    same: tuple[str, ...] = Field(description="what the runs have in common")
    differs: tuple[Difference, ...]
    paired: tuple[tuple[int, int], ...] = Field(
        description="members and non-members that the first run shares with each later one"
    )
    confidence: float
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()


def compare(
    paths: Sequence[Path], *, force: bool = False, progress: Progress | None = None
) -> Comparison:
    """Compares every later run with the first.

    Args:
        paths: two or more run folders.
        force: compare what can be compared although the runs are unlike, on the ids that they
            share; that one id means one record is then for the user to know.
        progress: told how far it is.

    Raises:
        ConfigError: where there are fewer than two runs, where they are unlike and `force` is not
            given, or where nothing can be compared.
        StoreError: where a run is unfinished, changed or damaged.
    """
    if len(paths) < 2:
        raise ConfigError("got one run, expected two or more", fix="unseen compare RUN RUN")
    runs = [finished(path) for path in paths]
    unlike = _unlike(runs)
    if unlike and not force:
        names = " ".join(str(path) for path in paths)
        alike = _ONE_RUN if _DRAWN_OTHERWISE in unlike else "audit both models on the same files"
        raise ConfigError(
            f"these runs are not alike: {'; '.join(unlike)}",
            fix=f"{alike}, or: unseen compare {names} --force   "
            "(pairs the ids that all have; whether they are the same records is for you to know)",
        )
    pairs = [_Pair.of(runs[0], other, place) for place, other in enumerate(runs[1:], start=1)]
    tell = progress or (lambda *_: None)
    found = [(pair, name, one) for pair in pairs for name, one in pair.differences(tell)]
    if not found:
        raise ConfigError(
            "nothing can be compared: "
            + "; ".join(note for pair in pairs for note in pair.notes or ["no attack is in both"]),
            fix="unseen score RUN --attacks NAME adds an attack to a run",
        )
    adjusted = holm([one.p for _, _, one in found])
    changes = tuple(
        pair.change(name, one, p) for (pair, name, one), p in zip(found, adjusted, strict=True)
    )
    same, differs = _what_differs(runs)
    return Comparison(
        runs=tuple(_compared(run) for run in runs),
        same=same,
        differs=differs,
        paired=tuple(pair.n for pair in pairs),
        confidence=pairs[0].confidence,
        changes=changes,
        notes=tuple(
            dict.fromkeys([*_warnings(runs, unlike), *(n for p in pairs for n in p.notes)])
        ),
    )


# --- are they alike? ----------------------------------------------------------------------------


def _unlike(runs: Sequence[FinishedRun]) -> list[str]:
    """Why a comparison would mean something else than it seems to."""
    first = runs[0]
    faults = []
    if len({run.results.run.scenario for run in runs}) > 1:
        faults.append("they are audits of different kinds")
    differing = [
        name
        for side, name in (("members", "members"), ("nonmembers", "non-members"))
        if len({_hash(run, side) for run in runs}) > 1
    ]
    if differing and _are_of_one_pool(runs):
        faults.append(_DRAWN_OTHERWISE)
    else:
        faults += [f"their {name} come from different files (by SHA-256)" for name in differing]
    ids = set(first.subjects.ids)
    for place, run in enumerate(runs[1:], start=2):
        alone = len(ids ^ set(run.subjects.ids))
        if alone:
            faults.append(f"{alone} records are judged in one of run 1 and run {place} alone")
    faults += [
        f"the evidence of run {place} is invalid, so its numbers do not mean membership"
        for place, run in enumerate(runs, start=1)
        if run.results.invalid
    ]
    return faults


_DRAWN_OTHERWISE = "their prompts are drawn otherwise, although from the same records"
_ONE_RUN = (
    "give both the same --shots, --position, --trials, --paired and --seed (one audit compares "
    "settings: --shots 1,4 --position first,last)"
)


def _are_of_one_pool(runs: Sequence[FinishedRun]) -> bool:
    """Whether all are audits of prompts that are drawn from the same records."""
    pools = {run.results.prompt.pool_sha256 if run.results.prompt else None for run in runs}
    return len(pools) == 1 and None not in pools


def _warnings(runs: Sequence[FinishedRun], unlike: Sequence[str]) -> list[str]:
    forced = [f"compared although {fault}" for fault in unlike]
    cautions = [
        f"run {place}: the evidence is to be read with caution"
        for place, run in enumerate(runs, start=1)
        if _verdict(run) == "caution"
    ]
    unchecked = [
        f"run {place}: whether its evidence is valid was not checked"
        for place, run in enumerate(runs, start=1)
        if _verdict(run) is None
    ]
    older = [
        f"run {place}: {n:,} answers of the endpoint are older than the run: they were in the cache "
        "(another --cache-dir asks anew)"
        for place, run in enumerate(runs, start=1)
        if (n := _remembered(run))
    ]
    return forced + cautions + unchecked + older


def _remembered(run: FinishedRun) -> int:
    """Answers of an endpoint, which may have changed since, that no attempt of the run has asked for.

    0 of a model that is at hand, and where an attempt did not live to say what it asked.
    """
    asked = [attempt.get("requests_scored") for attempt in run.about.get("attempts", ())]
    if "url" not in run.results.target or not all(counts is not None for counts in asked):
        return 0
    n_asked: int = sum(n for counts in asked for n in (counts or {}).values())
    return max(0, sum(run.results.requests.values()) - n_asked)


def _verdict(run: FinishedRun) -> str | None:
    return None if run.results.validity is None else run.results.validity.verdict


def _hash(run: FinishedRun, side: str) -> str:
    data = run.results.data
    return "" if data is None else str(getattr(data, side).sha256)


def _compared(run: FinishedRun) -> ComparedRun:
    return ComparedRun(
        id=run.results.run.id,
        folder=str(run.folder.path),
        model=run.results.target.get("model", ""),
        verdict=_verdict(run),
    )


# --- what differs? ------------------------------------------------------------------------------


def _what_differs(runs: Sequence[FinishedRun]) -> tuple[tuple[str, ...], tuple[Difference, ...]]:
    """What is the same in all runs, by name, and what is not, with its values."""
    facts = [_facts(run) for run in runs]
    names = list(dict.fromkeys(name for one in facts for name in one))
    same, differs = [], []
    for name in names:
        values = tuple(one.get(name, "–") for one in facts)
        if len(set(values)) > 1:
            differs.append(Difference(what=name, values=tuple(short(one) for one in values)))
        elif name in _WORTH_SAYING:
            same.append(name)
    return tuple(same), tuple(differs)


_WORTH_SAYING = (
    "members",
    "non-members",
    "model",
    "reference",
    "control model",
    "shadows",
    "seed",
    "attacks",
    "tool",
)


def _facts(run: FinishedRun) -> dict[str, str]:
    """Everything that a number may depend on, as text."""
    results = run.results
    prints = run.about.get("fingerprints")
    prints = prints if isinstance(prints, dict) else {}
    facts = {
        "members": _hash(run, "members")[:12],
        "non-members": _hash(run, "nonmembers")[:12],
        "model": str(prints.get("target", ""))[:12],
        "reference": str(prints.get("reference", "none"))[:12],
        "shadows": ", ".join(
            str(print_)[:12] for role, print_ in prints.items() if role.startswith(SHADOW)
        )
        or "none",
        **{f"target {name}": value for name, value in results.target.items()},
        **{f"reference {name}": value for name, value in (results.reference or {}).items()},
        **{f"control model {name}": value for name, value in (results.control_model or {}).items()},
        "attacks": ", ".join(row.name for row in results.attacks if row.kind == "attack"),
        "seed": str(results.run.seed),
        "kind of audit": results.run.scenario,
        "tool": results.run.tool,
        "schema": results.schema_version,
    }
    if CONTROL in prints:
        facts["control model"] = str(prints[CONTROL])[:12]
    if results.data is not None:
        facts["template"] = results.data.template_sha256[:12]
    for name, value in run.config.items():
        if name not in _NO_CHOICE:
            facts[f"setting {name}"] = _as_text(value)
    return facts


def _as_text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# --- pairs --------------------------------------------------------------------------------------


@dataclass
class _Pair:
    """The first run and a later one, on the ids that both have."""

    first: FinishedRun
    second: FinishedRun
    place: int
    subjects: Subjects
    confidence: float
    notes: list[str] = field(default_factory=list)
    _rows: dict[tuple[str, int], AttackResult] = field(default_factory=dict)

    @classmethod
    def of(cls, first: FinishedRun, second: FinishedRun, place: int) -> _Pair:
        sides = [_membership(run) for run in (first, second)]
        ids = tuple(sorted(set(sides[0]) & set(sides[1])))
        if not ids:
            raise ConfigError(
                f"run 1 and run {place + 1} have no record in common (by id)",
                fix="audit both models on the same files",
            )
        clash = sum(sides[0][id_] != sides[1][id_] for id_ in ids)
        if clash:
            raise ConfigError(
                f"{clash} records are members in one of run 1 and run {place + 1}, and non-members "
                "in the other",
                fix="were --members and --nonmembers exchanged, or are these different records?",
            )
        member = np.array([sides[0][id_] for id_ in ids], dtype=bool)
        subjects = Subjects(ids, member, _clusters((first, second), ids))
        return cls(first, second, place, subjects, _confidence(first))

    @property
    def n(self) -> tuple[int, int]:
        member = self.subjects.member
        return int(member.sum()), int((~member).sum())

    def differences(self, tell: Progress) -> Iterator[tuple[str, PairedDifference]]:
        """Every number of every attack that both have."""
        names = _attacks(self.first)
        others = _attacks(self.second)
        for done, name in enumerate(names, start=1):
            tell(f"comparing run {self.place + 1}", done, len(names))
            if name not in others:
                self.notes.append(f"{name} is not in run {self.place + 1}")
                continue
            yield from ((name, one) for one in self._attack(name))
        self.notes += [f"{name} is not in run 1" for name in others if name not in names]

    def _attack(self, name: str) -> tuple[PairedDifference, ...]:
        subjects, (first, second) = self._aligned(name)
        member, choices = subjects.member, self.first.choices
        missing = len(self.subjects.ids) - len(subjects.ids)
        if missing:
            self.notes.append(
                f"{name}: {missing} records without a score in run 1 or run {self.place + 1}"
            )
        try:
            if not member.any() or member.all():
                raise TooFewRecordsError("no records of one side are scored in both")  # noqa: TRY301
            return paired_differences(
                first,
                second,
                member,
                rng=np.random.default_rng([choices.seed, _STREAM]),
                fprs=self.rates,
                confidence=self.confidence,
                draws=choices.bootstrap,
                clusters=subjects.clusters,
                wider=LEARNT if is_learnt(_attacks(self.first)[name]) else 1.0,
            )
        except TooFewRecordsError as error:
            self.notes.append(f"{name} is not compared: {error.problem}")
            return ()

    @property
    def rates(self) -> tuple[float, ...]:
        """False-positive rates that both report, or else those of the first run."""
        first, second = (run.choices.fpr for run in (self.first, self.second))
        return tuple(rate for rate in first if rate in second) or first

    def change(self, name: str, one: PairedDifference, p_holm: float) -> Change:
        """The difference in the words of a report."""
        rows = [self._row(name, which) for which in (0, 1)]
        first, second = (_number_of(row, one.fpr) for row in rows)
        difference = Number.of(one.difference)
        verdict: Leakage = "cannot be told apart"
        note = None
        if p_holm <= 1 - self.confidence:
            verdict = "lower leakage" if one.difference.value < 0 else "higher leakage"
        inverted = [
            str(place) for place, row in zip((1, self.place + 1), rows, strict=True) if row.inverted
        ]
        if inverted and one.fpr is None:
            verdict = "not comparable"
            note = (
                f"members score lower than non-members in run {' and '.join(inverted)}: a smaller "
                "AUC is no smaller leak there"
            )
        return Change(
            run=self.place,
            attack=name,
            metric=one.metric,
            first=first,
            second=second,
            difference=difference,
            p=one.p,
            p_holm=p_holm,
            smallest=one.smallest,
            resolution=one.resolution,
            verdict=verdict,
            note=note,
        )

    def _aligned(self, name: str) -> tuple[Subjects, tuple[FloatArray, FloatArray]]:
        """Records that have a score in both, and both scores in their order."""
        scores = [_by_id(run, name) for run in (self.first, self.second)]
        ids = self.subjects.ids
        kept = [at for at, id_ in enumerate(ids) if all(id_ in one for one in scores)]
        clusters = self.subjects.clusters
        subjects = Subjects(
            tuple(ids[at] for at in kept),
            self.subjects.member[kept],
            None if clusters is None else tuple(clusters[at] for at in kept),
        )
        first, second = (np.array([one[ids[at]] for at in kept]) for one in scores)
        return subjects, (first, second)

    def _row(self, name: str, which: int) -> AttackResult:
        """One run's own numbers on the shared records: from its results where these are all."""
        if (name, which) not in self._rows:
            run = (self.first, self.second)[which]
            row = _attacks(run)[name]
            subjects, scores = self._aligned(name)
            if not self._covers(row, subjects):
                choices = run.choices.model_copy(
                    update={"confidence": self.confidence, "fpr": self.rates}
                )
                judge = Judge(choices, subjects)
                made = Scores(subjects.ids, scores[which])
                row = judge.row(name, made, kind="attack", learnt=is_learnt(row))
            self._rows[name, which] = row
        return self._rows[name, which]

    def _covers(self, row: AttackResult, subjects: Subjects) -> bool:
        return (
            row.auc is not None
            and row.auc.confidence == self.confidence
            and sum(row.n) == len(subjects.ids)
            and {at.fpr for at in row.tpr_at_fpr} >= set(self.rates)
            and subjects.clusters == self.subjects.clusters
            and (self.first.subjects.clusters is None) == (self.second.subjects.clusters is None)
        )


def _attacks(run: FinishedRun) -> dict[str, AttackResult]:
    """Attacks of the target that were judged; baselines say nothing about leakage."""
    return {row.name: row for row in run.results.attacks if row.kind == "attack"}


def _confidence(run: FinishedRun) -> float:
    levels = [row.auc.confidence for row in run.results.attacks if row.auc is not None]
    return levels[0] if levels else run.choices.confidence


def _membership(run: FinishedRun) -> dict[str, bool]:
    return dict(zip(run.subjects.ids, run.subjects.member.tolist(), strict=True))


def _by_id(run: FinishedRun, name: str) -> dict[str, float]:
    scores = run.scored.target.get(name)
    return {} if scores is None else dict(zip(scores.ids, scores.values.tolist(), strict=True))


def _clusters(runs: Sequence[FinishedRun], ids: tuple[str, ...]) -> tuple[int, ...] | None:
    """Records that belong together in any of the runs, numbered; None where each stands alone."""
    given = [
        dict(zip(run.subjects.ids, run.subjects.clusters, strict=True))
        for run in runs
        if run.subjects.clusters is not None
    ]
    if not given:
        return None
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    # A record is joined to the label that each run gave it; what hangs together is one cluster.
    labels: dict[tuple[int, Any], int] = {}
    links = [
        (at, labels.setdefault((which, one[id_]), len(ids) + len(labels)))
        for which, one in enumerate(given)
        for at, id_ in enumerate(ids)
        if one[id_] is not None
    ]
    size = len(ids) + len(labels)
    rows, columns = np.array(links, dtype=np.int64).reshape(-1, 2).T
    graph = coo_array((np.ones(len(links), dtype=np.int8), (rows, columns)), shape=(size, size))
    _, number = connected_components(graph, directed=False)
    return tuple(int(one) for one in number[: len(ids)])


def _number_of(row: AttackResult, fpr: float | None) -> Number:
    number = (
        row.auc if fpr is None else next((at.tpr for at in row.tpr_at_fpr if at.fpr == fpr), None)
    )
    if number is None:  # the same records gave a difference, so they give both numbers
        msg = f"{row.name} has no number at {fpr}"
        raise RuntimeError(msg)
    return number
