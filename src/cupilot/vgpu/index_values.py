"""Values of a kernel's index code (`cupilot.vgpu.ptx.indices`) for many blocks at once.

A value is an array of threads by blocks, either of them 1 where it does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cupilot.arrays import Array
from cupilot.vgpu.ptx.syntax import Address, Imm, Instruction, Operand, Reg, Symbol

Values = dict[str, Array]
Place = tuple[str, int, int]
"""The name of a parameter or constant, an offset and how many bytes."""


def symbols_of(code: Sequence[Instruction]) -> list[Place]:
    """What the code loads."""
    return [_loaded(item) for item in code if item.opcode == "ld"]


def _loaded(item: Instruction) -> Place:
    address = item.operands[1]
    assert isinstance(address, Address)
    assert isinstance(address.base, Symbol)
    return address.base.name, address.base.offset + address.offset, _type(item.mods[-1]).itemsize


def signed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"i{dtype.itemsize}")


def _type(name: str) -> np.dtype[Any]:
    """That of a PTX type; bits are unsigned."""
    return np.dtype(f"{ {'b': 'u', 'u': 'u', 's': 'i', 'f': 'f'}[name[0]] }{int(name[1:]) // 8}")


def fetch(operand: Operand, kind: str, values: Mapping[str, Array]) -> Array:
    dtype = np.dtype(bool) if kind == "pred" else _type(kind)
    if isinstance(operand, Imm):
        if operand.float_bits:
            return np.array([[operand.value]], f"u{operand.float_bits // 8}").view(dtype)
        return np.array([[operand.value % (1 << 8 * dtype.itemsize)]], f"u{dtype.itemsize}").view(dtype)
    if not isinstance(operand, Reg):
        raise LookupError
    value = values[operand.name]
    if value.dtype.itemsize != dtype.itemsize:
        value = value.astype(f"u{dtype.itemsize}")
    return np.asarray(value if value.dtype == dtype else np.ascontiguousarray(value).view(dtype))


def computed(item: Instruction, values: Mapping[str, Array], known: Mapping[Place, bytes]) -> Array:
    kind = item.mods[-1] if item.mods else ""
    if item.opcode == "ld":
        return np.frombuffer(known[_loaded(item)], _type(kind)).reshape(1, 1)
    if item.opcode in SPECIAL:
        return SPECIAL[item.opcode](item, values)
    given = [fetch(operand, kind, values) for operand in item.operands[1:]]
    if item.opcode in ("mul", "mad") and given[0].dtype.kind != "f":
        return _multiplied(item, given, values)
    found = (LOGICAL if kind == "pred" else PLAIN)[item.opcode](*given)
    return np.asarray(found).astype(given[0].dtype)


def _divided(a: Array, b: Array) -> Array:
    """Towards zero."""
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    quotient = np.abs(a) // np.maximum(np.abs(b), 1)
    return np.asarray(np.where((a < 0) != (b < 0), -quotient, quotient) if a.dtype.kind == "i" else quotient)


def _popcount(a: Array) -> Array:
    ones = [a >> a.dtype.type(bit) & a.dtype.type(1) for bit in range(8 * a.dtype.itemsize)]
    return np.asarray(sum(ones))


PLAIN: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "mad": lambda a, b, c: a * b + c,
    "neg": np.negative, "not": np.invert, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "min": np.minimum, "max": np.maximum, "mov": np.array, "abs": np.abs, "cvta": np.array, "popc": _popcount,
    "div": _divided, "rem": lambda a, b: a - _divided(a, b) * b,
}  # fmt: skip
COMPARED: dict[str, Callable[..., Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip


LOGICAL: dict[str, Callable[..., Any]] = {
    "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, "not": np.logical_not, "mov": np.array,
}  # fmt: skip


def _compared(item: Instruction, values: Mapping[str, Array]) -> Array:
    left, right = (fetch(operand, item.mods[-1], values) for operand in item.operands[1:3])
    found = COMPARED[item.mods[0]](left, right)
    if len(item.operands) > 3:
        found = LOGICAL[item.mods[1]](found, fetch(item.operands[3], "pred", values))
    return np.asarray(found)


def _converted(item: Instruction, values: Mapping[str, Array]) -> Array:
    to, of = (_type(name) for name in item.mods[-2:])
    value = fetch(item.operands[1], item.mods[-1], values)
    if value.dtype != of:
        raise TypeError
    if to.kind != "f" and of.kind == "f":
        rounding = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}
        value = next(rounding[mod] for mod in item.mods if mod in rounding)(value)
    return np.asarray(value.astype(to))


def _selected(item: Instruction, values: Mapping[str, Array]) -> Array:
    first, second = (fetch(operand, item.mods[-1], values) for operand in item.operands[1:3])
    return np.where(fetch(item.operands[3], "pred", values), first, second)


def _shifted(item: Instruction, values: Mapping[str, Array]) -> Array:
    """Shifts by the width or more leave nothing, or the sign."""
    value, by = fetch(item.operands[1], item.mods[-1], values), fetch(item.operands[2], "u32", values)
    width = 8 * value.dtype.itemsize
    shift = np.minimum(by, np.uint32(width - 1)).astype(value.dtype)
    found = value << shift if item.opcode == "shl" else value >> shift
    if value.dtype.kind == "i" and item.opcode == "shr":
        return np.asarray(found)
    return np.asarray(np.where(by >= width, value.dtype.type(0), found))


def _multiplied(item: Instruction, given: Sequence[Array], values: Mapping[str, Array]) -> Array:
    a, b = given[:2]
    width = a.dtype.itemsize
    if item.has("lo"):
        product_ = a * b
    elif width == 8:
        product_ = _high(a, b)
    else:
        wide = np.dtype(f"{a.dtype.kind}{2 * width}")
        product_ = a.astype(wide) * b.astype(wide)
        if item.has("hi"):
            product_ = (product_ >> product_.dtype.type(8 * width)).astype(a.dtype)
    if item.opcode == "mad":
        kind = f"{item.mods[-1][0]}{8 * product_.dtype.itemsize}"
        product_ = product_ + fetch(item.operands[3], kind, values)
    return np.asarray(product_)


def _high(a: Array, b: Array) -> Array:
    """The upper half of a product of 64 bits."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    ua, ub = a.astype(np.uint64), b.astype(np.uint64)
    middle = (ua & low) * (ub & low) >> shift
    first = (ua >> shift) * (ub & low) + middle
    second = (ua & low) * (ub >> shift) + (first & low)
    high = (ua >> shift) * (ub >> shift) + (first >> shift) + (second >> shift)
    if a.dtype.kind == "u":
        return np.asarray(high)
    high = high - np.where(a < 0, ub, np.uint64(0)) - np.where(b < 0, ua, np.uint64(0))
    return np.asarray(high).view(np.int64)


SPECIAL: dict[str, Callable[[Instruction, Mapping[str, Array]], Array]] = {
    "setp": _compared, "selp": _selected, "cvt": _converted, "shl": _shifted, "shr": _shifted,
}  # fmt: skip
