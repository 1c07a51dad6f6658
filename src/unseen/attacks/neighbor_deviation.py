"""Neighborhood Deviation: a member's own beginning is completed otherwise than its neighbours' are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from unseen.attacks.base import PROMPT, Known, check_finite, examples, score_each, unscored
from unseen.errors import UnscorableError
from unseen.signals.base import Observations, Signal
from unseen.signals.checks import check_choice
from unseen.signals.deviation import (
    Compare,
    Deviating,
    DeviatingPerplexity,
    Deviations,
    Perplexities,
    Rouge,
)
from unseen.signals.learned import KINDS, Kind, Learned, LentModel, Training, learn
from unseen.targets.access import Access
from unseen.types import FloatArray, Scores

Features = Literal["deltas", "all"]


@dataclass(frozen=True)
class NeighborDeviation:
    """How much better a model completes the beginning of a record than neighbours of it.

    score = f(d_similarity, d_BLEU, d_ROUGE-L[, d_PPL]), the log-odds of a classifier f, d_m = c_m -
    mean over i = 1 .. N of c_m^i (equation 8): c_m holds what the model writes after the beginning
    against the record, c_m^i what it writes after the i-th neighbour, whose beginning differs in one
    word (or in `replacements` words). f learns from known trials and never judges one that it has learned from. PPL, in
    logarithms, is that of a model of the attacker's own (--surrogate), never the target's.

    Attributes:
        features: "deltas", as in the paper, or "all": c_m and the mean of c_m^i, each by itself. Where
            a member's neighbours call it up too, their difference says little.
        model: f: "net" (fully connected, 32 and 16 units), "svm" (Gaussian kernel) or "logistic".
        perplexity: whether PPL counts.
        compare: "suffix" compares with the rest of the record, so that the swapped word has no say by
            itself; "full" whole texts, as equations 6 and 7 have it.
        prefix: share of the record's words that is given, at least two words.
        neighbours: N.
        replacements: words of the beginning that a neighbour has replaced; the paper tries 1 to 3.
        filler: the folder or hub name of a masked language model, such as google-bert/bert-base-uncased;
            "embeddings", the word embeddings of the target; "embeddings:MODEL", those of another model;
            "list:FILE", words and what may stand for them; "wordnet:FOLDER", synonyms of WordNet.
        dropout: share of a word's embedding that the masked language model does not see.
        encoder: of the similarity: "letters", "minilm", or a folder or name of a sentence encoder.
        rouge: "recall" or "f1".
        longest: the most tokens of a completion.
        seed: another seed, other neighbours, and another net.
        lent: whether f is the one that this attack has learned in another audit (--trained-from RUN), of
            other records or another model: no label of this audit has a say in it then.
    """

    access: ClassVar[Access] = Access.TEXT
    paper: ClassVar[str] = "Neighborhood Deviation Attack Against In-Context Learning"
    scenario: ClassVar[str] = PROMPT
    threshold: ClassVar[float] = 0.0
    variants: ClassVar[tuple[str, ...]] = (
        "neighbor_deviation[features=all]",
        "neighbor_deviation[perplexity=True]",
        "neighbor_deviation[features=all,perplexity=True]",
    )

    features: Features = "deltas"
    model: Kind = "net"
    perplexity: bool = False
    compare: Compare = "suffix"
    prefix: float = 0.2
    neighbours: int = 5
    replacements: int = 1
    filler: str = "embeddings"
    dropout: float = 0.3
    encoder: str = "minilm"
    rouge: Rouge = "recall"
    longest: int = 128
    seed: int = 0
    lent: bool = False

    def __post_init__(self) -> None:
        check_choice("features", self.features, ("deltas", "all"))
        check_choice("model", self.model, KINDS)
        self.signals()  # refuses what it cannot measure

    @property
    def fitted(self) -> bool:
        """Whether it learns from known records of this audit."""
        return not self.lent

    def signals(self) -> tuple[Signal, ...]:
        return (*self._measured, LentModel()) if self.lent else self._measured

    def score(self, audited: Observations, known: Known | None = None) -> Scores:
        try:
            learned = None if self.lent else self.learn(known)
        except UnscorableError as error:
            return unscored(audited.ids, error.problem)

        def formula(id_: str) -> float:
            model: Learned = learned or audited.get(LentModel(), id_)
            row = self._row(audited, id_)
            if len(row) != len(model.mean):
                reason = "what is lent was learned from other features"
                raise UnscorableError(reason)
            return float(model.score(row[None]).item())

        return score_each(audited, formula)

    def learn(self, known: Known | None) -> Learned:
        """What known records teach: a classifier of their features.

        Raises:
            UnscorableError: where nobody is known, or one side only.
        """
        return learn(*examples(known, self._row), self.model, Training(seed=self.seed))

    def _row(self, seen: Observations, id_: str) -> FloatArray:
        """The features of one record, shape (d,)."""
        values: list[FloatArray] = []
        for signal in self._measured:
            found: Deviations | Perplexities = seen.get(signal, id_)
            values += vars(found).values()
        check_finite(*values)
        own = np.array([value[0] for value in values])
        others = np.array([value[1:].mean() for value in values])
        return own - others if self.features == "deltas" else np.concatenate([own, others])

    @property
    def _measured(self) -> tuple[Signal, ...]:
        if not self.perplexity:
            return (self._deviating,)
        return (self._deviating, DeviatingPerplexity(written=self._deviating.texts))

    @property
    def _deviating(self) -> Deviating:
        return Deviating(
            prefix=self.prefix,
            neighbours=self.neighbours,
            replacements=self.replacements,
            filler=self.filler,
            dropout=self.dropout,
            longest=self.longest,
            compare=self.compare,
            seed=self.seed,
            encoder=self.encoder,
            rouge=self.rouge,
        )
