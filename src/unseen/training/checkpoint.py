"""Where a training is, in one file: a process that is killed goes on from it to the same weights.

The file is safetensors: weights that learn, the optimizer's moments, the state of torch's random
numbers and the losses so far. The order of the examples is made again from the seed. Files are put in
place by renaming: none is ever half there.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unseen.errors import StoreError, need

_WEIGHT, _MOMENT, _RANDOM, _LOSSES = "weight", "optimizer", "random", "losses"
_SEP = "|"


@dataclass
class Checkpoints:
    """When and where a training is written down.

    Attributes:
        file: the latest state; a directory is made for it.
        identity: of the training: another one's file is refused.
        every_steps: optimizer steps between two states; None: at the end of an epoch, and by time.
        every_seconds: seconds between two states; None: by steps alone.
    """

    file: Path
    identity: str
    every_steps: int | None = None
    every_seconds: float | None = 600.0
    _last: float = field(default_factory=time.monotonic, init=False)

    def due(self, step: int, *, epoch_ends: bool) -> bool:
        """Whether the state after so many steps is to be kept."""
        by_steps = self.every_steps is not None and step % self.every_steps == 0
        waited = time.monotonic() - self._last
        return (
            epoch_ends
            or by_steps
            or (self.every_seconds is not None and waited >= self.every_seconds)
        )

    def keep(
        self,
        named: Sequence[tuple[str, Any]],
        optimizer: Any,
        losses: Sequence[float],
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """Writes the state after `len(losses)` steps.

        Args:
            named: the weights that learn, with their names.
            optimizer: of torch.
            losses: of every step so far, in nats per token.
            more: what else goes on, as JSON.

        Raises:
            StoreError: where it cannot be written.
        """
        torch = need("torch", "hf")
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        tensors = {f"{_WEIGHT}{_SEP}{name}": w.detach().contiguous() for name, w in named}
        state = optimizer.state_dict()["state"]
        for place, moments in state.items():
            for name, value in moments.items():
                tensors[f"{_MOMENT}{_SEP}{place}{_SEP}{name}"] = torch.as_tensor(value)
        tensors[f"{_RANDOM}{_SEP}cpu"] = torch.get_rng_state()
        device = named[0][1].device
        if device.type == "cuda":
            tensors[f"{_RANDOM}{_SEP}cuda"] = torch.cuda.get_rng_state(device)
        tensors[_LOSSES] = torch.tensor(list(losses), dtype=torch.float64)
        about = {"identity": self.identity, "step": len(losses), "more": dict(more or {})}
        draft = self.file.with_name(f".{self.file.name}.draft")
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            on_cpu = {name: tensor.detach().cpu() for name, tensor in tensors.items()}
            save_file(on_cpu, draft, {"unseen": json.dumps(about)})
            with draft.open("rb+") as stream:
                os.fsync(stream.fileno())
            draft.replace(self.file)
        except (OSError, SafetensorError) as error:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            msg = f"cannot write the checkpoint {self.file}: {error}"
            raise StoreError(
                msg, fix="free some space and run the same command: it continues"
            ) from error
        self._last = time.monotonic()

    def restore(
        self, named: Sequence[tuple[str, Any]], optimizer: Any
    ) -> tuple[list[float], dict[str, Any]]:
        """Puts weights, optimizer and random numbers back to where the file says.

        Args:
            named: the weights that learn, with their names; they are changed in place.
            optimizer: of torch, as it was made.

        Returns:
            The losses of the steps that were done, and what else was kept; nothing of either where
            there is no file.

        Raises:
            StoreError: where the file is damaged, or another training's.
        """
        if not self.file.is_file():
            return [], {}
        torch = need("torch", "hf")
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.file, "pt") as kept:
                about = json.loads(kept.metadata()["unseen"])
                tensors = {name: kept.get_tensor(name) for name in kept.keys()}  # noqa: SIM118
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            msg = f"the checkpoint {self.file} is damaged"
            raise StoreError(msg, fix=f"begin again: rm {self.file}") from error
        weights = {f"{_WEIGHT}{_SEP}{name}": weight for name, weight in named}
        own = {name for name in tensors if name.startswith(f"{_WEIGHT}{_SEP}")}
        if about.get("identity") != self.identity or own != set(weights):
            msg = f"the checkpoint {self.file} is of another training"
            raise StoreError(msg, fix=f"name another folder, or begin again: rm {self.file}")
        with torch.no_grad():
            for name, weight in weights.items():
                weight.copy_(tensors[name])
        state: dict[int, dict[str, Any]] = {}
        for name, tensor in tensors.items():
            kind, *rest = name.split(_SEP)
            if kind == _MOMENT:
                state.setdefault(int(rest[0]), {})[rest[1]] = tensor
        now = optimizer.state_dict()
        optimizer.load_state_dict({"state": state, "param_groups": now["param_groups"]})
        torch.set_rng_state(tensors[f"{_RANDOM}{_SEP}cpu"])
        if f"{_RANDOM}{_SEP}cuda" in tensors:
            torch.cuda.set_rng_state(tensors[f"{_RANDOM}{_SEP}cuda"], named[0][1].device)
        self._last = time.monotonic()
        return tensors[_LOSSES].tolist(), about["more"]
