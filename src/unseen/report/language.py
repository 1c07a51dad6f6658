"""What a report says in words: one catalogue, so that every rendering says the same.

Nothing here is a number of its own: sentences are chosen by a result, and quote it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from unseen.report.summary import number, percent, percent_rate, rate

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from unseen.runs.results import (
        AttackResult,
        Check,
        DriftShape,
        DriftStep,
        Epsilon,
        Headline,
        OptimizationGap,
        Results,
        SharedFeature,
    )

Tone = Literal["found", "clear", "refused", "none"]

TITLES = {
    "finetune": "Membership audit of a fine-tuned model",
    "prompt": "Membership audit of a prompt",
    "scores": "Membership scores",
    "canary": "Canary audit of a model",
}

STATUS = {"pass": "passed", "warn": "warning", "fail": "failed", "skip": "not checked"}

VERDICTS = {
    "valid": "The numbers mean membership, as far as these checks can tell.",
    "caution": "The numbers may mean membership: read the reasons first.",
    "invalid": "The numbers do not mean membership, so no finding is reported.",
}

NO_CHECKS = (
    "No checks are recorded in this run. Compare the blind rows, which never saw the model, and "
    "the control rows: both must stay at chance, or the numbers measure how the files differ."
)

WITHHELD = (
    "These numbers measure something, but not membership. They are listed so that the fault can be "
    "found, and are no finding."
)

TABLE_OF_ATTACKS = (
    "Higher scores mean more likely a member, for every attack. Blind rows never saw the model, and "
    "control rows ask the reference model: both must stay at chance."
)

TABLE_WITH_CONTROL_MODEL = (
    "Control model rows ask a model of the same format that was trained on other records: they must "
    "stay at chance too."
)

POPULATION_FPR = (
    "The population FPR of a record is the share of all non-members that score at least as high. "
    "It is a property of the non-members as a whole, not the probability that this record was no "
    "member (arXiv:2605.25819)."
)

REDACTED = (
    "Records are named by their ids alone; their text is in no file of the run. records.parquet has "
    "every record with the scores of every attack."
)

KEPT = (
    "Records are named by their ids. The run was asked to keep their text (--reveal): "
    "records.parquet has it, beside the scores of every attack, so keep the folder as safe as the "
    "records."
)

RANKING_WITHHELD = (
    "Which records are exposed cannot be said: the scores rank records by something other than "
    "membership."
)

GROUPS_WITHHELD = "Groups are not compared: the scores measure something other than membership."

NO_RANKING = "No attack has scored a record."

NO_GROUPS = "No column was named to report by: --slice-by COLUMN, for example a source or a year."

GROUPS = (
    "Each group against all other records; p-values are two-sided and corrected for the number of "
    "groups (Holm). Groups that are too small are counted, not estimated."
)

NO_TELEMETRY = (
    "There is no telemetry. The audit asked the models named here, and nobody else; where a model or "
    "a data set was named by its hub name, the hub was asked for it."
)

NO_CONFORMITY = (
    "Where public catalogues speak of what was tested (no conformity with any of them is claimed or "
    "shown):"
)


KINDS_OF_NONMEMBERS = {
    "iid": "i.i.d. non-members",
    "counterfactual": "counterfactual non-members",
    "future": "non-members about what came later",
}

SAYS_OF_KIND = {
    "iid": "Held out from the members' own source: what separates them is membership, as far as the "
    "controls allow.",
    "counterfactual": "Answers that are not true: what separates them is truth as well as membership.",
    "future": "About what came later than the members: what separates them is novelty as well as "
    "membership.",
}

APART = (
    "The same members and attacks, against non-members that are in no other number of this report. "
    "Attacks that learn have learned from each set anew. The difference is to the AUC on the audit's "
    "own non-members; controls ask models that never saw the members."
)

SEPARATES = "this set also separates without membership"


def separates(names: Iterable[str]) -> str:
    """What is said of a set that a model tells apart which never saw the members."""
    return f"{SEPARATES[:1].upper()}{SEPARATES[1:]}: {', '.join(names)} on a model that never saw the members."


GAINS = (
    "What attacks that use weights, or learn, add to the likelihood of the answers (loss, min_k): the "
    "difference of both AUCs on the same records, with its paired interval. No gain is claimed unless "
    "the interval excludes 0."
)

KINDS = {
    "attack": "attack",
    "blind": "blind",
    "reference": "control",
    "control": "control model",
    "empty": "empty prompt",
}
"""What a row is called before its attack: what kind it is, and whom a control asks."""


def kind(row: AttackResult) -> str:
    """What kind of row it is, as tables call it."""
    return KINDS[row.kind if row.kind != "control" else row.model or "reference"]


def feature(name: str, results: Results) -> str:
    """What a feature of records is called."""
    if name == "length" and results.prompt is not None:
        return "tokens of the prompt"
    return _FEATURES.get(name, name)


@dataclass(frozen=True)
class Outcome:
    """The first thing that a reader sees.

    Attributes:
        tone: what kind of outcome it is.
        label: the same in a word or three.
        sentence: the finding, or why there is none. Never a number alone.
        reasons: what to read before the sentence is believed.
    """

    tone: Tone
    label: str
    sentence: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Advice:
    """Something that can be changed, and where it is shown to help."""

    lead: str
    text: str
    paper: str


def headline(results: Results) -> Headline | None:
    """The finding, where there is one that may be shown."""
    return None if results.invalid else results.headline


def outcome(results: Results) -> Outcome:
    """The title of the report: a finding, or a refusal, in a sentence."""
    validity = results.validity
    reasons = () if validity is None else validity.reasons
    if results.invalid:
        return Outcome("refused", "Refused: the evidence is invalid", VERDICTS["invalid"], reasons)
    found = headline(results)
    if found is None:
        why = sentence(results.headline_note or "this data allows none")
        return Outcome("none", "No finding", why, reasons)
    caution = ", with caution" if validity is not None and validity.verdict == "caution" else ""
    if found.found:
        return Outcome("found", f"Leakage found{caution}", found.sentence, reasons)
    return Outcome("clear", f"No leakage found{caution}", found.sentence, reasons)


def sentence(text: str, names: Container[str] = ()) -> str:
    """Text that begins and ends like a sentence; names stay as they are typed.

    >>> sentence("too few records"), sentence("loss is high", {"loss"})
    ('Too few records.', 'loss is high.')
    """
    text = text.strip()
    first = re.match(r"[a-z]+(-[a-z]+)*(?=[ ,:]|$)", text)
    if first is not None and first[0] not in names:
        text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def epsilon(found: Epsilon, *, brief: bool = False) -> tuple[str, str]:
    """A bound on epsilon, or a number that is none: the value, and what it means.

    Args:
        found: the bound.
        brief: leave out how it was computed.
    """
    how = (
        f"{100 * found.confidence:g} % confidence, δ = {found.delta:g}, "
        f"{found.correct} of {found.guesses} guesses right"
    )
    how = how if brief else f"{how}; {found.method}"
    if found.kind == "bound":
        # Rounded down: a bound that is rounded up is none.
        return f"ε ≥ {math.floor(round(100 * found.lower, 6)) / 100:.2f}", f"lower bound, {how}"
    return f"{found.lower:.2f}", f"indicative, not a bound: {how}"


def measured(check: Check) -> str:
    """What a check measured, with its interval; empty where it measured no number."""
    if check.value is None:
        return ""
    value = f"{check.value:.3g}"
    return value if check.ci is None else f"{value} [{check.ci[0]:.3g}, {check.ci[1]:.3g}]"


def verdict_word(results: Results) -> str:
    """The verdict in a word."""
    return "not assessed" if results.validity is None else results.validity.verdict


def tally(checks: Iterable[Check]) -> str:
    """How the checks went, counted.

    >>> tally([])
    'no checks recorded'
    """
    statuses = [check.status for check in checks]
    counted = [f"{statuses.count(s)} {word}" for s, word in STATUS.items() if s in statuses]
    return " · ".join(counted) or "no checks recorded"


def how_found(results: Results) -> str | None:
    """How the finding was made; None where there is none."""
    found = headline(results)
    if found is None:
        return None
    return (
        f"Attack and threshold were chosen on other records than they were judged on, fold by fold "
        f"(chosen: {', '.join(found.chosen)}). At a threshold set for a false-positive rate of "
        f"{percent_rate(found.fpr)} on those other records, the judged members were flagged at "
        f"{rate(found.tpr)} and the judged non-members at {rate(found.realised_fpr)}. Rows of the "
        "table are over all records, with thresholds found on those same records: picking the best "
        "of them afterwards would flatter the attack."
    )


# --- which records ------------------------------------------------------------------------------

_FEATURES = {
    "length": "scored tokens",
    "repetition": "repetition within the record",
    "copies": "records with the same text",
    "rare_words": "rare words",
}


def top_of(results: Results, n_members: int | None = None) -> str | None:
    """How far the highest-ranking members stand out; None where it was not measured."""
    exposed = results.exposed
    if exposed is None or results.invalid:
        return None
    of = "" if n_members is None else f" of {n_members}"
    return (
        f"{exposed.n_above_all}{of} members score above every non-member "
        f"(attack: {exposed.attack})."
    )


def shared(one: SharedFeature, results: Results) -> tuple[str, str, str, str, str]:
    """A row: what the most exposed members have more or less of."""
    return (
        feature(one.name, results),
        f"{one.exposed:.3g}",
        f"{one.others:.3g}",
        f"{one.auc:.2f}",
        p_value(one.p_holm),
    )


SHARED_HEADER = ("feature", "most exposed (median)", "other members (median)", "AUC", "p (Holm)")


GAP = (
    "Measured with the weights: one step of the optimizer on batches that hold the records, undone "
    "afterwards. Who has learned a record has little left to gain from it."
)
GAP_AGREEMENT = (
    "How far each attack orders the records as the gain of that step does: the rank correlation of "
    "its score with minus the gain, members and non-members together."
)


def gap(found: OptimizationGap) -> str:
    """Whether members have less left to learn, in a sentence."""
    low, high = found.difference.ci
    if high < 0:
        return "Members have less left to learn than non-members."
    if low > 0:
        return "Members have more left to learn than non-members: no sign of memorisation."
    return "Members and non-members have about as much left to learn."


STEP = (
    "Measured with the weights: on each record by itself, one step of gradient ascent on the loss L of its "
    "answer; h is the state that foretells it, h' and L' are what they are afterwards. Medians, and in "
    "brackets the middle half of the records."
)
STEP_HEADER = (
    "attack", "records", "of them literally", "|h' − h| / |h|", "cosine of h and h'", "L' − L, nats",
    "of members", "of non-members", "ρ of L and |h' − h|",
)  # fmt: skip
FEATURES_OF_A_STEP = (
    "The classifier of the attack with some of its features left out, learnt anew on the same folds each "
    "time, and with few of them alone. A feature says something that the others do not where the "
    "difference of leaving it out is surely below 0."
)
PROTOCOL = (
    "As the paper judges (section 4.3): seven tenths of the records to learn from, one to choose the penalty, "
    "two to judge, here over {n} random splits. Splits overlap: the standard deviation is that of drawing a "
    "split, and no confidence interval."
)
SHAPES = (
    "Figure 3 of the paper: what the step changes, as means of both sides after min-max normalisation over "
    "all records (0: the smallest change, 1: the largest)."
)
STABILITY = (
    "Table 3 of the paper: each record is asked for in other words too, the answer being the same, and each "
    "time a step of its own is taken. Δα = (h' − h) · v. A drift that belongs to the fact is the same however "
    "it is asked for: little spread beside its size, and an intraclass correlation (the share of the "
    "variance that lies between records) near 1."
)
LAYERS = (
    "For each layer a linear classifier of its hidden states, averaged over the tokens of a record, learnt "
    "from other records on the folds of the attack (LUMIA). Layer 0 is the mean of the tokens' embeddings: "
    "what words a record has, and no memory. A layer shows memory where it tells the sides apart better than "
    "layer 0, than the blind baselines, and than the same layer of a model that never saw the members. The "
    "best of many layers is best by chance too."
)


def layer(number: int, last: int) -> str:
    """What a layer is called."""
    names = {0: " (embeddings)", last: " (after the final norm)"}
    return f"{number}{names.get(number, '')}"


DRIFTS = {
    "loss": "loss, L' − L",
    "logit": "logit, z' − z",
    "projection": "projection, (h' − h) · v",
    "state": "state, |h' − h|",
}
"""The drifts of Figure 3."""


def step(found: DriftStep) -> str:
    """How far a step goes, in a sentence."""
    moved = (
        f"The step of {found.attack} moves the median state by {percent(found.movement.all.median)} of "
        f"its length (cosine {found.cosine.all.median:.2f})"
    )
    if found.small:
        return f"{moved}."
    how = {
        "interpolation": "interpolated between the steps that were taken",
        "scaling": "in proportion to the nearest step that was taken",
    }
    offer = (
        ""
        if found.offered is None or found.offered_by is None
        else f" {found.offered} would move it by about 5 % ({how[found.offered_by]})."
    )
    return (
        f"{moved}: it is not small, and what is compared is another model rather than this one and its "
        f"neighbour.{offer}"
    )


def steps_in_lines(results: Results) -> list[str]:
    """What a terminal says of steps: how far they go, and what the paper's own way of judging gives."""
    found = results.drift
    if found is None:
        return []
    lines = [step(one) for one in found.steps if one.attack == found.attack and one.eta]
    rows = () if found.protocol is None else found.protocol.rows
    if rows and found.protocol is not None:
        said = ", ".join(f"{row.name} {row.auc.mean:.3f} ± {row.auc.sd:.3f}" for row in rows)
        lines.append(
            f"{found.attack} on {found.protocol.n_splits} random splits, as the paper judges (AUC, mean ± "
            f"standard deviation, no interval): {said}"
        )
    return lines


