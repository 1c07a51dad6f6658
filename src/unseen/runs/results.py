"""The result of an audit: the schema of results.json. Additive within 1.x.

Everything that a report says is rendered from this and from records.parquet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from unseen.types import Estimate

if TYPE_CHECKING:
    from unseen.data.records import Source

SCHEMA_VERSION = "1.0"

Resolution = Literal["reliable", "indicative", "unresolvable"]
Status = Literal["pass", "warn", "fail", "skip"]
Verdict = Literal["valid", "caution", "invalid"]

IN_A_LINE: dict[Status, str] = {"pass": "ok", "warn": "warn", "fail": "FAIL", "skip": "–"}
"""What a terminal says of a check."""


class Part(BaseModel):
    """Shared by all parts: frozen, and nothing that the schema does not name."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Number(Part):
    """A number with its interval and its counts."""

    value: float
    ci: tuple[float, float] = Field(description="lower and upper end of the interval")
    confidence: float = Field(description="coverage that the interval aims at")
    method: str = Field(description="the estimator, by name")
    n: tuple[int, int] = Field(description="members and non-members that entered")

    @classmethod
    def of(cls, estimate: Estimate) -> Number:
        """An estimate as results.json holds it."""
        return cls(
            value=estimate.value,
            ci=(estimate.low, estimate.high),
            confidence=estimate.confidence,
            method=estimate.method,
            n=(estimate.n_members, estimate.n_nonmembers),
        )


class TprAtFpr(Part):
    """True-positive rate at one false-positive rate."""

    fpr: float
    tpr: Number | None = Field(None, description="null where this data cannot resolve the rate")
    threshold: float | None = Field(
        None, description="score from which a record is flagged; null where none is"
    )
    realised_fpr: float | None = Field(
        None, description="share of these non-members at or above the threshold"
    )
    expected_false_positives: float
    resolution: Resolution
    needs_nonmembers: int | None = Field(
        None, description="non-members that the next better resolution takes"
    )


class Roc(Part):
    """Points of the ROC curve."""

    fpr: tuple[float, ...]
    tpr: tuple[float, ...]


class AtThreshold(Part):
    """How far an attack gets at a threshold that was fixed before anything was measured."""

    threshold: float = Field(description="flagged iff score >= threshold")
    advantage: Number = Field(description="2 (balanced accuracy - 1/2)")


class AttackResult(Part):
    """One attack, or one baseline, on one model."""

    name: str = Field(description="as --attacks reads it back")
    kind: Literal["attack", "blind", "control"] = Field(
        description="blind: asks no model; control: the attack on another model than the target"
    )
    model: Literal["reference", "control"] | None = Field(
        None,
        description="the model of a control: the reference (null is read so too), or the control model",
    )
    paper: str = ""
    access: str = Field("", description="what it needs of the model")
    n: tuple[int, int] = Field(description="members and non-members that were scored")
    unscored: dict[str, int] = Field(
        default_factory=dict, description="why records have no score, and how many"
    )
    note: str | None = Field(None, description="why there are no estimates")
    auc: Number | None = None
    tpr_at_fpr: tuple[TprAtFpr, ...] = ()
    advantage: Number | None = Field(
        None, description="2 (balanced accuracy - 1/2) at a threshold chosen on other records"
    )
    by_paper: AtThreshold | None = Field(
        None, description="at the threshold that the attack's paper names, where it names one"
    )
    inverted: bool = Field(
        default=False, description="the AUC interval lies below 1/2: members score lower"
    )
    roc: Roc | None = None


class Headline(Part):
    """The finding: attack and threshold were chosen on other records than they are judged on."""

    metric: str = Field(description="for example tpr@fpr=0.05")
    fpr: float
    chosen: tuple[str, ...] = Field(description="the attack chosen for each fold")
    tpr: Number
    realised_fpr: Number = Field(description="false-positive rate of the very same decisions")
    found: bool = Field(description="whether the members stand out from the false positives")
    sentence: str


class Check(Part):
    """One reason to trust the numbers, or not to."""

    id: str = Field(description="for example blind_baseline; stable over versions")
    title: str
    status: Status = Field(description="skip: could not be checked, and `detail` says why")
    value: float | None = None
    ci: tuple[float, float] | None = None
    limit: str = Field("", description="what must hold")
    detail: str = Field(description="what was found, and what it means")
    fix: str | None = Field(None, description="what to do where it does not hold")


