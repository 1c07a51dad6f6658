"""Other words for parts of a text: what stands where, and how well it fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unseen.targets.words import Span

UNKNOWN = "the model that fills in words knows no word of this text that it could replace"


@dataclass(frozen=True)
class Edit:
    """Characters start to stop of a text, and what is put in their place."""

    start: int
    stop: int
    put: str


@dataclass(frozen=True)
class Swap:
    """An edit that replaces one word, and how well the new one fits: more is better."""

    edit: Edit
    score: float


def edited(text: str, edits: Sequence[Edit]) -> str:
    """The text with its edits, in order of their places; everything else stays."""
    pieces, end = [], 0
    for edit in edits:
        pieces += [text[end : edit.start], edit.put]
        end = edit.stop
    return "".join([*pieces, text[end:]])


def early(span: Span, until: int | None) -> bool:
    """Whether a word ends at a place or before it; without a place, all do."""
    return until is None or span[1] <= until


def within(span: Span, spans: Sequence[Span]) -> bool:
    """Whether a word is in one of some stretches."""
    return any(start <= span[0] and span[1] <= stop for start, stop in spans)
