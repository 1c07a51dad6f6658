import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import tiny
from tokenizers.processors import TemplateProcessing

from unseen.data import templates
from unseen.data.templates import Layout, RecordEncoder, check_layout
from unseen.errors import ConfigError, UnscorableError
from unseen.targets.fake import FakeTokenizer
from unseen.targets.huggingface import HFTokenizer
from unseen.types import Encoded, Record, Tokenizer, Turn


def tiny_with_bos() -> Any:
    made = tiny.tokenizer()
    made.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    return made


TOKENIZERS = {
    "fake": FakeTokenizer(),
    "fake, no bos": FakeTokenizer(bos=False),
    "tiny, no bos": HFTokenizer(tiny.tokenizer()),
    "tiny": HFTokenizer(tiny_with_bos()),
}
EACH = pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
BOS = {256, 0}

ALPHABETS = {
    "latin": "The quick brown fox",
    "cyrillic": "Ответ пришёл поздно",
    "cjk": "東京は静かだった。",
    "rtl": "שלום עולם، مرحبا",
    "emoji": "👩‍👩‍👧 😀🏳️‍🌈",
    "combining": "e\u0301 n\u0303 क्षि",
    "spaces": "  two  spaces\tand\r\nlines  ",
    "digits": "412.70 + 3",
}


def document(text: str, id_: str = "d") -> Record:
    return Record(id_, (Turn("text", text),))


def chat(*contents: str, system: str | None = None, id_: str = "c") -> Record:
    roles = itertools.cycle(["user", "assistant"])
    turns = tuple(Turn(role, content) for role, content in zip(roles, contents, strict=False))
    return Record(id_, (*([Turn("system", system)] if system else []), *turns))


def encoder(tokenizer: Tokenizer, limit: int = 4096, **choices: Any) -> RecordEncoder:
    return RecordEncoder(tokenizer, Layout(**choices), limit=limit)


def scored_ids(encoded: Encoded) -> list[int]:
    return [id_ for id_, counts in zip(encoded.ids, encoded.scored, strict=True) if counts]


