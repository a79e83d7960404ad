"""Arrays as the program passes them around: element types by PyTorch's names, and arrays larger than memory.

bfloat16 is ``ml_dtypes``' NumPy type.  A `Tiled` array is an ordinary NumPy array whose memory shows one
small file over and over, so that a tensor of 17 GB costs what its tile costs; writing to it is private to
the process, and costs the pages that are written.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

PAGE = mmap.PAGESIZE
UNSTEADY = 0.05
"""How far two runs may differ, relative to the magnitude; the order of additions stays below, a race does not."""


def dtype_of(name: str) -> np.dtype[Any]:
    """NumPy's element type for PyTorch's name of it."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def is_floating(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype == ml_dtypes.bfloat16


def float_limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Half the distance from one to the next number, and the smallest number that devices do not flush to zero."""
    kind: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    flushed = dtype != np.float16  # GPUs keep the denormal numbers of fp16
    return float(kind.eps) / 2, float(kind.tiny if flushed else kind.smallest_subnormal)


def disagreement(one: Array, other: Array, dtype: str) -> str:
    """How two runs' results (as bits) differ beyond the order of additions, in words; nothing if they do not."""
    apart, kind = np.flatnonzero(one != other), dtype_of(dtype)
    if apart.size and is_floating(kind):
        a, b, every = (v.view(kind).astype(np.float64) for v in (one[apart], other[apart], other))
        finite = every[np.isfinite(every)]
        size = np.sqrt(np.mean(np.square(finite))) if finite.size else 0.0
        with np.errstate(invalid="ignore"):
            near = np.abs(a - b) <= UNSTEADY * np.maximum(np.maximum(np.abs(a), np.abs(b)), size)
        apart = apart[~(near | (np.isnan(a) & np.isnan(b)))]
    if not apart.size:
        return ""
    pair = " and ".join(f"{values.view(kind)[apart[0]]}" for values in (one, other))
    return f"{apart.size} of {one.size} elements, such as {pair}"


class Tiled(np.ndarray[Any, Any]):
    """An array whose memory repeats ``tile``; what is derived from it is an ordinary array."""

    tile: Array | None = None

    def __array_finalize__(self, other: object) -> None:
        self.tile = None


def tiled(tile: Array, shape: tuple[int, ...]) -> Tiled:
    """An array of ``shape`` that repeats a flat ``tile``, whose size is a whole number of pages."""
    size = prod(shape) * tile.itemsize
    assert tile.ndim == 1
    assert tile.nbytes % PAGE == 0
    with tempfile.TemporaryFile() as file:
        file.write(tile.tobytes())
        file.flush()
        found = _repeated(file.fileno(), tile.nbytes, size).view(tile.dtype).reshape(shape).view(Tiled)
    found.tile = tile
    return found


class Filed(np.ndarray[Any, Any]):
    """An array whose memory is a mapped file; what is derived from it is an ordinary array."""

    file: Path | None = None

    def __array_finalize__(self, other: object) -> None:
        self.file = None


def strides_of(array: Array) -> tuple[int, ...]:
    """Strides in elements; none of an array that is dense and row-major."""
    return () if array.flags.c_contiguous else tuple(stride // array.itemsize for stride in array.strides)


def memory_of(array: Array) -> Array:
    """The bytes from an array's first element to its last, whatever lies between them; strides are not negative."""
    if array.flags.c_contiguous:
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    steps = zip(array.shape, array.strides, strict=True)
    span = 1 + sum((size - 1) * stride for size, stride in steps) // array.itemsize if array.size else 0
    flat = np.lib.stride_tricks.as_strided(array, (span,), (array.itemsize,), writeable=False)
    return np.ascontiguousarray(flat).view(np.uint8)


def filed(file: Path, shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...] = ()) -> Filed:
    """An array of a file's bytes, none of which is read before it is used; a shorter file is repeated.

    Of a strided array (strides in elements) the file has all bytes from the first element to the last.
    """
    if strides:
        span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) if prod(shape) else 0
        steps = tuple(stride * dtype.itemsize for stride in strides)
        found = np.lib.stride_tricks.as_strided(filed(file, (span,), dtype), shape, steps).view(Filed)
        found.file = file
        return found
    size = prod(shape) * dtype.itemsize
    with open(file, "rb") as opened:
        length = os.fstat(opened.fileno()).st_size
        if length < size and (not length or length % PAGE):
            raise ValueError(f"{file} has {length} bytes, and the array {size}")
        raw: Array = np.empty(0, np.uint8)
        if size:
            raw = _repeated(opened.fileno(), length if length < size else -(-size // PAGE) * PAGE, size)
    found = raw.view(dtype).reshape(shape).view(Filed)
    found.file = file
    return found


def _repeated(descriptor: int, tile_bytes: int, size: int) -> Array:
    region = _Region(descriptor, tile_bytes, size)
    raw: Any = (ctypes.c_uint8 * size).from_address(region.address)
    raw._region = region  # the mapping lives as long as the array that shows it
    return np.frombuffer(raw, dtype=np.uint8)


class _Region:
    """One file mapped over and over into one range of addresses."""

    def __init__(self, descriptor: int, tile_bytes: int, size: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._map, self._unmap = libc.mmap, libc.munmap
        self._map.restype = ctypes.c_void_p
        self._map.argtypes = (
            ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
        )  # fmt: skip
        self._unmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        self.size = -(-size // PAGE) * PAGE
        access, private, fixed, lazy = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE, 0x10, 0x4000
        self.address = self._address(self._map(None, self.size, access, private | mmap.MAP_ANONYMOUS | lazy, -1, 0))
        for start in range(0, self.size, tile_bytes):
            length = min(tile_bytes, self.size - start)
            self._address(self._map(self.address + start, length, access, private | fixed | lazy, descriptor, 0))

    @staticmethod
    def _address(result: int | None) -> int:
        if result is None or result == ctypes.c_void_p(-1).value:
            raise MemoryError(f"no room for a tensor's addresses: {os.strerror(ctypes.get_errno())}")
        return result

    def __del__(self) -> None:
        if hasattr(self, "address"):
            self._unmap(self.address, self.size)
