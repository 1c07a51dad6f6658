"""How a record is written, apart from what it says: case, white space, punctuation, length."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unseen.signals.base import TARGET, Materials
from unseen.types import FloatArray, Record

_PUNCTUATION = ".,;:!?'\"()[]{}-–—…*#/\\|`<>“”‘’«»"
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Form:
    """Numbers about the writing of one record.

    Attributes:
        values: (f,) in the order of `WritingForm.names`.
    """

    values: FloatArray


@dataclass(frozen=True)
class WritingForm:
    """Features that differ where two files went through different hands, whatever they are about.

    Counted per character or as yes/no, of the whole record with its prompt. They say little of a
    record, but nobody needs them afterwards, so they are used and never kept.
    """

    gives: ClassVar[type] = Form
    private: ClassVar[bool] = True
    names: ClassVar[tuple[str, ...]] = (
        "log_length", "log_words", "word_length", "upper", "digits", "not_ascii", "spaces",
        "line_breaks", "double_spaces", "begins_blank", "ends_blank", "begins_upper",
        "ends_with_mark", "turns", *(f"mark_{mark}" for mark in _PUNCTUATION),
    )  # fmt: skip
    of: str = TARGET

    def measure(self, records: Sequence[Record], materials: Materials) -> list[Form]:  # noqa: ARG002
        """Features of each record."""
        return [Form(np.array(_features(record), dtype=np.float64)) for record in records]


def _features(record: Record) -> list[float]:
    text = record.text
    n = max(1, len(text))
    said = _WORD.findall(text)
    parts = [turn.content for turn in record.turns]
    return [
        np.log1p(len(text)),
        np.log1p(len(said)),
        float(np.mean([len(word) for word in said])) if said else 0.0,
        sum(map(str.isupper, text)) / n,
        sum(map(str.isdigit, text)) / n,
        sum(letter > "\x7f" for letter in text) / n,
        text.count(" ") / n,
        text.count("\n") / n,
        float("  " in text),
        float(any(part[:1].isspace() for part in parts)),
        float(any(part[-1:].isspace() for part in parts)),
        float(parts[-1].lstrip()[:1].isupper()),
        float(parts[-1].rstrip()[-1:] in _PUNCTUATION) if parts[-1].strip() else 0.0,
        float(len(parts)),
        *(text.count(mark) / n for mark in _PUNCTUATION),
    ]
