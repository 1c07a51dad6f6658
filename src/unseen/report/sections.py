"""A report as sections of blocks: what Markdown and HTML both show, each in its own way."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from unseen.report import defences, prompt
from unseen.report import language as say
from unseen.report.summary import (
    APART_HEADER,
    apart,
    facts,
    footnotes,
    gains,
    model_of,
    number,
    percent_rate,
    rate,
    rows,
    shown_rates,
    signed,
)

if TYPE_CHECKING:
    from unseen.report.summary import Row
    from unseen.runs.results import (
        AttackResult,
        Check,
        DriftStep,
        FeatureSet,
        Middle,
        Number,
        OptimizationGap,
        RenderedPart,
        Results,
        SplitProtocol,
    )


STEP_CHECK = "gradient_step"
"""The id of the check that tries a step before the audit."""


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    strong: bool = False


@dataclass(frozen=True)
class Bullets:
    """A list; an item may begin with words that lead."""

    items: tuple[str | tuple[str, str], ...]


@dataclass(frozen=True)
class Pairs:
    """Names and values."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Grid:
    """A table of text; `numeric` are the columns that are set to the right."""

    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    intervals: tuple[Number | None, ...] = ()
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Code:
    """Text that is typed, or read by a program."""

    text: str
    name: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Checks:
    """What was checked."""

    checks: tuple[Check, ...]


@dataclass(frozen=True)
class Example:
    """The first record as the model reads it."""

    parts: tuple[RenderedPart, ...]


@dataclass(frozen=True)
class Figure:
    """A place for a figure, where a rendering has one."""

    name: str


@dataclass(frozen=True)
class Audience:
    """Blocks for one kind of reader."""

    title: str
    blocks: tuple[Block, ...]


_URGENCY = ("fail", "warn", "skip", "pass")

Block = Text | Bullets | Pairs | Grid | Code | Checks | Example | Figure | Audience


@dataclass(frozen=True)
class Section:
    """A part of the report, with a name that links can use."""

    id: str
    title: str
    blocks: tuple[Block, ...]


def sections(results: Results, about: Mapping[str, Any] | None = None) -> tuple[Section, ...]:
    """Every section of a report but its title.

    Args:
        results: of the run.
        about: run.json, or None where there is no run folder.
    """
    about = about or {}
    gap, steps = results.optimization_gap, (*_drift(results), *_stability(results))
    settings, defended = _settings(results), _defences(results)
    return (
        Section("evidence", "Is the evidence valid?", _evidence(results)),
        Section("attacks", "How well do the attacks work?", _attacks(results)),
        *((Section("settings", "In which setting does it leak?", settings),) if settings else ()),
        *((Section("defences", "What does a defence help?", defended),) if defended else ()),
        *(
            (Section("kinds", "Non-members of other kinds", _kinds(results)),)
            if results.apart
            else ()
        ),
        Section("records", "Which records are exposed?", _records(results, about)),
        *(() if gap is None else (Section("gap", "What is left to learn?", _gap(gap)),)),
        *((Section("drift", "What does one step show?", steps),) if steps else ()),
        *(
            (Section("layers", "Which layers tell them apart?", _layers(results)),)
            if results.layers
            else ()
        ),
        Section("groups", "Which groups?", _groups(results)),
        Section("meaning", "What does it mean?", _meaning(results, about)),
        Section("cost", "Cost and coverage", _cost(results, about)),
        Section("provenance", "Provenance", _provenance(results, about)),
        Section("limits", "Limits", _limits(results)),
    )


def subject(results: Results) -> AttackResult | None:
    """The attack that records are ranked by: that of the finding, or else the best."""
    name = results.exposed.attack if results.exposed is not None else None
    if name is None and (found := say.headline(results)) is not None:
        name = found.chosen[0]
    able = [row for row in results.attacks if row.kind == "attack" and 0 not in row.n]
    for row in able:
        if row.name == name:
            return row
    return max(able, key=lambda row: -1.0 if row.auc is None else row.auc.value, default=None)


def _evidence(results: Results) -> tuple[Block, ...]:
    blocks: list[Block] = []
    if results.validity is not None:
        verdict = results.validity
        blocks.append(Text(f"{verdict.verdict.capitalize()}. {say.VERDICTS[verdict.verdict]}"))
    # What stands in the way comes first.
    checks = tuple(sorted(results.checks, key=lambda one: _URGENCY.index(one.status)))
    blocks.append(Checks(checks) if checks else Text(say.NO_CHECKS))
    if results.data is not None and results.data.telling_words:
        words = ", ".join(results.data.telling_words)
        blocks.append(Text(f"Words of many records that tell the two files apart: {words}."))
    return tuple(blocks)


