"""Numbers about each record's text, for asking what the most exposed records have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from unseen.data.duplicates import normalised
from unseen.signals.text import words
from unseen.types import FloatArray, Record


def features(records: Sequence[Record], sides: Sequence[bool]) -> dict[str, FloatArray]:
    """What can be said of each record by its text and its side alone.

    Args:
        records: all judged records.
        sides: (n,) which side each is on.

    Returns:
        Name -> (n,) values: `repetition`, share of the word pairs in a record that it has had
        before; `copies`, records of its side with the same text, itself included; `rare_words`,
        share of its words that no other record has.
    """
    texts = [normalised(record.text) for record in records]
    copies = Counter(zip(sides, texts, strict=True))
    said = [words(text) for text in texts]
    # Copies of one text count once, or its own words would not be rare.
    holders = Counter(word for text in set(texts) for word in set(words(text)))
    return {
        "repetition": np.array([_repetition(one) for one in said]),
        "copies": np.array(
            [copies[key] for key in zip(sides, texts, strict=True)], dtype=np.float64
        ),
        "rare_words": np.array([_share([holders[word] == 1 for word in one]) for one in said]),
    }


def _repetition(said: list[str]) -> float:
    pairs = list(pairwise(said))
    return 1 - len(set(pairs)) / len(pairs) if pairs else 0.0


def _share(flags: list[bool]) -> float:
    return sum(flags) / len(flags) if flags else 0.0
