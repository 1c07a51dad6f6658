import random

from unseen.targets.ending import Ending, first_line
from unseen.targets.fake import FakeTarget, FakeTokenizer
from unseen.types import Sampling

TOKENIZER = FakeTokenizer()
END = 257


def ending(stop: str = "", *, one_line: bool = False) -> Ending:
    return Ending(frozenset({END}), stop, TOKENIZER.decode, one_line)


def test_a_text_ends_with_a_token_or_with_what_completes_the_string() -> None:
    ids = [*"One. Two. Drei äh.".encode(), END, *b" more"]
    assert ending().until(ids) == ids[:-5]
    assert ending().until(ids[:7]) == ids[:7]
    assert ending(". ").until(ids) == [*b"One. "]
    assert ending("o. D").until(ids) == [*b"One. Two. D"]
    assert ending("ä").until(ids) == [*"One. Two. Drei ä".encode()], "of a letter both tokens"
    assert ending("more").until(ids) == ids[:-5]
    assert ending(".").until([]) == []
    assert [n for n in range(1, 7) if ending(". ").is_at(ids[:n])] == [5, 6]


def test_the_fake_model_stops_where_it_is_told_to_and_else_writes_the_same() -> None:
    target = FakeTarget(["a list: one\ntwo\nthree"], strength=20.0)
    prompts = [list(b"a list:"), list(b"wo\nthr"), list(b"zzz")]
    for sampling in (Sampling(), Sampling(temperature=0.5, seed=1)):
        how = {"max_new_tokens": 12, "sampling": sampling}
        free = target.generate(prompts, **how)
        stopped = target.generate(prompts, **how, stop="\n")
        assert stopped == [ending("\n").until(ids) for ids in free]
    assert TOKENIZER.decode(target.generate(prompts, max_new_tokens=12, stop="\n")[0]) == " one\n"


def test_a_line_ends_a_text_once_something_was_said() -> None:
    chance, pieces = (
        random.Random(0),
        ["\n", "\n\n", " ", '"', "*(", "-", "_", "ä", "7", "No.", "\r", "a b"],
    )
    for _ in range(300):
        text = "".join(chance.choices(pieces, k=chance.randrange(8)))
        said = [i for i, letter in enumerate(text) if letter.isalnum()]
        breaks = [i for i, letter in enumerate(text) if letter == "\n" and said and i > said[0]]
        whole = text[: breaks[0] + 1] if breaks else text
        assert first_line(text) == whole
        assert ending(one_line=True).until(list(text.encode())) == list(whole.encode())
    ids = [*b"\n\nOne.\nTwo", END, *b" more\n"]
    assert ending(one_line=True).until(ids) == [*b"\n\nOne.\n"]
    assert ending("n", one_line=True).until(ids) == [*b"\n\nOn"]
    assert ending("w", one_line=True).until(ids) == [*b"\n\nOne.\n"]
    assert ending(one_line=True).until([*b"\n", END, *b"One\n"]) == [*b"\n", END]


def test_the_fake_model_ends_with_the_line() -> None:
    target = FakeTarget(["a list: one\ntwo\nthree"], strength=20.0)
    how = {"max_new_tokens": 12, "sampling": Sampling(temperature=0.5, seed=1)}
    prompts = [list(b"a list:"), list(b"wo"), list(b"zzz")]
    free = target.generate(prompts, **how)
    ended = target.generate(prompts, **how, one_line=True)
    assert ended == [ending(one_line=True).until(ids) for ids in free] != free
