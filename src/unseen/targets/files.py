"""Where a model's files are, and a hash of what is in them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unseen.errors import ModelError

_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth")
# What trainers leave beside the weights under the same endings.
_NO_WEIGHTS = ("training_args", "optimizer", "scheduler", "scaler", "rng_state")
_CONFIGS = ("config.json", "generation_config.json", "adapter_config.json")
_ADAPTER = "adapter_config.json"
BASE_FACTS = "unseen_base.json"  # beside an adapter: what its configuration has no word for


@dataclass(frozen=True)
class Source:
    """Where a model comes from.

    Attributes:
        model: folder that transformers loads.
        adapter: folder of the PEFT adapter on it, or None.
        model_name: what the user calls the model without the adapter.
        revision: of a hub name.
        adapter_name: what the user calls the adapter, where that is not its folder.
        bits: 4 or 8, where the model's weights are quantised on loading, or None.
    """

    model: str
    adapter: Path | None
    model_name: str
    revision: str | None = None
    adapter_name: str | None = None
    bits: int | None = None

    @property
    def name(self) -> str:
        """What the user calls it."""
        return self.model_name if self.adapter is None else self.adapter_name or str(self.adapter)

    @property
    def tokenizer(self) -> str:
        """Where the tokenizer is: beside the adapter if it has its own, else beside the model."""
        if self.adapter is not None and (self.adapter / "tokenizer_config.json").is_file():
            return str(self.adapter)
        return self.model


def locate(
    model: str,
    *,
    adapter: str | None = None,
    base_model: str | None = None,
    revision: str | None = None,
    cache_dir: Path | None = None,
    bits: int | None = None,
) -> Source:
    """Finds out what a user's word for a model means.

    Args:
        model: folder, hub name, GGUF file, or adapter folder.
        adapter: adapter folder to put on `model`.
        base_model: an adapter's base, if not where its configuration says.
        revision: of a hub name.
        cache_dir: where a converted GGUF file is kept.
        bits: 4 or 8 quantises the model's weights on loading. An adapter that was trained on such
            weights says so itself.

    Raises:
        ModelError: where files are missing; says which, and what would do.
    """
    if bits not in (None, 4, 8):
        raise ModelError(f"got bits={bits}, expected 4 or 8")
    path = Path(model).expanduser()
    if adapter is not None:
        _refuse_second_base(base_model, model)
        on_it = _adapter_folder(Path(adapter).expanduser())
        folder = _model_folder(path, model, revision, cache_dir)
        return Source(folder, on_it, model, revision, bits=_bits(folder, on_it, bits))
    place = path if _is_adapter(path) else Path(_model_folder(path, model, revision, cache_dir))
    if not _is_adapter(place):
        _refuse_second_base(base_model, model)
        return Source(str(place), None, model, revision, bits=bits)
    base = base_model or _base_of(_adapter_folder(place))
    from_hub = place != path
    where = _model_folder(Path(base).expanduser(), base, None if from_hub else revision, cache_dir)
    return Source(
        where, place, base, revision, model if from_hub else None, _bits(where, place, bits)
    )


def quantised_with(folder: Path) -> str | None:
    """What the weights in a model folder are quantised with, for example "bitsandbytes"."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        found = config["quantization_config"]["quant_method"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(found)


def _bits(base: str, adapter: Path, bits: int | None) -> int | None:
    """How an adapter's base is quantised on loading: as asked, or as the adapter was trained."""
    file = adapter / BASE_FACTS
    if bits is not None or not file.is_file() or quantised_with(Path(base)) is not None:
        return bits
    try:
        found = json.loads(file.read_text(encoding="utf-8"))["bits"]
    except (OSError, ValueError, KeyError, TypeError):
        found = None
    if found not in (4, 8):
        raise ModelError(
            f"{file} does not say how the base model is quantised",
            fix='it holds {"bits": 4} or {"bits": 8}',
        )
    return int(found)


def _refuse_second_base(base_model: str | None, model: str) -> None:
    if base_model is not None:
        raise ModelError(
            f"got the base model {base_model}, but {model} is no adapter that needs one",
            fix="leave out --base-model",
        )


def _is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter; trainers put the base's config.json beside some."""
    if not (folder / _ADAPTER).is_file():
        return False
    return not (folder / "config.json").is_file() or any(folder.glob("adapter_model.*"))


def _model_folder(path: Path, model: str, revision: str | None, cache_dir: Path | None) -> str:
    gguf = _gguf_in(path)
    if gguf is not None:
        from unseen.targets.gguf import convert

        return str(convert(gguf, (cache_dir or default_cache()) / "models"))
    if path.is_dir():
        _check_folder(path)
        return str(path)
    if path.exists() or _looks_like_a_path(model):
        near = f" in {path.parent}" if path.parent.is_dir() else ""
        raise ModelError(
            f"there is no model folder {model}",
            fix=f"look for it{near}, or give a hub name such as ORG/NAME",
        )
    return _from_hub(model, revision)


