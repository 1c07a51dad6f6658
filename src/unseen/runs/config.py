"""Every choice of an audit, once: a flag, an environment variable, a YAML key and an argument.

`--near-duplicates 0.9`, `UNSEEN_NEAR_DUPLICATES=0.9`, `near_duplicates: 0.9` and
`near_duplicates=0.9` are the same field of the same model.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from unseen.errors import ConfigError, flag, short, suggestion
from unseen.runs.limits import parse

_HELP = "unseen audit finetune --help lists every option"
_PLACES = ("model", "adapter", "base_model", "tokenizer", "run_dir", "runs", "cache_dir")
_PLACES_OF_RECORDS = (
    "reference", "control_model", "shadow", "run_of", "members", "nonmembers", "nonmembers_apart", "data",
    "reference_pool", "corpus", "trained_from", "surrogate", "generator", "probes", "paraphrases", "directions",
)  # fmt: skip
APART = ("iid", "counterfactual", "future")
"""Kinds of non-members that can be judged apart."""

_LONGEST_NAME, _LONGEST_PATH = 255, 4000  # bytes that file systems take, characters of a whole path
_MANY = 12  # options, above which a message does not list them all
_COMMA = re.compile(r",(?![^\[]*\])")


class Choices(BaseModel):
    """Shared by everything that is configured: frozen, and no unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


C = TypeVar("C", bound=Choices)


class StatisticsChoices(Choices):
    """How scores become numbers."""

    fpr: tuple[float, ...] = Field(
        (0.001, 0.01, 0.05, 0.1),
        description="false-positive rates at which the true-positive rate is reported",
    )
    confidence: float = Field(0.95, gt=0.5, lt=1, description="coverage of every interval")
    bootstrap: int = Field(2000, ge=200, le=1_000_000, description="bootstrap draws")
    folds: int = Field(2, ge=2, le=20, description="folds for thresholds and choice of attack")
    seed: int = Field(0, ge=0, lt=2**32, description="of folds, bootstrap, masks and samples")

    @field_validator("fpr", mode="before")
    @classmethod
    def _one_rate_is_a_list(cls, fpr: Any) -> Any:
        return (fpr,) if isinstance(fpr, int | float) else fpr

    @field_validator("fpr")
    @classmethod
    def _rates(cls, fpr: tuple[float, ...]) -> tuple[float, ...]:
        if not fpr or any(not 0 < rate < 1 for rate in fpr):
            msg = "expected rates between 0 and 1, for example 0.01"
            raise ValueError(msg)
        return tuple(sorted(set(fpr)))


class RowForm(Choices):
    """What the columns of a file are."""

    format: Literal["auto", "text", "prompt-completion", "messages", "alpaca", "sharegpt"] = Field(
        "auto", description="form of the records"
    )
    column: tuple[str, ...] = Field((), description="role=column, for example text=body")

    @field_validator("column", mode="before")
    @classmethod
    def _columns_are_a_list(cls, value: Any) -> Any:
        if isinstance(value, Mapping):  # column: {text: body}
            return tuple(f"{role}={name}" for role, name in value.items())
        return as_list(value)

    @field_validator("column")
    @classmethod
    def _pairs(cls, column: tuple[str, ...]) -> tuple[str, ...]:
        for pair in column:
            role, equals, name = pair.partition("=")
            if not (role and equals and name):
                msg = "expected role=column, for example text=body"
                raise ValueError(msg)
        return column

    @property
    def columns(self) -> dict[str, str]:
        """Role -> the user's column."""
        return dict(pair.split("=", 1) for pair in self.column)


class RecordForm(RowForm):
    """How the rows of a file become records."""

    id_column: str | None = Field(None, description="column of record ids")
    cluster_by: str | None = Field(
        None, description="column (author, document, user) whose records are resampled together"
    )
    slice_by: tuple[str, ...] = Field((), description="columns to report results by")

    @field_validator("slice_by", mode="before")
    @classmethod
    def _groups_are_a_list(cls, value: Any) -> Any:
        return as_list(value)

    @property
    def reading(self) -> dict[str, Any]:
        """These choices as what reads records takes them (`Records.from_files`, `read_source`)."""
        return {
            "format": self.format,
            "column": self.columns,
            "id_column": self.id_column,
            "cluster_by": self.cluster_by,
            "slice_by": self.slice_by,
        }


