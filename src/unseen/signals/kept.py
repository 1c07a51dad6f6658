"""Arrays that are costly to make, kept in files that only a hash of what they are made of finds."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np


class Kept:
    """A folder of arrays.

    Args:
        folder: where they are; None keeps nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def get(self, *made_of: str) -> Any:
        """The array that was kept for these, or None; what is damaged is none."""
        file = self._file(made_of)
        if file is None or not file.is_file():
            return None
        with suppress(OSError, ValueError, EOFError):
            return np.load(file, allow_pickle=False)
        return None

    def put(self, array: Any, *made_of: str) -> None:
        """Keeps an array, readable for its user alone; a folder that cannot be written keeps none."""
        file = self._file(made_of)
        if file is None:
            return
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            handle, draft = tempfile.mkstemp(dir=file.parent)
            with os.fdopen(handle, "wb") as stream:
                np.save(stream, array, allow_pickle=False)
            Path(draft).replace(file)

    def _file(self, made_of: tuple[str, ...]) -> Path | None:
        if self._folder is None:
            return None
        digest = hashlib.blake2b(" ".join(made_of).encode(), digest_size=12)
        return self._folder / f"{digest.hexdigest()}.npy"
