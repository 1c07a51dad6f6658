"""Which texts a set holds, told so coarsely that no single text can be read from it or proved by it.

Two sets of records are compared when the records themselves are gone. Every text falls into one of
4096 buckets by a public hash, and a sketch counts texts by bucket: 12 bits of each.

Why so few bits. Whoever has the whole hash of a record can guess records until one fits: salt does not
help, for it has to lie beside the hashes, and two sketches with salts of their own could not be compared.
With 12 bits each guess fits one time in 4096 / n whatever it says, so of a thousand texts that a template
allows, dozens fit a sketch of a few hundred records. What stays visible is what the sketch is for: whoever
has a whole file of candidates can find out whether many of them are in the set.

What it finds. Two sets of n and m texts with nothing in common have n m / 4096 pairs in one bucket, give
or take the root of that; each shared text adds one. Sets of one size are told to overlap from some 7 %
on if they are large, and from some ten records on if they are small.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable

import numpy as np

from unseen.data.duplicates import normalised

BUCKETS = 4096
"""Of a sketch: 12 bits of the hash of a text."""

CHANCE = 1e-5
"""How rarely two sets with nothing in common may be said to overlap."""


def sketch(texts: Iterable[str]) -> str:
    """Counts of texts by bucket; texts that say the same, but for case and white space, count once.

    Returns:
        4096 counts of 16 bits, in base64.
    """
    counts = np.zeros(BUCKETS, dtype="<u2")
    for text in {normalised(text) for text in texts}:
        at = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) % BUCKETS
        counts[at] = min(int(counts[at]) + 1, 0xFFFF)
    return base64.b64encode(counts.tobytes()).decode()


def is_sketch(value: str) -> bool:
    """Whether something is a sketch at all.

    >>> is_sketch(sketch(["a", "b"])), is_sketch("a")
    (True, False)
    """
    try:
        return len(base64.b64decode(value, validate=True)) == 2 * BUCKETS
    except (binascii.Error, ValueError):
        return False


def shared(one: str, other: str) -> int:
    """About how many texts two sketches have in common: 0 where chance alone explains all of it.

    With nothing in common, pairs in one bucket are Poisson distributed about n m / 4096.

    >>> shared(sketch(map(str, range(100))), sketch(map(str, range(100, 200))))
    0
    >>> 95 <= shared(sketch(map(str, range(100))), sketch(map(str, range(100)))) <= 105
    True
    """
    from scipy import special

    counts = [
        np.frombuffer(base64.b64decode(s), dtype="<u2").astype(np.int64) for s in (one, other)
    ]
    pairs = int(counts[0] @ counts[1])
    expected = int(counts[0].sum()) * int(counts[1].sum()) / BUCKETS
    if not pairs or special.pdtrc(pairs - 1, expected) > CHANCE:
        return 0
    most = min(int(one.sum()) for one in counts)
    return max(1, min(round(pairs - expected), most))
