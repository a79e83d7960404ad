"""Tensors in the virtual GPU's memory, as PyTorch sees them.

A `DeviceTensor` has device ``cuda:0``, sizes and strides, and an address in the memory of another process, the worker.
PyTorch sees no memory behind it, so every operator that touches one is dispatched to `operators`.  `Memory` asks the
worker for everything that is done with the memory (`requests`).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import wraps
from math import prod
from typing import Any, ParamSpec, TypeVar

import torch

from cupilot.languages.modelnew.wire import Wire
from cupilot.records import ITEM_BYTES, Scalar
from cupilot.records.task import span_of
from cupilot.toolchain.abi import MAX_DIMENSIONS, TensorValue, WrapperError

GPU = torch.device("cuda", 0)
TYPES = {name: getattr(torch, name) for name in ITEM_BYTES}
NAMES = {dtype: name for name, dtype in TYPES.items()}


class Buffer:
    """A range of device memory; ``owned`` is freed with the last tensor that lies in it."""

    def __init__(self, memory: Memory, address: int, size: int, *, owned: bool) -> None:
        self.memory, self.address, self.size = memory, address, size
        if owned:
            weakref.finalize(self, memory.unused.append, address).atexit = False


class DeviceTensor(torch.Tensor):
    """``meta`` is a meta tensor that knows sizes, strides and offset in the ``buffer``."""

    meta: torch.Tensor
    buffer: Buffer

    @staticmethod
    def __new__(cls, meta: torch.Tensor, buffer: Buffer) -> DeviceTensor:
        made: DeviceTensor = torch.Tensor._make_wrapper_subclass(
            cls, meta.size(), strides=meta.stride(), storage_offset=meta.storage_offset(), dtype=meta.dtype, device=GPU
        )
        made.meta, made.buffer = meta, buffer
        return made

    # operators are dispatched as for any other tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        # reached where no mode is active, in another thread
        return _memory_of(args, kwargs or {}).operators.run(func, args, kwargs or {})

    # there is one GPU, so "cuda" without a number is where a tensor is already

    def cuda(self, *_: Any, **__: Any) -> DeviceTensor:
        return self

    def to(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return super().to(*map(_numbered, args), **{name: _numbered(value) for name, value in kwargs.items()})

    def data_ptr(self) -> int:
        return self.buffer.address + int(self.meta.storage_offset()) * self.meta.element_size()

    def __repr__(self, *, tensor_contents: Any = None) -> Any:  # type: ignore[override]
        return f"<tensor of {tuple(self.shape)}, {self.dtype}, {GPU}>"

    def value(self) -> TensorValue:
        """As the extension's functions take it."""
        if self.dtype not in NAMES or self.dim() > MAX_DIMENSIONS:
            raise TypeError(
                f"{self!r} cannot be passed to an extension: only up to {MAX_DIMENSIONS} dimensions of reals"
            )
        return TensorValue(self.data_ptr(), tuple(self.shape), tuple(self.stride()), NAMES[self.dtype])


def _numbered(value: Any) -> Any:
    """A device of CUDA's with its number; everything else stays."""
    return GPU if str(value).partition(":")[0] == GPU.type and isinstance(value, (str, torch.device)) else value


def _memory_of(args: Any, kwargs: Any) -> Memory:
    from torch.utils._pytree import tree_leaves

    found = next(leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, DeviceTensor))
    return found.buffer.memory


P = ParamSpec("P")
R = TypeVar("R")