class Validity(Part):
    """Whether the numbers mean membership."""

    verdict: Verdict = Field(
        description="invalid: there is no headline; caution: read the reasons first"
    )
    reasons: tuple[str, ...] = Field((), description="of anything but valid")


class ThreatModel(Part):
    """Who attacks, with what."""

    access: str = Field(description="what the attacker gets of the model")
    knows: tuple[str, ...] = Field(description="what the attacker has beside the model")
    release_context: Literal["unknown", "internal", "public-api", "open-weights"] = "unknown"
    taxonomy: dict[str, str] = Field(
        default_factory=dict, description="ids in public catalogues; no claim of conformity"
    )


class RenderedPart(Part):
    """Tokens in a row of the first record, as the model reads them."""

    kind: Literal["special", "template", "content"]
    n_tokens: int
    scored: bool = Field(description="whether these tokens count for the record")
    text: str | None = Field(None, description="null for content: records are not shown")
    ids: tuple[int, ...] | None = None


class SharedFeature(Part):
    """Something in which the most exposed members differ from the other members, or do not."""

    name: str = Field(description="length, repetition, copies or rare_words")
    exposed: float = Field(description="median of the most exposed members")
    others: float = Field(description="median of the other members")
    auc: float = Field(description="chance that an exposed member has more of it than another")
    p_holm: float


class Exposed(Part):
    """The members that the attack of the headline ranks highest."""

    attack: str
    n_above_all: int = Field(description="members that score above every non-member")
    n_compared: int = Field(description="most exposed members that features are compared for")
    features: tuple[SharedFeature, ...] = ()


class Agreement(Part):
    """How far an attack orders the records as the optimization gap does."""

    attack: str
    spearman: Number = Field(description="rank correlation of its score with minus the gain")


class Gain(Part):
    """What an attack on weights, or one that learns, adds to what the answers say by themselves."""

    attack: str
    baseline: str = Field(description="loss or min_k: the likelihood of the answers alone")
    difference: Number | None = Field(
        None, description="AUC of the attack minus AUC of the baseline, on the same records, paired"
    )
    note: str | None = Field(None, description="why there is no estimate")


class OptimizationGap(Part):
    """What one real optimizer step on a record still gains, in nats per token (ICP-MIA, section IV)."""

    attack: str = Field(description="as --attacks reads it back")
    members: Number = Field(description="mean gain of the members")
    nonmembers: Number = Field(description="mean gain of the non-members")
    difference: Number = Field(description="members minus non-members")
    agreement: tuple[Agreement, ...] = ()


class Middle(Part):
    """Where the middle half of some records lies."""

    median: float
    half: tuple[float, float] = Field(description="first and third quartile")
    n: int


class Sides(Part):
    """A number of each record, of all of them and of each side: no estimate, what was measured."""

    all: Middle
    members: Middle
    nonmembers: Middle


class DriftStep(Part):
    """One step of gradient ascent on each record alone, and how long it was (G-Drift)."""

    attack: str = Field(description="the first that takes it, as --attacks reads it back")
    eta: float = Field(description="length of the step, in units of the gradient")
    tokens: str = Field(description="whose loss rises: the first of the answer, or all")
    state: str = Field(description="the last state h is read after the final norm, or before it")
    weights: str = Field(description="what takes the step")
    n: tuple[int, int] = Field(description="members and non-members with one")
    n_literal: int = Field(
        description="of them stepped on by changing the weights (Algorithm 1); the others in batches"
    )
    movement: Sides = Field(description="|h' - h| / |h|")
    cosine: Sides = Field(description="of the angle between h and h'")
    ascent: Sides = Field(description="L' - L, in nats")
    rank: Number | None = Field(
        description="Spearman's correlation of L and |h' - h|; null where one is the same for all"
    )
    small: bool = Field(description="whether the state is still about where it was")
    offered: str | None = Field(
        None, description="the attack with a step that would be small; null where this one is"
    )
    offered_eta: float | None = None
    offered_by: Literal["interpolation", "scaling"] | None = Field(
        None,
        description="interpolation: between steps that were taken, in logarithms; scaling: in proportion",
    )


