"""Records that stand on both sides: a text that is member and non-member has no membership.

Two texts are exact duplicates where they are equal after NFKC, case folding and collapsing of white
space, and near duplicates where the Jaccard similarity of their shingle sets reaches a threshold.
Shingles are five words in a row; where one of the two texts is short or not written with spaces,
they are five characters in a row, for both. MinHash (Broder 1997) with locality-sensitive hashing
finds candidates; every candidate is verified with the exact similarity.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from unseen.data.read import Records
from unseen.errors import ConfigError, DataError

SHINGLE = 5
"""Words, or characters, in one shingle."""

_FEW_WORDS = 20  # below it, one changed word in the middle already takes most of the word shingles
_LONG_WORD = 20  # characters a word on average above which a text is not written with spaces
_HASHES = 256  # MinHash values of a text
_MISSED = 1e-6  # chance that hashing misses a pair right at the threshold


@dataclass(frozen=True, slots=True)
class Overlap:
    """A member and a non-member with the same text, or nearly so.

    Attributes:
        member_id: the member.
        nonmember_id: the non-member.
        kind: equal after normalisation, or similar.
        similarity: Jaccard similarity of the shingle sets, from the threshold to 1.
    """

    member_id: str
    nonmember_id: str
    kind: Literal["exact", "near"]
    similarity: float


@dataclass(frozen=True, slots=True)
class Dropped:
    """A record that was taken out, and the closest record of the other side."""

    id: str
    side: Literal["member", "nonmember"]
    reason: Literal["exact_duplicate", "near_duplicate"]
    other_id: str


def normalised(text: str) -> str:
    """The text as duplicates are compared: NFKC, case folded, white space collapsed.

    >>> normalised("Ｈello   WORLD ")
    'hello world'
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())


def repeated(records: Records) -> dict[str, int]:
    """How many records of each side say what an earlier record of their side says.

    They are kept: repetition in the training data is what makes records leak. A text that is
    repeated three times counts twice.

    Returns:
        Counts for "members" and "nonmembers".
    """
    sides = {"members": records.members, "nonmembers": records.nonmembers}
    return {
        side: len(of_side) - len({normalised(record.text) for record in of_side})
        for side, of_side in sides.items()
    }


def find_overlap(records: Records, threshold: float = 0.8) -> tuple[Overlap, ...]:
    """Pairs of a member and a non-member that say the same, or nearly so.

    Each record that has any partner is paired with its closest one (ties: the first), so that the
    result grows with the records and not with their pairs.

    Args:
        records: both sides; what is compared is `Record.text`.
        threshold: smallest Jaccard similarity of near duplicates, above 0 and at most 1.

    Returns:
        Pairs in the order of the members, then of the non-members.

    Raises:
        ConfigError: where the threshold is out of range.
    """
    if not 0 < threshold <= 1:
        raise ConfigError(
            f"got threshold={threshold}, expected above 0 and at most 1", fix="threshold=0.8"
        )
    members = [normalised(record.text) for record in records.members]
    nonmembers = [normalised(record.text) for record in records.nonmembers]
    first_member, first_nonmember = _first_places(members), _first_places(nonmembers)
    pairs: dict[tuple[int, int], float | None] = {}  # None: equal
    closest_of_member: dict[int, tuple[float, int]] = {}
    closest_of_nonmember: dict[int, tuple[float, int]] = {}
    texts = list(first_member), list(first_nonmember)
    for i, j, similarity in _near_pairs(*texts, threshold):
        m, n = first_member[texts[0][i]], first_nonmember[texts[1][j]]
        _keep_closest(closest_of_member, m, similarity, n)
        _keep_closest(closest_of_nonmember, n, similarity, m)
    for m, text in enumerate(members):
        if text in first_nonmember:
            pairs[m, first_nonmember[text]] = None
        elif first_member[text] in closest_of_member:
            similarity, n = closest_of_member[first_member[text]]
            pairs[m, n] = similarity
    for n, text in enumerate(nonmembers):
        if text in first_member:
            pairs[first_member[text], n] = None
        elif first_nonmember[text] in closest_of_nonmember:
            similarity, m = closest_of_nonmember[first_nonmember[text]]
            pairs[m, n] = similarity
    ids = [record.id for record in records.members], [record.id for record in records.nonmembers]
    return tuple(
        Overlap(ids[0][m], ids[1][n], "exact", 1.0)
        if similarity is None
        else Overlap(ids[0][m], ids[1][n], "near", similarity)
        for (m, n), similarity in sorted(pairs.items(), key=lambda pair: pair[0])
    )


def drop_overlap(records: Records, threshold: float = 0.8) -> tuple[Records, tuple[Dropped, ...]]:
    """Takes out every record that has a partner on the other side, on both sides.

    A record that is in the data and, in other words, also outside of it has no defined
    membership; to drop the non-member alone would leave a member that proves nothing.

    Args:
        records: both sides.
        threshold: as for `find_overlap`.

    Returns:
        The records that are left, and those that are not, in the order of the records.

    Raises:
        DataError: where a side has no records left.
        ConfigError: where the threshold is out of range.
    """
    closest: dict[str, Dropped] = {}
    rank = {"exact": 0, "near": 1}
    for found in sorted(
        find_overlap(records, threshold), key=lambda o: (rank[o.kind], -o.similarity)
    ):
        reason: Literal["exact_duplicate", "near_duplicate"] = (
            "exact_duplicate" if found.kind == "exact" else "near_duplicate"
        )
        m, n = found.member_id, found.nonmember_id
        closest.setdefault(m, Dropped(m, "member", reason, n))
        closest.setdefault(n, Dropped(n, "nonmember", reason, m))
    left = records.keep(np.array([id_ not in closest for id_ in records.ids], dtype=bool))
    for side, kept in (("members", left.members), ("nonmembers", left.nonmembers)):
        if closest and not kept:
            raise DataError(
                f"nothing is left: all of the {side} also occur on the other side",
                path=records.sources[side].path,
                fix=f"give records that do not: --{side} FILE",
            )
    return left, tuple(closest[id_] for id_ in records.ids if id_ in closest)


