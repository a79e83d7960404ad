"""Which blocks of a grid are told apart from the others by what they compare, without running them.

What a kernel makes of the block's index and its parameters alone (`cupilot.vgpu.ptx.indices`) is computed for every block
and for the corners of its threads.  How each comparison comes out there (less, equal, more; rising or falling from the first
thread to the last) puts blocks into groups; those of small groups are *rare*, and a sample of a launch has some of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from cupilot.arrays import Array
from cupilot.vgpu.ptx.syntax import Address, Imm, Instruction, Operand, Reg, Symbol

MOST_BLOCKS = 1 << 20
"""Of larger grids that many are looked at, at random."""
LEVELS = (1 / 4096, 1 / 512, 1 / 64)
"""Shares of the grid up to which a group is rare; each level is a stratum of its own."""
SINGLE = 16
"""Blocks of a group that is of the first level in any case."""
PICKS = 48
"""Rare blocks that a sample has in addition."""
EACH = 2
"""Of one group."""
FEW_GROUPS = 256
"""Where all comparisons together make more groups than this, each comparison counts by itself only."""

Values = dict[str, Array]
Place = tuple[str, int, int]
"""The name of a parameter or constant, an offset and how many bytes."""


@dataclass(frozen=True, eq=False)
class RareBlocks:
    """Rare blocks with their levels, and those of them that a sample is to have, the rarest first."""

    blocks: Array
    levels: Array
    picks: Array

    def as_words(self) -> Array:
        """As the runtime reads them: two counts in front."""
        counts = np.array([self.blocks.size, self.picks.size])
        return np.concatenate((counts, self.blocks, self.levels, self.picks)).astype(np.uint64)


@dataclass(frozen=True)
class Shape:
    """Of a launch."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


def symbols_of(code: Sequence[Instruction]) -> list[Place]:
    """What the code loads."""
    return [_loaded(item) for item in code if item.opcode == "ld"]


def _loaded(item: Instruction) -> Place:
    address = item.operands[1]
    assert isinstance(address, Address) and isinstance(address.base, Symbol)
    return address.base.name, address.base.offset + address.offset, _type(item.mods[-1]).itemsize


def rare_blocks(code: Sequence[Instruction], shape: Shape, known: Mapping[Place, bytes], seed: int) -> RareBlocks:
    """``known`` is what the code loads (`symbols_of`)."""
    rng = np.random.default_rng(seed)
    all_of_them = shape.blocks <= MOST_BLOCKS
    blocks = np.arange(shape.blocks) if all_of_them else np.unique(rng.integers(0, shape.blocks, MOST_BLOCKS))
    groups = [each for each in _outcomes(code, shape, blocks, known) if each.max() > 0]
    if not groups:
        return RareBlocks(blocks[:0], blocks[:0], blocks[:0])
    together = _numbered(groups)
    if together.max() < FEW_GROUPS:
        groups.append(together)
    rarity = np.full(blocks.size, blocks.size)
    picks: dict[int, int] = {}
    for group in groups:
        counts = np.bincount(group)
        rarity = np.minimum(rarity, counts[group])
        for number in np.flatnonzero((counts > 0) & (counts <= max(SINGLE, LEVELS[-1] * blocks.size))):
            members = np.flatnonzero(group == number)
            for place in rng.choice(members, min(EACH, members.size), replace=False):
                picks[int(place)] = min(picks.get(int(place), blocks.size), int(counts[number]))
    bounds = [max(SINGLE, level * blocks.size) for level in LEVELS]
    levels = np.searchsorted(bounds, rarity)
    rare = np.flatnonzero(levels < len(LEVELS))
    chosen = sorted(picks, key=lambda place: (picks[place], place))[:PICKS]
    return RareBlocks(blocks[rare], levels[rare], blocks[np.array(chosen, np.int64)])


def _outcomes(code: Sequence[Instruction], shape: Shape, blocks: Array, known: Mapping[Place, bytes]) -> list[Array]:
    """A small number for each block, for each comparison and corner of its threads."""
    values = _positions(shape, blocks)
    found: list[Array] = []
    for item in code:
        try:
            with np.errstate(all="ignore"):
                made = _computed(item, values, known)
        except (KeyError, LookupError, ValueError, TypeError, OverflowError):
            continue  # and what needs it is unknown too
        assert isinstance(item.operands[0], Reg)
        values[item.operands[0].name] = made
        if item.opcode == "setp":
            found += _signs(*(_fetch(operand, item.mods[-1], values) for operand in item.operands[1:3]))
    return [each for each in found if each.size == blocks.size]


def _signs(left: Array, right: Array) -> list[Array]:
    """Less, equal or more at each corner, and whether the difference rises or falls from the first to the last."""
    left, right = np.broadcast_arrays(left, right)
    signs = (left > right).astype(np.int64) - (left < right) + 1
    first, last = left[0], left[-1]
    along = (last > first).astype(np.int64) - (last < first) + 1
    shifted = left.view(_signed(left.dtype)) if left.dtype.kind == "u" else left
    ranges = (shifted < 0).astype(np.int64)  # ``a <= i && i < b`` is compared as one unsigned number
    return [*signs, along, *ranges]