class FeatureSet(Part):
    """The classifier of G-Drift with some of its features (Table 2)."""

    name: str
    without: str = Field(description="as the attack's field reads it; empty: nothing is left out")
    auc: Number | None = None
    difference: Number | None = Field(
        None, description="AUC minus that of all features, paired; null of all features themselves"
    )
    note: str | None = Field(None, description="why there is no AUC")


class OnSplits(Part):
    """AUC over random splits of the same records: no interval, for the splits overlap."""

    mean: float
    sd: float = Field(description="over the splits, not over records")


class SplitRow(Part):
    """A score on the judged parts of the splits."""

    name: str
    auc: OnSplits
    difference: OnSplits | None = Field(
        None, description="the classifier's AUC minus this one, split by split; null of itself"
    )


class SplitProtocol(Part):
    """The classifier judged as the paper does (section 4.3)."""

    n_splits: int
    n: tuple[int, int] = Field(description="members and non-members that are split")
    rows: tuple[SplitRow, ...] = Field(
        (), description="the classifier, then scores without training"
    )
    note: str | None = Field(None, description="why there are no rows")


class DriftShape(Part):
    """One of the drifts of Figure 3, min-max normalised over all records."""

    name: Literal["loss", "logit", "projection", "state"]
    low: float = Field(description="what 0 stands for, in units of the drift")
    high: float = Field(description="what 1 stands for")
    quantiles: tuple[tuple[float, ...], tuple[float, ...]] = Field(
        description="of members and non-members: 21 of each, from the smallest to the largest"
    )
    members: Number = Field(description="mean")
    nonmembers: Number = Field(description="mean")
    difference: Number = Field(description="of the means, members minus non-members")


class DriftReport(Part):
    """What one step of gradient ascent on each record shows (G-Drift 2026, arXiv:2604.00419)."""

    steps: tuple[DriftStep, ...] = Field(description="each that was taken")
    floor: float | None = Field(
        None, description="median |h' - h| / |h| of a step of length 0: what is no drift"
    )
    attack: str = Field(description="that all else is of")
    features: tuple[FeatureSet, ...] = Field((), description="Table 2")
    protocol: SplitProtocol | None = None
    shapes: tuple[DriftShape, ...] = Field((), description="Figure 3")


class Steadiness(Part):
    """How far the drift of a projection is the same under paraphrase."""

    size: Number = Field(description="mean of |Δα|, Δα = (h' - h) . v")
    spread: Number = Field(
        description="mean over records of the standard deviation of Δα within a record"
    )
    agreement: Number | None = Field(
        description="intraclass correlation ICC(1) of Δα; null where nothing varies"
    )


class DriftStability(Part):
    """A step on each record and on paraphrases of its prompt, the answer being the same (Table 3)."""

    attack: str
    n: tuple[int, int] = Field(description="members and non-members with a paraphrase")
    n_paraphrases: int = Field(description="of all of them")
    unscored: dict[str, int] = Field(default_factory=dict, description="records without, by reason")
    members: Steadiness | None = None
    nonmembers: Steadiness | None = None
    difference: Steadiness | None = Field(None, description="members minus non-members")
    note: str | None = Field(None, description="why there are no numbers")


class LayerRow(Part):
    """One layer of the model."""

    layer: int = Field(description="0 is the embedding's output, the last one the final norm's")
    auc: Number = Field(description="of a linear probe of its states, learnt from other records")
    reference: Number | None = Field(None, description="the same on the reference")
    control: Number | None = Field(None, description="the same on the control model")


class LayerReport(Part):
    """How well each layer's hidden states tell the sides apart (LUMIA, arXiv:2411.19876)."""

    attack: str
    tokens: str = Field(description="whose states are averaged: all, or those of the response")
    rows: tuple[LayerRow, ...] = ()
    note: str | None = Field(None, description="why there are no rows")


class Epsilon(Part):
    """A lower bound on epsilon, or a number that is none."""

    kind: Literal["bound", "indicative"] = Field(
        description="bound: inclusion was decided by recorded fair coins"
    )
    lower: float
    delta: float
    confidence: float
    method: str
    guesses: int = Field(description="records that were guessed in or out")
    correct: int


class Slice(Part):
    """One group of records."""

    by: str
    value: str
    attack: str
    n: tuple[int, int]
    note: str | None = None
    auc: Number | None = None
    tpr_at_fpr: tuple[TprAtFpr, ...] = ()
    p: float | None = Field(None, description="against the other records, two-sided")
    p_holm: float | None = Field(None, description="the same, corrected for all groups (Holm)")


