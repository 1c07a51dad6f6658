"""Words that may stand for others, from a list of the user's or from WordNet: no model is needed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from unseen.errors import ModelError, UnscorableError
from unseen.targets.edits import UNKNOWN, Edit, Swap, early, within
from unseen.targets.words import Span, cased_like, word_spans

LIST, WORDNET = "list:", "wordnet:"
_PARTS = ("noun", "verb", "adj", "adv")
_LINE = "word: other, other"
_EXAMPLE = f"a text file with a line a word ({_LINE}), or the folder of WordNet with its data.noun"

Others = Callable[[str], Sequence[str]]
"""A word in small letters -> what may stand for it, the best first."""


class ThesaurusFiller:
    """Puts words in that a thesaurus has for others; it knows nothing of the words around them.

    Args:
        name: what the user calls it.
        others: of a word.
        about: what it is.
        fingerprint: content hash of what it is read from.
    """

    swaps_words = True

    def __init__(self, name: str, others: Others, *, about: str, fingerprint: str) -> None:
        self.name = name
        self.about = about
        self.fingerprint = fingerprint
        self._others = others

    def check(self, texts: Sequence[str]) -> None:
        """There is nothing that could be untrained."""

    def swaps(
        self,
        text: str,
        *,
        top_k: int,
        dropout: float,  # noqa: ARG002 (no model guesses)
        rng: np.random.Generator,  # noqa: ARG002
        until: int | None = None,
    ) -> list[Swap]:
        """For every word that it knows, the first others; score = -rank, ties in the order of the text."""
        known = self._known(text, [span for span in word_spans(text) if early(span, until)])
        return sorted(
            (
                Swap(Edit(*span, cased_like(other, text[slice(*span)])), -float(rank))
                for span, others in known
                for rank, other in enumerate(others[:top_k])
            ),
            key=lambda swap: (-swap.score, swap.edit.start),
        )

    def refills(
        self,
        text: str,
        spans: Sequence[Span],
        *,
        ways: int,
        top_k: int,
        rng: np.random.Generator,
    ) -> list[tuple[Edit, ...]]:
        """Draws another for every word that it knows."""
        known = self._known(text, [span for span in word_spans(text) if within(span, spans)])
        made: dict[tuple[Edit, ...], None] = {}
        for _ in range(ways):
            drawn = [
                (span, others[:top_k][int(rng.integers(len(others[:top_k])))])
                for span, others in known
            ]
            made[
                tuple(Edit(*span, cased_like(word, text[slice(*span)])) for span, word in drawn)
            ] = None
        return list(made)

    def _known(self, text: str, spans: Sequence[Span]) -> list[tuple[Span, Sequence[str]]]:
        found = [(span, self._others(text[slice(*span)].casefold())) for span in spans]
        known = [(span, others) for span, others in found if others]
        if not known:
            raise UnscorableError(UNKNOWN)
        return known


def is_thesaurus(name: str) -> bool:
    """Whether a filler is named that is read from a list or from WordNet."""
    return name.startswith((LIST, WORDNET))


def open_thesaurus(name: str) -> ThesaurusFiller:
    """The filler that a user names: "list:FILE" or "wordnet:FOLDER".

    Raises:
        ModelError: where it cannot be read, with what was expected.
    """
    kind, _, place = name.partition(":")
    path = Path(place).expanduser()
    try:
        others, content = (_read_list if f"{kind}:" == LIST else _read_wordnet)(path)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise ModelError(f"cannot read {path}: {why}", fix=_EXAMPLE) from error
    except (ValueError, IndexError) as error:
        raise ModelError(f"{path} is no WordNet, or damaged", fix=_EXAMPLE) from error
    about = f"words of the list {path.name}" if f"{kind}:" == LIST else "synonyms of WordNet"
    return ThesaurusFiller(name, others, about=about, fingerprint=f"thesaurus-{content}")


def _read_list(path: Path) -> tuple[Others, str]:
    """A line a word, with a colon and others with commas; lines that begin with # say nothing."""
    content = path.read_bytes()
    known: dict[str, list[str]] = {}
    for number, line in enumerate(content.decode("utf-8").splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        word, colon, others = line.partition(":")
        if not colon or not word.strip():
            raise ModelError(f"{path}, line {number}: expected {_LINE}", fix=_EXAMPLE)
        listed = known.setdefault(word.strip().casefold(), [])
        listed += [other.strip() for other in others.split(",") if other.strip()]
    if not any(known.values()):
        raise ModelError(f"{path} has no words that may stand for others", fix=_EXAMPLE)
    different = {
        word: [one for one in dict.fromkeys(others) if one.casefold() != word]
        for word, others in known.items()
    }
    return lambda word: different.get(word, ()), hashlib.sha256(content).hexdigest()[:32]


def _read_wordnet(folder: Path) -> tuple[Others, str]:
    """The words of each sense of a word, its commonest sense first (wndb, version 3)."""
    digest = hashlib.sha256()
    senses: dict[str, list[tuple[str, str]]] = {}
    words: dict[tuple[str, str], list[str]] = {}
    for part in _PARTS:
        for kind in ("index", "data"):
            content = (folder / f"{kind}.{part}").read_bytes()
            digest.update(content)
            for line in content.decode("utf-8").splitlines():
                fields = line.split()
                if line.startswith(" ") or not fields:  # the licence
                    continue
                if (
                    kind == "index"
                ):  # lemma, part, senses n, pointers p, p symbols, 2 numbers, n places
                    places = fields[6 + int(fields[3]) :]
                    senses.setdefault(fields[0], []).extend((part, place) for place in places)
                else:  # place, file, part, words n in hexadecimal, n of word and number
                    n = int(fields[3], 16)
                    words[part, fields[0]] = [
                        one.partition("(")[0] for one in fields[4 : 4 + 2 * n : 2]
                    ]

    def others(word: str) -> Sequence[str]:
        found = (one for sense in senses.get(word, ()) for one in words.get(sense, ()))
        return [one for one in dict.fromkeys(found) if "_" not in one and one.casefold() != word]

    return others, digest.hexdigest()[:32]
