"""The worker process, which `zygote` forks for each job.

Runs one candidate's calls on the virtual GPU and sends an answer for each.  The candidate's kernels run in this
process, checked access by access; its host code runs in another one (`host_process`).  Nothing here knows the expected
results, and the process gives up all rights that it does not need before the candidate is loaded.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cupilot.arrays import Array
from cupilot.devices.aliases import aliases_of
from cupilot.devices.host_process import start_host
from cupilot.devices.host_use import host_failure
from cupilot.devices.job import Answer, Job, JobArgument, JobCall
from cupilot.gpu import load_spec
from cupilot.languages import find_language
from cupilot.languages.contract import CandidateFailed, Program
from cupilot.places import Runs, Slices
from cupilot.records import ITEM_BYTES, Failure, Finding, TensorSpec, from_plain, to_plain
from cupilot.sandbox.confine import confine
from cupilot.sandbox.process import Channel, limit_self, open_channel
from cupilot.toolchain.abi import TensorValue, WrapperError
from cupilot.vgpu import translations
from cupilot.vgpu.machine import Machine

HARMLESS = frozenset({
    "out-of-bounds", "misaligned", "uninitialized", "async-race", "shared-race", "global-race", "left-over",
    "unordered", "input-changed",
})  # fmt: skip
"""What a kernel may do wrong and still run to its end, so that its counters are those of the whole launch."""
MANY = 1 << 16
"""Elements of an output that are not sent without need."""
STOPPING = 8
"""Findings that end a launch (``findings_limit`` of the runtime)."""


NO_WORDS = "the host function threw an exception without a message"


def main(folder: Path) -> int:
    channel = open_channel()
    job = from_plain(Job, json.loads((folder / "job.json").read_text()))
    program = find_language(job.language).program(Path(job.library), folder)
    machine = Machine(load_spec(job.gpu), Path(job.runtime), dict(job.resources), job.device, job.sass)
    start_host(machine, Path(job.host), program.files())
    limit_self(job.timeout_s)
    kept = translations(Path(job.runtime))
    kept.mkdir(parents=True, exist_ok=True)
    confine([Path(job.runtime).parent, *job.files(), *program.files()], [kept])
    machine.begin(None, job.timeout_s)
    machine.host.allow(job.timeout_s, job.timeout_s)
    try:
        program.load(machine, job.timeout_s)
    except CandidateFailed as error:
        for _ in job.calls:
            _send(channel, Answer(error.failure))
        return 0
    worker = Worker(job, machine, program)
    for call in job.calls:
        _send(channel, *worker.call(call))
    return 0


def _send(channel: Channel, answer: Answer, arrays: tuple[Array, ...] = ()) -> None:
    channel.send(json.dumps(to_plain(answer)).encode(), *(np.ascontiguousarray(array).data for array in arrays))


class Worker:
    """One candidate, loaded."""

    def __init__(self, job: Job, machine: Machine, program: Program) -> None:
        self._job = job
        self._machine = machine
        self._program = program
        self._deadline_s = time.monotonic() + job.timeout_s
        self._buffers = Buffers(machine)

    def call(self, call: JobCall) -> tuple[Answer, tuple[Array, ...]]:
        """Call the candidate once; gives the answer and the arrays that go with it."""
        machine = self._machine
        tensors: list[tuple[TensorValue, str]] = []
        values = [self._value(argument, tensors) for argument in call.arguments]
        outputs = [self._allocate(tensor) for tensor in call.outputs] if self._fills_outputs(values, call) else []
        self._program.prepare(values, self._allow())
        machine.begin(call.sample_budget, self._allow(), order=call.order, sample_seed=call.sample_seed)
        answer = self._answer(values, tensors, outputs, call)
        self._program.release()
        for output in outputs:
            machine.free(output.pointer)
        self._buffers.rest()
        return answer

    def _allow(self) -> float:
        """The seconds that are left, for host code too."""
        left_s = max(self._deadline_s - time.monotonic(), 0.001)
        self._machine.host.allow(left_s, self._job.timeout_s)
        return left_s

    def _value(self, argument: JobArgument, tensors: list[tuple[TensorValue, str]]) -> Any:
        """An argument in device memory; ``tensors`` gets each tensor with the file that its values are from."""
        if argument.items is not None:
            return [self._value(item, tensors) for item in argument.items]
        if argument.tensor is None:
            return argument.value
        address = self._buffers.filled(Path(argument.file), argument.tensor.memory_bytes)
        value = TensorValue.at(address, argument.tensor)
        tensors.append((value, argument.file))
        return value

    def _fills_outputs(self, values: list[Any], call: JobCall) -> bool:
        """Whether the wrapper returns nothing and takes the outputs after the other arguments."""
        takes, _, gives = dict(self._program.entries()).get(self._job.entry, "").partition(" -> ")
        return gives == "None" and takes.count(",") + 1 == len(values) + len(call.outputs)

    def _allocate(self, tensor: TensorSpec) -> TensorValue:
        return TensorValue.dense(self._machine.allocate(max(tensor.bytes, 1)), tensor)

    def _answer(
        self, values: list[Any], tensors: list[tuple[TensorValue, str]], outputs: list[TensorValue], call: JobCall
    ) -> tuple[Answer, tuple[Array, ...]]:
        machine = self._machine
        try:
            results = self._program.call(self._job.entry, [*values, *outputs])
            machine.end()
        except CandidateFailed as error:
            machine.end()
            return Answer(error.failure), ()
        except WrapperError as error:
            machine.end()
            found = _finding_failure(machine.findings(), self._job)
            return Answer(found or Failure("run", error.kind, str(error) or NO_WORDS)), ()
        profile, results = machine.profile(), results or tuple(outputs)
        profile = replace(profile, operations=profile.operations + self._program.operations())
        failure = (
            _finding_failure(machine.findings(), self._job)
            or _launch_failure(machine)
            or _input_failure(machine, tensors)
            or host_failure(profile)
        )
        if failure is not None:
            return Answer(failure, profile if call.lenient and _is_harmless(failure, machine.findings()) else None), ()
        aliases = aliases_of(results, [value for value, _ in tensors])
        inputs = [alias.startswith("input") for alias in aliases]
        as_asked = [tuple(result.shape) for result in results] == [output.shape for output in call.outputs]
        made = [
            _output(machine, result, given, profile.sampled, call.looked_at if as_asked else None)
            for result, given in zip(results, inputs, strict=True)
        ]
        pairs, stored = [pair for pair, _ in made], tuple(count for _, count in made)
        specs = tuple(TensorSpec(tuple(result.shape), result.dtype) for result in results)
        whole = tuple(where is None for where, _ in pairs)
        # copied, because the memory is given back before the answer is sent
        arrays = tuple(_copied(array) for pair in pairs for array in pair if array is not None)
        launches = tuple(machine.store_launches(result.pointer) for result in results)
        return Answer(None, profile, specs, whole, aliases, launches, stored), arrays


class Buffers:
    """Device memory for inputs: a buffer comes back with other values, but never in the very next call.

    So a candidate that keeps a result by the address of its input is found out.  Large tensors are mapped
    instead of copied, and get an address of their own each time.
    """

    MAPPED_BYTES = 64 << 20

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._free: dict[int, list[int]] = {}
        self._used: list[tuple[int, int]] = []
        self._resting: list[tuple[int, int]] = []
        self._mapped: list[int] = []

    def filled(self, file: Path, size: int) -> int:
        """A buffer with a file's content, repeated if it is shorter."""
        if size >= self.MAPPED_BYTES:
            self._mapped.append(self._machine.map_file(file, size))
            return self._mapped[-1]
        free = self._free.get(size)
        address = free.pop(0) if free else self._machine.allocate(max(size, 1))
        self._used.append((size, address))
        self._machine.write(address, np.fromfile(file, np.uint8))
        return address

    def rest(self) -> None:
        """The call is over: what it used is free after the next one."""
        for size, address in self._resting:
            self._free.setdefault(size, []).append(address)
        self._resting, self._used = self._used, []
        for address in self._mapped:
            self._machine.free(address)
        self._mapped = []


