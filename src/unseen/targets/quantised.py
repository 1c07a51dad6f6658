"""Weights of 4 or 8 bits, by bitsandbytes: how they are loaded, and what must be switched off in them."""

from __future__ import annotations

import logging
from typing import Any

from unseen.errors import ModelError, need
from unseen.targets.files import Source


def need_backend() -> None:
    """Sees to it that bitsandbytes is here, and works.

    Raises:
        MissingExtraError: it is not installed.
        ModelError: it has no library for this machine.
    """
    said = logging.getLogger("bitsandbytes")
    if said.level == logging.NOTSET:  # at each pass it says that inputs are rounded
        said.setLevel(logging.CRITICAL)
    library = getattr(need("bitsandbytes.cextension", "qlora"), "lib", None)
    if type(library).__name__.startswith("ErrorHandler"):  # a stand-in that fails when it is used
        raise ModelError(
            "bitsandbytes has no library for this machine, so nothing can be quantised",
            fix="leave out bits, and use the method lora",
        )


def quantise(source: Source, dtype: Any, *, already: str | None) -> dict[str, Any]:
    """What transformers needs to quantise a model's weights while it loads them.

    Four bits are NF4 with quantised constants (Dettmers et al. 2023, section 3). Eight bits are
    LLM.int8() without its way around outliers: which columns are outliers is decided over a whole
    batch, so that what is said of one record would depend on the others.

    Args:
        source: with `bits`.
        dtype: what is computed in.
        already: what the weights are quantised with as they are, or None.

    Raises:
        ModelError: they are quantised already.
    """
    if already is not None:
        raise ModelError(
            f"the weights of {source.model_name} are quantised already, with {already}",
            fix="leave out bits",
        )
    transformers = need("transformers", "hf")
    if source.bits == 8:
        config = transformers.BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0)
        return {"quantization_config": config}
    config = transformers.BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )
    return {"quantization_config": config}


def keep_trainable(model: Any) -> None:
    """Switches a kernel off through which no gradient flows.

    On a CPU with AVX512-BF16, layers of 4 bits repack their weights the first time they are asked
    without gradients. From then on, an adapter on them learns nothing, and nothing says so.

    Args:
        model: that was just loaded, and was asked nothing yet.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def mixes_records(model: Any) -> bool:
    """Whether outliers of one record change how the others of its batch are computed (LLM.int8())."""
    return any(
        float(getattr(getattr(module, "state", None), "threshold", 0.0) or 0.0) > 0
        for module in model.modules()
    )