class LayoutChoices(Choices):
    """How a record becomes token ids, and which of them count."""

    template: str = Field(
        "auto", description="auto, chat, plain, or a Jinja file: how records become one text"
    )
    loss_on: Literal["completion", "assistant", "all"] = Field(
        "completion", description="which tokens count"
    )
    end_of_turn: Literal["exclude", "include"] = Field(
        "exclude", description="whether the token that ends a scored turn counts"
    )
    truncation: Literal["right", "left"] = Field(
        "right", description="which end of a record is cut where it is too long"
    )
    max_length: int | None = Field(
        None, ge=2, le=10**9, description="tokens; default: the model's limit"
    )

    @field_validator("template")
    @classmethod
    def _can_be_a_file(cls, template: str) -> str:
        return str(checked_path(template))


def as_list(value: Any) -> Any:
    """The items where a list is written on one line; anything else as it is."""
    return tuple(split_list(value)) if isinstance(value, str) else value


def checked_path(place: Any) -> Any:
    """A name, if a file can have it.

    Raises:
        ValueError: where it cannot.
    """
    name = str(place)
    longest = max(len(os.fsencode(part)) for part in name.split("/"))
    if "\0" in name or longest > _LONGEST_NAME or len(name) > _LONGEST_PATH:
        msg = "expected a name that a file can have: it is too long, or has a NUL in it"
        raise ValueError(msg)
    return place


def named_places(place: Any) -> Any:
    """A name, or several, that files can have; None where there is none.

    Raises:
        ValueError: where one cannot be that of a file, or is empty.
    """
    for one in place if isinstance(place, tuple) else (place,):
        checked_path(one)
        if one == "":
            msg = "expected a name, or leave it out"
            raise ValueError(msg)
    return place


class EndpointChoices(Choices):
    """How a model behind an endpoint is asked: openai/NAME."""

    base_url: str | None = Field(
        None,
        description="where the endpoint of openai/NAME is, up to /v1; default: OPENAI_BASE_URL, or else "
        "OpenAI's own",
    )
    api: Literal["chat", "completions"] = Field(
        "chat",
        description="what the endpoint is sent: chat (messages), or completions (one text to go on with)",
    )
    api_key_env: str = Field(
        "OPENAI_API_KEY", description="environment variable that holds the endpoint's key"
    )
    concurrency: int = Field(
        8,
        ge=1,
        le=1024,
        description="requests under way at once, at most; fewer where it complains",
    )
    rpm: float | None = Field(
        None, gt=0, description="requests a minute, at most, of each endpoint; evenly spread"
    )
    timeout: float = Field(
        60.0, gt=0, le=86_400, description="seconds after which an answer is given up"
    )
    max_retries: int = Field(
        5,
        ge=0,
        le=100,
        description="times that a request is sent again after a fault that may pass",
    )
    max_requests: int | None = Field(
        None,
        ge=1,
        description="requests to endpoints, those that are sent again included: all attempts of a run "
        "together; more than the plan needs is refused at once",
    )
    price: tuple[float, ...] = Field(
        (),
        description="US dollars per million tokens that endpoints read, and that they write: 0.15,0.60",
    )
    max_cost: float | None = Field(
        None,
        gt=0,
        description="US dollars, by --price, from which on endpoints are sent nothing: all attempts of a "
        "run together",
    )


ENDPOINT = tuple(EndpointChoices.model_fields)
"""What is said of an endpoint, and of no other model."""


