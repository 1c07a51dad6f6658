"""Every choice of an audit of a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator

from unseen.prompts.trials import POSITIONS
from unseen.runs.config import AuditChoices, RowForm, as_list, made_of, named_places

_PLACES = (
    "template",
    "demos",
    "chat_template",
    "members",
    "nonmembers",
    "surrogate",
    "trained_from",
)


class PromptAudit(RowForm, AuditChoices):
    """Was this record among the demonstrations of the prompt that the model stands behind?"""

    model: str = Field(
        "",
        description="model folder, hub name, PEFT adapter folder, GGUF file, or fake/copies (a fake model "
        "that copies what it has just read)",
    )
    template: str | None = Field(
        None,
        description="how the prompt is written: trec, trec-paper, agnews, agnews-paper, dbpedia, "
        "dbpedia-paper, a text file with {demos} and {input}, or a YAML file of its parts",
    )
    demos: str | None = Field(
        None,
        description="file of labelled records, columns text and label: demonstrations, and whom they are "
        "told from, are drawn from it",
    )
    labels: tuple[str, ...] = Field(
        (), description="words that answer; default: the template's, or else those of --demos"
    )
    synonyms: tuple[str, ...] = Field(
        (),
        description="other words that an answer may use, label=word|word (in YAML and Python also a mapping)",
    )
    shots: tuple[int, ...] = Field(
        (1,), description="demonstrations of a prompt; the first is the main setting"
    )
    position: tuple[str, ...] = Field(
        ("last",),
        description="where the record in question stands: first, middle, last, random, or its number; the "
        "first is the main setting",
    )
    trials: int = Field(
        200, ge=2, le=1_000_000, description="prompts, each with a record in it and one that is not"
    )
    paired: bool = Field(
        default=False,
        description="ask about one record behind a prompt that holds it, and behind one that does not",
    )
    mode: Literal["text", "choice"] = Field(
        "text",
        description="how labels are read: from what the model writes, or as the likeliest of them",
    )
    chat: bool = Field(default=False, description="send the prompt as messages")
    as_turns: bool = Field(
        default=False, description="demonstrations as turns of a conversation; implies --chat"
    )
    chat_template: str = Field(
        "auto", description="auto, or a Jinja file: how messages become one text"
    )
    max_length: int | None = Field(
        None, ge=2, le=10**9, description="tokens; default: the model's limit"
    )
    observed_prompt: bool = Field(
        default=False,
        description="the prompt stands at the other end: nothing is put before what is sent, and --members "
        "and --nonmembers say who is in it",
    )
    members: str | None = Field(None, description="file of records that are in an observed prompt")
    nonmembers: str | None = Field(
        None, description="file of records of the same source that are not in it"
    )
    split_origin: Literal["unknown", "random", "temporal"] = Field(
        "unknown", description="how the records of an observed prompt were chosen"
    )
    near_duplicates: float = Field(
        0.8,
        gt=0,
        le=1,
        description="records of both sides of an observed prompt this similar (Jaccard) are dropped",
    )
    attacks: tuple[str, ...] = Field(
        ("default",), description="default, or names: gap, 'gap[longest=4]', … (unseen ls attacks)"
    )
    defenses: tuple[str, ...] = Field(
        (), description="defences that every setting is also audited with"
    )
    surrogate: str | None = Field(
        None,
        description="a public model of the adversary's own, for neighbor_deviation[perplexity=True]: how "
        "likely it finds what the target writes",
    )
    trained_from: str | None = Field(
        None,
        description="run folder of another audit of a prompt, or its learned.json: its attacks that learn are "
        "run again as they have learned there (neighbor_deviation[lent=True])",
    )
    control: Literal["k0", "none"] = Field(
        "k0",
        description="k0: the same questions behind the same prompt without demonstrations, as control",
    )
    max_requests: int | None = Field(
        None,
        ge=1,
        description="the most that is asked of the model, all attempts of the run together; refused at "
        "once where the plan is above it",
    )

    @field_validator("labels", "defenses", mode="before")
    @classmethod
    def _text_is_a_list(cls, value: Any) -> Any:
        return as_list(value)

    @field_validator("synonyms", mode="before")
    @classmethod
    def _synonyms_are_a_list(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return tuple(
                f"{label}={words if isinstance(words, str) else '|'.join(words)}"
                for label, words in value.items()
            )
        return as_list(value)

    @field_validator("synonyms")
    @classmethod
    def _spellings(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if any(not all(one.partition("=")[::2]) for one in given):
            msg = "expected label=word|word, for example Abbreviation=Ab|Abbr"
            raise ValueError(msg)
        return given

    @field_validator("shots", mode="before")
    @classmethod
    def _one_number_is_a_list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, int) else as_list(value)

    @field_validator("shots")
    @classmethod
    def _some_shots(cls, shots: tuple[int, ...]) -> tuple[int, ...]:
        if not shots or min(shots) < 1:
            msg = "expected numbers of at least 1, for example 1,4,16"
            raise ValueError(msg)
        return tuple(dict.fromkeys(shots))

    @field_validator("position", mode="before")
    @classmethod
    def _one_position_is_a_list(cls, value: Any) -> Any:
        if isinstance(value, int):
            return (str(value),)
        value = as_list(value)
        return tuple(map(str, value)) if isinstance(value, list | tuple) else value

    @field_validator("position")
    @classmethod
    def _some_positions(cls, position: tuple[str, ...]) -> tuple[str, ...]:
        known = [one in POSITIONS or (one.isdecimal() and int(one) > 0) for one in position]
        if not position or not all(known):
            msg = f"expected {', '.join(POSITIONS)}, or a number from 1"
            raise ValueError(msg)
        return tuple(dict.fromkeys(position))

    @field_validator(*_PLACES)
    @classmethod
    def _prompts_can_be_files(cls, place: Any) -> Any:
        return named_places(place)

    @property
    def spellings(self) -> dict[str, tuple[str, ...]]:
        """Label -> other words for it."""
        pairs = (one.split("=", 1) for one in self.synonyms)
        return {label: tuple(words.split("|")) for label, words in pairs}


def configure(**given: Any) -> PromptAudit:
    """A configuration from Python arguments.

    Raises:
        ConfigError: all faults at once, each with the field and what was expected.
    """
    return made_of(PromptAudit, given)
