"""The end of a run: its results, what others can take of it, and a manifest that seals it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unseen import __version__
from unseen.runs.folder import RunFolder
from unseen.runs.lending import keep, lend, sketch_kept
from unseen.runs.provenance import now
from unseen.runs.results import Results, RunFacts

if TYPE_CHECKING:
    from unseen.attacks.base import Attack
    from unseen.runs.collect import Cost
    from unseen.runs.judge import Judge, Verdicts
    from unseen.runs.lent import Lent
    from unseen.signals.base import Observations

Report = Callable[[RunFolder, Results], None]


def run_facts(about: Mapping[str, Any], started: float) -> RunFacts:
    """What the results say of the run itself.

    Args:
        about: its header, run.json.
        started: when this attempt has begun, as `time.monotonic` says it.
    """
    return RunFacts(
        id=about["id"],
        created=about["created"],
        tool=about["tool"],
        scenario=about["scenario"],
        seed=about["config"]["seed"],
        plan=about["plan"],
        seconds=round(time.monotonic() - started, 1),
    )


def facts_of_no_run(scenario: str, seed: int, started: float | None = None) -> RunFacts:
    """The same, of results that no run folder holds.

    Args:
        scenario: what was looked at.
        seed: of everything that was drawn.
        started: as of `run_facts`; None where nobody asks how long it took.
    """
    return RunFacts(
        id="",
        created=now(),
        tool=f"unseen {__version__}",
        scenario=scenario,
        seed=seed,
        plan="",
        seconds=0.0 if started is None else round(time.monotonic() - started, 1),
    )


def write_results(
    folder: RunFolder,
    results: Results,
    judge: Judge,
    verdicts: Verdicts,
    attacks: Sequence[Attack],
    observations: Observations,
    lent: Lent | None,
) -> None:
    """Writes results.json, the scores of every record, and what attacks have learned.

    Args:
        folder: of the run; the sketch of its records is there already.
        results: of the run.
        judge: of its records.
        verdicts: that it has given.
        attacks: on the target.
        observations: what was measured.
        lent: what the run has taken from another audit.
    """
    folder.write_table("records.parquet", judge.table(verdicts.scored))
    folder.write_json("results.json", results.model_dump(mode="json"))
    made, known_again = verdicts.scored.target, sketch_kept(folder)
    keep(folder, lent, lend(attacks, made, observations, judge.subjects, results, known_again))


def complete(folder: RunFolder, about: dict[str, Any], costs: Iterable[Cost]) -> None:
    """Writes into the header that the run is complete, and what it took.

    Args:
        folder: of the run.
        about: its header, run.json.
        costs: of everything that was measured in this attempt.
    """
    taken = list(costs)
    about["attempts"][-1] |= {
        "ended": now(),
        "status": "complete",
        "requests_scored": _summed(cost.scored for cost in taken),
        "tokens_read": _summed(cost.tokens for cost in taken),
    }
    folder.write_json("run.json", about | {"status": "complete"})


def seal(folder: RunFolder, results: Results, report: Report | None) -> None:
    """Lets the results be written for people, and then says what every file of the folder holds."""
    if report is not None:
        report(folder, results)
    folder.write_manifest()


def _summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Counts by role, of all sets of records together."""
    found: Counter[str] = Counter()
    for one in counts:
        found.update(one)
    return dict(found)