def floor(found: float) -> str:
    """What is no drift, in a sentence."""
    return (
        f"A step of length 0 moves the median state by {found:.2g} of its length: what is not far above "
        "that is no drift."
    )


def floor_tried(check: Check) -> str:
    """What a step of length 0 was found to do before the audit, in a sentence."""
    return (
        "A step of length 0 was tried on one record before the audit, beside the literal step: "
        f"{STATUS[check.status]} ({check.limit}). {sentence(check.detail)} g_drift[eta=0] beside the attack "
        "measures this floor on every record."
    )


def p_value(p: float | None) -> str:
    """A p-value, with as many digits as mean something.

    >>> p_value(0.0002), p_value(0.04), p_value(None)
    ('< 0.001', '0.040', '–')
    """
    if p is None:
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


# --- what it means ------------------------------------------------------------------------------

COMPARE = "unseen compare RUN_BEFORE RUN_AFTER"


def for_engineers(results: Results) -> tuple[str, tuple[Advice, ...]]:
    """What to change, and how to see whether it helped."""
    if results.invalid:
        return (
            "First mend the evidence: what to do stands beside each failed check. Until then, no "
            "change of the model can be judged by these numbers.",
            (),
        )
    found = headline(results)
    if found is None or not found.found:
        return (
            "Nothing here calls for a change. Audit again after each change of data, model or "
            "training: the result holds for this model alone.",
            (),
        )
    repeated = results.data.repeated[0] if results.data is not None else 0
    if results.run.scenario == "canary":
        here = "Canaries are trained on once; a record that is repeated is worse off than they are."
    elif repeated:
        here = f"{repeated} judged members occur more than once."
    else:
        here = "No judged member occurs more than once here; near-duplicates may."
    advice = (
        Advice(
            "Remove duplicates.",
            f"A record that is seen more often is remembered more. {here}",
            "Kandpal et al. 2022, arXiv:2202.06539",
        ),
        Advice(
            "Train for fewer epochs.",
            "Stop when the loss on held-out records no longer falls: what is learned after that mostly "
            "tells training records from others.",
            "Yeom et al. 2018, arXiv:1709.01604",
        ),
        Advice(
            "Change less of the model.",
            "Lower the learning rate or the rank of the adapter, or train an adapter instead of all "
            "weights.",
            "Mireshghallah et al. 2022, arXiv:2205.12506",
        ),
        Advice(
            "Train with differential privacy.",
            "DP-SGD is the one change that bounds every attack, also those that nobody has thought "
            "of yet; it costs utility.",
            "Abadi et al. 2016, arXiv:1607.00133",
        ),
        _restriction(results.access),
    )
    return "In order of effort; make one change at a time and measure its effect:", advice


