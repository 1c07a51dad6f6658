"""Results and run folders that are made by hand, with everything that a report can show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from unseen.metrics.roc import roc_curve
from unseen.runs.folder import RunFolder
from unseen.runs.results import (
    AttackResult,
    Check,
    DataFacts,
    Epsilon,
    Exposed,
    Headline,
    Number,
    RenderedPart,
    Results,
    Roc,
    RunFacts,
    SharedFeature,
    Side,
    Slice,
    ThreatModel,
    TprAtFpr,
    Validity,
)

SENTENCE = "At a threshold set for 10% false alarms, 40% of the training records are identified."


def number(value: float, n: tuple[int, int] = (50, 40)) -> Number:
    """An estimate with an interval of 0.1 to both sides."""
    return Number(value=value, ci=(value - 0.1, value + 0.1), confidence=0.95, method="m", n=n)


def attack(name: str, auc: float | None, kind: str = "attack", **more: Any) -> AttackResult:
    """A row with one rate that is resolved, and one that is not."""
    at = (
        TprAtFpr(
            fpr=0.01, expected_false_positives=0.4, resolution="unresolvable", needs_nonmembers=100
        ),
        TprAtFpr(
            fpr=0.1,
            tpr=number(0.4),
            threshold=1.0,
            expected_false_positives=4,
            resolution="indicative",
            needs_nonmembers=100,
        ),
    )
    given = {"n": (50, 40), "auc": None if auc is None else number(auc), "tpr_at_fpr": at} | more
    return AttackResult(name=name, kind=kind, **given)


def check(id_: str, status: str, **more: Any) -> Check:
    """A check."""
    given = {"title": id_.replace("_", " "), "detail": f"what {id_} found"} | more
    return Check(id=id_, status=status, **given)


def results(**changes: Any) -> Results:
    """A finding with every part; what is named in `changes` stands in place of it."""
    parts: dict[str, Any] = {
        "run": RunFacts(
            id="r", created="2026-01-01", tool="unseen", scenario="finetune", seed=0, plan="p",
            seconds=1.0,
        ),
        "target": {"model": "m|<script>alert(1)</script>", "provider": "hf"},
        "access": "logit",
        "data": DataFacts(
            members=Side(path="m.jsonl", sha256="a" * 64, n_read=60, n_judged=50),
            nonmembers=Side(path="n.jsonl", sha256="b" * 64, n_read=60, n_judged=40),
            format="messages",
            loss_on="assistant",
            template_sha256="c" * 64,
            dropped={"near duplicate": 7},
            set_aside=(3, 13),
            truncated=2,
            repeated=(4, 0),
            scored_tokens=1234,
            example=(
                RenderedPart(kind="special", n_tokens=1, scored=False, text="<|begin|>", ids=(1,)),
                RenderedPart(kind="template", n_tokens=2, scored=False, text="user\n", ids=(5, 6)),
                RenderedPart(kind="content", n_tokens=31, scored=True),
            ),
        ),
        "attacks": (
            attack("weak", 0.55, unscored={"too short": 3}),
            attack("strong", 0.9, paper="Doe et al. 2027, arXiv:2701.00001"),
            attack("words", 0.5, "blind"),
            attack("upside_down", 0.2, inverted=True),
        ),
        "control": (attack("strong", 0.5, "control"),),
        "skipped": {"other": "it needs logits"},
        "headline": Headline(
            metric="tpr@fpr=0.1", fpr=0.1, chosen=("strong", "strong"), tpr=number(0.4),
            realised_fpr=number(0.1), found=True, sentence=SENTENCE,
        ),
        "checks": (
            check("blind_baseline", "pass", value=0.5, ci=(0.4, 0.6), limit="at most 0.6"),
            check("overlap", "warn", fix="look at <b>dropped.csv</b>"),
            check("split_origin", "skip"),
        ),
        "validity": Validity(verdict="caution", reasons=("overlap: what overlap found",)),
        "threat_model": ThreatModel(
            access="logit", knows=("the record",), release_context="public-api",
            taxonomy={"MITRE ATLAS": "AML.T0024.000"},
        ),
        "exposed": Exposed(
            attack="strong",
            n_above_all=6,
            n_compared=10,
            features=(SharedFeature(name="length", exposed=90, others=41, auc=0.8, p_holm=0.0004),),
        ),
        "slices": (
            Slice(by="<b>", value="x|y", attack="strong", n=(5, 5), note="too few"),
            Slice(
                by="<b>", value="z", attack="strong", n=(45, 35), auc=number(0.8), p=0.01,
                p_holm=0.02,
            ),
        ),
        "requests": {"target": 90, "reference": 45},
        "limitations": ("only these records",),
        "out_of_scope": ("attribute inference",),
    }  # fmt: skip
    return Results(**(parts | changes))


def invalid(**changes: Any) -> Results:
    """The same, with evidence that is no evidence; the finding is still in the file."""
    failed = check("blind_baseline", "fail", value=0.97, ci=(0.96, 0.98), fix="hold out at random")
    verdict = Validity(verdict="invalid", reasons=("the two files differ without any model",))
    return results(**({"checks": (failed,), "validity": verdict} | changes))


def bound(kind: str = "bound") -> Epsilon:
    """A bound on epsilon, or a number that is none."""
    return Epsilon(
        kind=kind, lower=2.3, delta=1e-5, confidence=0.95, method="one run", guesses=100, correct=91
    )


def folder(
    path: Path,
    found: Results | None = None,
    *,
    n: tuple[int, int] = (50, 40),
    ids: dict[int, str] | None = None,
    text: bool = False,
    seed: int = 0,
) -> RunFolder:
    """A sealed run folder with scores of the attack `strong` that fit a planted leak.

    Args:
        path: where.
        found: the results; their attack `strong` gets the curve of these scores.
        n: members and non-members.
        ids: ids of some rows, in place of the usual.
        text: keep a text of each record.
        seed: of the scores.
    """
    made = found or results()
    rng = np.random.default_rng(seed)
    member = np.array([True] * n[0] + [False] * n[1])
    scores = rng.normal(member * 2.0, 1.0)
    others = scores[~member]
    names = {i: f"record-{i:05d}" for i in range(len(member))} | (ids or {})
    columns: dict[str, Any] = {
        "id": [names[i] for i in range(len(member))],
        "member": member.tolist(),
        "n_tokens": rng.integers(20, 400, len(member)).tolist(),
        "slice.file": [("work", "health")[i % 2] for i in range(len(member))],
        "score.strong": scores.tolist(),
        "population_fpr.strong": [float((others >= score).mean()) for score in scores],
    }
    if text:
        columns["text"] = [f"secret of {i} <b>" for i in range(len(member))]
    curve = roc_curve(scores[member], others)
    roc = Roc(fpr=tuple(curve.fpr), tpr=tuple(curve.tpr))
    attacks = tuple(
        row.model_copy(update={"roc": roc}) if row.name == "strong" else row for row in made.attacks
    )
    made = made.model_copy(update={"attacks": attacks})
    run = RunFolder(path)
    run.write_json("run.json", about(path.name))
    run.write_text("config.yaml", "folds: 2\n")
    run.write_json("results.json", made.model_dump(mode="json"))
    run.write_table("records.parquet", columns)
    run.write_text("report.md", "")
    run.write_manifest()
    return run


def about(name: str = "r") -> dict[str, Any]:
    """run.json of a finished run."""
    return {
        "schema_version": "1.0",
        "id": name,
        "status": "complete",
        "attempts": [{"tokens_read": {"target": 700}}, {"tokens_read": {"target": 77}}],
        "config": {"folds": 2, "bootstrap": 2000, "runs": "runs", "seed": 0, "model": "m"},
        "fingerprints": {"target": "f00d"},
        "provenance": {"python": "3.11", "packages": {"numpy": "2.4"}, "cores": 2},
    }


def change(run: RunFolder, name: str, **fields: Any) -> None:
    """Changes a JSON file of a run, and seals it again."""
    content = json.loads((run.path / name).read_text()) | fields
    run.write_json(name, content)
    run.write_manifest()
