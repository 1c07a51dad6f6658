"""A result as rows and sentences: what every rendering shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unseen.runs.rendered import in_a_line
from unseen.runs.results import Apart, AttackResult, Number, PromptFacts, Results, TprAtFpr

INDICATIVE = "*"

SEEN_AS_TARGET = {
    "reference": "on the reference",
    "control": "on the control model",
    "empty": "behind an empty prompt",
}
"""Where a control asks, by the model of its row."""


@dataclass(frozen=True)
class Row:
    """One line of the table of attacks, as text."""

    name: str
    kind: str
    chosen: bool
    n: str
    auc: str
    tprs: tuple[str, ...]
    model: str = ""


def facts(results: Results) -> list[tuple[str, str]]:
    """Who was asked, about what, with which access."""
    lines: list[tuple[str, str]] = []
    if results.target:
        about = results.target
        parts = [
            about.get("model", ""),
            about.get("dtype", ""),
            about.get("device", ""),
            about.get("url", ""),
        ]
        lines.append(("target", f"{about.get('provider', '')} · " + ", ".join(filter(None, parts))))
    if results.reference:
        lines.append(("reference", results.reference.get("model", "")))
    if results.control_model:
        lines.append(("control", results.control_model.get("model", "")))
    if results.shadows:
        lines.append(("shadows", ", ".join(one.get("model", "") for one in results.shadows)))
    data = results.data
    if results.prompt is not None:
        lines += _of_prompt(results, results.prompt)
    elif data is not None:
        lines.append(
            (
                "data",
                f"{data.members.n_judged} members ({data.members.path}) · "
                f"{data.nonmembers.n_judged} non-members ({data.nonmembers.path}) · "
                f"{data.format}, loss on {data.loss_on}",
            )
        )
        lines += [
            ("", f"{one.n[1]} {one.kind} non-members ({one.source.path}), judged apart")
            for one in results.apart
        ]
        left_out = [f"{n} {reason}" for reason, n in sorted(data.dropped.items())]
        if data.set_aside != (0, 0):
            left_out.append(f"{data.set_aside[0]} + {data.set_aside[1]} set aside as known")
        if data.truncated:
            left_out.append(f"{data.truncated} cut to fit the context")
        if left_out:
            lines.append(("", "; ".join(left_out)))
        if data.example:
            lines.append(("example", in_a_line(data.example)))
    if results.access:
        lines.append(("access", f"{results.access}: {len(results.attacks)} attacks and baselines"))
    return lines


def _of_prompt(results: Results, about: PromptFacts) -> list[tuple[str, str]]:
    """The prompt and its records, as names and values for the head of a report."""
    data = results.data
    chat = " as messages" if about.chat else ""
    if about.observed:
        prompt = f"at the other end, asked by {about.template}{chat}"
    else:
        shots = f"{about.shots} demonstration{'s' * (about.shots != 1)}"
        prompt = f"{about.template}{chat}, {shots}, the record in question {about.position}"
    labels = "free text" if about.n_labels is None else f"{about.n_labels} labels"
    found = [("prompt", f"{prompt}; answers: {labels}")]
    if about.tokens is not None:
        low, middle, high = about.tokens
        found.append(("", f"{low:,} to {high:,} tokens with the question, median {middle:,}"))
    if data is None:
        return found
    if about.observed:
        sides = (
            f"{data.members.n_judged} members ({data.members.path}) · {data.nonmembers.n_judged} "
            f"non-members ({data.nonmembers.path})"
        )
        left_out = "; ".join(f"{n} {reason}" for reason, n in sorted(data.dropped.items()))
        return [*found, ("data", sides), *((("", left_out),) if left_out else ())]
    paired = ", one record both ways" if about.paired else ""
    found.append(
        (
            "data",
            f"{about.trials} trials by coin{paired}, of {about.n_pool:,} records ({data.members.path})",
        )
    )
    if results.settings:
        n = len(results.settings)
        found.append(("", f"{n} further setting{'s' * (n != 1)} of the same trials"))
    return found


def shown_rates(results: Results) -> tuple[float, ...]:
    """False-positive rates that at least one attack resolves."""
    return tuple(
        sorted(
            {
                at.fpr
                for attack in (*results.attacks, *results.control)
                for at in attack.tpr_at_fpr
                if at.tpr is not None
            },
            reverse=True,
        )
    )


def rows(results: Results) -> list[Row]:
    """Attacks, best first, then the baselines that must stay at chance, then chance itself."""
    rates = shown_rates(results)
    chosen = set(results.headline.chosen) if results.headline else set()
    attacks = [attack for attack in results.attacks if attack.kind == "attack"]
    blind = [attack for attack in results.attacks if attack.kind == "blind"]
    ordered = sorted(attacks, key=by_auc) + blind + list(results.control)
    made = [
        _row(attack, rates, chosen=attack.name in chosen, model=model_of(attack, results))
        for attack in ordered
    ]
    if not results.control and results.control_note:
        made.append(Row("control", "control", chosen=False, n="", auc="–",
                        tprs=tuple("–" for _ in rates)))  # fmt: skip
    chance = Row("chance", "chance", chosen=False, n="", auc="0.500",
                 tprs=tuple(percent(rate) for rate in rates))  # fmt: skip
    return [*made, chance]


def label(row: Row) -> str:
    """The row's name, with what kind of baseline it is."""
    if row.kind == "blind":
        return f"blind: {row.name}"
    if row.kind == "control" and row.name != "control":
        return f"control: {row.name} {SEEN_AS_TARGET[row.model]}"
    return row.name


