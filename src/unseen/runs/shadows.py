"""Shadow models: trained as the target was, on other records; what each of them has seen is known."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unseen.data.duplicates import normalised
from unseen.data.records import read_side
from unseen.errors import ConfigError
from unseen.runs.collect import Model, Shadow
from unseen.runs.models import PLAIN, is_fake, loading, opened
from unseen.runs.training.trained import runs_named
from unseen.signals.base import SHADOW, TARGET
from unseen.targets.files import fingerprint_of, locate

if TYPE_CHECKING:
    from unseen.runs.config import FinetuneAudit
    from unseen.types import Record


@dataclass(frozen=True)
class Named:
    """A shadow as it is named.

    Attributes:
        name: what the user calls it.
        model: folder, hub name or adapter.
        n_trained: how many records it was trained on; None where nobody has said.
        inside: whether a record is among them.
    """

    name: str
    model: str
    n_trained: int | None = None
    inside: Callable[[Record], bool] = lambda _: False


def find_shadows(config: FinetuneAudit, models: dict[str, Model]) -> tuple[Shadow, ...]:
    """The shadow models of an audit; none is loaded yet.

    Raises:
        ModelError: where files of one are missing.
        DataError: where the file of its training records cannot be read.
        ConfigError: where one is the target itself, or named twice.
    """
    found: dict[str, Shadow] = {}
    for named in (one for spec in config.shadow for one in read_name(spec)):
        shadow = _shadow(named, config)
        if models[TARGET].target.fingerprint.startswith(shadow.fingerprint):
            raise ConfigError(
                f"the shadow {shadow.name} has the same weights as the target",
                fix="--shadow names a model that was trained as the target was, on other records",
            )
        if shadow.fingerprint in found:
            raise ConfigError(
                f"the shadows {found[shadow.fingerprint].name} and {shadow.name} have the same "
                "weights",
                fix=f"leave out --shadow {shadow.name}",
            )
        found[shadow.fingerprint] = shadow
    return tuple(found.values())


def read_name(spec: str) -> list[Named]:
    """The models that one word of the user names: MODEL, MODEL=FILE or a folder of unseen train.

    Raises:
        ConfigError: where the model or the file has no name.
        DataError: where the file cannot be read.
        StoreError: where a train run is unfinished, changed or damaged.
    """
    model, equals, file = spec.partition("=")
    if equals and not Path(spec).exists():
        if not (model and file):
            raise ConfigError(
                f"--shadow {spec} names no {'file' if model else 'model'}",
                fix="--shadow MODEL=FILE, or --shadow MODEL where nobody knows its training records",
            )
        seen = frozenset(map(digest, read_side(file)))
        return [Named(model, model, len(seen), lambda record: digest(record) in seen)]
    runs = runs_named(spec)
    if runs:
        return [
            Named(str(run.path), str(run.model), run.n_trained, run.has_learned) for run in runs
        ]
    return [Named(spec, spec)]


def digest(record: Record) -> str:
    """Equal for records with the same text, but for case and white space; it does not tell it."""
    return hashlib.blake2b(normalised(record.text).encode(), digest_size=16).hexdigest()


def notes(shadows: Sequence[Shadow], records: Iterable[Record]) -> list[str]:
    """What the user should know: how many of the records each shadow has seen."""
    records = tuple(records)
    said = []
    for shadow in shadows:
        if shadow.facts["trained on"] == "not known":
            said.append(
                f"shadow {shadow.name}: what it was trained on is not known, so no audited record "
                f"is taken to be among it; --shadow {shadow.name}=FILE names its training records"
            )
            continue
        n = sum(map(shadow.inside, records))
        said.append(f"shadow {shadow.name}: {n} of {len(records)} audited records were in its data")
    return said


def refuse_informed(config: FinetuneAudit, records: Iterable[Record]) -> None:
    """A reference or control model that knows audited records would hide what the target knows of them.

    Raises:
        ConfigError: where one is a train run whose records are among them.
    """
    records = tuple(records)
    named = {"reference": config.reference, "control model": config.control_model}
    for role, name in named.items():
        for run in runs_named(name) if name is not None else ():
            n = sum(map(run.has_learned, records))
            if n:
                raise ConfigError(
                    f"the {role} {run.path} was trained on {n} of the audited records",
                    fix=f"train one on others: unseen train {role.partition(' ')[0]} --not-in TARGET_RUN",
                )


def _shadow(named: Named, config: FinetuneAudit) -> Shadow:
    known = "not known" if named.n_trained is None else f"{named.n_trained} records"
    fingerprint, load = _weights(named.model, config)
    return Shadow(
        name=named.name,
        fingerprint=fingerprint,
        facts={"model": named.model, "trained on": known},
        load=load,
        inside=named.inside,
    )


def _weights(name: str, config: FinetuneAudit) -> tuple[str, Callable[[], Model]]:
    """A fingerprint of the weights, and what loads them."""
    plain = config.model_copy(update=PLAIN)
    if is_fake(name):
        fake = opened(name, plain)
        return fake.target.fingerprint, lambda: fake
    with loading(SHADOW):
        source = locate(name, cache_dir=config.cache_dir)
    return f"hf-{fingerprint_of(source)}", lambda: opened(name, plain)
