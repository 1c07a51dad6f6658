"""What a report says of a prompt: who is in it, in which setting, and what its owner can do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unseen.report import language as say
from unseen.report.language import Advice
from unseen.report.summary import by_auc, number, percent, signed

if TYPE_CHECKING:
    from unseen.runs.results import AttackResult, Number, PromptFacts, Results, SettingResult, Shift

TABLE_OF_ATTACKS = (
    "Higher scores mean more likely in the prompt, for every attack. Blind rows never saw the model, and "
    "rows behind an empty prompt ask the same model the same questions without any demonstration: both "
    "must stay at chance."
)

ADVANTAGE = (
    "The number of the papers: advantage, twice what balanced accuracy is above one half, or TPR − FPR. It is "
    "given at a threshold that was chosen on other trials, and at the one that an attack's paper names, which "
    "was set for other models; a threshold chosen on the trials that it is judged on finds an advantage in "
    "noise, and is not given."
)
ADVANTAGE_HEADER = ("attack", "advantage", "its paper's threshold", "advantage there")

SETTINGS = (
    "The same trials in other settings: whom they ask about, and the coins, are the same, so that "
    "differences to the first row of each attack are paired. Advantage is at a threshold chosen on other "
    "trials. Intervals are of each number by itself."
)
SETTINGS_HEADER = (
    "demonstrations", "place", "defence", "attack", "AUC", "− first row", "advantage", "behind an empty prompt",
)  # fmt: skip

SHOTS = "AUC by the number of demonstrations, with intervals. The dashed line is chance."
PLACES = "AUC by the place of the record in question, with intervals. The dashed line is chance."

NO_GROUPS = "All trials of the finding have the record in question at one place: see the settings."

Series = dict[str, dict[str, "Number"]]
"""Attack -> where it was measured -> AUC."""


@dataclass(frozen=True)
class Cell:
    """One attack in one setting.

    Attributes:
        shots: demonstrations.
        place: of the record in question.
        defense: its name, or "none".
        row: the attack.
        control: the same behind an empty prompt, if it was asked.
        shift: how far the AUC is from that of the main setting; None in the main setting.
    """

    shots: int
    place: str
    defense: str
    row: AttackResult
    control: AttackResult | None
    shift: Shift | None


def cells(results: Results) -> tuple[Cell, ...]:
    """Every attack in every setting, the main setting first; none where there is one setting alone."""
    about = results.prompt
    if about is None or about.shots is None or not results.settings:
        return ()
    main = _cells(about.shots, str(about.position), "none", results, ())
    return (
        *main,
        *(
            cell
            for one in results.settings
            for cell in _cells(one.shots, one.position, one.defense, one, one.differences)
        ),
    )


def _cells(
    shots: int,
    place: str,
    defense: str,
    of: Results | SettingResult,
    shifts: Sequence[Shift],
) -> Iterable[Cell]:
    controls = {row.name: row for row in of.control}
    by_name = {one.attack: one for one in shifts}
    attacks = sorted((row for row in of.attacks if row.kind == "attack"), key=by_auc)
    for row in attacks:
        yield Cell(shots, place, defense, row, controls.get(row.name), by_name.get(row.name))


def lines(results: Results) -> list[tuple[str, ...]]:
    """Rows of `SETTINGS_HEADER`: attack by attack, so that settings stand one below the other."""
    everything = cells(results)
    names = dict.fromkeys(cell.row.name for cell in everything)
    return [
        (
            str(cell.shots),
            cell.place,
            "" if cell.defense == "none" else cell.defense,
            name,
            _number(cell.row.auc),
            "" if cell.shift is None else _signed(cell.shift),
            _number(cell.row.advantage),
            _number(None if cell.control is None else cell.control.auc),
        )
        for name in names
        for cell in everything
        if cell.row.name == name
    ]


def advantages(results: Results) -> list[tuple[str, ...]]:
    """Rows of `ADVANTAGE_HEADER`; none where no paper names a threshold."""
    attacks = sorted((row for row in results.attacks if row.kind == "attack"), key=by_auc)
    if all(row.by_paper is None for row in attacks):
        return []
    return [
        (
            row.name,
            _number(row.advantage),
            "–" if row.by_paper is None else f"{row.by_paper.threshold:g}",
            _number(None if row.by_paper is None else row.by_paper.advantage),
        )
        for row in attacks
    ]


def beside(results: Results, most: int) -> list[tuple[str, ...]]:
    """A row a setting, and a column for each of the best attacks in the main one; the header first."""
    everything = cells(results)
    names = list(dict.fromkeys(cell.row.name for cell in everything))[:most]
    rows: dict[str, dict[str, str]] = {}
    for cell in everything:
        defense = "" if cell.defense == "none" else f", {cell.defense}"
        setting = f"{cell.shots} demonstration{'s' * (cell.shots != 1)}, {cell.place}{defense}"
        rows.setdefault(setting, {})[cell.row.name] = _number(cell.row.auc)
    return [
        ("setting", *names),
        *((setting, *(found.get(name, "–") for name in names)) for setting, found in rows.items()),
    ]


def aucs(results: Results) -> list[Number | None]:
    """The AUC of each of `lines`."""
    everything = cells(results)
    names = dict.fromkeys(cell.row.name for cell in everything)
    return [cell.row.auc for name in names for cell in everything if cell.row.name == name]


def by_shots(results: Results) -> Series:
    """AUC by the number of demonstrations, at the main place; none where there is one number alone."""
    place = None if results.prompt is None else results.prompt.position
    some = [cell for cell in cells(results) if cell.defense == "none" and cell.place == place]
    return _series(some, [str(cell.shots) for cell in some])


def by_place(results: Results) -> Series:
    """AUC by place, of as many demonstrations as have most places; none where there is one place alone."""
    undefended = [cell for cell in cells(results) if cell.defense == "none"]
    places: dict[int, set[str]] = {}
    for cell in undefended:
        places.setdefault(cell.shots, set()).add(cell.place)
    shots = max(places, key=lambda n: len(places[n]), default=0)
    some = [cell for cell in undefended if cell.shots == shots]
    return _series(some, [cell.place for cell in some])


def _series(some: Sequence[Cell], at: Sequence[str]) -> Series:
    found: dict[str, dict[str, Number]] = {}
    for cell, point in zip(some, at, strict=True):
        if cell.row.auc is not None:
            found.setdefault(cell.row.name, {})[point] = cell.row.auc
    return found if any(len(points) > 1 for points in found.values()) else {}


def _number(found: Number | None) -> str:
    return "–" if found is None else number(found)


def _signed(shift: Shift) -> str:
    return "–" if shift.difference is None else signed(shift.difference)


# --- what it took -----------------------------------------------------------------------------------


def cost(about: PromptFacts) -> list[tuple[str, str]]:
    """What was left out, and how answers were read."""
    n = sum(about.n_too_long)
    pairs = [("prompts that do not fit into the context", str(n) if n else "none")]
    pairs += [
        (f"answers to {name} that could not be read", percent(share))
        for name, share in sorted(about.unparsed.items())
    ]
    for name, share in sorted(about.never.items()):
        pairs.append((f"wrong labels that {name} insisted on in vain", percent(share)))
        if about.no_room.get(name):
            pairs.append(("of all of them, for want of room", percent(about.no_room[name])))
    return pairs


# --- what it means --------------------------------------------------------------------------------


def for_engineers(results: Results) -> tuple[str, tuple[Advice, ...]]:
    """What to change, and how to see whether it helped."""
    if results.invalid:
        return (
            "First mend the evidence: what to do stands beside each failed check. Until then, no change "
            "of the prompt can be judged by these numbers.",
            (),
        )
    found = say.headline(results)
    if found is None or not found.found:
        return (
            "Nothing here calls for a change. Audit again after each change of prompt or model: the result "
            "holds for this prompt and this model alone.",
            (),
        )
    advice = (
        Advice(
            "Show other examples.",
            "Public or invented demonstrations give away nobody. Ones that are generated with differential "
            "privacy bound every attack, also those that nobody has thought of yet; they cost accuracy.",
            "Tang et al. 2024, arXiv:2309.11765",
        ),
        Advice(
            "Let out labels alone.",
            "Attacks that let the model complete a sentence need its text. An interface that gives one of "
            "the task's labels and nothing else takes them away, and leaves those that read labels.",
            "Wen et al. 2024, arXiv:2409.01380",
        ),
        Advice(
            "Show more demonstrations, and see where the sensitive ones stand.",
            "Leakage differs by their number and by the place: --shots 1,4,16 --position first,middle,last "
            "measures both here.",
            "Wen et al. 2024, arXiv:2409.01380",
        ),
        Advice(
            "Do not rely on an instruction.",
            "A model that is told not to speak of its demonstrations may give away more of them: "
            "--defenses instruction shows what it does here.",
            "Wen et al. 2024, arXiv:2409.01380",
        ),
    )
    return "In order of what it is worth; make one change at a time and measure its effect:", advice


def for_privacy_officers(results: Results) -> tuple[str, ...]:
    """What an attacker learns, who that is, and what was not tested."""
    found = say.headline(results)
    lines = []
    if results.invalid:
        lines.append(
            "This run is no evidence, neither that the prompt leaks nor that it does not. It should not be "
            "filed as a test result."
        )
    elif found is None:
        lines.append("This run decides nothing: the data allows no finding, in either direction.")
    elif found.found:
        lines.append(
            "Somebody who holds a record and can ask the model learns more than by chance whether the "
            f"record is in its prompt: {percent(found.tpr.value)} of the records in the prompt are "
            f"recognised ({say.interval_of(found)}), and {percent(found.realised_fpr.value)} of other "
            "records are wrongly taken for one. That somebody's record is shown to the model can itself be "
            "personal information."
        )
    else:
        lines.append(
            "With these attacks, somebody who holds a record cannot reliably tell whether it is in the "
            f"prompt: {percent(found.tpr.value)} of the records in the prompt are flagged "
            f"({say.interval_of(found)}), and {percent(found.realised_fpr.value)} of other records. This "
            "does not show that no attack can."
        )
    if results.threat_model is not None:
        lines.append(say.CONTEXTS[results.threat_model.release_context])
    return tuple(lines)


def for_researchers(about: PromptFacts) -> str:
    """How trials were drawn, in full sentences."""
    if about.observed:
        return (
            "The prompt stood at the other end, and its owner says who is in it: nothing was drawn, and no "
            "control was measured."
        )
    shots = f"a prompt of {about.shots} demonstration{'s' * (about.shots != 1)} each"
    drawn = (
        f"{about.trials} trials, {shots}, from {about.n_pool} labelled records in "
        "two disjoint halves: trial i asks about the i-th record of either half, and a fair coin says which "
        "of them is in the prompt. "
    )
    if about.paired:
        drawn = (
            f"{about.trials} trials, {shots}, from {about.n_pool} labelled "
            "records: each asks about one record behind a prompt that holds it, and behind the same prompt "
            "with another record in its place. "
        )
    return (
        f"{drawn}Trials that ask about the same record are never split between folds: attacks that learn, and "
        "thresholds, come from other trials. They are resampled as one; where a record is asked about both in "
        "a prompt and outside it, its scores of both kinds are drawn together."
    )
