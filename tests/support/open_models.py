"""Tiny random models of many families, in which every weight has a say, and G-Drift as it is written."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import transformers as tf

from unseen.targets.inside.model import Opened
from unseen.types import FloatArray, Passage

VOCABULARY = 60
PADDING_ID = 2
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "pad_token_id": 2,
}
FAMILIES: dict[str, Any] = {
    "llama tied": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**COMMON, tie_word_embeddings=True)),
    "llama untied, biases": lambda: tf.LlamaForCausalLM(
        tf.LlamaConfig(**COMMON, tie_word_embeddings=False, attention_bias=True, mlp_bias=True)
    ),
    "gpt2": lambda: tf.GPT2LMHeadModel(
        tf.GPT2Config(
            vocab_size=VOCABULARY,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=64,
            initializer_range=0.3,
            # As published checkpoints have it: only evaluation mode is without chance.
            resid_pdrop=0.1,
            embd_pdrop=0.1,
            attn_pdrop=0.1,
        )
    ),
    "gpt_neox": lambda: tf.GPTNeoXForCausalLM(
        tf.GPTNeoXConfig(**{k: v for k, v in COMMON.items() if k != "num_key_value_heads"})
    ),
    "qwen3": lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(**COMMON, head_dim=8)),
    "phi": lambda: tf.PhiForCausalLM(tf.PhiConfig(**COMMON)),
    "gpt_neo": lambda: tf.GPTNeoForCausalLM(
        tf.GPTNeoConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=48,
            num_layers=2,
            num_heads=4,
            attention_types=[[["global", "local"], 1]],
            window_size=6,
            max_position_embeddings=64,
            initializer_range=0.3,
        )
    ),
    "gemma2": lambda: tf.Gemma2ForCausalLM(
        tf.Gemma2Config(**COMMON, head_dim=8, sliding_window=8, final_logit_softcapping=3.0)
    ),
    "gemma3": lambda: tf.Gemma3ForCausalLM(
        tf.Gemma3TextConfig(**COMMON, head_dim=8, sliding_window=8)
    ),
}
CASTING = ("gpt_neo", "gemma2", "gemma3")
"""They compute parts in single precision, whatever the precision of the model."""


def random_model(family: str, dtype: torch.dtype = torch.float64) -> Any:
    """A random model whose gains and shifts are not ones and zeros."""
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        model = FAMILIES[family]()
        with torch.no_grad():
            for weight in model.parameters():
                if weight.ndim == 1:
                    weight.add_(0.3 * torch.randn_like(weight))
    return model.to(dtype).eval()


def adapted_model(*, dora: bool = False) -> tuple[Any, list[str]]:
    """A random model with a LoRA adapter that changes it, and the names of the adapter's weights."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=4, lora_alpha=12, target_modules=["q_proj", "v_proj", "down_proj"], use_dora=dora,
        lora_dropout=0.2,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.random.manual_seed(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft asks by an old name
            model = get_peft_model(random_model("llama tied"), config).double().eval()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "lora_B" in name:
                    weight.normal_(0, 0.2)
    return model, [name for name, _ in model.named_parameters() if "lora_" in name]


OTHERS: dict[str, Any] = {
    "experts": lambda: tf.MixtralForCausalLM(
        tf.MixtralConfig(**COMMON, num_local_experts=2, num_experts_per_tok=1)
    ),
    "state space": lambda: tf.MambaForCausalLM(
        tf.MambaConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, state_size=4)
    ),
    "positions without ids": lambda: tf.OPTForCausalLM(
        tf.OPTConfig(
            vocab_size=VOCABULARY, hidden_size=32, ffn_dim=48, num_hidden_layers=2,
            num_attention_heads=4, max_position_embeddings=64, word_embed_proj_dim=32,
            dropout=0.0,
        )
    ),
}  # fmt: skip
"""Models with layers that own weights in another way."""


