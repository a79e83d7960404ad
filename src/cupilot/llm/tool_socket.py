"""Tools of this process for another one: a Unix socket, one JSON object per line each way.

A request is ``{"list": true}`` or ``{"call": NAME, "arguments": {...}}``; the answer has ``tools`` or ``text``.  What
is called is kept as turns, one for each call.  The socket is a file, so whoever may open it may call.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cupilot.contracts import ToolAnswer, ToolCall, Tools, ToolSpec
from cupilot.errors import MachineError
from cupilot.llm.tool_text import GIVE_UP, SUBMIT
from cupilot.records import ToolUse, Turn

LINE_BYTES = 4 << 20
DONE = "Received. The work is done: stop now."
OVER = "All {} calls are used: submit your best version now."


class ToolSocket:
    """Serves one dialogue's tools at a path until it is closed; a context manager.

    ``calls`` is how many calls there may be besides `submit` and `give_up`.  Calls are carried out one at a time.
    """

    def __init__(self, tools: Tools, path: Path, role: str, calls: int) -> None:
        self._tools, self._role, self._calls = tools, role, calls
        self._lock = threading.Lock()
        self._made = 0
        self._connections: list[socket.socket] = []
        self.turns: list[Turn] = []
        self.ended: ToolAnswer | None = None
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        path.chmod(0o600)
        self._server.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> ToolSocket:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        with self._lock:  # a call under way is waited for: it may be writing to the run's file
            pass

    @property
    def closing_call(self) -> ToolCall | None:
        """The submission or resignation as a call, to be made again from a recording."""
        if self.ended is None:
            return None
        if self.ended.submitted is not None:
            moves = [{"move": move, "quote": quote} for move, quote in self.ended.moves]
            said = {"notes": self.ended.notes, "moves": moves}
            given = {name: value for name, value in said.items() if value}
            return ToolCall(SUBMIT, json.dumps({"code": self.ended.submitted.source, **given}))
        return ToolCall(GIVE_UP, json.dumps({"reason": self.ended.given_up}))

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, ValueError), connection, connection.makefile("rwb") as stream:
            while line := stream.readline(LINE_BYTES):
                stream.write(json.dumps(self._answer(line)).encode() + b"\n")
                stream.flush()

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            asked = json.loads(line)
            if asked.get("list"):
                return {"tools": [asdict(spec) for spec in self._tools.specs]}
            return {"text": self._call(str(asked["call"]), asked.get("arguments") or {})}
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            return {"text": f"The request cannot be read: {type(error).__name__}."}

    def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        with self._lock:
            if self.ended is not None:
                return DONE
            self._made += 1
            if self._made > self._calls and name not in (SUBMIT, GIVE_UP):
                self.turns.append(Turn(self._role, (ToolUse(name, "not called: all calls are used"),)))
                return OVER.format(self._calls)
            answer = self._tools.call(name, arguments)
            self.turns.append(Turn(self._role, (answer.use,)))
            if answer.submitted is None and not answer.given_up:
                return answer.text
            self.ended = answer
            return DONE


class ToolClient:
    """The other side: lists and calls tools over the socket."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            raise MachineError(f"there are no tools at {path}: {error.strerror}") from error
        self._stream = self._socket.makefile("rwb")
        self._lock = threading.Lock()

    def list(self) -> tuple[ToolSpec, ...]:
        return tuple(ToolSpec(**tool) for tool in self._ask({"list": True})["tools"])

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        return str(self._ask({"call": name, "arguments": dict(arguments)})["text"])

    def close(self) -> None:
        with suppress(OSError):
            self._stream.close()
        self._socket.close()

    def _ask(self, request: Mapping[str, Any]) -> Any:
        with self._lock:
            try:
                self._stream.write(json.dumps(request).encode() + b"\n")
                self._stream.flush()
                line = self._stream.readline()
                return json.loads(line)
            except (OSError, ValueError) as error:
                raise MachineError("the run that offers these tools has ended") from error