def _attacks(results: Results) -> tuple[Block, ...]:
    blocks: list[Block] = []
    if results.invalid:
        blocks.append(Text(say.WITHHELD, strong=True))
    counts = {row.n for row in (*results.attacks, *results.control)}
    n = f" Every row is over {min(counts)[0]} members and {min(counts)[1]} non-members." if len(
        counts) == 1 else ""  # fmt: skip
    asked = f" {say.TABLE_WITH_CONTROL_MODEL}" * (results.control_model is not None)
    words = say if results.prompt is None else prompt
    blocks.append(
        Text(f"{words.TABLE_OF_ATTACKS}{asked} Intervals cover {_confidence(results)}.{n}")
    )
    blocks += [Figure("roc"), Figure("histogram")]
    blocks.append(_table_of_attacks(results))
    notes = footnotes(results)
    if notes:
        blocks.append(Bullets(tuple(notes)))
    if results.prompt is not None and (lines := prompt.advantages(results)):
        told = Grid(prompt.ADVANTAGE_HEADER, tuple(lines), frozenset({1, 2, 3}))
        blocks.append(Audience("As the papers count", (Text(prompt.ADVANTAGE), told)))
    if results.gains:
        grid = Grid(("attack − baseline", "AUC", ""), tuple(gains(results)), frozenset({1}))
        blocks.append(Audience("Beside the answers' likelihood alone", (Text(say.GAINS), grid)))
    made = say.how_found(results)
    if made is not None:
        blocks.append(Audience("How the finding was made", (Text(made),)))
    return tuple(blocks)


def _settings(results: Results) -> tuple[Block, ...]:
    """The settings of a prompt beside each other; nothing where there is one alone."""
    lines = prompt.lines(results)
    if not lines:
        return ()
    defended = any(line[2] for line in lines)
    header: tuple[str, ...] = prompt.SETTINGS_HEADER
    kept: list[tuple[str, ...]] = lines
    if not defended:
        header = (*header[:2], *header[3:])
        kept = [(*line[:2], *line[3:]) for line in lines]
    blocks: list[Block] = [Text(say.WITHHELD, strong=True)] if results.invalid else []
    grid = Grid(
        header,
        tuple(kept),
        numeric=frozenset({0, *range(3 + defended, 7 + defended)}),
        intervals=tuple(prompt.aucs(results)),
    )
    return (*blocks, Text(prompt.SETTINGS), Figure("settings"), grid)


def _defences(results: Results) -> tuple[Block, ...]:
    """What defences of a prompt take and cost; nothing where there is none."""
    if not results.defences:
        return ()
    withheld: list[Block] = [Text(say.WITHHELD, strong=True)] if results.invalid else []
    blocks: list[Block] = [*withheld, Text(defences.LEAD)]
    if not results.invalid:
        blocks.append(Bullets(tuple(defences.sentences(results))))
    blocks += [
        Figure("defences"),
        Grid(
            defences.LEAKAGE_HEADER,
            tuple(defences.leakage(results)),
            numeric=frozenset(range(2, 8)),
        ),
    ]
    rates = defences.rates(results)
    if rates:
        blocks.append(
            Grid(defences.rates_header(results), tuple(rates), numeric=frozenset({2, 3, 4}))
        )
    blocks += [
        Text(defences.COST),
        Grid(defences.COST_HEADER, tuple(defences.cost(results)), numeric=frozenset({1, 2, 3, 4})),
    ]
    notes = defences.notes(results)
    if notes:
        blocks.append(Bullets(tuple(notes)))
    return tuple(blocks)


def _kinds(results: Results) -> tuple[Block, ...]:
    blocks: list[Block] = [Text(say.APART)]
    for one in results.apart:
        words = say.KINDS_OF_NONMEMBERS[one.kind]
        copies = f" {one.n_copies} copies of records of the audit were left out." * bool(
            one.n_copies
        )
        about = (
            f"{one.n[0]} members, {one.n[1]} non-members ({one.source.path}).{copies} "
            f"{say.SAYS_OF_KIND[one.kind]}"
        )
        flag = [Text(say.separates(one.separates), strong=True)] if one.separates else []
        grid = Grid(APART_HEADER, tuple(apart(one)), numeric=frozenset({1, 2, 3, 4}))
        blocks.append(Audience(f"Members against {words}", (Text(about), *flag, grid)))
    return tuple(blocks)


