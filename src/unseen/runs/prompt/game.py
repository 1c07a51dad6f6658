"""What is audited, as a Python user says it: a prompt, and how its demonstrations are drawn."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from unseen.prompts.templates import PromptTemplate

if TYPE_CHECKING:
    from unseen.runs.prompt.demos import Given


@dataclass(frozen=True)
class PromptGame:
    """A prompt whose demonstrations are drawn by coin.

    Attributes:
        template: how it is written: a name ("trec"), a file with {demos} and {input}, or a template.
        demos: labelled records that demonstrations, and whom they are told from, are drawn from: a file
            with columns text and label, or pairs, mappings or records.
        shots: demonstrations of a prompt; of several numbers the first is the main setting.
        position: where the record in question stands: "first", "middle", "last", "random" or its number;
            or several.
        trials: prompts, each with a record in it and one that is not.
        paired: ask about one record behind a prompt that holds it, and behind one that does not.
        labels: words that answer; none for the template's, or else those of the records.
        synonyms: label -> other words that an answer may use.
        chat: send the prompt as messages.
        as_turns: demonstrations as turns of a conversation.
        seed: another seed, other draws.
    """

    template: str | os.PathLike[str] | PromptTemplate
    demos: Given = field(repr=False)
    shots: int | Sequence[int] = 1
    position: str | int | Sequence[str | int] = "last"
    trials: int = 200
    paired: bool = False
    labels: Sequence[str] = ()
    synonyms: Mapping[str, Sequence[str]] = field(default_factory=dict)
    chat: bool = False
    as_turns: bool = False
    seed: int = 0

    @property
    def choices(self) -> dict[str, Any]:
        """These as fields of `PromptAudit`: those that differ from what they are where nothing is said."""
        found = {
            one.name: getattr(self, one.name)
            for one in fields(self)
            if one.name != "demos" and getattr(self, one.name) not in (one.default, {}, ())
        }
        if isinstance(self.template, PromptTemplate):
            del found["template"]
        else:
            found["template"] = os.fspath(self.template)
        if isinstance(self.demos, str | os.PathLike):
            found["demos"] = os.fspath(self.demos)
        return found
