import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from unseen.errors import ModelError
from unseen.targets.files import default_cache, fingerprint_of, locate, weight_files

CONFIG = {"model_type": "llama", "_name_or_path": "/somewhere", "hidden_size": 8}


def model_folder(
    where: Path,
    *,
    weights: bytes = b"weights",
    name: str = "model.safetensors",
    config: Mapping[str, object] = CONFIG,
) -> Path:
    where.mkdir(parents=True, exist_ok=True)
    (where / "config.json").write_text(json.dumps(config))
    (where / name).write_bytes(weights)
    return where


def adapter_folder(where: Path, base: Path | str | None, *, weights: bytes = b"adapter") -> Path:
    where.mkdir(parents=True, exist_ok=True)
    config = {"peft_type": "LORA", "base_model_name_or_path": base and str(base)}
    (where / "adapter_config.json").write_text(json.dumps(config))
    if weights:
        (where / "adapter_model.safetensors").write_bytes(weights)
    return where


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return model_folder(tmp_path / "model")


@pytest.fixture
def adapter(tmp_path: Path, model: Path) -> Path:
    return adapter_folder(tmp_path / "adapter", model)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def test_a_model_folder(model: Path) -> None:
    source = locate(str(model))
    assert (source.model, source.adapter, source.name) == (str(model), None, str(model))
    assert source.tokenizer == str(model)


def test_an_adapter_folder_brings_its_base(model: Path, adapter: Path) -> None:
    source = locate(str(adapter))
    assert (source.model, source.adapter, source.name) == (str(model), adapter, str(adapter))
    assert source.model_name == str(model)


def test_an_adapter_beside_the_bases_configuration_is_an_adapter(
    model: Path, adapter: Path
) -> None:
    shutil.copy(model / "config.json", adapter)
    assert locate(str(adapter)) == locate(str(model), adapter=str(adapter))


def test_a_whole_model_with_a_left_over_adapter_configuration_is_a_model(
    model: Path, adapter: Path
) -> None:
    shutil.copy(adapter / "adapter_config.json", model)
    assert locate(str(model)).adapter is None


def test_an_adapter_is_put_on_another_base(tmp_path: Path, adapter: Path) -> None:
    other = model_folder(tmp_path / "other")
    assert locate(str(adapter), base_model=str(other)).model == str(other)
    assert locate(str(other), adapter=str(adapter)).model == str(other)


def test_a_base_that_is_named_from_the_adapters_folder(tmp_path: Path, model: Path) -> None:
    adapter = adapter_folder(tmp_path / "adapter", "../model")
    assert locate(str(adapter)).model == str(model)


def test_the_tokenizer_beside_an_adapter_comes_first(model: Path, adapter: Path) -> None:
    assert locate(str(adapter)).tokenizer == str(model)
    (adapter / "tokenizer_config.json").write_text("{}")
    assert locate(str(adapter)).tokenizer == str(adapter)


def test_the_users_home_is_expanded(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(model.parent))
    assert locate("~/model").model == str(model)