def _table_of_attacks(results: Results) -> Grid:
    shown = rows(results)
    by_name: dict[tuple[str, str, str], Number | None] = {
        (row.kind, row.name, model_of(row, results)): row.auc
        for row in (*results.control, *results.attacks)
    }
    rates = shown_rates(results)
    marked = not results.invalid
    same = len({row.n for row in shown if row.n}) < 2  # then it stands above the table
    return Grid(
        ("", "attack", *([] if same else ["n"]), "AUC",
         *(f"TPR @ {percent_rate(fpr)} FPR" for fpr in rates)),
        tuple(
            ("►" if row.chosen and marked else "", _name(row), *([] if same else [row.n]),
             row.auc, *row.tprs)
            for row in shown
        ),
        numeric=frozenset(range(2, 3 + (not same) + len(rates))),
        intervals=tuple(by_name.get((row.kind, row.name, row.model)) for row in shown),
        kinds=tuple(row.kind for row in shown),
    )  # fmt: skip


def _name(row: Row) -> str:
    """A row's name, as short as columns ask for; the words above the table say the rest."""
    if row.kind not in ("blind", "control") or row.name == row.kind:
        return row.name
    return f"{say.KINDS[row.model or row.kind]}: {row.name}"


def _records(results: Results, about: Mapping[str, Any]) -> tuple[Block, ...]:
    if results.invalid:
        return (Text(say.RANKING_WITHHELD),)
    if subject(results) is None:
        return (Text(say.NO_RANKING),)
    n = results.data.members.n_judged if results.data is not None else None
    blocks: list[Block] = []
    top = say.top_of(results, n)
    if top is not None:
        blocks.append(Text(top, strong=True))
    named = say.KEPT if _config(about).get("reveal") else say.REDACTED
    blocks.append(Text(f"{named} {say.POPULATION_FPR}"))
    blocks.append(Figure("records"))
    exposed = results.exposed
    if exposed is not None and exposed.features:
        compared = (
            f"The {exposed.n_compared} most exposed members against the other members; AUC is the "
            "chance that an exposed member has more of the feature than another member has."
        )
        grid = Grid(
            say.SHARED_HEADER,
            tuple(say.shared(feature, results) for feature in exposed.features),
            numeric=frozenset(range(1, 5)),
        )
        blocks.append(Audience("What the most exposed members share", (Text(compared), grid)))
    return tuple(blocks)


def _gap(gap: OptimizationGap) -> tuple[Block, ...]:
    sides = Grid(
        ("", "gain of one step, nats per token"),
        (
            (f"members ({gap.members.n[0]})", number(gap.members)),
            (f"non-members ({gap.nonmembers.n[1]})", number(gap.nonmembers)),
            ("members − non-members", number(gap.difference)),
        ),
        numeric=frozenset({1}),
    )
    blocks: list[Block] = [Text(say.gap(gap), strong=True), Text(say.GAP), sides]
    if gap.agreement:
        ranked = sorted(gap.agreement, key=lambda one: -one.spearman.value)
        table = Grid(
            ("attack", "Spearman's ρ"),
            tuple((one.attack, number(one.spearman, 2)) for one in ranked),
            numeric=frozenset({1}),
        )
        blocks += [Text(say.GAP_AGREEMENT), table]
    return tuple(blocks)


