"""Label filter: nothing but one of the labels reaches the adversary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from unseen.defenses.base import Defense, Helper
from unseen.errors import ConfigError
from unseen.prompts.labels import Labels
from unseen.prompts.templates import PromptTemplate
from unseen.targets.access import LogprobTarget
from unseen.targets.defended import RewrittenTarget


@dataclass(frozen=True)
class LabelFilter(Defense):
    """A list of permitted answers at the server's side: the labels (sections 4.4 and 7.2).

    An answer that says one of them becomes that label alone, and any other is withheld: nothing is left
    of it. Whoever asks for labels loses nothing; an adversary keeps `gap` and `brainwash`.
    Probabilities, where the model gives them, stay.
    """

    paper: ClassVar[str] = "Wen et al. 2024, arXiv:2409.01380"

    def template(self, template: PromptTemplate) -> PromptTemplate:
        """The same.

        Raises:
            ConfigError: where answers are free text.
        """
        _of(template.labels)
        return template

    def target(
        self,
        target: LogprobTarget,
        helpers: Mapping[str, Helper],  # noqa: ARG002
        labels: Labels | None = None,
    ) -> LogprobTarget:
        """The same model behind the list."""
        permitted = _of(labels)

        def filtered(texts: Sequence[str]) -> list[str]:
            return [permitted.parse(text) or "" for text in texts]

        about = [permitted.words, permitted.synonyms]
        return RewrittenTarget(target, filtered, fewest=1, about=about)


def _of(labels: Labels | None) -> Labels:
    if labels is None:
        raise ConfigError(
            "label_filter needs labels, and answers are free text",
            fix="--labels Number,Location,…: every word that an answer can be",
        )
    return labels
