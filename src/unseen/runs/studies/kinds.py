"""What the studies are: which points each has, and what differs between them.

A study is a question about one number, asked at several points: probes per record, epsilon of the
training. Each point is a row: what is changed for it in the training, in the audit, or in the
attacks, and nothing else is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unseen.attacks import create, label
from unseen.errors import ConfigError, flag

if TYPE_CHECKING:
    from unseen.runs.studies.config import AttackStudy, TrainStudy

BEST_KNOWN = ("loss", "zlib", "min_k", "min_k_pp", "recall", "reference", "icp_sp")
"""Attacks of Tables IV and V of ICP-MIA."""


@dataclass(frozen=True)
class Point:
    """One row of a study.

    Attributes:
        name: what is shown.
        x: its place on the axis; None where there is no order.
        columns: column -> the attack that is run for it.
        training: choices that are changed in the training.
        audit: choices that are changed in the audit.
        members_of: a group of the members (column and value), where only that is compared with the
            non-members.
        mixed: share of the non-members that are replaced by pre-training texts.
    """

    name: str
    x: float | None
    columns: Mapping[str, str]
    training: Mapping[str, Any] = field(default_factory=dict)
    audit: Mapping[str, Any] = field(default_factory=dict)
    members_of: tuple[str, str] | None = None
    mixed: float = 0.0


@dataclass(frozen=True)
class Study:
    """A question, and the points at which it is asked.

    Attributes:
        title: the question.
        axis: what differs between the points.
        paper: where the paper answers it.
        values: points by default, as a user would type them.
        points: the rows for some values.
        trains: whether models are trained for it.
    """

    title: str
    axis: str
    paper: str
    values: tuple[str, ...]
    points: Callable[[Sequence[str], Any], list[Point]]
    trains: bool = False


def _number(study: str, text: str, *, least: float, most: float, whole: bool = False) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most or (whole and value != int(value)):
        kind = "a whole number" if whole else "a number"
        raise ConfigError(
            f"--values of {study} takes {kind} from {least:g} to {most:g}, got {text!r}",
            fix=f"unseen study {study} --values {','.join(STUDIES[study].values)}",
        )
    return value


def _spec(base: str, **fields: Any) -> str:
    """An attack with some fields set, beside those that its spec has."""
    attack = create(base)
    inside = base.partition("[")[2].removesuffix("]")
    given = dict(pair.split("=", 1) for pair in inside.split(",") if "=" in pair)
    pairs = given | {name: str(value) for name, value in fields.items()}
    name = base.partition("[")[0]
    made = create(f"{name}[{','.join(f'{k}={v}' for k, v in pairs.items())}]")
    if type(made) is not type(attack):  # one file, one class: cannot be
        raise AssertionError(name)
    return label(made)


def _probing(config: AttackStudy) -> list[str]:
    """The probing attacks to study: those named, or both, if there is a pool for the second."""
    if config.attacks:
        return list(config.attacks)
    return ["icp_sp", *(["icp_ref"] if config.reference_pool else [])]


def _masking(config: AttackStudy) -> list[str]:
    return list(config.attacks) or ["icp_sp"]


def _probes(values: Sequence[str], config: AttackStudy) -> list[Point]:
    numbers = [int(_number("probes", v, least=1, most=1000, whole=True)) for v in values]
    return [
        Point(f"K = {k}", k, {base: _spec(base, probes=k) for base in _probing(config)})
        for k in numbers
    ]


def _mask_rate(values: Sequence[str], config: AttackStudy) -> list[Point]:
    rates = [_number("mask-rate", v, least=0.01, most=1) for v in values]
    return [
        Point(f"{100 * rate:g}%", rate, {base: _spec(base, rate=rate) for base in _masking(config)})
        for rate in rates
    ]


_STRATEGIES = ("random", "min_k", "max_k")


def _strategy(values: Sequence[str], config: AttackStudy) -> list[Point]:
    for value in values:
        if value not in _STRATEGIES:
            raise ConfigError(
                f"--values of masking takes {', '.join(_STRATEGIES)}, got {value!r}",
                fix=f"unseen study masking --values {','.join(_STRATEGIES)}",
            )
    return [
        Point(
            value,
            None,
            {f"{base}, {level}s": _spec(base, strategy=value, level=level)
             for base in _masking(config) for level in ("word", "token")},
        )
        for value in values
    ]  # fmt: skip


_SOURCES = {
    "mask": ("icp_sp", ""),
    "generate": ("icp_sp[source=generate]", ""),
    "file": ("icp_sp[source=file]", "probes"),
    "ref": ("icp_ref", "reference_pool"),
}


def _sources(values: Sequence[str], config: AttackStudy) -> list[Point]:
    points = []
    for value in values:
        if value not in _SOURCES:
            raise ConfigError(
                f"--values of sources takes {', '.join(_SOURCES)}, got {value!r}",
                fix="unseen study sources --values mask,ref",
            )
        spec, needs = _SOURCES[value]
        if needs and not getattr(config, needs, None):
            raise ConfigError(f"the source {value} needs a file", fix=f"{flag(needs)} FILE")
        points.append(Point(value, None, {"icp": spec}))
    return points


def _pools(values: Sequence[str], config: AttackStudy) -> list[Point]:
    given = values or ((config.reference_pool,) if config.reference_pool else ())
    if not given:
        raise ConfigError(
            "no reference pools are named", fix="unseen study pools --values one.jsonl,other.jsonl"
        )
    base = list(config.attacks) or ["icp_ref"]
    return [
        Point(Path(pool).name, None, {one: one for one in base}, audit={"reference_pool": pool})
        for pool in given
    ]


def _tabled(config: TrainStudy) -> dict[str, str]:
    """The attacks of a table about trainings."""
    names = config.attacks or (*BEST_KNOWN, *(["icp_ref"] if config.reference_pool else []))
    return {label(create(name)): label(create(name)) for name in names}


_METHODS: Mapping[str, Mapping[str, Any]] = {
    "full": {"method": "full"},
    "lora-32": {"method": "lora", "lora_rank": 32, "lora_alpha": 64.0},
    "lora-64": {"method": "lora", "lora_rank": 64, "lora_alpha": 128.0},
    "qlora-4bit": {"method": "qlora", "lora_rank": 64, "lora_alpha": 128.0, "bits": 4},
    "qlora-8bit": {"method": "qlora", "lora_rank": 64, "lora_alpha": 128.0, "bits": 8},
    "prefix": {"method": "prefix"},
    "prompt": {"method": "prompt"},
    "ia3": {"method": "ia3"},
}


def _peft(values: Sequence[str], config: TrainStudy) -> list[Point]:
    for value in values:
        if value not in _METHODS:
            raise ConfigError(
                f"--values of peft takes {', '.join(_METHODS)}, got {value!r}",
                fix="unseen study peft --values full,lora-32",
            )
    return [Point(v, None, _tabled(config), training=_METHODS[v]) for v in values]


def _epsilon(values: Sequence[str], config: TrainStudy) -> list[Point]:
    points = []
    for value in values:
        if value == "none":
            points.append(Point("none", None, _tabled(config)))
            continue
        epsilon = _number("epsilon", value, least=0.01, most=1000)
        training: dict[str, Any] = {"epsilon": epsilon}
        if "accountant" not in config.model_fields_set:
            training["accountant"] = "rdp"  # where epsilon is large, the other takes minutes
        points.append(Point(f"ε = {epsilon:g}", epsilon, _tabled(config), training=training))
    return points


def _epochs(values: Sequence[str], config: TrainStudy) -> list[Point]:
    numbers = [int(_number("epochs", v, least=1, most=1000, whole=True)) for v in values]
    return [Point(str(n), n, _tabled(config), training={"epochs": n}) for n in numbers]


_SCHEDULES = ("constant", "cosine")


def _order(values: Sequence[str], config: TrainStudy) -> list[Point]:
    if len(values) != 1:
        raise ConfigError(
            "--values of order takes one number, that of the partitions",
            fix="unseen study order --values 10",
        )
    n = int(_number("order", values[0], least=2, most=1000, whole=True))
    width = len(str(n))
    attacks = config.attacks or ("loss", "icp_sp")
    return [
        Point(
            str(at + 1),
            at + 1,
            {f"{label(create(name))}, {schedule}": label(create(name)) for name in attacks},
            training={"partitions": n, "schedule": schedule},
            members_of=("partition", f"{at + 1:0{width}d} of {n}"),
        )
        for schedule in _SCHEDULES
        for at in range(n)
    ]


def _residual(values: Sequence[str], config: AttackStudy) -> list[Point]:
    if not config.pretraining:
        raise ConfigError(
            "no pre-training texts are named", fix="unseen study residual --pretraining FILE"
        )
    names = config.attacks or ("loss", "min_k", "icp_sp")
    return [
        Point(
            f"{100 * share:g}%",
            share,
            {label(create(n)): label(create(n)) for n in names},
            mixed=share,
        )
        for share in (_number("residual", v, least=0, most=1) for v in values)
    ]


STUDIES: Mapping[str, Study] = {
    "probes": Study(
        "How many probes does in-context probing need?",
        "probes per record, K",
        "ICP-MIA, section VI-G and Figure 11",
        ("1", "5", "10", "15", "20", "50"),
        _probes,
    ),
    "mask-rate": Study(
        "How much of a response should a probe mask?",
        "share of the response that is masked",
        "ICP-MIA, section VI-C and Figure 7",
        ("0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1"),
        _mask_rate,
    ),
    "masking": Study(
        "Which tokens should a probe mask?",
        "masking strategy",
        "ICP-MIA, section VI-C and Figure 6",
        _STRATEGIES,
        _strategy,
    ),
    "sources": Study(
        "Where should probes come from?",
        "source of the probes",
        "ICP-MIA, sections V-B and VI-D, Table II",
        ("mask", "generate"),
        _sources,
    ),
    "pools": Study(
        "How much does the reference pool matter?",
        "reference pool",
        "ICP-MIA, section VI-E and Table III",
        (),
        _pools,
    ),
    "residual": Study(
        "What if the base model had seen the non-members?",
        "share of the non-members that are pre-training texts",
        "ICP-MIA, section VII-B",
        ("0", "0.25", "0.5", "0.75", "1"),
        _residual,
    ),
    "peft": Study(
        "Does parameter-efficient fine-tuning leak less?",
        "method of fine-tuning",
        "ICP-MIA, section VI-F and Table IV",
        ("full", "lora-32", "lora-64"),
        _peft,
        trains=True,
    ),
    "epsilon": Study(
        "Does differential privacy protect?",
        "epsilon of DP-SGD",
        "ICP-MIA, section VI-H and Table V",
        ("10", "50", "100", "none"),
        _epsilon,
        trains=True,
    ),
    "epochs": Study(
        "How does leakage grow with training?",
        "epochs",
        "ICP-MIA, section IV-A",
        ("1", "2", "3"),
        _epochs,
        trains=True,
    ),
    "order": Study(
        "Are records that were seen late more exposed?",
        "place in the training order",
        "ICP-MIA, section VII-C and Figure 12",
        ("10",),
        _order,
        trains=True,
    ),
}
