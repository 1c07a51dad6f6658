"""The beginning of a run: its folder, and run.json, which says what was asked for and how it goes."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from unseen import __version__
from unseen.errors import BudgetError, ConfigError
from unseen.runs.folder import LOCK, RunFolder, find_unfinished, point_latest, slug
from unseen.runs.metered import counting, in_a_line
from unseen.runs.provenance import now, versions

if TYPE_CHECKING:
    from unseen.data.duplicates import Dropped
    from unseen.runs.collect import Model
    from unseen.runs.config import AuditChoices

Note = Callable[[str], None]
"""Told, in a sentence, what the user should know."""


def open_folder(config: AuditChoices, plan: str, name: str) -> RunFolder:
    """The folder of a run: the one that is named, one that the same plan was begun in, or a new one.

    Args:
        config: names it, or where runs are.
        plan: identity of the plan.
        name: what a new folder is named after.

    Raises:
        ConfigError: where the folder that is named holds something else.
    """
    if config.run_dir is not None:
        path = config.run_dir
        if (path / "run.json").is_file():
            about = RunFolder(path).read_json("run.json")
            if about.get("plan") != plan:
                raise ConfigError(
                    f"{path} holds another audit (other data, model or choices)",
                    fix="name another folder: --run-dir DIR",
                )
        elif path.is_dir() and any(file.name != LOCK for file in path.iterdir()):
            raise ConfigError(f"{path} is not empty and no run folder", fix="--run-dir DIR")
        return RunFolder(path)
    unfinished = find_unfinished(config.runs, plan)
    if unfinished is not None:
        return RunFolder(unfinished)
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
    return RunFolder(config.runs / f"{stamp}_{slug(name)}_{secrets.token_hex(2)}")


def begin(
    folder: RunFolder,
    config: AuditChoices,
    *,
    scenario: str,
    plan: str,
    facts: Mapping[str, Any],
    dropped: Sequence[Dropped],
) -> dict[str, Any]:
    """Writes the header of the run; returns it, with this attempt as the last.

    Args:
        folder: of the run, locked.
        config: every choice.
        scenario: kind of audit.
        plan: identity of the plan.
        facts: of data and models: data, models, fingerprints.
        dropped: records that are left out, as data/dropped.csv names them.
    """
    about: dict[str, Any] = {"created": now(), "attempts": [], "preflight": None}
    if (folder.path / "run.json").is_file():
        before = folder.read_json("run.json")
        about |= {name: before[name] for name in about if name in before}
    about["attempts"].append({"started": now(), "status": "running"})
    about = {
        "schema_version": "1.0",
        "id": folder.path.name,
        "tool": f"unseen {__version__}",
        "scenario": scenario,
        "plan": plan,
        "status": "running",
        **about,
        "config": config.model_dump(mode="json"),
        **facts,
        "provenance": versions(),
    }
    folder.unsealed()
    folder.write_json("run.json", about)
    folder.write_text("config.yaml", _yaml(config))
    folder.write_rows(
        "data/dropped.csv",
        ("id", "side", "reason", "other_id"),
        ((one.id, one.side, one.reason, one.other_id) for one in dropped),
    )
    point_latest(folder.path)
    return about


@contextmanager
def asking(
    models: Mapping[str, Model], folder: RunFolder, about: dict[str, Any], say: Note
) -> Iterator[None]:
    """As long as the context lasts, models are asked; what that took is noted down, however it ends.

    Args:
        models: role -> model.
        folder: the run folder.
        about: its header, run.json.
        say: told, where nothing went wrong, what endpoints were asked.
    """
    with _stopping(folder, about), counting(models, folder, about):
        yield
    asked = in_a_line(models)
    if asked is not None:
        say(f"endpoint   {asked}")


@contextmanager
def _stopping(folder: RunFolder, about: dict[str, Any]) -> Iterator[None]:
    """Notes down that a run was stopped by its budget."""
    try:
        yield
    except BudgetError:
        about["attempts"][-1] |= {"ended": now(), "status": "stopped"}
        folder.write_json("run.json", about | {"status": "stopped"})
        raise


def _yaml(config: AuditChoices) -> str:
    import yaml

    given = config.model_dump(mode="json", exclude_none=True)
    return yaml.safe_dump(given, sort_keys=False, allow_unicode=True)
