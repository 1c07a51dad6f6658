"""A result as Markdown: report.md of the run folder."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from unseen.errors import visible
from unseen.report.summary import (
    facts,
    footnotes,
    label,
    number,
    percent_rate,
    rate,
    rows,
    shown_rates,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from unseen.runs.results import Results


def render(results: Results) -> str:
    """The report as one Markdown text."""
    title = {"finetune": "Membership audit of a fine-tuned model", "scores": "Membership scores"}
    finding = results.headline.sentence if results.headline else results.headline_note or ""
    notes = footnotes(results)
    parts = [
        f"# {title[results.run.scenario]}",
        "\n".join(f"- {safe(name)}: {safe(value)}" for name, value in facts(results) if name),
        "## Finding",
        safe(finding),
        "## Attacks",
        f"Intervals cover {_confidence(results)}. Higher scores mean more likely a member, for "
        "every attack. Blind rows never saw the model, and control rows ask the reference model: "
        "both must stay at chance.",
        _attacks(results),
        *([_list(notes)] if notes else []),
        *_headline(results),
        *_slices(results),
        "## Limits",
        _list(results.limitations),
        "## Provenance",
        _list(
            [
                f"run {results.run.id}, {results.run.created}, {results.run.tool}",
                f"plan {results.run.plan}, seed {results.run.seed}",
                *(f"{name} {value}" for name, value in sorted(results.target.items())),
            ]
        ),
    ]
    return "\n\n".join(parts) + "\n"


def safe(text: str) -> str:
    r"""Text that stays text: no markup, no HTML, no control characters, one line, one table cell.

    >>> safe("a|b <script>")
    'a\\|b &lt;script&gt;'
    """
    flat = visible(" ".join(text.split()))
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", html.escape(flat, quote=False))


def _attacks(results: Results) -> str:
    header = ["", "attack", "n", "AUC", *(f"TPR @ {percent_rate(fpr)} FPR" for fpr in
                                            shown_rates(results))]  # fmt: skip
    lines = [
        ["►" if row.chosen else "", label(row), row.n, row.auc, *row.tprs] for row in rows(results)
    ]
    return _table(header, lines)


def _headline(results: Results) -> list[str]:
    found = results.headline
    if found is None:
        return []
    return [
        "## How the finding was made",
        f"Attack and threshold were chosen on other records than they were judged on, fold by "
        f"fold (chosen: {safe(', '.join(found.chosen))}). At a false-positive rate of "
        f"{percent_rate(found.fpr)} on those other records, the judged members were flagged at "
        f"{rate(found.tpr)} and the judged non-members at {rate(found.realised_fpr)}.",
    ]


def _slices(results: Results) -> list[str]:
    if not results.slices:
        return []
    lines = [
        [
            part.by, part.value, part.attack, f"{part.n[0]} + {part.n[1]}",
            "–" if part.auc is None else number(part.auc),
            "–" if not (at := part.tpr_at_fpr) or at[0].tpr is None else rate(at[0].tpr),
            "–" if part.p_holm is None else f"{part.p_holm:.3g}",
            part.note or "",
        ]
        for part in results.slices
    ]  # fmt: skip
    header = ["by", "value", "attack", "n", "AUC", "TPR", "p (Holm)", ""]
    return ["## Groups", _table(header, lines)]


def _table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    body = [[safe(cell) for cell in line] for line in (header, *lines)]
    body.insert(1, ["---"] * len(header))
    return "\n".join(f"| {' | '.join(line)} |" for line in body)


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {safe(item)}" for item in items)


def _confidence(results: Results) -> str:
    levels = {f"{100 * attack.auc.confidence:g} %" for attack in results.attacks if attack.auc}
    return " / ".join(sorted(levels)) or "nothing: there are no estimates"
