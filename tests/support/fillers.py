"""Fillers to test with: a list of words, and tiny models that have learned some sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from unseen.errors import UnscorableError
from unseen.targets.edits import UNKNOWN, Edit, Swap
from unseen.targets.words import Span, cased_like, word_spans

WORDS = ("zu", "wo", "gem", "tulip", "orbit")


class ListFiller:
    """Knows every word but "unknown", and finds the words of a list ever less fitting."""

    name = "embeddings"
    about = "a list of words"
    fingerprint = "list-1"
    swaps_words = True

    def __init__(self, words: Sequence[str] = WORDS) -> None:
        self.words = tuple(words)
        self.n_asked = 0

    def check(self, texts: Sequence[str]) -> None:
        pass

    def swaps(
        self,
        text: str,
        *,
        top_k: int,
        dropout: float,
        rng: np.random.Generator,
        until: int | None = None,
    ) -> list[Swap]:
        self.n_asked += 1
        spans = [span for span in word_spans(text) if until is None or span[1] <= until]
        found = [
            Swap(Edit(*span, cased_like(word, text[slice(*span)])), 1 / (1 + rank + i / 100))
            for i, span in enumerate(self._known(text, spans))
            for rank, word in enumerate(self.words[:top_k])
        ]
        return sorted(found, key=lambda swap: -swap.score)

    def refills(
        self,
        text: str,
        spans: Sequence[Span],
        *,
        ways: int,
        top_k: int,
        rng: np.random.Generator,
    ) -> list[tuple[Edit, ...]]:
        self.n_asked += 1
        inside = [s for s in word_spans(text) if any(a <= s[0] and s[1] <= b for a, b in spans)]
        known = self._known(text, inside)
        return [
            tuple(
                Edit(*span, self.words[int(rng.integers(len(self.words[:top_k])))])
                for span in known
            )
            for _ in range(ways)
        ]

    def _known(self, text: str, spans: Sequence[Span]) -> list[Span]:
        known = [span for span in spans if text[slice(*span)] != "unknown"]
        if not known:
            raise UnscorableError(UNKNOWN)
        return known


SUBJECTS = ("doctor", "nurse", "teacher", "baker", "pilot", "farmer")
VERBS = ("sees", "hears", "finds", "keeps", "paints")
OBJECTS = ("house", "river", "garden", "horse", "letter", "bridge", "東", "京")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
HOLES = tuple(f"<extra_id_{i}>" for i in range(30))


def sentence(rng: np.random.Generator) -> str:
    """One of the sentences that the tiny models learn."""
    one, two = rng.choice(SUBJECTS, 2)
    return f"the {one} {rng.choice(VERBS)} the old {rng.choice(OBJECTS)} and the {two} ."


def tokenizer(special: Sequence[str] = SPECIAL) -> Any:
    """Lower-case WordPiece of these words, of letters, and of pieces of one word."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [*special, *SUBJECTS, *VERBS, *OBJECTS, "the", "old", "and", ".", ",", "'", *letters]
    words += [f"##{letter}" for letter in letters]
    vocabulary = {word: i for i, word in enumerate(words)}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token=special[1]))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    if special == SPECIAL:
        backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        return PreTrainedTokenizerFast(
            tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
            sep_token="[SEP]", mask_token="[MASK]", model_max_length=64,
        )  # fmt: skip
    backend.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>", eos_token="</s>",
        additional_special_tokens=list(HOLES),
    )  # fmt: skip


def masked_folder(
    where: Path, *, steps: int = 150, make: Callable[[np.random.Generator], str] = sentence
) -> Path:
    """A saved BERT of a few thousand weights that has learned the sentences; 0 steps: random."""
    tok = tokenizer()
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        model = BertForMaskedLM(
            BertConfig(
                vocab_size=len(tok),
                hidden_size=32,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=64,
                max_position_embeddings=64,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
                pad_token_id=0,
            )
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
        rng = np.random.default_rng(0)
        for _ in range(steps):
            made = tok([make(rng) for _ in range(32)], return_tensors="pt", padding=True)
            ids = made["input_ids"]
            words = (ids >= len(SPECIAL)) & torch.from_numpy(rng.random(ids.shape) < 0.3)
            labels = torch.where(words, ids, torch.tensor(-100))
            shown = torch.where(words, torch.tensor(4), ids)
            loss = model(input_ids=shown, attention_mask=made["attention_mask"], labels=labels).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    where.mkdir(parents=True, exist_ok=True)
    tok.save_pretrained(where)
    model.eval().save_pretrained(where)
    return where


def t5_folder(where: Path, *, steps: int = 0) -> Path:
    """A saved T5 of a few thousand weights that fills holes in the sentences; 0 steps: random."""
    tok = tokenizer(("<pad>", "<unk>", "</s>", *HOLES))
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        model = T5ForConditionalGeneration(
            T5Config(
                vocab_size=len(tok),
                d_model=64,
                d_kv=16,
                d_ff=128,
                num_layers=2,
                num_heads=4,
                dropout_rate=0.0,
                pad_token_id=0,
                eos_token_id=2,
                decoder_start_token_id=0,
            )
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
        rng = np.random.default_rng(0)
        for _ in range(steps):
            texts, answers = [], []
            for _ in range(32):
                words = sentence(rng).split()
                one, two = sorted(rng.choice(range(0, len(words) - 2, 3), 2, replace=False))
                answers.append(
                    f"{HOLES[0]} {' '.join(words[one : one + 2])} "
                    f"{HOLES[1]} {' '.join(words[two : two + 2])} {HOLES[2]}"
                )
                words[two : two + 2] = [HOLES[1]]
                words[one : one + 2] = [HOLES[0]]
                texts.append(" ".join(words))
            asked = tok(texts, return_tensors="pt", padding=True)
            labels = tok(answers, return_tensors="pt", padding=True)["input_ids"]
            labels = labels.masked_fill(labels == 0, -100)
            loss = model(
                input_ids=asked["input_ids"],
                attention_mask=asked["attention_mask"],
                labels=labels,
            ).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    where.mkdir(parents=True, exist_ok=True)
    tok.save_pretrained(where)
    model.eval().save_pretrained(where)
    return where
