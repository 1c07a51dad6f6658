"""Whether the numbers of a prompt's audit mean that a record is in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unseen.runs.judge import CHANCE
from unseen.runs.results import Check
from unseen.runs.validity import (
    ALARM,
    HOLD_OUT,
    MORE_RECORDS,
    blind,
    coverage,
    most_extreme,
    of_control,
    power,
    sign,
)

if TYPE_CHECKING:
    from unseen.runs.judge import Judge, Verdicts
    from unseen.runs.results import AttackResult, PromptFacts

_MANY_UNPARSED = 0.2
_MANY_TOO_LONG = 0.05


def checks(judge: Judge, verdicts: Verdicts, prompt: PromptFacts) -> tuple[Check, ...]:
    """Every check that asks no model.

    Args:
        judge: gives intervals at the level of the checks.
        verdicts: rows and scores of attacks, baselines and controls.
        prompt: the prompt, and how trials were drawn.
    """
    attacks = [row for row in verdicts.attacks if row.kind == "attack"]
    return (
        _mended(blind(judge, verdicts, attacks, None), prompt),
        _mended(_empty(judge, verdicts, attacks, prompt), prompt),
        _origin(prompt),
        _fit(prompt, judge.n),
        _mended(
            power(
                judge.n[1],
                judge.rates,
                enough=judge.enough
                and (not attacks or any(row.auc is not None for row in attacks)),
            ),
            prompt,
        ),
        sign(judge, verdicts, attacks),
        coverage(attacks),
        *_unparsed(prompt, () if verdicts.headline is None else verdicts.headline.chosen),
    )


def _mended(check: Check, prompt: PromptFacts) -> Check:
    """The check with what can be done about a prompt, where two sets differ, or are too small."""
    if check.fix is None:
        return check
    if check.fix != HOLD_OUT:
        small = check.fix == MORE_RECORDS or check.id == "power"
        return check.model_copy(update={"fix": _more(check, prompt)}) if small else check
    fix = (
        "name non-members of the source that the demonstrations come from, or audit the prompt with "
        "demonstrations that are drawn: --demos FILE"
        if prompt.observed
        else "a coin decided, so that this is chance: more --trials, more records in --demos, or another --seed"
    )
    return check.model_copy(update={"fix": fix})


def _more(check: Check, prompt: PromptFacts) -> str | None:
    """How an audit gets more records to judge: by more trials, as far as the pool goes."""
    if prompt.observed or prompt.trials is None or prompt.n_pool is None:
        return check.fix
    room = prompt.n_pool // 2
    more = (
        f"more --trials: these records are enough for {room:,}"
        if prompt.trials < room
        else "more records in --demos, and more --trials"
    )
    unresolved = check.status == "fail" and str(check.fix).endswith("--fpr")
    return f"{more}; or a larger --fpr" if unresolved else more


def _empty(
    judge: Judge, verdicts: Verdicts, attacks: Sequence[AttackResult], prompt: PromptFacts
) -> Check:
    about = {
        "id": "control",
        "title": "the same, behind an empty prompt",
        "limit": f"AUC at {CHANCE:g} (level {ALARM:g}, all control rows together)",
    }
    rows = verdicts.control
    top = most_extreme(judge, rows, verdicts.scored.control, both_ways=True)
    if top is None:
        why = (
            "no attack could be judged behind an empty prompt"
            if rows
            else "an observed prompt cannot be emptied: what the model knows of these records without it "
            "was not measured"
            if prompt.observed
            else "the attacks were not repeated behind an empty prompt"
        )
        fix = None if rows or prompt.observed else "--control k0"
        return Check(**about, status="skip", detail=why, fix=fix)
    below = (
        "behind an empty prompt, which can know neither side: the two sides differ by themselves",
        "draw more trials, or another pool: a coin decides who is in, so that this is chance",
    )
    where = "behind an empty prompt, where no record is in it"
    return of_control(about, top, rows, attacks, where, below)


def _origin(prompt: PromptFacts) -> Check:
    about: dict[str, Any] = {
        "id": "split_origin",
        "title": "how it was decided who is in the prompt",
        "limit": "at random",
    }
    if not prompt.observed:
        how = f"a coin decided in each of {prompt.trials} trials which of two records is in the prompt"
        if prompt.paired:
            how = f"in each of {prompt.trials} trials one record was asked about, in the prompt and not in it"
        return Check(**about, status="pass", detail=how)
    return Check(
        **about,
        status="skip",
        detail="whoever wrote the observed prompt chose its demonstrations",
        fix="audit the prompt with demonstrations that are drawn: --demos FILE",
    )


def _fit(prompt: PromptFacts, n: tuple[int, int]) -> Check:
    share = sum(prompt.n_too_long) / max(1, sum(n))
    many = share > _MANY_TOO_LONG
    return Check(
        id="prompts_fit",
        title="prompts that fit into the context",
        status="warn" if many else "pass",
        value=1 - share,
        limit=f"at most {_MANY_TOO_LONG:.0%} of the prompts too long",
        detail=f"{sum(prompt.n_too_long)} of {sum(n)} prompts do not fit into the context"
        + ("; those records have no score" if many else ""),
        fix="fewer --shots, shorter records, or a model with a longer context" if many else None,
    )


def _unparsed(prompt: PromptFacts, chosen: Sequence[str]) -> list[Check]:
    """The row of answers that say none of what was asked for; none where no attack reads answers.

    An attack that reads none of its answers says nothing, and harms nothing either, unless the finding
    is of it, or no other reads more.
    """
    if not prompt.unparsed:
        return []
    shares = {name: prompt.unparsed[name] for name in chosen if name in prompt.unparsed}
    relied = max(shares.values(), default=min(prompt.unparsed.values()))
    many = relied > _MANY_UNPARSED
    worst = max(prompt.unparsed, key=lambda name: prompt.unparsed[name])
    if many:
        so = "; a weak score may be the format's fault"
    elif prompt.unparsed[worst] > _MANY_UNPARSED:
        so = f": {worst} says little, and the finding does not rest on it"
    else:
        so = ""
    return [
        Check(
            id="unparsed",
            title="answers that can be read",
            status="warn" if many else "pass",
            value=1 - relied,
            limit=f"at most {_MANY_UNPARSED:.0%} of the answers unreadable, of an attack that is relied on",
            detail=f"{prompt.unparsed[worst]:.0%} of the answers to {worst} are none of those asked for, and "
            f"count as wrong{so}",
            fix=f"{'' if prompt.chat else '--chat for a model that talks, '}"
            "--synonyms LABEL=WORD for other words, or, where the model tells how likely text is, "
            "--mode choice"
            if many
            else None,
        )
    ]
