"""One audit of a fine-tuned model, step by step: plan, data, models, check, measure, score, judge.

The run folder that it leaves is enough for everything that comes after: it can be scored and
reported again without the model.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from unseen.attacks.base import needs_shadows
from unseen.data.records import Records
from unseen.data.templates import RecordEncoder, check_layout
from unseen.runs.answers import answers, answers_so_far
from unseen.runs.apart import ApartSet, Repeated, facts_of, file_of, judged_apart
from unseen.runs.collect import Measured, Model, Progress, Shadow, collect, prompts_of
from unseen.runs.ending import Report, complete, run_facts, seal, write_results
from unseen.runs.fillers import filler_facts, fillers_of_target, open_fillers, tried
from unseen.runs.folder import RunFolder
from unseen.runs.header import Note, asking, begin, open_folder
from unseen.runs.inside.directed import check_width
from unseen.runs.inside.drifted import drifted, stability
from unseen.runs.inside.layers import by_layer
from unseen.runs.judge import Judge
from unseen.runs.lending import borrow, check_apart, keep_sketch, sketched
from unseen.runs.lent import Lent
from unseen.runs.metered import check_budget, endpoint_of
from unseen.runs.models import (
    OTHER_FORMAT,
    OTHER_TOKENS,
    described,
    measure_lengths,
    one_format,
    one_tokenizer,
    open_models,
)
from unseen.runs.plan import (
    Plan,
    check_inputs,
    check_run_of,
    choose_attacks,
    plan_attacks,
    plan_id,
    refuse_idle_control,
)
from unseen.runs.preflight import checked_first
from unseen.runs.prepared import (
    Prepared,
    data_facts,
    prepare,
    read,
    too_few_known,
    too_few_to_learn,
)
from unseen.runs.results import Apart, Check, Results, ThreatModel
from unseen.runs.shadows import find_shadows, refuse_informed
from unseen.runs.shadows import notes as shadow_notes
from unseen.runs.subjects import Scored, Subjects
from unseen.runs.training.run_of import of_other_bases, of_run, records_of_run
from unseen.runs.training.self_prompt import who_taught
from unseen.runs.validity import concluded
from unseen.signals.base import (
    CONTROL,
    GENERATOR,
    REFERENCE,
    SHADOW,
    SURROGATE,
    TARGET,
    Shown,
    corpus_needed,
    helpers_needed,
)
from unseen.signals.neighbours import RefilledLikelihoods
from unseen.signals.similarity import load_encoders

if TYPE_CHECKING:
    from unseen.runs.config import FinetuneAudit
    from unseen.scoring.store import Store
    from unseen.targets.access import LogprobTarget
    from unseen.targets.fillers import Filler

LIMITATIONS = (
    "The numbers hold for this model, these records and these attacks; they do not show that "
    "nothing else leaks.",
    "They mean membership only as far as members and non-members come from the same source: "
    "compare the blind rows, which never saw the model, and the control rows.",
    "The false-positive rate of a threshold is that of the non-members as a whole, not the "
    "probability that a particular record was no member.",
)


OUT_OF_SCOPE = (
    "extraction of records that the attacker does not have",
    "attribute inference",
    "model inversion and reconstruction",
    "leakage through prompts, logs or retrieval",
)

OTHER_BASE = "was trained from another base than the target: their records are not all that differs"
"""What is said of a train run beside the target."""

TAXONOMY = {
    "NIST AI 100-2": "membership inference",
    "MITRE ATLAS": "AML.T0024.000",
    "OWASP AISVS": "11.3.3",
    "EDPB Opinion 28/2024": "tests against membership inference",
}


def audit(
    config: FinetuneAudit,
    *,
    target: LogprobTarget | None = None,
    records: Records | None = None,
    progress: Progress | None = None,
    note: Note | None = None,
    report: Report | None = None,
) -> tuple[RunFolder, Results]:
    """Runs, or continues, an audit.

    Args:
        config: every choice.
        target: a target that the caller has made, instead of `config.model`.
        records: records that the caller has read, instead of `config.members` and the like.
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
    start = ready(config, target=target, records=records, say=say)
    folder = open_folder(start.config, start.identity, _name_of(start))
    with folder.locked():
        about = _begin(folder, start)
        say(f"run folder {folder.path}")
        with asking(start.models, folder, about, say):
            _check_budget(start)
            preflight = checked_first(
                config,
                start.models,
                start.prepared.judged,
                folder,
                about,
                say,
                shadows=start.shadows,
                signals=start.plan.signals,
            )
            with answers(config) as store:
                measured = _measure(start, start.prepared.judged, store, progress)
                # After the others, whose batches are what they are without these.
                apart = [
                    _measure(start, one.records, store, progress) for one in start.prepared.apart
                ]
        results = _finish(folder, start, about, preflight, measured, apart, started)
        seal(folder, results, report)
    return folder, results


