"""Rewrite filter: what the model writes reaches the adversary in other words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from unseen.defenses.base import Defense, Helper
from unseen.errors import UnscorableError
from unseen.prompts.labels import Labels
from unseen.scoring.generation import Generation
from unseen.scoring.store import Store
from unseen.signals.checks import check_count
from unseen.targets.access import LogprobTarget
from unseen.targets.defended import RewrittenTarget
from unseen.types import Prompt, Turn


@dataclass(frozen=True)
class RewriteFilter(Defense):
    """A model rewrites what the target writes, without knowing its prompt (section 7.2).

    Short answers stay as they are: a label or a yes in other words is another answer, or none. So this
    protects against attacks on longer text alone. Probabilities, where the model gives them, stay too.

    Attributes:
        by: the model that rewrites; "" is the target itself.
        prompt: what it is told, before the text.
        fewest: words from which on an answer is rewritten.
        longest: the most tokens that it writes.
    """

    paper: ClassVar[str] = "Wen et al. 2024, arXiv:2409.01380"

    by: str = ""
    prompt: str = "Rewrite the following sentence in different words, keep its meaning:"
    fewest: int = 4
    longest: int = 64

    def __post_init__(self) -> None:
        for name in ("fewest", "longest"):
            check_count(name, getattr(self, name))

    @property
    def helpers(self) -> tuple[str, ...]:
        """The model that rewrites."""
        return (self.by,)

    def target(
        self,
        target: LogprobTarget,
        helpers: Mapping[str, Helper],
        labels: Labels | None = None,  # noqa: ARG002
    ) -> LogprobTarget:
        """The same model behind the filter."""
        helper = helpers[self.by]

        def rewrite(texts: Sequence[str]) -> list[str]:
            return self.rewritten(texts, helper)

        about = [self.prompt, self.longest, helper.target.fingerprint]
        return RewrittenTarget(target, rewrite, fewest=self.fewest, about=about)

    def rewritten(self, texts: Sequence[str], helper: Helper) -> list[str]:
        """Each text in other words: the first line that the model writes, likeliest token by token."""
        asked = [self._asked(text, helper) for text in texts]
        decode = helper.encoder.tokenizer.decode
        with Store() as store:
            writing = Generation(helper.target, store)
            writing.ensure(prompt for prompt in asked if prompt is not None)
            return [
                "" if prompt is None else _first_line(_answer(writing, prompt, decode))
                for prompt in asked
            ]

    def _asked(self, text: str, helper: Helper) -> Prompt | None:
        """What the model is asked; None where the text does not fit into its context."""
        asked = f"{self.prompt}\n{text}"
        try:
            if helper.encoder.tokenizer.chat_template is None:
                ids = helper.encoder.prompt((), f"{asked}\nThe same in different words:")
            else:
                ids = helper.encoder.prompt((Turn("user", asked),))
        except UnscorableError:
            return None
        return Prompt(ids, self.longest)


def _answer(writing: Generation, prompt: Prompt, decode: Callable[[Sequence[int]], str]) -> str:
    """What was written; nothing where it is withheld: a filter lets through what it has rewritten."""
    try:
        return decode(writing.answer(prompt))
    except UnscorableError:
        return ""


def _first_line(text: str) -> str:
    """What stands in the first line that says anything, without quotes around it."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    quoted = len(line) > 1 and line[0] == line[-1] == '"'
    return line[1:-1].strip() if quoted else line
