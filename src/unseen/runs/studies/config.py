"""Every choice of a study: those of the audit or the training that it repeats, and its points."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from unseen.runs.config import FinetuneAudit, checked_path, split_list
from unseen.runs.training.config import TrainRun

_VALUES = "points of the study, instead of those of the paper, for example 1,5,20"
_OUT = "the study's folder; the same command again continues in it"


def _as_list(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(split_list(value))
    if isinstance(value, list | tuple):
        return tuple(map(str, value))
    return (str(value),) if isinstance(value, int | float) else value


class AttackStudy(FinetuneAudit):
    """A study of attacks on one model: audits that differ in the attacks, or in what they show."""

    values: tuple[str, ...] = Field((), description=_VALUES)
    out: Path | None = Field(None, description=_OUT)
    attacks: tuple[str, ...] = Field(
        (),
        description="attacks to study, where the study leaves a choice; default: those of the paper",
    )
    pretraining: str | None = Field(
        None,
        description="file of texts that the base model was trained on, for unseen study residual",
    )
    control: Literal["shared", "all", "none"] = Field(
        "none", description="attacks repeated on the reference as control"
    )

    @field_validator("values", mode="before")
    @classmethod
    def _values_are_a_list(cls, value: Any) -> Any:
        return _as_list(value)


class TrainStudy(TrainRun):
    """A study of training: models that are trained in several ways, and audited alike."""

    values: tuple[str, ...] = Field((), description=_VALUES)
    out: Path | None = Field(None, description=_OUT)
    attacks: tuple[str, ...] = Field(
        (), description="attacks on each model; default: those of the paper's table"
    )
    reference_pool: str | None = Field(
        None, description="file of demonstrations that nobody trained on, for icp_ref"
    )
    limit: int | None = Field(None, ge=1, le=10**9, description="records per side that are audited")
    fpr: tuple[float, ...] = Field(
        (0.01, 0.05, 0.1),
        description="false-positive rates at which the true-positive rate is reported",
    )
    bootstrap: int = Field(2000, ge=200, le=1_000_000, description="bootstrap draws")
    audit_dtype: str = Field(
        "auto", description="precision of the audits: auto, float32, bfloat16, …"
    )
    cache: bool = Field(default=True, description="keep answers, so that nothing is measured twice")
    preflight: bool = Field(
        default=True, description="first prove on a few records that the model's numbers are real"
    )

    @field_validator("values", "attacks", mode="before")
    @classmethod
    def _values_are_a_list(cls, value: Any) -> Any:
        return _as_list(value)

    @field_validator("reference_pool")
    @classmethod
    def _pool_can_be_a_path(cls, place: Any) -> Any:
        return checked_path(place)
