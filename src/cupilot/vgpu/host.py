"""Candidates' host code in a process of its own (vgpu/host/): commands to it, and what is wrong with their results.

The runtime serves the process's CUDA calls while a command is under way (runtime/serve.cpp).  Nothing that comes from
there is trusted: results must be tensors in live buffers.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

from cupilot.errors import CupilotError
from cupilot.records import ITEM_BYTES
from cupilot.toolchain.abi import (
    DTYPE_NAMES,
    MAX_DIMENSIONS,
    MAX_RESULTS,
    TENSOR,
    TensorValue,
    Value,
    WrapperError,
    WrapperValue,
    encode_value,
)

CONFINE, LOAD, ENTRIES, CALL, RELEASE = range(1, 6)
TIME_OUT, CLOSED, MALFORMED = 1, 2, 3
GRACE_S = 2.0
"""Beyond the time that kernels have, so that a kernel which does not end is told from host code that does not."""


class HostGone(CupilotError):
    """The process is gone for good: ``kind`` and ``message`` say why, as of a `Failure`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class Host:
    """The process; ``ended`` waits for its end and tells how it was, in words."""

    def __init__(self, runtime: ctypes.CDLL, descriptor: int, process: int, ended: Callable[[], str]) -> None:
        self._runtime = runtime
        self._ended = ended
        self._gone: HostGone | None = None
        self._libraries = 0
        self._seconds = self._limit_s = 60.0
        for name, result in (("reply", ctypes.c_uint64), ("problem", ctypes.c_char_p), ("fault", ctypes.c_uint64)):
            getattr(runtime, f"vgc_host_{name}").restype = result
        runtime.vgc_host_command.argtypes = [
            ctypes.c_uint32, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_double,
        ]  # fmt: skip
        runtime.vgc_holds.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
        runtime.vgc_host(descriptor, process)

    def allow(self, seconds_left: float, limit_s: float) -> None:
        """Commands from now on may take so long; ``limit_s`` is what is said when they do not."""
        self._seconds, self._limit_s = seconds_left, limit_s

    def confine(self, filter_code: bytes) -> int:
        """Gives the bits of what has worked (host/main.cpp)."""
        return int(struct.unpack("<I", self.command(CONFINE, 0, filter_code))[0])

    def load(self, path: Path) -> HostLibrary:
        problem = _Reply(self.command(LOAD, 0, bytes(path))).text()
        if problem:
            raise WrapperError("load", f"the library cannot be loaded: {problem}")
        self._libraries += 1
        return HostLibrary(self, self._libraries - 1)

    def command(self, message: int, number: int, data: bytes = b"") -> bytes:
        """Have a command carried out; raises `HostGone` when the process does not do it."""
        if self._gone is not None:
            raise self._gone
        runtime = self._runtime
        how = runtime.vgc_host_command(message, number, data, len(data), self._seconds + GRACE_S)
        if how:
            self._gone = self._why(how)
            raise self._gone
        place = ctypes.c_void_p()
        size = runtime.vgc_host_reply(ctypes.byref(place))
        return ctypes.string_at(place.value or 0, size) if size else b""

    def holds(self, address: int, size: int) -> bool:
        return 0 <= address < 1 << 64 and size < 1 << 63 and bool(self._runtime.vgc_holds(address, size))

    def broken(self, message: str) -> HostGone:
        """The process has answered what no program of ours answers."""
        self._gone = HostGone("protocol", f"the candidate's host code sends {message}")
        return self._gone

    def _why(self, how: int) -> HostGone:
        if how == TIME_OUT:
            return HostGone("time-out", f"the candidate did not return within {self._limit_s:g} s")
        if how == MALFORMED:
            problem = (self._runtime.vgc_host_problem() or b"").decode(errors="replace")
            return HostGone("protocol", f"the candidate's host code sends what makes no sense: {problem}")
        fault = self._runtime.vgc_host_fault()
        reason = f": host code accessed device memory at 0x{fault:016x}" if fault else ""
        return HostGone("crash", self._ended() + reason)


class HostLibrary:
    """A built candidate in the process, with the methods of `cupilot.toolchain.abi.Library`."""

    def __init__(self, host: Host, number: int) -> None:
        self._host = host
        self._number = number

    def entries(self) -> tuple[tuple[str, str], ...]:
        listing = _Reply(self._host.command(ENTRIES, self._number)).text()
        return tuple(
            (name, signature) for name, _, signature in (line.partition("\t") for line in listing.splitlines())
        )

    def call(self, name: str, values: Sequence[Value]) -> tuple[TensorValue, ...]:
        """Call a wrapper; raises `WrapperError` with its message when it throws."""
        entry = name.encode()
        head = struct.pack("<I", len(entry)) + entry + struct.pack("<I", len(values))
        reply = _Reply(self._host.command(CALL, self._number, head + b"".join(map(encode_value, values))))
        status, count = reply.numbers("<ii")
        if not 0 <= count <= MAX_RESULTS:
            raise self._host.broken(f"{count} results")
        raw = [WrapperValue.from_buffer_copy(reply.take(ctypes.sizeof(WrapperValue))) for _ in range(count)]
        message = reply.text().strip()
        if reply.cut_off:
            raise self._host.broken("results that are cut off")
        if status == 0:
            return tuple(self._result(number, value) for number, value in enumerate(raw))
        if status == 1:
            raise WrapperError("wrapper-error", message)
        known = any(name == entry for entry, _ in self.entries())
        raise WrapperError("arguments" if known else "no-such-entry", message)

    def release(self) -> None:
        self._host.command(RELEASE, self._number)

    def _result(self, number: int, value: WrapperValue) -> TensorValue:
        """A result that can be looked at: all of its elements lie in one live buffer."""
        rank = value.ndim
        if value.kind != TENSOR or not 0 <= rank <= MAX_DIMENSIONS or value.dtype not in DTYPE_NAMES:
            raise self._host.broken(f"a result {number} that is no tensor")
        sizes, strides = tuple(value.sizes[:rank]), tuple(value.strides[:rank])
        tensor = TensorValue(value.data or 0, sizes, strides, DTYPE_NAMES[value.dtype])
        if min((*sizes, *strides), default=0) < 0:
            raise WrapperError("bad-result", f"result {number} has sizes {sizes} and strides {strides}")
        if tensor.span and not self._host.holds(tensor.pointer, tensor.span * ITEM_BYTES[tensor.dtype]):
            where = f"{tensor.bytes} bytes at 0x{tensor.pointer:x}"
            raise WrapperError("bad-result", f"result {number} does not lie in device memory: {where}")
        return tensor


class _Reply:
    """Bytes of an answer, one part after another; what is missing reads as empty."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self.cut_off = False

    def take(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        self._at += size
        self.cut_off = self.cut_off or len(part) < size
        return part.ljust(size, b"\0")

    def numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def text(self) -> str:
        (size,) = self.numbers("<I")
        return self.take(min(size, len(self._data))).decode(errors="replace")