def number(estimate: Number, digits: int = 3) -> str:
    """A number with its interval.

    >>> number(Number(value=0.5, ci=(0.25, 0.75), confidence=0.95, method="m", n=(9, 9)))
    '0.500 [0.250, 0.750]'
    """
    low, high = estimate.ci
    return f"{estimate.value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def rate(estimate: Number) -> str:
    """A rate with its interval, in per cent."""
    return f"{percent(estimate.value)} [{percent(estimate.ci[0])}, {percent(estimate.ci[1])}]"


def percent(value: float) -> str:
    """A share in per cent, with as many digits as mean something.

    >>> percent(0.05), percent(0.001), percent(0.1234)
    ('5.0%', '0.1%', '12.3%')
    """
    return f"{100 * value:.1f}%"


def percent_rate(fpr: float) -> str:
    """A chosen false-positive rate, without zeros that say nothing.

    >>> percent_rate(0.05), percent_rate(0.001)
    ('5%', '0.1%')
    """
    return f"{100 * fpr:g}%"


def signed(estimate: Number, digits: int = 3) -> str:
    """A difference with its sign and its interval.

    >>> signed(Number(value=0.5, ci=(-0.25, 0.75), confidence=0.95, method="m", n=(9, 9)))
    '+0.500 [−0.250, +0.750]'
    """
    value, low, high = (
        f"{one:+.{digits}f}".replace("-", "−") for one in (estimate.value, *estimate.ci)
    )
    return f"{value} [{low}, {high}]"


def groups(results: Results) -> list[dict[str, Any]]:
    """AUC by group: of columns, and, of a prompt, by place and number of demonstrations."""
    found = [_group(one.by, one.value, one.attack, one.n, one.auc) for one in results.slices]
    about = results.prompt
    if about is None or about.shots is None:
        return found
    of_settings = [
        (about.shots, about.position, results.attacks),
        *(
            (one.shots, one.position, one.attacks)
            for one in results.settings
            if one.defense == "none"
        ),
    ]
    for by, same, at in (("position", 0, 1), ("shots", 1, 0)):
        for setting in of_settings:
            if setting[same] == of_settings[0][same]:
                found += [
                    _group(by, str(setting[at]), row.name, row.n, row.auc)
                    for row in setting[2]
                    if row.kind == "attack"
                ]
    return found


def _group(
    by: str, value: str, attack: str, n: tuple[int, int], auc: Number | None
) -> dict[str, Any]:
    low, high = (None, None) if auc is None else auc.ci
    return {
        "by": by,
        "value": value,
        "attack": attack,
        "n": n,
        "auc": None if auc is None else auc.value,
        "low": low,
        "high": high,
    }


def gains(results: Results) -> list[tuple[str, str, str]]:
    """What attacks on weights, and those that learn, add: the pair, its difference, what that means."""
    return [
        (
            f"{gain.attack} − {gain.baseline}",
            "–" if gain.difference is None else signed(gain.difference),
            (gain.note or "") if gain.difference is None else _meant(gain.difference),
        )
        for gain in results.gains
    ]


def _meant(difference: Number) -> str:
    low, high = difference.ci
    return "a gain" if low > 0 else "less than the answers say" if high < 0 else "no gain is shown"


APART_HEADER = ("attack", "AUC", "difference", "on the reference", "on the control model", "")


def apart(one: Apart) -> list[tuple[str, ...]]:
    """A set of non-members of another kind as rows of `APART_HEADER`: attacks by AUC, then baselines."""
    on = {(row.name, row.model): row for row in one.control}
    shifts = {shift.attack: shift.difference for shift in one.shifts}
    attacks = sorted((row for row in one.attacks if row.kind == "attack"), key=by_auc)
    blind = [row for row in one.attacks if row.kind == "blind"]
    return [
        (
            f"blind: {row.name}" if row.kind == "blind" else row.name,
            _auc(row),
            "–" if (by := shifts.get(row.name)) is None else signed(by),
            _auc(on.get((row.name, "reference"))),
            _auc(on.get((row.name, "control"))),
            _said_of(row, one),
        )
        for row in (*attacks, *blind)
    ]


