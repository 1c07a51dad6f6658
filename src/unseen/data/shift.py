"""Which words tell members from non-members, whatever a model remembers of them.

Where two sets of records come from different sources or times, their words differ, and every
membership score measures that difference too. Words are named so that the user can see what went
wrong; only words of many records are, since a word of few could point to a person.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from unseen.signals.text import words
from unseen.types import Record

MIN_RECORDS = 10
MIN_SHARE = 0.15
"""How many records, and which share of a side's, must hold a word before it is named: a name that
runs through the records of one person must not be."""

_LEVEL = 0.01  # of all words together


def telling_words(
    members: Sequence[Record], nonmembers: Sequence[Record], *, most: int = 8
) -> tuple[str, ...]:
    """Words that occur in a clearly larger share of one side's records.

    For each word in at least `MIN_RECORDS` records and `MIN_SHARE` of a side, the shares of members
    and of non-members that hold it are compared (two-proportion z-test), corrected for all words
    together (Bonferroni).

    Args:
        members: records of one side.
        nonmembers: records of the other.
        most: how many words to name at most.

    Returns:
        Words, the most telling first; none where the sides do not differ.
    """
    if not members or not nonmembers:
        return ()
    counted = [_record_counts(side) for side in (members, nonmembers)]
    n = np.array([len(members), len(nonmembers)], dtype=np.float64)
    able = sorted(
        word
        for word in set(counted[0]) | set(counted[1])
        if counted[0][word] + counted[1][word] >= MIN_RECORDS
        and max(counter[word] / size for counter, size in zip(counted, n, strict=True)) >= MIN_SHARE
        and any(map(str.isalnum, word))
    )
    if not able:
        return ()
    from scipy.stats import norm

    hits = np.array([[counter[word] for counter in counted] for word in able], dtype=np.float64)
    pooled = hits.sum(axis=1) / n.sum()
    spread = np.sqrt(pooled * (1 - pooled) * (1 / n).sum())
    difference = np.abs(hits[:, 0] / n[0] - hits[:, 1] / n[1])
    z = np.divide(difference, spread, out=np.zeros_like(spread), where=spread > 0)
    limit = norm.isf(_LEVEL / 2 / len(able))
    order = sorted(range(len(able)), key=lambda i: (-z[i], able[i]))
    return tuple(able[i] for i in order[:most] if z[i] > limit)


def _record_counts(records: Sequence[Record]) -> Counter[str]:
    """Word -> how many of the records hold it."""
    found: Counter[str] = Counter()
    for record in records:
        found.update(set(words(record.text)))
    return found
