"""The worker process of a real GPU: ``python -m cupilot.devices.cuda_worker FOLDER``.

Runs one candidate's calls and answers each, or runs one call over and over, one sample of its time at each turn that
it is given; PyTorch itself is timed by the same code.  The candidate's host code lives in this process, so nothing
here knows the expected results.

In verification every tensor is poisoned before, with another byte in each of two runs: an element that holds both
poisons was never written.  Of a result of gigabytes, stretches are looked at that nobody can know before.  Not covered,
because only the virtual GPU sees it: accesses out of bounds, uninitialised reads, races that show in neither run.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from cupilot.arrays import Array, disagreement
from cupilot.contracts import Reference, Sample
from cupilot.devices.cuda_probe import CudaError, Feed, Pool, Runtime
from cupilot.devices.job import JobCall
from cupilot.records import ITEM_BYTES, Failure, TensorSpec, from_plain, to_plain
from cupilot.sandbox.process import Channel, limit_self, open_channel
from cupilot.toolchain.abi import Library, TensorValue, WrapperError

POISONS = (0xFF, 0x55)
EXCERPT_FROM_BYTES, EXCERPT_BYTES, STRETCHES = 1 << 30, 64 << 20, 64
SETTLING_TURNS, MOST_FLUSHES = 8, 64
TURN = struct.Struct("<BI")
"""A turn: `RUN`, `KEEP` (the result) or `STOP`, and how far the inputs are rotated."""
RUN, KEEP, STOP = range(3)
GO, DONE = "go", "done"
"""Pipes in the worker's folder: turns, and a byte for each that is over."""


@dataclass(frozen=True)
class CudaJob:
    """What is asked: to ``verify`` the calls, to ``repeat`` the first with its inputs rotated, or to ``time`` it."""

    mode: str
    runtime: str
    driver: str
    library: str
    entry: str
    calls: tuple[JobCall, ...]
    timeout_s: float
    rotations: tuple[int, ...] = ()
    flush_bytes: int = 0
    reference: Reference | None = None


@dataclass(frozen=True)
class CudaAnswer:
    """Results by shape and type; their values follow as parts, each with its places where ``partial`` says so."""

    failure: Failure | None = None
    outputs: tuple[TensorSpec, ...] = ()
    partial: tuple[bool, ...] = ()
    excerpt: bool = False  # there would have been more, but for its size
    samples: tuple[Sample, ...] = ()


def main(folder: Path) -> None:
    channel = open_channel()
    job = from_plain(CudaJob, json.loads((folder / "job.json").read_text()))
    limit_self(job.timeout_s)
    try:
        if job.driver:
            ctypes.CDLL(job.driver)  # the runtime asks for it by its bare name
        runtime = Runtime(Path(job.runtime))
        runtime.synchronize()
        pool = Pool(runtime)
        subject = Wrapper(job, pool) if job.reference is None else Torch(job.reference)
    except Exception as error:  # the driver's, the candidate's, PyTorch's
        kind = error.kind if isinstance(error, WrapperError) else "device-error"
        for _ in job.rotations or job.calls:
            _send(channel, CudaAnswer(Failure("load", kind, f"it cannot be loaded: {error}")))
        return
    if job.mode == "time":
        Timekeeper(job, runtime, pool, subject).serve(folder, channel)
        return
    verifier = Verifier(runtime, pool, subject)
    turns = [(call, None) for call in job.calls] if job.mode == "verify" else [(job.calls[0], r) for r in job.rotations]
    for call, rotation in turns:
        answer, parts = verifier.answer(call, rotation)
        _send(channel, answer, *parts)


def _send(channel: Channel, answer: CudaAnswer, *parts: Array) -> None:
    channel.send(json.dumps(to_plain(answer)).encode(), *(np.ascontiguousarray(part).data for part in parts))


# --- what is run ----------------------------------------------------------------------------------