class Side(Part):
    """Records of one side."""

    path: str
    sha256: str
    n_read: int
    n_judged: int

    @classmethod
    def of(cls, source: Source, n_judged: int) -> Side:
        """Where records come from, and how many of them are judged."""
        return cls(path=source.path, sha256=source.sha256, n_read=source.n, n_judged=n_judged)


class ReferencePool(Part):
    """Demonstrations of others that attacks show to the model, without their text."""

    path: str
    sha256: str = Field(description="of the records, not of the file's bytes")
    n: int
    encoders: tuple[str, ...] = Field(
        description="how their prompts are compared: tfidf, or a sentence encoder"
    )
    n_audited: int = Field(
        0, description="how many of them are audited records, or nearly so: not shown to themselves"
    )


class CorpusFacts(Part):
    """Texts that attacks count tokens in, without the texts."""

    path: str
    sha256: str = Field(description="of the texts that are counted, not of the file's bytes")
    n: int = Field(description="texts that are counted")
    n_audited: int = Field(
        0, description="texts of the file that are audited records, or nearly so: not counted"
    )


class FillerFacts(Part):
    """A model that puts other words into texts, to make neighbours of records."""

    name: str = Field(description="as the attack's field filler names it")
    about: str = Field(description="what it is")
    fingerprint: str


class GivenProbes(Part):
    """Responses that the user gives to probe with, without their text."""

    path: str
    sha256: str = Field(description="of the probes, not of the file's bytes")
    n_records: int = Field(description="audited records that have any")
    n_probes: int
    n_copies: int = Field(description="of them the record's own response: never shown")


class GivenParaphrases(Part):
    """Prompts of the records in other words, given by the user, without their text."""

    path: str
    sha256: str = Field(description="of the paraphrases, not of the file's bytes")
    n_records: int = Field(description="audited records that have any")
    n_paraphrases: int
    n_copies: int = Field(description="of them the record's own prompt: left out")


class GivenDirections(Part):
    """Directions that the user gives to project states onto."""

    path: str
    sha256: str = Field(description="of the directions, not of the file's bytes")
    n: int
    width: int = Field(description="numbers of each: of a state of the model")


class DataFacts(Part):
    """The records, without their text."""

    members: Side
    nonmembers: Side
    format: str
    loss_on: str
    template_sha256: str
    dropped: dict[str, int] = Field(
        default_factory=dict, description="records left out, by reason (ids: data/dropped.csv)"
    )
    set_aside: tuple[int, int] = Field(
        (0, 0), description="members and non-members known to attacks, not judged"
    )
    reference_pool: ReferencePool | None = Field(
        None, description="null where no attack shows demonstrations of others"
    )
    corpus: CorpusFacts | None = Field(None, description="null where no attack counts tokens")
    probes: GivenProbes | None = Field(None, description="null where the user gives none")
    paraphrases: GivenParaphrases | None = Field(None, description="null where the user gives none")
    directions: GivenDirections | None = Field(None, description="null where the user gives none")
    truncated: int = Field(0, description="judged records that were cut to fit the context")
    repeated: tuple[int, int] = Field(
        (0, 0), description="records of each side whose text occurs more than once there"
    )
    scored_tokens: int = 0
    split_origin: Literal["unknown", "random", "temporal"] = "unknown"
    nonmember_kind: Literal["unknown", "iid", "counterfactual", "future"] = "unknown"
    nonmembers_apart: tuple[str, ...] = Field(
        (), description="kinds of further non-members, which are judged apart"
    )
    n_telling_words: int = Field(
        0, description="words of many records that tell the sides apart, at most eight counted"
    )
    telling_words: tuple[str, ...] = Field(
        (), description="these words, where the records' text was to be revealed"
    )
    example: tuple[RenderedPart, ...] = Field(
        (), description="the first judged record as the model reads it, its content left out"
    )


class Shift(Part):
    """How the AUC of an attack differs from that of the audit itself."""

    attack: str
    difference: Number | None = Field(
        None,
        description="AUC here (against these non-members, in this setting) minus that of the audit's own",
    )
    note: str | None = Field(None, description="why there is no estimate")