def _restriction(access: str) -> Advice:
    gives = f"these attacks had {access} access" if access else "these attacks used scores"
    return Advice(
        "Give away less.",
        f"An interface without log-probabilities takes attacks of this kind away ({gives}), but the "
        "model still knows the records: attacks that see answers alone remain.",
        "Choquette-Choo et al. 2021, arXiv:2007.14321",
    )


CONTEXTS = {
    "unknown": "The release context was not stated (--release-context). Who can ask the model, and "
    "for what, decides who the attacker can be.",
    "internal": "The model is used internally: the attacker is somebody who can already ask it.",
    "public-api": "The model is offered to the public: the attacker can be anybody.",
    "open-weights": "The weights are given away: the attacker can be anybody, has every access, and "
    "the release cannot be taken back.",
}


def for_privacy_officers(results: Results) -> tuple[str, ...]:
    """What an attacker learns, who that is, and what was not tested."""
    found = headline(results)
    model = results.threat_model
    lines = []
    if results.invalid:
        lines.append(
            "This run is no evidence, neither that the model leaks nor that it does not. It should "
            "not be filed as a test result."
        )
    elif found is None:
        lines.append("This run decides nothing: the data allows no finding, in either direction.")
    elif found.found:
        lines.append(
            "Somebody who holds a record and can ask the model learns more than by chance whether "
            f"the record was in the training data: {percent(found.tpr.value)} of the training "
            f"records are recognised ({interval_of(found)}), and {percent(found.realised_fpr.value)} "
            "of other records are wrongly taken for one. That somebody's record was in the data "
            "can itself be personal information."
        )
    else:
        lines.append(
            "With these attacks, somebody who holds a record cannot reliably tell whether it was in "
            f"the training data: {percent(found.tpr.value)} of the training records are flagged "
            f"({interval_of(found)}), and {percent(found.realised_fpr.value)} of other records. This "
            "does not show that no attack can."
        )
    if results.run.scenario == "canary":
        lines.append(
            "The records are canaries, made at random for this test: they stand for the records "
            "that are easiest to recognise, and are nobody's personal data."
        )
    if model is not None:
        lines.append(CONTEXTS[model.release_context])
        if model.release_context == "open-weights" and model.access != "weights":
            lines.append(
                f"Attackers of open weights can do more than was tested here ({model.access} access)."
            )
    return tuple(lines)


