"""PTX that moves the registers of fragments, and numbers as bit patterns: what the tests of matrix opcodes share."""

from __future__ import annotations

import numpy as np
from tensor_layouts import BITS, decode

CLASS = {"f32": "%f", "f64": "%fd"}  # everything else is in %r


def register_class(kind: str) -> str:
    return CLASS.get(kind, "%r")


def vector(kind: str, first: int, count: int) -> str:
    return "{" + ", ".join(f"{register_class(kind)}{first + n}" for n in range(count)) + "}"


def move_registers(step: str, number: int, kind: str, first: int, count: int) -> str:
    """Code that loads (stores) registers from (to) the rows of 32 lanes of buffer ``number``."""
    size = BITS[kind] // 8 if BITS[kind] >= 32 else 4
    lines = [f" ld.param.u64 %rd{number}, [p{number}]; mad.wide.u32 %rd{number}, %r0, {size}, %rd{number};"]
    for n in range(count):
        register, place = f"{register_class(kind)}{first + n}", f"[%rd{number}+{n * 32 * size}]"
        operands = f"{register}, {place}" if step == "ld" else f"{place}, {register}"
        lines.append(f" {step}.global.b{8 * size} {operands};")
    return "\n".join(lines)


def encode_float(values: np.ndarray, kind: str) -> np.ndarray:
    """Bit patterns of numbers that the type can hold."""
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16).astype(np.uint64)
    if kind == "f64":
        return values.astype(np.float64).view(np.uint64)
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    if kind == "bf16":
        return bits >> np.uint64(16)
    if kind in ("f32", "tf32"):
        return bits
    every = decode(np.arange(256), kind)
    every[~np.isfinite(every)] = 1e9
    return np.abs(values.reshape(-1, 1) - every).argmin(1).reshape(values.shape).astype(np.uint64)
