"""Random encoded records for training."""

from __future__ import annotations

import numpy as np

from unseen.types import Encoded

VOCABULARY = 300


def some_examples(n: int = 10, *, seed: int = 0, holes: bool = False) -> list[Encoded]:
    """Random records of 5 to 24 tokens: a prompt that does not count, an answer that does."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        prompt, answer = rng.integers(1, 8), rng.integers(4, 17)
        scored = np.repeat([False, True], [prompt, answer])
        if holes:
            scored &= rng.random(len(scored)) < 0.6
            scored[prompt] = True
        ids = rng.integers(0, VOCABULARY, len(scored))
        made.append(Encoded(tuple(ids.tolist()), scored))
    return made
