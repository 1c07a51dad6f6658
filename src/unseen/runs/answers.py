"""Where the answers of models are kept from run to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unseen.scoring.store import Store
from unseen.targets.files import default_cache

if TYPE_CHECKING:
    from pathlib import Path

    from unseen.runs.config import AuditChoices


def answers_file(config: AuditChoices) -> Path:
    """Where answers are kept, if they are."""
    return (config.cache_dir or default_cache()) / "answers.sqlite"


def answers(config: AuditChoices) -> Store:
    """The store of a run: in its file, or in memory alone where nothing is to be kept."""
    return Store(answers_file(config) if config.cache else None)


def answers_so_far(config: AuditChoices) -> Store:
    """What is answered already, to be read alone: where there is no file, none is made."""
    file = answers_file(config)
    return Store(file if config.cache and file.is_file() else None)
