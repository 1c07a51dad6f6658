"""`unseen check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from unseen.cli.codes import of_results
from unseen.cli.output import out, say
from unseen.errors import ConfigError
from unseen.runs.config import FinetuneAudit


def check(
    *files: Path,
    config: Annotated[FinetuneAudit, Parameter(name="*")] = FinetuneAudit(),  # noqa: B008 (frozen)
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Check the records alone: can membership be measured with them? No model is asked.

    Says how they were read, what occurs on both sides, whether words alone tell the sides apart, and
    which false-positive rates they resolve. With --model or --tokenizer it also shows the first
    record as the model would read it, its content left out.

    Args:
        files: members and non-members; or one file with both, and --label-column.
        config: the records, as for an audit.
        json_: print JSON instead of the table.
    """
    from unseen.api import check_data
    from unseen.report.terminal import show

    result = check_data(config=_with_files(config, files), note=say)
    if json_:
        print(result.model_dump_json(indent=1))
    else:
        show(result, out())
    return of_results(result)


def _with_files(config: FinetuneAudit, files: tuple[Path, ...]) -> FinetuneAudit:
    names = ("data",) if len(files) == 1 else ("members", "nonmembers")
    if len(files) > 2:
        raise ConfigError(
            f"got {len(files)} files, expected members and non-members",
            fix="unseen check MEMBERS NONMEMBERS",
        )
    twice = [name for name in names if files and getattr(config, name) is not None]
    if twice:
        raise ConfigError(
            f"records are given twice: as files and by --{twice[0]}",
            fix="unseen check MEMBERS NONMEMBERS",
        )
    given = dict(zip(names, map(str, files), strict=False))
    return config.model_copy(update=given)
