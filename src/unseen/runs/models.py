"""From a user's words to models in their roles: target, and those that it is compared with."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import ConfigError, ModelError, UnscorableError, flag, need
from unseen.runs.collect import Model
from unseen.runs.config import EndpointChoices
from unseen.runs.metered import together
from unseen.runs.training.trained import runs_named
from unseen.signals.base import CONTROL, GENERATOR, REFERENCE, SURROGATE, TARGET
from unseen.targets.access import Access, LogprobTarget
from unseen.targets.characters import LONGEST, TextTokenizer, tokens_of
from unseen.targets.fake import FakeTarget
from unseen.targets.files import locate, no_base
from unseen.targets.limited import LimitedTarget

if TYPE_CHECKING:
    from unseen.runs.config import AuditChoices, FinetuneAudit, LayoutChoices
    from unseen.signals.base import Encoder
    from unseen.types import Record

PLAIN = {"adapter": None, "base_model": None, "revision": None, "tokenizer": None}
"""What is said of the target, and of no other model."""

_FAKE, _ENDPOINT, _HUB = "fake/", "openai/", "hf/"
COPIES, _COPYING = "copies", 16.0
_RUNGS = {access.word: access for access in Access}


@runtime_checkable
class HasReference(Protocol):
    """A target that brings its own reference, for example an adapter its base."""

    @property
    def reference(self) -> LogprobTarget | None:
        """The reference model, or None."""


def layout_of(config: LayoutChoices) -> Layout:
    """The choices that turn records into token ids."""
    return Layout(
        template=config.template,
        loss_on=config.loss_on,
        end_of_turn=config.end_of_turn,
        truncation=config.truncation,
        max_length=config.max_length,
    )


def open_models(
    config: FinetuneAudit, target: LogprobTarget | None = None, helpers: Collection[str] = ()
) -> dict[str, Model]:
    """Loads the models of an audit.

    Args:
        config: names the models, unless `target` is given.
        target: a target that the caller has made.
        helpers: roles of the attacker's own models that attacks need: surrogate, generator.

    Returns:
        Role -> model: always the target, and reference and control model where there is one. A helper
        that is not named is the reference, and missing where there is none; no access limits it.

    Raises:
        ModelError: where a model cannot be loaded.
        ConfigError: where the template or the access does not fit.
    """
    _set_threads(config)
    target = target or _load(config.model, config)
    reference = _reference(config, target)
    control = _control(config, target, reference)
    layout = layout_of(config)
    own = {role: _helper(role, config, reference) for role in helpers}
    if config.access != "auto":
        rung = _RUNGS[config.access]
        target = _capped(target, rung)
        reference = None if reference is None else _capped(reference, rung)
        control = None if control is None else _capped(control, rung)
    roles = {TARGET: target} | ({} if reference is None else {REFERENCE: reference})
    roles |= {} if control is None else {CONTROL: control}
    together((*roles.values(), *own.values()))
    surrogate, generator = own.get(SURROGATE), own.get(GENERATOR)
    roles |= {} if surrogate is None else {SURROGATE: surrogate}
    encoders: dict[tuple[int, int], RecordEncoder] = {}
    for model in roles.values():
        if _alike(model) not in encoders:
            encoders[_alike(model)] = RecordEncoder(model.tokenizer, layout, limit=model.max_length)
    made = {role: Model(model, encoders[_alike(model)]) for role, model in roles.items()}
    if (
        generator is not None
    ):  # it is asked in its own template, whatever the target was trained with
        encoder = RecordEncoder(generator.tokenizer, Layout(), limit=generator.max_length)
        made[GENERATOR] = Model(generator, encoder)
    return made


def open_target(config: AuditChoices, target: LogprobTarget | None = None) -> LogprobTarget:
    """The target alone, on the rung that is chosen.

    Args:
        config: names it, unless `target` is given.
        target: a target that the caller has made.

    Raises:
        ModelError: where it cannot be loaded.
        ConfigError: where the access does not fit.
    """
    _set_threads(config)
    target = target or _load(config.model, config)
    return target if config.access == "auto" else _capped(target, _RUNGS[config.access])


@contextmanager
def loading(role: str) -> Iterator[None]:
    """Says of a model that cannot be loaded what it was wanted for.

    Raises:
        ModelError: what was raised within, with the role.
    """
    try:
        yield
    except ModelError as error:
        raise ModelError(f"cannot load the {role}: {error.problem}", fix=error.fix) from error


def _helper(
    role: str, config: FinetuneAudit, reference: LogprobTarget | None
) -> LogprobTarget | None:
    """A model of the attacker's own: the one that is named for the role, or the reference."""
    name = getattr(config, role)
    if name is None:
        return reference
    with loading(role):
        return _load(name, config.model_copy(update=PLAIN))


