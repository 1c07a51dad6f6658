from typing import Any

import pytest
import tiny

from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import UnscorableError
from unseen.signals.base import Materials
from unseen.signals.text import CommonText, SameText
from unseen.targets.fake import FakeTokenizer
from unseen.targets.huggingface import HFTokenizer
from unseen.types import Record, Tokenizer, Turn

DIFFERENT = "the two models read different parts of this record"
DOCUMENT = Record("d", (Turn("text", "The quick brown fox jumps."),))
CONVERSATION = Record("c", (Turn("user", "Who jumps, then?"), Turn("assistant", "The quick fox.")))
BYTES, BARE_BYTES = FakeTokenizer(), FakeTokenizer(bos=False)
PIECES = HFTokenizer(tiny.tokenizer())
"""Longer tokens, and none before a text."""


def encoder(tokenizer: Tokenizer, limit: int = 4096, **choices: Any) -> RecordEncoder:
    return RecordEncoder(tokenizer, Layout(**choices), limit=limit)


def common(record: Record, target: RecordEncoder, reference: RecordEncoder) -> str | int:
    """The size of the common text, or why there is none; the same whoever is the target."""
    found = set()
    for one, other in ((target, reference), (reference, target)):
        (value,) = SameText().measure([record], Materials(other, of_target=one))
        found.add(value.problem if isinstance(value, UnscorableError) else value.n_bytes)
    assert len(found) == 1
    return found.pop()


def test_other_tokens_for_the_same_text() -> None:
    said = len("The quick fox.")
    assert common(CONVERSATION, encoder(BYTES), encoder(PIECES)) == said
    assert common(CONVERSATION, encoder(BYTES), encoder(PIECES, template="plain")) == said
    assert common(DOCUMENT, encoder(BYTES), encoder(BYTES)) == len(DOCUMENT.text)


def test_a_first_token_that_only_one_model_scores() -> None:
    assert common(DOCUMENT, encoder(BYTES), encoder(BARE_BYTES)) == DIFFERENT
    assert common(DOCUMENT, encoder(BYTES), encoder(PIECES)) == DIFFERENT
    assert common(CONVERSATION, encoder(BYTES), encoder(BARE_BYTES)) == len("The quick fox.")


def test_neither_model_scores_the_first_token() -> None:
    assert common(DOCUMENT, encoder(PIECES), encoder(PIECES)) == len(
        PIECES.decode(PIECES.encode(DOCUMENT.text)[1:])
    )
    assert common(DOCUMENT, encoder(BARE_BYTES), encoder(PIECES)) == DIFFERENT


@pytest.mark.parametrize("truncation", ["right", "left"])
def test_a_shorter_context(truncation: str) -> None:
    whole, cut = encoder(BYTES, truncation=truncation), encoder(BYTES, 20, truncation=truncation)
    assert common(DOCUMENT, whole, cut) == DIFFERENT
    assert common(DOCUMENT, cut, cut) == 19
    assert common(DOCUMENT, whole, encoder(BYTES, 27, truncation=truncation)) == 26


def test_a_prompt_that_only_one_model_reads_whole() -> None:
    whole, cut = encoder(BYTES), encoder(BYTES, 20, truncation="left")
    assert cut.encode(CONVERSATION).truncated
    assert common(CONVERSATION, whole, cut) == len("The quick fox.")


def test_what_one_model_cannot_score_has_its_reason() -> None:
    reason = "nothing to score is left after cutting to 8 tokens"
    assert common(CONVERSATION, encoder(BYTES), encoder(BYTES, 8)) == reason


def test_the_target_reads_what_it_reads_itself() -> None:
    assert SameText().measure([DOCUMENT], Materials(encoder(BYTES))) == [
        CommonText(26, same_tokens=True)
    ]


def test_the_same_text_in_the_same_tokens_or_in_others() -> None:
    def same_tokens(record: Record, one: RecordEncoder, other: RecordEncoder) -> bool:
        (value,) = SameText().measure([record], Materials(other, of_target=one))
        assert isinstance(value, CommonText)
        return value.same_tokens

    assert same_tokens(CONVERSATION, encoder(BYTES), encoder(BYTES, template="plain"))
    assert same_tokens(CONVERSATION, encoder(BYTES), encoder(BARE_BYTES)), "the prompt is context"
    assert not same_tokens(CONVERSATION, encoder(BYTES), encoder(PIECES))