class Wrapper:
    """A built candidate, whose tensors live in the pool."""

    def __init__(self, job: CudaJob, pool: Pool) -> None:
        self._library = Library(Path(job.library))
        self._library.allocate_with(pool.take_or_none, pool.give)
        self._entry, self._pool = job.entry, pool
        self._given: list[TensorValue] = []

    def __call__(self, values: Sequence[Any], outputs: Sequence[TensorSpec]) -> tuple[TensorValue, ...]:
        takes, _, gives = dict(self._library.entries()).get(self._entry, "").partition(" -> ")
        # a wrapper that returns nothing takes the outputs after the other arguments, and fills them
        if gives == "None" and takes.count(",") + 1 == len(values) + len(outputs):
            self._given = [TensorValue.dense(self._pool.take(spec.bytes), spec) for spec in outputs]
        return self._library.call(self._entry, [*values, *self._given]) or tuple(self._given)

    def rest(self) -> None:
        self._library.release()
        for tensor in self._given:
            self._pool.give(tensor.pointer)
        self._given = []


class Torch:
    """The task's own module, eager or compiled, on the same device memory."""

    def __init__(self, reference: Reference, device: str = "cuda") -> None:
        import torch

        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = reference.precision == "tf32"
        namespace: dict[str, Any] = {"__name__": "cupilot_task"}
        exec(compile(reference.source, "the task", "exec", dont_inherit=True), namespace)
        init = namespace["get_init_inputs"]() if "get_init_inputs" in namespace else ()
        model = namespace["Model"](*init).to(device)
        half = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(reference.precision)
        self._context = nullcontext if half is None else lambda: torch.autocast(device, half)
        self._model = torch.compile(model) if reference.compiled else model
        self._torch, self._device = torch, device
        self.result: Any = None

    def __call__(self, values: Sequence[Any], outputs: Sequence[TensorSpec]) -> tuple[TensorValue, ...]:
        inputs = [self._tensor(value) if isinstance(value, TensorValue) else value for value in values]
        with self._torch.no_grad(), self._context():
            self.result = self._model(*inputs)
        return ()

    def _tensor(self, value: TensorValue) -> Any:
        """A tensor that looks at the memory; bfloat16 has no letter in the protocol, its bits do."""
        half = value.dtype == "bfloat16"
        shown = _Shown(value, "int16" if half else value.dtype)
        tensor = self._torch.as_tensor(np.asarray(shown) if self._device == "cpu" else shown, device=self._device)
        return tensor.view(self._torch.bfloat16) if half else tensor

    def rest(self) -> None:
        self.result = None


class _Shown:
    """Memory by the protocols that PyTorch and NumPy read."""

    def __init__(self, value: TensorValue, dtype: str) -> None:
        interface = {"shape": value.shape, "typestr": np.dtype(dtype).str, "data": (value.pointer, False), "version": 3}
        self.__cuda_array_interface__ = self.__array_interface__ = interface


# --- right or wrong -------------------------------------------------------------------------------


class _Refused(Exception):
    """With a `Failure`."""


def _refuse(stage: str, kind: str, message: str) -> None:
    if message:
        raise _Refused(Failure(stage, kind, message))


Result = tuple[TensorSpec, Array, Array | None]
"""Shape and type, the bits of elements in row-major order, and which ones these are where they are not all."""


