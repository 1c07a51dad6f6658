"""A real endpoint on this machine: `transformers serve` with a local model."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST = 60
"""Seconds that it may take to come up."""


def why_not() -> str | None:
    """Why there can be none here, or None."""
    lacking = [
        name for name in ("openai", "fastapi", "uvicorn") if importlib.util.find_spec(name) is None
    ]
    if lacking:
        return f"transformers serve needs {', '.join(lacking)} (transformers[serving])"
    return None if _command().is_file() else "there is no command transformers beside this python"


@contextmanager
def serving(model: Path) -> Iterator[str | None]:
    """The address up to /v1, or None where it does not come up in time."""
    port = _free_port()
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    how = ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
    with (model.parent / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            [_command(), "serve", model, *how], stdout=log, stderr=log, env=environment
        )
    try:
        up = _comes_up(f"http://127.0.0.1:{port}/health", process)
        yield f"http://127.0.0.1:{port}/v1" if up else None
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _comes_up(url: str, process: subprocess.Popen[bytes]) -> bool:
    until = time.monotonic() + LONGEST
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return answer.status == 200
        except OSError:
            time.sleep(0.2)
    return False


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _command() -> Path:
    return Path(sys.executable).parent / "transformers"
