"""``torch.cuda`` with the virtual GPU behind it, in a PyTorch that may have been built without CUDA.

Changes PyTorch for good, in the Python process alone.  There is one device and one stream: extensions launch on it
whatever stream Python chooses.  Events give modelled time.  CUDA graphs are not covered.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from cupilot.gpu import GpuSpec
from cupilot.languages.modelnew.tensors import Memory

# c10's table of what switches the current device, by type of device
GUARDS = "_ZN3c104impl26device_guard_impl_registryE"


def pretend_cuda(spec: GpuSpec, memory: Memory) -> None:
    """Make PyTorch believe that the device ``cuda`` exists."""
    Event.memory = memory
    torch.cuda._lazy_init = lambda: None
    _stand_in_for_guard()
    # torch.tensor(..., device="cuda") makes a tensor on the host and moves it, so that the move is seen
    torch._C._set_only_lift_cpu_tensors(True)
    for name, value in _replacements(spec).items():
        setattr(torch.cuda, name, value)
    torch.version.cuda = torch.version.cuda or "13.0"
    for space, names in ((torch, ("compile",)), (torch.jit, ("script", "trace"))):
        for name in names:
            setattr(space, name, _unchanged)


def _stand_in_for_guard() -> None:
    """Give CUDA the guard of a device type that has nothing to switch.

    A build without CUDA has none and would refuse to index or copy a tensor that says it is on such a device.
    """
    torch._C._ensureCUDADeviceGuardSet()
    kinds: Any = torch._C._autograd.DeviceType
    cuda, meta = int(kinds.CUDA), int(kinds.Meta)
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    table = (ctypes.c_void_p * (max(cuda, meta) + 1)).in_dll(library, GUARDS)
    table[cuda] = table[cuda] or table[meta]


def _unchanged(function: Any = None, *_: Any, **__: Any) -> Any:
    """``torch.compile`` and the like, as a function or as a decorator with options: the code runs as it is."""
    return function if function is not None else lambda later: later


class Stream:
    """The one stream."""

    cuda_stream = 0
    device = torch.device("cuda", 0)

    def __init__(self, *_: object, **__: object) -> None: ...

    def synchronize(self) -> None: ...

    def wait_stream(self, stream: object) -> None: ...

    def wait_event(self, event: object) -> None: ...

    def query(self) -> bool:
        return True

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record()
        return event


class Event:
    """A moment in the virtual GPU's modelled time."""

    memory: Memory  # of the process; set by `pretend_cuda`

    def __init__(self, *_: object, **__: object) -> None:
        self._number: int | None = None

    def record(self, stream: object = None) -> None:
        self._number = self.memory.ask(do="record")[0]["event"]

    def elapsed_time(self, end: Event) -> float:
        """Modelled milliseconds."""
        if self._number is None or end._number is None:
            raise RuntimeError("both events must have been recorded")
        found: float = self.memory.ask(do="elapsed", begin=self._number, end=end._number)[0]["ms"]
        return found

    def synchronize(self) -> None: ...

    def wait(self, stream: object = None) -> None: ...

    def query(self) -> bool:
        return True


class _Context:
    """``torch.cuda.device`` and ``torch.cuda.stream``: nothing to switch."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def _refused(what: str) -> Callable[..., Any]:
    def refuse(*_: object, **__: object) -> Any:
        raise RuntimeError(f"{what} is not covered on the virtual GPU")

    return refuse


@contextlib.contextmanager
def _region(*_: object, **__: object) -> Iterator[None]:
    yield


def _replacements(spec: GpuSpec) -> dict[str, Any]:
    capability = (int(spec.capability), round(spec.capability * 10) % 10)
    properties = SimpleNamespace(
        name=spec.title, major=capability[0], minor=capability[1], total_memory=spec.dram_bytes,
        multi_processor_count=spec.sms, max_threads_per_multi_processor=spec.threads_per_sm,
        max_threads_per_block=spec.threads_per_block, warp_size=32, regs_per_multiprocessor=spec.registers_per_sm,
        shared_memory_per_block=spec.shared_bytes_per_block, L2_cache_size=spec.l2_bytes,
        shared_memory_per_block_optin=spec.shared_bytes_per_block_optin, is_integrated=False, is_multi_gpu_board=False,
        shared_memory_per_multiprocessor=spec.shared_bytes_per_sm, clock_rate=int(spec.clock_hz / 1e3),
    )  # fmt: skip
    stream = Stream()

    def always(value: Any) -> Callable[..., Any]:
        return lambda *_, **__: value

    nothing = (
        "synchronize", "set_device", "set_stream", "empty_cache", "init", "ipc_collect", "manual_seed",
        "manual_seed_all", "seed", "seed_all", "reset_peak_memory_stats", "reset_max_memory_allocated",
    )  # fmt: skip
    no_bytes = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
    return {
        **{name: always(None) for name in nothing},
        **{name: always(0) for name in no_bytes},
        **{name: always(stream) for name in ("current_stream", "default_stream", "get_stream_from_external")},
        **{name: _refused(f"torch.cuda.{name}") for name in ("CUDAGraph", "graph", "make_graphed_callables")},
        "is_available": always(True), "is_initialized": always(True), "device_count": always(1),
        "current_device": always(0), "get_device_name": always(spec.title), "is_bf16_supported": always(True),
        "get_device_capability": always(capability), "get_device_properties": always(properties),
        "get_arch_list": always([f"sm_{capability[0]}{capability[1]}"]), "is_current_stream_capturing": always(False),
        "mem_get_info": always((spec.dram_bytes, spec.dram_bytes)),
        "Stream": Stream, "ExternalStream": Stream, "Event": Event, "device": _Context, "stream": _Context,
        "StreamContext": _Context, "device_of": _Context,
        "nvtx": SimpleNamespace(range_push=always(0), range_pop=always(0), mark=always(None), range=_region),
    }  # fmt: skip
