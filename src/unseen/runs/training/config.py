"""Every choice of a training, once: a flag of `unseen train`, a variable, a YAML key, an argument.

The fields of a `Recipe` are taken from it, with what its docstring says of them: a new field there is
an option here.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints

from pydantic import Field, ValidationInfo, create_model, field_validator

from unseen.errors import ConfigError
from unseen.runs.config import Choices, LayoutChoices, RecordForm, checked_path, made_of, split_list
from unseen.training.recipe import Privacy, Recipe

Role = Literal["target", "reference", "shadow", "control"]
"""What a trained model is for."""

READ_BY: dict[str, tuple[Role, ...]] = {
    "not_in": ("reference", "shadow", "control"),
    "near_duplicates": ("reference", "shadow", "control"),
    "self_prompt_of": ("reference",),
    "prompt_tokens": ("reference",),
    "text_tokens": ("reference",),
    "count": ("shadow",),
}
"""Choices that not every role reads -> the roles that do."""

NEEDED_FOR = {
    "near_duplicates": "not_in",
    "prompt_tokens": "self_prompt_of",
    "text_tokens": "self_prompt_of",
}
"""Choices that say something of another one, and nothing without it."""

_NAMES = re.compile(r"[\w.\-]+(\s*,\s*[\w.\-]+)+")


def said_of_fields(kind: type) -> dict[str, str]:
    """Field -> what the docstring of a dataclass says of it, on one line."""
    doc = inspect.getdoc(kind) or ""
    attributes = doc.partition("Attributes:\n")[2]
    found = re.findall(r"^    (\w+): ((?:.+\n?)(?:^     +.+\n?)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()).rstrip(".") for name, text in found}


def _fields(kind: type, names: tuple[str, ...]) -> dict[str, Any]:
    said, kinds = said_of_fields(kind), get_type_hints(kind)
    return {
        field.name: (kinds[field.name], Field(field.default, description=said.get(field.name)))
        for field in dataclasses.fields(kind)
        if field.name in names
    }


_PRIVACY = "privacy"
_OF_RECIPE = tuple(f.name for f in dataclasses.fields(Recipe) if f.name != _PRIVACY)
# What both have is one option; without a seed, draws and noise come from the system.
_OF_PRIVACY = tuple(f.name for f in dataclasses.fields(Privacy) if f.name not in _OF_RECIPE)
_SHARED = ("max_grad_norm",)
RECIPE = (*_OF_RECIPE, *_OF_PRIVACY)
"""Names of the choices that make the recipe."""

if TYPE_CHECKING:

    class _RecipeChoices(Choices):
        """The fields of `Recipe`."""

else:
    _RecipeChoices = create_model(
        "_RecipeChoices",
        __base__=Choices,
        **_fields(Recipe, _OF_RECIPE),
        **_fields(Privacy, _OF_PRIVACY),
    )


class TrainRun(_RecipeChoices, LayoutChoices, RecordForm):
    """A training: base model, records, recipe, and where it goes."""

    end_of_turn: Literal["exclude", "include"] = Field(
        "include", description="whether the token that ends a response is learned"
    )

    model: str = Field("", description="the base: model folder, hub name, or GGUF file")
    revision: str | None = Field(None, description="of a hub name")
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, …")
    attn_implementation: str | None = Field(None, description="as in transformers")
    trust_remote_code: bool = Field(default=False, description="run code that comes with the model")

    data: str | None = Field(
        None, description="file of records, of which a random part is trained on"
    )
    members: str | None = Field(None, description="file of records, all of which are trained on")
    nonmembers: str | None = Field(None, description="file of records that are held out")
    share: float = Field(0.5, gt=0, lt=1, description="part of --data that is trained on")
    n: int | None = Field(
        None, ge=1, le=10**9, description="records that are trained on, instead of --share"
    )
    held_out: int | None = Field(
        None, ge=1, le=10**9, description="records of --data held out; default: all others"
    )
    not_in: tuple[str, ...] = Field(
        (),
        description="not for a target: train runs none of whose records, trained on or held out, may be used",
    )
    like: str | None = Field(
        None,
        description="a train run whose base, recipe, template and number of records are taken over; "
        "default: the first of --not-in",
    )
    self_prompt_of: str | None = Field(
        None,
        description="for a reference: a model whose own texts are learned (SPV-MIA), after the "
        "beginnings of the records of --data; how many: --n",
    )
    prompt_tokens: int = Field(
        16, ge=1, le=10_000, description="tokens of a document that --self-prompt-of goes on from"
    )
    text_tokens: int = Field(
        128, ge=1, le=100_000, description="the most tokens that --self-prompt-of writes of a text"
    )
    near_duplicates: float = Field(
        0.8, gt=0, le=1, description="records this similar (Jaccard) to those of --not-in are out"
    )
    partitions: int = Field(
        1, ge=1, le=1000, description="fixed parts of the records, seen one after the other"
    )
    count: int = Field(
        1, ge=1, le=10_000, description="for shadows: how many, each on its own half"
    )

    out: Path | None = Field(None, description="the train run's folder")
    keep_epochs: bool = Field(default=False, description="keep the model after each epoch")
    save_every: int | None = Field(
        None, ge=1, description="steps between checkpoints, beside those of time and epochs"
    )
    save_minutes: float = Field(10.0, gt=0, description="minutes between checkpoints")
    cache_dir: Path | None = Field(
        None,
        description="where converted models are kept, and the texts of --self-prompt-of (private)",
    )
    offline: bool = Field(default=False, description="never ask the hub")
    threads: int | None = Field(None, ge=1, le=4096, description="CPU threads")

    @field_validator("not_in", mode="before")
    @classmethod
    def _runs_are_a_list(cls, value: Any) -> Any:
        if isinstance(value, str | Path):
            return tuple(split_list(str(value)))
        return tuple(map(str, value)) if isinstance(value, list | tuple) else value

    @field_validator("model", "data", "members", "nonmembers", "like", "out", "cache_dir")
    @classmethod
    def _can_be_a_path(cls, place: Any) -> Any:
        return checked_path(place)

    @field_validator(*_OF_RECIPE)
    @classmethod
    def _as_a_recipe_takes_it(cls, value: Any, info: ValidationInfo) -> Any:
        name = info.field_name or ""
        if isinstance(value, str) and name == "lora_targets" and _NAMES.fullmatch(value):
            value = tuple(split_list(value))
        try:
            Recipe(**{name: value})
        except ConfigError as error:
            raise ValueError(error.problem.partition(", ")[2] or error.problem) from error
        return value

    @field_validator(*_OF_PRIVACY)
    @classmethod
    def _as_privacy_takes_it(cls, value: Any, info: ValidationInfo) -> Any:
        name = info.field_name or ""
        if value is not None:
            one: dict[str, Any] = {name: value}
            if name not in ("epsilon", "noise_multiplier"):
                one["noise_multiplier"] = 1.0
            try:
                Privacy(**one)
            except ConfigError as error:
                raise ValueError(error.problem.partition(", ")[2] or error.problem) from error
        return value

    def written(self) -> dict[str, Any]:
        """The choices as a YAML file has them; those without effect are left out."""
        idle = {"share"} if self.n is not None or self.members is not None else set()
        dumped = self.model_dump(mode="json", exclude_none=True, exclude=idle)
        return dumped | {
            name: ",".join(value)
            for name, value in dumped.items()
            if name in _OF_RECIPE and isinstance(value, list)
        }

    @property
    def recipe(self) -> Recipe:
        """How the model is fine-tuned.

        Raises:
            ConfigError: where choices do not go together.
        """
        given = {name: getattr(self, name) for name in _OF_RECIPE}
        of_privacy = {name: getattr(self, name) for name in _OF_PRIVACY}
        usual = {field.name: field.default for field in dataclasses.fields(Privacy)}
        private = [name for name in _OF_PRIVACY if of_privacy[name] != usual[name]]
        if not private:
            return Recipe(**given)
        shared = {name: given[name] for name in _SHARED}
        return Recipe(**given, privacy=Privacy(**of_privacy, **shared))


def roles() -> tuple[Role, ...]:
    """What there is to train."""
    return get_args(Role)


def configure(**given: Any) -> TrainRun:
    """Choices from Python arguments.

    Raises:
        ConfigError: all faults at once, each with the field and what was expected.
    """
    return made_of(TrainRun, given)
