from collections import Counter

import pytest

from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import UnscorableError
from unseen.signals.base import Materials
from unseen.signals.recited import RecitedWords, recall
from unseen.signals.text import word_spans, words
from unseen.targets.fake import FakeTarget
from unseen.types import Record, Turn


def chat(said: str) -> Record:
    return Record("r", (Turn("user", "Who?"), Turn("assistant", said)))


def materials(limit: int = 4096, **layout: str) -> Materials:
    return Materials(RecordEncoder(FakeTarget().tokenizer, Layout(**layout), limit=limit))


def slow(found: str, expected: str) -> float:
    """ROUGE-1 recall with loops: a word that was found once answers for one word."""
    left = words(found)
    hits = 0
    for word in words(expected):
        if word in left:
            left.remove(word)
            hits += 1
    return hits / len(words(expected))


TEXTS = ["a b a", "", "A, c! b? b", "東京は静か", "静かな東京", "b b b b", "Straße straße"]


@pytest.mark.parametrize("found", TEXTS)
@pytest.mark.parametrize("expected", [text for text in TEXTS if text])
def test_recall_equals_a_loop(found: str, expected: str) -> None:
    assert recall(words(found), words(expected)) == pytest.approx(slow(found, expected))


def test_recall_agrees_with_rouge_score() -> None:
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(["rouge1"])
    for found, expected in (("a b a c", "a a d"), ("The dog.", "the cat, the dog")):
        right = scorer.score(expected, found)["rouge1"].recall
        assert recall(words(found), words(expected)) == pytest.approx(right)


@pytest.mark.parametrize(
    ("said", "prefix", "beginning"),
    [
        ("One two, three four!", 0.5, "One two"),
        ("One two three", 0.5, "One"),
        ("One two three", 0.99, "One two"),
        ("One two", 0.01, "One"),
        ("  (One) — two.", 0.5, "  (One"),
        ("東京は静かだ", 0.5, "東京は"),
    ],
)
def test_a_response_is_cut_at_the_end_of_a_word(said: str, prefix: float, beginning: str) -> None:
    first, rest = RecitedWords(prefix=prefix).cut(chat(said))
    assert (first, first + rest) == (beginning, said)
    assert words(rest)


@pytest.mark.parametrize("text", [*TEXTS, "x 1,5 Ünder_score ก็ดี"])
def test_spans_are_those_of_the_words(text: str) -> None:
    folded = text.casefold()
    assert [folded[a:b] for a, b in word_spans(folded)] == words(text)
    assert Counter("".join(words(text))) == Counter(
        x for a, b in word_spans(folded) for x in folded[a:b]
    )


@pytest.mark.parametrize("layout", [{}, {"end_of_turn": "include"}, {"loss_on": "all"}])
def test_the_prompt_is_the_record_up_to_the_cut(layout: dict[str, str]) -> None:
    signal = RecitedWords(samples=3)
    prompts = signal.prompts(chat("Nobody knows him well"), materials(**layout))
    expected = FakeTarget().tokenizer.encode("<|user|>Who?<|end|><|assistant|>Nobody knows")
    assert {prompt.ids for prompt in prompts} == {tuple(expected)}
    assert [prompt.number for prompt in prompts] == [0, 1, 2]
    assert {prompt.max_new_tokens for prompt in prompts} == {len(" him well")}
    (document,) = RecitedWords(samples=1).prompts(
        Record("d", (Turn("text", "Nobody knows"),)), materials()
    )
    assert document.ids == (256, *b"Nobody")


def test_a_continuation_is_no_longer_than_rest_context_and_limit() -> None:
    def longest(**choices: int) -> int:
        limit = choices.pop("limit", 4096)
        (prompt,) = RecitedWords(samples=1, **choices).prompts(chat("ab cd"), materials(limit))
        return prompt.max_new_tokens

    whole = len("Who?") + 3 + len("ab")
    assert (longest(), longest(longest=2), longest(limit=whole + 1)) == (3, 2, 1)
    with pytest.raises(UnscorableError, match="no room in the context"):
        longest(limit=whole)


def test_what_is_too_short_or_ends_otherwise_has_a_reason() -> None:
    with pytest.raises(UnscorableError, match="fewer than two words"):
        RecitedWords().prompts(chat("Fever!"), materials())
    with pytest.raises(UnscorableError, match="does not end with a response"):
        RecitedWords().cut(Record("r", (Turn("user", "Say it."),)))


def test_counts_of_what_was_written() -> None:
    seen = RecitedWords(samples=2).observe(
        chat("One two three four"), None, ["Three and", "x" * 90]
    )
    assert seen.recall.tolist() == [0.5, 0]
    assert seen.n_compressed[0] > 9
    assert seen.n_compressed[1] < 20


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"samples": 0}, "got samples=0"),
        ({"longest": 0}, "got longest=0"),
        ({"prefix": 1.0}, "got prefix=1.0"),
        ({"temperature": 0.0}, "got temperature=0 with samples=10, expected samples=1"),
        ({"top_k": -1}, "got top_k=-1"),
    ],
)
def test_refuses_what_makes_no_sense(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RecitedWords(**fields)
