from __future__ import annotations

import pytest
import records
import tiny

import unseen
from unseen.data.synthetic import people
from unseen.data.templates import Layout, RecordEncoder
from unseen.runs.rendered import in_a_line, parts_of, rendered
from unseen.runs.results import RenderedPart
from unseen.targets.fake import FakeTokenizer
from unseen.targets.huggingface import HFTokenizer
from unseen.types import Record, Turn

USER, ANSWER = Turn("user", "Where is it?"), Turn("assistant", "Under the old bridge.")
RECORD = Record("1", (USER, ANSWER))


def encoder(tokenizer=None, *, limit: int = 500, **layout) -> RecordEncoder:
    return RecordEncoder(tokenizer or FakeTokenizer(), Layout(**layout), limit=limit)


def shape(parts) -> list[tuple]:
    return [(part.kind, part.text, part.n_tokens, part.scored) for part in parts]


def test_a_conversation() -> None:
    parts = rendered([RECORD], encoder(end_of_turn="include"))
    assert shape(parts) == [
        ("special", "<|user|>", 1, False),
        ("content", None, len(USER.content), False),
        ("special", "<|end|><|assistant|>", 2, False),
        ("content", None, len(ANSWER.content), True),
        ("special", "<|end|>", 1, True),
    ]
    assert parts[2].ids == (257, 260)
    assert in_a_line(parts) == (
        "<|user|> [12 tokens] <|end|><|assistant|> [21 tokens, scored] <|end|>"
    )


def test_plain_text_shows_its_beginning_and_its_end_alone() -> None:
    record = Record("1", (Turn("text", "a few words"),))
    parts = rendered([record], encoder(end_of_turn="include"))
    assert shape(parts) == [
        ("special", "<|begin|>", 1, False),
        ("content", None, 11, True),
        ("special", "<|end|>", 1, True),
    ]


def test_words_of_the_template_are_shown_apart_from_special_tokens() -> None:
    parts = rendered([RECORD], encoder(HFTokenizer(tiny.tokenizer()), end_of_turn="include"))
    kinds = [(part.kind, part.text) for part in parts]
    assert kinds == [
        ("special", "<s>"),
        ("template", "user\n"),
        ("content", None),
        ("special", "</s>"),
        ("template", "\n"),
        ("special", "<s>"),
        ("template", "assistant\n"),
        ("content", None),
        ("special", "</s>"),
    ]


@pytest.mark.parametrize("truncation", ["left", "right"])
@pytest.mark.parametrize("limit", [8, 13, 21, 40])
@pytest.mark.parametrize("loss_on", ["completion", "all"])
@pytest.mark.parametrize("hf", [False, True])
def test_all_tokens_are_there_and_none_of_the_record_is_shown(
    truncation, limit, loss_on, hf
) -> None:
    tokenizer = HFTokenizer(tiny.tokenizer()) if hf else FakeTokenizer()
    coder = encoder(tokenizer, limit=limit, truncation=truncation, loss_on=loss_on)
    for i, person in enumerate(people(5, 0)):
        turns = tuple(Turn(t.role, f"{t.content} {records.planted(i)}") for t in person.turns)
        record = Record(person.id, turns)
        try:
            encoded = coder.encode(record)
        except unseen.UnseenError:
            continue
        parts = parts_of(record, encoded, coder)
        assert sum(part.n_tokens for part in parts) == len(encoded.ids)
        flags = [part.scored for part in parts for _ in range(part.n_tokens)]
        assert flags == encoded.scored.tolist()
        skeleton = tokenizer.render(
            (Turn("user", ""), Turn("assistant", "")),
            template=tokenizer.chat_template or "",
            add_generation_prompt=False,
        )
        place = 0
        for part in parts:
            shown = part.ids or ()
            assert encoded.ids[place : place + len(shown)] == shown
            assert part.text is None or part.text in skeleton
            assert (part.text is None) == (part.kind == "content") == (part.ids is None)
            place += part.n_tokens


def test_a_template_that_looks_into_contents_shows_nothing() -> None:
    strict = (
        "{% for m in messages %}{% if m.content is not match('Where|Under') %}"
        "{{ raise_exception('no') }}{% endif %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    )
    tokenizer = FakeTokenizer()
    coder = encoder(tokenizer)
    object.__setattr__(coder, "template", strict)
    plain = encoder(tokenizer, template="plain").encode(RECORD)
    assert {p.kind for p in parts_of(RECORD, plain, coder)} == {"special", "content"}


def test_what_cannot_be_scored_is_passed_over() -> None:
    unanswered = Record("0", (USER,))
    assert rendered([unanswered], encoder()) == ()
    assert rendered([unanswered, RECORD], encoder()) == rendered([RECORD], encoder())


def test_long_templates_are_cut_in_a_line() -> None:
    part = RenderedPart(kind="template", n_tokens=9, scored=False, text="x" * 500, ids=(1,) * 9)
    assert len(in_a_line([part])) < 120
