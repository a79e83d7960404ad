"""A ModelNew file in a worker process.

The file runs in a further process (`python_process`).  Its tensors there are names for memory of the virtual GPU here.
It requests what should be done with them - allocations, fills, copies, calls of extensions - and this side does and
counts it.  So its Python code reaches neither the memory nor the counters, and values that it copies to its own side
are counted too.  The extensions' host code runs in the worker's process for host code, like that of a ``.cu`` file.

A call's values are those of a `ModuleCall`.  A failure of kind ``unbuilt`` names extensions that have not been built;
`build` builds them, and the worker is started again.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cupilot.errors import DataError
from cupilot.languages.contract import CandidateFailed
from cupilot.languages.modelnew.record import read_assembly
from cupilot.languages.modelnew.requests import ForbiddenRequest, Requests, keep
from cupilot.languages.modelnew.state import Place, StateError, matched
from cupilot.languages.modelnew.wire import Wire, decoded
from cupilot.records import ITEM_BYTES, Failure, MemoryOperation, from_plain
from cupilot.toolchain.abi import TensorValue, WrapperError
from cupilot.vgpu.host import HostGone

if TYPE_CHECKING:
    from cupilot.vgpu.machine import Machine

KINDS = ("wrapper-error", "load", "crash")


class PythonProcess:
    """The process that the file runs in; it is started while this process still may start others.

    It can write files in a folder of its own, because some files write sources before they load them.
    """

    def __init__(self, folder: Path) -> None:
        scratch = folder / "scratch"
        scratch.mkdir()
        ours, theirs = socket.socketpair()
        settings = (f"TMPDIR={scratch}", f"HOME={scratch}", "OMP_NUM_THREADS=1")
        module = ("-P", "-m", "cupilot.languages.modelnew.python_process", str(theirs.fileno()), str(scratch))
        self._process = subprocess.Popen(
            ("env", *settings, sys.executable, *module),
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()
        self.wire = Wire(ours.detach())

    def end(self) -> str:
        """How it ended; called when it has closed its side."""
        status = self._process.wait()
        return f"crashed with {signal.Signals(-status).name}" if status < 0 else f"ended early (status {status})"


class ModelNewProgram:
    """Implements `cupilot.languages.contract.Program`."""

    def __init__(self, library: Path, folder: Path, process: PythonProcess | None = None) -> None:
        self._assembly = read_assembly(library)
        self._process = process or PythonProcess(folder)
        self._allowed = self._assembly.torch_ops
        self._over: Failure | None = None
        self._problem: Failure | None = None
        self._state: dict[str, TensorValue] = {}
        self._made: list[int] = []
        self._told: tuple[MemoryOperation, ...] = ()
        self._ready = False

    def files(self) -> tuple[Path, ...]:
        return self._assembly.files()

    def load(self, machine: Machine, seconds_left: float) -> None:
        """Run the file."""
        assembly = self._assembly
        self._machine, self._seconds_left = machine, seconds_left
        try:
            self._glue = machine.host.load(Path(assembly.glue))
        except HostGone as error:
            raise CandidateFailed(Failure("run", error.kind, error.message)) from None
        self._requests = Requests(machine, self._glue, {key: Path(p) for key, p in assembly.libraries}, self._allowed)
        start = {"do": "load", "source": assembly.source, "gpu": machine.spec.name, "torch_ops": assembly.torch_ops}
        done = self._exchange("load", start, seconds_left)
        if isinstance(done, Failure) and done.kind != "unbuilt":
            raise CandidateFailed(done)
        self._problem = done if isinstance(done, Failure) else None

    def entries(self) -> tuple[tuple[str, str], ...]:
        """None: Python has no signatures."""
        return ()

    def prepare(self, values: Sequence[Any], seconds_left: float) -> None:
        """Construct the module, unless that has been done, and lay out its parameters."""
        self._ready = False
        if not values or self._problem is not None:
            return
        self._machine.begin(None, seconds_left)
        self._seconds_left = seconds_left
        init, _, names, tensors, task = values
        self._problem = self._set_up(init, task, dict(zip(names, tensors, strict=True)))
        self._ready = self._problem is None

    def call(self, entry: str, values: Sequence[Any]) -> tuple[TensorValue, ...]:
        """The results of ``forward``; a call without values only reports how loading went."""
        problem, self._problem = self._problem, None
        if problem is not None:
            raise CandidateFailed(problem)
        if not self._ready:
            return ()
        lent = [value for value in (*values[1], *self._state.values()) if isinstance(value, TensorValue)]
        self._requests.begin(lent)
        self._told = ()
        done = self._exchange("run", {"do": "forward", "inputs": values[1], "state": self._state}, self._seconds_left)
        self._requests.end()
        if isinstance(done, Failure):
            # findings explain more than the error that followed them
            found = done.kind == "wrapper-error" and self._machine.findings()
            raise WrapperError(done.kind, done.message) if found else CandidateFailed(done)
        return self._results(done)

    def operations(self) -> tuple[MemoryOperation, ...]:
        return (*self._requests.operations, *self._told)

    def release(self) -> None:
        """Drop the results of the last call, unless the file keeps them itself."""
        self._requests.withdraw()
        if self._ready:
            self._exchange("run", {"do": "release"}, self._seconds_left)
        for address in self._made:
            self._machine.free(address)
        self._made, self._state = [], {}

    # --- parameters ----------------------------------------------------------------------------

    def _set_up(self, init: str, task: str, state: dict[str, TensorValue]) -> Failure | None:
        done = self._exchange("load", {"do": "construct", "init": init, "task": task}, self._seconds_left)
        if isinstance(done, Failure):
            return done
        self._requests.keep()
        try:
            places = from_plain(tuple[Place, ...], done.get("places"))
            chosen = matched(places, state)
        except DataError as error:
            return Failure("load", "load", f"the solution's parameters cannot be read: {error}")
        except StateError as error:
            return Failure("load", "parameters", str(error))
        self._state = {
            place.name: self._like(place, state[chosen[place.name]]) for place in places if place.name in chosen
        }
        return None

    def _like(self, place: Place, value: TensorValue) -> TensorValue:
        """The tensor in the layout and element type of its place, as `load_state_dict` would leave it."""
        if (place.dtype, place.strides) == (value.dtype, tuple(value.strides)) or place.dtype not in ITEM_BYTES:
            return value
        size = max(TensorValue(0, place.shape, place.strides, place.dtype).bytes, 1)
        self._made.append(self._machine.allocate(size))
        made = TensorValue(self._made[-1], place.shape, place.strides, place.dtype)
        try:
            self._glue.call("copy", (made, value))
        except HostGone as error:
            raise CandidateFailed(Failure("run", error.kind, error.message)) from None
        keep(self._machine, made.pointer, size)
        return made

    # --- the other process ---------------------------------------------------------------------

    def _exchange(self, stage: str, message: dict[str, Any], seconds_left: float) -> dict[str, Any] | Failure:
        """Send a message to the process and serve its requests until it is done."""
        if self._over is not None:
            return self._over
        deadline_s = time.monotonic() + seconds_left
        try:
            self._process.wire.send(message)
            while True:
                record, data = self._process.wire.receive(max(deadline_s - time.monotonic(), 0.001))
                if record.get("do") == "done":
                    return self._failure(stage, record) or record
                self._process.wire.send(*self._requests.serve(record, data))
        except TimeoutError:
            text = f"the solution's Python code did not return within {seconds_left:.3g} s"
            self._over = Failure("run", "time-out", text)
        except HostGone as error:
            self._over = Failure("run", error.kind, error.message)
        except (EOFError, OSError):
            self._over = Failure("run", "crash", f"the solution's Python process {self._process.end()}")
        except (ValueError, TypeError, KeyError, DataError, ForbiddenRequest) as error:
            self._over = Failure("run", "crash", f"the solution's process asks for what is not possible: {error}")
        return self._over

    def _failure(self, stage: str, record: dict[str, Any]) -> Failure | None:
        """The failure that the process reports: first extensions that are not built, then operators of PyTorch."""
        wanted = record.get("wanted")
        if wanted:
            names = ", ".join(str(each.get("name")) for each in wanted)
            return Failure("build", "unbuilt", f"not built yet: {names}", json.dumps(wanted))
        if stage == "run":
            # results of PyTorch's operators have no values here, so other errors follow from that
            failure = self._torch_failure(record)
            if failure is not None:
                return failure
        problem = record.get("problem")
        if problem:
            kind = problem["kind"] if problem["kind"] in KINDS else "crash"
            return Failure(stage, kind, str(problem["message"]), str(problem["log"]))
        findings = self._machine.findings() if stage == "load" else ()
        return Failure.of(stage, findings, before="before any call: ") if findings else None

    def _torch_failure(self, record: dict[str, Any]) -> Failure | None:
        counts = from_plain(tuple[tuple[str, int], ...], record.get("operators", []))
        if not counts:
            return None
        if self._allowed:
            told = from_plain(tuple[MemoryOperation, ...], record.get("operations", []))
            self._told = tuple(operation for operation in told if operation.kind.startswith("aten."))
            return None
        listed = ", ".join(f"{name} ({count} call{'s' * (count > 1)})" for name, count in counts)
        return Failure("guard", "torch-operators", f"the solution computes with PyTorch: {listed}")

    def _results(self, record: dict[str, Any]) -> tuple[TensorValue, ...]:
        try:
            results = decoded(record.get("outputs", []))
            for result in results:
                self._requests.check(result)
        except (DataError, ForbiddenRequest) as error:
            raise CandidateFailed(Failure("run", "crash", f"the solution returns what is no tensor: {error}")) from None
        return tuple(results)
