"""Models that put other words into texts: opened, tried, and named in the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from unseen.errors import ConfigError
from unseen.runs.results import FillerFacts
from unseen.signals.base import Signal
from unseen.signals.neighbours import fillers_needed
from unseen.targets.fillers import EMBEDDINGS, Filler, open_filler

if TYPE_CHECKING:
    from unseen.runs.config import AuditChoices
    from unseen.targets.access import LogprobTarget

_TRIED = 8  # texts that a filler is tried on


def open_fillers(config: AuditChoices, signals: Sequence[Signal]) -> dict[str, Filler]:
    """The fillers that are models of their own, before the audited one is loaded.

    Raises:
        ModelError: where one cannot be loaded, or has not learned to fill in words.
        ConfigError: where one cannot do what an attack wants of it.
    """
    opened: dict[str, Filler] = {}
    for name, swaps in fillers_needed(signals).items():
        if name == EMBEDDINGS:
            continue
        filler = open_filler(name, device=config.device, cache_dir=config.cache_dir)
        if swaps and not filler.swaps_words:
            raise ConfigError(
                f"{filler.about} writes stretches of words, and neighborhood and neighbor_deviation "
                "swap single ones",
                fix="take it for spv, and for these a masked language model "
                "(FacebookAI/roberta-base) or word embeddings (filler=embeddings)",
            )
        opened[name] = filler
    return opened


def fillers_of_target(
    config: AuditChoices, signals: Sequence[Signal], target: LogprobTarget
) -> dict[str, Filler]:
    """The target's own word embeddings, where they make neighbours."""
    if EMBEDDINGS not in fillers_needed(signals):
        return {}
    return {EMBEDDINGS: open_filler(EMBEDDINGS, device=config.device, target=target)}


def tried(fillers: Mapping[str, Filler], texts: Sequence[str]) -> list[str]:
    """Tries each filler on some texts; what the user should know of them.

    Raises:
        ModelError: where one does not know what it says.
    """
    for filler in fillers.values():
        filler.check(texts[:_TRIED])
    return [f"neighbours of records are made by: {filler.about}" for filler in fillers.values()]


def filler_facts(fillers: Mapping[str, Filler]) -> tuple[FillerFacts, ...]:
    """What the results say of them."""
    return tuple(
        FillerFacts(name=name, about=filler.about, fingerprint=filler.fingerprint)
        for name, filler in sorted(fillers.items())
    )
