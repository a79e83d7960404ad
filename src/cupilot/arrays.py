"""Arrays as the program passes them around: element types by PyTorch's names, and arrays larger than memory.

bfloat16 is ``ml_dtypes``' NumPy type.  A `Tiled` array is an ordinary NumPy array whose memory shows pieces of one
small file in an order that only a key tells, so that a tensor of 17 GB costs what its tile costs; writing to it is
private to the process, and costs the pages that are written.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

PAGE = mmap.PAGESIZE
PIECES = 16
"""A piece of a file that memory shows in pieces is a so many-th of it."""
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
    """An array whose memory shows pieces of ``tile``; what is derived from it is an ordinary array."""

    tile: Array | None = None

    def __array_finalize__(self, other: object) -> None:
        self.tile = None


def tiled(tile: Array, shape: tuple[int, ...], key: int) -> Tiled:
    """An array of ``shape`` that shows pieces (see `_pieces`) of a flat ``tile``, which has a whole number of pages."""
    size = prod(shape) * tile.itemsize
    assert tile.ndim == 1
    assert tile.nbytes % PAGE == 0
    last = np.zeros(PAGE // 8, np.uint64)
    last[0] = key
    content = np.concatenate([tile.view(np.uint8), last.view(np.uint8)])
    with tempfile.TemporaryFile() as file:
        file.write(content.data)
        file.flush()
        found = _shown(file.fileno(), content.nbytes, size).view(tile.dtype).reshape(shape).view(Tiled)
    found.tile = content
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
    """An array of a file's bytes, none of which is read before it is used; of a shorter file its pieces (`_pieces`).

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
            raw = _shown(opened.fileno(), length, size)
    found = raw.view(dtype).reshape(shape).view(Filed)
    found.file = file
    return found


def _pieces(key: int, length: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Which parts of a file stand where in memory that is larger than it: position, number of bytes, place in the file.

    The last page of the file is not shown: it starts with a key.  A hash of the key and of a piece's number says where
    in the file the piece begins, so that none of it can be told from what came before, and nobody has to store it.
    The virtual GPU's runtime (``allocations.cpp``) does the same.
    """
    pages = length // PAGE - 1
    piece = max(1, pages // PIECES)
    for number, at in enumerate(range(0, size, piece * PAGE)):
        z = (key + (number + 1) * 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        yield at, min(piece * PAGE, size - at), (z ^ z >> 31) % (pages - piece + 1) * PAGE


def _shown(descriptor: int, length: int, size: int) -> Array:
    """Memory of a size that shows a file, or pieces of a file that is shorter."""
    whole = -(-size // PAGE) * PAGE
    pieces: Iterable[tuple[int, int, int]] = [(0, whole, 0)]
    if length < size:
        if length < 2 * PAGE:
            raise ValueError(f"a file of {length} bytes has no pieces")
        pieces = _pieces(int.from_bytes(os.pread(descriptor, 8, length - PAGE), "little"), length, whole)
    region = _Region(descriptor, pieces, whole)
    raw: Any = (ctypes.c_uint8 * size).from_address(region.address)
    raw._region = region  # the mapping lives as long as the array that shows it
    return np.frombuffer(raw, dtype=np.uint8)


class _Region:
    """Pieces of one file mapped into one range of addresses."""

    def __init__(self, descriptor: int, pieces: Iterable[tuple[int, int, int]], size: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._map, self._unmap = libc.mmap, libc.munmap
        self._map.restype = ctypes.c_void_p
        self._map.argtypes = (
            ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
        )  # fmt: skip
        self._unmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        self.size = size
        access, private, fixed, lazy = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE, 0x10, 0x4000
        self.address = self._address(self._map(None, self.size, access, private | mmap.MAP_ANONYMOUS | lazy, -1, 0))
        for start, length, place in pieces:
            self._address(self._map(self.address + start, length, access, private | fixed | lazy, descriptor, place))

    @staticmethod
    def _address(result: int | None) -> int:
        if result is None or result == ctypes.c_void_p(-1).value:
            raise MemoryError(f"no room for a tensor's addresses: {os.strerror(ctypes.get_errno())}")
        return result

    def __del__(self) -> None:
        if hasattr(self, "address"):
            self._unmap(self.address, self.size)
