"""What making neighbours costs, as a ratio measured in one process and interleaved.

    OMP_NUM_THREADS=1 python benchmarks/neighbours.py [--filler FOLDER] [--texts N] [--json]

All swaps of a text by a masked language model: the words of it in batches, the head on the guessed
places only, against one forward pass of the whole model for each word. Scores of both are compared.
Without `--filler` it is a random BERT of the size of MiniLM (6 layers of 384, 30,522 tokens): the cost
does not depend on what it has learned. The ways take turns; the ratio is the median over rounds.
"""

# ruff: noqa: S106 (tokens of a tokenizer are no passwords)

from __future__ import annotations

import argparse
import json
import statistics
import string
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from engine import Way, compared, race
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoModelForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    PreTrainedTokenizerFast,
)

from unseen.data.synthetic import people
from unseen.targets.fillers import MaskedFiller, open_filler

TOP_K, DROPOUT = 5, 0.7


def random_bert(where: Path, texts: list[str]) -> Path:
    """A folder with a BERT that has learned nothing, of the size of MiniLM."""
    words = sorted({word for text in texts for word in text.lower().split() if word.isalpha()})
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*string.ascii_lowercase, *string.digits, *string.punctuation]
    known = dict.fromkeys([*special, *words, *pieces, *(f"##{p}" for p in pieces)])
    vocabulary = {word: i for i, word in enumerate(known)}
    for i in range(len(vocabulary), 30_522):
        vocabulary[f"[unused{i}]"] = i
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]", model_max_length=512,
    ).save_pretrained(where)  # fmt: skip
    config = BertConfig(
        vocab_size=30_522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
        intermediate_size=1536,
    )  # fmt: skip
    BertForMaskedLM(config).save_pretrained(where)
    return where


def batched(filler: MaskedFiller, text: str) -> dict[tuple[int, str], float]:
    swaps = filler.swaps(text, top_k=TOP_K, dropout=DROPOUT, rng=np.random.default_rng(0))
    return {(swap.edit.start, swap.edit.put): swap.score for swap in swaps}


def one_by_one(filler: MaskedFiller, model: Any, text: str) -> dict[tuple[int, str], float]:
    """The same scores, from one forward pass of the whole model for each word."""
    rng = np.random.default_rng(0)
    windows, places = filler._read(text)  # noqa: SLF001 (which words there are is not what is timed)
    table = model.get_input_embeddings()
    mask = filler._tokenizer.mask_token_id  # noqa: SLF001
    found: dict[tuple[int, str], float] = {}
    for place in places:
        row, whole = windows[place.window], place.last == place.first + 1
        keep = (rng.random(table.weight.shape[1]) >= DROPOUT) / (1 - DROPOUT)
        ids = row if whole else [*row[: place.first], mask, *row[place.last :]]
        with torch.inference_mode():
            vectors = table(torch.tensor([ids]))
            if whole:
                vectors[0, place.first] *= torch.from_numpy(keep.astype(np.float32))
            p = model(inputs_embeds=vectors).logits[0, place.first].double().softmax(-1).numpy()
        left = 1 - (float(p[row[place.first]]) if whole else 0.0)
        original = text[slice(*place.span)]
        for word, likely in filler._others(original, p, TOP_K):  # noqa: SLF001
            key = (place.span[0], word)
            found[key] = max(found.get(key, 0.0), likely / (left if left > 0 else 0.1))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filler", help="folder of a masked language model")
    parser.add_argument("--texts", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    texts = [person.text for person in people(given.texts, seed=0)]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(given.filler) if given.filler else random_bert(Path(folder), texts)
        filler = open_filler(str(place), device="cpu")
        assert isinstance(filler, MaskedFiller)
        model = AutoModelForMaskedLM.from_pretrained(place).eval()
        furthest = 0.0
        for text in texts:
            fast, slow = batched(filler, text), one_by_one(filler, model, text)
            assert fast, "the filler knows words of the text"
            # Of words that are as good as each other, either may be the last that is taken.
            both = fast.keys() & slow.keys()
            assert len(both) >= 0.95 * len(fast), "the same swaps"
            furthest = max(furthest, *(abs(fast[key] / slow[key] - 1) for key in both))
        ways: dict[str, Way] = {
            "batched": lambda: [batched(filler, text) for text in texts],
            "one": lambda: [one_by_one(filler, model, text) for text in texts],
        }
        *_, ratios = compared(race(ways, given.rounds), "one", "batched")
    assert furthest < 1e-3, f"scores differ by {furthest:.1e} of themselves"
    about = {
        "one word at a time / in batches, CPU time": statistics.median(ratios),
        "rounds": list(ratios),
        "largest relative difference of scores": furthest,
        "words a text": statistics.mean(len(filler._read(text)[1]) for text in texts),  # noqa: SLF001
    }
    if given.json:
        print(json.dumps(about, indent=1))
    else:
        for name, value in about.items():
            print(f"{name}: {value if isinstance(value, list) else f'{value:.3g}'}")


if __name__ == "__main__":
    main()
