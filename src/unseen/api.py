"""What a Python user calls: the same audits as on the command line, and their results as objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from unseen.errors import ConfigError, StoreError, UnknownNameError, need
from unseen.report import html, markdown, modelcard, ranking
from unseen.runs.audit import audit
from unseen.runs.config import AuditChoices, FinetuneAudit, configure
from unseen.runs.folder import RunFolder, writing
from unseen.runs.rescore import rescore
from unseen.runs.results import Headline, Results
from unseen.runs.scores import evaluate_scores

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

    from unseen.attacks.base import Attack
    from unseen.data.canaries import CanaryKey
    from unseen.data.records import Records
    from unseen.runs.canary import MadeCanaries
    from unseen.runs.collect import Progress
    from unseen.runs.compare import Comparison
    from unseen.runs.config import CanaryAudit
    from unseen.runs.doctor import Diagnosis
    from unseen.runs.estimate import Forecast
    from unseen.runs.gate import GateResult
    from unseen.runs.prompt.config import PromptAudit
    from unseen.runs.prompt.game import PromptGame
    from unseen.runs.results import Epsilon
    from unseen.runs.studies.config import AttackStudy, TrainStudy
    from unseen.runs.studies.study import StudyResults
    from unseen.runs.table import ScoreTable
    from unseen.runs.training.config import Role, TrainRun
    from unseen.runs.verify import Verification
    from unseen.targets.access import LogprobTarget
    from unseen.types import Record


@dataclass(frozen=True)
class Audit:
    """A finished audit.

    Attributes:
        folder: the run folder.
        results: every estimate, as in results.json.
    """

    folder: Path
    results: Results

    @property
    def headline(self) -> Headline | None:
        """The finding, or None where the data allows none."""
        return self.results.headline

    def to_pandas(self) -> pd.DataFrame:
        """A row a record: id, membership, scores by attack. No text, unless `reveal` was set.

        Raises:
            MissingExtraError: where pandas is not installed.
        """
        need("pandas", "pandas")
        table: pd.DataFrame = RunFolder(self.folder).read_table("records.parquet").to_pandas()
        return table

    def table(self) -> str:
        """The attacks, the baselines that must stay at chance and what is to be known of them, as text."""
        from unseen.report.terminal import as_text

        return as_text(self.results)

    def slices(self, by: str) -> tuple[dict[str, Any], ...]:
        """AUC by group, a row a group: of a column that was sliced by, or, of a prompt, "position" or "shots".

        Returns:
            Rows with by, value, attack, n, auc, low and high; None where a group is too small.

        Raises:
            UnknownNameError: where there are no such groups.
        """
        from unseen.report.summary import groups

        found = groups(self.results)
        known = dict.fromkeys(row["by"] for row in found)
        if by not in known:
            raise UnknownNameError("groups", by, known)
        return tuple(row for row in found if row["by"] == by)

    def gate(
        self, limits: Mapping[str, float] | Sequence[str] = (), *, confidence: float | None = None
    ) -> GateResult:
        """Holds the audit against limits, as `gate_run` does; `raise_for_status` stops a script.

        Raises:
            UnseenError: where a limit is wrong.
        """
        return gate_run(self.folder, limits, confidence=confidence)

    def compare(self, earlier: str | Path | Audit, *, force: bool = False) -> Compared:
        """What changed since an earlier run on the same records: this one minus that one.

        Raises:
            UnseenError: where that is no finished run, or the two are not alike.
        """
        before = earlier.folder if isinstance(earlier, Audit) else earlier
        return compare_runs(before, self.folder, force=force)

    def report(self, path: str | Path) -> Path:
        """Writes the report, by the file's ending: .html, .md, .json or .csv.

        Raises:
            ConfigError: for another ending.
            StoreError: where it cannot be written.
        """
        folder = RunFolder(self.folder)
        return _written(
            Path(path),
            {
                ending: partial(_rendered, folder, self.results, format_)
                for ending, format_ in ENDINGS.items()
            },
        )


@dataclass(frozen=True)
class Compared:
    """Two or more runs, compared.

    Attributes:
        comparison: what differs between them, and every difference with its interval.
    """

    comparison: Comparison

    def report(self, path: str | Path) -> Path:
        """Writes the comparison, by the file's ending: .md or .json.

        Raises:
            ConfigError: for another ending.
            StoreError: where it cannot be written.
        """
        from unseen.report.comparison import render

        return _written(
            Path(path),
            {
                ".md": lambda: render(self.comparison),
                ".json": lambda: self.comparison.model_dump_json(indent=1) + "\n",
            },
        )


def compare_runs(
    *runs: str | Path, force: bool = False, progress: Progress | None = None
) -> Compared:
    """Compares every later run with the first, record by record.

    Args:
        runs: two or more run folders of the same records.
        force: compare runs that are not alike, on the ids that they share.
        progress: called with what is being done, how much of it is done, and how much there is.

    Raises:
        UnseenError: where a folder holds no finished run, or the runs are not alike.
    """
    from unseen.runs.compare import compare

    return Compared(compare([Path(run) for run in runs], force=force, progress=progress))


def gate_run(
    run: str | Path,
    limits: Mapping[str, float] | Sequence[str] = (),
    *,
    confidence: float | None = None,
) -> GateResult:
    """Holds a finished run against limits: pass, fail, or inconclusive.

    Args:
        run: the run folder.
        limits: {"tpr@fpr=0.01": 0.05, "auc@loss": 0.6}, or "METRIC=VALUE" strings; none means the
            gate that the audit was configured with.
        confidence: of the intervals; None means that of the run.

    Raises:
        UnseenError: where the folder holds no finished run, or a limit is wrong.
    """
    from unseen.runs.gate import gate

    given = (limits,) if isinstance(limits, str) else limits
    return gate(Path(run), given, confidence=confidence)


def verify_run(run: str | Path) -> Verification:
    """Looks whether a run folder is whole, readable and as the run left it.

    Args:
        run: the run folder, or that of a study, all of whose runs are looked at.

    Raises:
        ConfigError: where the folder holds no run.
    """
    from unseen.runs.studies.study import FILE, verify_study
    from unseen.runs.verify import verify

    folder = Path(run)
    return (verify_study if (folder / FILE).is_file() else verify)(folder)


def report_run(run: str | Path, format: str = "html", *, reveal: bool = False) -> str:  # noqa: A002
    """Renders the report of a finished run from its folder alone.

    Args:
        run: the run folder.
        format: html, md, json, csv (the records, most exposed first) or modelcard.
        reveal: show the records' text, where the run kept it; html and csv have a place for it.

    Raises:
        ConfigError: where there is no run, no such format, or no text to show.
        StoreError: where the run is unfinished, changed, damaged or of another version.
    """
    from unseen.runs.verify import finished

    if format not in _FORMATS:
        raise UnknownNameError("format", format, _FORMATS)
    done = finished(Path(run))
    return _rendered(done.folder, done.results, format, reveal=reveal)


def renew_report(run: str | Path) -> Path:
    """Writes report.html and report.md of a finished run again.

    Args:
        run: the run folder.

    Returns:
        report.html of the run folder.

    Raises:
        ConfigError: where there is no run.
        StoreError: where the run is unfinished, changed, damaged or of another version.
    """
    from unseen.runs.verify import finished

    folder = RunFolder.existing(Path(run))
    if not os.access(folder.path, os.W_OK):
        raise StoreError(
            f"{folder.path} must not be written to", fix=f"unseen report {run} --out FILE.html"
        )
    with folder.locked():
        done = finished(folder.path)
        folder.unsealed()
        _report(folder, done.results)
        folder.write_manifest()
    return folder.path / "report.html"


def audit_finetune(
    target: str | Path | LogprobTarget | None = None,
    data: Records | None = None,
    *,
    config: FinetuneAudit | None = None,
    progress: Progress | None = None,
    note: Any = None,
    **choices: Any,
) -> Audit:
    """Was this record in the data that the model was fine-tuned on?

    Args:
        target: a model folder or name, or a target such as `HFTarget` or `FakeTarget`.
        data: records of both sides; or give `members` and `nonmembers` files.
        config: all choices at once, instead of `choices`.
        progress: called with what is being done, how much of it is done, and how much there is.
        note: called with sentences that the user should know.
        **choices: fields of `FinetuneAudit`, for example attacks="default", seed=0,
            run_dir="runs/mine".

    Returns:
        The audit, written to its run folder. The same call again continues one that was stopped.

    Raises:
        UnseenError: with what is wrong and what to do.
    """
    config, target = _chosen(target, data, config, choices, configure)
    folder, results = audit(
        config, target=target, records=data, progress=progress, note=note, report=_report
    )
    return Audit(folder.path, results)


def audit_prompt(
    target: str | Path | LogprobTarget | None = None,
    prompt: PromptGame | None = None,
    *,
    config: PromptAudit | None = None,
    progress: Progress | None = None,
    note: Any = None,
    **choices: Any,
) -> Audit:
    """Was this record among the demonstrations of the prompt that the model stands behind?

    Args:
        target: a model folder or name, or a target such as `HFTarget` or `FakeTarget`.
        prompt: the prompt and its records; or give `template` and `demos`.
        config: all choices at once, instead of `choices`.
        progress: called with what is being done, how much of it is done, and how much there is.
        note: called with sentences that the user should know.
        **choices: fields of `PromptAudit`, for example attacks=["gap"], max_requests=8000.

    Returns:
        The audit, written to its run folder. The same call again continues one that was stopped.

    Raises:
        UnseenError: with what is wrong and what to do.
    """
    from unseen.runs.prompt import audit as runs

    config, target, objects = _played(target, prompt, config, choices)
    folder, results = runs.audit_prompt(
        config, target=target, progress=progress, note=note, report=_report, **objects
    )
    return Audit(folder.path, results)


def _played(
    target: str | Path | LogprobTarget | None,
    prompt: PromptGame | None,
    config: PromptAudit | None,
    choices: dict[str, Any],
) -> tuple[PromptAudit, LogprobTarget | None, dict[str, Any]]:
    """The choices of a call about a prompt, its target where that is no name, and what else is no name."""
    from unseen.prompts.templates import PromptTemplate
    from unseen.runs.prompt.config import configure as configure_prompt
    from unseen.runs.prompt.game import PromptGame

    objects: dict[str, Any] = {}
    if prompt is not None:
        if not isinstance(prompt, PromptGame):
            raise ConfigError(
                f"got {type(prompt).__name__} as prompt, expected PromptGame",
                fix='unseen.PromptGame("trec", demos="pool.jsonl"), or template=… and demos=…',
            )
        twice = sorted(prompt.choices.keys() & choices.keys())
        if config is not None or twice:
            what = ", ".join(twice) or "config"
            raise ConfigError(f"got a prompt and also {what}", fix="say it in one place")
        choices = choices | prompt.choices
        objects["demos"] = None if "demos" in prompt.choices else prompt.demos
        if isinstance(prompt.template, PromptTemplate):
            objects["template"] = prompt.template
    config, target = _chosen(target, None, config, choices, configure_prompt)
    return config, target, objects


C = TypeVar("C", bound=AuditChoices)


def _chosen(
    target: str | Path | LogprobTarget | None,
    data: Records | None,
    config: C | None,
    choices: dict[str, Any],
    make: Callable[..., C],
) -> tuple[C, LogprobTarget | None]:
    """The choices of a call, and its target where that is no name."""
    from unseen.data.records import Records

    if config is not None and choices:
        raise ConfigError(f"got config and also {', '.join(choices)}", fix="give one of them")
    if data is not None and not isinstance(data, Records):
        raise ConfigError(
            f"got {type(data).__name__} as data, expected Records",
            fix="unseen.Records.from_files(members, nonmembers), or members=… and nonmembers=…",
        )
    if isinstance(target, str | Path):
        if "model" in choices or (config is not None and config.model):
            raise ConfigError("the model is named twice", fix="leave model=… out")
        if config is not None:
            return config.model_copy(update={"model": str(target)}), None
        return make(**choices, model=str(target)), None
    if target is not None and not hasattr(target, "tokenizer"):
        raise ConfigError(
            f"got {type(target).__name__} as target, expected a name or a target",
            fix="unseen.HFTarget(FOLDER), or the folder itself",
        )
    return config or make(**choices), target


def plan(
    target: str | Path | LogprobTarget | None = None,
    data: Records | PromptGame | None = None,
    *,
    config: FinetuneAudit | PromptAudit | None = None,
    progress: Progress | None = None,
    note: Any = None,
    **choices: Any,
) -> Forecast:
    """What would `audit_finetune`, or `audit_prompt`, take for the same arguments? No run folder is made.

    A few batches are run, so that times are those of this model on this machine.

    Args:
        target: a model folder or name, or a target.
        data: records of both sides, or give `members` and `nonmembers` files; or a prompt.
        config: all choices at once, instead of `choices`; those of a prompt say that one is meant.
        progress: called with what is being done, how much of it is done, and how much there is.
        note: called with sentences that the user should know.
        **choices: fields of `FinetuneAudit`, or, with a prompt, of `PromptAudit`.

    Returns:
        Requests, tokens, batches, seconds and bytes; attacks; rates that can be resolved.

    Raises:
        UnseenError: with every fault that the audit would find before it asks the model.
    """
    from unseen.runs.estimate import estimate
    from unseen.runs.prompt.config import PromptAudit
    from unseen.runs.prompt.estimate import estimate as estimate_prompt
    from unseen.runs.prompt.game import PromptGame

    if isinstance(data, PromptGame) or isinstance(config, PromptAudit):
        prompt = data if isinstance(data, PromptGame) else None
        of_prompt = config if isinstance(config, PromptAudit) else None
        played, target, objects = _played(target, prompt, of_prompt, choices)
        return estimate_prompt(played, target=target, progress=progress, note=note, **objects)
    config, target = _chosen(target, data, config, choices, configure)
    return estimate(config, target=target, records=data, progress=progress, note=note)


def doctor(
    target: str | Path | LogprobTarget | None = None, *, note: Any = None, **choices: Any
) -> Diagnosis:
    """What do this machine and, where one is named, this model allow?

    Args:
        target: a model folder or name, or a target; None looks at the machine alone.
        note: called with sentences on what is being done.
        **choices: fields of `FinetuneAudit` that say how a model is loaded: reference, dtype, …

    Returns:
        Rows with what was found and how to mend it; what is missing raises no error.

    Raises:
        ConfigError: for a choice that does not exist.
    """
    from unseen.runs.doctor import diagnose

    if isinstance(target, str | Path):
        choices["model"], target = str(target), None
    return diagnose(configure(**choices), target=target, note=note)


def score_run(run: str | Path, attacks: Sequence[str] = (), **choices: Any) -> Audit:
    """Scores and judges a run again from what was measured, without its model.

    Args:
        run: the run folder.
        attacks: attacks to add to those of the run.
        **choices: statistics to change: fpr, confidence, bootstrap, folds, seed; and trained_from.

    Raises:
        UnseenError: where the folder holds no run, or what an attack needs was not measured.
    """
    specs = (attacks,) if isinstance(attacks, str) else tuple(attacks)
    folder, results = rescore(Path(run), specs, report=_report, **choices)
    return Audit(folder.path, results)


def collect(
    target: str | Path | LogprobTarget | None,
    records: Records | CanaryKey | Sequence[Record],
    attacks: Sequence[str | Attack],
    *,
    config: FinetuneAudit | None = None,
    progress: Progress | None = None,
    **choices: Any,
) -> ScoreTable:
    """Scores of records, without labels: for statistics of your own, or for `evaluate`.

    It measures and scores, and that is all: the model is not tried first, records that are alike stay,
    and nothing says whether scores mean membership. What was asked before is taken from the cache.

    Args:
        target: a model folder or name, or a target such as `HFTarget`.
        records: records of both sides, canaries, or any records; ids differ.
        attacks: names, such as "loss" and "grad_norm[weights=adapter]", or attacks, such as
            `unseen.attacks.GradNorm()`. Not those that learn from known records, or show some.
        config: all choices at once, instead of `choices`.
        progress: called with what is being done, how much of it is done, and how much there is.
        **choices: fields of `FinetuneAudit` that say how models are loaded and read records:
            reference, dtype, loss_on, cache_dir, ...

    Returns:
        A mapping of each attack to the scores of all records, (n,), in their order.

    Raises:
        UnseenError: with what is wrong and what to do.
    """
    from unseen.data.canaries import CanaryKey
    from unseen.data.records import Records
    from unseen.runs.table import tabulate

    config, target = _chosen(target, None, config, choices, configure)
    if isinstance(records, CanaryKey):
        rows: Sequence[Record] = [canary.record for canary in records.canaries]
    else:
        rows = records.records if isinstance(records, Records) else records
    named = (attacks,) if isinstance(attacks, str) else tuple(attacks)
    return tabulate(config, rows, named, target=target, progress=progress)


def evaluate(
    scores: Mapping[str, ArrayLike] | ArrayLike,
    labels: ArrayLike,
    *,
    clusters: Sequence[Any] | None = None,
    **choices: Any,
) -> Results:
    """Statistics of scores that were made elsewhere.

    Args:
        scores: (n,) higher = more likely a member; or a name -> scores mapping for several.
        labels: (n,) true or 1 for members.
        clusters: (n,) records of one cluster are resampled together; None stands alone.
        **choices: fpr, confidence, bootstrap, folds, seed.

    Raises:
        UsageError: where lengths differ, scores are not finite or a side is too small.
    """
    if hasattr(scores, "iterrows"):  # a table of pandas: its columns are the attacks
        scores = {str(name): scores[name] for name in scores}  # type: ignore[index,union-attr]
    by_name = scores if isinstance(scores, Mapping) else {"score": scores}
    return evaluate_scores(by_name, labels, clusters=clusters, **choices)


def check_data(
    data: Records | None = None,
    *,
    config: FinetuneAudit | None = None,
    note: Any = None,
    **choices: Any,
) -> Results:
    """Can membership be measured with these records? No model is asked.

    Args:
        data: records of both sides; or give `members` and `nonmembers` files.
        config: all choices at once, instead of `choices`.
        note: called with sentences that the user should know.
        **choices: fields of `FinetuneAudit`.

    Returns:
        Baselines that need no model, checks and their verdict; no attacks, no headline.

    Raises:
        UsageError: where something is wrong with the records.
    """
    from unseen.runs.data_check import check_data as checked

    config, _ = _chosen(None, data, config, choices, configure)
    return checked(config, records=data, note=note)


@dataclass(frozen=True)
class Demo:
    """The two audits of the demonstration.

    Attributes:
        found: of the fine-tuned model.
        control: of the model before fine-tuning, on the same records.
        command: repeats the first audit from the command line.
    """

    found: Audit
    control: Audit
    command: str

    @property
    def as_expected(self) -> bool:
        """Whether the first model is found and the second is clear."""
        found, control = self.found.headline, self.control.headline
        return found is not None and found.found and control is not None and not control.found


def run_demo(
    runs: str | Path = "runs",
    *,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    note: Any = None,
) -> Demo:
    """Fine-tunes a small real model and audits it beside the model from before.

    Args:
        runs: where records, model and run folders are made.
        cache_dir: where the converted model and answers are kept.
        progress: called with what is being done, how much of it is done, and how much there is.
        note: called with sentences on what happens.

    Raises:
        UnseenError: where the base model is not to be had, or something cannot be written.
    """
    from unseen.runs import demo

    say = note or (lambda _: None)
    tell = progress or (lambda *_: None)
    setting = demo.prepare(Path(runs) / "demo", cache_dir, tell, say)
    common: dict[str, Any] = {"runs": runs, "cache_dir": cache_dir}
    found, control = (
        audit_finetune(**setting.choices(control=control), **common, progress=tell, note=say)
        for control in (False, True)
    )
    command = (
        f"unseen audit finetune --model {setting.model} --reference {setting.base} "
        f"--members {setting.members} --nonmembers {setting.nonmembers}"
    )
    return Demo(found, control, command)


@dataclass(frozen=True)
class PromptDemo:
    """The audit of the demonstration of a prompt.

    Attributes:
        audit: of the prompt, with the same questions behind an empty one as control.
        command: repeats it from the command line.
    """

    audit: Audit
    command: str

    @property
    def as_expected(self) -> bool:
        """Whether records in the prompt are found, and nobody behind an empty one."""
        clear = {check.status for check in self.audit.results.checks if check.id == "control"}
        found = self.audit.headline
        return found is not None and found.found and clear == {"pass"}


def run_prompt_demo(
    runs: str | Path = "runs",
    *,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    note: Any = None,
) -> PromptDemo:
    """Audits a prompt of invented notes, behind which a fake model stands that copies what it has read.

    Args:
        runs: where notes and run folder are made.
        cache_dir: where answers are kept.
        progress: called with what is being done, how much of it is done, and how much there is.
        note: called with sentences on what happens.

    Raises:
        UnseenError: where something cannot be written.
    """
    from unseen.runs.prompt import demo

    setting = demo.prepare(Path(runs) / "demo-prompt")
    audit = audit_prompt(
        **setting.choices, runs=runs, cache_dir=cache_dir, progress=progress, note=note
    )
    return PromptDemo(audit, setting.command)


def canary_make(
    out: str | Path,
    n: int = 1000,
    *,
    seed: int | None = None,
    kind: str = "random-words",
    like: str | Path | None = None,
    format: str = "auto",  # noqa: A002
    column: Mapping[str, str] | Sequence[str] = (),
) -> MadeCanaries:
    """Makes canaries before a training: random records, and a fair coin for each.

    Args:
        out: folder for key.json (all canaries, with their coins) and canaries.jsonl (those that are
            to be trained on, once each). An existing key is never overwritten.
        n: how many, 20 to 30,000.
        seed: makes the same ones again, for whoever knows it; None: the operating system's coins.
        kind: random-words, random-digits, random-characters or invented-people.
        like: a file of training records, whose form and columns the canaries take.
        format: their record form where there is no such file.
        column: role -> column, or "role=column" each.

    Raises:
        UnseenError: where an argument or `like` is wrong, or a key is there already.
    """
    from unseen.runs import canary

    columns = dict(column) if isinstance(column, Mapping) else configure(column=column).columns
    return canary.make(Path(out), n, seed=seed, kind=kind, like=like, format=format, column=columns)


def canary_audit(
    target: str | Path | LogprobTarget | None = None,
    key: str | Path | CanaryKey | None = None,
    *,
    config: CanaryAudit | None = None,
    progress: Progress | None = None,
    note: Any = None,
    **choices: Any,
) -> Audit:
    """What does the model give away about the canaries, and which epsilon does that rule out?

    Args:
        target: a model folder or name, or a target such as `HFTarget` or `FakeTarget`.
        key: the key of the canaries: its file, or what `read_key` has read from it.
        config: all choices at once, instead of `choices`.
        progress: called with what is being done, how much of it is done, and how much there is.
        note: called with sentences that the user should know.
        **choices: fields of `CanaryAudit`: those of `audit_finetune`, and delta, guesses.

    Returns:
        The audit; `results.epsilon` is the bound.

    Raises:
        UnseenError: with what is wrong and what to do.
    """
    from unseen.data.canaries import CanaryKey
    from unseen.runs import canary

    if isinstance(key, CanaryKey):
        if not key.path:
            raise ConfigError("this key was not read from a file", fix="unseen.read_key(PATH)")
        choices["key"] = key.path
    elif key is not None:
        choices["key"] = str(key)
    config, target = _chosen(target, None, config, choices, canary.configure)
    folder, results = canary.audit_canaries(
        config, target=target, progress=progress, note=note, report=_report
    )
    return Audit(folder.path, results)


def canary_bound(
    scores: ArrayLike | Mapping[str, float],
    included: CanaryKey | ArrayLike,
    *,
    fair_coins: bool = False,
    delta: float = 1e-5,
    confidence: float = 0.95,
    guesses: int | None = None,
    seed: int = 0,
) -> Epsilon:
    """A lower bound on epsilon from scores that were made elsewhere.

    Without recorded coins (a key, or `fair_coins=True`) the result is `indicative`: no bound.

    Args:
        scores: (n,) higher = more likely included; or, with a key, canary id -> score.
        included: the key (`unseen.read_key`), or (n,) true or 1 for included records.
        fair_coins: without a key: an independent fair coin decided on each record.
        delta: of the (epsilon, delta) that is bounded.
        confidence: of the bound, for one attack that was chosen before its scores were seen.
        guesses: records to guess, fixed in advance; None tries four numbers, and pays for them.
        seed: breaks ties among scores.

    Raises:
        UsageError: where lengths differ, a score is not finite, a side is empty, or coins are not
            fair.
    """
    from unseen.runs.canary import epsilon_of

    return epsilon_of(
        scores,
        included,
        fair_coins=fair_coins,
        delta=delta,
        confidence=confidence,
        guesses=guesses,
        seed=seed,
    )


def read_key(path: str | Path) -> CanaryKey:
    """Reads the key of canaries, and checks that it is as it was written.

    Raises:
        DataError: where it is no key, or was changed.
    """
    from unseen.data import canaries

    return canaries.read(path)


@dataclass(frozen=True)
class Trained:
    """A train run that has ended.

    Attributes:
        folder: the run folder.
        model: the folder of the trained model.
        about: run.json: base, recipe, counts, losses.
    """

    folder: Path
    model: Path
    about: dict[str, Any]

    def audit(self, **choices: Any) -> Audit:
        """What the model gives away about the records that it was trained on.

        Args:
            **choices: fields of `FinetuneAudit`.

        Raises:
            UnseenError: with what is wrong and what to do.
        """
        return audit_finetune(run_of=str(self.folder), **choices)


def train(
    role: Role = "target",
    *,
    config: TrainRun | None = None,
    progress: Progress | None = None,
    note: Any = None,
    **choices: Any,
) -> Trained:
    """Trains a model, and notes which records it was trained on and which were held out.

    Args:
        role: "target", "reference" or "control".
        config: all choices at once, instead of `choices`.
        progress: called with what is being done, how much of it is done, and how much there is.
        note: called with sentences that the user should know.
        **choices: fields of `TrainRun`: model, data, out, share, epochs, learning_rate, ...

    Returns:
        The train run. The same call again continues one that was stopped.

    Raises:
        UnseenError: with what is wrong and what to do.
    """
    from unseen.runs.training import train as runs
    from unseen.runs.training.config import configure as configure_training

    if config is not None and choices:
        raise ConfigError(f"got config and also {', '.join(choices)}", fix="give one of them")
    run = runs.train(config or configure_training(**choices), role, progress=progress, note=note)
    return Trained(run.path, run.model, run.about)


def train_shadows(
    *,
    config: TrainRun | None = None,
    progress: Progress | None = None,
    note: Any = None,
    **choices: Any,
) -> tuple[Trained, ...]:
    """Trains `count` shadow models, each on a random half of the same records.

    Args:
        config: all choices at once, instead of `choices`.
        progress: called with what is being done, how much of it is done, and how much there is.
        note: called with sentences that the user should know.
        **choices: fields of `TrainRun`: count, model, data, out, ...

    Returns:
        A train run for each. The same call again continues, and a larger count adds some.

    Raises:
        UnseenError: with what is wrong and what to do.
    """
    from unseen.runs.training import train as runs
    from unseen.runs.training.config import configure as configure_training

    if config is not None and choices:
        raise ConfigError(f"got config and also {', '.join(choices)}", fix="give one of them")
    config = config or configure_training(**choices)
    made = runs.train_shadows(config, progress=progress, note=note)
    return tuple(Trained(run.path, run.model, run.about) for run in made)


@dataclass(frozen=True)
class Studied:
    """A finished study.

    Attributes:
        folder: the study's folder: study.json, study.html, study.md, and a run folder for each audit.
        results: the numbers of all points.
    """

    folder: Path
    results: StudyResults


def study(
    name: str,
    target: str | Path | LogprobTarget | None = None,
    *,
    config: AttackStudy | TrainStudy | None = None,
    progress: Progress | None = None,
    note: Any = None,
    **choices: Any,
) -> Studied:
    """One question at several points: how many probes, how much to mask, which epsilon.

    Args:
        name: "probes", "mask-rate", "masking", "sources", "pools", "residual", and, where models are
            trained, "peft", "epsilon", "epochs" or "order".
        target: a model folder or name, or a target; for studies of one model.
        config: all choices at once, instead of `choices`.
        progress: called with what is being done, how much of it is done, and how much there is.
        note: called with sentences that the user should know.
        **choices: values=(...), out=DIR, and fields of `FinetuneAudit`, or of `TrainRun`.

    Returns:
        The study, written to its folder. The same call again continues one that was stopped.

    Raises:
        UnseenError: with what is wrong and what to do.
    """
    from unseen.report import study as shown
    from unseen.runs.config import made_of
    from unseen.runs.studies import study as runs
    from unseen.runs.studies.config import AttackStudy, TrainStudy

    kind: type[TrainStudy | AttackStudy] = TrainStudy if runs.find(name).trains else AttackStudy
    if config is not None and choices:
        raise ConfigError(f"got config and also {', '.join(choices)}", fix="give one of them")
    if isinstance(target, str | Path):
        choices, target = choices | {"model": str(target)}, None
    folder, results = runs.study(
        name,
        config or made_of(kind, choices),
        target=target,
        progress=progress,
        note=note,
        report=_report,
    )
    _written(folder / "study.html", {".html": lambda: shown.page(results)})
    _written(folder / "study.md", {".md": lambda: shown.markdown(results)})
    return Studied(folder, results)


ENDINGS = {".html": "html", ".md": "md", ".json": "json", ".csv": "csv"}
"""Ending of a file -> the format of a report that is written to it."""

_FORMATS = (*ENDINGS.values(), "modelcard")


def _rendered(folder: RunFolder, results: Results, format_: str, *, reveal: bool = False) -> str:
    if format_ == "html":
        return html.render(folder, results, reveal=reveal)
    if format_ == "csv":
        return ranking.render(folder, results, reveal=reveal)
    if reveal:
        raise ConfigError(f"a report of format {format_} never shows text", fix="--format html")
    if format_ == "md":
        return markdown.render(results, folder.read_json("run.json"))
    if format_ == "modelcard":
        return modelcard.render(results)
    return results.model_dump_json(indent=1) + "\n"


def _report(folder: RunFolder, results: Results) -> None:
    for name, format_ in (("report.md", "md"), ("report.html", "html")):
        folder.write_text(name, _rendered(folder, results, format_))


def _written(path: Path, renderings: Mapping[str, Callable[[], str]]) -> Path:
    """Writes what belongs to the file's ending."""
    if path.suffix not in renderings:
        raise ConfigError(
            f"no report of kind {path.suffix or path.name!r}",
            fix=f"name it {' or '.join(renderings)}",
        )
    with writing(path):
        path.write_text(renderings[path.suffix](), encoding="utf-8")
    return path