class Apart(Part):
    """Members against non-members of another kind: judged apart, and no part of any other number."""

    kind: Literal["iid", "counterfactual", "future"]
    source: Side
    n: tuple[int, int] = Field(description="members of the audit, and these non-members")
    n_copies: int = Field(0, description="copies of records of the audit, which are left out")
    attacks: tuple[AttackResult, ...] = Field((), description="attacks and blind baselines")
    control: tuple[AttackResult, ...] = ()
    shifts: tuple[Shift, ...] = ()
    separates: tuple[str, ...] = Field(
        (),
        description="attacks whose interval excludes 1/2 on the reference or the control model: the "
        "set also separates without membership",
    )
    requests: dict[str, int] = Field(
        default_factory=dict,
        description="distinct requests, by the model's role, those about the members among them",
    )


class PromptFacts(Part):
    """The prompt that records are looked for in, and how the trials were drawn; no text of it."""

    template: str = Field(description="its name, or the file's")
    chat: bool = Field(description="whether it is sent as messages")
    n_labels: int | None = Field(description="words that answer; null where answers are free text")
    observed: bool = Field(
        description="whether it stands at the other end: nothing was put before what was sent"
    )
    n_pool: int | None = Field(None, description="labelled records that demonstrations come from")
    pool_sha256: str | None = Field(None, description="of these records, not of the file's bytes")
    trials: int | None = Field(None, description="null of an observed prompt, as what follows")
    paired: bool | None = None
    shots: int | None = Field(None, description="demonstrations of the main setting")
    position: str | None = Field(None, description="where the record in question stands there")
    tokens: tuple[int, int, int] | None = Field(
        None,
        description="of a prompt with its question: shortest, median, longest of those that fit",
    )
    n_too_long: tuple[int, int] = Field(
        (0, 0), description="members and non-members whose prompt does not fit into the context"
    )
    unparsed: dict[str, float] = Field(
        default_factory=dict,
        description="share of the answers that were none of those asked for, by attack",
    )
    never: dict[str, float] = Field(
        default_factory=dict,
        description="share of the wrong labels insisted on that were never the answer and count as the cap, "
        "by attack",
    )
    no_room: dict[str, float] = Field(
        default_factory=dict,
        description="of the same labels, the share that the context had no room to insist on so long",
    )


class SettingResult(Part):
    """The same trials in another setting: more demonstrations, another place, a defence."""

    name: str = Field(description="as its file is named: settings/NAME.parquet")
    shots: int
    position: str
    defense: str = Field("none", description="none, or the defence's name")
    n: tuple[int, int] = Field(description="members and non-members")
    attacks: tuple[AttackResult, ...] = Field((), description="attacks and blind baselines")
    control: tuple[AttackResult, ...] = ()
    differences: tuple[Shift, ...] = Field(
        (), description="AUC here minus that of the main setting, on the same records, paired"
    )
    n_too_long: tuple[int, int] = (0, 0)
    unparsed: dict[str, float] = Field(default_factory=dict)
    never: dict[str, float] = Field(default_factory=dict)
    no_room: dict[str, float] = Field(default_factory=dict)
    requests: dict[str, int] = Field(
        default_factory=dict, description="distinct requests, by the model's role"
    )


class Attacker(Part):
    """How far one attack gets, at thresholds that are chosen on other trials than they are judged on."""

    auc: Number | None = None
    advantage: Number | None = Field(None, description="TPR - FPR at the best threshold")
    tpr: Number | None = Field(None, description="at the threshold for the false-positive rate")
    fpr: Number | None = Field(None, description="of the same decisions")
    note: str | None = Field(None, description="why there are no estimates")


class Defended(Part):
    """One attack against a defence, by an attacker who does not know of it and by one who does."""

    attack: str
    before: Attacker = Field(description="without the defence")
    fixed: Attacker = Field(description="thresholds, and what it has learned, are from before")
    recalibrated: Attacker = Field(description="both are from other defended trials")
    difference: Number | None = Field(
        None, description="AUC of who knows of the defence minus AUC without it, paired"
    )


