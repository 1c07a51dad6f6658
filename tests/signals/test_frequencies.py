from pathlib import Path

import numpy as np
import pytest
import tiny

from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import UnscorableError
from unseen.signals.base import Materials
from unseen.signals.corpus import Corpus
from unseen.signals.frequencies import TokenFrequencies
from unseen.targets.fake import VOCABULARY, FakeTarget, FakeTokenizer
from unseen.targets.tokenizer import HFTokenizer
from unseen.types import Record, Turn

TEXTS = ["abba", "a cab", "東京"]


def test_counts_are_those_of_every_text() -> None:
    counts = Corpus(TEXTS).counts(FakeTokenizer())
    everything = "".join(TEXTS).encode()
    assert counts.tolist() == [everything.count(bytes([i])) for i in range(256)] + [0] * 5
    frequencies = Corpus(TEXTS).frequencies(FakeTokenizer())
    assert frequencies.sum() == pytest.approx(1)
    assert frequencies.min() == 1 / (len(everything) + VOCABULARY)


def test_counts_are_kept_by_tokenizer_and_corpus(tmp_path: Path) -> None:
    class Watching(FakeTokenizer):
        n = 0

        def encode(self, text: str) -> list[int]:
            Watching.n += 1
            return super().encode(text)

    for texts, expected in ((TEXTS, 3), (TEXTS, 3), (TEXTS[:2], 5)):
        first = Corpus(texts, tmp_path).counts(Watching())
        assert Watching.n == expected
        assert first.tolist() == Corpus(texts).counts(FakeTokenizer()).tolist()
    Corpus(TEXTS, tmp_path).counts(Watching(chat=False))
    assert Watching.n == 8
    assert len(list(tmp_path.iterdir())) == 3
    for file in tmp_path.iterdir():
        file.write_bytes(b"damaged")
    assert Corpus(TEXTS, tmp_path).counts(FakeTokenizer()).sum() == 15
    assert Corpus(TEXTS, tmp_path / "a" / "b").sha256 == Corpus(TEXTS).sha256 != Corpus([]).sha256


def test_frequencies_stand_beside_the_scored_tokens() -> None:
    target = FakeTarget()
    encoder = RecordEncoder(target.tokenizer, Layout(), limit=target.max_length)
    record = Record("a", (Turn("user", "aaaa?"), Turn("assistant", "abab c")))
    empty = Record("b", (Turn("user", "?"),))
    corpus = Corpus(TEXTS)
    value, why = TokenFrequencies().measure([record, empty], Materials(encoder, corpus=corpus))
    assert value.first.tolist() == [True, True, False, False, True, True]
    expected = corpus.frequencies(target.tokenizer)[list(b"abab c")]
    np.testing.assert_array_equal(value.frequency, expected)
    assert isinstance(why, UnscorableError)
    (nothing,) = TokenFrequencies().measure([record], Materials(encoder))
    assert "no corpus" in nothing.problem


def test_a_tokenizer_of_transformers_has_its_size() -> None:
    tokenizer = HFTokenizer(tiny.tokenizer())
    counts = Corpus(tiny.CORPUS).counts(tokenizer)
    assert counts.shape == (tokenizer.size,)
    assert counts.sum() == sum(len(tokenizer.encode(text)) for text in tiny.CORPUS)
