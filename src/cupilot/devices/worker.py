"""The worker process: ``python -m cupilot.devices.worker FOLDER``.

Runs one candidate's calls on the virtual GPU and writes an answer for each.  The candidate's host
code lives in this process, so nothing here knows the expected results.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from pathlib import Path

import numpy as np

from cupilot.devices.job import NUMPY, Answer, Job, JobCall
from cupilot.devices.process import limit_self
from cupilot.gpu import load_spec
from cupilot.records import ITEM_BYTES, Failure, Scalar, TensorSpec, from_plain, to_plain
from cupilot.toolchain.abi import Library, TensorValue, WrapperError
from cupilot.vgpu.machine import Finding, Machine


def main(folder: Path) -> int:
    job = from_plain(Job, json.loads((folder / "job.json").read_text()))
    limit_self(job.timeout_s)
    machine = Machine(load_spec(job.gpu), Path(job.runtime), dict(job.resources), job.device)
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
        answer = self._answer(number, values, tensors)
        self._library.release()
        for value, _ in tensors:
            machine.free(value.pointer)
        return answer

    def _upload(self, file: str, tensor: TensorSpec) -> TensorValue:
        address = self._machine.map_file(Path(file), tensor.bytes)
        return TensorValue(address, tensor.shape, _strides(tensor.shape), tensor.dtype)

    def _answer(
        self, number: int, values: list[TensorValue | Scalar | None], tensors: list[tuple[TensorValue, str]]
    ) -> Answer:
        machine = self._machine
        try:
            results = self._library.call(self._job.entry, values)
        except WrapperError as error:
            found = _finding_failure(machine.findings(), self._job)
            return Answer(found or Failure("run", error.kind, str(error)))
        failure = (
            _finding_failure(machine.findings(), self._job)
            or _launch_failure(machine)
            or _input_failure(machine, tensors)
            or _keep_outputs(self._folder, number, machine, results)
        )
        if failure is not None:
            return Answer(failure)
        outputs = tuple(TensorSpec(tuple(result.shape), result.dtype) for result in results)
        return Answer(None, machine.profile(), outputs)


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


def _keep_outputs(folder: Path, number: int, machine: Machine, results: tuple[TensorValue, ...]) -> Failure | None:
    for index, result in enumerate(results):
        shape = tuple(result.shape)
        if tuple(result.strides) != _strides(shape) and 0 not in shape:
            return Failure("verify", "not-contiguous", f"output {index} is not contiguous: strides {result.strides}")
        values = machine.view(result.pointer, shape, np.dtype(NUMPY[result.dtype]))
        stem = folder / f"answer{number}.{index}"
        where = machine.stored_elements(result.pointer, values.size, ITEM_BYTES[result.dtype])
        if where is None:
            np.save(f"{stem}.npy", values)
        else:
            np.save(f"{stem}.where.npy", where)
            np.save(f"{stem}.part.npy", values.reshape(-1)[where])
    return None


if __name__ == "__main__":
    # what a crash in native code printed before must not be lost in a buffer
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    status = main(Path(sys.argv[1]))
    ctypes.CDLL(None).fflush(None)
    sys.exit(status)