def _auc(row: AttackResult | None) -> str:
    return "–" if row is None or row.auc is None else number(row.auc)


def _said_of(row: AttackResult, one: Apart) -> str:
    if row.kind == "blind":
        above = row.auc is not None and row.auc.ci[0] > 0.5
        return "tells them apart without any model" if above else ""
    if row.name in one.separates:
        return "also separates without membership"
    return row.note or ""


def footnotes(results: Results) -> list[str]:
    """What the reader of the table must know."""
    notes: list[str] = []
    everything = [at for attack in results.attacks for at in attack.tpr_at_fpr]
    if any(at.resolution == "indicative" and at.tpr is not None for at in everything):
        notes.append(f"{INDICATIVE} fewer than 10 expected false positives: indicative only")
    hidden = {at.fpr: at.needs_nonmembers for at in everything if at.resolution == "unresolvable"}
    notes += [
        f"{percent_rate(fpr)} FPR cannot be resolved with these non-members: it takes {needed}"
        for fpr, needed in sorted(hidden.items())
    ]
    if results.control_note:
        on_reference = any(row.model != "control" for row in results.control)
        left_out = "" if on_reference else "not measured; "
        notes.append(f"control: {left_out}{results.control_note}")
    if results.control_model_note:
        notes.append(f"control model: {results.control_model_note}")
    for attack in (*results.attacks, *results.control):
        if attack.note is not None:
            notes.append(f"{_full_name(attack)} is not judged: {attack.note}")
        if attack.unscored:
            reasons = "; ".join(f"{n} × {reason}" for reason, n in sorted(attack.unscored.items()))
            notes.append(f"{_full_name(attack)} has no score for some records: {reasons}")
    notes += [f"{name} was not run: {why}" for name, why in sorted(results.skipped.items())]
    return [*notes, *results.notes]


def evidence(results: Results) -> str:
    """The verdict in one sentence."""
    validity = results.validity
    if validity is None:
        return ""
    if results.run.scenario == "data" and validity.verdict == "valid":
        return "valid as far as the records go; no model was asked."
    tail = "not proof that nothing else leaks"
    if validity.verdict == "valid":
        controls = [c.status for c in results.checks if c.id in ("control", "control_model")]
        unchecked = bool(controls) and set(controls) == {"skip"}
        alone = ", without a control model" if unchecked else ""
        return f"valid{alone}, for this model, this data and these attacks; {tail}."
    if validity.verdict == "caution":
        n = len(validity.reasons)
        return f"caution, {n} {'reason' if n == 1 else 'reasons'} above; {tail}."
    return f"invalid: {'; '.join(validity.reasons)}."


def mends(results: Results) -> list[str]:
    """What to do about the checks that failed or warn."""
    ordered = sorted(results.checks, key=lambda check: check.status != "fail")
    found = [c.fix for c in ordered if c.status in ("fail", "warn") and c.fix is not None]
    return list(dict.fromkeys(found))


def model_of(row: AttackResult, results: Results) -> str:
    """Whom a control asks; empty for other rows."""
    if row.kind != "control":
        return ""
    return "empty" if results.prompt is not None else row.model or "reference"


def _row(attack: AttackResult, rates: tuple[float, ...], *, chosen: bool, model: str) -> Row:
    by_rate = {at.fpr: at for at in attack.tpr_at_fpr}
    return Row(
        name=attack.name,
        kind=attack.kind,
        chosen=chosen and attack.kind == "attack",
        n=f"{attack.n[0]} + {attack.n[1]}",
        auc="–" if attack.auc is None else number(attack.auc),
        tprs=tuple(_tpr(by_rate.get(fpr)) for fpr in rates),
        model=model,
    )


def _tpr(at: TprAtFpr | None) -> str:
    if at is None or at.tpr is None:
        return "–"
    mark = f" {INDICATIVE}" if at.resolution == "indicative" else ""
    return rate(at.tpr) + mark


def by_auc(attack: AttackResult) -> float:
    """Sorts attacks: the best first, and last those that are not judged."""
    return 1.0 if attack.auc is None else -attack.auc.value


def _full_name(attack: AttackResult) -> str:
    if attack.kind != "control":
        return attack.name
    return f"{'control model' if attack.model == 'control' else 'control'} {attack.name}"
