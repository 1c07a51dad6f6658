import numpy as np
import pytest
from scripted import TREC, Scripted, played

from unseen.errors import UnscorableError
from unseen.prompts.templates import Example, as_chat
from unseen.prompts.trials import Case
from unseen.signals.completed import Completed, Completion
from unseen.signals.embedding import text_encoder

LETTERS = Completed(encoder="letters")
TEXT = "What films featured the character Popeye Doyle?"


def case(text: str) -> Case:
    example = Example("e", text, "Entity")
    return Case("c", 0, example, (Example("d", "Who?", "Person"),), member=False, position=0)


def seen(text: str, reply: str, *, chat: bool = False, signal: Completed = LETTERS) -> Completion:
    def rule(_: str) -> str:
        return reply

    template = as_chat(TREC) if chat else TREC
    found = played([signal], Scripted(rule), cases=[case(text)], template=template)
    return found.observations.get(signal, "c")


def slow(one: str, other: str) -> float:
    """Cosine similarity by a loop."""
    a, b = text_encoder("letters").vectors([one, other]).tolist()
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / np.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


@pytest.mark.parametrize(
    ("text", "words", "begun", "rest"),
    [
        (TEXT, 3, "What films featured", "the character Popeye Doyle?"),
        ("  What \t films\nfeatured  it ?", 3, "What films featured", "it ?"),
        ("我们今天去看医生。", 3, "我们今", "天去看医生。"),
        ("東京 で 何", 3, "東京 で", "何"),
        ("ฉันไปหาหมอ", 3, "ฉัน", "ไปหาหมอ"),
        ("one two", 1, "one", "two"),
    ],
)
def test_a_text_is_cut_after_its_first_words(text: str, words: int, begun: str, rest: str) -> None:
    assert Completed(words=words).cut(text) == (begun, rest)


@pytest.mark.parametrize("text", ["Who was he?", "Who?", ""])
def test_what_has_no_rest_has_a_reason(text: str) -> None:
    with pytest.raises(UnscorableError, match="too short to be completed: it has 3 words or fewer"):
        Completed().cut(text)


def test_it_sends_the_beginning_of_a_question_and_stops() -> None:
    def rule(_: str) -> str:
        return ""

    target = Scripted(rule)
    played([LETTERS], target, cases=[case(TEXT)])
    (sent,) = target.prompts
    assert sent == (
        f"<|begin|>{TREC.hidden([Example('d', 'Who?', 'Person')])}Question: What films featured"
    )
    played([LETTERS], target, cases=[case(TEXT)], template=as_chat(TREC))
    assert target.prompts[-1].endswith(
        "<|user|>Complete the following sentence: What films featured<|end|><|assistant|>"
    )


def test_what_is_written_counts_up_to_the_end_of_the_line() -> None:
    value = seen(TEXT, " the hero Doyle?\nAnswer Type: Person\n\nQuestion: What")
    assert value.full == pytest.approx(slow(TEXT, "What films featured the hero Doyle?"))
    assert value.rest == pytest.approx(slow("the character Popeye Doyle?", "the hero Doyle?"))
    same = seen(TEXT, " the character Popeye Doyle?\nAnswer Type: Person")
    assert (same.full, same.rest) == (1.0, 1.0)
    nothing = seen(TEXT, "\nWhat films featured the character Popeye Doyle?")
    assert nothing.full == pytest.approx(slow(TEXT, "What films featured"))
    assert nothing.rest == pytest.approx(slow("the character Popeye Doyle?", ""))


def test_a_record_of_several_lines_is_held_against_as_many() -> None:
    text = "What films featured\nthe character\nPopeye Doyle?"
    assert seen(text, " \nthe character\nPopeye Doyle?\nAnswer").rest < 1
    assert seen(text, "\nthe character\nPopeye Doyle?\nAnswer").full == pytest.approx(
        slow(text, "What films featured\nthe character")
    )
    assert seen(text, "the character\nPopeye Doyle?\nAnswer Type").rest == 1


def test_a_lost_space_is_put_back() -> None:
    assert seen(TEXT, "the character Popeye Doyle?\n").full == 1
    assert seen(TEXT, ", then?\n").full == pytest.approx(slow(TEXT, "What films featured, then?"))


@pytest.mark.parametrize(
    "reply",
    [
        "the character Popeye Doyle?",
        "What films featured the character Popeye Doyle?",
        "\n\nwhat films  featured the character Popeye Doyle?",
        'Yes:\n\n"What films featured the character Popeye Doyle?\n\nShall I',
        "Which movies had the character Popeye Doyle?",  # as many words, and others
    ],
)
def test_in_a_chat_the_repeated_words_and_what_comes_before_do_not_count(reply: str) -> None:
    value = seen(TEXT, reply, chat=True)
    assert (value.full, value.rest) == (1.0, 1.0)


def test_letters_that_no_space_sets_apart_are_continued_without_one() -> None:
    found = seen("我们今天去看医生", "天去看医生\n我们")
    assert found.full == pytest.approx(1.0)
    found = seen("我们今天去看医生", "我们今天去看医生", chat=True)
    assert (found.full, found.rest) == (pytest.approx(1.0), pytest.approx(1.0))


def test_in_a_chat_the_better_of_two_alignments_counts() -> None:
    reply = "They were about the man Doyle."
    whole = [f"What films featured {one}" for one in (reply, "the man Doyle.")]
    value = seen(TEXT, reply, chat=True)
    assert value.full == pytest.approx(max(slow(TEXT, one) for one in whole))
    rest = "the character Popeye Doyle?"
    assert value.rest == pytest.approx(max(slow(rest, reply), slow(rest, "the man Doyle.")))
    assert seen(TEXT, "", chat=True).full == pytest.approx(slow(TEXT, "What films featured"))
    assert seen(TEXT, "No.", chat=True).rest == pytest.approx(
        max(slow(rest, "No."), slow(rest, ""))
    )


def test_fields_say_how_much_is_written() -> None:
    def rule(_: str) -> str:
        return " the character Popeye Doyle?"

    signal = Completed(longest=4, encoder="letters")
    (prompt,) = prompts = _prompts(signal)
    assert len(prompts) == 1
    assert (prompt.max_new_tokens, prompt.sampling.temperature, prompt.stop) == (4, 0, "\n")
    assert _prompts(Completed(fewest=20))[0].sampling.fewest == 20
    found = played([signal], Scripted(rule), cases=[case(TEXT)]).observations
    assert found.get(signal, "c").rest == pytest.approx(slow("the character Popeye Doyle?", "the"))


def _prompts(signal: Completed):
    from unseen.data.templates import Layout, RecordEncoder
    from unseen.prompts.behind import HiddenPrompts
    from unseen.signals.base import Materials
    from unseen.targets.fake import FakeTokenizer

    encoder = RecordEncoder(FakeTokenizer(), Layout(), limit=1000)
    behind = HiddenPrompts.of(TREC, encoder, [case(TEXT)])
    return signal.prompts(case(TEXT).record, Materials(encoder, behind=behind))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"words": 0}, "got words=0, expected at least 1"),
        ({"longest": 0}, "got longest=0"),
        ({"fewest": -1}, "got fewest=-1"),
        ({"encoder": ""}, "got no encoder"),
    ],
)
def test_refuses_what_makes_no_sense(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Completed(**fields)
