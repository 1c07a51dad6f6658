import pytest
from hypothesis import given
from hypothesis import strategies as st

from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import UnscorableError
from unseen.targets.characters import MARKS, TextTokenizer, tokens_of, turns_of
from unseen.targets.fake import FakeTokenizer
from unseen.types import Record, Turn

CHAT = RecordEncoder(TextTokenizer(), Layout(), limit=10**6)
PLAIN = RecordEncoder(TextTokenizer(chat=False), Layout(), limit=10**6)

letters = st.text(st.characters(exclude_categories=["Cs", "Cn"]), min_size=1, max_size=20)


@given(st.text(st.characters(exclude_categories=["Cn"])))
def test_a_text_comes_back_as_it_was(text: str) -> None:
    tokenizer = TextTokenizer()
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert turns_of(ids) is None
    assert all(0 <= id_ < tokenizer.size for id_ in ids)


@given(st.lists(letters, min_size=1, max_size=5), st.booleans(), letters | st.just(""))
def test_a_conversation_comes_back_as_it_was(said: list[str], system: bool, begun: str) -> None:
    turns = [Turn("user" if i % 2 == 0 else "assistant", one) for i, one in enumerate(said)]
    turns = [*([Turn("system", "Be brief.")] if system else []), *turns]
    ids = CHAT.prompt(turns, begun)
    assert turns_of(ids) == [*turns, Turn("assistant", begun)]
    assert TextTokenizer().decode(ids) == "".join(turn.content for turn in turns) + begun


def test_a_record_has_its_response_scored() -> None:
    record = Record("a", (Turn("user", "Who?"), Turn("assistant", "Me. 東")))
    encoded = CHAT.encode(record)
    scored = [id_ for id_, counts in zip(encoded.ids, encoded.scored, strict=True) if counts]
    assert TextTokenizer().decode(scored) == "Me. 東"
    assert CHAT.scored_text(record) == "Me. 東"
    assert turns_of(CHAT.prompt((), "A text")) is None


def test_a_text_has_no_marks() -> None:
    with pytest.raises(UnscorableError, match=r"U\+FDD0"):
        CHAT.prompt((Turn("user", f"a{MARKS['assistant']}b"),))


def test_the_users_own_template_makes_one_text() -> None:
    template = (
        "{%- for m in messages %}\n"
        "    {%- if m.role == 'system' %}{{ raise_exception('no system turns') }}{% endif %}\n"
        "    {{- '<' + m.role + '>' + m.content + '\\n' }}\n"
        "{%- endfor %}\n"
        "{%- if add_generation_prompt %}<assistant>{% endif %}"
    )
    tokenizer = TextTokenizer(chat=False)
    made = tokenizer.render((Turn("user", "a"),), template=template, add_generation_prompt=True)
    assert made == "<user>a\n<assistant>"
    with pytest.raises(Exception, match="no system turns"):
        tokenizer.render((Turn("system", "a"),), template=template, add_generation_prompt=True)


def test_without_turns_there_is_no_template() -> None:
    assert PLAIN.template is None
    assert PLAIN.prompt((), "Question: a\nAnswer:") == tuple(map(ord, "Question: a\nAnswer:"))
    assert TextTokenizer().fingerprint != TextTokenizer(chat=False).fingerprint


def test_tokens_of_a_model_whose_own_are_not_known() -> None:
    assert [tokens_of(TextTokenizer(), n) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert [tokens_of(FakeTokenizer(), n) for n in (0, 1, 4)] == [0, 1, 4]
    assert tokens_of(None, 3) == 3
