import pytest
import tiny
from tokenizers.processors import TemplateProcessing

from unseen.errors import UsageError
from unseen.targets.tokenizer import HFTokenizer
from unseen.types import Turn


@pytest.mark.parametrize(
    "text",
    ["", "The quick fox", "  two  spaces ", "東京 😀", "שלום\tעולם", "e\u0301", "\r\n", "a" * 999],
)
def test_text_survives_the_tokenizer(text: str) -> None:
    tokenizer = HFTokenizer(tiny.tokenizer())
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_beginning_token_is_known_only_where_the_tokenizer_adds_it() -> None:
    plain = HFTokenizer(tiny.tokenizer())
    assert plain.bos_id is None
    assert plain.eos_id == 1
    begins = tiny.tokenizer()
    begins.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    tokenizer = HFTokenizer(begins)
    assert tokenizer.bos_id == 0
    assert tokenizer.encode("fox") == plain.encode("fox")
    assert tokenizer.fingerprint != plain.fingerprint


def test_equal_tokenizers_have_equal_fingerprints() -> None:
    assert HFTokenizer(tiny.tokenizer()).fingerprint == HFTokenizer(tiny.tokenizer()).fingerprint
    assert (
        HFTokenizer(tiny.tokenizer(vocabulary=350)).fingerprint
        != HFTokenizer(tiny.tokenizer()).fingerprint
    )


def test_of_several_chat_templates_the_default_is_taken() -> None:
    tok = tiny.tokenizer()
    tok.chat_template = {"tools": "nothing", "default": tiny.CHAT_TEMPLATE}
    assert HFTokenizer(tok).chat_template == tiny.CHAT_TEMPLATE
    tok.chat_template = {"tools": "nothing"}
    assert HFTokenizer(tok).chat_template is None


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ 1 + messages[0].content }}",
        "{{ messages[5].content.x }}",
        "{% for %}",
    ],
)
def test_a_template_that_refuses_a_conversation_is_explained(template: str) -> None:
    tokenizer = HFTokenizer(tiny.tokenizer())
    turns = (Turn("user", "hi"),)
    with pytest.raises(UsageError, match="the chat template refuses this conversation"):
        tokenizer.render(turns, template=template, add_generation_prompt=True)
    with pytest.raises(UsageError, match="needs a turn before the response"):
        tokenizer.render((), template=template, add_generation_prompt=True)
