import pytest
import tiny
from fillers import tokenizer as wordpiece

from unseen.targets.words import Vocabulary, cased_like, word_spans


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("... !", []),
        ("one", ["one"]),
        ("Mina's cat, 'quoted'.", ["Mina's", "cat", "quoted"]),
        ("foo_bar(x1)", ["foo", "bar", "x1"]),
        ("東京はabcです", ["東", "京", "は", "abc", "で", "す"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("مُرحبا بالعالم", ["مُرحبا", "بالعالم"]),
        ("Ответ é e\u0301", ["Ответ", "é", "e\u0301"]),
    ],
)
def test_words_in_any_script(text: str, words: list[str]) -> None:
    assert [text[slice(*span)] for span in word_spans(text)] == words


def test_marks_stay_on_their_letters() -> None:
    for text in ("हिन्दी", "กรุงเทพ", "e\u0301té"):
        assert all(text[start].isalnum() for start, _ in word_spans(text))


def test_case_follows_the_original() -> None:
    assert cased_like("nurse", "Doctor") == "Nurse"
    assert cased_like("nurse", "DOCTOR") == "NURSE"
    assert cased_like("nurse", "I") == "Nurse", "one capital is a beginning"
    assert cased_like("東", "Doctor") == "東"


def test_pieces_of_words_and_special_tokens_are_no_words() -> None:
    bert = Vocabulary(wordpiece())
    assert {"doctor", "東", "a"} <= set(bert.words)
    assert not {"[MASK]", "##a", "."} & set(bert.words)
    assert bert.words[bert.place("Doctor") or 0] == "doctor"
    assert bert.place("none") is None


def test_with_byte_level_tokens_a_word_begins_with_its_space() -> None:
    tok = tiny.tokenizer()
    known = Vocabulary(tok)
    assert all(tok.convert_ids_to_tokens(int(i)).startswith("Ġ") for i in known.ids)
    assert "the" in known.words
    assert all("\N{REPLACEMENT CHARACTER}" not in word for word in known.words)