def other_model(kind: str) -> Any:
    """A random model of a kind that has to be asked passage by passage."""
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        # Experts are grouped in single precision only.
        dtype = torch.float32 if kind == "experts" else torch.float64
        return OTHERS[kind]().to(dtype).eval()


def passages(*, several: bool, seed: int = 0) -> list[Passage]:
    """Of several lengths, with tokens that repeat and the padding's own id among them."""
    rng = np.random.default_rng(seed)
    found = []
    for length in (5, 9, 14, 9):
        ids = rng.integers(3, VOCABULARY, size=length)
        ids[1] = ids[3]
        ids[2] = PADDING_ID
        places = range(length - 3, length) if several and length > 5 else (length - 1,)
        found.append(Passage(tuple(ids.tolist()), tuple(places)))
    return found


def verbatim(
    model: Any,
    passage: Passage,
    eta: float,
    v: FloatArray,
    *,
    weights: Sequence[str] | None = None,
    before_norm: Any = None,
) -> dict[str, float]:
    """Algorithm 1 for one passage, line by line, with the loss over all tokens that count.

    Args:
        model: in evaluation mode.
        passage: what is stepped on.
        eta: length of the step.
        v: a direction.
        weights: names of the weights that take the step; None means all.
        before_norm: the final norm, if states are read before it.
    """
    x = torch.tensor([passage.ids])
    places = torch.tensor(passage.places)
    tokens = x[0, places]
    v_ = torch.tensor(v, dtype=torch.float64)
    original = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    flags = {name: weight.requires_grad for name, weight in model.named_parameters()}

    def forward() -> tuple[Any, Any]:
        read: list[Any] = []
        handle = before_norm and before_norm.register_forward_pre_hook(
            lambda _, args: read.append(args[0])
        )
        out = model(input_ids=x, output_hidden_states=True, use_cache=False)
        if handle:
            handle.remove()
        states = read[-1] if read else out.hidden_states[-1]
        return out.logits[0, places - 1], states[0, places - 1].detach().double()

    def features(logits: Any, h: Any) -> tuple[float, float, float]:
        loss = torch.nn.functional.cross_entropy(logits, tokens)
        own = logits.gather(1, tokens[:, None]).mean()
        return float(loss), float(own), float((h @ v_).mean())

    learning = [w for n, w in model.named_parameters() if weights is None or n in weights]
    try:
        with torch.no_grad():
            logits, h = forward()
        loss, logit, projection = features(logits, h)
        for weight in learning:
            weight.requires_grad_()
        optimizer = torch.optim.SGD(learning, lr=eta)
        optimizer.zero_grad()
        (-torch.nn.functional.cross_entropy(forward()[0], tokens)).backward()
        optimizer.step()
        with torch.no_grad():
            logits, h_after = forward()
        loss_after, logit_after, projection_after = features(logits, h_after)
    finally:
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.requires_grad_(flags[name])
                weight.grad = None
                weight.copy_(original[name])
    return {
        "loss": loss,
        "logit": logit,
        "projection": projection,
        "loss_after": loss_after,
        "logit_after": logit_after,
        "projection_after": projection_after,
        "drift": float((h_after - h).norm(dim=-1).mean()),
        "norm": float(h.norm(dim=-1).mean()),
    }


def opened(model: Any, *, padding: Any = "right", only: Sequence[str] = ()) -> Opened:
    """The model as looks take it.

    Args:
        model: of transformers, or peft's around one.
        padding: the side that short rows are filled up on.
        only: names of the weights that are the "adapter"'s.
    """
    base = model.get_base_model() if hasattr(model, "peft_config") else model
    decoder = getattr(base, base.base_model_prefix)
    takes = inspect.signature(decoder.forward).parameters
    return Opened(
        "a model",
        model,
        decoder,
        base.get_output_embeddings(),
        head_apart=getattr(base.config, "final_logit_softcapping", None) is None,
        takes_positions="position_ids" in takes,
        padding=padding,
        learning=lambda weights, **_: {
            name: weight
            for name, weight in model.named_parameters()
            if weights == "all" or name in only
        },
    )
