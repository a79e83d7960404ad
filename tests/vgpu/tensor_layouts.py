"""Fragments of `mma` as the PTX ISA documents them, shape by shape, and numpy references for the products.

Written from the formulas in "Matrix Fragments for mma.*", element by element; the engine uses one rule for all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1,
        "f64": 64, "f32": 32, "s32": 32}  # fmt: skip
Place = Callable[[int, int, int], tuple[int, int]]  # (groupID, threadID_in_group, i) -> (row, column)

A_PLACES: dict[tuple[int, str], Place] = {
    (16, "m16n8k8"): lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
    (16, "m16n8k16"): lambda g, t, i: (
        g if i < 2 or 4 <= i < 6 else g + 8,
        t * 2 + (i & 1) + (8 if i >= 4 else 0),
    ),
    (32, "m16n8k4"): lambda g, t, i: (g if i == 0 else g + 8, t),
    (32, "m16n8k8"): lambda g, t, i: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4),
    (64, "m8n8k4"): lambda g, t, i: (g, t),
    (64, "m16n8k4"): lambda g, t, i: (g if i == 0 else g + 8, t),
    (64, "m16n8k8"): lambda g, t, i: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4),
    (64, "m16n8k16"): lambda g, t, i: (g, i * 2 + t) if i % 2 == 0 else (g + 8, i * 2 - 2 + t),
    (8, "m8n8k16"): lambda g, t, i: (g, t * 4 + i),
    (8, "m16n8k16"): lambda g, t, i: (g if i < 4 else g + 8, t * 4 + (i & 3)),
    (8, "m16n8k32"): lambda g, t, i: (
        g if i < 4 or 8 <= i < 12 else g + 8,
        t * 4 + (i & 3) + (16 if i >= 8 else 0),
    ),
    (4, "m8n8k32"): lambda g, t, i: (g, t * 8 + i),
    (4, "m16n8k32"): lambda g, t, i: (g if i < 8 else g + 8, t * 8 + (i & 7)),
    (4, "m16n8k64"): lambda g, t, i: (
        g if i < 8 or 16 <= i < 24 else g + 8,
        t * 8 + (i & 7) + (32 if i >= 16 else 0),
    ),
    (1, "m8n8k128"): lambda g, t, i: (g, t * 32 + i),
    (1, "m16n8k128"): lambda g, t, i: (g if i < 32 else g + 8, t * 32 + (i & 31)),
    (1, "m16n8k256"): lambda g, t, i: (
        g if i < 32 or 64 <= i < 96 else g + 8,
        t * 32 + (i & 31) + (128 if i >= 64 else 0),
    ),
}
B_PLACES: dict[tuple[int, str], Place] = {
    (16, "m16n8k8"): lambda g, t, i: (t * 2 + i, g),
    (16, "m16n8k16"): lambda g, t, i: (t * 2 + (i & 1) + (8 if i >= 2 else 0), g),
    (32, "m16n8k4"): lambda g, t, i: (t, g),
    (32, "m16n8k8"): lambda g, t, i: (t if i == 0 else t + 4, g),
    (64, "m8n8k4"): lambda g, t, i: (t, g),
    (64, "m16n8k4"): lambda g, t, i: (t, g),
    (64, "m16n8k8"): lambda g, t, i: (t if i == 0 else t + 4, g),
    (64, "m16n8k16"): lambda g, t, i: (t + i * 4, g),
    (8, "m8n8k16"): lambda g, t, i: (t * 4 + i, g),
    (8, "m16n8k16"): lambda g, t, i: (t * 4 + i, g),
    (8, "m16n8k32"): lambda g, t, i: (t * 4 + (i & 3) + (16 if i >= 4 else 0), g),
    (4, "m8n8k32"): lambda g, t, i: (t * 8 + i, g),
    (4, "m16n8k32"): lambda g, t, i: (t * 8 + i, g),
    (4, "m16n8k64"): lambda g, t, i: (t * 8 + (i & 7) + (32 if i >= 8 else 0), g),
    (1, "m8n8k128"): lambda g, t, i: (t * 32 + i, g),
    (1, "m16n8k128"): lambda g, t, i: (t * 32 + i, g),
    (1, "m16n8k256"): lambda g, t, i: (t * 32 + (i & 31) + (128 if i >= 32 else 0), g),
}


def c_place(g: int, t: int, i: int) -> tuple[int, int]:
    """Accumulators of every shape but ``m8n8k4`` on halves."""
    return (g if i < 2 else g + 8, t * 2 + (i & 1))


@dataclass(frozen=True)
class Fragment:
    """Where the elements of a matrix lie: ``places[lane][i]``, and how wide they are."""

    bits: int
    rows: int
    columns: int
    places: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def registers(self) -> int:
        per_register = max(1, 32 // self.bits)
        return len(self.places[0]) // per_register

    def pack(self, matrix: np.ndarray) -> np.ndarray:
        """Bit patterns of a matrix to registers: ``[register][lane]``."""
        word = np.uint64 if self.bits == 64 else np.uint32
        out = np.zeros((self.registers, 32), word)
        per_register = max(1, 32 // self.bits)
        for lane, places in enumerate(self.places):
            for i, place in enumerate(places):
                out[i // per_register, lane] |= word(int(matrix[place]) << self.bits * (i % per_register))
        return out

    def unpack(self, registers: np.ndarray) -> np.ndarray:
        out = np.zeros((self.rows, self.columns), np.uint64)
        per_register = max(1, 32 // self.bits)
        for lane, places in enumerate(self.places):
            for i, place in enumerate(places):
                word = int(registers[i // per_register, lane])
                out[place] = word >> self.bits * (i % per_register) & (1 << self.bits) - 1
        return out


def sizes(shape: str) -> tuple[int, int, int]:
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


def _fragment(bits: int, rows: int, columns: int, place: Place) -> Fragment:
    count = rows * columns // 32
    places = tuple(tuple(place(lane >> 2, lane % 4, i) for i in range(count)) for lane in range(32))
    assert len({p for lane in places for p in lane}) == rows * columns, "every element has one place"
    return Fragment(bits, rows, columns, places)


def a_fragment(kind: str, shape: str) -> Fragment:
    m, _, k = sizes(shape)
    return _fragment(BITS[kind], m, k, A_PLACES[BITS[kind], shape])


def b_fragment(kind: str, shape: str) -> Fragment:
    _, n, k = sizes(shape)
    return _fragment(BITS[kind], k, n, B_PLACES[BITS[kind], shape])


def c_fragment(kind: str, shape: str) -> Fragment:
    m, n, _ = sizes(shape)
    return _fragment(BITS[kind], m, n, c_place)


# --- mma.m8n8k4 on halves: four products of quad pairs ----------------------------------------


def quad_pair_lanes(number: int) -> list[int]:
    """The eight lanes of one of the four products."""
    return [lane for lane in range(32) if lane % 16 // 4 == number]


def quad_pair_place(matrix: str, layout: str, lane: int, i: int) -> tuple[int, int]:
    below = 0 if lane < 16 else 4
    if matrix == "a":
        return (lane % 4 + below, i) if layout == "row" else (i % 4 + below, lane % 4)
    if matrix == "b":
        return (lane % 4, i + below) if layout == "row" else (i, lane % 4 + below)
    if layout == "f16":
        return (lane % 4 + below, i)
    return ((lane & 1) + (i & 2) + below, (i & 4) + (lane & 2) + (i & 1))


# --- values -----------------------------------------------------------------------------------


def decode(bits: np.ndarray, kind: str) -> np.ndarray:
    """The numbers that bit patterns stand for, in double precision (or exact integers)."""
    word = bits.astype(np.uint64)
    if kind == "f16":
        return word.astype(np.uint16).view(np.float16).astype(np.float64)
    if kind == "f64":
        return word.view(np.float64)
    if kind in ("f32", "bf16", "tf32"):
        single = word.astype(np.uint32) << 16 if kind == "bf16" else word.astype(np.uint32)
        return (single & np.uint32(0xFFFFE000 if kind == "tf32" else 0xFFFFFFFF)).view(np.float32).astype(np.float64)
    if kind in ("e4m3", "e5m2"):
        return np.vectorize(lambda b: decode_fp8(int(b), kind), otypes=[np.float64])(word)
    signed = word.astype(np.int64)
    if kind[0] == "s":
        signed = np.where(signed >> (BITS[kind] - 1) & 1, signed - (1 << BITS[kind]), signed)
    return signed


def decode_fp8(byte: int, kind: str) -> float:
    mantissa_bits, bias = (3, 7) if kind == "e4m3" else (2, 15)
    exponent, mantissa = (byte & 127) >> mantissa_bits, byte & (1 << mantissa_bits) - 1
    sign = -1.0 if byte & 128 else 1.0
    if kind == "e4m3" and byte & 127 == 127:
        return float("nan")
    if kind == "e5m2" and exponent == 31:
        return sign * (float("inf") if mantissa == 0 else float("nan"))
    if exponent == 0:
        return sign * mantissa / (1 << mantissa_bits) * 2.0 ** (1 - bias)
    return sign * (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)