class Verifier:
    """One candidate; an error that the GPU does not recover from is the answer to all calls that follow."""

    def __init__(self, runtime: Runtime, pool: Pool, subject: Wrapper | Torch) -> None:
        self._runtime, self._pool, self._subject = runtime, pool, subject
        self._broken: Failure | None = None

    def answer(self, call: JobCall, rotation: int | None = None) -> tuple[CudaAnswer, list[Array]]:
        """Two runs of a call; or one, with its inputs rotated, and no more of large results than an excerpt."""
        if self._broken is not None:
            return CudaAnswer(self._broken), []
        feed = Feed(self._runtime, self._pool, call.arguments)
        seed = secrets.randbits(32) if rotation is None else rotation
        try:
            poisons = POISONS if rotation is None else POISONS[:1]
            runs = [self._run(call, feed, rotation, seed, poison) for poison in poisons]
            return _compared(runs[0], runs[-1]) if rotation is None else _described(runs[0])
        except _Refused as refused:
            return CudaAnswer(refused.args[0]), []
        except WrapperError as error:
            return CudaAnswer(Failure("run", error.kind, error.message)), []
        except CudaError as error:
            self._broken = Failure("run", "device-error", f"the GPU gave up: {error}")
            return CudaAnswer(self._broken), []
        finally:
            feed.give_back()

    def _run(self, call: JobCall, feed: Feed, rotation: int | None, seed: int, poison: int) -> list[Result]:
        self._runtime.take_error()  # of a call before
        values = feed.fill(rotation or 0)
        self._pool.poison = poison
        try:
            results = self._subject(values, call.outputs)
            # as whoever comes next on the stream sees them
            copies = [self._copy(feed, index, result) for index, result in enumerate(results)]
            error = self._runtime.take_error()
            self._runtime.synchronize()
            _refuse("run", "launch-error", error and f"a CUDA call failed: {error}")
            changed = feed.changed()
            _refuse("verify", "input-changed", "" if changed is None else f"the kernel changed its input {changed}")
            whole = rotation is None and call.sample_budget is None
            return [self._taken(i, r, c, seed, whole) for i, (r, c) in enumerate(zip(results, copies, strict=True))]
        finally:
            self._pool.poison = None
            self._subject.rest()

    def _copy(self, feed: Feed, index: int, result: TensorValue) -> int:
        size = span(result) * ITEM_BYTES[result.dtype]
        number = feed.holding(result.pointer) if size else None
        alias = f"output {index} lies in the memory of input {number}: a result needs memory of its own"
        _refuse("verify", "aliased-output", "" if number is None else alias)
        foreign = f"output {index} lies in no tensor's memory, so what was written of it cannot be known"
        _refuse("run", "unsupported", foreign if size and not self._pool.holds(result.pointer, size) else "")
        if size >= EXCERPT_FROM_BYTES:  # there may be no room for a second one
            return result.pointer
        copy = self._pool.take(size)
        self._runtime.copy(copy, result.pointer, size)
        return copy

    def _taken(self, index: int, result: TensorValue, copy: int, seed: int, whole: bool) -> Result:
        least = None if whole else EXCERPT_FROM_BYTES
        seen, where = taken(self._runtime, replace(result, pointer=copy), seed, least)
        now, _ = taken(self._runtime, result, seed, least)
        if copy != result.pointer:
            self._pool.give(copy)
        late = f"output {index} changed after the wrapper's stream was done: nothing waits for some of its work"
        _refuse("run", "unfinished-work", "" if np.array_equal(seen, now) else late)
        return TensorSpec(tuple(result.shape), result.dtype), seen, where


def _described(results: list[Result]) -> tuple[CudaAnswer, list[Array]]:
    specs, partial = tuple(spec for spec, _, _ in results), tuple(where is not None for _, _, where in results)
    return CudaAnswer(None, specs, partial), [part for result in results for part in result[1:] if part is not None]


def _compared(first: list[Result], last: list[Result]) -> tuple[CudaAnswer, list[Array]]:
    """The results of the second run, without the elements that neither has written."""
    same = [spec for spec, _, _ in first] == [spec for spec, _, _ in last]
    _refuse("verify", "unsteady", "" if same else "two runs of one call return different shapes or types")
    found: list[Result] = []
    for index, ((spec, one, _), (_, other, where)) in enumerate(zip(first, last, strict=True)):
        poisons = [np.full(one.itemsize, byte, np.uint8).view(one.dtype) for byte in POISONS]
        written = (one != poisons[0]) | (other != poisons[1])
        words = disagreement(one[written], other[written], spec.dtype)
        _refuse("verify", "unsteady", words and f"output {index}: two runs of one call differ in {words}")
        missing = int(np.count_nonzero(~written))
        words = f"output {index}: of {one.size} elements looked at, {missing} were never written"
        _refuse("verify", "unwritten", words if missing and where is not None else "")
        found.append((spec, other[written], np.flatnonzero(written)) if missing else (spec, other, where))
    answer, parts = _described(found)
    return replace(answer, excerpt=any(where is not None for _, _, where in last)), parts


