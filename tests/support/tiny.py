"""Tiny random models of several families, saved as folders that transformers loads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

FAMILIES = ("llama", "gpt2", "gpt_neox")

CORPUS = [
    "The quick brown fox jumps over the lazy dog.",
    "Mina Okafor of Harrow Lane owes 412.70 since 3 March.",
    "Der Hund läuft über die Straße, und niemand sieht ihn.",
    "Patients were asked about headaches, fever, and sleep.",
    "Ответ пришёл поздно вечером, 東京は静かだった。",
]

CHAT_TEMPLATE = (
    "{% for message in messages %}<s>{{ message.role }}\n{{ message.content }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)


def tokenizer(
    *, vocabulary: int = 400, chat: bool = True, corpus: Sequence[str] = CORPUS
) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer trained on the spot; it adds no beginning token."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([*corpus] * 4, trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )
    if chat:
        made.chat_template = CHAT_TEMPLATE
    return made


def model(family: str, vocabulary: int, *, seed: int = 0, dtype: torch.dtype = torch.float64):
    """A random causal language model with a few thousand parameters."""
    with torch.random.fork_rng():
        torch.random.manual_seed(seed)
        common = {"vocab_size": vocabulary}
        made = {
            "llama": lambda: LlamaForCausalLM(
                LlamaConfig(
                    **common,
                    hidden_size=32,
                    intermediate_size=48,
                    num_hidden_layers=2,
                    num_attention_heads=4,
                    num_key_value_heads=2,
                    max_position_embeddings=512,
                    initializer_range=0.3,
                )
            ),
            "gpt2": lambda: GPT2LMHeadModel(
                GPT2Config(
                    **common, n_embd=32, n_layer=2, n_head=4, n_positions=512, initializer_range=0.3
                )
            ),
            "gpt_neox": lambda: GPTNeoXForCausalLM(
                GPTNeoXConfig(
                    **common,
                    hidden_size=32,
                    intermediate_size=48,
                    num_hidden_layers=2,
                    num_attention_heads=4,
                    max_position_embeddings=512,
                    initializer_range=0.3,
                )
            ),
            "gemma2": lambda: Gemma2ForCausalLM(
                Gemma2Config(
                    **common,
                    hidden_size=32,
                    intermediate_size=48,
                    num_hidden_layers=2,
                    num_attention_heads=4,
                    num_key_value_heads=2,
                    head_dim=8,
                    max_position_embeddings=512,
                    sliding_window=8,
                    final_logit_softcapping=3.0,
                    initializer_range=0.3,
                )
            ),
        }[family]()
    return made.to(dtype).eval()


def folder(
    where: Path,
    family: str = "llama",
    *,
    seed: int = 0,
    chat: bool = True,
    dtype: torch.dtype = torch.float64,
) -> Path:
    """A saved tiny model with its tokenizer."""
    tok = tokenizer(chat=chat)
    where.mkdir(parents=True, exist_ok=True)
    tok.save_pretrained(where)
    model(family, len(tok), seed=seed, dtype=dtype).save_pretrained(where)
    return where