def text_of(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """With special tokens, unlike `decode`."""
    if isinstance(tokenizer, HFTokenizer):
        return tokenizer._tokenizer.decode(ids, skip_special_tokens=False)
    specials = ("<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
    raw = b"".join(specials[id_ - 256].encode() if id_ > 255 else bytes([id_]) for id_ in ids)
    return raw.decode()


# --- documents --------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("text", ALPHABETS.values(), ids=ALPHABETS)
def test_a_document_is_scored_as_a_whole_but_for_its_first_token_without_context(
    tokenizer: Tokenizer, text: str
) -> None:
    encoded = encoder(tokenizer).encode(document(text))
    own = tokenizer.encode(text)
    if tokenizer.bos_id is None:
        assert list(encoded.ids) == own
        assert scored_ids(encoded) == own[1:]
    else:
        assert list(encoded.ids) == [tokenizer.bos_id, *own]
        assert scored_ids(encoded) == own
    assert not encoded.scored[0]
    assert (encoded.shared, encoded.truncated) == (0, 0)


@EACH
@pytest.mark.parametrize("text", ALPHABETS.values(), ids=ALPHABETS)
@pytest.mark.parametrize("shots", [(), ("One.",), ("One.", "Two 東京.", "Three")])
def test_the_same_ids_are_scored_whatever_stands_before(
    tokenizer: Tokenizer, text: str, shots: tuple[str, ...]
) -> None:
    encode = encoder(tokenizer).encode
    before = [document(shot) for shot in shots]
    encoded = encode(document(text), before=before)
    assert scored_ids(encoded) == scored_ids(encode(document(text)))
    assert not encoded.scored[: encoded.shared].any()
    assert sum(id_ in BOS for id_ in encoded.ids) == (tokenizer.bos_id is not None)


def test_shots_stand_before_a_document_with_an_empty_line_between() -> None:
    tokenizer = FakeTokenizer()
    encoded = encoder(tokenizer).encode(document("c"), before=[document("a"), document("b")])
    assert text_of(tokenizer, encoded.ids) == "<|begin|>a\n\nb\n\nc"
    assert text_of(tokenizer, encoded.ids[: encoded.shared]) == "<|begin|>a\n\nb\n\n"


@EACH
def test_records_after_the_same_shots_share_them(tokenizer: Tokenizer) -> None:
    encode = encoder(tokenizer).encode
    for make in (document, lambda text: chat("Question " + text, text)):
        before = [make("One."), make("Two.")]
        first, second = (encode(make(text), before=before) for text in ("fox", "jumps over"))
        assert first.shared == second.shared > 0
        assert first.ids[: first.shared] == second.ids[: first.shared]


def test_one_token_has_no_left_context() -> None:
    with pytest.raises(UnscorableError, match="one token has no left context"):
        encoder(FakeTokenizer(bos=False)).encode(document("a"))
    encoded = encoder(FakeTokenizer(bos=True)).encode(document("a"))
    assert scored_ids(encoded) == [97]


@EACH
def test_an_empty_record_is_unscored(tokenizer: Tokenizer) -> None:
    with pytest.raises(UnscorableError):
        encoder(tokenizer).encode(document(""))
    with pytest.raises(UnscorableError, match="the response is empty"):
        encoder(tokenizer).encode(chat("Hi?", ""))


@EACH
def test_the_end_of_a_document_is_scored_where_asked(tokenizer: Tokenizer) -> None:
    plain = encoder(tokenizer).encode(document("fox"))
    ended = encoder(tokenizer, end_of_turn="include").encode(document("fox"))
    assert ended.ids == (*plain.ids, tokenizer.eos_id)
    assert scored_ids(ended) == [*scored_ids(plain), tokenizer.eos_id]


def test_no_end_to_score() -> None:
    class Endless(FakeTokenizer):
        eos_id = None

    with pytest.raises(UnscorableError, match="no end-of-text token"):
        encoder(Endless(), end_of_turn="include").encode(document("fox"))


@EACH
@pytest.mark.parametrize("loss_on", ["completion", "assistant", "all"])
def test_documents_count_as_a_whole_whatever_the_loss_is_on(
    tokenizer: Tokenizer, loss_on: str
) -> None:
    one = encoder(tokenizer, loss_on=loss_on).encode(document("fox"))
    other = encoder(tokenizer).encode(document("fox"))
    assert one.ids == other.ids
    assert one.scored.tolist() == other.scored.tolist()


# --- conversations as plain text --------------------------------------------------------------


@EACH
def test_prompt_and_response_are_put_side_by_side_as_ids(tokenizer: Tokenizer) -> None:
    encode = encoder(tokenizer, template="plain").encode
    for question in ("Who?", "Where to, then?"):
        encoded = encode(chat(question, "fox jumps"))
        bos = [] if tokenizer.bos_id is None else [tokenizer.bos_id]
        prompt, response = tokenizer.encode(question + "\n"), tokenizer.encode("fox jumps")
        assert list(encoded.ids) == bos + prompt + response
        assert scored_ids(encoded) == response


@pytest.mark.parametrize(
    ("loss_on", "expected"),
    [("completion", "two"), ("assistant", "one\ntwo"), ("all", "who?\none\nand?\ntwo")],
)
def test_plain_conversations_and_what_counts(loss_on: str, expected: Any) -> None:
    tokenizer = FakeTokenizer()
    record = chat("who?", "one", "and?", "two", "thanks")
    encoded = encoder(tokenizer, template="plain", loss_on=loss_on).encode(record)
    assert text_of(tokenizer, encoded.ids) == "<|begin|>who?\none\nand?\ntwo"
    assert text_of(tokenizer, scored_ids(encoded)) == expected


@EACH
def test_plain_conversations_score_the_same_ids_after_others(tokenizer: Tokenizer) -> None:
    for loss_on in ("completion", "assistant", "all"):
        encode = encoder(tokenizer, template="plain", loss_on=loss_on).encode
        record = chat("who?", "one", "and?", "two")
        encoded = encode(record, before=[chat("a", "b"), chat("c", "d", system="be kind")])
        assert scored_ids(encoded) == scored_ids(encode(record))


# --- conversations by a template --------------------------------------------------------------


@EACH
def test_a_conversation_has_the_tokens_of_its_template(tokenizer: Tokenizer) -> None:
    record = chat("Who jumps?", "The fox.", "Over what?", "The dog.", system="Be kind.")
    encoded = encoder(tokenizer, loss_on="all").encode(record)
    whole = tokenizer.render(
        record.turns, template=tokenizer.chat_template, add_generation_prompt=False
    )
    assert text_of(tokenizer, encoded.ids) == whole
    assert encoded.scored.tolist() == [False, *([True] * (len(encoded.ids) - 1))]


@pytest.mark.parametrize(
    ("loss_on", "end_of_turn", "expected"),
    [
        ("completion", "exclude", "two"),
        ("completion", "include", "two<|end|>"),
        ("assistant", "exclude", "onetwo"),
        ("assistant", "include", "one<|end|>two<|end|>"),
    ],
)
def test_what_counts_in_a_conversation(loss_on: str, end_of_turn: str, expected: Any) -> None:
    tokenizer = FakeTokenizer()
    record = chat("who?", "one", "and?", "two", "thanks")
    choices = {"loss_on": loss_on, "end_of_turn": end_of_turn}
    encoded = encoder(tokenizer, **choices).encode(record)
    assert text_of(tokenizer, scored_ids(encoded)) == expected
    read = "<|user|>who?<|end|><|assistant|>one<|end|><|user|>and?<|end|><|assistant|>two"
    end = "<|end|>" if end_of_turn == "include" else ""
    assert text_of(tokenizer, encoded.ids) == read + end


@EACH
@pytest.mark.parametrize("loss_on", ["completion", "assistant"])
@pytest.mark.parametrize("end_of_turn", ["include", "exclude"])
@pytest.mark.parametrize("text", ALPHABETS.values(), ids=ALPHABETS)
def test_a_response_has_the_same_ids_in_every_context(
    tokenizer: Tokenizer, text: str, loss_on: str, end_of_turn: str
) -> None:
    encode = encoder(tokenizer, loss_on=loss_on, end_of_turn=end_of_turn).encode
    own = tokenizer.encode(text)
    record = chat("Who?", text)
    alone = encode(record)
    assert scored_ids(alone)[: len(own)] == own
    assert len(scored_ids(alone)) == len(own) + (end_of_turn == "include")
    for prompt in ("Where to?", " ", "x" * 50):
        assert scored_ids(encode(chat(prompt, text))) == scored_ids(alone)
    after = encode(record, before=[chat("One?", "One."), chat("Two?", text)])
    assert scored_ids(after) == scored_ids(alone)
    assert not after.scored[: after.shared].any()


BEGINS = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)


@EACH
@pytest.mark.parametrize("before", [(), (chat("One?", "One."),)])
def test_a_conversation_begins_once(
    tokenizer: Tokenizer, before: Any, jinja: Callable[[str], str]
) -> None:
    ids = encoder(tokenizer, template=jinja(BEGINS)).encode(chat("Who?", "fox"), before=before).ids
    assert ids[0] in BOS
    assert sum(id_ in BOS for id_ in ids) == 1


DEFAULT_SYSTEM = (
    "{% if messages[0].role != 'system' %}<|system|>Be helpful.<|end|>{% endif %}"
    + FakeTokenizer().chat_template
)


@pytest.fixture
def jinja(tmp_path: Path) -> Callable[[str], str]:
    def written(source: str) -> str:
        file = tmp_path / "template.jinja"
        file.write_text(source, encoding="utf-8")
        return str(file)

    return written


def test_a_system_prompt_that_the_template_adds_is_read_once_and_never_scored(
    jinja: Callable[[str], str],
) -> None:
    tokenizer = FakeTokenizer()
    encode = encoder(tokenizer, template=jinja(DEFAULT_SYSTEM)).encode
    alone = encode(chat("Who?", "fox"))
    assert text_of(tokenizer, alone.ids) == (
        "<|system|>Be helpful.<|end|><|user|>Who?<|end|><|assistant|>fox"
    )
    after = encode(chat("Who?", "fox"), before=[chat("One?", "One.", system="Be brief.")])
    assert text_of(tokenizer, after.ids) == (
        "<|system|>Be helpful.<|end|><|user|>One?<|end|><|assistant|>One.<|end|>"
        "<|user|>Who?<|end|><|assistant|>fox"
    )
    assert scored_ids(after) == scored_ids(alone) == [*b"fox"]
    own = encode(chat("Who?", "fox", system="Be odd."), before=[chat("One?", "One.")])
    assert text_of(tokenizer, own.ids).startswith("<|system|>Be odd.<|end|><|user|>One?")


STRIPS = {
    "both ends": "message.content | trim",
    "left": "message.content.lstrip()",
    "right": "message.content.rstrip()",
}


@pytest.mark.parametrize("how", STRIPS.values(), ids=STRIPS)
@pytest.mark.parametrize("text", ["fox", " fox ", "fox \n", "\n fox", " a  b "])
def test_a_template_that_strips_contents(jinja: Callable[[str], str], how: str, text: str) -> None:
    tokenizer = FakeTokenizer()
    template = FakeTokenizer().chat_template.replace("message.content", how)
    encode = encoder(tokenizer, template=jinja(template), end_of_turn="include").encode
    expected = {STRIPS["left"]: text.lstrip(), STRIPS["right"]: text.rstrip()}
    said = text_of(tokenizer, scored_ids(encode(chat("Who?", text))))
    assert said == expected.get(how, text.strip()) + "<|end|>"


THINKS = (
    "{% for message in messages %}<|{{ message.role }}|>"
    "{% if message.role == 'assistant' and loop.last %}(thought)\n{% endif %}"
    "{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.mark.parametrize("text", ["fox", "thought", "end", "(", "(thought)\n", "{response}"])
def test_what_a_template_writes_before_the_response_is_context(
    jinja: Callable[[str], str], text: str
) -> None:
    tokenizer = FakeTokenizer()
    encoded = encoder(tokenizer, template=jinja(THINKS)).encode(chat("Who?", text))
    assert text_of(tokenizer, encoded.ids) == f"<|user|>Who?<|end|><|assistant|>(thought)\n{text}"
    assert scored_ids(encoded) == [*text.encode()]


LOOKS = (
    "{% for message in messages %}<|{{ message.role }}|>"
    "{% if '(thought)' not in message.content %}(thought)\n{% endif %}"
    "{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def test_a_template_that_looks_into_the_response(jinja: Callable[[str], str]) -> None:
    tokenizer = FakeTokenizer()
    encode = encoder(tokenizer, template=jinja(LOOKS)).encode
    assert scored_ids(encode(chat("Who?", "fox"))) == [*b"fox"]
    assert scored_ids(encode(chat("Who?", "(thought)\nfox"))) == [*b"(thought)\nfox"]


def test_a_template_that_rewrites_earlier_turns_is_refused(jinja: Callable[[str], str]) -> None:
    encode = encoder(FakeTokenizer(), template=jinja(THINKS)).encode
    with pytest.raises(UnscorableError, match="rewrites earlier turns"):
        encode(chat("Who?", "fox"), before=[chat("One?", "One.")])
    last_only = "{{ messages[-1].content }}{% if add_generation_prompt %}:{% endif %}"
    encode = encoder(FakeTokenizer(), template=jinja(last_only)).encode
    with pytest.raises(UnscorableError, match="rewrites earlier turns"):
        encode(chat("Who?", "fox"))


@pytest.mark.parametrize("change", ["message.content | upper", "message.content[:2]", "'…'"])
def test_a_template_that_changes_the_response_is_refused(
    jinja: Callable[[str], str], change: str
) -> None:
    template = FakeTokenizer().chat_template.replace("message.content", change)
    with pytest.raises(UnscorableError, match="does not reproduce the response"):
        encoder(FakeTokenizer(), template=jinja(template)).encode(chat("Who?", "fox"))


@EACH
def test_a_template_that_refuses_a_conversation_leaves_it_unscored(
    tokenizer: Tokenizer, jinja: Callable[[str], str]
) -> None:
    template = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}"
    encode = encoder(tokenizer, template=jinja(template + tokenizer.chat_template)).encode
    encode(chat("Who?", "fox"))
    with pytest.raises(UnscorableError, match="the chat template"):
        encode(chat("Who?", "fox", system="Be kind."))


@EACH
def test_a_conversation_that_the_assistant_opens(tokenizer: Tokenizer) -> None:
    record = Record("c", (Turn("assistant", "fox jumps"), Turn("user", "Thanks")))
    try:
        encoded = encoder(tokenizer).encode(record)
    except UnscorableError as error:
        assert "needs a turn before the response" in error.problem  # noqa: PT017
    else:
        assert scored_ids(encoded) == tokenizer.encode("fox jumps")


@EACH
def test_a_conversation_in_which_the_assistant_says_nothing_is_unscored(
    tokenizer: Tokenizer,
) -> None:
    for template in ("auto", "plain"):
        with pytest.raises(UnscorableError, match="no assistant turn to score"):
            encoder(tokenizer, template=template).encode(chat("Who?"))


def test_documents_stay_plain_where_there_is_a_chat_template() -> None:
    for template in ("auto", "chat"):
        encoded = encoder(FakeTokenizer(), template=template).encode(document("fox"))
        assert encoded.ids == (256, *b"fox")


# --- what does not fit ------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["abcdefghij", "東京は静か"])
def test_documents_are_cut_on_the_chosen_side_and_it_is_counted(text: str) -> None:
    tokenizer = FakeTokenizer()
    whole = [256, *text.encode()]
    right = encoder(tokenizer, max_length=6).encode(document(text))
    assert list(right.ids) == whole[:6]
    assert right.truncated == len(whole) - 6
    assert right.scored.tolist() == [False] + [True] * 5
    left = encoder(tokenizer, max_length=6, truncation="left").encode(document(text))
    assert list(left.ids) == [256, *whole[-5:]]
    assert left.truncated == len(whole) - 6
    assert left.scored.tolist() == [False] + [True] * 5
    bare = encoder(FakeTokenizer(bos=False), max_length=6, truncation="left").encode(document(text))
    assert list(bare.ids) == whole[-6:]
    assert bare.scored.tolist() == [False] + [True] * 5


@EACH
def test_a_beginning_stays_first_where_the_left_is_cut(
    tokenizer: Tokenizer, jinja: Callable[[str], str]
) -> None:
    record = chat("The quick brown fox?", "It jumps over the lazy dog.")
    for template in (jinja(BEGINS), "plain"):
        whole = encoder(tokenizer, template=template).encode(record)
        n_kept = len(whole.ids) - 5
        begins = template != "plain" or tokenizer.bos_id is not None
        cut = encoder(tokenizer, template=template, max_length=n_kept, truncation="left").encode(
            record
        )
        assert cut.ids == ((whole.ids[0], *whole.ids[6:]) if begins else whole.ids[5:])
        assert cut.truncated == 5
        assert scored_ids(cut) == scored_ids(whole)


def test_a_special_token_that_is_no_beginning_is_cut() -> None:
    record = chat("Who?", "fox")
    whole = encoder(FakeTokenizer()).encode(record)
    cut = encoder(FakeTokenizer(), max_length=6, truncation="left").encode(record)
    assert cut.ids == whole.ids[-6:]


def test_the_models_limit_and_the_users_limit_both_bind() -> None:
    record = document("a" * 50)
    assert len(encoder(FakeTokenizer(), limit=10).encode(record).ids) == 10
    assert len(encoder(FakeTokenizer(), limit=10, max_length=7).encode(record).ids) == 7
    assert len(encoder(FakeTokenizer(), limit=7, max_length=10).encode(record).ids) == 7
    assert encoder(FakeTokenizer(), limit=51).encode(record).truncated == 0


def test_a_record_whose_response_is_cut_off_is_unscored() -> None:
    record = chat("a long question " * 3, "fox")
    with pytest.raises(UnscorableError, match="nothing to score is left after cutting to 20"):
        encoder(FakeTokenizer(), max_length=20).encode(record)
    left = encoder(FakeTokenizer(), max_length=4, truncation="left").encode(record)
    assert scored_ids(left) == [*b"fox"]
    only = encoder(FakeTokenizer(), max_length=3, truncation="left").encode(record)
    assert scored_ids(only) == [*b"ox"]


@EACH
def test_a_record_that_does_not_fit_after_others_is_unscored_and_never_cut(
    tokenizer: Tokenizer,
) -> None:
    for make in (document, lambda text: chat("Who?", text)):
        record, shot = make("The quick brown fox jumps over the lazy dog."), make("One. " * 20)
        alone = encoder(tokenizer).encode(record)
        limit = len(alone.ids)
        assert encoder(tokenizer, limit=limit).encode(record).truncated == 0
        with pytest.raises(UnscorableError, match="does not fit into the context after"):
            encoder(tokenizer, limit=limit).encode(record, before=[shot])


@EACH
def test_a_very_long_record_is_cut_quickly(tokenizer: Tokenizer) -> None:
    record = document("The quick brown fox jumps over the lazy dog. 東京 " * 12_000)
    start = time.process_time()
    encoded = encoder(tokenizer, limit=512).encode(record)
    assert len(encoded.ids) == 512
    assert encoded.truncated > 100_000
    assert time.process_time() - start < 10


@pytest.mark.parametrize("length", [0, 1, -5])
def test_a_length_that_leaves_nothing_to_score_is_refused(length: int) -> None:
    with pytest.raises(ConfigError, match="expected at least 2"):
        Layout(max_length=length)


# --- how often ---------------------------------------------------------------------------------


class Counting(FakeTokenizer):
    texts: ClassVar[list[str]] = []

    def encode(self, text: str) -> list[int]:
        self.texts.append(text)
        return super().encode(text)


@pytest.fixture
def texts() -> list[str]:
    """What `Counting` was asked for."""
    Counting.texts.clear()
    return Counting.texts


def test_a_record_is_encoded_once_however_many_there_are(texts: list[str]) -> None:
    records = [chat(f"Who is {i}?", f"Fox {i}.", id_=f"c{i}") for i in range(6_000)]
    once = encoder(Counting(), template="plain")
    first = [once.encode(record) for record in records]
    asked = len(texts)
    assert asked == 2 * len(records)
    assert [once.scored_text(record) for record in records[:9]] == [f"Fox {i}." for i in range(9)]
    for record, encoded in zip(records, first, strict=True):
        assert once.encode(record) is encoded
    assert len(texts) == asked


def test_only_the_turns_make_a_record_another_one(texts: list[str]) -> None:
    once = encoder(Counting())
    one = once.encode(Record("a", document("fox").turns, cluster="x", slices={"group": "y"}))
    assert once.encode(document("fox")) is one
    assert once.encode(document("dog")) is not one
    assert once.encode(document("fox"), before=[document("dog")]).shared
    assert once.encode(document("fox")) is one


def test_so_many_records_are_kept_and_no_more(
    texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(templates, "_KEPT_TOKENS", 10)
    once = encoder(Counting())
    first, second = (once.encode(document(text)) for text in ("abcd", "efghij"))
    assert once.encode(document("abcd")) is first
    again = once.encode(document("efghij"))
    assert again is not second
    assert again.ids == second.ids


# --- the text that is scored ------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("text", ALPHABETS.values(), ids=ALPHABETS)
def test_the_scored_text_is_the_response(tokenizer: Tokenizer, text: str) -> None:
    assert encoder(tokenizer).scored_text(chat("Who?", text)) == text
    assert encoder(tokenizer).scored_text(document(text)) == text
    both = chat("Who?", text, "And?", "fox")
    assert encoder(tokenizer, loss_on="assistant").scored_text(both) == text + "fox"
    assert encoder(tokenizer).scored_text(both) == "fox"


def test_the_scored_text_ends_where_the_record_was_cut() -> None:
    assert encoder(FakeTokenizer(), limit=5).scored_text(document("abcdefgh")) == "abcd"
    left = encoder(FakeTokenizer(), limit=5, truncation="left")
    assert left.scored_text(document("abcdefgh")) == "efgh"
    with pytest.raises(UnscorableError):
        encoder(FakeTokenizer(), limit=5).scored_text(chat("abcdefgh", "x"))


def test_all_that_counts_is_text_where_the_loss_is_on_all() -> None:
    said = encoder(FakeTokenizer(), loss_on="all", template="plain").scored_text(
        chat("Who?", "fox")
    )
    assert said == "Who?\nfox"


# --- choices ----------------------------------------------------------------------------------


def test_a_template_from_a_file(jinja: Callable[[str], str]) -> None:
    source = "{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}{% if add_generation_prompt %}[assistant: {% endif %}"
    tokenizer = FakeTokenizer(chat=False)
    encoded = encoder(tokenizer, template=jinja(source)).encode(chat("Кто?", "fox"))
    assert text_of(tokenizer, encoded.ids) == "[user: Кто?][assistant: fox"


def test_a_template_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the template file chatml") as raised:
        encoder(FakeTokenizer(), template="chatml")
    assert "auto, chat, plain, or the path of a Jinja file" in str(raised.value)
    (tmp_path / "latin.jinja").write_bytes(b"\xe9")
    with pytest.raises(ConfigError, match="cannot read the template file"):
        encoder(FakeTokenizer(), template=str(tmp_path / "latin.jinja"))


def test_without_a_chat_template_conversations_are_refused_by_name() -> None:
    tokenizer = FakeTokenizer(chat=False)
    with pytest.raises(ConfigError, match="the tokenizer has no chat template") as raised:
        encoder(tokenizer, template="chat")
    assert "--template plain" in str(raised.value)
    auto = encoder(tokenizer, template="auto")
    check_layout(auto, [document("fox")])
    with pytest.raises(ConfigError, match="the tokenizer has no chat template"):
        check_layout(auto, [document("fox"), chat("Who?", "fox")])
    check_layout(encoder(tokenizer, template="plain"), [chat("Who?", "fox")])
    check_layout(encoder(FakeTokenizer()), [chat("Who?", "fox")])


def test_the_fingerprint_follows_every_choice(jinja: Callable[[str], str]) -> None:
    choices = [
        {},
        {"template": "plain"},
        {"template": jinja(DEFAULT_SYSTEM)},
        {"loss_on": "all"},
        {"end_of_turn": "include"},
        {"truncation": "left"},
        {"max_length": 100},
    ]
    prints = {encoder(FakeTokenizer(), **choice).fingerprint for choice in choices}
    prints |= {encoder(FakeTokenizer(bos=False)).fingerprint}
    assert len(prints) == len(choices) + 1
    assert encoder(FakeTokenizer(), template="chat").fingerprint in prints


@EACH
def test_ids_are_plain_integers_and_masks_are_booleans(tokenizer: Tokenizer) -> None:
    encoded = encoder(tokenizer).encode(chat("Who?", "fox"))
    assert {type(id_) for id_ in encoded.ids} == {int}
    assert encoded.scored.dtype == np.bool_
    assert encoded.scored.shape == (len(encoded.ids),)


def test_a_plain_layout_leaves_the_template_out_of_everything() -> None:
    """What stands before a record too, however it is to be joined: one option, the whole audit."""
    tokenizer = FakeTokenizer()
    plain = RecordEncoder(tokenizer, Layout(template="plain"), limit=500)
    chat = RecordEncoder(tokenizer, Layout(), limit=500)
    record = Record("a", (Turn("user", "Who?"), Turn("assistant", "Mina.")))
    shot = Record("b", (Turn("user", "Where?"), Turn("assistant", "Here.")))
    for before in ((), (shot,)):
        expected = chat.encode(record, before=before, join="plain").ids
        for join in ("turn", "plain"):
            assert plain.encode(record, before=before, join=join).ids == expected
    assert (
        tokenizer.decode(plain.encode(record, before=[shot]).ids) == "Where?\nHere.\n\nWho?\nMina."
    )