def _unseen(function: Callable[P, R]) -> Callable[P, R]:
    """The function's own use of PyTorch is not dispatched to `Operators`."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with torch._C._DisableTorchDispatch():
            return function(*args, **kwargs)

    return call


class Memory:
    """Device memory for tensors; fills and copies are kernels of the glue library.

    ``operators`` decides what PyTorch's operators do with the tensors made here; ``unused`` are addresses to be freed
    with the next request, because tensors may be collected at any time.
    """

    def __init__(self, wire: Wire) -> None:
        self.operators: Any = None
        self.unused: list[int] = []
        self._wire = wire
        self._lock = threading.Lock()

    def ask(self, data: bytes | memoryview = b"", **record: Any) -> tuple[dict[str, Any], memoryview]:
        """Make a request to the worker and return its reply; raises a `WrapperError` when the reply is an error."""
        with self._lock:
            if self.unused:
                addresses, self.unused[:] = self.unused[:], ()
                self._asked({"do": "free", "addresses": addresses})
            return self._asked(record, data)

    def _asked(self, record: dict[str, Any], data: bytes | memoryview = b"") -> tuple[dict[str, Any], memoryview]:
        self._wire.send(record, data)
        reply, found = self._wire.receive()
        if "error" in reply:
            raise WrapperError(reply["error"], reply["message"])
        return reply, found

    @_unseen
    def borrowed(self, value: TensorValue) -> DeviceTensor:
        """A tensor in memory that the worker keeps."""
        return placed(Buffer(self, value.pointer, value.bytes, owned=False), value)

    @_unseen
    def empty(self, meta: torch.Tensor) -> DeviceTensor:
        """New, unwritten memory in the layout of a meta tensor."""
        if meta.dtype not in NAMES:
            raise TypeError(f"tensors of {meta.dtype} are not covered on the virtual GPU")
        strides = tuple(meta.stride())
        size = span_of(tuple(meta.shape), strides) * meta.element_size()
        buffer = Buffer(self, self.ask(do="allocate", size=size)[0]["address"], size, owned=True)
        alone = torch.empty_strided(tuple(meta.shape), strides, dtype=meta.dtype, device="meta")
        return DeviceTensor(alone, buffer)

    def fill(self, tensor: DeviceTensor, value: Scalar) -> None:
        name = "fill" if isinstance(value, float) else "fill_integer"
        self.ask(do="glue", name=name, values=[tensor.value(), value if isinstance(value, float) else int(value)])

    def copy(self, to: DeviceTensor, source: DeviceTensor) -> None:
        """From one layout and element type to another."""
        self.ask(do="glue", name="copy", values=[to.value(), source.value()])

    @_unseen
    def read(self, tensor: DeviceTensor, *, computing: bool = False) -> torch.Tensor:
        """The values, on the host; ``computing``: for an operator of PyTorch, which has no kernel here."""
        size = span_of(tuple(tensor.shape), tuple(tensor.stride())) * tensor.element_size()
        if not size:
            return torch.empty(tuple(tensor.shape), dtype=tensor.dtype)
        _, data = self.ask(do="read", address=tensor.data_ptr(), size=size, computing=computing)
        flat = torch.frombuffer(bytearray(data), dtype=tensor.dtype)
        return flat.as_strided(tuple(tensor.shape), tuple(tensor.stride()))

    @_unseen
    def write(self, tensor: DeviceTensor, values: torch.Tensor, *, computing: bool = False) -> None:
        """Values from the host into a tensor of the same sizes."""
        if tensor.numel() == 0:
            return
        if not is_dense(tuple(tensor.shape), tuple(tensor.stride())):
            self.copy(tensor, self.upload(values.contiguous(), computing=computing))
            return
        laid_out = torch.empty_strided(tuple(tensor.shape), tuple(tensor.stride()), dtype=tensor.dtype)
        laid_out.copy_(values.expand(tuple(tensor.shape)))
        flat = laid_out.as_strided((tensor.numel(),), (1,)).view(torch.uint8)
        self.ask(flat.numpy().data, do="write", address=tensor.data_ptr(), computing=computing)

    @_unseen
    def upload(self, values: torch.Tensor, *, computing: bool = False) -> DeviceTensor:
        """A new tensor with values from the host, in their layout if it is dense."""
        values = values.detach()
        dense = values if is_dense(tuple(values.shape), tuple(values.stride())) else values.contiguous()
        made = self.empty(torch.empty_strided(dense.shape, dense.stride(), dtype=dense.dtype, device="meta"))
        self.write(made, dense, computing=computing)
        return made


@_unseen
def placed(buffer: Buffer, value: TensorValue) -> DeviceTensor:
    """A tensor somewhere in a buffer."""
    dtype = TYPES[value.dtype]
    offset = (value.pointer - buffer.address) // dtype.itemsize
    whole = torch.empty((offset + value.span,), dtype=dtype, device="meta")
    return DeviceTensor(whole.as_strided(value.shape, value.strides, offset), buffer)


def is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the elements fill their span without gaps and without overlap."""
    step = 1
    for stride, size in sorted((stride, size) for size, stride in zip(shape, strides, strict=True) if size != 1):
        if stride != step:
            return prod(shape) == 0
        step *= size
    return True
