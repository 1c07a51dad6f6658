"""What a Python user calls: the same audits as on the command line, and their results as objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unseen.errors import ConfigError, need
from unseen.report import markdown
from unseen.runs.audit import audit
from unseen.runs.config import FinetuneAudit, configure
from unseen.runs.folder import RunFolder, writing
from unseen.runs.rescore import rescore
from unseen.runs.results import Headline, Results
from unseen.runs.scores import evaluate_scores

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

    from unseen.data.records import Records
    from unseen.runs.collect import Progress
    from unseen.runs.compare import Comparison
    from unseen.runs.gate import GateResult
    from unseen.runs.verify import Verification
    from unseen.targets.access import LogprobTarget


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
        """Writes the report, by the file's ending: .md or .json.

        Raises:
            ConfigError: for another ending.
            StoreError: where it cannot be written.
        """
        path = Path(path)
        renderings = {
            ".md": lambda: markdown.render(self.results),
            ".json": lambda: self.results.model_dump_json(indent=1),
        }
        if path.suffix not in renderings:
            raise ConfigError(
                f"no report of kind {path.suffix or path.name!r}", fix="name it .md or .json"
            )
        with writing(path):
            path.write_text(renderings[path.suffix](), encoding="utf-8")
        return path


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


def compare_runs(*runs: str | Path, force: bool = False) -> Compared:
    """Compares every later run with the first, record by record.

    Args:
        runs: two or more run folders of the same records.
        force: compare runs that are not alike, on the ids that they share.

    Raises:
        UnseenError: where a folder holds no finished run, or the runs are not alike.
    """
    from unseen.runs.compare import compare

    return Compared(compare([Path(run) for run in runs], force=force))


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
        run: the run folder.

    Raises:
        ConfigError: where the folder holds no run.
    """
    from unseen.runs.verify import verify

    return verify(Path(run))


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
    if config is not None and choices:
        raise ConfigError(f"got config and also {', '.join(choices)}", fix="give one of them")
    if isinstance(target, str | Path):
        choices["model"], target = str(target), None
    config = config or configure(**choices)
    folder, results = audit(
        config, target=target, records=data, progress=progress, note=note, report=_report
    )
    return Audit(folder.path, results)


def score_run(run: str | Path, attacks: Sequence[str] = (), **choices: Any) -> Audit:
    """Scores and judges a run again from what was measured, without its model.

    Args:
        run: the run folder.
        attacks: attacks to add to those of the run.
        **choices: statistics to change: fpr, confidence, bootstrap, folds, seed.

    Raises:
        UnseenError: where the folder holds no run, or what an attack needs was not measured.
    """
    specs = (attacks,) if isinstance(attacks, str) else tuple(attacks)
    folder, results = rescore(Path(run), specs, report=_report, **choices)
    return Audit(folder.path, results)


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


def _report(folder: RunFolder, results: Results) -> None:
    folder.write_text("report.md", markdown.render(results))


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
