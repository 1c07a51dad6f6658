"""Run folders made from numbers: no model, no texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unseen.runs.config import StatisticsChoices
from unseen.runs.folder import RunFolder
from unseen.runs.judge import Judge
from unseen.runs.results import DataFacts, Results, RunFacts, Side, Validity
from unseen.runs.subjects import Scored, Subjects
from unseen.types import Scores


def side(name: str, n: int, sha: str | None = None) -> Side:
    return Side(path=f"{name}.jsonl", sha256=sha or f"{name}-hash", n_read=n, n_judged=n)


def write(
    path: Path,
    scores: Mapping[str, Sequence[float]],
    member: Sequence[bool],
    *,
    ids: Sequence[str] | None = None,
    clusters: Sequence[int] | None = None,
    unscored: Mapping[str, Sequence[str]] | None = None,
    blind: Sequence[str] = (),
    verdict: str | None = "valid",
    hashes: tuple[str | None, str | None] = (None, None),
    config: Mapping[str, Any] | None = None,
    target: Mapping[str, str] | None = None,
    scenario: str = "finetune",
) -> Path:
    """A finished run of these scores.

    Args:
        path: the folder.
        scores: attack -> a score a record.
        member: who is a member.
        ids: of the records; r0, r1, ... if not given.
        clusters: a number a record.
        unscored: attack -> ids that have no score.
        blind: which attacks are blind baselines.
        verdict: of the evidence; None: not checked.
        hashes: of both files.
        config: choices beside the usual.
        target: facts about the model.
        scenario: kind of audit.
    """
    member = np.asarray(member, dtype=bool)
    ids = tuple(ids or [f"r{i}" for i in range(len(member))])
    choices = {"fpr": [0.05, 0.1], "confidence": 0.95, "bootstrap": 200, "folds": 2, "seed": 0}
    choices |= dict(config or {})
    subjects = Subjects(ids, member, None if clusters is None else tuple(clusters))
    fields = StatisticsChoices.model_fields
    judge = Judge(StatisticsChoices(**{k: v for k, v in choices.items() if k in fields}), subjects)
    made = {}
    for name, values in scores.items():
        out = set((unscored or {}).get(name, ()))
        kept = [at for at, id_ in enumerate(ids) if id_ not in out]
        made[name] = Scores(
            tuple(ids[at] for at in kept),
            np.asarray(values, dtype=np.float64)[kept],
            dict.fromkeys(out, "too short"),
        )
    rows = [
        judge.row(name, one, kind="blind" if name in blind else "attack")
        for name, one in made.items()
    ]
    verdicts = judge.verdicts(rows, Scored(made), [])
    n = (int(member.sum()), int((~member).sum()))
    invalid = verdict == "invalid"
    results = Results(
        run=RunFacts(
            id=path.name, created="2026-01-01T00:00:00+00:00", tool="unseen 0", scenario=scenario,
            seed=choices["seed"], plan="p", seconds=1.0,
        ),
        target={"provider": "fake", "model": "m"} | dict(target or {}),
        access="logit",
        data=DataFacts(
            members=side("members", n[0], hashes[0]),
            nonmembers=side("nonmembers", n[1], hashes[1]),
            format="text", loss_on="all", template_sha256="t",
        ),
        attacks=verdicts.attacks,
        headline=None if invalid else verdicts.headline,
        headline_note="the evidence is invalid" if invalid else verdicts.headline_note,
        validity=None
        if verdict is None
        else Validity(verdict=verdict, reasons=() if verdict == "valid" else ("blind: it differs",)),
    )  # fmt: skip
    folder = RunFolder(path)
    about = {
        "schema_version": "1.0", "id": path.name, "tool": "unseen 0", "status": "complete",
        "config": choices, "fingerprints": {"target": (target or {}).get("model", "m")},
    }  # fmt: skip
    folder.write_json("run.json", about)
    folder.write_text("config.yaml", "seed: 0\n")
    folder.write_table("records.parquet", judge.table(verdicts.scored))
    folder.write_json("results.json", results.model_dump(mode="json"))
    folder.write_text("report.md", "report\n")
    folder.write_manifest()
    return path


def binormal(
    n: int, distance: float, seed: int, *, rho: float = 0.7, shared: int = 10_000
) -> tuple[np.ndarray, np.ndarray]:
    """Scores of 2n records, members N(distance, 1), and who is a member.

    Equal `shared` give scores that share rho of their variance, whatever the seed.
    """
    member = np.arange(2 * n) < n
    common = np.random.default_rng(shared).normal(size=2 * n)
    own = np.random.default_rng(seed).normal(size=2 * n)
    return distance * member + np.sqrt(rho) * common + np.sqrt(1 - rho) * own, member