def _numbered(groups: Sequence[Array]) -> Array:
    """All groups together as one."""
    total = groups[0]
    for group in groups[1:]:
        _, total = np.unique(total * (int(group.max()) + 1) + group, return_inverse=True)
    return total


def _positions(shape: Shape, blocks: Array) -> Values:
    corners = sorted(set(product(*((0, length - 1) for length in shape.block))), key=lambda corner: corner[::-1])
    values: Values = {}
    rest = blocks.astype(np.uint32)
    for axis, name in enumerate("xyz"):
        length = np.uint32(shape.grid[axis])
        values[f"%ctaid.{name}"] = (rest % length)[None, :]
        rest = rest // length
        values[f"%tid.{name}"] = np.array([[corner[axis]] for corner in corners], np.uint32)
        values[f"%ntid.{name}"] = np.full((1, 1), shape.block[axis], np.uint32)
        values[f"%nctaid.{name}"] = np.full((1, 1), shape.grid[axis], np.uint32)
    return values


# --- instructions -------------------------------------------------------------------------------


def _signed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"i{dtype.itemsize}")


def _type(name: str) -> np.dtype[Any]:
    """That of a PTX type; bits are unsigned."""
    return np.dtype(f"{ {'b': 'u', 'u': 'u', 's': 'i', 'f': 'f'}[name[0]] }{int(name[1:]) // 8}")


def _fetch(operand: Operand, kind: str, values: Mapping[str, Array]) -> Array:
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
    return value if value.dtype == dtype else np.ascontiguousarray(value).view(dtype)


def _computed(item: Instruction, values: Mapping[str, Array], known: Mapping[Place, bytes]) -> Array:
    kind, operands = item.mods[-1] if item.mods else "", item.operands
    if item.opcode == "ld":
        return np.frombuffer(known[_loaded(item)], _type(kind)).reshape(1, 1)
    if item.opcode == "setp":
        return _compared(item, values)
    if item.opcode == "selp":
        return np.where(_fetch(operands[3], "pred", values), *(_fetch(o, kind, values) for o in operands[1:3]))
    if item.opcode == "cvt":
        return _converted(item, values)
    if item.opcode in ("shl", "shr"):
        return _shifted(item.opcode, _fetch(operands[1], kind, values), _fetch(operands[2], "u32", values))
    given = [_fetch(operand, kind, values) for operand in operands[1:]]
    if item.opcode in ("mul", "mad") and given[0].dtype.kind != "f":
        return _multiplied(item, given, values)
    if kind == "pred":
        return {
            "and": np.logical_and,
            "or": np.logical_or,
            "xor": np.logical_xor,
            "not": np.logical_not,
            "mov": np.array,
        }[item.opcode](*given)
    return np.asarray(PLAIN[item.opcode](*given)).astype(given[0].dtype)


def _divided(a: Array, b: Array) -> Array:
    """Towards zero."""
    if a.dtype.kind == "f":
        return a / b
    quotient = np.abs(a) // np.maximum(np.abs(b), 1)
    return np.where((a < 0) != (b < 0), -quotient, quotient) if a.dtype.kind == "i" else quotient


def _popcount(a: Array) -> Array:
    return sum((a >> np.uint32(bit) & a.dtype.type(1)) for bit in range(8 * a.dtype.itemsize))


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


def _compared(item: Instruction, values: Mapping[str, Array]) -> Array:
    left, right = (_fetch(operand, item.mods[-1], values) for operand in item.operands[1:3])
    found = COMPARED[item.mods[0]](left, right)
    if len(item.operands) > 3:
        other = _fetch(item.operands[3], "pred", values)
        found = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[item.mods[1]](found, other)
    return np.asarray(found)


def _converted(item: Instruction, values: Mapping[str, Array]) -> Array:
    to, of = (_type(name) for name in item.mods[-2:])
    value = _fetch(item.operands[1], item.mods[-1], values)
    if value.dtype != of:
        raise TypeError
    if to.kind != "f" and of.kind == "f":
        rounding = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}
        value = next(rounding[mod] for mod in item.mods if mod in rounding)(value)
    return value.astype(to)


def _shifted(opcode: str, value: Array, by: Array) -> Array:
    """Shifts by the width or more leave nothing, or the sign."""
    width = 8 * value.dtype.itemsize
    shift = np.minimum(by, np.uint32(width - 1)).astype(value.dtype)
    found = value << shift if opcode == "shl" else value >> shift
    if value.dtype.kind == "i" and opcode == "shr":
        return np.asarray(found)
    return np.where(by >= width, value.dtype.type(0), found)


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
        product_ = product_ + _fetch(item.operands[3], kind, values)
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
        return high
    return (high - np.where(a < 0, ub, 0).astype(np.uint64) - np.where(b < 0, ua, 0).astype(np.uint64)).view(np.int64)
