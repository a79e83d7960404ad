"""A torch extension: its kernels run in the worker process, its host code in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cupilot.languages.contract import CandidateFailed
from cupilot.records import Failure, MemoryOperation
from cupilot.toolchain.abi import TensorValue, WrapperError
from cupilot.vgpu.host import HostGone

if TYPE_CHECKING:
    from cupilot.vgpu.machine import Machine


class CudaProgram:
    """Implements `cupilot.languages.contract.Program` with one shared library."""

    def __init__(self, library: Path) -> None:
        self._path = library

    def files(self) -> tuple[Path, ...]:
        return (self._path,)

    def load(self, machine: Machine, seconds_left: float) -> None:
        try:
            self._library = machine.host.load(self._path)
            self._entries = self._library.entries()
        except HostGone as error:
            raise CandidateFailed(Failure("run", error.kind, error.message)) from None
        except WrapperError as error:
            raise CandidateFailed(Failure("load", error.kind, _load_message(error.message))) from None
        profile = machine.profile()
        if profile.launches or profile.operations:
            what = profile.launches[0].kernel if profile.launches else profile.operations[0].kind
            message = f"the candidate works on the device while it is loaded: {what}"
            raise CandidateFailed(Failure("load", "work-at-load", message))

    def entries(self) -> tuple[tuple[str, str], ...]:
        return self._entries

    def prepare(self, values: Sequence[Any], seconds_left: float) -> None: ...

    def call(self, entry: str, values: Sequence[Any]) -> tuple[TensorValue, ...]:
        try:
            return self._library.call(entry, values)
        except HostGone as error:
            raise CandidateFailed(Failure("run", error.kind, error.message)) from None

    def operations(self) -> tuple[MemoryOperation, ...]:
        return ()

    def release(self) -> None:
        with suppress(HostGone):  # the next call will say so
            self._library.release()


def _load_message(text: str) -> str:
    symbol = text.rpartition("undefined symbol: ")[2]
    return f"unsupported on the virtual GPU: the runtime call {symbol}" if symbol != text else text
