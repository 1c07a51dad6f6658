"""What can be looked at inside a model: questions for an `InsideTarget`, and no torch.

A look says what is measured of a passage; the answer is a mapping of names to arrays. The class of a
look says what the names mean. Looks that are taken `together` share their passes through the model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, Protocol, get_args

import numpy as np

from unseen.types import FloatArray

Weights = Literal["all", "adapter"]
"""What a gradient is taken of: every weight of the model, or those of its adapter alone."""

State = Literal["after", "before"]
"""Where the last hidden state is read: after the final norm, or before it."""

Axis = Literal["random", "state", "given"]
"""What a state is projected onto: random directions, its own before the step, or given ones."""

Seen = Mapping[str, FloatArray]
"""What was seen of one passage."""


class Look(Protocol):
    """A question about the inside of a model."""

    @property
    def together(self) -> Hashable:
        """Equal for looks that share their passes."""

    @property
    def key(self) -> str:
        """Everything that the answer depends on, besides the model and the passage."""


class Vectors:
    """Directions that the user gives, equal where their numbers are.

    Args:
        values: (n, width), no row of zeros; only their directions count.

    Raises:
        ValueError: where they are no directions.
    """

    def __init__(self, values: FloatArray) -> None:
        rows = np.atleast_2d(np.asarray(values, dtype=np.float64))
        if rows.ndim != 2 or not rows.size or not np.isfinite(rows).all():
            msg = f"got an array of shape {np.shape(values)}, expected finite numbers, a row a direction"
            raise ValueError(msg)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        if not norms.all():
            msg = "got a direction of zeros"
            raise ValueError(msg)
        self.values: FloatArray = rows / norms
        self.digest = hashlib.blake2b(self.values.tobytes(), digest_size=12).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vectors) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@dataclass(frozen=True)
class StepLook:
    """How the model's last state answers to one step of gradient ascent on a passage alone (G-Drift).

    theta' = theta + eta * grad L, L the mean negative log-likelihood of the tokens that count. The
    answer, every number a mean over these tokens except where said otherwise:

    * `loss`, `loss_after`: L before and after the step, in nats;
    * `logit`, `logit_after`: the logit of the token;
    * `projection`, `projection_after`: (axes,) h . v and h' . v, h the state that foretells the token;
    * `norm`: |h|; `drift`: |h' - h|; `cosine`: that of the angle between h and h';
    * `literal`: 1 where the weights were really changed (Algorithm 1), 0 where the step was batched.

    Attributes:
        eta: length of the step, in units of the gradient; 0 shows what two equal passes differ by.
        state: where h is read.
        axis: what it is projected onto.
        axes: how many random directions.
        seed: of the random directions.
        given: the directions, where they are given.
        weights: what takes the step.
        literal: take it as Algorithm 1 does, one passage at a time.
    """

    eta: float = 1e-2
    state: State = "after"
    axis: Axis = "random"
    axes: int = 1
    seed: int = 0
    given: Vectors | None = None
    weights: Weights = "all"
    literal: bool = False

    @property
    def together(self) -> Hashable:
        return (type(self), self.weights, self.literal)

    @property
    def key(self) -> str:
        fields = {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name != "given"
        }
        fields["given"] = None if self.given is None else self.given.digest
        return f"step{json.dumps(fields, sort_keys=True)}"

    def directions(self, width: int) -> FloatArray | None:
        """Unit vectors, shape (axes, width); None where each state is its own.

        Raises:
            ValueError: where given ones have another width.
        """
        if self.axis == "state":
            return None
        if self.given is not None:
            if self.given.values.shape[1] != width:
                msg = (
                    f"the directions have {self.given.values.shape[1]} numbers, a state has {width}"
                )
                raise ValueError(msg)
            return self.given.values
        rows = np.random.default_rng(self.seed).standard_normal((self.axes, width))
        unit: FloatArray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return unit


@dataclass(frozen=True)
class NormLook:
    """The gradient of the mean loss of the tokens that count.

    The answer:

    * `norm`: its Euclidean norm, in nats per unit of the weights;
    * `n_tokens`: how many tokens count;
    * `literal`: 1 where passages were differentiated one by one, 0 where they were batched.

    Attributes:
        weights: what the gradient is taken of.
    """

    weights: Weights = "all"

    @property
    def together(self) -> Hashable:
        return self

    @property
    def key(self) -> str:
        return f"gradient norm{json.dumps(asdict(self), sort_keys=True)}"


@dataclass(frozen=True)
class StatesLook:
    """Hidden states, means over the places that count: `states`, shape (layers + 1, width).

    The state of a place is what the model has there once it has read its token. Row 0 is the
    embedding's output; the others are what each layer adds up to, as transformers gives them
    (`output_hidden_states`): the last one after the final norm.
    """

    name: str = field(default="states", init=False)

    @property
    def together(self) -> Hashable:
        return self

    @property
    def key(self) -> str:
        return self.name


def passes(looks: Sequence[Look]) -> int:
    """Forward passes that looks cost that are taken together, about.

    A step takes one forward and one backward pass, which costs no more where no weight asks for its
    gradient, and for each length one more with corrections, which cost up to as much again; a gradient's
    norm a forward and a backward pass and products in each layer; states one forward pass.
    """
    lengths = {look.eta for look in looks if isinstance(look, StepLook)}
    if lengths:
        return 2 + 2 * len(lengths)
    return 3 if any(isinstance(look, NormLook) for look in looks) else 1


WEIGHTS: tuple[Weights, ...] = get_args(Weights)
STATES: tuple[State, ...] = get_args(State)
AXES: tuple[Axis, ...] = get_args(Axis)
