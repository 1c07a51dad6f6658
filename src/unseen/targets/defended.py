"""Any target behind a defence that changes what it writes.

What the model tells of probabilities is not changed: whoever gives these out gives the text out too.
Hidden states and gradients are not shown: who has the weights meets no defence.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence

from unseen.errors import AccessError
from unseen.targets.access import Access, LogprobTarget, is_withheld, searches_beams
from unseen.targets.ending import first_line
from unseen.targets.wrapped import WrappedTarget
from unseen.types import Sampling

Rewriter = Callable[[Sequence[str]], list[str]]
"""Other words for each of some texts."""


class DefendedTarget(WrappedTarget):
    """A target behind a defence; what it is asked, the model is asked.

    Args:
        inner: the target that is defended.
        about: what stands before it, exactly: another defence gives other answers.
    """

    whole_answers = True
    """An answer that may be longer can begin otherwise: it is kept as it comes, and never cut."""

    def __init__(self, inner: LogprobTarget, about: Sequence[object]) -> None:
        super().__init__(inner, min(inner.access, Access.LOGIT))
        digest = hashlib.blake2b(json.dumps(about).encode(), digest_size=8).hexdigest()
        self.fingerprint = f"{inner.fingerprint}+{digest}"


class SampledTarget(DefendedTarget):
    """A target whose answers are drawn, or searched, as its owner chose, whatever is asked for.

    Args:
        inner: the target that is defended.
        draws: how.

    Raises:
        AccessError: where beams are to be searched, and the target cannot.
    """

    def __init__(self, inner: LogprobTarget, draws: Sampling) -> None:
        about = ["sampled", draws.temperature, draws.top_k, draws.top_p, draws.seed]
        if draws.beams > 1:
            about = ["beams", draws.beams]
            if not searches_beams(inner):
                raise AccessError(
                    f"{inner.name} has no beam search",
                    fix="a model that runs here, or the defence sampling",
                )
        super().__init__(inner, about)
        self._draws = draws

    def _drawn(self, sampling: Sampling) -> Sampling:
        return dataclasses.replace(self._draws, fewest=sampling.fewest)


class RewrittenTarget(DefendedTarget):
    """A target whose answers are put into other words before anyone sees them.

    Of an answer, the text up to the string at which it was to stop is rewritten, or up to the end of the
    line where one line is asked for; that string, and spaces around the text, stay. Answers of few words
    stay too: a label, or a yes, in other words is another answer, or none.

    Args:
        inner: the target that is defended.
        rewrite: gives texts in other words.
        fewest: words from which on an answer is rewritten.
        about: what rewrites, exactly.
    """

    def __init__(
        self, inner: LogprobTarget, rewrite: Rewriter, *, fewest: int, about: Sequence[object]
    ) -> None:
        super().__init__(inner, ["rewritten by line", fewest, *about])
        self._rewrite = rewrite
        self._fewest = fewest

    def _told(self, made: list[list[int]], stop: str, *, one_line: bool) -> list[list[int]]:
        said = ["" if is_withheld(ids) else self.tokenizer.decode(ids) for ids in made]
        if one_line:  # not every target can end there by itself
            said = [first_line(text) for text in said]
        answers = [text.partition(stop or "\0") for text in said]
        wanted = [i for i, (text, _, _) in enumerate(answers) if self._is_long(text)]
        others = self._rewrite([answers[i][0].strip() for i in wanted])
        for i, other in zip(wanted, others, strict=True):
            text, mark, _ = answers[i]
            whole = text.replace(text.strip(), other, 1) + mark
            made[i] = self.tokenizer.encode(whole)
        return made

    def _is_long(self, text: str) -> bool:
        return len(text.split()) >= max(1, self._fewest)