def _finding_failure(findings: tuple[Finding, ...], job: Job) -> Failure | None:
    if not findings:
        return None
    before = f"not finished after {job.timeout_s:g} s: " if findings[0].kind == "time-out" else ""
    return Failure.of("run", findings, before=before)


def _is_harmless(failure: Failure, findings: tuple[Finding, ...]) -> bool:
    kinds = {failure.kind, *(finding.kind for finding in findings)}
    return kinds <= HARMLESS and len(findings) < STOPPING


def _launch_failure(machine: Machine) -> Failure | None:
    """A launch that CUDA refuses, in a wrapper that does not look."""
    error = machine.last_error()
    return Failure("run", "launch-error", f"a CUDA call failed: {error}") if error else None


def _input_failure(machine: Machine, tensors: list[tuple[TensorValue, str]]) -> Failure | None:
    for number, (value, file) in enumerate(tensors):
        size = value.bytes
        if not size or not machine.stored(value.pointer):
            continue
        given = np.fromfile(file, np.uint8)
        now = machine.view(value.pointer, (size,), np.dtype(np.uint8))
        for start in range(0, size, given.size):
            part = now[start : start + given.size]
            if not np.array_equal(part, given[: part.size]):
                return Failure("verify", "input-changed", f"the kernel changed its input {number}")
        message = f"the kernel wrote to its input {number} and put the values back: who reads it meanwhile sees others"
        return Failure("verify", "input-changed", message)
    return None


# bfloat16 has no NumPy type that files know; its bits travel as uint16
NUMPY = {name: name for name in ITEM_BYTES} | {"bfloat16": "uint16"}


def _output(
    machine: Machine, result: TensorValue, given: bool, sampled: bool, slices: Slices | None
) -> tuple[tuple[Array | None, Array], int]:
    """Where written elements stand (`Runs`; None: all, or an input's), these elements, in row-major order, and how many
    were written.

    Of many, those in the slices that are looked at.
    """
    item = np.dtype(NUMPY[result.dtype])
    dense = TensorValue.dense(result.pointer, TensorSpec(tuple(result.shape), result.dtype))
    values = _laid_out(machine.view(result.pointer, (result.span,), item), result)
    where = None if given else machine.stored_runs(result.pointer, result.span, ITEM_BYTES[result.dtype])
    if where is not None and tuple(result.strides) != dense.strides:
        written = np.zeros(result.span, np.bool_)
        written[where.positions] = True
        where = Runs.of(np.flatnonzero(_laid_out(written, result)))
        where = None if where.size == values.size else where  # what is unwritten lies between the elements
    stored = values.size if where is None else where.size
    if slices is not None and not given and stored > MANY and (sampled or where is None):
        where = slices.of(where, result.shape)
    if where is None:
        return (None, values), stored
    # a copy of a large output in another layout would touch all of its memory
    flat = values.reshape(-1) if values.flags.c_contiguous else values.flat
    return (where.table, where.of_values(flat)), stored


def _copied(array: Array) -> Array:
    """In memory of its own."""
    return array if array.flags.owndata else np.array(array)


def _laid_out(memory: Array, result: TensorValue) -> Array:
    """The elements of a tensor among those that its memory spans."""
    strides = [stride * memory.itemsize for stride in result.strides]
    return np.lib.stride_tricks.as_strided(memory, result.shape, strides, writeable=False)