def interval_of(found: Headline) -> str:
    """The interval of the finding in words."""
    low, high = (percent(end) for end in found.tpr.ci)
    return f"{100 * found.tpr.confidence:g} % interval {low} to {high}"


def for_researchers(results: Results, config: dict[str, object]) -> tuple[str, ...]:
    """The protocol, in full sentences."""
    lines = []
    if results.data is not None and results.prompt is None:
        members, nonmembers = results.data.members, results.data.nonmembers
        aside = results.data.set_aside
        lines.append(
            f"{members.n_judged} of {members.n_read} members and {nonmembers.n_judged} of "
            f"{nonmembers.n_read} non-members were judged; {aside[0]} + {aside[1]} were set aside "
            "for attacks that need known records, and are not judged."
        )
    folds = config.get("folds")
    if folds:
        lines.append(
            f"Seed {results.run.seed}; {folds} stratified folds; {config.get('bootstrap')} bootstrap "
            "draws; attacks that learn are cross-fitted, so that no record is scored by a model "
            "that has seen it."
        )
    else:
        lines.append(f"Seed {results.run.seed}.")
    rows = [*results.attacks, *results.control]
    methods = {a.auc.method for a in rows if a.auc}
    methods |= {at.tpr.method for a in rows for at in a.tpr_at_fpr if at.tpr}
    if methods:
        levels = sorted({f"{100 * a.auc.confidence:g} %" for a in rows if a.auc})
        lines.append(
            f"Estimators of the table: {'; '.join(sorted(methods))}. Intervals cover "
            f"{' / '.join(levels)}, each by itself: they are not corrected for the number of attacks."
        )
    found = headline(results)
    if found is not None:
        lines.append(
            f"Estimator of the finding: {found.tpr.method}; {found.tpr.n[0]} members and "
            f"{found.realised_fpr.n[1]} non-members entered."
        )
    return tuple(lines)


