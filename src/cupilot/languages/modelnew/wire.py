"""Messages between a worker and its Python process: a record in JSON, and bytes.

The Python process is not trusted; what it sends is read as text, numbers and bytes only.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from cupilot.records import from_plain, to_plain
from cupilot.toolchain.abi import TensorValue

_LENGTH = struct.Struct("<I")


class Wire:
    """One end of a pair of connected sockets."""

    def __init__(self, descriptor: int) -> None:
        self._connection: Connection[Any, Any] = Connection(descriptor)

    def send(self, record: Mapping[str, Any], data: bytes | memoryview = b"") -> None:
        head = json.dumps(to_plain(dict(record))).encode()
        self._connection.send_bytes(_LENGTH.pack(len(head)) + head + data)

    def receive(self, timeout_s: float | None = None) -> tuple[dict[str, Any], memoryview]:
        """Raises `TimeoutError`, `EOFError` when the other end is gone, and `ValueError` for what is no message."""
        if not self._connection.poll(timeout_s):
            raise TimeoutError
        message = memoryview(self._connection.recv_bytes())
        if len(message) < _LENGTH.size:
            raise ValueError("a message without a head")
        end = _LENGTH.size + _LENGTH.unpack_from(message)[0]
        record = json.loads(bytes(message[_LENGTH.size : end]))
        if not isinstance(record, dict):
            raise ValueError("a message without a record")
        return record, message[end:]


def decoded(value: Any) -> Any:
    """Values of a call as they were before they were sent; raises a `DataError` where one is malformed."""
    if isinstance(value, dict):
        return from_plain(TensorValue, value)
    return [decoded(item) for item in value] if isinstance(value, list) else value
