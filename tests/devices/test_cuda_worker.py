"""The worker of real GPUs, with a runtime that is a few lines of Python: what it finds, and how inputs are fed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cupilot.devices import cuda_worker
from cupilot.devices.cuda_probe import CudaError, Feed, Pool, rotated_bytes
from cupilot.devices.cuda_worker import CudaAnswer, Reference, Torch, Verifier, disagreement, taken
from cupilot.devices.job import JobArgument, JobCall
from cupilot.records import TensorSpec
from cupilot.toolchain.abi import TensorValue

pytestmark = pytest.mark.slow  # builds and worker processes by the dozen


class Memory:
    """A GPU's memory as an array; ``late`` is work that nobody waits for, done at the next synchronisation."""

    BASE = 1 << 40

    def __init__(self) -> None:
        self.bytes = np.zeros(1 << 22, np.uint8)
        self.top = 0
        self.error = ""
        self.broken = ""
        self.late: list[Any] = []

    def at(self, address: int, size: int) -> Any:
        return self.bytes[address - self.BASE :][:size]

    def floats(self, tensor: TensorValue) -> Any:
        return self.at(tensor.pointer, 4 * int(np.prod(tensor.shape))).view(np.float32)

    def allocate(self, size: int) -> int:
        if self.top + size > self.bytes.size:
            raise CudaError("out of memory")
        self.top += -(-size // 512) * 512
        return self.BASE + self.top - -(-size // 512) * 512

    def free(self, address: int) -> None: ...

    def upload(self, address: int, array: Any) -> None:
        self.at(address, array.nbytes)[:] = array

    def download(self, address: int, size: int) -> Any:
        return self.at(address, size).copy()

    def copy(self, to: int, source: int, size: int) -> None:
        self.at(to, size)[:] = self.at(source, size)

    def fill(self, address: int, byte: int, size: int) -> None:
        self.at(address, size)[:] = byte

    def take_error(self) -> str:
        error, self.error = self.error, ""
        return error

    def synchronize(self) -> None:
        for work in self.late:
            work()
        self.late = []
        if self.broken:
            raise CudaError(self.broken)


class Doubled:
    """A subject that doubles its input; ``act`` misbehaves."""

    def __init__(self, memory: Memory, pool: Pool, act: Any = None) -> None:
        self.memory, self.pool, self.act = memory, pool, act
        self.runs = 0

    def __call__(self, values: Any, outputs: Any) -> tuple[TensorValue, ...]:
        self.runs += 1
        result = TensorValue(self.pool.take(values[0].shape[0] * 4), values[0].shape, (1,), "float32")
        self.memory.floats(result)[:] = 2 * self.memory.floats(values[0])
        returned = self.act(self, values[0], result) if self.act is not None else None
        return (returned or result,)

    def rest(self) -> None: ...


def job_call(tmp_path: Path, elements: int = 100, **changes: Any) -> JobCall:
    file = tmp_path / f"values{elements}"
    np.arange(elements, dtype=np.float32).tofile(file)
    spec = TensorSpec((elements,))
    return JobCall("", (JobArgument(str(file), spec),), (spec,), **({"sample_budget": None} | changes))


def verify(tmp_path: Path, act: Any = None, **changes: Any) -> tuple[CudaAnswer, list[Any]]:
    memory = Memory()
    pool = Pool(memory)  # type: ignore[arg-type]
    verifier = Verifier(memory, pool, Doubled(memory, pool, act))  # type: ignore[arg-type]
    return verifier.answer(job_call(tmp_path, **changes))


def test_an_honest_subject_passes(tmp_path: Path) -> None:
    answer, (values,) = verify(tmp_path)
    assert (answer.failure, answer.partial, answer.excerpt) == (None, (False,), False)
    np.testing.assert_array_equal(values.view(np.float32), 2 * np.arange(100, dtype=np.float32))


def late(subject: Doubled, x: TensorValue, y: TensorValue) -> None:
    values = subject.memory.floats(y)
    right, values[50:] = values[50:].copy(), 0
    subject.memory.late.append(lambda: values[50:].__setitem__(slice(None), right))


def foreign(subject: Doubled, x: TensorValue, y: TensorValue) -> TensorValue:
    return replace(y, pointer=subject.memory.allocate(400))


def fail(subject: Doubled, x: TensorValue, y: TensorValue) -> None:
    subject.memory.error = "invalid configuration argument (error 9)"


def give_up(subject: Doubled, x: TensorValue, y: TensorValue) -> None:
    subject.memory.broken = "an illegal memory access was encountered (error 700)"


def race(subject: Doubled, x: TensorValue, y: TensorValue) -> None:
    subject.memory.floats(y)[7] += 40 * (subject.runs == 1)


def overwrite(subject: Doubled, x: TensorValue, y: TensorValue) -> None:
    subject.memory.floats(x)[99] += 1


@pytest.mark.parametrize(
    ("act", "kind", "words"),
    [
        (late, "unfinished-work", "output 0 changed after the wrapper's stream was done"),
        (foreign, "unsupported", "lies in no tensor's memory"),
        (fail, "launch-error", "invalid configuration argument"),
        (give_up, "device-error", "an illegal memory access"),
        (race, "unsteady", "1 of 100 elements, such as 54.0 and 14.0"),
        (overwrite, "input-changed", "changed its input 0"),
        (lambda s, x, y: x, "aliased-output", "lies in the memory of input 0"),
        (lambda s, x, y: replace(x, pointer=x.pointer + 8, shape=(50,)), "aliased-output", "of input 0"),
    ],
)
def test_misbehaviour_is_found(tmp_path: Path, act: Any, kind: str, words: str) -> None:
    answer, parts = verify(tmp_path, act)
    assert answer.failure is not None
    assert (answer.failure.kind, parts) == (kind, [])
    assert words in answer.failure.message


def test_rounding_in_another_order_is_no_race(tmp_path: Path) -> None:
    def wobble(subject: Doubled, x: TensorValue, y: TensorValue) -> None:
        subject.memory.floats(y)[:] *= 1 + 1e-6 * subject.runs

    assert verify(tmp_path, wobble)[0].failure is None


@pytest.mark.parametrize("poison", [0xFF, 0x55, 0x00])
def test_a_value_like_a_poison_is_not_taken_for_one(tmp_path: Path, poison: int) -> None:
    def write(subject: Doubled, x: TensorValue, y: TensorValue) -> None:
        subject.memory.at(y.pointer, 400)[:] = poison

    answer, _ = verify(tmp_path, write)
    assert (answer.failure, answer.partial) == (None, (False,)), "the two runs have different poisons"


def test_a_broken_gpu_answers_nothing_more(tmp_path: Path) -> None:
    memory = Memory()
    pool = Pool(memory)  # type: ignore[arg-type]
    subject = Doubled(memory, pool, give_up)
    verifier = Verifier(memory, pool, subject)  # type: ignore[arg-type]
    first, second = (verifier.answer(job_call(tmp_path))[0].failure for _ in range(2))
    assert first == second is not None
    assert subject.runs == 1


def test_of_large_results_excerpts_are_returned_and_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_worker, "EXCERPT_FROM_BYTES", 1 << 16)
    monkeypatch.setattr(cuda_worker, "EXCERPT_BYTES", 1 << 12)
    monkeypatch.setattr(cuda_worker, "STRETCHES", 8)
    elements = 100_003
    answer, (values, where) = verify(tmp_path, elements=elements, sample_budget=1)
    assert (answer.failure, answer.partial, answer.excerpt) == (None, (True,), True)
    assert (where[0], where[-1], where.size) == (0, elements - 1, 1024)
    assert (np.diff(where) > 0).all()
    np.testing.assert_array_equal(values.view(np.float32), 2 * where.astype(np.float32))
    again = verify(tmp_path, elements=elements, sample_budget=1)[1][1]
    assert not np.array_equal(where, again), "nobody knows the places before"

    def half(subject: Doubled, x: TensorValue, y: TensorValue) -> None:
        subject.memory.at(y.pointer, 4 * elements)[2 * elements :] = subject.pool.poison

    failure = verify(tmp_path, half, elements=elements, sample_budget=1)[0].failure
    assert failure is not None
    assert failure.kind == "unwritten"
    whole, (values,) = verify(tmp_path, elements=elements)
    assert (whole.excerpt, values.size) == (False, elements), "asked for in full, it comes in full"


def test_inputs_rotate_by_rows_and_tiles_repeat(tmp_path: Path) -> None:
    memory = Memory()
    pool = Pool(memory)  # type: ignore[arg-type]
    np.arange(12, dtype=np.float32).tofile(tmp_path / "matrix")
    np.arange(4, dtype=np.float32).tofile(tmp_path / "tile")
    arguments = (
        JobArgument(str(tmp_path / "matrix"), TensorSpec((1, 3, 4))),
        JobArgument(value=7),
        JobArgument(items=(JobArgument(str(tmp_path / "tile"), TensorSpec((11,))),)),
    )
    feed = Feed(memory, pool, arguments)  # type: ignore[arg-type]
    matrix, number, (row,) = feed.fill(4)
    assert number == 7
    assert memory.floats(matrix).tolist() == [4, 5, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3]
    assert memory.floats(row).tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2]
    assert feed.changed() is None
    other = feed.fill(1)[0]
    assert other.pointer != matrix.pointer, "never the same buffer twice in a row"
    memory.floats(feed.fill(0)[2][0])[9] = 5
    assert feed.changed() == 1
    assert rotated_bytes(TensorSpec(()), 4, 3) == 0, "one value cannot be rotated"