def opened(name: str, config: FinetuneAudit) -> Model:
    """A model that stands by itself: loaded and read as the target's options say.

    Raises:
        ModelError: where it cannot be loaded.
        ConfigError: where the template does not fit.
    """
    target = _load(name, config)
    if config.access != "auto":
        target = _capped(target, _RUNGS[config.access])
    encoder = RecordEncoder(target.tokenizer, layout_of(config), limit=target.max_length)
    return Model(target, encoder)


def opened_beside(name: str, config: AuditChoices) -> Model:
    """A model of its own beside the target: loaded as those of other roles are, with its own template.

    Raises:
        ModelError: where it cannot be loaded.
    """
    with loading(f"model {name}"):
        target = _load(name, config.model_copy(update=PLAIN))
    return Model(target, RecordEncoder(target.tokenizer, Layout(), limit=target.max_length))


def _capped(target: LogprobTarget, rung: Access) -> LogprobTarget:
    """The target on a rung; as it is, where that is its own."""
    return target if target.access == rung else LimitedTarget(target, rung)


def is_fake(name: str) -> bool:
    """Whether the name is of a fake model."""
    return name.startswith(_FAKE)


def _of_hub(name: str) -> str:
    """The name without "hf/", which tells models of the hub's openai from endpoints."""
    return name if Path(name).exists() else name.removeprefix(_HUB)


def is_endpoint(name: str) -> bool:
    """Whether the name is of a model behind an endpoint."""
    return name.startswith(_ENDPOINT)


def open_encoder(config: FinetuneAudit) -> RecordEncoder | None:
    """How records become token ids of `config.model`, without loading its weights.

    Returns:
        The encoder; None where no model and no tokenizer is named.

    Raises:
        ModelError: where the tokenizer cannot be loaded.
        ConfigError: where the template does not fit.
    """
    name = config.model or config.tokenizer
    if not name:
        return None
    if is_fake(name):
        fake = FakeTarget()
        return RecordEncoder(fake.tokenizer, layout_of(config), limit=fake.max_length)
    if is_endpoint(name):
        return RecordEncoder(
            TextTokenizer(chat=config.api == "chat"), layout_of(config), limit=LONGEST
        )
    from unseen.targets.loading import open_tokenizer

    source = locate(
        _of_hub(name),
        adapter=config.adapter,
        base_model=config.base_model,
        revision=config.revision,
        cache_dir=config.cache_dir,
    )
    tokenizer, limit = open_tokenizer(
        source, config.tokenizer, trust_remote_code=config.trust_remote_code
    )
    return RecordEncoder(tokenizer, layout_of(config), limit=limit)


def _alike(model: LogprobTarget) -> tuple[int, int]:
    """Equal for models whose records are encoded alike, so that it is done once for both."""
    return id(model.tokenizer), model.max_length


def _load(name: str, config: AuditChoices) -> LogprobTarget:
    if is_fake(name):
        return _fake(name)
    if is_endpoint(name):
        return _endpoint(name, config)
    from unseen.targets.huggingface import HFTarget

    return HFTarget(
        _of_hub(name),
        adapter=config.adapter,
        base_model=config.base_model,
        revision=config.revision,
        tokenizer=config.tokenizer,
        dtype=config.dtype,
        device=config.device,
        attn_implementation=config.attn_implementation,
        trust_remote_code=config.trust_remote_code,
        cache_dir=config.cache_dir,
        batch_tokens=config.batch_tokens,
    )


def _endpoint(name: str, config: AuditChoices) -> LogprobTarget:
    from unseen.targets.openai_compatible import OpenAITarget

    model = name.removeprefix(_ENDPOINT)
    if not model:
        raise ConfigError("the endpoint's model has no name", fix="--model openai/NAME")
    return OpenAITarget(
        model, **{field: getattr(config, field) for field in EndpointChoices.model_fields}
    )