def test_a_gguf_file_is_converted_into_the_cache(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(
        "unseen.targets.gguf.convert", lambda gguf, cache: asked.append((gguf, cache)) or model
    )
    file = tmp_path / "g" / "small.gguf"
    file.parent.mkdir()
    file.write_bytes(b"GGUF")
    cache = tmp_path / "cache"
    for word in (file, file.parent):
        assert locate(str(word), cache_dir=cache).model == str(model)
    assert asked == [(file, cache / "models")] * 2


def not_a_folder(t: Path) -> str:
    return str(t / "nothing")


def a_file(t: Path) -> str:
    (t / "file").write_text("")
    return str(t / "file")


def no_config(t: Path) -> str:
    (t / "empty").mkdir()
    return str(t / "empty")


def no_weights(t: Path) -> str:
    (model_folder(t / "m") / "model.safetensors").unlink()
    return str(t / "m")


def only_trainer_files(t: Path) -> str:
    folder = model_folder(t / "m", name="training_args.bin")
    (folder / "optimizer.pt").write_bytes(b"")
    return str(folder)


def two_gguf_files(t: Path) -> str:
    (t / "a.gguf").write_bytes(b"GGUF")
    (t / "b.gguf").write_bytes(b"GGUF")
    return str(t)


def base_is_gone(t: Path) -> str:
    return str(adapter_folder(t / "a", t / "gone"))


def base_is_null(t: Path) -> str:
    return str(adapter_folder(t / "a", None))


def base_is_not_said(t: Path) -> str:
    folder = adapter_folder(t / "a", "x")
    (folder / "adapter_config.json").write_text("{}")
    return str(folder)


def adapter_configuration_is_a_list(t: Path) -> str:
    folder = adapter_folder(t / "a", "x")
    (folder / "adapter_config.json").write_text("[1]")
    return str(folder)


def adapter_configuration_is_no_json(t: Path) -> str:
    folder = adapter_folder(t / "a", "x")
    (folder / "adapter_config.json").write_bytes(b"\xff{")
    return str(folder)


def base_is_an_adapter(t: Path) -> str:
    model = model_folder(t / "m")
    first = adapter_folder(t / "a", model)
    return str(adapter_folder(t / "b", first))


def adapter_without_weights(t: Path) -> str:
    return str(adapter_folder(t / "a", model_folder(t / "m"), weights=b""))


def base_is_no_model(t: Path) -> str:
    (t / "empty").mkdir()
    return str(adapter_folder(t / "a", t / "empty"))


def on_the_hub(t: Path) -> str:
    return "nobody/nothing-here"


def not_even_a_hub_name(t: Path) -> str:
    return "no such model!"


REFUSED = [
    (not_a_folder, "there is no model folder .*nothing", "give a hub name"),
    (a_file, "there is no model folder .*file", "give a hub name"),
    (no_config, "has no config.json", "save_pretrained"),
    (no_weights, "has a config.json but no weights", "copy the weight files"),
    (only_trainer_files, "has a config.json but no weights", "copy the weight files"),
    (two_gguf_files, "holds 2 GGUF files", r"name one: .*a\.gguf"),
    (base_is_gone, "is for the base model .*gone, which is not there", "--base-model"),
    (base_is_null, "names no base model", "--base-model"),
    (base_is_not_said, "does not say which base model", "--base-model"),
    (adapter_configuration_is_a_list, "does not say which base model", "--base-model"),
    (adapter_configuration_is_no_json, "does not say which base model", "--base-model"),
    (base_is_an_adapter, "a is no model folder: it has no config.json", "save_pretrained"),
    (adapter_without_weights, "but no adapter weights", ""),
    (base_is_no_model, "empty is no model folder", "save_pretrained"),
    (
        on_the_hub,
        "cannot get 'nobody/nothing-here' from the hub",
        "check the name and the network|not asked",
    ),
    (not_even_a_hub_name, "there is no folder no such model!, and the hub has no", "ORG/NAME"),
]


@pytest.mark.parametrize(
    ("make", "problem", "fix"), REFUSED, ids=[row[0].__name__ for row in REFUSED]
)
def test_says_what_is_wrong_and_what_would_do(
    tmp_path: Path, make: Callable[[Path], str], problem: str, fix: str
) -> None:
    with pytest.raises(ModelError, match=problem) as raised:
        locate(make(tmp_path))
    assert raised.value.problem.count("\n") == 0
    if fix:
        assert raised.match(fix)


@pytest.mark.parametrize("wrong", ["nowhere", "model"])
def test_an_adapter_argument_must_be_an_adapter_folder(
    tmp_path: Path, model: Path, wrong: str
) -> None:
    with pytest.raises(ModelError, match=r"is no adapter folder: it has no adapter_config.json"):
        locate(str(model), adapter=str(tmp_path / wrong))


def test_a_base_model_that_nothing_needs_is_refused(model: Path, adapter: Path) -> None:
    with pytest.raises(ModelError, match="is no adapter that needs one"):
        locate(str(model), base_model="other")
    with pytest.raises(ModelError, match="got the base model other"):
        locate(str(model), adapter=str(adapter), base_model="other")


def test_without_a_network_the_answer_comes_quickly(tmp_path: Path) -> None:
    program = "from unseen.targets.files import locate\nlocate('nobody/nothing-here')"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert time.monotonic() - start < 20
    assert "cannot get 'nobody/nothing-here' from the hub" in done.stderr


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    folders = {}
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda name, **options: str(folders[name])
    )
    return folders


