import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from fillers import OBJECTS, SUBJECTS, masked_folder, sentence, t5_folder, tokenizer
from transformers import AutoModelForMaskedLM, BertModel, RobertaConfig, RobertaForMaskedLM

from unseen.errors import ModelError, UnscorableError
from unseen.targets.edits import edited
from unseen.targets.fillers import EmbeddingFiller, MaskedFiller, T5Filler, open_filler
from unseen.targets.words import word_spans

TEXT = "The Doctor sees the old house, and the NURSE."


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return masked_folder(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="session")
def masked(bert: Path) -> MaskedFiller:
    filler = open_filler(str(bert))
    assert isinstance(filler, MaskedFiller)
    return filler


def swapped(filler: Any, text: str, *, seed: int = 0, top_k: int = 3, dropout: float = 0.7) -> Any:
    return filler.swaps(text, top_k=top_k, dropout=dropout, rng=np.random.default_rng(seed))


def words_of(text: str) -> list[str]:
    return [text[slice(*span)] for span in word_spans(text)]


@pytest.mark.parametrize("kind", ["masked", "alike"])
def test_only_the_beginning_is_swapped_and_all_is_read(
    request: pytest.FixtureRequest, kind: str
) -> None:
    filler = request.getfixturevalue(kind)
    end = TEXT.index(" sees")
    rng = np.random.default_rng(0)
    early = filler.swaps(TEXT, top_k=3, dropout=0.3, rng=rng, until=end)
    whole = [swap for swap in swapped(filler, TEXT, dropout=0.3) if swap.edit.stop <= end]
    assert early
    assert [swap.edit for swap in early] == [swap.edit for swap in whole], "as in the whole text"
    assert [s.score for s in early] == pytest.approx([s.score for s in whole], rel=1e-4)
    with pytest.raises(UnscorableError):
        filler.swaps(TEXT, top_k=3, dropout=0.3, rng=rng, until=1)


# --- masked language models -----------------------------------------------------------------------


def slow_swaps(
    folder: Path, text: str, *, top_k: int, dropout: float, rng: np.random.Generator
) -> dict[str, float]:
    """Position by position, without batches, windows or the head apart."""
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    tok = tokenizer()
    ids = tok(text)["input_ids"]
    pieces = tok.convert_ids_to_tokens(ids)
    kept = [rng.random(32) >= dropout for piece in pieces if piece.isalnum()]
    found: dict[str, float] = {}
    words = iter(word_spans(text))
    whole = [(i, token) for i, token in enumerate(ids) if pieces[i].isalnum()]
    with torch.no_grad():
        for (i, token), keep in zip(whole, kept, strict=True):
            start, stop = next(words)
            vectors = model.bert.embeddings.word_embeddings(torch.tensor([ids])).clone()
            vectors[0, i] *= torch.from_numpy((keep / (1 - dropout)).astype(np.float32))
            p = model(inputs_embeds=vectors).logits[0, i].double().softmax(-1)
            ranked = [j for j in p.argsort(descending=True).tolist() if j != token]
            ranked = [j for j in ranked if tok.convert_ids_to_tokens(j).isalnum()][:top_k]
            for j in ranked:
                word = tok.convert_ids_to_tokens(j)
                old = text[start:stop]
                word = word.upper() if old.isupper() else word.title() if old[0].isupper() else word
                new = text[:start] + word + text[stop:]
                score = float(p[j] / (1 - p[token]))
                found[new] = max(score, found.get(new, 0))
    return found


def test_swaps_are_those_of_one_position_at_a_time(bert: Path, masked: MaskedFiller) -> None:
    slow = slow_swaps(bert, TEXT, top_k=3, dropout=0.7, rng=np.random.default_rng(0))
    fast = {edited(TEXT, (swap.edit,)): swap.score for swap in swapped(masked, TEXT)}
    assert fast == pytest.approx(slow, rel=1e-4)
    scores = [swap.score for swap in swapped(masked, TEXT)]
    assert scores == sorted(scores, reverse=True)


def test_a_swap_changes_one_word_and_its_case_stays(masked: MaskedFiller) -> None:
    found = [edited(TEXT, (swap.edit,)) for swap in swapped(masked, TEXT)]
    assert len(set(found)) == len(found) >= 20
    for new in found:
        pairs = list(zip(words_of(TEXT), words_of(new), strict=True))
        (pair,) = [(old, word) for old, word in pairs if old != word]
        assert pair[0].casefold() != pair[1].casefold()
        assert (pair[0].isupper(), pair[0].istitle()) == (pair[1].isupper(), pair[1].istitle())
        assert new.endswith(".")


def test_it_has_learned_what_fits(masked: MaskedFiller) -> None:
    text = "the doctor sees the old house and the nurse ."
    rng = np.random.default_rng(0)
    spans = [(text.index(word), text.index(word) + len(word)) for word in ("house", "nurse")]
    for house, nurse in masked.refills(text, spans, ways=4, top_k=2, rng=rng):
        assert house.put in OBJECTS
        assert nurse.put in SUBJECTS