def _fake(name: str) -> FakeTarget:
    """`fake/FILE`: a fake model that has memorised the responses of a file of records.

    `fake/copies` has memorised nothing, and goes on as the text before it has once gone on.
    """
    from unseen.data.records import read_side

    file = name.removeprefix(_FAKE)
    if not file:
        return FakeTarget()
    if file == COPIES and not Path(file).is_file():
        return FakeTarget(strength=_COPYING, name=name)
    said = (record.response for record in read_side(file) if record.is_answered)
    return FakeTarget(said, name=name)


def _reference(config: FinetuneAudit, target: LogprobTarget) -> LogprobTarget | None:
    wanted = config.reference
    if wanted == "none":
        return None
    if wanted in ("auto", "base"):
        own = target.reference if isinstance(target, HasReference) else None
        if own is None and getattr(target, "has_base", False):
            own = cast("LogprobTarget", target.without_adapter())  # type: ignore[attr-defined]
        if own is None and wanted == "base":
            raise no_base(target.name)
        return own
    reference = _named(REFERENCE, wanted, config)
    if reference.fingerprint == target.fingerprint:
        raise ConfigError(
            f"the reference {wanted} has the same weights as the target {target.name}",
            fix="--reference names the model before fine-tuning",
        )
    return reference


def _control(
    config: FinetuneAudit, target: LogprobTarget, reference: LogprobTarget | None
) -> LogprobTarget | None:
    """The control model; it is neither of the others, for then it would show nothing new."""
    wanted = config.control_model
    if wanted is None:
        return None
    control = _named(CONTROL, wanted, config)
    if control.fingerprint == target.fingerprint:
        raise ConfigError(
            f"the control model {wanted} has the same weights as the target {target.name}",
            fix="train one on other records: unseen train control --not-in TARGET_RUN",
        )
    if reference is not None and control.fingerprint == reference.fingerprint:
        raise ConfigError(
            f"the control model {wanted} has the same weights as the reference {reference.name}",
            fix="leave out --control-model: attacks are repeated on the reference as it is",
        )
    return control


def _named(role: str, name: str, config: FinetuneAudit) -> LogprobTarget:
    """A model that stands beside the target: a model by its name, or that of a train run."""
    option = flag("control_model" if role == CONTROL else role)
    runs = runs_named(name)
    if len(runs) > 1:
        raise ConfigError(
            f"{name} holds {len(runs)} models", fix=f"name one: {option} {runs[0].path}"
        )
    with loading(SAID.get(role, role)):
        return _load(str(runs[0].model) if runs else name, config.model_copy(update=PLAIN))


SAID = {CONTROL: "control model"}
"""What messages call a role, where that is not its name."""

OTHER_TOKENS = "it has another tokenizer: likelihoods of whole texts are compared, not of tokens"
"""What is said of a reference that cuts texts in another way."""

OTHER_FORMAT = "it does not read records as the target does: it is no control of the same format"
"""What is said of a control model whose records are other token ids."""


def one_tokenizer(models: dict[str, Model], role: str = REFERENCE) -> bool:
    """Whether the target and the model in `role`, if there is one, cut texts into the same tokens."""
    prints = {models[r].encoder.tokenizer.fingerprint for r in (TARGET, role) if r in models}
    return len(prints) == 1


def one_format(models: dict[str, Model], role: str) -> bool:
    """Whether the model in `role` reads every record as the token ids that the target reads."""
    encoders = [models[r].encoder for r in (TARGET, role) if r in models]
    prints = {one.fingerprint for one in encoders if isinstance(one, RecordEncoder)}
    return len(prints) <= 1


def described(models: dict[str, Model], role: str) -> dict[str, str]:
    """What a run says of one of its models."""
    about = dict(models[role].target.describe())
    if role == REFERENCE and not one_tokenizer(models):
        about["tokens"] = OTHER_TOKENS
    if role == CONTROL and not one_format(models, CONTROL):
        about["format"] = OTHER_FORMAT
    return about


def _set_threads(config: AuditChoices) -> None:
    if config.threads is not None:
        need("torch", "hf").set_num_threads(config.threads)


def measure_lengths(records: tuple[Record, ...], encoder: Encoder) -> tuple[dict[str, int], int]:
    """Scored tokens of each record, 0 where it cannot be scored, and how many records were cut."""
    lengths: dict[str, int] = {}
    truncated = 0
    for record in records:
        try:
            encoded = encoder.encode(record)
        except UnscorableError:
            lengths[record.id] = 0
            continue
        lengths[record.id] = tokens_of(encoder.tokenizer, int(encoded.scored.sum()))
        truncated += encoded.truncated > 0
    return lengths, truncated