class GuaranteeFacts(Part):
    """What a defence guarantees by differential privacy, computed from what was done."""

    epsilon: float = Field(description="for one record of the owner's in the place of another")
    delta: float
    loss: float | None = Field(
        None, description="what the privacy loss exceeds with chance delta alone; null where drawn"
    )
    sigma: float = Field(description="of the noise, in units of what one record can change")
    releases: int = Field(description="noisy answers that one record has a part in, at most")
    rate: float = Field(description="chance of a record to be drawn for one of them")
    n_private: int = Field(description="records that a demonstration is made from, at least")
    accountant: str
    degenerate: bool = Field(description="whether the noise drowns what it is added to")


class Defence(Part):
    """A defence, what it takes from attackers, and what it costs."""

    name: str = Field(description="of its setting")
    defense: str
    shots: int
    position: str
    fpr: float | None = Field(description="that thresholds of `tpr` are set for; null: none")
    accuracy_before: Number | None = Field(
        None, description="right answers about records outside the prompt, without the defence"
    )
    accuracy: Number | None = Field(None, description="the same with the defence")
    similarity: Number | None = Field(
        None, description="of what was rewritten to what the model wrote; null: nothing was"
    )
    notes: tuple[str, ...] = Field((), description="what a reader should know of these numbers")
    guarantee: GuaranteeFacts | None = None
    attacks: tuple[Defended, ...] = ()


class RunFacts(Part):
    """The run. Only `id`, `created` and `seconds` may differ when it is repeated."""

    id: str
    created: str
    tool: str
    scenario: Literal["finetune", "prompt", "scores", "canary", "data"]
    seed: int
    plan: str = Field(description="hash of configuration, data and models")
    seconds: float = Field(description="of the last attempt")


class Results(Part):
    """results.json."""

    schema_version: str = SCHEMA_VERSION
    run: RunFacts
    target: dict[str, str]
    reference: dict[str, str] | None = None
    control_model: dict[str, str] | None = Field(
        None,
        description="model of the same format, trained on other records; null where there is none",
    )
    shadows: tuple[dict[str, str], ...] = Field((), description="shadow models, if attacks had any")
    access: str
    data: DataFacts | None = None
    attacks: tuple[AttackResult, ...]
    control: tuple[AttackResult, ...] = ()
    control_note: str | None = Field(
        None, description="why there is no control on the reference, or not of every attack"
    )
    control_model_note: str | None = Field(
        None, description="attacks that were not repeated on the control model, and why"
    )
    skipped: dict[str, str] = Field(
        default_factory=dict, description="attacks that were not run, and why"
    )
    notes: tuple[str, ...] = Field(
        (), description="what else a reader should know, for example of a run that was scored again"
    )
    headline: Headline | None = None
    headline_note: str | None = Field(None, description="why there is no headline")
    checks: tuple[Check, ...] = ()
    validity: Validity | None = None
    threat_model: ThreatModel | None = None
    exposed: Exposed | None = None
    optimization_gap: OptimizationGap | None = Field(
        None, description="null where the attack optimization_gap was not run"
    )
    apart: tuple[Apart, ...] = Field(
        (), description="the same members against non-members of other kinds, if any are named"
    )
    gains: tuple[Gain, ...] = Field(
        (), description="none where no attack uses weights or learns, or no baseline was run"
    )
    drift: DriftReport | None = Field(
        None, description="null where no attack g_drift was run, or nothing could be stepped on"
    )
    stability: DriftStability | None = Field(
        None, description="null where the attack g_drift_stability was not run"
    )
    prompt: PromptFacts | None = Field(None, description="null where no prompt was audited")
    settings: tuple[SettingResult, ...] = Field(
        (), description="further settings of the same prompt, each judged by itself"
    )
    defences: tuple[Defence, ...] = Field(
        (), description="what each defence of the prompt takes from attackers, and what it costs"
    )
    layers: tuple[LayerReport, ...] = Field(
        (), description="none where the attack activation_probe was not run"
    )
    epsilon: Epsilon | None = None
    slices: tuple[Slice, ...] = ()
    fillers: tuple[FillerFacts, ...] = Field(
        (),
        description="models that made neighbours of records; none where no attack compares with any",
    )
    requests: dict[str, int] = Field(
        default_factory=dict, description="distinct requests, by the model's role"
    )
    limitations: tuple[str, ...] = ()
    out_of_scope: tuple[str, ...] = Field((), description="attacks that this says nothing about")

    @property
    def invalid(self) -> bool:
        """Whether the evidence is invalid, so that nothing may be called a finding."""
        return self.validity is not None and self.validity.verdict == "invalid"
