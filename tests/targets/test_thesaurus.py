from pathlib import Path

import numpy as np
import pytest

from unseen.errors import ModelError, UnscorableError
from unseen.targets.edits import edited
from unseen.targets.fillers import open_filler

TEXT = "The Doctor saw an old house."


def swaps(name: str, text: str = TEXT, top_k: int = 5, until: int | None = None) -> list[str]:
    filler = open_filler(name)
    found = filler.swaps(text, top_k=top_k, dropout=0.3, rng=np.random.default_rng(0), until=until)
    return [edited(text, (swap.edit,)) for swap in found]


@pytest.fixture
def listed(tmp_path: Path) -> str:
    path = tmp_path / "words.txt"
    path.write_text("# mine\ndoctor: physician, medic, Doctor\n\nOld: ancient , aged\nOLD: grey\n")
    return f"list:{path}"


@pytest.fixture
def wordnet(tmp_path: Path) -> str:
    licence = "  1 This software and database is being provided to you\n"
    index = {
        "noun": "doctor n 2 3 @ ~ + 2 1 00000200 00000100  \nhouse n 1 0 1 1 00000300  \n",
        "verb": "doctor v 1 1 @ 1 0 00000100  \n",
        "adj": "old a 1 1 ! 1 1 00000100  \n",
        "adv": "",
    }
    data = {
        "noun": "00000100 18 n 02 doctor 0 Dr. 0 001 @ 00000001 n 0000 | a title\n"
        "00000200 18 n 04 doctor 0 physician 0 MD 0 medical_man 0 000 | one who heals\n"
        "00000300 06 n 01 house 0 000 | a dwelling\n",
        "verb": "00000100 29 v 02 sophisticate 0 doctor 1 000 01 + 08 00 | alter\n",
        "adj": "00000100 00 a 0b old 0 aged(p) 0 b1 0 b2 0 b3 0 b4 0 b5 0 b6 0 b7 0 b8 0 b9 0 000 | lived long\n",
        "adv": "",
    }
    for part, lines in index.items():
        (tmp_path / f"index.{part}").write_text(licence + lines)
        (tmp_path / f"data.{part}").write_text(licence + data[part])
    return f"wordnet:{tmp_path}"


def test_words_of_a_list_are_put_in_their_order_and_in_the_texts_case(listed: str) -> None:
    assert swaps(listed) == [
        "The Physician saw an old house.",
        "The Doctor saw an ancient house.",
        "The Medic saw an old house.",
        "The Doctor saw an aged house.",
        "The Doctor saw an grey house.",
    ]
    assert swaps(listed, top_k=1)[1:] == ["The Doctor saw an ancient house."]
    assert swaps(listed, until=len("The Doctor")) == [
        "The Physician saw an old house.",
        "The Medic saw an old house.",
    ]


def test_synonyms_of_wordnet_come_with_the_commonest_sense_first(wordnet: str) -> None:
    made = [one for one in swaps(wordnet, top_k=9) if "old house" in one]
    assert made == [
        "The Physician saw an old house.",
        "The MD saw an old house.",
        "The Dr. saw an old house.",
        "The Sophisticate saw an old house.",
    ]
    assert "The Doctor saw an aged house." in swaps(wordnet)
    assert len(swaps(wordnet, top_k=99)) == 4 + 10, "numbers of words are hexadecimal"


def test_stretches_are_filled_by_draws(listed: str) -> None:
    filler = open_filler(listed)
    spans = [(4, 10), (18, 27)]
    made = filler.refills(TEXT, spans, ways=9, top_k=2, rng=np.random.default_rng(0))
    texts = {edited(TEXT, edits) for edits in made}
    assert texts <= {
        f"The {a} saw an {b} house." for a in ("Physician", "Medic") for b in ("ancient", "aged")
    }
    assert len(texts) > 1
    assert filler.swaps_words
    filler.check([TEXT])


def test_a_word_that_is_not_in_it_is_not_known(listed: str) -> None:
    with pytest.raises(UnscorableError, match="knows no word of this text"):
        swaps(listed, "A river.")
    with pytest.raises(UnscorableError, match="knows no word of this text"):
        swaps(listed, until=3)


def test_its_fingerprint_is_that_of_its_content(listed: str, tmp_path: Path) -> None:
    before = open_filler(listed)
    assert before.about == "words of the list words.txt"
    (tmp_path / "words.txt").write_text("doctor: medic\n")
    assert open_filler(listed).fingerprint != before.fingerprint


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"doctor physician\n", r"words.txt, line 1: expected word: other, other"),
        (b"doctor:\n", "has no words that may stand for others"),
        (b"", "has no words that may stand for others"),
        (b"\xff: a\n", "it is no UTF-8"),
    ],
)
def test_a_list_that_is_wrong_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "words.txt").write_bytes(content)
    with pytest.raises(ModelError, match=problem):
        open_filler(f"list:{tmp_path / 'words.txt'}")


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="No such file") as caught:
        open_filler(f"wordnet:{tmp_path}")
    assert "data.noun" in (caught.value.fix or "")
    with pytest.raises(ModelError, match="cannot read"):
        open_filler("list:nothing.txt")


def test_a_damaged_wordnet_is_refused(wordnet: str, tmp_path: Path) -> None:
    (tmp_path / "data.noun").write_text("00000100 18 n xx doctor 0\n")
    with pytest.raises(ModelError, match="is no WordNet, or damaged"):
        open_filler(wordnet)
