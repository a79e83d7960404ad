"""Requests that the Python process may make of the virtual GPU, and how they are counted.

Addresses come from untrusted code, so addresses that are read or written here must lie in memory that the file was
given.  The virtual GPU checks kernels.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cupilot.languages.modelnew.wire import decoded
from cupilot.records import ITEM_BYTES, MemoryOperation
from cupilot.toolchain.abi import TensorValue, WrapperError
from cupilot.vgpu.host import HostLibrary

if TYPE_CHECKING:
    from cupilot.vgpu.machine import Machine

Reply = tuple[dict[str, Any], bytes]


class ForbiddenRequest(Exception):
    """A request that only a tampered process makes."""


class Requests:
    """Serves one file.  ``operations`` are copies between its process and the device, in the last call."""

    def __init__(self, machine: Machine, glue: HostLibrary, libraries: Mapping[str, Path], computes: bool) -> None:
        self.operations: list[MemoryOperation] = []
        self._machine = machine
        self._glue = glue
        self._paths = libraries
        self._computes = computes
        self._counting = False
        self._loaded: dict[str, HostLibrary] = {}
        self._results: dict[str, list[tuple[int, int]]] = {}
        self._own: dict[int, int] = {}
        self._lent: list[tuple[int, int]] = []
        self._events: list[ctypes.c_void_p] = []
        self._actions: dict[str, Callable[..., Reply]] = {
            "allocate": self._allocate, "free": self._free, "read": self._read, "write": self._write,
            "glue": self._use_glue, "open": self._open, "call": self._call, "forget": self._forget,
            "record": self._record, "elapsed": self._elapsed,
        }  # fmt: skip

    def begin(self, lent: Iterable[TensorValue]) -> None:
        """A call begins; ``lent`` are tensors that it may use until it is over."""
        self.operations, self._counting = [], True
        self._lent = [_range(value) for value in lent]

    def end(self) -> None:
        self._counting = False

    def keep(self) -> None:
        """Calls may read what a constructor has left in memory, unlike what other calls leave there."""
        for address, size in (*self._own.items(), *(each for some in self._results.values() for each in some)):
            keep(self._machine, address, size)

    def withdraw(self) -> None:
        """The file may no longer use what was lent."""
        self._lent = []

    def serve(self, record: Mapping[str, Any], data: memoryview) -> Reply:
        """The answer to a request; an exception of an extension is one, too."""
        action = self._actions.get(str(record.get("do")))
        if action is None:
            raise ForbiddenRequest(f"the request {record.get('do')!r}")
        arguments = {name: value for name, value in record.items() if name != "do"}
        if data:
            arguments["data"] = data
        try:
            return action(**arguments)
        except WrapperError as error:
            return {"error": error.kind, "message": error.message}, b""
        except MemoryError as error:
            return {"error": "memory", "message": f"out of memory on the virtual GPU: {error}"}, b""

    def check(self, value: Any) -> None:
        """Raise `ForbiddenRequest` unless a tensor lies in the file's memory."""
        if not isinstance(value, TensorValue) or value.dtype not in ITEM_BYTES:
            raise ForbiddenRequest(f"{value!r} for a tensor")
        if any(stride < 0 for stride in value.strides) or len(value.strides) != len(value.shape):
            raise ForbiddenRequest(f"the strides {value.strides}")
        self._check(*_range(value))

    def _check(self, address: int, size: int) -> None:
        ranges = (*self._own.items(), *self._lent, *(each for some in self._results.values() for each in some))
        inside = any(start <= address and address + size <= start + length for start, length in ranges)
        if size < 0 or (size and not inside):
            raise ForbiddenRequest(f"{size} bytes at 0x{address:x}, which are not the solution's")

    # --- memory --------------------------------------------------------------------------------

    def _allocate(self, size: int) -> Reply:
        address = self._machine.allocate(max(size, 1))
        self._own[address] = size
        return {"address": address}, b""

    def _free(self, addresses: list[int]) -> Reply:
        for address in addresses:
            if self._own.pop(address, None) is None:
                raise ForbiddenRequest(f"freeing 0x{address:x}")
            self._machine.free(address)
        return {}, b""

    def _read(self, address: int, size: int, computing: bool = False) -> Reply:
        """Values for the other process; for PyTorch's own computing only where that is allowed."""
        self._check(address, size)
        if self._counting and computing and not self._computes:
            raise ForbiddenRequest("values to compute with")
        if self._counting and not computing:
            self.operations.append(MemoryOperation("device-to-host", size))
        return {}, self._machine.view(address, (size,), np.dtype(np.uint8)).tobytes()

    def _write(self, address: int, data: memoryview = memoryview(b""), computing: bool = False) -> Reply:  # noqa: B008
        self._check(address, len(data))
        if self._counting and computing and not self._computes:
            raise ForbiddenRequest("values that were computed")
        if self._counting and not computing:
            self.operations.append(MemoryOperation("host-to-device", len(data)))
        self._machine.write(address, np.frombuffer(data, np.uint8))
        return {}, b""

    def _use_glue(self, name: str, values: list[Any]) -> Reply:
        self._glue.call(name, decoded(values))
        return {}, b""

    # --- extensions ----------------------------------------------------------------------------

    def _open(self, key: str) -> Reply:
        """The functions of an extension, if it is built."""
        if key not in self._paths:
            return {"entries": None}, b""
        if key not in self._loaded:
            self._loaded[key] = self._machine.host.load(self._paths[key])
        return {"entries": self._loaded[key].entries()}, b""

    def _call(self, key: str, name: str, values: list[Any]) -> Reply:
        results = self._loaded[key].call(name, decoded(values))
        self._results.setdefault(key, []).extend(_range(result) for result in results)
        return {"results": results}, b""

    def _forget(self, key: str) -> Reply:
        """No tensor of the file refers to this library's results any more."""
        self._results.pop(key, None)
        self._loaded[key].release()
        return {}, b""

    # --- events, with the runtime that is in this process ----------------------------------------

    def _record(self) -> Reply:
        runtime, event = ctypes.CDLL(None), ctypes.c_void_p()
        if runtime.cudaEventCreate(ctypes.byref(event)) or runtime.cudaEventRecord(event, None):
            raise ForbiddenRequest("one more event")
        self._events.append(event)
        return {"event": len(self._events) - 1}, b""

    def _elapsed(self, begin: int, end: int) -> Reply:
        found = ctypes.c_float()
        ctypes.CDLL(None).cudaEventElapsedTime(ctypes.byref(found), self._events[begin], self._events[end])
        return {"ms": found.value}, b""


def keep(machine: Machine, address: int, size: int) -> None:
    """Make what was stored to a buffer its given content."""
    if size and machine.stored(address):
        machine.write(address, machine.view(address, (size,), np.dtype(np.uint8)).copy())


def _range(value: TensorValue) -> tuple[int, int]:
    """Where a tensor's elements lie: address and bytes."""
    return value.pointer, value.bytes