def _drift(results: Results) -> tuple[Block, ...]:
    found = results.drift
    if found is None:
        return ()
    blocks: list[Block] = [Text(say.WITHHELD, strong=True)] if results.invalid else []
    blocks += [Text(say.step(step), strong=not step.small) for step in found.steps if step.eta]
    blocks += [Text(say.STEP), Grid(say.STEP_HEADER, tuple(map(_step, found.steps)), _STEP_NUMBERS)]
    tried = next((check for check in results.checks if check.id == STEP_CHECK), None)
    if found.floor is not None:
        blocks.append(Text(say.floor(found.floor)))
    elif tried is not None:
        blocks.append(Text(say.floor_tried(tried)))
    if found.features:
        noted = any(row.note for row in found.features)
        table = Grid(
            ("features", "AUC", "− all features", *(("note",) * noted)),
            tuple(_features(row)[: 3 + noted] for row in found.features),
            frozenset({1, 2}),
            intervals=tuple(row.auc for row in found.features),
        )
        about = Text(f"Of {found.attack}. {say.FEATURES_OF_A_STEP}")
        blocks.append(Audience("Which features say something?", (about, table)))
    if found.protocol is not None:
        blocks.append(Audience("As the paper judges", _protocol(found.protocol)))
    if found.shapes:
        means = Grid(
            ("change", "members", "non-members", "members − non-members", "0 and 1 are"),
            tuple(
                (say.DRIFTS[one.name], number(one.members), number(one.nonmembers),
                 signed(one.difference), f"{one.low:.3g} and {one.high:.3g}".replace("-", "−"))
                for one in found.shapes
            ),
            frozenset(range(1, 5)),
        )  # fmt: skip
        blocks.append(
            Audience("How far both sides move", (Text(say.SHAPES), Figure("drift"), means))
        )
    return tuple(blocks)


def _stability(results: Results) -> tuple[Block, ...]:
    found = results.stability
    if found is None:
        return ()
    blocks: list[Block] = [Text(say.STABILITY)]
    sides = {
        f"members ({found.n[0]})": found.members,
        f"non-members ({found.n[1]})": found.nonmembers,
        "members − non-members": found.difference,
    }
    lines = tuple(
        (name, _brief(one.size), _brief(one.spread),
         "–" if one.agreement is None else _brief(one.agreement))
        for name, one in sides.items() if one is not None
    )  # fmt: skip
    if lines:
        header = ("", "mean |Δα|", "mean sd of Δα within a record", "ICC of Δα")
        blocks.append(Grid(header, lines, frozenset({1, 2, 3})))
    else:
        blocks.append(Text(say.sentence(f"not told: {found.note}")))
    counted = f"{found.n_paraphrases} paraphrases of {sum(found.n)} records ({found.attack})"
    left_out = [f"{n} records without: {why}" for why, n in sorted(found.unscored.items())]
    blocks.append(Text(say.sentence("; ".join([counted, *left_out]))))
    return (Audience("Is the drift the same in other words?", tuple(blocks)),)


_BESIDE = {"reference": "reference", "control": "control model"}


def _layers(results: Results) -> tuple[Block, ...]:
    blocks: list[Block] = [Text(say.WITHHELD, strong=True)] if results.invalid else []
    blocks.append(Text(say.LAYERS))
    for found in results.layers:
        if found.note is not None:
            blocks.append(Text(say.sentence(f"{found.attack}: {found.note}")))
            continue
        asked = [who for who in ("reference", "control") if getattr(found.rows[0], who) is not None]
        last = found.rows[-1].layer
        lines = tuple(
            (
                say.layer(row.layer, last),
                number(row.auc),
                *("–" if (one := getattr(row, who)) is None else number(one) for who in asked),
            )
            for row in found.rows
        )
        header = (f"{found.attack}, layer", "AUC", *(f"on the {_BESIDE[who]}" for who in asked))
        aucs = tuple(row.auc for row in found.rows)
        blocks.append(Grid(header, lines, frozenset(range(1, len(header))), intervals=aucs))
    return tuple(blocks)


def _brief(found: Number) -> str:
    """A number of whatever size with its interval, three digits that count."""
    value, low, high = (f"{one:.3g}".replace("-", "−") for one in (found.value, *found.ci))
    return f"{value} [{low}, {high}]"


_STEP_NUMBERS = frozenset(range(1, len(say.STEP_HEADER)))


def _step(step: DriftStep) -> tuple[str, ...]:
    return (
        step.attack,
        f"{step.n[0]} + {step.n[1]}",
        str(step.n_literal),
        _middle(step.movement.all),
        _middle(step.cosine.all),
        *map(_middle, (step.ascent.all, step.ascent.members, step.ascent.nonmembers)),
        "–" if step.rank is None else number(step.rank, 2),
    )


def _middle(found: Middle) -> str:
    return f"{found.median:.3g} [{found.half[0]:.3g}, {found.half[1]:.3g}]"


def _features(row: FeatureSet) -> tuple[str, str, str, str]:
    return (
        row.name,
        "–" if row.auc is None else number(row.auc),
        "" if row.difference is None else signed(row.difference),
        row.note or "",
    )


