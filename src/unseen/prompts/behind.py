"""A model behind a hidden prompt, as an adversary meets it: what is sent, and what the model then reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from unseen.prompts.labels import Labels
from unseen.prompts.templates import Example, PromptTemplate
from unseen.prompts.trials import Case
from unseen.signals.base import Encoder
from unseen.types import Turn


@dataclass(frozen=True)
class HiddenPrompts:
    """The prompts of some cases, a prompt a trial; the adversary's words come after them.

    Attributes:
        template: how the prompt is written.
        encoder: makes token ids of it.
        cases: id -> case.
        empty: whether the demonstrations are left out: the control, which shows what the model knows
            of the records without any prompt.
        observed: whether the prompt stands at the other end already, and only what is sent is ours.
    """

    template: PromptTemplate
    encoder: Encoder
    cases: Mapping[str, Case] = field(repr=False)
    empty: bool = False
    observed: bool = False

    @classmethod
    def of(
        cls,
        template: PromptTemplate,
        encoder: Encoder,
        cases: Sequence[Case],
        *,
        empty: bool = False,
        observed: bool = False,
    ) -> HiddenPrompts:
        """The prompts of all cases."""
        by_id = {case.id: case for case in cases}
        return cls(template, encoder, by_id, empty=empty, observed=observed)

    @property
    def labels(self) -> tuple[str, ...]:
        """The words that answer."""
        return () if self.template.labels is None else self.template.labels.words

    @property
    def is_chat(self) -> bool:
        """Whether it is talked to in messages."""
        return self.template.chat

    def prompt(self, id_: str, said: str) -> tuple[int, ...]:
        """Token ids of the hidden prompt and what is sent after it."""
        demos = () if self.empty else self.cases[id_].demos
        if not self.template.chat:
            hidden = "" if self.observed else self.template.hidden(demos)
            return self.encoder.prompt((), hidden + said)
        alone = (Turn("user", said),)
        return self.encoder.prompt(alone if self.observed else self.template.turns(demos, said))

    def asked(self, text: str) -> str:
        """A question, up to where its answer begins."""
        return self.template.asked(text)

    def begun(self, text: str) -> str:
        """The beginning of a question."""
        return self.template.begun(text)

    def answered(self, label: str) -> str:
        """A label as it follows a question."""
        return self.template.answered(label)

    def shown(self, text: str, label: str) -> str:
        """A demonstration."""
        return self.template.shown(Example("", text, label))

    def until(self, answer: str) -> str:
        """An answer, up to where the next demonstration would begin."""
        return self.template.until(answer)

    def parse(self, answer: str) -> str | None:
        """The label that an answer gives, or None."""
        labels: Labels | None = self.template.labels
        return None if labels is None else labels.parse(answer)

    def wrong(self, id_: str) -> tuple[str, ...]:
        """Labels that are not the record's."""
        return self.cases[id_].wrong
