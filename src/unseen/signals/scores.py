"""What the other attacks of a run say of a record: for attacks that learn from scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unseen.signals.base import TARGET
from unseen.types import BoolArray, FloatArray, Scores


@dataclass(frozen=True)
class Said:
    """Scores of one record by k attacks, in the order of their names.

    Attributes:
        values: (k,) scores; 0 where there is none.
        scored: (k,) which attacks have scored the record; at least one.
    """

    values: FloatArray
    scored: BoolArray


@dataclass(frozen=True)
class AttackScores:
    """What every other attack of the run says of a record; baselines and what learns left out.

    It is made after the other attacks have scored (`unseen.runs.judge`), and never measured.

    Attributes:
        of: the role of the model that was attacked.
        reference: whether attacks that need a reference model or shadow models count.
    """

    gives: ClassVar[type] = Said
    of: str = TARGET
    reference: bool = True

    def gather(self, scores: Mapping[str, Scores]) -> dict[str, Said]:
        """What is said of each record that any attack has scored."""
        by_attack = [
            dict(zip(scores[name].ids, scores[name].values.tolist(), strict=True))
            for name in sorted(scores)
        ]
        ids = dict.fromkeys(id_ for one in by_attack for id_ in one)
        return {
            id_: Said(
                np.array([one.get(id_, 0.0) for one in by_attack]),
                np.array([id_ in one for one in by_attack], dtype=bool),
            )
            for id_ in ids
        }
