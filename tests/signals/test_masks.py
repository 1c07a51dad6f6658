"""Masks in every script: at least one unit is covered, and never all of them."""

import re

import pytest
import tiny

from unseen.errors import UnscorableError
from unseen.signals.masks import characters, how_many, token_spans, units
from unseen.signals.probed import MaskedProbes
from unseen.targets.fake import FakeTokenizer
from unseen.targets.tokenizer import HFTokenizer
from unseen.types import Record, Tokenizer, Turn

TEXTS = (
    "The quick brown fox, 412.70 of them.",
    "她每天早上喝两杯咖啡,然后去上班。",
    "كتب الطبيب وصفة جديدة للمريض أمس",
    "हिन्दी में लिखा गया एक छोटा वाक्य",
    "Ответ пришёл поздно вечером.",
    "def f(x):\n    return x ** 2  # twice\n",
    "éclair caf\N{COMBINING ACUTE ACCENT}e",
    "Yes",
    "42",
    "👩‍⚕️ said no 🙂",
    "a b",
)


@pytest.fixture(scope="module", params=["bytes", "bpe"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return FakeTokenizer() if request.param == "bytes" else HFTokenizer(tiny.tokenizer())


def record(text: str) -> Record:
    return Record("r", (Turn("user", "Go on?"), Turn("assistant", text)))


def letters(text: str) -> str:
    return "".join(letter for letter in text if letter.isalnum())


@pytest.mark.parametrize("rate", [0.01, 0.5, 0.99])
@pytest.mark.parametrize("level", ["word", "token", "character"])
@pytest.mark.parametrize("text", TEXTS)
def test_something_is_covered_and_something_stays(
    tokenizer: Tokenizer, text: str, level: str, rate: float
) -> None:
    signal = MaskedProbes(level=level, rate=rate, placeholder="\N{WHITE SQUARE}")  # type: ignore[arg-type]
    probes = signal.made_from(record(text), tokenizer)
    spans = units(text, level, tokenizer)  # type: ignore[arg-type]
    assert len(spans) >= 2
    for probe in probes:
        masked = probe.turns[1].content
        n_masked = masked.count("\N{WHITE SQUARE}")
        assert n_masked == min(max(1, int(rate * len(spans))), len(spans) - 1)
        assert letters(masked)
        assert len(letters(masked)) < len(letters(text)), "never unmasked"
        # What stays, stays where it is: the gaps match the text's own units and nothing else.
        pattern = ".+?".join(map(re.escape, masked.split("\N{WHITE SQUARE}")))
        assert re.fullmatch(pattern, text, re.DOTALL)
        assert masked.count("\n") == text.count("\n"), "white space is kept"
    assert len({probe.turns for probe in probes}) == len(probes)


def test_levels_differ_where_they_must() -> None:
    tokenizer = HFTokenizer(tiny.tokenizer())
    text = TEXTS[0]
    counts = {level: len(units(text, level, tokenizer)) for level in ("word", "token", "character")}  # type: ignore[arg-type]
    assert counts["word"] == 7
    assert counts["word"] < counts["token"] < counts["character"] == len(letters(text))


@pytest.mark.parametrize(
    "text", [*TEXTS, "", "  two  spaces\n\n", "� as it is", "and at the end �"]
)
def test_tokens_are_found_again_in_the_text(tokenizer: Tokenizer, text: str) -> None:
    found = token_spans(text, tokenizer)
    assert "".join(text[start:stop] for start, stop, _ in found) == text
    assert [start for start, _, _ in found[1:]] == [stop for _, stop, _ in found[:-1]]
    assert sum(n for _, _, n in found) == len(tokenizer.encode(text))
    at = 0
    for start, stop, n in found:
        ids = tokenizer.encode(text)[at : at + n]
        assert tokenizer.decode(ids) == text[start:stop]
        at += n


def test_tokens_that_are_no_text_are_a_reason() -> None:
    with pytest.raises(UnscorableError, match="cannot be found again"):
        token_spans("before <|end|> after", FakeTokenizer())


def test_a_letter_is_masked_with_its_marks() -> None:
    decomposed = "cafe\N{COMBINING ACUTE ACCENT}!"
    assert [decomposed[a:b] for a, b in characters(decomposed)] == [
        "c",
        "a",
        "f",
        "e\N{COMBINING ACUTE ACCENT}",
    ]


def test_other_seeds_draw_other_masks() -> None:
    drawn = [MaskedProbes(seed=seed).made_from(record(TEXTS[0])) for seed in range(4)]
    assert len({tuple(probe.turns for probe in probes) for probes in drawn}) == 4


@pytest.mark.parametrize(("rate", "n", "expected"), [(0.5, 7, 3), (0.1, 5, 1), (0.99, 2, 1)])
def test_at_least_one_and_never_all(rate: float, n: int, expected: int) -> None:
    assert how_many(rate, n) == expected
