"""The worker process: ``python -m cupilot.devices.worker FOLDER``.

Runs one candidate's calls on the virtual GPU and writes an answer for each.  The candidate's host
code lives in this process, so nothing here knows the expected results.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from math import prod
from pathlib import Path

import numpy as np

from cupilot.contracts import Array
from cupilot.devices.job import NUMPY, Answer, Job, JobCall
from cupilot.devices.process import limit_self
from cupilot.gpu import load_spec
from cupilot.records import ITEM_BYTES, Failure, Scalar, TensorSpec, from_plain, to_plain
from cupilot.toolchain.abi import Library, TensorValue, WrapperError
from cupilot.vgpu.machine import Finding, Machine


def main(folder: Path) -> int:
    job = from_plain(Job, json.loads((folder / "job.json").read_text()))
    limit_self(job.timeout_s)
    machine = Machine(load_spec(job.gpu), Path(job.runtime), dict(job.resources), job.device, job.sass)
    try:
        library = Library(Path(job.library))
    except WrapperError as error:
        failure = Failure("load", error.kind, _load_message(str(error)))
        for number in range(len(job.calls)):
            _write(folder, number, Answer(failure))
        return 0
    worker = Worker(folder, job, machine, library)
    for number, call in enumerate(job.calls):
        _write(folder, number, worker.call(number, call))
    return 0


def _load_message(text: str) -> str:
    symbol = text.rpartition("undefined symbol: ")[2]
    return f"unsupported on the virtual GPU: the runtime call {symbol}" if symbol != text else text


def _write(folder: Path, number: int, answer: Answer) -> None:
    """The answer appears whole or not at all."""
    draft = folder / f"answer{number}.part"
    draft.write_text(json.dumps(to_plain(answer)))
    draft.rename(folder / f"answer{number}.json")


class Worker:
    """One candidate, loaded."""

    def __init__(self, folder: Path, job: Job, machine: Machine, library: Library) -> None:
        self._folder = folder
        self._job = job
        self._machine = machine
        self._library = library
        self._deadline_s = time.monotonic() + job.timeout_s

    def call(self, number: int, call: JobCall) -> Answer:
        """Run the wrapper once; outputs go to files beside the answer."""
        machine = self._machine
        machine.begin(call.sample_budget, max(self._deadline_s - time.monotonic(), 0.001))
        tensors: list[tuple[TensorValue, str]] = []
        values: list[TensorValue | Scalar | None] = []
        for argument in call.arguments:
            if argument.tensor is not None:
                tensors.append((self._upload(argument.file, argument.tensor), argument.file))
                values.append(tensors[-1][0])
            else:
                values.append(argument.value)
        outputs = [self._allocate(tensor) for tensor in call.outputs] if self._fills_outputs(values, call) else []
        answer = self._answer(number, values, tensors, outputs)
        self._library.release()
        for value in [*(value for value, _ in tensors), *outputs]:
            machine.free(value.pointer)
        return answer

    def _fills_outputs(self, values: list[TensorValue | Scalar | None], call: JobCall) -> bool:
        """Whether the wrapper returns nothing and takes the outputs after the other arguments."""
        takes, _, gives = dict(self._library.entries()).get(self._job.entry, "").partition(" -> ")
        return gives == "None" and takes.count(",") + 1 == len(values) + len(call.outputs)

    def _allocate(self, tensor: TensorSpec) -> TensorValue:
        address = ctypes.c_void_p()
        status = ctypes.CDLL(self._job.runtime).cudaMalloc(ctypes.byref(address), ctypes.c_size_t(tensor.bytes))
        if status != 0:
            raise MemoryError(f"{tensor.bytes} bytes of device memory")
        return TensorValue(address.value or 0, tensor.shape, _strides(tensor.shape), tensor.dtype)

    def _upload(self, file: str, tensor: TensorSpec) -> TensorValue:
        address = self._machine.map_file(Path(file), tensor.bytes)
        return TensorValue(address, tensor.shape, _strides(tensor.shape), tensor.dtype)

    def _answer(
        self,
        number: int,
        values: list[TensorValue | Scalar | None],
        tensors: list[tuple[TensorValue, str]],
        outputs: list[TensorValue],
    ) -> Answer:
        machine = self._machine
        try:
            results = self._library.call(self._job.entry, [*values, *outputs])
        except WrapperError as error:
            found = _finding_failure(machine.findings(), self._job)
            return Answer(found or Failure("run", error.kind, str(error)))
        failure = (
            _finding_failure(machine.findings(), self._job)
            or _launch_failure(machine)
            or _input_failure(machine, tensors)
        )
        if failure is not None:
            return Answer(failure)
        results = results or tuple(outputs)
        _keep_outputs(self._folder, number, machine, results)
        specs = tuple(TensorSpec(tuple(result.shape), result.dtype) for result in results)
        return Answer(None, machine.profile(), specs)


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major, in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _finding_failure(findings: tuple[Finding, ...], job: Job) -> Failure | None:
    if not findings:
        return None
    first = findings[0]
    log = "\n".join(f"{finding.kind}: {finding.message}" for finding in findings)
    if first.kind == "time-out":
        return Failure("run", "time-out", f"not finished after {job.timeout_s:g} s: {first.message}", log)
    if first.kind == "unsupported":
        return Failure("run", "unsupported", first.message, log)
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return Failure("run", first.kind, first.message + more, log)


def _launch_failure(machine: Machine) -> Failure | None:
    """A launch that CUDA refuses, in a wrapper that does not look."""
    error = machine.last_error()
    return Failure("run", "launch-error", f"a CUDA call failed: {error}") if error else None


def _input_failure(machine: Machine, tensors: list[tuple[TensorValue, str]]) -> Failure | None:
    for number, (value, file) in enumerate(tensors):
        if not machine.stored(value.pointer):
            continue
        raw = np.dtype(np.uint8)
        now = machine.view(value.pointer, (Path(file).stat().st_size,), raw)
        if not np.array_equal(now, np.memmap(file, raw, "r")):
            return Failure("verify", "input-changed", f"the kernel changed its input {number}")
    return None


def _keep_outputs(folder: Path, number: int, machine: Machine, results: tuple[TensorValue, ...]) -> None:
    """Every output in row-major order, whatever its layout; where it is not whole, its written elements."""
    for index, result in enumerate(results):
        item = np.dtype(NUMPY[result.dtype])
        span = 1 + sum((size - 1) * stride for size, stride in zip(result.shape, result.strides, strict=True))
        span = span if prod(result.shape) else 0
        values = _laid_out(machine.view(result.pointer, (span,), item), result)
        stem = folder / f"answer{number}.{index}"
        where = machine.stored_elements(result.pointer, span, ITEM_BYTES[result.dtype])
        if where is not None and tuple(result.strides) != _strides(result.shape):
            written = np.zeros(span, np.bool_)
            written[where] = True
            where = np.flatnonzero(_laid_out(written, result))
            where = None if where.size == values.size else where  # what is unwritten lies between the elements
        if where is None:
            np.save(f"{stem}.npy", values)
        else:
            np.save(f"{stem}.where.npy", where)
            # a copy of a large output in another layout would touch all of its memory
            np.save(f"{stem}.part.npy", values.reshape(-1)[where] if values.flags.c_contiguous else values.flat[where])


def _laid_out(memory: Array, result: TensorValue) -> Array:
    """The elements of a tensor among those that its memory spans."""
    strides = [stride * memory.itemsize for stride in result.strides]
    return np.lib.stride_tricks.as_strided(memory, result.shape, strides, writeable=False)


if __name__ == "__main__":
    # what a crash in native code printed before must not be lost in a buffer
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    status = main(Path(sys.argv[1]))
    ctypes.CDLL(None).fflush(None)
    sys.exit(status)