def _protocol(found: SplitProtocol) -> tuple[Block, ...]:
    if not found.rows:
        return (Text(say.sentence(f"not done: {found.note}")),)
    table = Grid(
        ("score", "AUC, mean ± sd", "classifier − score, mean ± sd"),
        tuple(
            (row.name, f"{row.auc.mean:.3f} ± {row.auc.sd:.3f}",
             "" if (d := row.difference) is None else f"{d.mean:+.3f} ± {d.sd:.3f}".replace("-", "−"))
            for row in found.rows
        ),
        frozenset({1, 2}),
    )  # fmt: skip
    said = f"{found.n[0]} members and {found.n[1]} non-members are split."
    return (Text(f"{say.PROTOCOL.format(n=found.n_splits)} {said}"), table)


def _groups(results: Results) -> tuple[Block, ...]:
    if results.invalid:
        return (Text(say.GROUPS_WITHHELD),)
    if not results.slices:
        return (Text((say if results.prompt is None else prompt).NO_GROUPS),)
    fprs = {at.fpr for part in results.slices for at in part.tpr_at_fpr}
    title = f"TPR @ {percent_rate(min(fprs))} FPR" if len(fprs) == 1 else "TPR"
    lines = [
        (
            part.by,
            part.value,
            f"{part.n[0]} + {part.n[1]}",
            "–" if part.auc is None else number(part.auc),
            "–" if not (at := part.tpr_at_fpr) or at[0].tpr is None else rate(at[0].tpr),
            say.p_value(part.p_holm),
            part.note or "",
        )
        for part in results.slices
    ]
    header: tuple[str, ...] = ("by", "group", "n", "AUC", title, "p (Holm)", "note")
    if not any(line[-1] for line in lines):
        header, lines = header[:-1], [line[:-1] for line in lines]  # type: ignore[misc]
    grid = Grid(
        header,
        tuple(lines),
        numeric=frozenset({2, 3, 4, 5}),
        intervals=tuple(part.auc for part in results.slices),
    )
    return (Text(f"Attack: {results.slices[0].attack}. {say.GROUPS}"), grid)


# --- what it means ------------------------------------------------------------------------------


def _meaning(results: Results, about: Mapping[str, Any]) -> tuple[Block, ...]:
    blocks: list[Block] = []
    if results.epsilon is not None and not results.invalid:
        value, what = say.epsilon(results.epsilon)
        blocks.append(Text(f"{value} ({what})."))
    lead, advice = (say if results.prompt is None else prompt).for_engineers(results)
    engineer: list[Block] = [Text(lead)]
    if advice:
        engineer.append(Bullets(tuple((one.lead, f"{one.text} ({one.paper})") for one in advice)))
        engineer.append(Code(say.COMPARE, "shows the effect of a change on the same records"))
    researcher: list[Block] = [Text(line) for line in say.for_researchers(results, _config(about))]
    if results.prompt is not None:
        researcher.insert(0, Text(prompt.for_researchers(results.prompt)))
    entries = say.bibtex((*results.attacks, *results.control))
    if entries:
        researcher.append(Code(entries, "BibTeX of the attacks", folded=True))
    return (
        *blocks,
        Audience("For the engineer", tuple(engineer)),
        Audience("For the privacy officer", _privacy(results)),
        Audience("For the researcher", tuple(researcher)),
    )


def _privacy(results: Results) -> tuple[Block, ...]:
    words = say if results.prompt is None else prompt
    blocks: list[Block] = [Text(line) for line in words.for_privacy_officers(results)]
    model = results.threat_model
    pairs: list[tuple[str, str]] = []
    if model is not None:
        pairs += [
            ("attacker's access", model.access),
            ("attacker knows", "; ".join(model.knows) or "nothing else"),
            ("release context", model.release_context),
        ]
    elif results.access:
        pairs.append(("attacker's access", results.access))
    pairs.append(("in scope", "membership inference against the records named above"))
    if results.out_of_scope:
        pairs.append(("out of scope", "; ".join(results.out_of_scope)))
    blocks.append(Pairs(tuple(pairs)))
    if model is not None and model.taxonomy:
        blocks += [Text(say.NO_CONFORMITY), Pairs(tuple(model.taxonomy.items()))]
    return tuple(blocks)


# --- cost, provenance, limits -------------------------------------------------------------------


