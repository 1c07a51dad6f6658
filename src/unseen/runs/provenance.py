"""What a run ran on: versions and hardware, without anything that names a person."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from datetime import UTC, datetime

_PACKAGES = (
    "numpy",
    "scipy",
    "scikit-learn",
    "torch",
    "transformers",
    "tokenizers",
    "peft",
    "opacus",
    "bitsandbytes",
    "pyarrow",
)


def versions() -> dict[str, object]:
    """Python, packages, processor and cores."""
    packages: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    facts: dict[str, object] = {
        "python": platform.python_version(),
        "packages": packages,
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count() or 0,
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        facts["threads"] = torch.get_num_threads()
        if torch.cuda.is_available():
            facts["gpu"] = torch.cuda.get_device_name(0)
    return facts


def now() -> str:
    """The time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
