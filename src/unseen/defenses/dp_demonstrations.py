"""DP demonstrations: the prompt shows made-up demonstrations, written with differential privacy."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from unseen.defenses._gaussian import loss_epsilon, noise_for, spent
from unseen.defenses.base import Defense, Guarantee, Halves, Helper, Kept
from unseen.errors import AccessError, ConfigError, UnscorableError
from unseen.prompts.templates import INPUT, Example, PromptTemplate
from unseen.prompts.trials import Case
from unseen.signals.base import Encoder
from unseen.targets.access import Access, NextTokenTarget
from unseen.types import FloatArray, IntArray

TOP = 100
"""Candidates for a token."""

_DROWNED = 0.5
_TOGETHER = 16
_OF_RECORDS, _OF_TOKENS = 5, 6  # streams of random numbers, beside those of the trials
_END = " END"


@dataclass(frozen=True)
class Asking:
    """How private examples are shown to the model that writes.

    Attributes:
        begins: the instruction.
        cue: what a label follows.
        longest: the most tokens of a demonstration.
    """

    begins: str
    cue: str
    longest: int

    @classmethod
    def of(cls, template: PromptTemplate) -> Asking:
        """The paper's words for a template of its tasks, or else the template's own."""
        known = _OF_PAPER.get(template.name.removesuffix("-paper"))
        if known is not None:
            return known
        after = template.question.partition(INPUT)[2].split("\n")[-1].strip(" :")
        cue = after or "Label"
        what = cue.lower()
        return cls(
            f"Given a label of {what}, generate a text of the given {what} accordingly.\n\n",
            cue,
            99,
        )

    def shown(self, example: Example) -> str:
        """A private example."""
        return f'{self.cue}: "{example.label}"\nText: "{example.text}{_END}"\n\n'

    def begun(self, examples: Sequence[Example], label: str) -> str:
        """Examples, and a label whose text is to be written."""
        return f'{self.begins}{"".join(map(self.shown, examples))}{self.cue}: "{label}"\nText: "'


_OF_PAPER = {
    "trec": Asking(
        "Given a label of answer type, generate a question based on the given answer type "
        "accordingly.\n\n",
        "Answer Type",
        14,
    ),
    "agnews": Asking(
        "Given a label of news type, generate the chosen type of news accordingly.\n\n",
        "News Type",
        99,
    ),
    "dbpedia": Asking(
        "Given a label of document type, generate the chosen type of document accordingly.\n\n",
        "Document Type",
        99,
    ),
}


@dataclass
class _Draft:
    """A demonstration that is being written.

    Attributes:
        label: its label, which is public.
        private: the records that it is made from.
        rng: of its draws and its noise.
        ids: the tokens so far.
        done: whether it has ended.
    """

    label: str
    private: Sequence[Example] = field(repr=False)
    rng: np.random.Generator = field(repr=False)
    ids: list[int] = field(default_factory=list)
    done: bool = False


@dataclass(frozen=True)
class DPDemonstrations(Defense):
    """Every demonstration is written anew, token by token, from private records of its label.

    For each token, m n private records of the label are drawn without replacement and dealt into m
    prompts of n; the mean of the m next-token distributions, over the candidates, gets Gaussian noise
    of standard deviation sqrt(2) sigma / m on each, and the largest is the token (Tang et al. 2024,
    algorithm 1). With public=True the candidates are the 100 likeliest tokens of the prompt without
    any private record; else each prompt keeps its own 100, and the noise is on the whole vocabulary.

    Epsilon is never quoted, but computed anew from what is done.

    Attributes:
        m: prompts whose distributions are averaged.
        n: private records of each.
        sigma: of the noise, in units of what one record can change; or
        epsilon: from which sigma follows.
        delta: the chance that epsilon does not hold; 0 means 1 / the private records.
        public: whether the candidates are public.
        private: records that each demonstration is made from, the one in its place among them; 0
            means all of the owner's of its label, 1 that alone (as in section 7.3 of Wen et al. 2024).
        longest: the most tokens of a demonstration; 0 means the paper's.
        by: the model that writes; "" is the target itself.
        seed: another seed, other draws and noise.
    """

    paper: ClassVar[str] = "Tang et al. 2024, arXiv:2309.11765"

    m: int = 10
    n: int = 2
    sigma: float = 0.0
    epsilon: float = 0.0
    delta: float = 0.0
    public: bool = True
    private: int = 0
    longest: int = 0
    by: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("m", 1), ("n", 1), ("private", 0), ("longest", 0)):
            if getattr(self, name) < least:
                msg = f"got {name}={getattr(self, name)}, expected at least {least}"
                raise ValueError(msg)
        for name in ("sigma", "epsilon"):
            if not 0 <= getattr(self, name) < math.inf:
                msg = f"got {name}={getattr(self, name)}, expected a number above 0"
                raise ValueError(msg)
        if not 0 <= self.delta < 1:
            msg = f"got delta={self.delta}, expected a chance above 0 and below 1"
            raise ValueError(msg)
        if not self.sigma and not self.epsilon:
            raise ConfigError(
                "dp_demonstrations guarantees nothing without noise: neither sigma nor epsilon is given",
                fix="dp_demonstrations[epsilon=8], or dp_demonstrations[sigma=0.5]",
            )
        if self.sigma and self.epsilon:
            raise ConfigError(
                "dp_demonstrations got both sigma and epsilon, and one follows from the other",
                fix="leave one of them out",
            )
        if self.private and self.private < self.m * self.n:
            raise ConfigError(
                f"each token draws m n = {self.m * self.n} of the private records, and private="
                f"{self.private} has fewer",
                fix=f"dp_demonstrations[m={self.private},n=1,private={self.private},…]",
            )

    @property
    def helpers(self) -> tuple[str, ...]:
        """The model that writes."""
        return (self.by,)

    # --- what it guarantees -------------------------------------------------------------------

    def guarantee(
        self, cases: Sequence[Case], halves: Halves, template: PromptTemplate
    ) -> Guarantee:
        """What it guarantees for one private record, over all demonstrations of a prompt.

        Demonstrations of different labels are made from different records. Those of one label are
        made from the same ones, and so spend their sum, unless each is made from itself alone.

        Raises:
            ConfigError: where a label has fewer private records than a token draws.
        """
        fewest, label = min(
            (len(private), demo.label)
            for private_of in self._private(cases, halves)
            for demo, private in private_of
        )
        drawn = self.m * self.n
        if fewest < drawn:
            raise ConfigError(
                f"each token draws m n = {drawn} private records of a label, and {label} has {fewest}",
                fix="dp_demonstrations[m=…,n=1,…] with fewer, or more --demos",
            )
        alike = max(
            max(Counter(demo.label for demo in case.demos).values(), default=1) for case in cases
        )
        releases = self._longest(template) * (1 if self.private == 1 else alike)
        rate = drawn / fewest
        delta = self.delta or 1 / min(map(len, halves))
        sigma = self.sigma or noise_for(self.epsilon, rate, releases, delta)
        epsilon, accountant = spent(sigma, rate, releases, delta)
        return Guarantee(
            epsilon=epsilon,
            delta=delta,
            sigma=sigma,
            releases=releases,
            rate=rate,
            n_private=fewest,
            accountant=accountant,
            degenerate=math.sqrt(2) * sigma / self.m > _DROWNED,
            loss=None if rate < 1 else loss_epsilon(sigma, releases, delta),
        )

    def _longest(self, template: PromptTemplate) -> int:
        return self.longest or Asking.of(template).longest

    def _private(
        self, cases: Sequence[Case], halves: Halves
    ) -> list[list[tuple[Example, Sequence[Example]]]]:
        """Of each case: the demonstrations, and the private records that their stand-ins are made from.

        The owner has the half of the pool that the trial's member is of. Behind a prompt that the record
        in question is not in, the owner does not have it, and has what stands in its place.
        """
        ids = [{one.id for one in half} for half in halves]
        owned = {case.trial: int(case.example.id in ids[1]) for case in cases if case.member}
        found = []
        for case in cases:
            away = {case.example.id, *(demo.id for demo in case.demos)}
            rest = [one for one in halves[owned[case.trial]] if one.id not in away]
            found.append(
                [self._of(case, slot, [*case.demos, *rest]) for slot in range(len(case.demos))]
            )
        return found

    def _of(
        self, case: Case, slot: int, owned: Sequence[Example]
    ) -> tuple[Example, Sequence[Example]]:
        """A demonstration, and the owner's records that its stand-in is made from."""
        demo = case.demos[slot]
        others = sorted(
            (one for one in owned if one.label == demo.label and one.id != demo.id),
            key=lambda one: one.id,
        )
        if self.private:
            n = min(self.private - 1, len(others))
            places = self._rng(case, slot, _OF_RECORDS).choice(len(others), size=n, replace=False)
            others = [others[i] for i in places]
        return demo, (demo, *others)

    # --- how it is written ----------------------------------------------------------------------

    def cases(
        self,
        cases: Sequence[Case],
        halves: Halves,
        template: PromptTemplate,
        helpers: Mapping[str, Helper],
        kept: Kept | None = None,
    ) -> tuple[Case, ...]:
        """The cases behind prompts of made-up demonstrations; both of a trial behind the same one.

        Raises:
            AccessError: where the model that writes does not tell its next-token distribution.
            ConfigError: as `guarantee`.
        """
        helper, sigma = helpers[self.by], self.guarantee(cases, halves, template).sigma
        target = helper.target
        if not isinstance(target, NextTokenTarget) or target.access < Access.LOGIT:
            raise AccessError(
                f"dp_demonstrations needs logit access, and {target.name} gives {target.access.word}",
                fix="dp_demonstrations[by=MODEL,…] names a model that writes the demonstrations here",
            )
        pairs = list(zip(cases, self._private(cases, halves), strict=True))
        keys = [_key(self, *pair, template, target.fingerprint, sigma) for pair in pairs]
        private_of = dict(zip(keys, pairs, strict=True))
        texts = {} if kept is None else _known(kept, keys)
        order = [key for key in private_of if key not in texts]
        writer = _Writer(
            self, target, helper.encoder, Asking.of(template), self._longest(template), sigma
        )
        for start in range(0, len(order), _TOGETHER):
            some = order[start : start + _TOGETHER]
            drafts = [self._begun(*private_of[key]) for key in some]
            writer.write([draft for row in drafts for draft in row])
            for key, row in zip(some, drafts, strict=True):
                texts[key] = [writer.text(draft) for draft in row]
                if kept is not None:
                    kept.put(key, tuple(map(ord, json.dumps(texts[key]))))
        return tuple(_shown(case, texts[key]) for key, case in zip(keys, cases, strict=True))

    def _begun(
        self, case: Case, private_of: Sequence[tuple[Example, Sequence[Example]]]
    ) -> list[_Draft]:
        return [
            _Draft(demo.label, private, self._rng(case, slot, _OF_TOKENS))
            for slot, (demo, private) in enumerate(private_of)
        ]

    def _rng(self, case: Case, slot: int, stream: int) -> np.random.Generator:
        """Random numbers of one demonstration: both cases of a trial with one prompt have the same."""
        whose = zlib.crc32(json.dumps([demo.id for demo in case.demos]).encode())
        return np.random.default_rng([self.seed, stream, case.trial, slot, whose])


