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
from unseen.runs.models import PLAIN, is_fake, opened
from unseen.signals.base import TARGET
from unseen.targets.files import fingerprint_of, locate

if TYPE_CHECKING:
    from unseen.runs.config import FinetuneAudit
    from unseen.types import Record


@dataclass(frozen=True)
class Named:
    """A shadow as it is named.

    Attributes:
        model: folder, hub name or adapter.
        trained_on: digests of its training records; None where nobody has said.
    """

    model: str
    trained_on: frozenset[str] | None = None


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
    """The models that one word of the user names: MODEL, or MODEL=FILE.

    Raises:
        DataError: where the file cannot be read.
    """
    model, equals, file = spec.partition("=")
    if equals and not Path(spec).exists():
        return [Named(model, frozenset(map(digest, read_side(file))))]
    return [Named(spec)]


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


def _shadow(named: Named, config: FinetuneAudit) -> Shadow:
    seen = named.trained_on
    known = "not known" if seen is None else f"{len(seen)} records"
    facts = {"model": named.model, "trained on": known}
    fingerprint, load = _weights(named.model, config)
    return Shadow(
        name=named.model,
        fingerprint=fingerprint,
        facts=facts,
        load=load,
        inside=lambda record: seen is not None and digest(record) in seen,
    )


def _weights(name: str, config: FinetuneAudit) -> tuple[str, Callable[[], Model]]:
    """A fingerprint of the weights, and what loads them."""
    plain = config.model_copy(update=PLAIN)
    if is_fake(name):
        fake = opened(name, plain)
        return fake.target.fingerprint, lambda: fake
    source = locate(name, cache_dir=config.cache_dir)
    return f"hf-{fingerprint_of(source)}", lambda: opened(name, plain)
