"""Calls the wrappers of a built candidate: the Python mirror of ``include/cupilot/abi.h``.

Imports nothing heavy, because it runs in worker processes.  The CUDA runtime must be in the process already
(loaded with global symbols) unless the library was linked with one.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cupilot.errors import CupilotError
from cupilot.records import ITEM_BYTES, Scalar, TensorSpec
from cupilot.records.task import dense_strides, span_of

MAX_DIMENSIONS = 8
MAX_RESULTS = 32
ERROR_BYTES = 4096

TAKE, GIVE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t), ctypes.CFUNCTYPE(None, ctypes.c_void_p)

NONE, TENSOR, INT, DOUBLE, BOOL, STRING, LIST = range(7)

# PyTorch's numbers of element types, as in scalar_types.h
DTYPE_CODES = {
    "uint8": 0, "int8": 1, "int16": 2, "int32": 3, "int64": 4,
    "float16": 5, "float32": 6, "float64": 7, "bool": 11, "bfloat16": 15,
}  # fmt: skip
DTYPE_NAMES = {code: name for name, code in DTYPE_CODES.items()}
assert set(DTYPE_CODES) == set(ITEM_BYTES)


class WrapperError(CupilotError):
    """A call that did not succeed.

    ``kind`` is ``wrapper-error`` (the wrapper threw), ``no-such-entry``, ``arguments`` (they do not fit the
    signature) or ``load`` (the library cannot be loaded into this process).
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


@dataclass(frozen=True)
class TensorValue:
    """A tensor in device memory that somebody else owns; strides in elements."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @classmethod
    def at(cls, pointer: int, spec: TensorSpec) -> TensorValue:
        """With the strides of its specification, which are row-major if it has none."""
        return cls(pointer, spec.shape, spec.strides or dense_strides(spec.shape), spec.dtype)

    @classmethod
    def dense(cls, pointer: int, spec: TensorSpec) -> TensorValue:
        """Row-major."""
        return cls(pointer, spec.shape, dense_strides(spec.shape), spec.dtype)

    @property
    def span(self) -> int:
        """Elements from the first to the last."""
        return span_of(self.shape, self.strides)

    @property
    def bytes(self) -> int:
        """From the first element to the last."""
        return self.span * ITEM_BYTES[self.dtype]


Item = TensorValue | Scalar | None
Value = Item | Sequence[Item]


class _Value(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("ndim", ctypes.c_int64),
        ("sizes", ctypes.c_int64 * MAX_DIMENSIONS),
        ("strides", ctypes.c_int64 * MAX_DIMENSIONS),
        ("data", ctypes.c_void_p),
        ("i", ctypes.c_int64),
        ("d", ctypes.c_double),
        ("s", ctypes.c_char_p),
    )


WrapperValue = _Value


def encode_value(value: Value) -> bytes:
    """A value with what it refers to behind it: for wrappers in another process (vgpu/host/main.cpp)."""
    if isinstance(value, TensorValue) or not isinstance(value, list | tuple):
        coded = _encode(value, [])
        text = value.encode() if isinstance(value, str) else b""
        if isinstance(value, str):
            coded = _Value(kind=STRING, i=len(text))
        return bytes(coded) + text
    return bytes(_Value(kind=LIST, i=len(value))) + b"".join(map(encode_value, value))


class Library:
    """A built candidate in this process.  Results stay valid until `release`."""

    def __init__(self, path: Path) -> None:
        try:
            self._library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            raise WrapperError("load", f"the library cannot be loaded: {error}") from None
        self._entries = self._library.cupilot_entries
        self._entries.argtypes = ()
        self._entries.restype = ctypes.c_char_p
        self._call = self._library.cupilot_call
        self._call.argtypes = (
            ctypes.c_char_p, ctypes.POINTER(_Value), ctypes.c_int, ctypes.POINTER(_Value), ctypes.c_int,
            ctypes.POINTER(ctypes.c_int), ctypes.c_char_p, ctypes.c_size_t,
        )  # fmt: skip
        self._call.restype = ctypes.c_int
        self._release = self._library.cupilot_release
        self._release.argtypes = ()
        self._release.restype = None

    def allocate_with(self, take: Callable[[int], int], give: Callable[[int], None]) -> None:
        """Let tensors live in memory from ``take``, which gives 0 when there is none; neither may raise."""
        self._allocator = TAKE(take), GIVE(give)  # callbacks must outlive their use
        self._library.cupilot_allocator(*self._allocator)

    def entries(self) -> tuple[tuple[str, str], ...]:
        """Names and signatures, such as ``("forward", "(Tensor, int) -> Tensor")``."""
        listing = self._entries().decode()
        return tuple(
            (name, signature) for name, _, signature in (line.partition("\t") for line in listing.splitlines())
        )

    def call(self, name: str, values: Sequence[Value]) -> tuple[TensorValue, ...]:
        """Call a wrapper; raises `WrapperError` with its message when it throws."""
        kept: list[object] = []
        arguments = (_Value * len(values))(*(_encode(value, kept) for value in values))
        results = (_Value * MAX_RESULTS)()
        count = ctypes.c_int()
        error = ctypes.create_string_buffer(ERROR_BYTES)
        status = self._call(
            name.encode(), arguments, len(values), results, MAX_RESULTS, ctypes.byref(count), error, ERROR_BYTES
        )
        if status == 0:
            return tuple(_decode(results[i]) for i in range(count.value))
        message = error.value.decode(errors="replace").strip()
        if status == 1:
            raise WrapperError("wrapper-error", message)
        known = any(name == entry for entry, _ in self.entries())
        raise WrapperError("arguments" if known else "no-such-entry", message)

    def release(self) -> None:
        """Drop the results of all calls so far."""
        self._release()


def _encode(value: Value, kept: list[object]) -> _Value:
    """``kept`` gets the memory that the result refers to."""
    if isinstance(value, TensorValue):
        return _encode_tensor(value)
    if value is None or isinstance(value, bool | int | float | str):
        return _encode_scalar(value)
    items = (_Value * len(value))(*(_encode(item, kept) for item in value))
    kept.append(items)
    return _Value(kind=LIST, data=ctypes.addressof(items), i=len(value))


def _encode_scalar(value: Scalar | None) -> _Value:
    if value is None:
        return _Value(kind=NONE)
    if isinstance(value, bool):
        return _Value(kind=BOOL, i=value)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise WrapperError("arguments", f"the integer {value} does not fit 64 bits")
        return _Value(kind=INT, i=value)
    return _Value(kind=DOUBLE, d=value) if isinstance(value, float) else _Value(kind=STRING, s=value.encode())


def _encode_tensor(tensor: TensorValue) -> _Value:
    rank = len(tensor.shape)
    if rank > MAX_DIMENSIONS or len(tensor.strides) != rank or tensor.dtype not in DTYPE_CODES:
        raise WrapperError(
            "arguments", f"{tensor} cannot be passed: at most {MAX_DIMENSIONS} dimensions and known types"
        )
    sizes = (ctypes.c_int64 * MAX_DIMENSIONS)(*tensor.shape)
    strides = (ctypes.c_int64 * MAX_DIMENSIONS)(*tensor.strides)
    return _Value(
        kind=TENSOR, dtype=DTYPE_CODES[tensor.dtype], ndim=rank, sizes=sizes, strides=strides, data=tensor.pointer
    )


def _decode(value: _Value) -> TensorValue:
    rank = value.ndim
    return TensorValue(
        value.data or 0, tuple(value.sizes[:rank]), tuple(value.strides[:rank]), DTYPE_NAMES[value.dtype]
    )