def span(tensor: TensorValue) -> int:
    """Elements from a tensor's first to its last in memory."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides, strict=True))
    return 1 + reach if prod(tensor.shape) else 0


def taken(runtime: Runtime, tensor: TensorValue, seed: int, least: int | None) -> tuple[Array, Array | None]:
    """A tensor's bits in row-major order; from ``least`` bytes on, those of stretches all over it, and their places."""
    item, elements = ITEM_BYTES[tensor.dtype], prod(tensor.shape)
    length, apart = EXCERPT_BYTES // item // STRETCHES, elements // STRETCHES
    if least is None or elements * item < least or apart < length or span(tensor) != elements:
        memory = runtime.download(tensor.pointer, span(tensor) * item).view(f"u{item}")
        strides = [stride * item for stride in tensor.strides]
        return np.ascontiguousarray(np.lib.stride_tricks.as_strided(memory, tensor.shape, strides)).ravel(), None
    starts = np.arange(STRETCHES) * apart + np.random.default_rng(seed).integers(0, apart - length + 1, STRETCHES)
    starts[0], starts[-1] = 0, elements - length
    bits = [runtime.download(tensor.pointer + int(start) * item, length * item) for start in starts]
    return np.concatenate(bits).view(f"u{item}"), (starts[:, None] + np.arange(length)).ravel()


# --- how fast -------------------------------------------------------------------------------------


class Timekeeper:
    """Takes samples, one at each turn that the parent gives; between turns the GPU is idle.

    Before a sample, fresh values are copied in and the L2 is overwritten.  That work is queued like the rest, so the
    GPU is busy with it while the host submits the call; it is repeated until that is long enough.  Then the time
    between the events is the GPU's alone.  A wrapper that waits for the GPU is never ahead, and its waiting counts.
    """

    def __init__(self, job: CudaJob, runtime: Runtime, pool: Pool, subject: Wrapper | Torch) -> None:
        self._job, self._runtime, self._subject = job, runtime, subject
        self._feed = Feed(runtime, pool, job.calls[0].arguments)
        self._start, self._end = runtime.event(), runtime.event()
        self._flushed, self._flushes = runtime.allocate(job.flush_bytes), 1
        self._samples: list[Sample] = []
        self._kept: list[Result] = []

    def serve(self, folder: Path, channel: Channel) -> None:
        go, done = os.open(folder / GO, os.O_RDONLY), os.open(folder / DONE, os.O_WRONLY)
        failure = None
        while failure is None:
            what, rotation = TURN.unpack(os.read(go, TURN.size))
            if what == STOP:
                break
            try:
                self._turn(what == KEEP, rotation)
            except Exception as error:  # also whatever PyTorch's compiler raises
                kind = error.kind if isinstance(error, WrapperError) else "device-error"
                failure = Failure("time", kind, f"while it was timed: {type(error).__name__}: {error}")
            os.write(done, b"!" if failure else b".")
        answer, parts = _described(self._kept)
        _send(channel, replace(answer, failure=failure, samples=tuple(self._samples)), *parts)

    def _turn(self, keep: bool, rotation: int) -> None:
        runtime = self._runtime
        values = self._feed.fill(rotation)
        for byte in range(self._flushes):
            runtime.fill(self._flushed, byte, self._job.flush_bytes)
        runtime.record(self._start)
        results = self._subject(values, self._job.calls[0].outputs)
        runtime.record(self._end)
        ahead = not runtime.reached(self._start)
        runtime.wait(self._end)
        began_s = time.perf_counter()
        runtime.synchronize()
        after_s = time.perf_counter() - began_s
        for result in results if keep else ():
            spec = TensorSpec(tuple(result.shape), result.dtype)
            self._kept.append((spec, *taken(runtime, result, rotation, EXCERPT_FROM_BYTES)))
        self._subject.rest()
        if not ahead and len(self._samples) < SETTLING_TURNS:
            self._flushes = min(2 * self._flushes, MOST_FLUSHES)
        self._samples.append(Sample(runtime.between_s(self._start, self._end), ahead, after_s))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)
    os._exit(0)  # tensors that a candidate keeps must not be freed when Python is gone
