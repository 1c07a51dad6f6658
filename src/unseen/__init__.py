"""Measure what a language model gives away about its data.

Everything here is loaded on first use, so that `import unseen` stays cheap.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0.dev0"

_WHERE: dict[str, str] = {
    "Access": "unseen.targets.access",
    "UnseenError": "unseen.errors",
}

__all__ = ["Access", "UnseenError", "__version__"]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    msg = f"module 'unseen' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted(__all__)