# --- literature ---------------------------------------------------------------------------------

_PAPER = re.compile(r"(?P<who>.*?)\s*(?P<year>\d{4})\b.*?arXiv:(?P<arxiv>\d{4}\.\d{4,5})")

_PAPER_TITLES = {
    "1709.01604": "Privacy Risk in Machine Learning: Analyzing the Connection to Overfitting",
    "2012.07805": "Extracting Training Data from Large Language Models",
    "2203.03929": "Quantifying Privacy Risks of Masked Language Models Using Membership Inference "
    "Attacks",
    "2310.16789": "Detecting Pretraining Data from Large Language Models",
    "2404.02936": "Min-K%++: Improved Baseline for Detecting Pre-Training Data from Large Language "
    "Models",
    "2406.15968": "ReCaLL: Membership Inference via Relative Conditional Log-Likelihoods",
    "2406.16201": "Blind Baselines Beat Membership Inference Attacks for Foundation Models",
    "2406.17975": "SoK: Membership Inference Attacks on LLMs are Rushing Nowhere (and How to Fix It)",
    "2409.03363": "Con-ReCall: Detecting Pre-training Data in LLMs via Contrastive Decoding",
    "2406.06443": "LLM Dataset Inference: Did you train on my dataset?",
    "2601.02751": "Window-based Membership Inference Attacks Against Fine-tuned Large Language "
    "Models",
    "2601.12104": "Powerful Training-Free Membership Inference Against Autoregressive Language "
    "Models",
    "2112.03570": "Membership Inference Attacks From First Principles",
    "2305.18462": "Membership Inference Attacks against Language Models via Neighbourhood "
    "Comparison",
    "2311.06062": "Membership Inference Attacks against Fine-tuned Large Language "
    "Models via Self-prompt Calibration",
    "2312.03262": "Low-Cost High-Power Membership Inference Attacks",
    "2404.11262": "Sampling-based Pseudo-Likelihood for Membership Inference Attacks",
    "2405.11930": "Data Contamination Calibration for Black-box LLMs",
    "2409.14781": "Pretraining Data Detection for Large Language Models: A Divergence-based "
    "Calibration Method",
    "2502.18943": "Towards Label-Only Membership Inference Attack against Pre-trained Large "
    "Language Models",
    "2409.01380": "Membership Inference Attacks Against In-Context Learning",
    "2512.16292": "In-Context Probing for Membership Inference in Fine-Tuned Language Models",
}


