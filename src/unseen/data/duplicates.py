"""Records that stand on both sides: a text that is member and non-member has no membership.

Two texts are exact duplicates where they are equal after NFKC, case folding and collapsing of white
space, and near duplicates where the Jaccard similarity of their shingle sets reaches a threshold.
Shingles are five words in a row; where one of the two texts is short or not written with spaces,
they are five characters in a row, for both. Shared shingles are counted over an inverted index, so
that the similarity of every pair is exact and none is missed.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from unseen.data.records import Records
from unseen.errors import ConfigError, DataError
from unseen.types import Record

SHINGLE = 5
"""Words, or characters, in one shingle."""

_FEW_WORDS = 20  # below it, one changed word in the middle already takes most of the word shingles
_LONG_WORD = 20  # characters a word on average above which a text is not written with spaces


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


def inseparable(records: Sequence[Record], also: Sequence[str | None] = ()) -> list[list[int]]:
    """Positions of records that have to stay together: one cluster, or one text.

    Two records that say the same give the same score: split apart, one tells what the other is,
    and counted as two, they make an interval too narrow.

    Args:
        records: in any order.
        also: what else keeps a record together with others that have it, or None; one a record.

    Returns:
        Groups in the order of their first record; most of them hold one.
    """
    parent = list(range(len(records)))

    def root(at: int) -> int:
        while parent[at] != at:
            parent[at] = parent[parent[at]]
            at = parent[at]
        return at

    first: dict[tuple[str, str], int] = {}
    for at, record in enumerate(records):
        keys = [("text", normalised(record.text))]
        if record.cluster is not None:
            keys.append(("cluster", record.cluster))
        if also and (shared := also[at]) is not None:
            keys.append(("also", shared))
        for key in keys:
            parent[root(at)] = root(first.setdefault(key, at))
    groups: dict[int, list[int]] = {}
    for at in range(len(records)):
        groups.setdefault(root(at), []).append(at)
    return list(groups.values())


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


def repeats_in(
    pool: Sequence[Record], records: Sequence[Record], threshold: float = 0.8
) -> dict[str, frozenset[int]]:
    """Which records of a pool say the same as a record, or nearly so.

    Args:
        pool: records that may be shown beside others.
        records: the others.
        threshold: as for `find_overlap`.

    Returns:
        Id of a record -> places in the pool; records without any are left out.
    """
    places: dict[str, list[int]] = {}
    for at, shown in enumerate(pool):
        places.setdefault(normalised(shown.text), []).append(at)
    texts = [normalised(record.text) for record in records]
    once, in_pool = list(_first_places(texts)), list(places)
    found: dict[str, set[int]] = {text: set(places.get(text, ())) for text in once}
    for i, j, _ in _near_pairs(once, in_pool, threshold):
        found[once[i]].update(places[in_pool[j]])
    return {
        record.id: frozenset(found[text])
        for record, text in zip(records, texts, strict=True)
        if found[text]
    }


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
    its shingles with the whole of it; texts that do not are left out before anything is counted.
    """
    numbers: dict[str, int] = {}
    sets = [[numbers.setdefault(s, len(numbers)) for s in shingles(text)] for text in left]
    kept: dict[int, list[int]] = {}
    sizes: dict[int, int] = {}
    for j, text in enumerate(right):
        own = shingles(text)
        shared = [numbers[shingle] for shingle in own if shingle in numbers]
        if len(shared) >= threshold * len(own) - 1e-9:  # of rounding
            kept[j], sizes[j] = shared, len(own)
    used = np.zeros(len(numbers), dtype=bool)
    for shared in kept.values():
        used[shared] = True
    places: list[list[int]] = [[] for _ in numbers]  # shingle -> texts of the left that have it
    for i, of_left in enumerate(sets):
        if np.count_nonzero(used[of_left]) >= threshold * len(of_left) - 1e-9:
            for number in of_left:
                places[number].append(i)
    postings = [np.array(p, dtype=np.int64) for p in places]
    lengths = np.array([len(own) for own in sets])
    for j, shared in kept.items():
        common = np.bincount(np.concatenate([postings[n] for n in shared]), minlength=len(left))
        similarity = common / (lengths + sizes[j] - common)
        for i in np.flatnonzero(similarity >= threshold).tolist():
            if left[i] != right[j]:
                yield i, j, float(similarity[i])