class _Writer:
    """Writes demonstrations, all of them a token at a time."""

    def __init__(
        self,
        how: DPDemonstrations,
        target: NextTokenTarget,
        encoder: Encoder,
        asking: Asking,
        longest: int,
        sigma: float,
    ) -> None:
        self._how, self._target, self._encoder = how, target, encoder
        self._asking, self._longest = asking, longest
        self._scale = math.sqrt(2) * sigma / how.m

    def write(self, drafts: Sequence[_Draft]) -> None:
        """Goes on with each to its end."""
        for _ in range(self._longest):
            live = [draft for draft in drafts if not draft.done]
            if not live:
                return
            for draft, token in zip(live, self._next(live), strict=True):
                draft.ids.append(token)
                said = self._encoder.tokenizer.decode(draft.ids)
                ended = token == self._encoder.tokenizer.eos_id
                draft.done = ended or "\n" in said or _END in said

    def text(self, draft: _Draft) -> str:
        """What was written, up to where it ends, without the quote that the prompt opens."""
        said = self._encoder.tokenizer.decode(draft.ids).partition("\n")[0].partition(_END)[0]
        return said.strip().removesuffix('"').strip()

    def _next(self, drafts: Sequence[_Draft]) -> list[int]:
        prompts = [self._prompt(group, draft) for draft in drafts for group in self._groups(draft)]
        ask = self._target.next_token_probabilities
        if self._how.public:
            ids, _ = ask([self._prompt((), draft) for draft in drafts], top=TOP)
            _, p = ask(prompts, among=np.repeat(ids, self._how.m, axis=0))
            means = normalised(p).reshape(len(drafts), self._how.m, -1).mean(axis=1)
            return [
                int(ids[i][noisy_argmax(means[i], self._scale, draft.rng)])
                for i, draft in enumerate(drafts)
            ]
        ids, p = ask(prompts, top=TOP)
        rows = np.split(np.arange(len(prompts)), len(drafts))
        size = self._encoder.tokenizer.size
        return [
            noisy_argmax(mean_over_all(ids[row], p[row], size), self._scale, draft.rng)
            for draft, row in zip(drafts, rows, strict=True)
        ]

    def _groups(self, draft: _Draft) -> list[list[Example]]:
        """Private records, m n of them, drawn anew and dealt into m groups."""
        m, n = self._how.m, self._how.n
        drawn = draft.rng.choice(len(draft.private), size=m * n, replace=False)
        return [[draft.private[i] for i in drawn[g::m]] for g in range(m)]

    def _prompt(self, examples: Sequence[Example], draft: _Draft) -> list[int]:
        """Token ids of what the model reads.

        Raises:
            ConfigError: where that does not fit into its context.
        """
        try:
            ids = self._encoder.prompt((), self._asking.begun(examples, draft.label))
        except UnscorableError:
            ids = None
        if ids is None or len(ids) + self._longest > self._encoder.max_length:
            raise ConfigError(
                f"{self._how.n} private records do not fit into the context of {self._target.name}",
                fix="dp_demonstrations[n=1,…], shorter records, or a model with a longer context",
            )
        return [*ids, *draft.ids]