def bibtex(attacks: Iterable[AttackResult]) -> str:
    """An entry for each paper of these attacks; papers without an arXiv number are left out."""
    entries: dict[str, str] = {}
    for paper in dict.fromkeys(attack.paper for attack in attacks):
        match = _PAPER.search(paper)
        if match is None or match["arxiv"] in entries:
            continue
        first = match["who"].removesuffix("et al.").strip(" ,") or "Unknown"
        others = " and others" if "et al." in match["who"] else ""
        title = _PAPER_TITLES.get(match["arxiv"], f"arXiv:{match['arxiv']}")
        key = re.sub(r"\W", "", first.lower()) + match["year"] + match["arxiv"].replace(".", "")
        fields = {
            "title": "{" + title.replace("%", r"\%") + "}",
            "author": _braced(first) + others,
            "year": match["year"],
            "eprint": match["arxiv"],
            "archivePrefix": "arXiv",
            "url": f"https://arxiv.org/abs/{match['arxiv']}",
        }
        lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
        entries[match["arxiv"]] = f"@misc{{{key},\n{lines}\n}}"
    return "\n\n".join(entries[arxiv] for arxiv in sorted(entries))


def _braced(name: str) -> str:
    """A name that BibTeX takes as one, whatever is in it."""
    return "{" + re.sub(r"[{}\\]", "", name) + "}" if re.search(r"\W", name) else name


# --- figures in words ---------------------------------------------------------------------------


def roc_in_words(rows: Iterable[AttackResult]) -> str:
    """The ROC figure for whoever does not see it."""
    parts = [
        f"{attack.name}, {kind(attack)}: AUC {number(attack.auc)}"
        for attack in rows
        if attack.auc is not None
    ]
    return (
        "ROC curves, both axes logarithmic: share of members flagged against share of non-members "
        f"flagged. {'; '.join(parts)}. Chance is the diagonal."
    )


def shapes_in_words(shapes: Iterable[DriftShape]) -> str:
    """The four drifts of a step for whoever does not see them."""
    parts = [
        f"{DRIFTS[shape.name]}: mean of members {number(shape.members)}, of non-members "
        f"{number(shape.nonmembers)}"
        for shape in shapes
    ]
    return f"Cumulative distributions of what the step changes, min-max normalised. {'; '.join(parts)}."


def histogram_in_words(attack: str, members: tuple[float, float, float],
                       nonmembers: tuple[float, float, float]) -> str:  # fmt: skip
    """The histogram for whoever does not see it; quartiles of both sides."""
    sides = (("members", members), ("non-members", nonmembers))
    text = "; ".join(
        f"{name}: median {median:.3g}, middle half from {low:.3g} to {high:.3g}"
        for name, (low, median, high) in sides
    )
    return f"Histogram of the scores of {attack}. {text}."