def test_the_same_in_any_company_and_another_with_another_seed(masked: MaskedFiller) -> None:
    assert swapped(masked, TEXT) == swapped(masked, TEXT)
    swapped(masked, "the nurse sees the old letter and the pilot .")
    assert swapped(masked, TEXT) == swapped(masked, TEXT, seed=0)
    assert swapped(masked, TEXT) != swapped(masked, TEXT, seed=1)


def test_a_word_of_several_pieces_is_hidden_as_a_whole(masked: MaskedFiller) -> None:
    text = "the zebra sees the old house"
    found = [swap for swap in swapped(masked, text) if swap.edit.start == 4]
    assert {swap.edit.stop for swap in found} == {9}
    assert {swap.edit.put for swap in found} <= set(masked._words.words)
    assert sum(swap.score for swap in found) <= 1, "p of the original is 0"


def test_long_texts_are_read_in_windows(masked: MaskedFiller) -> None:
    rng = np.random.default_rng(3)
    text = " ".join(sentence(rng) for _ in range(20))
    windows, places = masked._read(text)
    assert len(windows) > 3
    assert max(map(len, windows)) <= 64
    assert [place.span for place in places] == word_spans(text)
    for place in places:
        row = windows[place.window]
        assert tokenizer().decode(row[place.first : place.last]) == text[slice(*place.span)]
        around = min(place.first - 1, len(row) - 1 - place.last)
        assert around >= 10 or place in (*places[:12], *places[-12:])
    assert {swap.edit.start for swap in swapped(masked, text)} == {a for a, _ in word_spans(text)}


def test_what_it_does_not_know_is_left_alone(masked: MaskedFiller) -> None:
    for text in ("Ответ", "مرحبا", "...", "", "नमस्ते"):
        with pytest.raises(UnscorableError, match="knows no word of this text"):
            swapped(masked, text)
    found = swapped(masked, "Ответ: 東 ответ")
    assert {(swap.edit.start, swap.edit.stop) for swap in found} == {(7, 8)}


def test_refills_change_the_stretches_only(masked: MaskedFiller) -> None:
    spans = [(4, 15), (24, 29)]
    made = masked.refills(TEXT, spans, ways=2, top_k=5, rng=np.random.default_rng(0))
    assert len(made) == 2
    for edits in made:
        assert [(e.start, e.stop) for e in edits] == [(4, 10), (11, 15), (24, 29)]
        assert edited(TEXT, edits).startswith("The ")
    again = masked.refills(TEXT, spans, ways=2, top_k=5, rng=np.random.default_rng(0))
    assert again == made


def test_the_head_alone_says_what_the_model_says(masked: MaskedFiller, monkeypatch: Any) -> None:
    apart = swapped(masked, TEXT)
    assert masked._head is not None
    monkeypatch.setattr(masked, "_head", None)
    whole = swapped(masked, TEXT)
    assert [swap.edit for swap in whole] == [swap.edit for swap in apart]
    assert [s.score for s in whole] == pytest.approx([s.score for s in apart], rel=1e-4)


def test_a_head_that_has_not_learned_is_refused(tmp_path: Path, bert: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [sentence(rng) for _ in range(8)]
    open_filler(str(bert)).check(texts)
    random = masked_folder(tmp_path / "random", steps=0)
    with pytest.raises(ModelError, match=r"hidden words cost it 4.4. nats, blind guessing 4.4"):
        open_filler(str(random)).check(texts)
    BertModel.from_pretrained(bert).save_pretrained(tmp_path / "encoder")
    tokenizer().save_pretrained(tmp_path / "encoder")
    with pytest.raises(ModelError, match="has no weights for cls") as caught:
        open_filler(str(tmp_path / "encoder"))
    assert "filler=embeddings:" in (caught.value.fix or "")


def test_positions_of_roberta_begin_behind_its_padding(tmp_path: Path) -> None:
    tok = tokenizer()
    config = RobertaConfig(
        vocab_size=len(tok), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=34, pad_token_id=0,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        RobertaForMaskedLM(config).save_pretrained(tmp_path)
    tok.save_pretrained(tmp_path)
    filler: Any = open_filler(str(tmp_path))
    assert filler._limit == 33
    rng = np.random.default_rng(3)
    assert swapped(filler, " ".join(sentence(rng) for _ in range(9)))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("./nowhere", "there is no model folder ./nowhere"),
        ("embeddings:./nowhere", "there is no model folder ./nowhere"),
        ("embeddings", "the target does not show its word embeddings"),
    ],
)
def test_what_is_not_there_is_named(name: str, problem: str) -> None:
    with pytest.raises(ModelError, match=problem) as caught:
        open_filler(name)
    assert "FacebookAI/roberta-base" in (caught.value.fix or "")


def test_what_cannot_fill_in_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"cannot load the filler .*it is neither a masked language model nor a T5"
    ):
        open_filler(str(tiny.folder(tmp_path)))


