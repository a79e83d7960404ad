"""CUDA's libraries on this machine, through ctypes: the driver, the runtime with its memory, and NVML.

Nothing here needs a compiler or PyTorch, and a library that is missing is an answer in words, not a crash.  Numbers of
attributes and errors are those of ``cuda.h``, ``driver_types.h`` and ``nvml.h``, which do not change them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from cupilot.arrays import Array
from cupilot.devices.job import JobArgument
from cupilot.errors import MachineError
from cupilot.records import ITEM_BYTES, TensorSpec
from cupilot.toolchain.abi import TensorValue

DRIVER, NVML = "libcuda.so.1", "libnvidia-ml.so.1"
ATTRIBUTES = {
    "MAX_THREADS_PER_BLOCK": 1, "MAX_SHARED_MEMORY_PER_BLOCK": 8, "CLOCK_RATE": 13, "MULTIPROCESSOR_COUNT": 16,
    "MEMORY_CLOCK_RATE": 36, "GLOBAL_MEMORY_BUS_WIDTH": 37, "L2_CACHE_SIZE": 38, "MAX_THREADS_PER_MULTIPROCESSOR": 39,
    "COMPUTE_CAPABILITY_MAJOR": 75, "COMPUTE_CAPABILITY_MINOR": 76, "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 81,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 82, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 97,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 106,
}  # fmt: skip
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3
NOT_READY = 600
ALIGNMENT = 512
LARGE_BYTES = 1 << 30

State = tuple[tuple[str, float], ...]


class CudaError(MachineError):
    """A call of CUDA that failed; after most of them the process can do nothing more on the GPU."""


# --- the driver and its GPUs ----------------------------------------------------------------------


@dataclass(frozen=True)
class Gpu:
    """What the driver says of a GPU; ``attributes`` by the names of cuda.h without their common beginning."""

    index: int
    name: str
    uuid: str
    memory_bytes: int
    attributes: tuple[tuple[str, int], ...]

    def __getitem__(self, attribute: str) -> int:
        return dict(self.attributes)[attribute]

    @property
    def capability(self) -> float:
        return self["COMPUTE_CAPABILITY_MAJOR"] + self["COMPUTE_CAPABILITY_MINOR"] / 10


@dataclass(frozen=True)
class Found:
    """The driver: where it is, the CUDA release it is for (such as 13000), its GPUs; or what is in the way."""

    library: str = ""
    version: int = 0
    gpus: tuple[Gpu, ...] = ()
    problem: str = ""


def find_gpus(library: str = DRIVER) -> Found:
    """Ask the driver; makes no context, so it costs no memory on the GPU."""
    try:
        driver = ctypes.CDLL(library)
    except OSError:
        return Found(problem=f"no CUDA GPU was found ({Path(library).name} is not installed)")
    version, count = ctypes.c_int(), ctypes.c_int()
    status = driver.cuInit(0)
    if status:
        return Found(library, problem=f"the CUDA driver does not start: {_driver_error(driver, status)}")
    driver.cuDriverGetVersion(ctypes.byref(version))
    driver.cuDeviceGetCount(ctypes.byref(count))
    where = loaded_from(Path(library).name) or library
    try:
        gpus = tuple(_gpu(driver, index) for index in range(count.value))
    except CudaError as error:
        return Found(where, version.value, problem=str(error))
    return Found(where, version.value, gpus, "" if gpus else "no CUDA GPU was found (the driver knows of none)")


def _gpu(driver: ctypes.CDLL, index: int) -> Gpu:
    def ask(function: str, *arguments: object) -> None:
        status = getattr(driver, function)(*arguments)
        if status:
            raise CudaError(f"the CUDA driver does not answer {function}: {_driver_error(driver, status)}")

    device, memory, value = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_int()
    name, uuid = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16)
    ask("cuDeviceGet", ctypes.byref(device), index)
    ask("cuDeviceGetName", name, 256, device)
    ask("cuDeviceGetUuid", uuid, device)
    ask("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    attributes = []
    for key, number in ATTRIBUTES.items():
        ask("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        attributes.append((key, value.value))
    return Gpu(index, name.value.decode(), f"GPU-{UUID(bytes=uuid.raw)}", memory.value, tuple(attributes))


def _driver_error(driver: ctypes.CDLL, status: int) -> str:
    text = ctypes.c_char_p()
    driver.cuGetErrorString(status, ctypes.byref(text))
    return f"{(text.value or b'unknown').decode()} (error {status})"


def loaded_from(name: str) -> str:
    """The file that a library of this process was loaded from; nothing when it is not there."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if path.rpartition("/")[2].startswith(name):
            return f"/{path}"
    return ""


# --- the runtime ----------------------------------------------------------------------------------


