"""Silence from transformers while models are loaded, converted and saved."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def quiet(*, errors: bool = True) -> Iterator[None]:
    """Keeps loading bars and advice of transformers away from the user's terminal.

    Args:
        errors: whether its log lines about errors are still shown.
    """
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.ERROR if errors else logging.CRITICAL)
    logging.disable_progress_bar()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