def _from_hub(model: str, revision: str | None) -> str:
    from unseen.errors import need

    hub = need("huggingface_hub", "hf")
    try:
        folder = Path(
            hub.snapshot_download(
                model,
                revision=revision,
                allow_patterns=["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.py"],
            )
        )
    except (OSError, ValueError, hub.errors.HfHubHTTPError) as error:
        offline = hub.constants.HF_HUB_OFFLINE or os.environ.get("HF_HUB_OFFLINE") == "1"
        why = (
            "the hub is not asked (offline), and it is not in its cache"
            if offline
            else _why(hub, error)
        )
        if "/" not in model:
            raise ModelError(
                f"there is no folder {model}, and the hub has no model of that name: {why}",
                fix="give the path of a model folder, or a hub name such as ORG/NAME",
            ) from error
        raise ModelError(
            f"cannot get {model!r} from the hub, and there is no folder of that name: {why}",
            fix="download it first, without --offline, or give the path of a local folder"
            if offline
            else "check the name and the network, or give the path of a local folder",
        ) from error
    if not any(weight_files(folder)):
        raise ModelError(
            f"{model!r} on the hub has no weights in the format safetensors",
            fix="download and convert it, and give the path of the folder",
        )
    return str(folder)


def _gguf_in(path: Path) -> Path | None:
    if path.suffix == ".gguf" and path.is_file():
        return path
    if path.is_dir() and not (path / "config.json").is_file():
        files = sorted(path.glob("*.gguf"))
        if len(files) == 1:
            return files[0]
        if files:
            raise ModelError(f"{path} holds {len(files)} GGUF files", fix=f"name one: {files[0]}")
    return None


def _check_folder(path: Path) -> None:
    if not (path / "config.json").is_file():
        raise ModelError(
            f"{path} is no model folder: it has no config.json",
            fix="give the folder that save_pretrained wrote",
        )
    if not any(weight_files(path)):
        raise ModelError(
            f"{path} has a config.json but no weights (*.safetensors)",
            fix="copy the weight files into the folder, or give the folder that has them",
        )


def _adapter_folder(path: Path) -> Path:
    if not (path / _ADAPTER).is_file():
        raise ModelError(
            f"{path} is no adapter folder: it has no {_ADAPTER}",
            fix="give the folder that peft's save_pretrained wrote",
        )
    if not any(weight_files(path)):
        raise ModelError(f"{path} has an {_ADAPTER} but no adapter weights (*.safetensors)")
    return path


def _base_of(adapter: Path) -> str:
    try:
        base = json.loads((adapter / _ADAPTER).read_text(encoding="utf-8"))[
            "base_model_name_or_path"
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"{adapter / _ADAPTER} does not say which base model the adapter is for",
            fix="say it: --base-model MODEL",
        ) from error
    if not base:
        raise ModelError(f"{adapter} names no base model", fix="say it: --base-model MODEL")
    here = Path(base).expanduser()
    if _looks_like_a_path(base) and not here.exists():
        beside = (adapter / base).resolve()
        if beside.exists():
            return str(beside)
        raise ModelError(
            f"the adapter {adapter} is for the base model {base}, which is not there",
            fix="say where it is: --base-model MODEL",
        )
    return str(base)


def _looks_like_a_path(model: str) -> bool:
    return model.startswith((".", "/", "~")) or model.count("/") > 1 or model.endswith(".gguf")


def weight_files(folder: Path) -> Iterator[Path]:
    """Files with weights in a model or adapter folder, sorted by name."""
    for pattern in _WEIGHTS:
        files = sorted(folder.glob(pattern))
        yield from (file for file in files if not file.name.startswith(_NO_WEIGHTS))


def fingerprint_of(source: Source) -> str:
    """Content hash of configuration and weights of model and adapter: 32 hex digits."""
    digest = hashlib.sha256()
    for folder in filter(None, (Path(source.model), source.adapter)):
        digest.update(b"|")
        for file in (*(folder / name for name in _CONFIGS), *weight_files(folder)):
            if file.is_file():
                digest.update(file.name.encode() + _file_hash(file))
    return digest.hexdigest()[:32]


def _file_hash(file: Path) -> bytes:
    if file.name in _CONFIGS:
        return hashlib.sha256(_without_paths(file)).digest()
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def _without_paths(file: Path) -> bytes:
    """A configuration without the entries that say where it was saved: moving changes nothing."""
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return file.read_bytes()
    for name in ("_name_or_path", "base_model_name_or_path", "transformers_version"):
        config.pop(name, None)
    return json.dumps(config, sort_keys=True).encode()


def default_cache() -> Path:
    """The folder for converted models and answers, of the user who runs this."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("unseen"))


def no_base(name: str) -> ModelError:
    """The error for a model that brings no base to compare it with."""
    return ModelError(
        f"{name} is no adapter, so it has no base model to compare with",
        fix="name the model that it was fine-tuned from: --reference MODEL",
    )


def _why(hub: Any, error: Exception) -> str:
    """What the hub's error means."""
    if isinstance(error, hub.errors.LocalEntryNotFoundError):
        return "the hub cannot be reached, and it is not in its cache"
    if isinstance(error, hub.errors.GatedRepoError):
        return "it is there for those only who have asked for it on the hub"
    if isinstance(error, hub.errors.RepositoryNotFoundError):
        return "the hub has no model of that name, or not for everybody"
    if isinstance(error, hub.errors.RevisionNotFoundError):
        return "it has no such revision"
    return type(error).__name__