def _cost(results: Results, about: Mapping[str, Any]) -> tuple[Block, ...]:
    pairs: list[tuple[str, str]] = []
    for role, n in sorted(results.requests.items(), reverse=True):
        where = _place(role, results)
        to = f"to the {where}" if results.prompt is None else where
        pairs.append((f"requests {to}", f"{n:,} distinct"))
    for one in results.apart:
        pairs += [
            (
                f"requests to the {role}, {one.kind} set",
                f"{n:,} distinct, those of the members among them",
            )
            for role, n in sorted(one.requests.items(), reverse=True)
        ]
    attempts = [one for one in about.get("attempts", ()) if isinstance(one, Mapping)]
    tokens = _summed(attempts, "tokens_read")
    read = "read by the {}" if results.prompt is None else "read and written {}"
    pairs += [(f"tokens {read.format(_place(role, results))}", f"{n:,}") for role, n in tokens]
    if attempts:
        pairs.append(("attempts", str(len(attempts))))
    data = results.data
    if results.prompt is not None:
        pairs += prompt.cost(results.prompt)
    elif data is not None:
        pairs.append(("scored tokens", f"{data.scored_tokens:,}"))
        pairs.append(("cut to fit the context", f"{data.truncated} judged records"))
        left = "; ".join(f"{n} {reason}" for reason, n in sorted(data.dropped.items()))
        pairs.append(("dropped (data/dropped.csv)", left or "none"))
        pairs.append(("set aside as known", f"{data.set_aside[0]} + {data.set_aside[1]}"))
        if (pool := data.reference_pool) is not None:
            by = " and ".join(pool.encoders)
            how = f", prompts compared by {by}" if by else ""
            pairs.append(
                ("reference pool", f"{pool.n:,} demonstrations{how}" + _audited(pool.n_audited))
            )
        if data.corpus is not None:
            pairs.append(
                (
                    "corpus",
                    f"tokens counted in {data.corpus.n:,} texts{_audited(data.corpus.n_audited, ' left out')}",
                )
            )
        pairs += [("neighbours made by", filler.about) for filler in results.fillers]
        if (given := data.probes) is not None:
            of = f"{given.n_probes:,} given for {given.n_records:,} records"
            pairs.append(
                ("probes", of + (f", {given.n_copies} copies left out" * bool(given.n_copies)))
            )
        if (others := data.paraphrases) is not None:
            of = f"{others.n_paraphrases:,} given for {others.n_records:,} records"
            pairs.append(
                ("paraphrases", of + f", {others.n_copies} copies left out" * bool(others.n_copies))
            )
        if data.directions is not None:
            many = f"{data.directions.n} of {data.directions.width} numbers"
            pairs.append(("directions", f"{many} ({data.directions.path})"))
        pairs.append(("texts that repeat", f"{data.repeated[0]} + {data.repeated[1]}"))
    unscored = [
        (label_of(attack), f"{n:,}", reason)
        for attack in (*results.attacks, *results.control)
        for reason, n in sorted(attack.unscored.items())
    ]
    blocks: list[Block] = [Pairs(tuple(pairs))] if pairs else []
    if unscored:
        grid = Grid(
            ("attack", "records", "why they have no score"), tuple(unscored), frozenset({1})
        )
        blocks.append(Audience("Records without a score", (grid,)))
    else:
        blocks.append(Text("Every attack has scored every judged record."))
    if results.skipped:
        not_run = tuple((f"{name}:", why) for name, why in sorted(results.skipped.items()))
        blocks.append(Audience("Attacks that were not run", (Bullets(not_run),)))
    return tuple(blocks)


def _place(role: str, results: Results) -> str:
    """The role of a model, or, where there is but one, what it stands behind."""
    if results.prompt is None:
        return role
    return "behind an empty prompt" if role == "reference" else "behind the prompt"


def _audited(n: int, what: str = "") -> str:
    return f", {n:,} audited records{what}" if n else ""


def _summed(attempts: Sequence[Mapping[str, Any]], name: str) -> list[tuple[str, int]]:
    """By role, over all attempts: what was paid for, not what the last attempt did."""
    found: dict[str, int] = {}
    for attempt in attempts:
        for role, n in (attempt.get(name) or {}).items():
            found[role] = found.get(role, 0) + int(n)
    return sorted(found.items(), reverse=True)