@dataclass(frozen=True)
class Ready:
    """An audit of which everything is decided and nothing is measured yet.

    Attributes:
        config: every choice.
        prepared: the records.
        models: role -> model, loaded.
        plan: attacks and control.
        identity: a hash of everything that the results depend on.
        shadows: shadow models, not loaded.
        fillers: name -> a model that puts other words into texts.
        lent: what another audit's fusion has learned.
        other_base: whether the reference is a train run from another base than the target's.
    """

    config: FinetuneAudit
    prepared: Prepared
    models: dict[str, Model]
    plan: Plan
    identity: str
    shadows: tuple[Shadow, ...] = ()
    fillers: Mapping[str, Filler] = field(default_factory=dict)
    lent: Lent | None = None
    other_base: bool = False

    @property
    def shown(self) -> Shown:
        """What signals may show to models, or compare with."""
        return replace(self.prepared.shown, fillers=self.fillers)


def ready(
    config: FinetuneAudit,
    *,
    target: LogprobTarget | None,
    records: Records | None,
    say: Note,
) -> Ready:
    """Reads the records, loads the models and decides what is measured; writes nothing.

    Raises:
        UnseenError: with every fault that can be found without asking a model.
    """
    if config.offline:
        os.environ["HF_HUB_OFFLINE"] = "1"  # before anything reads it, data sets included
    refuse_idle_control(config)
    attacks = choose_attacks(config.attacks, weights=config.access == "weights")
    trained, other_base = None, False
    if config.run_of is None:
        check_inputs(config, target, records)
    else:
        check_run_of(config, target, records)
        config, trained = of_run(config)
        records = records_of_run(config, trained)
        others = of_other_bases(config, trained)
        for who in others:
            say(f"{who} {OTHER_BASE}")
        other_base = any(who.startswith(REFERENCE) for who in others)
    signals = [
        signal
        for attack, _ in attacks.values()
        if config.shadow or not needs_shadows(attack)
        for signal in attack.signals()
    ]
    records = records or read(config)
    prepared = prepare(config, records, signals)
    for sentence in prepared.notes:
        say(sentence)
    refuse_informed(config, (*prepared.judged.records, *prepared.further))
    fillers = open_fillers(config, signals)
    models = open_models(config, target, helpers_needed(signals))
    if not one_tokenizer(models):
        say(f"reference: {OTHER_TOKENS}")
    if not one_format(models, CONTROL):
        say(f"control model: {OTHER_FORMAT}")
    encoder = models[TARGET].encoder
    if isinstance(encoder, RecordEncoder):
        check_layout(encoder, (*prepared.judged.records, *prepared.further))
        if trained is not None:
            trained.check_tokens(encoder, (*prepared.judged.records, *prepared.known.records))
    lent = None if config.trained_from is None else borrow(config.trained_from)
    if lent is not None:
        check_apart(lent, sketched((*prepared.judged.records, *prepared.further)))
    short = {
        name: why
        for name, (attack, _) in attacks.items()
        if (why := too_few_known(attack.signals(), prepared) or too_few_to_learn(attack, prepared))
    }
    plan = plan_attacks(config, attacks, models, lent, short)
    for name, why in plan.skipped.items():
        say(f"{name} is not run: {why}")
    if _asks_for_self_prompted(plan) and who_taught(config.reference) is None:
        say(
            "spv: the reference was not trained on text of the target, as the paper's is: unseen train "
            "reference --self-prompt-of TARGET"
        )
    shadows = find_shadows(config, models)
    for sentence in shadow_notes(shadows, prepared.judged.records):
        say(sentence)
    idle = {SURROGATE, GENERATOR} - helpers_needed(plan.signals)
    models = {role: model for role, model in models.items() if role not in idle}
    check_width(prepared.directed, models, plan.signals)
    load_encoders(plan.signals)
    pool = None if prepared.pool_facts is None else prepared.pool_facts.sha256
    corpus = None if prepared.corpus is None else prepared.corpus.sha256
    if prepared.corpus is not None and corpus_needed(plan.signals):
        say(f"counting tokens in the corpus of {prepared.corpus.n:,} texts")
        prepared.corpus.counts(encoder.tokenizer)
    fillers |= fillers_of_target(config, plan.signals, models[TARGET].target)
    for sentence in tried(fillers, [record.response for record in prepared.judged.records]):
        say(sentence)
    probes = None if prepared.given is None else prepared.given.facts.sha256
    paraphrases = None if prepared.paraphrases is None else prepared.paraphrases.facts.sha256
    directions = None if prepared.directed is None else prepared.directed.facts.sha256
    identity = plan_id(
        config,
        prepared.judged,
        prepared.known,
        models,
        plan,
        pool,
        corpus,
        shadows,
        fillers,
        lent,
        probes=probes,
        paraphrases=paraphrases,
        directions=directions,
        apart={one.kind: one.records for one in prepared.apart},
    )
    return Ready(config, prepared, models, plan, identity, shadows, fillers, lent, other_base)


