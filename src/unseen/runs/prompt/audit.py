"""One audit of a prompt, step by step: plan, trials, model, check, measure, score, judge.

It is an audit like any other, whose records are cases: a record that is asked about behind a prompt
that holds it, or does not. Every setting (demonstrations, place, defence) is measured and judged by
itself; the first fills the results, the others stand beside it.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from unseen.errors import BudgetError
from unseen.prompts.templates import PromptTemplate
from unseen.runs.answers import answers, answers_so_far
from unseen.runs.collect import Measured, Progress, collect
from unseen.runs.ending import Report, complete, run_facts, seal, write_results
from unseen.runs.fillers import filler_facts
from unseen.runs.folder import RunFolder
from unseen.runs.header import Note, asking, begin, open_folder
from unseen.runs.judge import PROMPTED, Judge
from unseen.runs.lending import keep_sketch
from unseen.runs.metered import endpoint_of, enough
from unseen.runs.prompt.asked import Total, total
from unseen.runs.prompt.cost import FREE_TEXT, accuracy, similarity
from unseen.runs.prompt.defended import Seen, defence, fixed_scores, guarantee_facts
from unseen.runs.prompt.demos import Given
from unseen.runs.prompt.judged import file_of, insisted, judged_setting, unparsed
from unseen.runs.prompt.preflight import checked_first
from unseen.runs.prompt.ready import Ready, in_words, ready
from unseen.runs.prompt.settings import Setting
from unseen.runs.prompt.validity import checks
from unseen.runs.results import (
    Check,
    DataFacts,
    Defence,
    Number,
    PromptFacts,
    Results,
    SettingResult,
    Side,
    ThreatModel,
)
from unseen.runs.subjects import Scored, Subjects
from unseen.runs.validity import conclude
from unseen.scoring.asking import Budget
from unseen.signals.base import REFERENCE, SURROGATE, TARGET, Observations
from unseen.targets.access import Withheld
from unseen.types import Scores

if TYPE_CHECKING:
    from unseen.runs.prompt.config import PromptAudit
    from unseen.scoring.store import Store
    from unseen.targets.access import LogprobTarget

SCENARIO = "prompt"

LIMITATIONS = (
    "The numbers hold for this model, this template, these records and these attacks; they do not show "
    "that nothing else leaks.",
    "What is measured is whether a record is among the demonstrations of the prompt. Records that the "
    "model was trained on count only as far as the rows behind an empty prompt say.",
    "The false-positive rate of a threshold is that of the non-members as a whole, not the "
    "probability that a particular record was no member.",
)

OBSERVED_LIMITATION = (
    "The prompt stands at the other end: that its demonstrations and the non-members come from the same "
    "source is for whoever named them to know, and no control can be measured."
)

OUT_OF_SCOPE = (
    "extraction of demonstrations that the attacker does not have",
    "extraction of the instruction",
    "attribute inference",
    "leakage of training data, logs or retrieval",
)

TAXONOMY = {
    "NIST AI 100-2": "membership inference",
    "EDPB Opinion 28/2024": "tests against membership inference",
}


def audit_prompt(
    config: PromptAudit,
    *,
    target: LogprobTarget | None = None,
    demos: Given | None = None,
    template: PromptTemplate | None = None,
    progress: Progress | None = None,
    note: Note | None = None,
    report: Report | None = None,
) -> tuple[RunFolder, Results]:
    """Runs, or continues, an audit of a prompt.

    Args:
        config: every choice.
        target: a target that the caller has made, instead of `config.model`.
        demos: labelled records that the caller has, instead of `config.demos`.
        template: a template that the caller has made, instead of that which `config.template` names.
        progress: told how far long work is.
        note: told, in a sentence, what the user should know.
        report: writes the results for people into the folder, before it is sealed.

    Returns:
        The run folder and its results, written already.

    Raises:
        UnseenError: with what is wrong and what to do; what was measured before is kept.
    """
    started = time.monotonic()
    say = note or (lambda _: None)
    start = ready(config, target=target, demos=demos, template=template, say=say)
    folder = open_folder(config, start.identity, start.model.target.name)
    with folder.locked():
        about = _begin(folder, start)
        say(f"run folder {folder.path}")
        with asking(start.models, folder, about, say):
            budget = _budget(start, about, say)
            preflight = checked_first(
                config, start.model, start.main, start.plan.signals, folder, about, say
            )
            with answers(config) as store:
                # Closed at once: it writes to the run folder where it is stopped, and not some time later.
                with closing(_kept_up(start.settings, folder, about, budget)) as settings:
                    measured = [
                        _measure(start, setting, store, budget, _telling(progress, start, setting))
                        for setting in settings
                    ]
                alike = {
                    setting.name: similarity(
                        start, setting.written(start.helpers, store), store, budget
                    )
                    for setting in start.settings
                }
        results = _finish(folder, start, about, preflight, measured, alike, started)
        seal(folder, results, report)
    return folder, results


def _begin(folder: RunFolder, start: Ready) -> dict[str, Any]:
    """Writes the header of the run, and which case is about which record."""
    setting = start.main
    models = {TARGET: start.model}
    if start.surrogate is not None:
        models[SURROGATE] = start.surrogate
    facts = {
        "data": setting.records.describe(),
        "models": {role: model.target.describe() for role, model in models.items()},
        "fingerprints": {role: model.target.fingerprint for role, model in models.items()},
        "settings": [one.name for one in start.settings],
    }
    about = begin(
        folder,
        start.config,
        scenario=SCENARIO,
        plan=start.identity,
        facts=facts,
        dropped=start.dropped,
    )
    folder.write_rows(
        "data/cases.csv",
        ("case", "record", "trial", "member", "position"),
        (
            (
                case.id,
                case.example.id,
                str(case.trial),
                str(int(case.member)),
                str(case.position + 1),
            )
            for case in setting.cases
        ),
    )
    return about


def _budget(start: Ready, about: Mapping[str, Any], say: Note) -> Budget:
    """What may still be asked; says what is about to be, and refuses what would be too much.

    Raises:
        BudgetError: where the first questions alone are more than are allowed.
    """
    spent = sum(
        n for attempt in about["attempts"] for n in (attempt.get("requests_scored") or {}).values()
    )
    endpoint = endpoint_of(start.models)
    if endpoint is not None:  # what was sent again counts too
        spent = max(spent, endpoint.counts.total)
    sets = ((one.records.records, *start.of(one)) for one in start.settings)
    with answers_so_far(start.config) as store:
        asked = total(start.signals, sets, store)
    say(_about_to_ask(start, asked))
    most = start.config.max_requests
    if most is not None and spent + asked.left > most:
        needed = spent + asked.at_most if endpoint is None else enough(endpoint, asked.at_most)
        raise BudgetError(
            f"{asked.left:,} questions are left to ask at least, {spent:,} were asked, and "
            f"--max-requests allows {most:,}: nothing was asked",
            fix=f"--max-requests {needed}, or fewer --trials, --shots or --attacks",
        )
    return Budget(most, spent)


def _about_to_ask(start: Ready, asked: Total) -> str:
    n = len(start.settings)
    settings = "" if n == 1 else f" in {n} settings"
    more = (
        f", up to {asked.at_most:,} where answers lead to more"
        if asked.at_most > asked.left
        else ""
    )
    return (
        f"about to ask {asked.left:,} questions{settings}{more}: {asked.tokens:,} tokens to read and, at "
        f"most, to write; {asked.cached:,} are answered already"
    )


# --- measure --------------------------------------------------------------------------------------


def _kept_up(
    settings: Iterable[Setting], folder: RunFolder, about: dict[str, Any], budget: Budget
) -> Generator[Setting, None, None]:
    """The settings; what was asked is noted down after each, also where it is stopped."""
    before = budget.spent
    try:
        for setting in settings:
            yield setting
            about["attempts"][-1]["requests_scored"] = {TARGET: budget.spent - before}
            folder.write_json("run.json", about)
    finally:
        about["attempts"][-1]["requests_scored"] = {TARGET: budget.spent - before}
        folder.write_json("run.json", about)


def _telling(progress: Progress | None, start: Ready, setting: Setting) -> Progress | None:
    """Progress in the words of a prompt: there is one model, behind its prompt and an empty one."""
    if progress is None:
        return None
    where = "" if len(start.settings) == 1 else f", {in_words(setting)}"

    def tell(what: str, done: int, n: int) -> None:
        doing, _, role = what.rpartition(" ")
        who = "behind an empty prompt" if role == REFERENCE else "behind the prompt"
        if n:
            progress(f"{doing} {who}{where}", done, n)

    return tell


def _measure(
    start: Ready, setting: Setting, store: Store, budget: Budget, progress: Progress | None
) -> Measured:
    models, shown = start.of(setting.written(start.helpers, store))
    return collect(
        start.signals,
        setting.records.records,
        models,
        store=store,
        shown=shown,
        batch_tokens=start.config.batch_tokens,
        budget=budget,
        progress=progress,
    )


# --- score, judge ---------------------------------------------------------------------------------


def _finish(
    folder: RunFolder,
    start: Ready,
    about: dict[str, Any],
    preflight: tuple[Check, ...],
    measured: Sequence[Measured],
    alike: Mapping[str, Number | None],
    started: float,
) -> Results:
    config, plan, setting = start.config, start.plan, start.main
    observations, cost = measured[0]
    folder.write_observations(observations, tokens=config.keep_tokens)
    judge = Judge(config, _subjects(start, setting), start.lent, PROMPTED)
    verdicts = judge.judge(plan.attacks, plan.control, observations)
    prompt = _facts(start, observations, verdicts.scored.target)
    target = start.model.target
    seen = {one.name: found for one, (found, _) in zip(start.settings, measured, strict=True)}
    scores: dict[str, Mapping[str, Scores]] = {setting.name: verdicts.scored.target}
    settings, defences = [], []
    for one, taken in zip(start.settings[1:], measured[1:], strict=True):
        its, scored = _scored(start, one, taken, seen, scores)
        folder.write_table(file_of(one.name), its.table(scored))
        scores[one.name] = scored.target
        about_it = _about(start, one, taken, its, scored.target)
        found = judged_setting(about_it, its, plan, scored, (judge, verdicts.scored.target))
        settings.append(found)
        if one.defense is not None:
            before = start.undefended(one).name
            what = _defence(start, one, seen, alike[one.name])
            defences.append(
                defence(what, its, found.attacks, scores[before], scored.target, scored.fixed)
            )
    results = Results(
        run=run_facts(about, started),
        target=target.describe(),
        access=target.access.word,
        data=_data_facts(start),
        prompt=prompt,
        fillers=filler_facts(start.fillers),
        settings=tuple(settings),
        defences=tuple(defences),
        threat_model=_threat_model(start),
        control_note=plan.control_note,
        skipped=plan.skipped,
        requests=cost.requests,
        limitations=(*LIMITATIONS, *((OBSERVED_LIMITATION,) * setting.observed)),
        out_of_scope=OUT_OF_SCOPE,
        **conclude(verdicts, (*preflight, *checks(judge, verdicts, prompt))),
    )
    keep_sketch(folder, setting.records.records)
    write_results(folder, results, judge, verdicts, plan.attacks, observations, start.lent)
    complete(folder, about, (cost for _, cost in measured))
    return results


def _subjects(start: Ready, setting: Setting) -> Subjects:
    lengths = {id_: n or 0 for id_, n in start.lengths[setting.name].items()}
    return Subjects.from_records(setting.records, lengths, reveal=start.config.reveal)


def _facts(start: Ready, observations: Observations, scores: Mapping[str, Scores]) -> PromptFacts:
    config, setting = start.config, start.main
    template, lengths = setting.template, start.lengths[setting.name]
    fitting = sorted(n for n in lengths.values() if n is not None)
    game: dict[str, Any] = {}
    if not setting.observed:
        (pool,) = start.demos
        game = {
            "n_pool": len(pool.examples),
            "pool_sha256": pool.source.sha256,
            "trials": config.trials,
            "paired": config.paired,
            "shots": setting.shots,
            "position": setting.position,
        }
    return PromptFacts(
        template=template.name,
        chat=template.chat,
        n_labels=None if template.labels is None else len(template.labels.words),
        observed=setting.observed,
        tokens=(fitting[0], fitting[len(fitting) // 2], fitting[-1]) if fitting else None,
        n_too_long=_too_long(start, setting, scores),
        unparsed=unparsed(start.plan, observations),
        **insisted(start.plan, observations),
        **game,
    )


def _too_long(start: Ready, setting: Setting, scores: Mapping[str, Scores]) -> tuple[int, int]:
    """Members and non-members whose prompt is too long, as we count or as an endpoint says."""
    lengths = start.lengths[setting.name]
    long = {id_ for id_, n in lengths.items() if n is None}
    for one in scores.values():
        long |= {id_ for id_, why in one.unscored.items() if why == Withheld.TOO_LONG.reason}
    counts = Counter(case.member for case in setting.cases if case.id in long)
    return counts[True], counts[False]


def _data_facts(start: Ready) -> DataFacts:
    config, setting = start.config, start.main
    records = setting.records
    return DataFacts(
        members=Side.of(records.sources["members"], len(records.members)),
        nonmembers=Side.of(records.sources["nonmembers"], len(records.nonmembers)),
        format=records.format,
        loss_on="nothing",
        template_sha256=hashlib.sha256(repr(setting.template).encode()).hexdigest(),
        dropped=dict(Counter(one.reason for one in start.dropped)),
        split_origin=config.split_origin if setting.observed else "random",
    )


def _threat_model(start: Ready) -> ThreatModel:
    return ThreatModel(
        access=start.model.target.access.word,
        knows=(
            "the record, word by word, with its label",
            "the form of the task: how something is asked, and the words that answer",
            "other records, known to be in the prompt or not",
        ),
        release_context=start.config.release_context,
        taxonomy=TAXONOMY,
    )


def _scored(
    start: Ready,
    setting: Setting,
    measured: Measured,
    seen: Mapping[str, Observations],
    scores: Mapping[str, Mapping[str, Scores]],
) -> tuple[Judge, Scored]:
    """The judge of a further setting, and its scores; behind a defence also those of who knows of none."""
    plan, observations = start.plan, measured[0]
    judge = Judge(start.config, _subjects(start, setting), start.lent, PROMPTED)
    scored = judge.scored(plan.attacks, plan.control, observations)
    if setting.defense is None:
        return judge, scored
    before = start.undefended(setting).name
    fixed = fixed_scores(
        judge, plan.attacks, Seen(seen[before], scores[before]), Seen(observations, scored.target)
    )
    return judge, replace(scored, fixed=fixed)


def _about(
    start: Ready,
    setting: Setting,
    measured: Measured,
    judge: Judge,
    scores: Mapping[str, Scores],
) -> SettingResult:
    observations, cost = measured
    return SettingResult(
        name=setting.name,
        shots=setting.shots,
        position=setting.position,
        defense=setting.defended,
        n=judge.n,
        n_too_long=_too_long(start, setting, scores),
        unparsed=unparsed(start.plan, observations),
        **insisted(start.plan, observations),
        requests=cost.requests,
    )


def _defence(
    start: Ready, setting: Setting, seen: Mapping[str, Observations], alike: Number | None
) -> Defence:
    """A defence and its cost."""
    signal, before = start.told_by, start.undefended(setting)
    confidence = start.config.confidence
    notes = [] if setting.guarantee is None else list(setting.guarantee.notes)
    if signal is None:
        notes.append(FREE_TEXT)
    return Defence(
        name=setting.name,
        defense=setting.defended,
        shots=setting.shots,
        position=setting.position,
        fpr=None,
        accuracy_before=accuracy(signal, before, seen[before.name], confidence),
        accuracy=accuracy(signal, setting, seen[setting.name], confidence),
        similarity=alike,
        notes=tuple(notes),
        guarantee=guarantee_facts(setting.guarantee),
    )