def _provenance(results: Results, about: Mapping[str, Any]) -> tuple[Block, ...]:
    run = results.run
    pairs: list[tuple[str, str]] = [
        ("run", run.id),
        ("created", run.created),
        ("tool", run.tool),
        ("schema of results.json", results.schema_version),
        ("plan", run.plan),
        ("seed", str(run.seed)),
    ]
    pairs += [("target", _described(results.target)), ("reference", _described(results.reference))]
    pairs.append(("control model", _described(results.control_model)))
    pairs += [
        (f"shadow {number}", _described(about)) for number, about in enumerate(results.shadows, 1)
    ]
    pairs += [
        (f"fingerprint, {role}", str(digest))
        for role, digest in sorted((about.get("fingerprints") or {}).items(), reverse=True)
    ]
    data = results.data
    if data is not None and results.prompt is not None:
        pairs += [
            ("template, sha256", data.template_sha256),
            *(
                (("records, sha256", results.prompt.pool_sha256),)
                if results.prompt.pool_sha256
                else ()
            ),
            ("members and their prompts, sha256", data.members.sha256),
            ("non-members and their prompts, sha256", data.nonmembers.sha256),
            ("who is in the prompt", data.split_origin),
        ]
    elif data is not None:
        pairs += [
            (f"{data.members.path}, sha256", data.members.sha256),
            (f"{data.nonmembers.path}, sha256", data.nonmembers.sha256),
            *((f"{one.source.path}, sha256", one.source.sha256) for one in results.apart),
            ("template, sha256", data.template_sha256),
            ("held out", data.split_origin),
            ("kind of non-members", data.nonmember_kind),
        ]
    pairs += _versions(about.get("provenance") or {})
    blocks: list[Block] = [Pairs(tuple((name, value) for name, value in pairs if value))]
    if data is not None and data.example:
        blocks.append(Audience("The first record as the model reads it", (Example(data.example),)))
    blocks += _again(results, _config(about))
    blocks.append(Text(say.NO_TELEMETRY))
    return tuple(blocks)


def _again(results: Results, config: Mapping[str, Any]) -> list[Block]:
    """How to repeat the run, where a command can."""
    if not config or not results.run.id:
        return []
    folder = str(config.get("run_dir") or f"{config.get('runs', 'runs')}/{results.run.id}")
    file = shlex.quote(f"{folder}/config.yaml")
    again = [
        Code(f"unseen report {shlex.quote(folder)}", "renders this report again"),
        Code(_yaml(config), "config.yaml", folded=True),
    ]
    if results.run.scenario in ("finetune", "prompt"):
        command = f"unseen audit {results.run.scenario} --config {file}"
        again.insert(0, Code(command, "repeats the audit, from the folder in which it was begun"))
    return [Audience("Again", tuple(again))]


def _described(model: Mapping[str, str] | None) -> str:
    return " · ".join(f"{name} {value}" for name, value in (model or {}).items() if value)


def _versions(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    packages = provenance.get("packages") or {}
    named = [
        (name, str(value))
        for name, value in provenance.items()
        if isinstance(value, str | int | float)
    ]
    listed = ", ".join(f"{name} {version}" for name, version in packages.items())
    return [*named, *([("packages", listed)] if listed else [])]


def _limits(results: Results) -> tuple[Block, ...]:
    blocks: list[Block] = [Bullets(results.limitations)]
    if results.out_of_scope:
        blocks.append(Text(f"Not tested: {'; '.join(results.out_of_scope)}."))
    return tuple(blocks)


def label_of(attack: AttackResult) -> str:
    """The attack's name, with what kind of baseline it is."""
    return attack.name if attack.kind == "attack" else f"{say.kind(attack)}: {attack.name}"


def header_facts(results: Results) -> list[tuple[str, str]]:
    """Who was asked, about what: names and values, unnamed lines joined to the one above."""
    lines: list[tuple[str, str]] = []
    for name, value in facts(results):
        if name == "example":  # stands under provenance, in full
            continue
        if name or not lines:
            lines.append((name, value))
        else:
            above, so_far = lines[-1]
            lines[-1] = (above, f"{so_far} · {value}")
    return lines


def _config(about: Mapping[str, Any]) -> dict[str, Any]:
    config = about.get("config")
    return dict(config) if isinstance(config, Mapping) else {}


def _yaml(config: Mapping[str, Any]) -> str:
    given = {name: value for name, value in config.items() if value is not None}
    return yaml.safe_dump(given, sort_keys=False, allow_unicode=True).rstrip()


def _confidence(results: Results) -> str:
    levels = {f"{100 * attack.auc.confidence:g} %" for attack in results.attacks if attack.auc}
    return " / ".join(sorted(levels)) or "nothing: there are no estimates"
