"""Messages over a connected socket: a length and so many bytes, sent and received by a deadline.

The other side is not trusted.  It may send half a message, or never read: nothing here waits longer than it is told.
"""

from __future__ import annotations

import socket
import struct
import time

MOST_BYTES = 256 << 20
LOOK_S = 0.5
"""Python handles a signal that arrives just before a wait only when the wait ends; so no single wait is long."""
_LENGTH = struct.Struct("<Q")


def send_frame(connection: socket.socket, message: bytes, timeout_s: float | None = None) -> None:
    """Raises `TimeoutError`, or another `OSError` when the other side is gone."""
    deadline_s = _deadline(timeout_s)
    rest = memoryview(_LENGTH.pack(len(message)) + message)
    while rest:
        _limit(connection, deadline_s)
        try:
            rest = rest[connection.send(rest, socket.MSG_NOSIGNAL) :]
        except TimeoutError:
            continue


def receive_frame(connection: socket.socket, timeout_s: float | None = None) -> bytes:
    """Raises `EOFError` at the end, `TimeoutError`, and `ValueError` for what is no message."""
    deadline_s = _deadline(timeout_s)
    (length,) = _LENGTH.unpack(_receive(connection, _LENGTH.size, deadline_s))
    if length > MOST_BYTES:
        raise ValueError(f"a message of {length} bytes")
    return _receive(connection, length, deadline_s)


def _receive(connection: socket.socket, count: int, deadline_s: float | None) -> bytes:
    found = bytearray()
    while len(found) < count:
        _limit(connection, deadline_s)
        try:
            part = connection.recv(min(count - len(found), 1 << 20))
        except TimeoutError:
            continue
        if not part:
            raise EOFError
        found += part
    return bytes(found)


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s


def _limit(connection: socket.socket, deadline_s: float | None) -> None:
    """Let the next call wait until the deadline, but not for long."""
    left_s = LOOK_S if deadline_s is None else deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    connection.settimeout(min(left_s, LOOK_S))
