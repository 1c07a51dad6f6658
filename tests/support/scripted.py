"""Models that answer by a rule, and the in-context game played with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unseen.attacks.base import Attack, Known, is_fitted
from unseen.data.templates import Layout, RecordEncoder
from unseen.prompts.behind import HiddenPrompts
from unseen.prompts.templates import PAPERS, Example, PromptTemplate
from unseen.prompts.trials import Case, Game, membership
from unseen.runs.collect import Model, collect
from unseen.scoring.store import Store
from unseen.signals.base import Observations, Shown, Signal
from unseen.targets.access import Access
from unseen.targets.ending import Ending
from unseen.targets.fake import _SPECIALS, FakeTarget
from unseen.types import GREEDY, BoolArray, FloatArray, Sampling, Scores

Rule = Callable[[str], str]
"""The text of a prompt, special tokens included, to the text of the answer."""

TREC = PAPERS["trec"]
ASKED = "Have you seen this sentence before: "
_SHOWN = re.compile(r"Question: (.*)\nAnswer Type: (.*)\n\n")


class Scripted(FakeTarget):
    """A model that writes what a rule makes of the prompt; what it finds likely is the fake model's.

    Attributes:
        prompts: the texts that it was asked to go on with, in order.
        longest: the most tokens that it was last asked for.
    """

    def __init__(self, rule: Rule, *, access: Access = Access.LOGIT, **options: Any) -> None:
        super().__init__(access=access, strength=16.0, **options)
        self.rule = rule
        self.fingerprint += f"-{rule.__name__}"
        self.prompts: list[str] = []
        self.longest = 0

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int,
        sampling: Sampling = GREEDY,
        numbers: Sequence[int] | None = None,
        stop: str = "",
        one_line: bool = False,
    ) -> list[list[int]]:
        ending = Ending(frozenset(), stop, self.tokenizer.decode, one_line)
        texts = [self.text(prompt) for prompt in prompts]
        self.prompts += texts
        self.longest = max_new_tokens
        answers = [self.tokenizer.encode(self.rule(text)) for text in texts]
        return [ending.until(answer[:max_new_tokens]) for answer in answers]

    def text(self, ids: Sequence[int]) -> str:
        """The text of token ids, special ones included."""
        return "".join(map(self._piece, _runs(ids)))

    def _piece(self, ids: Sequence[int]) -> str:
        return _SPECIALS[ids[0] - 256] if ids[0] > 255 else self.tokenizer.decode(ids)


def _runs(ids: Sequence[int]) -> list[list[int]]:
    """Bytes together, special tokens alone."""
    runs: list[list[int]] = []
    for id_ in ids:
        if runs and id_ < 256 and runs[-1][0] < 256:
            runs[-1].append(id_)
        else:
            runs.append([id_])
    return runs


def shown_in(text: str) -> list[tuple[str, str]]:
    """Demonstrations that a prompt of TREC holds, those that the adversary has sent included."""
    return _SHOWN.findall(text)


def said_in(text: str) -> str:
    """What comes last in it."""
    return text.rpartition("\n\n")[2]


def copying(text: str) -> str:
    """Remembers its prompt: completes what stands in it, admits it, and gives up its labels late."""
    shown, said = shown_in(text), said_in(text)
    if said.startswith(ASKED):
        return "\n\nYes." if said[len(ASKED) : -1] in dict(shown) else "\nNo, but yes."
    begun = said.removeprefix("Question: ")
    if said.endswith("\nAnswer Type:"):
        labels = [label for question, label in shown if question == begun[: -len("\nAnswer Type:")]]
        if not labels:
            return " I do not know"
        needed = 3 if len(set(labels)) > 1 else 1  # to be believed against another
        return f" {labels[-1] if labels.count(labels[-1]) >= needed else labels[0]}\n\nQuestion: x"
    for question, label in shown:
        if question.startswith(begun):
            return f"{question[len(begun) :]}\nAnswer Type: {label}\n\n"
    return " nothing of that kind\nAnswer Type: Entity"


def ignoring(text: str) -> str:
    """Hears only what is sent to it, and says nothing that depends on the prompt."""
    said = said_in(text)
    if said.startswith(ASKED):
        return "Yes" if len(said) % 2 else "No"
    if said.endswith("\nAnswer Type:"):
        return f" {TREC.labels.words[len(said) % 6]}"
    return f" {said[::-1]}?\n"


def pool(n: int, *, seed: int = 0) -> list[Example]:
    """Questions of invented words, whose first three are nobody else's."""
    rng = np.random.default_rng(seed)
    syllables = ("ba", "ke", "lo", "mi", "nu", "ra", "so", "ti", "vu", "wem", "xis", "yal")

    def word() -> str:
        return "".join(rng.choice(syllables, size=3))

    words = TREC.labels.words
    return [
        Example(f"r{i}", " ".join(word() for _ in range(4 + i % 5)) + "?", words[i % len(words)])
        for i in range(n)
    ]


@dataclass(frozen=True)
class Played:
    """Cases, who of them is a member, and what was measured of them."""

    cases: tuple[Case, ...]
    observations: Observations
    member: BoolArray
    target: Any

    def scores(self, attack: Attack) -> Scores:
        """Of an attack that learns, from the other half of the trials."""
        if not is_fitted(attack):
            return attack.score(self.observations)
        halves = [[case.id for case in self.cases if case.trial % 2 == i] for i in (0, 1)]
        place = {case.id: i for i, case in enumerate(self.cases)}
        made = [
            attack.score(
                self.observations.select(judged),
                Known(self.observations.select(known), self.member[[place[id_] for id_ in known]]),
            )
            for judged, known in (halves, halves[::-1])
        ]
        by_id = {id_: v for one in made for id_, v in zip(one.ids, one.values, strict=True)}
        ids = tuple(case.id for case in self.cases if case.id in by_id)
        left_out = {id_: why for one in made for id_, why in one.unscored.items()}
        return Scores(ids, np.array([by_id[id_] for id_ in ids]), left_out)

    def auc(self, attack: Attack) -> float:
        scores = self.scores(attack)
        member = {case.id: case.member for case in self.cases}
        return auc(scores.values, np.array([member[id_] for id_ in scores.ids]))


def played(
    signals: Sequence[Signal],
    target: Any,
    *,
    game: Game | None = None,
    examples: Sequence[Example] | None = None,
    template: PromptTemplate = TREC,
    cases: Sequence[Case] | None = None,
    empty: bool = False,
    **shown: Any,
) -> Played:
    """Measures signals of all cases of a game; a surrogate that remembers nothing is there too."""
    if cases is None:
        cases = (game or Game(trials=20)).cases(pool(40) if examples is None else examples)
    encoder = RecordEncoder(target.tokenizer, Layout(), limit=target.max_length)
    behind = HiddenPrompts.of(template, encoder, cases, empty=empty)
    with Store() as store:
        seen, _ = collect(
            signals,
            [case.record for case in cases],
            {"target": Model(target, encoder), "surrogate": Model(FakeTarget(), encoder)},
            store=store,
            shown=Shown(behind={"target": behind}, **shown),
        )
    return Played(tuple(cases), seen, membership(cases).member, target)


def auc(values: FloatArray, member: BoolArray) -> float:
    wins = np.sign(values[member][:, None] - values[~member][None, :])
    return float((wins.mean() + 1) / 2)
