"""A server in this process that speaks chat completions (and Anthropic's messages), well or badly, as told.

Each request takes the next behaviour of the list; the last one is kept.  A behaviour gets the handler and the
decoded body of the request.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behaviour = Callable[["Handler", dict[str, Any]], None]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeServer

    def do_POST(self) -> None:
        self.raw = self.rfile.read(int(self.headers["content-length"]))
        body = json.loads(self.raw)
        with suppress(BrokenPipeError, ConnectionResetError):  # a client that gave up is part of the game
            self.server.next_behaviour(self, body)(self, body)

    def send(self, status: int, body: bytes, headers: dict[str, str], *, promised_bytes: int | None = None) -> None:
        self.send_response_only(status)  # without a date of its own
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body) if promised_bytes is None else promised_bytes))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *arguments: object) -> None:
        """Silence."""


class FakeServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, behaviours: Iterable[Behaviour]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self._behaviours = list(behaviours)
        self._lock = threading.Lock()
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.released = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def next_behaviour(self, handler: Handler, body: dict[str, Any]) -> Behaviour:
        with self._lock:
            self.requests.append(body)
            self.headers.append({name.lower(): value for name, value in handler.headers.items()})
            self.paths.append(handler.path)
            return self._behaviours.pop(0) if len(self._behaviours) > 1 else self._behaviours[0]

    def close(self) -> None:
        self.released.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


def completion(text: str | None, *, finish: str = "stop", usage: Any = (7, 5), **message: Any) -> dict[str, Any]:
    counted = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)} if usage else None
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [
            {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}
        ],
        "usage": counted,
    }


def says(text: str | None, **more: Any) -> Behaviour:
    return sends(json.dumps(completion(text, **more)).encode())


def sends(body: bytes, status: int = 200, **headers: str) -> Behaviour:
    renamed = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler, _: handler.send(status, body, renamed)


def fails(status: int, message: str = "no", code: str | None = None, **headers: str) -> Behaviour:
    return sends(json.dumps({"error": {"message": message, "code": code}}).encode(), status, **headers)


def anthropic_says(text: str, *, stop: str = "end_turn") -> Behaviour:
    content = [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": text}]
    body = {
        "id": "x", "type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": stop,
        "usage": {"input_tokens": 7, "output_tokens": 5, "cache_read_input_tokens": 3},
    }  # fmt: skip
    return sends(json.dumps(body).encode())


def calls_tools(*calls: tuple[str, str, str], text: str | None = None, **message: Any) -> Behaviour:
    """Tool calls of (id, name, arguments as JSON), as chat completions send them."""
    made = [{"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id_, name, arguments in calls]  # fmt: skip
    return says(text, finish="tool_calls", tool_calls=made, **message)


def anthropic_sends(*content: dict[str, Any], stop: str = "tool_use") -> Behaviour:
    body = {
        "id": "x", "type": "message", "role": "assistant", "model": "m", "content": list(content), "stop_reason": stop,
        "usage": {"input_tokens": 7, "output_tokens": 5},
    }  # fmt: skip
    return sends(json.dumps(body).encode())


def echoes_key(status: int) -> Behaviour:
    def behave(handler: Handler, _: dict[str, Any]) -> None:
        said = f"bad key \x1b[31m{handler.headers['authorization']}"
        handler.send(status, json.dumps({"error": {"message": said}}).encode(), {})

    return behave


def hangs(handler: Handler, _: dict[str, Any]) -> None:
    handler.server.released.wait()
    handler.close_connection = True


def drops_before_answering(handler: Handler, _: dict[str, Any]) -> None:
    handler.close_connection = True


def drops_in_the_middle(handler: Handler, _: dict[str, Any]) -> None:
    handler.send(200, b'{"choices": [', {}, promised_bytes=1000)
    handler.close_connection = True


def trickles(handler: Handler, _: dict[str, Any]) -> None:
    """As some servers do to keep the connection while a request is in their queue."""
    handler.send(200, b"\n", {}, promised_bytes=1000)
    handler.server.released.wait()
    handler.close_connection = True


def forwards_to(url: str) -> Behaviour:
    """A proxy's ordinary behaviour, to stand behind less ordinary ones."""

    def behave(handler: Handler, _: dict[str, Any]) -> None:
        path = handler.path.removeprefix("/v1")
        ask = urllib.request.Request(url + path, handler.raw, {"content-type": "application/json"})
        with urllib.request.urlopen(ask, timeout=60) as answer:
            handler.send(answer.status, answer.read(), {})

    return behave