# --- word embeddings ------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def alike(bert: Path) -> EmbeddingFiller:
    filler = open_filler(f"embeddings:{bert}")
    assert isinstance(filler, EmbeddingFiller)
    return filler


def test_words_that_are_alike_by_cosine(bert: Path, alike: EmbeddingFiller) -> None:
    tok = tokenizer()
    matrix = (
        AutoModelForMaskedLM.from_pretrained(bert).get_input_embeddings().weight.detach().numpy()
    )
    words = [w for w in tok.get_vocab() if w.isalnum()]

    def cosine(one: str, other: str) -> float:
        a, b = (matrix[tok.get_vocab()[word]].astype(np.float64) for word in (one, other))
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    swaps = swapped(alike, "Doctor sees", top_k=4)
    for old, start in (("doctor", 0), ("sees", 7)):
        ranked = sorted(set(words) - {old}, key=lambda other: -cosine(old, other))[:4]
        of_word = [swap for swap in swaps if swap.edit.start == start]
        assert [swap.edit.put.lower() for swap in of_word] == ranked
        assert [s.score for s in of_word] == pytest.approx(
            [cosine(old, other) - rank for rank, other in enumerate(ranked)], abs=1e-4
        )
    assert [swap.edit.start for swap in swaps[:2]] in ([0, 7], [7, 0]), "first of every word first"


def test_a_pair_lies_on_both_sides_of_the_text(alike: EmbeddingFiller) -> None:
    spans, text = [(4, 10)], "the doctor sees"
    seed = np.random.default_rng(5)
    (one,), (other,) = alike.refills(text, spans, ways=2, top_k=6, rng=np.random.default_rng(5))
    z = seed.standard_normal(32).astype(np.float32)
    near = {swap.edit.put for swap in swapped(alike, "doctor", top_k=6)}
    along = {w: alike._vectors[alike._words.place(w)] @ z for w in near}
    assert one.put == max(along, key=along.__getitem__)
    assert other.put == min(along, key=along.__getitem__)


def test_other_texts_change_nothing(bert: Path, alike: EmbeddingFiller) -> None:
    rng = np.random.default_rng(0)
    for _ in range(3):
        swapped(alike, sentence(rng), top_k=3)
    assert swapped(open_filler(f"embeddings:{bert}"), TEXT) == swapped(alike, TEXT)
    with pytest.raises(UnscorableError, match="knows no word"):
        swapped(alike, "Ответ")


# --- T5 -------------------------------------------------------------------------------------------


def test_what_t5_writes_is_read_by_its_holes(tmp_path: Path) -> None:
    filler: Any = open_filler(str(t5_folder(tmp_path)))
    assert isinstance(filler, T5Filler)
    tok = filler._tokenizer
    spans = [(4, 15), (24, 29)]

    def read(said: str) -> list[str] | None:
        edits = filler._parts(TEXT, spans, tok(said)["input_ids"])
        return None if edits is None else [edit.put for edit in edits]

    assert read("<pad><extra_id_0> nurse hears <extra_id_1> garden <extra_id_2>") == [
        "nurse hears",
        "garden",
    ]
    assert read("<extra_id_0> nurse <extra_id_1> house </s>") == ["nurse"], "house is there already"
    assert read("<extra_id_0> nurse <extra_id_1></s>") is None
    assert read("nurse <extra_id_1> garden </s>") is None
    # It is random here: it gives up after a few tries, the same way each time.
    made = [
        filler.refills(TEXT, spans, ways=2, top_k=5, rng=np.random.default_rng(0)) for _ in "ab"
    ]
    assert made[0] == made[1]
    with pytest.raises(ModelError, match="not single words"):
        swapped(filler, TEXT)


def test_a_t5_without_holes_is_refused(tmp_path: Path) -> None:
    folder = t5_folder(tmp_path)
    tokenizer().save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "t5"
    with pytest.raises(ModelError, match="has no tokens for hidden stretches"):
        open_filler(str(folder))


@pytest.mark.slow
def test_a_t5_that_has_learned_fills_stretches(tmp_path: Path) -> None:
    filler = open_filler(str(t5_folder(tmp_path, steps=300)))
    text = "the doctor sees the old house and the nurse ."
    spans = [(4, 15), (24, 33)]
    state = torch.random.get_rng_state()
    made = filler.refills(text, spans, ways=2, top_k=5, rng=np.random.default_rng(0))
    assert torch.equal(state, torch.random.get_rng_state()), "nobody else's randomness is touched"
    assert len(set(made)) == 2
    for edits in made:
        new = edited(text, edits)
        assert new != text
        assert new.startswith("the ")
        assert new.endswith(" the nurse .")
    assert made == filler.refills(text, spans, ways=2, top_k=5, rng=np.random.default_rng(0))
    many = " ".join([text] * 20)
    spans = [(i * 46 + 4, i * 46 + 15) for i in range(20)] + [(19 * 46 + 24, 19 * 46 + 33)]
    assert filler.refills(many, spans, ways=1, top_k=5, rng=np.random.default_rng(1)) is not None
