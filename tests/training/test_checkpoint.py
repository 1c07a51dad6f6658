"""A training that is stopped and continued ends with the same weights, to the last bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

from unseen.errors import StoreError
from unseen.training.checkpoint import Checkpoints
from unseen.training.finetune import Recipe, _epochs, finetune
from unseen.types import Encoded

pytestmark = pytest.mark.slow

VOCABULARY = 300
RECIPES = {
    "full": Recipe(method="full", epochs=2, batch_size=3, learning_rate=5e-3, weight_decay=0.1),
    "lora": Recipe(method="lora", epochs=2, batch_size=3, learning_rate=5e-3, dropout=0.2),
}


def _examples(n: int = 14) -> list[Encoded]:
    rng = np.random.default_rng(0)
    made = []
    for _ in range(n):
        length = int(rng.integers(5, 20))
        scored = np.arange(length) >= 3
        made.append(Encoded(tuple(rng.integers(0, VOCABULARY, length).tolist()), scored))
    return made


class _KilledError(Exception):
    pass


def _weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _train(recipe: Recipe, checkpoints: Checkpoints | None, *, killed_at: int | None = None):
    told: list[tuple[int, float]] = []

    def progress(step: int, steps: int, loss: float) -> None:
        told.append((step, loss))
        if step == killed_at:
            raise _KilledError

    model = finetune(
        tiny.model("llama", VOCABULARY, dtype=torch.float32),
        _examples(),
        recipe,
        partitions=[i % 2 for i in range(14)],
        progress=progress,
        checkpoints=checkpoints,
    )
    return _weights(model), told


@pytest.mark.parametrize("every", [None, 1, 2])
@pytest.mark.parametrize("name", RECIPES)
def test_continued_is_the_same_to_the_last_bit(name: str, every: int | None, tmp_path: Path):
    recipe = RECIPES[name]
    whole, all_told = _train(recipe, None)
    for killed_at in (1, 3, 5, 6, 7, 11):
        file = tmp_path / str(killed_at) / "state.safetensors"
        with pytest.raises(_KilledError):
            _train(recipe, Checkpoints(file, "it", every, None), killed_at=killed_at)
        continued, told = _train(recipe, Checkpoints(file, "it", every, None))
        assert told == all_told
        assert continued.keys() == whole.keys()
        assert all(torch.equal(continued[name], whole[name]) for name in whole)


def test_after_the_end_nothing_is_trained_again(tmp_path: Path):
    recipe, checkpoints = RECIPES["full"], Checkpoints(tmp_path / "state.safetensors", "it")
    whole, _ = _train(recipe, checkpoints)
    epochs: list[int] = []
    again = finetune(
        tiny.model("llama", VOCABULARY, dtype=torch.float32),
        _examples(),
        recipe,
        partitions=[i % 2 for i in range(14)],
        after_epoch=lambda epoch, _: epochs.append(epoch),
        checkpoints=checkpoints,
    )
    assert epochs == []
    assert all(torch.equal(value, whole[name]) for name, value in _weights(again).items())


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path):
    file = tmp_path / "state.safetensors"
    _train(RECIPES["full"], Checkpoints(file, "it"))
    with pytest.raises(StoreError, match="another training"):
        _train(RECIPES["full"], Checkpoints(file, "not it"))
    with pytest.raises(StoreError, match="another training"):
        _train(RECIPES["lora"], Checkpoints(file, "it"))
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(StoreError, match="damaged"):
        _train(RECIPES["full"], Checkpoints(file, "it"))


def test_a_checkpoint_that_cannot_be_written_says_so(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write the checkpoint"):
        _train(RECIPES["full"], Checkpoints(tmp_path / "file" / "state.safetensors", "it"))


def test_partitions_are_seen_one_after_the_other():
    rng = np.random.default_rng(1)
    lengths = rng.integers(3, 30, 41).tolist()
    partitions = rng.integers(0, 4, 41).tolist()
    epochs = _epochs(lengths, Recipe(epochs=3, batch_size=4), partitions)
    for epoch in epochs:
        seen = [place for batch in epoch for place in batch]
        assert sorted(seen) == list(range(41))
        assert [partitions[place] for place in seen] == sorted(partitions)
    assert epochs[0] != epochs[1]