def _first_places(texts: Sequence[str]) -> dict[str, int]:
    """Text -> where it stands first; in the order of the texts."""
    places: dict[str, int] = {}
    for at, text in enumerate(texts):
        places.setdefault(text, at)
    return places


def _keep_closest(
    closest: dict[int, tuple[float, int]], of: int, similarity: float, to: int
) -> None:
    best = closest.get(of)
    if best is None or (-similarity, to) < (-best[0], best[1]):
        closest[of] = (similarity, to)


# --- near duplicates ---------------------------------------------------------------------------

Shingles = Callable[[str], set[str]]


def has_words(text: str) -> bool:
    """Whether a normalised text has enough words, set apart by spaces, for shingles of words."""
    count = text.count(" ") + 1
    return count >= _FEW_WORDS and len(text) <= (_LONG_WORD + 1) * count


def word_shingles(text: str) -> set[str]:
    """Every five words in a row of a normalised text; the whole text where there are fewer."""
    words = text.split(" ")
    return {" ".join(words[i : i + SHINGLE]) for i in range(max(1, len(words) - SHINGLE + 1))}


def character_shingles(text: str) -> set[str]:
    """Every five characters in a row of a normalised text; the whole text where there are fewer."""
    return {text[i : i + SHINGLE] for i in range(max(1, len(text) - SHINGLE + 1))}


def _near_pairs(
    members: Sequence[str], nonmembers: Sequence[str], threshold: float
) -> Iterator[tuple[int, int, float]]:
    """Positions and similarity of all unequal texts that are similar; no text occurs twice."""
    wordy = [i for i, text in enumerate(members) if has_words(text)]
    brief = [i for i, text in enumerate(members) if not has_words(text)]
    wordy_non = [j for j, text in enumerate(nonmembers) if has_words(text)]
    brief_non = [j for j, text in enumerate(nonmembers) if not has_words(text)]
    everyone = list(range(len(nonmembers)))
    for left, right, shingles in (
        (wordy, wordy_non, word_shingles),
        (brief, everyone, character_shingles),
    ):
        texts = [members[i] for i in left], [nonmembers[j] for j in right]
        for i, j, similarity in _similar(*texts, shingles, threshold):
            yield left[i], right[j], similarity
    texts = [nonmembers[j] for j in brief_non], [members[i] for i in wordy]
    for j, i, similarity in _similar(*texts, character_shingles, threshold):
        yield wordy[i], brief_non[j], similarity


def _similar(
    left: Sequence[str], right: Sequence[str], shingles: Shingles, threshold: float
) -> Iterator[tuple[int, int, float]]:
    """Positions and similarity of unequal texts of the two lists.

    A text that reaches the threshold with any text of the other list shares at least that part of
    its shingles with the whole of it; texts that do not are left out before anything is hashed.
    """
    numbers: dict[str, int] = {}
    sets = [
        {numbers.setdefault(shingle, len(numbers)) for shingle in shingles(text)} for text in left
    ]
    right_sets, sizes = {}, {}
    for j, text in enumerate(right):
        own = shingles(text)
        shared = {numbers[shingle] for shingle in own if shingle in numbers}
        if _reaches(len(shared), len(own), threshold):
            right_sets[j], sizes[j] = shared, len(own)
    union = set().union(*right_sets.values())
    left_sets = {
        i: own for i, own in enumerate(sets) if _reaches(len(own & union), len(own), threshold)
    }
    for i, j in _candidates(left_sets, right_sets, threshold):
        common = len(left_sets[i] & right_sets[j])
        similarity = common / (len(left_sets[i]) + sizes[j] - common)
        if similarity >= threshold and left[i] != right[j]:
            yield i, j, similarity


def _reaches(shared: int, size: int, threshold: float) -> bool:
    return shared >= threshold * size - 1e-9  # of rounding


def _candidates(
    left: Mapping[int, set[int]], right: Mapping[int, set[int]], threshold: float
) -> Iterator[tuple[int, int]]:
    """Pairs that may be similar, by locality-sensitive hashing.

    Sets on the right may lack what no set on the left has: that only makes pairs more similar.
    """
    if not left or not right:
        return
    from datasketch import MinHash, MinHashLSH

    bands, rows = _bands(threshold)
    index = MinHashLSH(num_perm=bands * rows, params=(bands, rows))

    def hashed(sets: Mapping[int, set[int]]) -> Iterator[tuple[int, Any]]:
        encoded = ([number.to_bytes(8, "little") for number in own] for own in sets.values())
        minhashes = MinHash.generator(encoded, num_perm=bands * rows, seed=1)
        return zip(sets, minhashes, strict=True)

    for i, minhash in hashed(left):
        index.insert(i, minhash)
    for j, minhash in hashed(right):
        for i in sorted(index.query(minhash)):
            yield i, j


def _bands(threshold: float) -> tuple[int, int]:
    """Bands, and rows a band: the fewest candidates that still miss hardly any similar pair."""
    for rows in range(16, 1, -1):
        bands = _HASHES // rows
        if (1 - threshold**rows) ** bands <= _MISSED:
            return bands, rows
    return _HASHES, 1