def test_a_model_on_the_hub(hub: dict[str, Path], tmp_path: Path) -> None:
    hub["org/name"] = model_folder(tmp_path / "snapshot")
    source = locate("org/name", revision="v1")
    assert (source.model, source.name, source.revision) == (
        str(hub["org/name"]),
        "org/name",
        "v1",
    )


def test_an_adapter_on_the_hub_brings_its_base(hub: dict[str, Path], tmp_path: Path) -> None:
    hub["org/base"] = model_folder(tmp_path / "snapshot")
    hub["org/adapter"] = adapter_folder(tmp_path / "other-snapshot", "org/base")
    source = locate("org/adapter")
    assert (source.model, source.adapter) == (str(hub["org/base"]), hub["org/adapter"])
    assert (source.name, source.model_name) == ("org/adapter", "org/base")


def test_a_model_on_the_hub_without_safetensors_is_refused(
    hub: dict[str, Path], tmp_path: Path
) -> None:
    hub["org/old"] = tmp_path
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="'org/old' on the hub has no weights in the format"):
        locate("org/old")


def fingerprint(folder: Path, **options: str) -> str:
    return fingerprint_of(locate(str(folder), **options))


def test_the_fingerprint_does_not_depend_on_the_place(
    tmp_path: Path, model: Path, adapter: Path
) -> None:
    for folder in (model, adapter):
        copy = shutil.copytree(folder, tmp_path / "deep" / "er" / f"{folder.name}-copy")
        config = copy / ("config.json" if folder == model else "adapter_config.json")
        content = json.loads(config.read_text())
        content = dict(reversed(content.items()))
        if folder == model:
            content |= {"_name_or_path": "/elsewhere", "transformers_version": "9"}
        config.write_text(json.dumps(content, indent=4))
        assert fingerprint(copy) == fingerprint(folder)


def test_the_fingerprint_follows_the_base_and_the_adapter(
    tmp_path: Path, model: Path, adapter: Path
) -> None:
    moved = model_folder(tmp_path / "same as model")
    elsewhere = adapter_folder(tmp_path / "same adapter", moved)
    assert fingerprint(elsewhere) == fingerprint(adapter)
    other = model_folder(tmp_path / "other", weights=b"other")
    assert fingerprint(adapter) != fingerprint(model)
    assert fingerprint(adapter, base_model=str(moved)) == fingerprint(adapter)
    assert fingerprint(adapter, base_model=str(other)) != fingerprint(adapter)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "generation_config.json"])
def test_the_fingerprint_changes_with_a_byte(model: Path, name: str) -> None:
    before = fingerprint(model)
    file = model / name
    file.write_bytes((file.read_bytes() if file.exists() else b"x") + b" changed")
    assert fingerprint(model) != before


def test_the_fingerprint_tells_which_file_is_which(tmp_path: Path) -> None:
    one = model_folder(tmp_path / "a", weights=b"1", name="model-1.safetensors")
    (one / "model-2.safetensors").write_bytes(b"2")
    other = model_folder(tmp_path / "b", weights=b"2", name="model-1.safetensors")
    (other / "model-2.safetensors").write_bytes(b"1")
    assert fingerprint(one) != fingerprint(other)


def test_what_a_trainer_leaves_beside_the_weights_does_not_count(model: Path) -> None:
    before = fingerprint(model)
    for name in ("training_args.bin", "optimizer.pt", "rng_state.pth", "README.md", "log.txt"):
        (model / name).write_bytes(b"anything")
    assert fingerprint(model) == before
    assert [file.name for file in weight_files(model)] == ["model.safetensors"]


def test_the_default_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache().name == "unseen"