class Runtime:
    """CUDA's runtime in this process; work is queued on the default stream, and every call is checked."""

    def __init__(self, path: Path) -> None:
        try:
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise CudaError(f"the CUDA runtime cannot be loaded: {error}") from None
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        for name, arguments in (
            ("cudaMalloc", (pointer, size)), ("cudaFree", (pointer,)), ("cudaMemcpy", (pointer, pointer, size, number)),
            ("cudaMemcpyAsync", (pointer, pointer, size, number, pointer)),
            ("cudaMemsetAsync", (pointer, number, size, pointer)), ("cudaDeviceSynchronize", ()),
            ("cudaMemGetInfo", (pointer, pointer)), ("cudaEventCreate", (pointer,)), ("cudaGetLastError", ()),
            ("cudaEventRecord", (pointer, pointer)), ("cudaEventQuery", (pointer,)),
            ("cudaEventSynchronize", (pointer,)), ("cudaEventElapsedTime", (pointer, pointer, pointer)),
        ):  # fmt: skip
            getattr(self._library, name).argtypes = arguments
        self._library.cudaGetErrorString.restype = ctypes.c_char_p

    def _do(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise CudaError(f"{name} failed: {self._words(status)}")

    def _words(self, status: int) -> str:
        return f"{self._library.cudaGetErrorString(status).decode()} (error {status})"

    def allocate(self, size: int) -> int:
        address = ctypes.c_void_p()
        self._do("cudaMalloc", ctypes.byref(address), max(size, 1))
        return address.value or 0

    def free(self, address: int) -> None:
        self._do("cudaFree", address)

    def upload(self, address: int, array: Array) -> None:
        self._do("cudaMemcpy", address, np.ascontiguousarray(array).ctypes.data, array.nbytes, HOST_TO_DEVICE)

    def download(self, address: int, size: int) -> Array:
        """Bytes, after everything that was queued before."""
        array = np.empty(size, np.uint8)
        if size:
            self._do("cudaMemcpy", array.ctypes.data, address, size, DEVICE_TO_HOST)
        return array

    def copy(self, to: int, source: int, size: int) -> None:
        if size:
            self._do("cudaMemcpyAsync", to, source, size, DEVICE_TO_DEVICE, None)

    def fill(self, address: int, byte: int, size: int) -> None:
        if size:
            self._do("cudaMemsetAsync", address, byte, size, None)

    def synchronize(self) -> None:
        self._do("cudaDeviceSynchronize")

    def take_error(self) -> str:
        """The error of a launch that nobody has asked for, or nothing; asking clears it."""
        status = self._library.cudaGetLastError()
        return self._words(status) if status else ""

    def event(self) -> int:
        event = ctypes.c_void_p()
        self._do("cudaEventCreate", ctypes.byref(event))
        return event.value or 0

    def record(self, event: int) -> None:
        self._do("cudaEventRecord", event, None)

    def reached(self, event: int) -> bool:
        """Whether the GPU has come as far as the event."""
        status = self._library.cudaEventQuery(event)
        if status not in (0, NOT_READY):
            raise CudaError(f"cudaEventQuery failed: {self._words(status)}")
        return bool(status == 0)

    def wait(self, event: int) -> None:
        self._do("cudaEventSynchronize", event)

    def between_s(self, start: int, end: int) -> float:
        elapsed_ms = ctypes.c_float()
        self._do("cudaEventElapsedTime", ctypes.byref(elapsed_ms), start, end)
        return elapsed_ms.value * 1e-3


# --- device memory --------------------------------------------------------------------------------


class Pool:
    """Memory for tensors, kept for the next one of its size, as PyTorch keeps it; ``poison`` fills what is taken."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._free: dict[int, list[int]] = {}
        self._used: dict[int, int] = {}
        self.poison: int | None = None

    def take(self, size: int) -> int:
        whole = -(-size // ALIGNMENT) * ALIGNMENT
        waiting = self._free.get(whole)
        address = waiting.pop(0) if waiting else self._fresh(whole)
        if self.poison is not None:
            self._runtime.fill(address, self.poison, whole)
        self._used[address] = whole
        return address

    def take_or_none(self, size: int) -> int:
        """For callers in C++, where no exception may arrive: 0 when there is no memory."""
        try:
            return self.take(size)
        except CudaError:
            return 0

    def _fresh(self, whole: int) -> int:
        try:
            return self._runtime.allocate(whole)
        except CudaError:
            self._runtime.take_error()
            for address in (address for kept in self._free.values() for address in kept):
                self._runtime.free(address)
            self._free.clear()
            return self._runtime.allocate(whole)

    def give(self, address: int) -> None:
        whole = self._used.pop(address, None)
        if whole is not None:
            self._free.setdefault(whole, []).append(address)

    def holds(self, address: int, size: int) -> bool:
        return any(start <= address and address + size <= start + whole for start, whole in self._used.items())


class Feed:
    """Arguments in device memory; each filling rotates the values and goes to other buffers than the one before.

    Tensors of gigabytes have one buffer only.
    """

    COPIES = 2

    def __init__(self, runtime: Runtime, pool: Pool, arguments: Sequence[JobArgument]) -> None:
        self._runtime, self._pool, self._arguments = runtime, pool, arguments
        self._sources: dict[str, int] = {}
        self._targets: dict[tuple[int, int], int] = {}
        self._filled: list[tuple[int, JobArgument, int]] = []
        self._turn = 0

    def fill(self, rotation: int) -> list[Any]:
        """Values for the wrapper; queued, not waited for."""
        self._turn += 1
        self._filled = []
        return [self._value(argument, rotation) for argument in self._arguments]

    def _value(self, argument: JobArgument, rotation: int) -> Any:
        if argument.items is not None:
            return [self._value(item, rotation) for item in argument.items]
        if argument.tensor is None:
            return argument.value
        spec, copies = argument.tensor, self.COPIES if argument.tensor.bytes < LARGE_BYTES else 1
        key = (len(self._filled), self._turn % copies)
        period = min(Path(argument.file).stat().st_size, spec.bytes)
        if key not in self._targets:
            self._targets[key] = self._pool.take(spec.bytes)
        if argument.file not in self._sources:
            self._sources[argument.file] = self._pool.take(period)
            self._runtime.upload(self._sources[argument.file], np.fromfile(argument.file, np.uint8, period))
        to, shift = self._targets[key], rotated_bytes(spec, period, rotation)
        self._filled.append((to, argument, shift))
        source, done = self._sources[argument.file], period
        self._runtime.copy(to, source + shift, period - shift)
        self._runtime.copy(to + period - shift, source, shift)
        while done < spec.bytes:  # a tile repeats
            self._runtime.copy(to + done, to, min(done, spec.bytes - done))
            done *= 2
        return TensorValue.dense(to, spec)

    def changed(self) -> int | None:
        """The number of the first tensor that does not hold what was filled in."""
        for number, (address, argument, shift) in enumerate(self._filled):
            size = argument.tensor.bytes if argument.tensor is not None else 0
            given = np.roll(np.fromfile(argument.file, np.uint8, size), -shift)
            for start in range(0, size, max(given.size, 1)):
                now = self._runtime.download(address + start, min(given.size, size - start))
                if not np.array_equal(now, given[: now.size]):
                    return number
        return None

    def holding(self, pointer: int) -> int | None:
        """The number of the tensor that an address lies in."""
        sizes = [(to, argument.tensor.bytes if argument.tensor is not None else 0) for to, argument, _ in self._filled]
        return next((number for number, (to, size) in enumerate(sizes) if 0 <= pointer - to < size), None)

    def give_back(self) -> None:
        for address in (*self._sources.values(), *self._targets.values()):
            self._pool.give(address)


def rotated_bytes(spec: TensorSpec, period: int, rotation: int) -> int:
    """How far a rotation moves a tensor's values: whole rows of its first axis, so that rows stay what they are."""
    row = next((prod(spec.shape[axis + 1 :]) for axis, length in enumerate(spec.shape) if length > 1), 0)
    row = 1 if period < spec.bytes else row  # a tile knows no rows
    return rotation * row * ITEM_BYTES[spec.dtype] % period if period else 0


# --- clocks, temperature, power -------------------------------------------------------------------


class Nvml:
    """NVIDIA's management library: the state that a GPU is in."""

    def __init__(self, library: str = NVML) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError:
            raise MachineError(f"{Path(library).name} is not installed") from None
        self._library.nvmlErrorString.restype = ctypes.c_char_p
        status = self._library.nvmlInit_v2()
        if status:
            raise MachineError(f"NVML does not start: {self._library.nvmlErrorString(status).decode()}")

    def driver(self) -> str:
        """The driver's own version, such as 580.65.06."""
        text = ctypes.create_string_buffer(96)
        return "" if self._library.nvmlSystemGetDriverVersion(text, 96) else text.value.decode()

    def state(self, uuid: str) -> State:
        """What the GPU tells; what it does not tell (many laptops know no power limit) is left out."""
        device = ctypes.c_void_p()
        if self._library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(device)):
            return ()
        short, long = ctypes.c_uint, ctypes.c_ulonglong
        questions: Sequence[tuple[str, float, str, tuple[int, ...], type[ctypes.c_uint] | type[ctypes.c_ulonglong]]] = (
            ("sm_clock_hz", 1e6, "nvmlDeviceGetClockInfo", (1,), short),
            ("memory_clock_hz", 1e6, "nvmlDeviceGetClockInfo", (2,), short),
            ("highest_sm_clock_hz", 1e6, "nvmlDeviceGetMaxClockInfo", (1,), short),
            ("temperature_c", 1.0, "nvmlDeviceGetTemperature", (0,), short),
            ("power_w", 1e-3, "nvmlDeviceGetPowerUsage", (), short),
            ("power_limit_w", 1e-3, "nvmlDeviceGetPowerManagementLimit", (), short),
            ("throttle_reasons", 1.0, "nvmlDeviceGetCurrentClocksThrottleReasons", (), long),
        )
        found = []
        for name, unit, function, arguments, kind in questions:
            value = kind()
            ask = getattr(self._library, function, None)
            if ask is not None and not ask(device, *arguments, ctypes.byref(value)):
                found.append((name, value.value * unit))
        return tuple(found)