def normalised(p: FloatArray) -> FloatArray:
    """Probabilities that sum to 1 in each row, shape (n, k)."""
    total = p.sum(axis=1, keepdims=True)
    return p / np.where(total > 0, total, 1.0)


def mean_over_all(ids: IntArray, p: FloatArray, size: int) -> FloatArray:
    """The mean of m distributions, each over its own candidates, over a whole vocabulary.

    Args:
        ids: (m, k) the candidates.
        p: (m, k) their probabilities; each row is made to sum to 1.
        size: of the vocabulary.

    Returns:
        (size,) the mean.
    """
    known = ids < size  # a model may have rows for tokens that there are not
    mean = np.zeros(size)
    np.add.at(mean, ids[known], (normalised(np.where(known, p, 0.0)) / len(ids))[known])
    return mean


def noisy_argmax(mean: FloatArray, scale: float, rng: np.random.Generator) -> int:
    """The place of the largest of some numbers, each with Gaussian noise of its own."""
    return int(np.argmax(mean + rng.normal(0.0, scale, size=mean.shape)))


def _key(
    how: DPDemonstrations,
    case: Case,
    private: Sequence[tuple[Example, Sequence[Example]]],
    template: PromptTemplate,
    fingerprint: str,
    sigma: float,
) -> bytes:
    """Under what the demonstrations of a prompt are kept: all that they follow from."""
    told = dataclasses.replace(how, sigma=sigma, epsilon=0.0, delta=0.0)
    about = [
        repr(told), fingerprint, repr(Asking.of(template)), case.trial,
        [[demo.id, demo.label, [one.text for one in records]] for demo, records in private],
    ]  # fmt: skip
    return hashlib.blake2b(json.dumps(about).encode(), digest_size=16, person=b"demos").digest()


def _known(kept: Kept, keys: Sequence[bytes]) -> dict[bytes, list[str]]:
    """The demonstrations that are kept, as the code points of a list in JSON."""
    found = {key: kept.get(key) for key in dict.fromkeys(keys)}
    return {
        key: json.loads("".join(map(chr, ids))) for key, ids in found.items() if ids is not None
    }


def _shown(case: Case, texts: Sequence[str]) -> Case:
    """The case behind other demonstrations of the same labels."""
    demos = tuple(
        Example(f"{demo.id}~", text, demo.label)
        for demo, text in zip(case.demos, texts, strict=True)
    )
    return dataclasses.replace(case, demos=demos)
