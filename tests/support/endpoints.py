"""A server that speaks as OpenAI's does, on this machine, and misbehaves where it is told to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Bad:
    """What it does instead of answering.

    Attributes:
        status: of the response.
        body: what it says; as it is where it is bytes, else as JSON.
        headers: beside the usual ones.
        delay: seconds before it says anything.
        halfway: whether it breaks off in the middle of the body.
        kind: of the content.
    """

    status: int = 200
    body: Any = b""
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    halfway: bool = False
    kind: str = "application/json"


def fault(status: int, message: str = "no", **more: Any) -> Bad:
    """An error as OpenAI words it."""
    headers = more.pop("headers", {})
    about = {"message": message, "type": "error", "param": None, "code": None} | more
    return Bad(status, {"error": about}, headers)


TOO_LONG = fault(
    400,
    "This model's maximum context length is 64 tokens. However, your messages resulted in 99.",
    code="context_length_exceeded",
    param="messages",
)
BUSY = fault(429, "slow down")


class Server:
    """Answers on 127.0.0.1 for as long as the context lasts.

    Args:
        answer: text of a request's body, the whole first choice, or a fault; default: what it was asked,
            in capitals.
        takes: options that it takes; others are an error, if this is given.
        models: names that it knows.
        version: its system_fingerprint.

    Attributes:
        script: what it does with the next requests, None for an answer; then it answers.
        asked: (path, headers, body) of each request.
        most: requests that were under way at once, at most.
    """

    def __init__(
        self,
        answer: Callable[[dict[str, Any]], Any] | None = None,
        *,
        takes: set[str] | None = None,
        models: tuple[str, ...] = ("tiny",),
        version: str | None = "v1",
    ) -> None:
        self.answer = answer or (lambda body: said(body).upper())
        self.takes = takes
        self.models = models
        self.version = version
        self.script: list[Bad | None] = []
        self.asked: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.most = 0
        self._under_way = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @contextmanager
    def up(self) -> Iterator[Server]:
        thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                self.send(Bad(body={"object": "list", "data": [{"id": m} for m in server.models]}))

            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                body = json.loads(self.rfile.read(length))
                with server._lock:
                    headers = {name.lower(): value for name, value in self.headers.items()}
                    server.asked.append((self.path, headers, body))
                    server._under_way += 1
                    server.most = max(server.most, server._under_way)
                    bad = server.script.pop(0) if server.script else None
                try:
                    self.send(bad or Bad(body=server.completion(self.path, body)))
                finally:
                    with server._lock:
                        server._under_way -= 1

            def send(self, bad: Bad) -> None:
                time.sleep(bad.delay)
                if isinstance(bad.body, dict) and "error" in bad.body and bad.status == 200:
                    bad = Bad(bad.body["status"], {"error": bad.body["error"]})
                content = bad.body if isinstance(bad.body, bytes) else json.dumps(bad.body).encode()
                self.send_response(bad.status)
                self.send_header("content-type", bad.kind)
                self.send_header("content-length", str(len(content)))
                for name, value in bad.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if bad.halfway else content)
                self.wfile.flush()
                self.close_connection = bad.halfway

        return Handler

    def completion(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        strange = () if self.takes is None else sorted(set(body) - self.takes - _ALWAYS)
        if strange:
            message = f"Unsupported parameter: '{strange[0]}' is not supported with this model."
            about = {"message": message, "code": "unsupported_parameter", "param": strange[0]}
            return {"error": {"type": "invalid_request_error"} | about, "status": 400}
        if body["model"] not in self.models:
            about = {
                "message": f"The model `{body['model']}` does not exist",
                "type": "NotFoundError",
            }
            return {"error": about | {"code": "model_not_found", "param": None}, "status": 404}
        made = self.answer(body)
        if isinstance(made, Bad):
            return {**made.body, "status": made.status}
        choice = made if isinstance(made, dict) else {"finish_reason": "stop", "text": made}
        if path.endswith("/chat/completions") and "text" in choice:
            choice = choice | {"message": {"role": "assistant", "content": choice["text"]}}
            del choice["text"]
        return {
            "id": "x",
            "object": "completion",
            "created": 0,
            "model": body["model"],
            "system_fingerprint": self.version,
            "choices": [{"index": 0, **choice}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }


_ALWAYS = {"model", "messages", "prompt"}


def said(body: dict[str, Any]) -> str:
    """The text of the prompt, or of the last message."""
    return body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