# --- the run folder ---------------------------------------------------------------------------


def _name_of(start: Ready) -> str:
    """What the folder is named after: the model, or the train run that it is of."""
    return start.config.run_of or start.models[TARGET].target.name


def _begin(folder: RunFolder, start: Ready) -> dict[str, Any]:
    """Writes the header of the run; returns it, with this attempt as the last."""
    facts = {
        "data": _described(start.prepared),
        "models": {role: described(start.models, role) for role in start.models}
        | {name: dict(shadow.facts) for name, shadow in numbered(start.shadows)},
        "fingerprints": {role: model.target.fingerprint for role, model in start.models.items()}
        | {name: shadow.fingerprint for name, shadow in numbered(start.shadows)},
    }
    return begin(
        folder,
        start.config,
        scenario="finetune",
        plan=start.identity,
        facts=facts,
        dropped=start.prepared.dropped,
    )


def numbered(shadows: Sequence[Shadow]) -> list[tuple[str, Shadow]]:
    """Shadows by the names that run.json has for them."""
    return [(f"{SHADOW} {number}", shadow) for number, shadow in enumerate(shadows, start=1)]


def _described(prepared: Prepared) -> dict[str, Any]:
    given = {
        "probes": prepared.given,
        "paraphrases": prepared.paraphrases,
        "directions": prepared.directed,
    }
    return prepared.judged.describe() | {
        name: one.facts.model_dump(mode="json") for name, one in given.items() if one is not None
    }


# --- measure, score, judge --------------------------------------------------------------------


def _check_budget(start: Ready) -> None:
    """Refuses what endpoints would be asked beyond what they may be.

    Raises:
        BudgetError: with what would be enough.
    """
    if endpoint_of(start.models) is None:
        return
    sets = (start.prepared.judged, *(one.records for one in start.prepared.apart))
    asked = (
        prompts_of(start.plan.signals, records.records, start.models, shown=start.shown)
        for records in sets
    )
    with answers_so_far(start.config) as store:
        check_budget(start.models, asked, store)


def _measure(start: Ready, records: Records, store: Store, progress: Progress | None) -> Measured:
    return collect(
        start.plan.signals,
        records.records,
        start.models,
        store=store,
        shadows=start.shadows,
        shown=start.shown,
        batch_tokens=start.config.batch_tokens,
        progress=progress,
    )


