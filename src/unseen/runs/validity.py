"""Whether the numbers mean membership: checks of the data and of the results, and the verdict.

An attack score separates two sets of records for three reasons: the model remembers one of them,
the sets differ by themselves, or the number is an accident. The checks here tell the first from the
other two. Each is a row with what was found, what must hold and what to do; one failure withholds
the headline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unseen.metrics._checks import MIN_PER_SIDE
from unseen.metrics.roc import resolution
from unseen.runs.fused import is_learnt
from unseen.runs.judge import CHANCE
from unseen.runs.results import AttackResult, Check, Number, Status, Validity
from unseen.signals.base import CONTROL
from unseen.targets.access import Access

if TYPE_CHECKING:
    from unseen.runs.judge import Judge, Verdicts
    from unseen.runs.results import DataFacts
    from unseen.types import Scores

ALARM = 0.01
"""How often a check may cry over sets that do not differ, all its rows together."""

FAR = 0.6
"""A baseline whose AUC is surely above this leaves no attack score that means membership."""

HIDDEN = 0.75
"""A baseline of which even this AUC would not have been noticed has not shown that nothing is there."""

MARGIN = 0.02
"""By how much an attack's interval must clear a baseline's to say more than the baseline."""

_MANY_DROPPED = 0.1  # of the records of a side
_MANY_AUDITED = 0.1  # of the texts that attacks take from others
_MANY_CUT = 0.1  # of the judged records
_MANY_UNSCORED = 0.05  # of the judged records

HOLD_OUT = (
    "hold out records of the same source at random before training, or plant canaries in the next "
    "training data: unseen canary make"
)

MORE_RECORDS = "give more records of both sides"


def checks(judge: Judge, verdicts: Verdicts, data: DataFacts | None) -> tuple[Check, ...]:
    """Every check that asks no model.

    Args:
        judge: gives intervals at the level of the checks.
        verdicts: rows and scores of attacks, baselines and controls.
        data: the facts about the records; None for scores made elsewhere.
    """
    attacks = [row for row in verdicts.attacks if row.kind == "attack"]
    of_data = [] if data is None else [
        _origin(data), *_kind(data), _overlap(data), *_outside(data), _cut(data),
    ]  # fmt: skip
    return (
        blind(judge, verdicts, attacks, data),
        _control(judge, verdicts, attacks),
        *_control_model(judge, verdicts, attacks),
        *of_data,
        power(
            judge.n[1],
            judge.rates,
            enough=judge.enough and (not attacks or any(row.auc is not None for row in attacks)),
        ),
        sign(judge, verdicts, attacks),
        coverage(attacks),
    )


OF_RESULTS = (
    "blind_baseline",
    "control",
    "control_model",
    "split_origin",
    "nonmember_kind",
    "overlap",
    "outside_texts",
    "truncation",
    "power",
    "sign",
    "coverage",
    "prompts_fit",
    "unparsed",
)
"""Checks that are made here, from data and results; all others were made before measuring."""


def of_preflight(rows: Iterable[Check]) -> tuple[Check, ...]:
    """The checks of a run that were made before measuring: scoring again cannot repeat them."""
    return tuple(row for row in rows if row.id not in OF_RESULTS)


def verdict(found: Iterable[Check]) -> Validity:
    """`invalid` where a check failed, `caution` where one warns, else `valid`.

    Scores of which nobody knows whether the sets differ by themselves are never simply valid.
    """
    rows = tuple(found)
    failed = [row for row in rows if row.status == "fail"]
    warned = [
        row
        for row in rows
        if row.status == "warn" or (row.status == "skip" and row.id == "blind_baseline")
    ]
    reasons = tuple(f"{row.title}: {row.detail}" for row in (*failed, *warned))
    if failed:
        return Validity(verdict="invalid", reasons=reasons)
    return Validity(verdict="caution" if warned else "valid", reasons=reasons)


# --- do the sets differ by themselves? ----------------------------------------------------------


def blind(
    judge: Judge, verdicts: Verdicts, attacks: Sequence[AttackResult], data: DataFacts | None
) -> Check:
    """Whether the sets differ by themselves: the baseline that is most surely above chance."""
    about = {
        "id": "blind_baseline",
        "title": "blind baseline (no model)",
        "limit": f"AUC not above {CHANCE:g} (level {ALARM:g}, all blind rows together)",
    }
    rows = [row for row in verdicts.attacks if row.kind == "blind"]
    top = most_extreme(judge, rows, verdicts.scored.target)
    if top is None:
        why = (
            "there are too few different records to fit one"
            if rows
            else "these scores come without texts"
        )
        return Check(
            **about,
            status="skip",
            detail=f"{why}; whether the sets differ by themselves is not known",
            fix="unseen check --members FILE --nonmembers FILE" if not rows else None,
        )
    name, auc = top
    found = f"{name} tells the sets apart without any model, AUC {_shown(auc)}{_words(data)}"
    details: dict[Status, str] = {
        "pass": f"{name} reaches AUC {_shown(auc)}: neither words nor writing tell the sets apart",
        "warn": f"{found}; the attacks go beyond it, but this difference is part of their scores",
        "fail": f"{found}; an attack score here measures what the records are about, "
        "not membership",
    }
    return _above(about, name, auc, attacks, details)


def _control(judge: Judge, verdicts: Verdicts, attacks: Sequence[AttackResult]) -> Check:
    about = {
        "id": "control",
        "title": "control model (before fine-tuning)",
        "limit": f"AUC at {CHANCE:g} (level {ALARM:g}, all control rows together)",
    }
    rows = [row for row in verdicts.control if row.model != CONTROL]
    top = most_extreme(judge, rows, verdicts.scored.control, both_ways=True)
    if top is None:
        return Check(
            **about,
            status="skip",
            detail="no attack could be judged on the model from before fine-tuning"
            if rows
            else "the attacks were not repeated on the model from before fine-tuning",
            fix=None if rows else "--reference MODEL names it",
        )
    below = (
        "on the reference, which should know neither side: it knows the non-members, or they are "
        "easier, and an attack that compares with it measures that",
        "is the reference the model from before fine-tuning? are the two files swapped?",
    )
    return of_control(about, top, rows, attacks, "on a model that never saw the members", below)


def _control_model(
    judge: Judge, verdicts: Verdicts, attacks: Sequence[AttackResult]
) -> list[Check]:
    """The row of the control model; none where there is none and no attack that needs it most."""
    about = {
        "id": "control_model",
        "title": "control model (same format, other records)",
        "limit": f"AUC at {CHANCE:g} (level {ALARM:g}, all rows of this model together)",
    }
    rows = [row for row in verdicts.control if row.model == CONTROL]
    if not rows and not any(map(_is_strict, attacks)):
        return []
    top = most_extreme(judge, rows, verdicts.scored.control_model, both_ways=True)
    if top is None:
        return [
            Check(
                **about,
                status="skip",
                detail="no attack could be judged on the control model"
                if rows
                else "the model from before fine-tuning does not know the format, and so shows less "
                "of a difference between the sets than one that was trained on other records does",
                fix=None
                if rows
                else "unseen train control --not-in TARGET_RUN makes one, and --control-model names it",
            )
        ]
    below = (
        "on the control model, which should know neither side: it knows the non-members, or they are "
        "easier",
        "was the control model trained on other records than these? are the two files swapped?",
    )
    where = "on a model of the same format that was trained on other records"
    return [of_control(about, top, rows, attacks, where, below)]


def _is_strict(row: AttackResult) -> bool:
    """Whether any difference that a control shows is one too many.

    What sees weights, or learns how the sides differ, finds whatever there is to find: how far the
    target goes beyond its control says nothing about where that comes from.
    """
    return row.access == Access.WHITE_BOX.word or is_learnt(row)


def of_control(
    about: Mapping[str, str],
    top: tuple[str, Number],
    rows: Sequence[AttackResult],
    attacks: Sequence[AttackResult],
    where: str,
    below: tuple[str, str],
) -> Check:
    """The row of a model that should know neither side, by the control that is most surely off.

    Args:
        about: id, title and limit.
        top: the control, and its AUC.
        rows: all controls of this model.
        attacks: what must go beyond it.
        where: which model it is, in words.
        below: what it means where members score lower, and what to do then.
    """
    name, auc = top
    row = next(row for row in rows if row.name == name)
    if auc.ci[1] < CHANCE and not is_learnt(row):
        return Check(
            **about,
            status="fail" if auc.ci[1] < 1 - FAR else "warn",
            value=auc.value,
            ci=auc.ci,
            detail=f"{name} reaches AUC {_shown(auc)} {below[0]}",
            fix=below[1],
        )
    found = f"{name} reaches AUC {_shown(auc)} {where}"
    if auc.ci[0] > CHANCE and _is_strict(row):
        return Check(
            **about,
            status="fail",
            value=auc.value,
            ci=auc.ci,
            detail=f"{found}: this set also separates without membership, so that what the attack "
            "finds on the target is no sign of it",
            fix=HOLD_OUT,
        )
    details: dict[Status, str] = {
        "pass": f"{found}: it does not tell the sets apart",
        "warn": f"{found}; the attacks on the target go beyond it, but this difference is part of "
        "their scores",
        "fail": f"{found}; the sets differ in how predictable they are, and the attacks measure "
        "that",
    }
    return _above(about, name, auc, attacks, details)


def _above(
    about: Mapping[str, str],
    name: str,
    auc: Number,
    attacks: Sequence[AttackResult],
    details: Mapping[Status, str],
) -> Check:
    """The row of a baseline that must not be above chance, by how far it is and what attacks add."""
    status = _compared(auc, attacks)
    detail, fix = details[status], None if status == "pass" else HOLD_OUT
    if status == "pass" and auc.ci[1] > HIDDEN:
        status, fix = "warn", MORE_RECORDS
        detail = (
            f"{name} reaches AUC {_shown(auc)}: with so few records even {auc.ci[1]:.2f} would not "
            "have been noticed, so nothing is shown"
        )
    return Check(**about, status=status, value=auc.value, ci=auc.ci, detail=detail, fix=fix)


def most_extreme(
    judge: Judge,
    rows: Iterable[AttackResult],
    scores: Mapping[str, Scores],
    *,
    both_ways: bool = False,
) -> tuple[str, Number] | None:
    """The baseline that is most surely off chance, with an interval for all of them together.

    Above chance alone counts for baselines that are fitted: on sets that do not differ, a classifier
    that is judged on other records than it learned from comes out a little below. A control that
    leaves nothing to be said of the others, by `_is_strict`, comes before them.
    """
    able = {row.name: row for row in rows if row.auc is not None}
    if not able:
        return None
    confidence = 1 - (1 if both_ways else 2) * ALARM / len(able)
    # Blind baselines are learnt, and at chance a learnt score scatters further than a fixed one.
    learnt = {name: not both_ways or is_learnt(row) for name, row in able.items()}
    intervals = {name: judge.auc(scores[name], confidence, learnt=learnt[name]) for name in able}

    def off(name: str) -> tuple[bool, float]:
        low, high = intervals[name].ci
        strict = both_ways and _is_strict(able[name]) and low > CHANCE
        return strict, low - CHANCE if learnt[name] else max(low - CHANCE, CHANCE - high)

    name = max(able, key=off)
    return name, intervals[name]


def _words(data: DataFacts | None) -> str:
    """What can be said of the words that differ, without saying them unless they were revealed."""
    if data is None or not data.n_telling_words:
        return ""
    if data.telling_words:
        return f" (words that differ: {', '.join(data.telling_words)})"
    n = data.n_telling_words
    return f" ({n} common {'word differs' if n == 1 else 'words differ'}; unseen check names them)"


def _compared(auc: Number, attacks: Sequence[AttackResult]) -> Status:
    if auc.ci[0] <= CHANCE:
        return "pass"
    best = max((row.auc.ci[0] for row in attacks if row.auc is not None), default=0.0)
    return "fail" if auc.ci[0] > FAR or auc.ci[1] > best - MARGIN else "warn"


# --- what was left out --------------------------------------------------------------------------


def _origin(data: DataFacts) -> Check:
    status: dict[str, Status] = {"random": "pass", "temporal": "warn", "unknown": "skip"}
    detail = {
        "random": "non-members were held out at random",
        "temporal": "non-members are later (or earlier) than members: whatever changed in the "
        "meantime looks like membership",
        "unknown": "it was not said how the non-members were held out",
    }
    return Check(
        id="split_origin",
        title="how records were held out",
        status=status[data.split_origin],
        limit="at random",
        detail=detail[data.split_origin],
        fix=None if data.split_origin == "random" else "--split-origin random, if it was",
    )


def _kind(data: DataFacts) -> list[Check]:
    """The row of what the non-members are; none where nobody has said."""
    if data.nonmember_kind == "unknown":
        return []
    beside = data.nonmember_kind != "iid" and "iid" in data.nonmembers_apart
    also = {
        "counterfactual": "the non-members answer wrongly, and a model can tell what is true without "
        "having been trained on it: the number measures truthfulness as well as membership",
        "future": "the non-members are about what came later, which no model can know: the number "
        "measures novelty as well as membership",
    }
    detail = also.get(data.nonmember_kind, "non-members come from the members' own source")
    if beside:
        detail += "; the i.i.d. non-members that are judged apart show how much of it is membership"
    passed = data.nonmember_kind == "iid"
    return [
        Check(
            id="nonmember_kind",
            title="what the non-members are",
            status="pass" if passed else "warn" if beside else "fail",
            limit="of the members' own source (iid)",
            detail=detail,
            fix=None
            if passed
            else "read the table of i.i.d. non-members, or name these by --nonmembers and the others by "
            f"--nonmembers-apart {data.nonmember_kind}=FILE"
            if beside
            else "name non-members of the members' own source by --nonmembers, and these by "
            f"--nonmembers-apart {data.nonmember_kind}=FILE",
        )
    ]


def _overlap(data: DataFacts) -> Check:
    dropped = sum(data.dropped.values())
    share = max(
        1 - (side.n_judged + aside) / side.n_read
        for side, aside in zip((data.members, data.nonmembers), data.set_aside, strict=True)
    )
    n_read = data.members.n_read + data.nonmembers.n_read
    many = bool(dropped) and share > _MANY_DROPPED
    detail = f"{dropped} of {n_read} records occur on both sides, alike or nearly so"
    if many:
        detail += "; what is left is not the set that was asked about"
    return Check(
        id="overlap",
        title="overlap of members and non-members",
        status="warn" if many else "pass",
        value=dropped / n_read if n_read else 0.0,
        limit=f"at most {_MANY_DROPPED:.0%} of a side dropped",
        detail=detail,
        fix="look at data/dropped.csv: were both files drawn from the same records?"
        if many
        else None,
    )


def _outside(data: DataFacts) -> list[Check]:
    """The row of a reference pool or corpus, which should be of others; none where there is none."""
    pool, corpus = data.reference_pool, data.corpus
    found: list[str] = []
    shares: list[float] = []
    if pool is not None and (pool.encoders or corpus is None):
        shares.append(pool.n_audited / pool.n)
        found.append(
            f"{pool.n_audited} of {pool.n} demonstrations of the reference pool are audited records, "
            "alike or nearly so, which are shown to others and not to themselves"
        )
    if corpus is not None:
        n = corpus.n + corpus.n_audited
        shares.append(corpus.n_audited / n)
        found.append(
            f"{corpus.n_audited} of {n} texts of the corpus are audited records, alike or nearly so, "
            "and are not counted"
        )
    if not found:
        return []
    many = max(shares) > _MANY_AUDITED
    return [
        Check(
            id="outside_texts",
            title="texts of others",
            status="warn" if many else "pass",
            value=max(shares),
            limit=f"at most {_MANY_AUDITED:.0%} of pool and corpus are audited records",
            detail="; ".join(found),
            fix="name files of records that are not audited, and that nobody trained on: "
            "--reference-pool FILE, --corpus FILE"
            if many
            else None,
        )
    ]


def _cut(data: DataFacts) -> Check:
    judged = data.members.n_judged + data.nonmembers.n_judged
    share = data.truncated / judged if judged else 0.0
    many = share > _MANY_CUT
    return Check(
        id="truncation",
        title="records cut to fit the context",
        status="warn" if many else "pass",
        value=share,
        limit=f"at most {_MANY_CUT:.0%}",
        detail=f"{data.truncated} of {judged} judged records were cut"
        + ("; what was cut off is not audited" if many else ""),
        fix="raise --max-length, or audit the records in pieces" if many else None,
    )


# --- can this data say it? ----------------------------------------------------------------------


def power(n_nonmembers: int, rates: Sequence[float], *, enough: bool = True) -> Check:
    """The smallest false-positive rate that may be claimed, and what the next one would take.

    Args:
        n_nonmembers: non-members that are judged.
        rates: false-positive rates that are asked for.
        enough: whether there are enough records to judge anything at all.
    """
    known = [resolution(n_nonmembers, fpr) for fpr in sorted(rates)]
    reliable = next((one for one in known if one.status == "reliable"), None)
    indicative = next((one for one in known if one.status == "indicative"), None)
    about = {
        "id": "power",
        "title": "smallest false-positive rate",
        "limit": "10 expected false positives at one rate at least",
    }
    parts = [
        f"{100 * one.fpr:g}% {what}"
        for one, what in ((reliable, "reliable"), (indicative, "indicative only"))
        if one is not None
    ]
    finer = [one for one in known if one.needs_nonmembers and one.fpr < (reliable or one).fpr]
    wanted = finer[-1] if finer else None if reliable else known[-1]
    if not enough:
        return Check(
            **about,
            status="fail",
            detail="there are too few records with a score, or too few groups of them, to judge "
            "anything",
            fix=f"give at least {MIN_PER_SIDE} members and {MIN_PER_SIDE} non-members that can be "
            "scored; records of one cluster, or with one text, count as one",
        )
    if not parts:
        return Check(
            **about,
            status="fail",
            detail=f"{n_nonmembers} non-members resolve none of the rates that were asked for",
            fix=f"{known[-1].needs_nonmembers} non-members begin to resolve "
            f"{100 * known[-1].fpr:g}%, or ask for a larger --fpr",
        )
    detail = f"with {n_nonmembers} non-members: {', '.join(parts)}"
    if wanted is not None:
        detail += (
            f"; a reliable {100 * wanted.fpr:g}% takes {int(round(10 / wanted.fpr, 6))} non-members"
        )
    return Check(
        **about,
        status="pass" if reliable is not None else "warn",
        value=(reliable or indicative or known[-1]).fpr,
        detail=detail,
        fix=None if reliable is not None else "give more non-members, or ask for a larger --fpr",
    )


def sign(judge: Judge, verdicts: Verdicts, attacks: Sequence[AttackResult]) -> Check:
    """Whether an attack ranks non-members higher, more surely than by accident."""
    able = [row for row in attacks if row.auc is not None]
    confidence = 1 - ALARM / max(1, len(able))
    turned = [
        row.name
        for row in able
        if row.inverted and judge.auc(verdicts.scored.target[row.name], confidence).ci[1] < CHANCE
    ]
    return Check(
        id="sign",
        title="members score higher",
        status="warn" if turned else "pass",
        limit=f"no AUC below {CHANCE:g} (level {ALARM:g}, all attacks together)",
        detail=f"members score lower than non-members: {', '.join(turned)}"
        if turned
        else "no attack ranks non-members higher",
        fix="are the two files swapped? has the model been made to forget these records?"
        if turned
        else None,
    )


def coverage(attacks: Sequence[AttackResult]) -> Check:
    """Whether nearly all records have a score of every attack."""
    shares = {
        row.name: missing / (missing + sum(row.n))
        for row in attacks
        if (missing := sum(row.unscored.values())) + sum(row.n)
    }
    worst = max(shares, key=lambda name: shares[name], default="")
    share = shares.get(worst, 0.0)
    many = share > _MANY_UNSCORED
    nothing = bool(shares) and min(shares.values()) == 1
    return Check(
        id="coverage",
        title="records with a score",
        status="fail" if nothing else "warn" if many else "pass",
        value=1 - share,
        limit=f"at most {_MANY_UNSCORED:.0%} of the records without a score",
        detail=f"{worst} has no score for {share:.0%} of the records, which count as not flagged"
        if many
        else "every attack scores nearly every record",
        fix="the reasons stand under the table of attacks" if many else None,
    )


def _shown(auc: Number) -> str:
    """The AUC with its interval and the level of that, which is not that of the table."""
    low, high = auc.ci
    return f"{auc.value:.2f} [{low:.2f}, {high:.2f}] ({100 * auc.confidence:.1f}% interval)"


def concluded(
    judge: Judge, verdicts: Verdicts, data: DataFacts | None, preflight: tuple[Check, ...] = ()
) -> dict[str, Any]:
    """Rows, checks, verdict and, unless the evidence is invalid, the finding: fields of `Results`.

    Args:
        judge: that made the verdicts.
        verdicts: everything that judging gave.
        data: the facts about the records; None for scores made elsewhere.
        preflight: checks of the model's numbers, made before.
    """
    return conclude(verdicts, (*preflight, *checks(judge, verdicts, data)))


def conclude(verdicts: Verdicts, rows: tuple[Check, ...]) -> dict[str, Any]:
    """As `concluded`, from checks that are made."""
    validity = verdict(rows)
    fields: dict[str, Any] = {
        "attacks": verdicts.attacks,
        "control": verdicts.control,
        "checks": rows,
        "validity": validity,
        "headline": verdicts.headline,
        "headline_note": verdicts.headline_note,
        "slices": verdicts.slices,
        "exposed": verdicts.exposed,
        "optimization_gap": verdicts.gap,
        "gains": verdicts.gains,
    }
    if validity.verdict == "invalid":
        note = verdicts.headline_note or f"the evidence is invalid: {validity.reasons[0]}"
        withheld = dict.fromkeys(("headline", "exposed", "optimization_gap"))
        fields |= {**withheld, "headline_note": note, "slices": ()}
    return fields
