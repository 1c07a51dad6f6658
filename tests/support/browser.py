"""A headless Chromium, driven over two pipes with the DevTools protocol: no driver, no network."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-extensions", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip


def binary() -> str:
    """Where Chromium is; skips the test where it is nowhere."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return found
    return pytest.skip("no Chromium: apt-get install chromium")


class Page:
    """One tab, with everything that it asked for and complained of since it was opened."""

    def __init__(self, read: int, write: int) -> None:
        self._in = os.fdopen(read, "rb", buffering=0)
        self._out = os.fdopen(write, "wb", buffering=0)
        self._rest = b""
        self._ids = itertools.count(1)
        self._session: str | None = None
        self.events: list[tuple[str, dict[str, Any]]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Asks for one thing and waits for the answer."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            chunk = self._in.read(1 << 20)
            assert chunk, "Chromium has ended"
            self._rest += chunk
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.events.append((message["method"], message["params"]))
        return message

    def open(self, file: Path, *, script: bool = True) -> None:
        """Loads a file, with or without scripts, and forgets what was before."""
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.events.clear()
        self.call("Page.navigate", url=file.resolve().as_uri())
        while not any(name == "Page.loadEventFired" for name, _ in self.events):
            self._next()

    def value(self, expression: str) -> Any:
        """What an expression is worth in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    @property
    def requests(self) -> list[str]:
        """Addresses that were asked for."""
        return [
            params["request"]["url"]
            for name, params in self.events
            if name == "Network.requestWillBeSent"
        ]

    @property
    def complaints(self) -> list[str]:
        """Errors, warnings and exceptions of the console."""
        found = []
        for name, params in self.events:
            if name == "Log.entryAdded":
                found.append(str(params["entry"]["text"]))
            elif name == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]["text"]))
            elif name == "Runtime.consoleAPICalled":
                found.append(str(params["args"]))
        return found

    def pdf(self) -> bytes:
        """The page in print."""
        return b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def width(self, pixels: int) -> None:
        """Sets the width of the window."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=pixels, height=900, deviceScaleFactor=1,
            mobile=False,
        )  # fmt: skip


@contextmanager
def chromium() -> Iterator[Page]:
    """A browser with one tab."""
    program = binary()
    read, to_us = os.pipe()
    from_us, write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The protocol is spoken on descriptors 3 and 4.
        command = ["bash", "-c", f'exec "$@" 3<&{from_us} 4>&{to_us}', "bash", program, *FLAGS,
                   f"--user-data-dir={profile}", "about:blank"]  # fmt: skip
        process = subprocess.Popen(
            command, pass_fds=(from_us, to_us), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(from_us)
        os.close(to_us)
        page = None
        try:
            page = Page(read, write)
            yield page
        finally:
            if page is not None:
                page._in.close()
                page._out.close()
            process.terminate()
            process.wait(timeout=20)
