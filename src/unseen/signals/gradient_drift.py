"""How far a model's state moves when the model is pushed away from a record (G-Drift)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, get_args, runtime_checkable

import numpy as np

from unseen.errors import UnscorableError
from unseen.signals.base import TARGET, Materials
from unseen.signals.checks import check_choice, check_count
from unseen.targets.looks import AXES, STATES, WEIGHTS, Axis, Look, Seen, State, StepLook, Weights
from unseen.types import FloatArray, Passage, Record, Tokenizer

Tokens = Literal["first", "all"]
TOKENS: tuple[Tokens, ...] = get_args(Tokens)

_PARTS = ("loss", "logit", "norm", "loss_after", "logit_after", "drift", "cosine")


@runtime_checkable
class TakesSteps(Protocol):
    """A signal of gradient steps: what has to be tried before they are taken."""

    @property
    def eta(self) -> float:
        """Length of the step, in units of the gradient."""

    @property
    def weights(self) -> Weights:
        """What takes it."""

    @property
    def tokens(self) -> Tokens:
        """Whose loss it raises."""


@dataclass(frozen=True)
class Drift:
    """What a step of gradient ascent on a record changes: the features of G-Drift, and how large it was.

    Attributes:
        loss: mean negative log-likelihood of the tokens, in nats, before the step.
        logit: their mean logit before the step.
        projection: (axes,) h . v before the step.
        loss_after: the same after it.
        logit_after: the same after it.
        projection_after: (axes,) h' . v.
        drift: |h' - h|.
        norm: |h|.
        cosine: of the angle between h and h'.
        n_tokens: how many tokens the loss is over.
        literal: whether the weights were really changed, and put back; else the step was batched.
    """

    loss: float
    logit: float
    projection: FloatArray
    loss_after: float
    logit_after: float
    projection_after: FloatArray
    drift: float
    norm: float
    cosine: float
    n_tokens: int
    literal: int


@dataclass(frozen=True)
class GradientDrift:
    """Loss, logit and last state, before and after one step of gradient ascent (section 3.3).

    Attributes:
        of: the role of the model that takes the step.
        eta: length of the step, in units of the gradient.
        tokens: y: the "first" token of the answer that is not blank, as published, or "all" of them;
            each feature is then a mean over them.
        state: h is read "after" the final norm, or "before" it.
        axis: v: "random" unit vectors; "state", along h itself; "given" by the user.
        axes: how many random ones.
        seed: of the random ones.
        weights: "all" take the step, or the "adapter"'s alone.
        method: "batched" is the exact step without copies of the weights where the model allows it,
            "literal" is Algorithm 1.
    """

    gives: ClassVar[type] = Drift
    private: ClassVar[bool] = False
    of: str = TARGET
    eta: float = 1e-2
    tokens: Tokens = "first"
    state: State = "after"
    axis: Axis = "random"
    axes: int = 1
    seed: int = 0
    weights: Weights = "all"
    method: Literal["batched", "literal"] = "batched"

    def __post_init__(self) -> None:
        if not 0 <= self.eta < np.inf:
            msg = f"got eta={self.eta}, expected a number of at least 0"
            raise ValueError(msg)
        check_count("axes", self.axes)
        for name, choices in (
            ("tokens", TOKENS),
            ("state", STATES),
            ("axis", AXES),
            ("weights", WEIGHTS),
            ("method", ("batched", "literal")),
        ):
            check_choice(name, getattr(self, name), choices)

    @property
    def needs_directions(self) -> bool:
        """Whether the user has to give the directions."""
        return self.axis == "given"

    def look(self, materials: Materials) -> Look:
        """One step; all that is seen of it is measured at once."""
        return StepLook(
            self.eta,
            self.state,
            self.axis,
            self.axes if self.axis == "random" else 1,
            self.seed if self.axis == "random" else 0,
            materials.directions if self.axis == "given" else None,
            self.weights,
            self.method == "literal",
        )

    def passages(self, record: Record, materials: Materials) -> tuple[Passage, ...]:
        """The record up to the last token that the loss is over."""
        return (asked_about(record, materials, self.tokens),)

    def see(self, seen: Sequence[Seen]) -> Drift:
        """The features."""
        return drift_of(seen[0])


def drift_of(seen: Seen) -> Drift:
    """What was seen, as features.

    Raises:
        UnscorableError: where a number is not finite.
    """
    if not all(np.isfinite(values).all() for values in seen.values()):
        reason = "the gradient step gives numbers that are not finite"
        raise UnscorableError(reason)
    return Drift(
        **{name: float(seen[name]) for name in _PARTS},
        projection=seen["projection"],
        projection_after=seen["projection_after"],
        n_tokens=int(seen["n_tokens"]),
        literal=int(seen["literal"]),
    )


def asked_about(record: Record, materials: Materials, tokens: Tokens) -> Passage:
    """The tokens of a record that a gradient is taken of, and all before them.

    Raises:
        UnscorableError: with the reason, where there is none.
    """
    encoded = materials.encoder.encode(record)
    places = [int(place) for place in np.flatnonzero(encoded.scored)]
    if not places:
        reason = "no token to score"
        raise UnscorableError(reason)
    if tokens == "first":
        places = [_first_word(encoded.ids, places, materials.encoder.tokenizer)]
    return Passage(encoded.ids[: places[-1] + 1], tuple(places))


def _first_word(ids: Sequence[int], places: Sequence[int], tokenizer: Tokenizer) -> int:
    """The place of the first token that is not blank: of a space, the next token says nothing."""
    for place in places:
        if tokenizer.decode([ids[place]]).strip():
            return place
    reason = "no token of the answer says anything"
    raise UnscorableError(reason)


def paraphrased(record: Record, prompt: str) -> Record:
    """The record with another last prompt: the answer stays."""
    turns = list(record.turns)
    for place in range(len(turns) - 1, -1, -1):
        if turns[place].role == "user":
            turns[place] = dataclasses.replace(turns[place], content=prompt)
            return dataclasses.replace(record, turns=tuple(turns))
    reason = "the record has no prompt"
    raise UnscorableError(reason)