def test_the_pool_keeps_memory_as_pytorch_does_and_poisons_it() -> None:
    memory = Memory()
    pool = Pool(memory)  # type: ignore[arg-type]
    first = pool.take(100)
    pool.give(first)
    pool.poison = 0x55
    assert pool.take(90) == first, "of the same size after rounding"
    assert (memory.at(first, 90) == 0x55).all()
    assert pool.take_or_none(1 << 30) == 0, "no exception for C++"
    assert not pool.holds(first, 1000)
    pool.give(12345)  # a tensor made before the pool was there


def test_pytorch_looks_at_the_same_memory() -> None:
    source = "import torch\nclass Model(torch.nn.Module):\n    def __init__(self, n):\n        super().__init__()\n" \
             "        self.n = n\n    def forward(self, x, y):\n        return x * self.n + y\n" \
             "def get_init_inputs():\n    return [3]\n"  # fmt: skip
    x, y = np.arange(6, dtype=np.float32), np.array([1.5], np.float32)
    values = [TensorValue(a.ctypes.data, a.shape, (1,), "float32") for a in (x, y)]
    module = Torch(Reference(source), device="cpu")
    assert module(values, ()) == ()
    assert module.result.tolist() == (3 * x + 1.5).tolist()
    x += 1
    module(values, ())
    assert module.result[0] == 4.5, "it looks at the memory, it has no copy"
    half = Torch(Reference(source.replace("x * self.n + y", "x.reshape(1, 6) @ x.reshape(6, 1)"), "bf16"), device="cpu")
    half(values, ())
    assert str(half.result.dtype) == "torch.bfloat16", "a baseline of the same precision"


def test_how_results_differ() -> None:
    one, other = np.array([1, 2, 3], np.uint32), np.array([1, 2, 4], np.uint32)
    assert disagreement(one, other, "int32") == "1 of 3 elements, such as 3 and 4"
    nan, inf = (np.array([value, 1.0], np.float32).view(np.uint32) for value in (np.nan, np.inf))
    assert disagreement(nan, nan, "float32") == ""
    assert disagreement(nan, inf, "float32") == "1 of 2 elements, such as nan and inf"
    assert disagreement(one[:0], one[:0], "float32") == ""


def test_a_strided_result_comes_in_row_major_order() -> None:
    memory = Memory()
    address = memory.allocate(64)
    memory.at(address, 24).view(np.float32)[:] = range(6)
    bits, where = taken(memory, TensorValue(address, (2, 3), (1, 2), "float32"), 0, None)  # type: ignore[arg-type]
    assert (bits.view(np.float32).tolist(), where) == ([0, 2, 4, 1, 3, 5], None)
