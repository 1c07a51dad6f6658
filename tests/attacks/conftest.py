"""Hand-built observations: what the attacks see, without any model."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from unseen.signals.base import Observations, Signal
from unseen.types import TokenStats


@pytest.fixture
def tokens() -> Callable[..., TokenStats]:
    """Token statistics from plain lists."""

    def made(
        logprob: Sequence[float],
        mean: Sequence[float] | None = None,
        sd: Sequence[float] | None = None,
        dtype: Any = np.float64,
    ) -> TokenStats:
        return TokenStats(
            np.array(logprob, dtype),
            None if mean is None else np.array(mean, dtype),
            None if sd is None else np.array(sd, dtype),
        )

    return made


@pytest.fixture
def observed() -> Callable[..., Observations]:
    """Observations of every record that any signal speaks of; a text value is a reason."""

    def made(values: Mapping[Signal, Mapping[str, Any]]) -> Observations:
        ids = tuple(dict.fromkeys(id_ for by_id in values.values() for id_ in by_id))
        return Observations(
            ids,
            {s: {i: v for i, v in m.items() if not isinstance(v, str)} for s, m in values.items()},
            {s: {i: v for i, v in m.items() if isinstance(v, str)} for s, m in values.items()},
        )

    return made
