"""Scores of records whose membership nobody has said: a table, for whoever brings own statistics."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unseen.attacks import create, label
from unseen.attacks.base import Attack, is_fitted, is_fusing
from unseen.errors import AccessError, ConfigError, UsageError, need
from unseen.runs.answers import answers
from unseen.runs.collect import Progress, collect
from unseen.runs.config import FinetuneAudit, LayoutChoices
from unseen.runs.fillers import fillers_of_target, open_fillers, tried
from unseen.runs.models import open_models
from unseen.runs.plan import changed, obstacle_of
from unseen.runs.shadows import find_shadows
from unseen.signals.base import TARGET, Shown, helpers_needed, known_needed, population_wanted
from unseen.types import FloatArray, Record, Scores

if TYPE_CHECKING:
    import pandas as pd

    from unseen.targets.access import LogprobTarget

READ = (
    *LayoutChoices.model_fields, "model", "adapter", "base_model", "reference", "shadow", "surrogate", "generator",
    "revision", "tokenizer", "dtype", "device", "attn_implementation", "trust_remote_code", "access", "cache_dir",
    "cache", "offline", "batch_tokens", "threads",
)  # fmt: skip
"""Choices that a table depends on; the others are about files of both sides, statistics, or a run folder."""


@dataclass(frozen=True)
class ScoreTable(Mapping[str, FloatArray]):
    """Attack, as it was named -> scores of all records, (n,), higher = more likely a member.

    Attributes:
        ids: of the n records, in their order.
        scores: attack -> the scores that there are, and why others are missing.
    """

    ids: tuple[str, ...]
    scores: Mapping[str, Scores]

    def __getitem__(self, name: str) -> FloatArray:
        """The scores of one attack, (n,).

        Raises:
            KeyError: where it was not named.
            UsageError: where some records have no score; `scores` says which, and why.
        """
        found = self.scores[name]
        if found.unscored:
            n, why = len(found.unscored), Counter(found.unscored.values()).most_common(1)[0][0]
            raise UsageError(
                f"{n} of {len(self.ids)} records have no score by {name}: {why}",
                fix=f"table.scores[{name!r}] has those that there are, by id",
            )
        by_id = dict(zip(found.ids, found.values.tolist(), strict=True))
        return np.array([by_id[id_] for id_ in self.ids], dtype=np.float64)

    def __iter__(self) -> Iterator[str]:
        return iter(self.scores)

    def __len__(self) -> int:
        return len(self.scores)

    def to_pandas(self) -> pd.DataFrame:
        """A row a record, a column an attack; NA where there is no score. No text.

        Raises:
            MissingExtraError: where pandas is not installed.
        """
        pandas = need("pandas", "pandas")
        columns = {
            name: pandas.Series(one.values, index=list(one.ids), dtype="Float64").reindex(self.ids)
            for name, one in self.scores.items()
        }
        table: pd.DataFrame = pandas.DataFrame(columns, index=pandas.Index(self.ids, name="id"))
        return table


def tabulate(
    config: FinetuneAudit,
    records: Sequence[Record],
    attacks: Sequence[str | Attack],
    *,
    target: LogprobTarget | None = None,
    progress: Progress | None = None,
) -> ScoreTable:
    """Measures and scores records. Nothing is judged, kept in a run folder, or tried before.

    Args:
        config: names the models, and says how they read records.
        records: whose ids differ.
        attacks: names, or attacks.
        target: a target that the caller has made.
        progress: told how far it is.

    Raises:
        UsageError: where there are no records, or two have one id.
        ConfigError: where a choice is not read, or an attack needs records of known membership.
        AccessError: where an attack needs what there is not.
        ModelError: where a model cannot be loaded.
    """
    ids = tuple(record.id for record in records)
    if not ids or len(set(ids)) < len(ids):
        msg = "got the same id twice" if ids else "got no records"
        raise UsageError(msg, fix="unseen.Records, or records with an id of their own each")
    if config.offline:
        os.environ["HF_HUB_OFFLINE"] = "1"
    idle = changed(config, tuple(set(FinetuneAudit.model_fields) - set(READ)))
    if idle:
        raise ConfigError(
            f"a table does not read {', '.join(idle)}",
            fix="leave it out, or run an audit: unseen.audit_finetune",
        )
    named = {
        one if isinstance(one, str) else label(one): create(one) if isinstance(one, str) else one
        for one in attacks
    }
    if not named:
        raise UsageError("got no attacks", fix='unseen.collect(target, records, ["loss"])')
    for name, attack in named.items():
        _refuse_learning(name, attack)
    signals = [signal for attack in named.values() for signal in attack.signals()]
    fillers = open_fillers(config, signals)
    models = open_models(config, target, helpers_needed(signals))
    for name, attack in named.items():
        if (why := obstacle_of(config, attack, models)) is not None:
            raise AccessError(f"attack {name} cannot be run: {why}")
    shadows = find_shadows(config, models)
    fillers |= fillers_of_target(config, signals, models[TARGET].target)
    tried(fillers, [record.response for record in records])
    with answers(config) as store:
        seen, _ = collect(
            signals,
            records,
            models,
            store=store,
            shadows=shadows,
            shown=Shown(fillers=fillers),
            batch_tokens=config.batch_tokens,
            progress=progress,
        )
    return ScoreTable(ids, {name: attack.score(seen) for name, attack in named.items()})


def _refuse_learning(name: str, attack: Attack) -> None:
    """Refuses an attack that needs to know who is a member.

    Raises:
        ConfigError: with what runs it.
    """
    why = None
    if is_fitted(attack) or is_fusing(attack):
        why = "it learns from records of known membership"
    elif known_needed(attack.signals()) != (0, 0) or population_wanted(attack.signals()):
        why = "it is shown, or compares with, records of known membership"
    if why is not None:
        raise ConfigError(
            f"attack {name} has no score for a table: {why}, and here is none",
            fix=f"unseen.audit_finetune(target, data, attacks=({name!r},)), which sets some aside",
        )