class AuditChoices(EndpointChoices, StatisticsChoices):
    """What every audit has: a model, attacks, limits and a run folder."""

    model: str = Field(
        "",
        description="model folder, hub name, PEFT adapter folder, GGUF file, openai/NAME (a model behind "
        "an endpoint), or fake/FILE (a fake model that memorised the records of FILE)",
    )
    adapter: str | None = Field(None, description="PEFT adapter folder to put on the model")
    base_model: str | None = Field(
        None, description="an adapter's base, if not where its configuration says"
    )
    revision: str | None = Field(None, description="of a hub name")
    tokenizer: str | None = Field(None, description="if it is not beside the model")
    dtype: str = Field("auto", description="auto, float32, bfloat16, float16")
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, …")
    attn_implementation: str | None = Field(None, description="as in transformers")
    trust_remote_code: bool = Field(default=False, description="run code that comes with the model")
    access: Literal["auto", "text", "label", "logprob", "logit", "weights"] = Field(
        "auto", description="the most that attacks may use of the model"
    )
    attacks: tuple[str, ...] = Field(
        ("default",), description="default, or names: loss, 'min_k[k=0.1]', … (unseen ls attacks)"
    )
    preflight: bool = Field(
        default=True, description="first prove on a few records that the model's numbers are real"
    )
    release_context: Literal["unknown", "internal", "public-api", "open-weights"] = Field(
        "unknown", description="who will get the model: for the report"
    )
    gate: tuple[str, ...] = Field(
        (),
        description="limits that the audit is held against, METRIC=VALUE: auc=0.6, "
        "tpr@fpr=0.01=0.05, advantage=0.1, headline=0.1 (in YAML and Python also a mapping)",
    )

    run_dir: Path | None = Field(None, description="the run folder; default: a new one in --runs")
    runs: Path = Field(Path("runs"), description="where run folders are made")
    cache_dir: Path | None = Field(None, description="where answers and converted models are kept")
    cache: bool = Field(default=True, description="keep answers, so that nothing is measured twice")
    offline: bool = Field(default=False, description="never ask the hub")
    reveal: bool = Field(default=False, description="write the records' text into the run folder")
    keep_tokens: bool = Field(
        default=False,
        description="keep log-probabilities of single tokens in the run folder, so that unseen "
        "score can add attacks; with the model, a reader could spell the records out from them",
    )
    batch_tokens: int | None = Field(None, ge=1, le=10**9, description="padded tokens a batch")
    threads: int | None = Field(None, ge=1, le=4096, description="CPU threads")

    @field_validator(*_PLACES)
    @classmethod
    def _can_be_a_path(cls, place: Any, info: ValidationInfo) -> Any:
        # The model may be an object, and then has no name.
        return place if info.field_name == "model" and place == "" else named_places(place)

    @field_validator("attacks", mode="before")
    @classmethod
    def _attacks_have_names(cls, value: Any) -> Any:
        """In Python an attack may be one itself: what is kept is how it is typed."""
        from unseen.attacks import label
        from unseen.attacks.base import Attack

        given = (value,) if isinstance(value, Attack) else value
        if not isinstance(given, Sequence) or isinstance(given, str):
            return as_list(given)
        return tuple(label(one) if isinstance(one, Attack) else one for one in given)

    @field_validator("gate", mode="before")
    @classmethod
    def _limits(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return tuple(f"{name}={limit}" for name, limit in value.items())
        return as_list(value)

    @field_validator("gate")
    @classmethod
    def _limits_that_can_be_read(cls, gate: tuple[str, ...]) -> tuple[str, ...]:
        try:
            parse(gate)
        except ConfigError as error:
            raise ValueError(error.problem.removeprefix("the gate is wrong: ")) from error
        return gate


class FinetuneAudit(LayoutChoices, RecordForm, AuditChoices):
    """Was this record in the data that the model was fine-tuned on?"""

    reference: str = Field(
        "auto",
        description="model to compare with and control by: base (of an adapter), none, a model, or a "
        "folder of unseen train reference; "
        "auto is base where there is an adapter",
    )
    control_model: str | None = Field(
        None,
        description="model of the target's format that was trained on other records, to repeat every "
        "attack on that can be: a model, or a folder of unseen train control",
    )
    shadow: tuple[str, ...] = Field(
        (),
        description="models trained as the target was, on other records, for lira and rmia: MODEL, "
        "or MODEL=FILE with the file of its training records, or a folder of unseen train shadow, "
        "which knows them; else no audited record is taken to be among them",
    )
    surrogate: str | None = Field(
        None,
        description="model whose log-probabilities stand in where the target tells its first choices "
        "alone, for petal; default: the reference",
    )
    generator: str | None = Field(
        None,
        description="model that writes variants of the responses, for icp_sp[source=generate]; "
        "default: the reference",
    )

    run_of: str | None = Field(
        None,
        description="a run of unseen train: model, base, records, who is a member, and template are "
        "taken from it",
    )
    members: str | None = Field(None, description="file of training records")
    nonmembers: str | None = Field(None, description="file of held-out records, same source")
    nonmember_kind: Literal["iid", "counterfactual", "future", "unknown"] = Field(
        "unknown",
        description="what the non-members are: iid (held out from the members' own source), "
        "counterfactual (answers that are not true), future (about what came later)",
    )
    nonmembers_apart: tuple[str, ...] = Field(
        (),
        description="further non-members, KIND=FILE, judged apart from the others: iid, "
        "counterfactual or future (in YAML and Python also a mapping)",
    )
    data: str | None = Field(None, description="one file with both, and --label-column")
    label_column: str | None = Field(None, description="column that says member or non-member")
    corpus: str | None = Field(
        None,
        description="file of texts like those that the model was pre-trained on, for dc_pdd; "
        "default: the texts of --reference-pool",
    )
    reference_pool: str | None = Field(
        None, description="file of demonstrations that nobody trained on, for icp_ref"
    )
    probes: str | None = Field(
        None,
        description="file of other responses to the records, for icp_sp[source=file]: columns id and "
        "probes (a list), or id and probe",
    )
    paraphrases: str | None = Field(
        None,
        description="file of the records' prompts in other words, for g_drift_stability: columns id and "
        "paraphrases (a list), or id and paraphrase",
    )
    directions: str | None = Field(
        None,
        description="file of directions to project states onto, for g_drift[axis=given]: .npy, "
        ".safetensors (FILE#TENSOR), .csv or .jsonl, a row a direction",
    )
    limit: int | None = Field(None, ge=1, le=10**9, description="records per side, drawn at random")
    near_duplicates: float = Field(
        0.8, gt=0, le=1, description="records of both sides this similar (Jaccard) are dropped"
    )
    trained_from: str | None = Field(
        None,
        description="run folder of another audit, or its learned.json: the attack transferred weighs "
        "scores as its fusion has learned to",
    )
    split_origin: Literal["unknown", "random", "temporal"] = Field(
        "unknown", description="how the non-members were held out"
    )
    control: Literal["shared", "all", "none"] = Field(
        "shared",
        description="attacks repeated on the reference as control: those that cost nothing more, "
        "all, or none (on --control-model: all, or none)",
    )

    @field_validator("shadow", mode="before")
    @classmethod
    def _shadows_are_a_list(cls, value: Any) -> Any:
        return as_list(value)

    @field_validator(*_PLACES_OF_RECORDS)
    @classmethod
    def _records_can_be_files(cls, place: Any) -> Any:
        return named_places(place)

    @field_validator("nonmembers_apart", mode="before")
    @classmethod
    def _sets(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return tuple(f"{kind}={file}" for kind, file in value.items())
        return as_list(value)

    @field_validator("nonmembers_apart")
    @classmethod
    def _sets_of_one_kind(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        kinds = [one.partition("=")[0] for one in given]
        if any(
            kind not in APART or not one.partition("=")[2]
            for kind, one in zip(kinds, given, strict=True)
        ):
            msg = f"expected KIND=FILE, KIND one of {', '.join(APART)}"
            raise ValueError(msg)
        if len(set(kinds)) < len(kinds):
            msg = "expected each kind once: put its records into one file"
            raise ValueError(msg)
        return given

    @property
    def apart(self) -> dict[str, str]:
        """Kind -> file of the non-members that are judged apart."""
        return dict(one.split("=", 1) for one in self.nonmembers_apart)


class ChoicesError(ConfigError):
    """Choices that are refused, all of them at once.

    Args:
        faults: name of the field, and what is wrong with its value.
        fix: what the user can type or change.
    """

    def __init__(self, faults: Sequence[tuple[str, str]], *, fix: str) -> None:
        lines = [f"{name}: {problem}" if name else problem for name, problem in faults]
        super().__init__("; ".join(lines), fix=fix)
        self.faults = tuple(faults)


def unread(name: str, *readers: str) -> ConfigError:
    """The refusal of a choice that some attacks read, none of which is run.

    Args:
        name: of the choice.
        readers: the attacks, as --attacks reads them.
    """
    none = "which is not" if len(readers) == 1 else "none of which is"
    return ConfigError(
        f"{flag(name)} is read by {' and '.join(readers)}, {none} among the attacks",
        fix=f"leave out {flag(name)}, or add --attacks {shlex.quote(','.join(readers))}",
    )


def split_list(text: str) -> list[str]:
    """The items of a list as it is written on one line; commas in brackets divide nothing.

    >>> split_list("loss, min_k[k=0.1,x=2]")
    ['loss', 'min_k[k=0.1,x=2]']
    """
    return [item for item in map(str.strip, _COMMA.split(text)) if item] or [text.strip()]


AUTO = "auto"
"""The attack of a canary audit is chosen before any score is seen."""


class CanaryAudit(FinetuneAudit):
    """What a model gives away about canaries, which coins have put into its training data."""

    key: str = Field("", description="the key of the canaries, of unseen canary make")
    delta: float = Field(1e-5, ge=0, lt=1, description="of the (epsilon, delta) that is bounded")
    guesses: int | None = Field(
        None,
        ge=2,
        description="canaries to guess in or out, fixed before looking; default: 5, 20, 50 and "
        "100 per cent of them, and the bound pays for four looks",
    )
    attacks: tuple[str, ...] = Field(
        (AUTO,),
        description="auto (reference where there is one, else loss), or names; the bound pays for "
        "every further one",
    )
    near_duplicates: float = Field(1.0, gt=0, le=1, description="canaries are never dropped")


def configure(**given: Any) -> FinetuneAudit:
    """A configuration from Python arguments.

    Raises:
        ConfigError: all faults at once, each with the field and what was expected.
    """
    return made_of(FinetuneAudit, given)


def configure_statistics(**given: Any) -> StatisticsChoices:
    """How scores become numbers, from Python arguments.

    Raises:
        ConfigError: all faults at once; there is no other option than those of `StatisticsChoices`.
    """
    return made_of(StatisticsChoices, given)


def made_of(kind: type[C], given: Mapping[str, Any]) -> C:
    """Choices of one kind.

    Raises:
        ConfigError: all faults at once, each with the field and what was expected.
    """
    try:
        return kind(**given)
    except ValidationError as error:
        raise explained(error, None if issubclass(kind, FinetuneAudit) else kind) from error


def explained(error: ValidationError, kind: type[Choices] | None = None) -> ChoicesError:
    """What pydantic found, in the words of the command line."""
    known = (kind or FinetuneAudit).model_fields
    faults: list[tuple[str, str]] = []
    for fault in error.errors(include_url=False, include_context=False):
        name = str(fault["loc"][0]) if fault["loc"] else ""
        if fault["type"] == "extra_forbidden":
            what = f"there is no such option; {suggestion(name, known)}"
        else:
            expected = fault["msg"].removeprefix("Value error, ").partition(", unable to")[0]
            expected = expected.replace("Input should be", "expected", 1)
            what = f"got {_as_written(fault['input'])}, {expected[:1].lower()}{expected[1:]}"
        faults.append((short(name), what))
    if kind is None:
        fix = _HELP
    elif len(known) > _MANY:
        fix = f"help(unseen.{kind.__name__}) lists every option"
    else:
        fix = f"give only {', '.join(known)}"
    return ChoicesError(faults, fix=fix)


def _as_written(value: Any) -> str:
    """A value as the user wrote it, or nearly so."""
    if isinstance(value, list | tuple):
        return ",".join(_as_written(one) for one in value[:12]) or "nothing"
    if isinstance(value, str):
        return repr(short(value))
    if value is None or isinstance(value, bool | int | float):
        return short(str(value))
    return f"a {type(value).__name__}"
