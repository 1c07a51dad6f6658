"""What a report says of the defences of a prompt: what each takes from attackers, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unseen.report.summary import number, percent_rate, rate, signed

if TYPE_CHECKING:
    from unseen.runs.results import Attacker, Defence, Defended, Number, Results

LEAD = (
    "Each defence is judged twice. Who does not know of it keeps the thresholds, and whatever else was "
    "learned, from the prompt without it; who knows of it learns anew, from other defended trials. A "
    "defence that holds against the first alone holds until somebody looks. Of both, thresholds come from "
    "other trials than they are judged on."
)
LEAKAGE_HEADER = (
    "defence", "attack", "AUC without", "… not known", "… known", "advantage without", "… not known",
    "… known",
)  # fmt: skip
COST = (
    "What it costs: how often the model answers right about records that are not in its prompt, and how "
    "like what it wrote is what a filter has made of it. Where a guarantee is given, it is computed from "
    "what was done, and bounds every attack."
)
COST_HEADER = ("defence", "right answers without", "right answers", "rewritten text", "epsilon")
TERMINAL_HEADER = (
    "defence", "attack", "advantage without", "not known", "known", "right answers without", "with it",
)  # fmt: skip


def followed(results: Results) -> tuple[str, ...]:
    """The attack that gets furthest without any defence, and the one of those that need text alone.

    What changes answers takes nothing from who reads probabilities: the first alone would hide what a
    defence does where text is all that is given out.
    """
    aucs = {
        attack.attack: attack.before.auc.value
        for one in of_main(results)
        for attack in one.attacks
        if attack.before.auc is not None
    }
    texts = {row.name for row in results.attacks if row.access == "text"} & aucs.keys()
    furthest = (max(names, key=lambda name: aucs[name]) for names in (aucs, texts) if names)
    return tuple(dict.fromkeys(furthest))


def of_main(results: Results) -> tuple[Defence, ...]:
    """The defences of the main setting; those of others are in the tables."""
    where = {(one.shots, one.position) for one in results.defences[:1]}
    return tuple(one for one in results.defences if (one.shots, one.position) in where)


def leakage(results: Results) -> list[tuple[str, ...]]:
    """Rows of `LEAKAGE_HEADER`, defence by defence."""
    return [
        (_name(one), attack.attack, *map(_number, _three(attack, "auc")),
         *map(_number, _three(attack, "advantage")))
        for one in results.defences
        for attack in one.attacks
    ]  # fmt: skip


def rates_header(results: Results) -> tuple[str, ...]:
    """Header of `rates`."""
    fpr = next((one.fpr for one in results.defences if one.fpr is not None), 0.0)
    of = f"TPR (FPR) for {percent_rate(fpr)} FPR"
    return ("defence", "attack", f"{of} without", "… not known", "… known")


def rates(results: Results) -> list[tuple[str, ...]]:
    """Shares of both sides that are flagged; none where these trials resolve no false-positive rate."""
    return [
        (
            _name(one),
            attack.attack,
            *map(_rates, (attack.before, attack.fixed, attack.recalibrated)),
        )
        for one in results.defences
        if one.fpr is not None
        for attack in one.attacks
    ]


def cost(results: Results) -> list[tuple[str, ...]]:
    """Rows of `COST_HEADER`."""
    return [
        (_name(one), _rate(one.accuracy_before), _rate(one.accuracy), _number(one.similarity), _epsilon(one))
        for one in results.defences
    ]  # fmt: skip


def in_lines(results: Results) -> list[tuple[str, ...]]:
    """Rows of `TERMINAL_HEADER`: of the main setting, and the attacks that get furthest."""
    names = followed(results)
    return [
        (
            _name(one),
            attack.attack,
            *map(_number, _three(attack, "advantage")),
            _rate(one.accuracy_before),
            _rate(one.accuracy),
        )
        for one in of_main(results)
        for attack in one.attacks
        if attack.attack in names
    ]


def sentences(results: Results) -> list[str]:
    """What each defence of the main setting does to the attacks that get furthest without one."""
    names = followed(results)
    return [
        f"{_name(one)}: {_said(attack)}"
        for one in of_main(results)
        for attack in one.attacks
        if attack.attack in names
    ]


def notes(results: Results) -> list[tuple[str, str]]:
    """Defence, and what a reader should know of its numbers."""
    found = []
    for one in results.defences:
        given = one.guarantee
        if given is not None:
            loss = (
                ""
                if given.loss is None
                else f"; the privacy loss alone exceeds {given.loss:.1f} as often"
            )
            found.append(
                (
                    one.defense,
                    f"epsilon {given.epsilon:.1f} at delta {given.delta:.2g} ({given.accountant}), for one "
                    f"record in the place of another: {given.releases} noisy tokens, sigma "
                    f"{given.sigma:.2f}, at least {given.n_private} private records of a label, each drawn "
                    f"with chance {given.rate:.2g}{loss}.",
                )
            )
        found += [(one.defense, f"{note}.") for note in one.notes]
    return found


def _said(attack: Defended) -> str:
    shift, knows = attack.difference, attack.recalibrated.advantage
    if shift is None:
        return f"{attack.attack} cannot be judged against it."
    moved = f"the AUC of {attack.attack} changes by {signed(shift)}"
    if shift.ci[0] > 0:
        return f"it leaks more. For who knows of it, {moved}."
    if shift.ci[1] >= 0:
        return f"no difference is resolved. For who knows of it, {moved}."
    unknown = attack.fixed.advantage
    left = "" if knows is None else f" An advantage of {number(knows)} is left"
    if left and unknown is not None:
        left += f", and {number(unknown)} for who does not know of it"
    return f"it leaks less. For who knows of it, {moved}.{left}{'.' if left else ''}"


def _three(attack: Defended, what: str) -> tuple[Number | None, ...]:
    return tuple(getattr(one, what) for one in (attack.before, attack.fixed, attack.recalibrated))


def _rates(one: Attacker) -> str:
    if one.tpr is None or one.fpr is None:
        return "–"
    return f"{rate(one.tpr)} ({100 * one.fpr.value:.1f}%)"


def _epsilon(one: Defence) -> str:
    given = one.guarantee
    return "–" if given is None else f"{given.epsilon:.1f} (delta {given.delta:.2g})"


def _name(one: Defence) -> str:
    where = f" ({one.shots}, {one.position})" if one.shots > 1 else ""
    return f"{one.defense}{where}"


def _number(found: Number | None) -> str:
    return "–" if found is None else number(found)


def _rate(found: Number | None) -> str:
    return "–" if found is None else rate(found)
