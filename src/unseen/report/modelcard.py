"""A section for a model card, and what the hub reads: a `model-index` in front of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from unseen.report import language as say
from unseen.report.markdown import safe
from unseen.report.sections import subject
from unseen.report.summary import number, percent_rate, rate

if TYPE_CHECKING:
    from unseen.runs.results import Number, Results

_TASK = "text-generation"
_DATA_TYPE = "private"
"""The records are the user's own: they are on no hub, and no name of a benchmark is made up."""


def render(results: Results) -> str:
    """Front matter and section; without a finding, the section alone says why.

    The front matter is what `huggingface_hub.ModelCardData` writes for the same results.
    """
    index = model_index(results)
    front = ""
    if index is not None:
        front = f"---\n{yaml.safe_dump({'model-index': [index]}, sort_keys=False, allow_unicode=True)}---\n\n"
    return front + _section(results)


def model_index(results: Results) -> dict[str, Any] | None:
    """The finding and the AUC of its attack as an entry of `model-index`; None without a finding."""
    found = say.headline(results)
    if found is None:
        return None
    attack, what = subject(results), _what(results)
    metrics = [
        _metric(found.metric, f"{what}, TPR at {percent_rate(found.fpr)} FPR", found.tpr),
        _metric("fpr", "False-positive rate of the same decisions", found.realised_fpr),
    ]
    if attack is not None and attack.auc is not None:
        name = f"{what}, AUC of {attack.name}"
        metrics.append(_metric("auc", name, attack.auc))
    dataset: dict[str, Any] = {"type": _DATA_TYPE, "name": "audited records (not published)"}
    if results.data is not None:
        dataset["args"] = {
            "members_sha256": results.data.members.sha256,
            "nonmembers_sha256": results.data.nonmembers.sha256,
        }
    model = results.target.get("model", "").rstrip("/").rpartition("/")[2]
    return {
        "name": model or "model",
        "results": [{"task": {"type": _TASK}, "dataset": dataset, "metrics": metrics}],
    }


def _what(results: Results) -> str:
    return "Membership inference" if results.prompt is None else "Membership inference in a prompt"


def _metric(type_: str, name: str, estimate: Number) -> dict[str, Any]:
    return {
        "type": type_,
        "value": estimate.value,
        "name": name,
        "args": {
            "interval": list(estimate.ci),
            "confidence": estimate.confidence,
            "members": estimate.n[0],
            "nonmembers": estimate.n[1],
        },
    }


def _section(results: Results) -> str:
    outcome = say.outcome(results)
    found, attack = say.headline(results), subject(results)
    lines = [f"## {_what(results)}", "", f"**{outcome.label}.** {safe(outcome.sentence)}", ""]
    lines += [f"- Read first: {safe(reason)}" for reason in outcome.reasons]
    lines.append(f"- Evidence: {say.verdict_word(results)} ({say.tally(results.checks)})")
    if found is not None:
        lines.append(f"- Members flagged: {rate(found.tpr)} of {found.tpr.n[0]}")
        lines.append(
            f"- Non-members flagged: {rate(found.realised_fpr)} of {found.realised_fpr.n[1]}"
        )
        if attack is not None and attack.auc is not None:
            lines.append(f"- AUC of {safe(attack.name)}: {number(attack.auc)} (chance 0.5)")
        if results.epsilon is not None:
            value, what = say.epsilon(results.epsilon)
            lines.append(f"- Privacy loss: {safe(value)} ({safe(what)})")
    if results.data is not None:
        data = results.data
        lines.append(
            f"- Records: {data.members.n_judged} members, {data.nonmembers.n_judged} non-members "
            + (f"(held out: {data.split_origin})" if results.prompt is None else "of a prompt")
        )
    lines.append(f"- Attacker's access: {safe(results.access) or 'scores alone'}")
    lines += [f"- Limit: {safe(limit)}" for limit in results.limitations]
    lines.append("")
    lines.append(f"Measured with {safe(results.run.tool)}, run {safe(results.run.id)}.")
    return "\n".join(lines) + "\n"