def _finish(
    folder: RunFolder,
    start: Ready,
    about: dict[str, Any],
    preflight: tuple[Check, ...],
    measured: Measured,
    apart: Sequence[Measured],
    started: float,
) -> Results:
    config, judged, plan = start.config, start.prepared.judged, start.plan
    target = start.models[TARGET]
    observations, cost = measured
    folder.write_observations(observations, tokens=config.keep_tokens)
    lengths, truncated = measure_lengths(judged.records, target.encoder)
    subjects = Subjects.from_records(judged, lengths, reveal=config.reveal)
    judge = Judge(config, subjects, start.lent)
    verdicts = judge.judge(
        plan.attacks, plan.control, observations, control_model=plan.control_model
    )
    sets = tuple(
        _judged_apart(folder, start, one, seen, (subjects, verdicts.scored))
        for one, seen in zip(start.prepared.apart, apart, strict=True)
    )
    data = data_facts(config, start.prepared, target.encoder, lengths, truncated)
    probed = {TARGET: plan.attacks, REFERENCE: plan.control, CONTROL: plan.control_model}
    results = Results(
        run=run_facts(about, started),
        target=target.target.describe(),
        reference=_reference_facts(start),
        shadows=tuple(dict(shadow.facts) for shadow in start.shadows),
        access=target.target.access.word,
        data=data,
        threat_model=threat_model(config, target, shadows=len(start.shadows)),
        control_model=described(start.models, CONTROL) if CONTROL in start.models else None,
        control_note=plan.control_note,
        control_model_note=plan.control_model_note,
        skipped=plan.skipped,
        fillers=filler_facts(start.fillers),
        requests=cost.requests,
        apart=sets,
        limitations=LIMITATIONS,
        out_of_scope=OUT_OF_SCOPE,
        drift=drifted(judge, plan.attacks, observations, verdicts.scored.target),
        stability=stability(judge, plan.attacks, observations),
        layers=by_layer(judge, probed, observations),
        **concluded(judge, verdicts, data, preflight),
    )
    keep_sketch(folder, judged.records)
    write_results(folder, results, judge, verdicts, plan.attacks, observations, start.lent)
    complete(folder, about, [cost, *(of_set for _, of_set in apart)])
    return results


def _judged_apart(
    folder: RunFolder,
    start: Ready,
    one: ApartSet,
    measured: Measured,
    main: tuple[Subjects, Scored],
) -> Apart:
    """Judges a further set of non-members, and writes its scores."""
    config, plan, (observations, cost) = start.config, start.plan, measured
    judge = Judge(
        config, Subjects.from_records(one.records, None, reveal=config.reveal), start.lent
    )
    attacks = Repeated(plan.attacks, plan.control, plan.control_model)
    scored = judge.scored(
        plan.attacks, plan.control, observations, control_model=plan.control_model
    )
    folder.write_table(file_of(one.kind), judge.table(scored))
    return judged_apart(facts_of(one, cost.requests), judge, attacks, scored, main)


def _reference_facts(start: Ready) -> dict[str, str] | None:
    """What the results say of the reference."""
    if REFERENCE not in start.models:
        return None
    about = described(start.models, REFERENCE)
    if start.other_base:
        about["base"] = OTHER_BASE
    taught = who_taught(start.config.reference)
    if taught is not None or _asks_for_self_prompted(start.plan):
        about["self-prompted"] = taught or "no"
    return about


def _asks_for_self_prompted(plan: Plan) -> bool:
    """Whether an attack's paper takes a reference that is trained on the target's own text."""
    return any(s.of == REFERENCE and isinstance(s, RefilledLikelihoods) for s in plan.signals)


def threat_model(config: FinetuneAudit, model: Model, shadows: int = 0) -> ThreatModel:
    """Who attacks, with what: what these numbers are about."""
    knows: tuple[str, ...] = (
        "the record, word by word",
        "other records of the same source, known to be members or not",
    )
    if shadows:
        knows += (f"how the model was trained: {shadows} shadow models, trained alike",)
    return ThreatModel(
        access=model.target.access.word,
        knows=knows,
        release_context=config.release_context,
        taxonomy=TAXONOMY,
    )
