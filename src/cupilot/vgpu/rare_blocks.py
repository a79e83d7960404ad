"""Which blocks of a grid are told apart from the others by what they compare, without running them.

What a kernel makes of the block's index and its parameters alone (`cupilot.vgpu.ptx.indices`) is computed for every
block and for the corners of its threads.  How each comparison comes out there (less, equal, more; rising or falling
from the first thread to the last) puts blocks into groups; those of small groups are *rare*, and a sample of a launch
has some of each.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from cupilot.arrays import Array
from cupilot.vgpu.emit import KernelCode
from cupilot.vgpu.index_values import Place, Values, computed, fetch, signed, symbols_of
from cupilot.vgpu.ptx.syntax import Instruction, Reg, Variable
from cupilot.vgpu.views import RARE_BLOCKS

MOST_VALUES = 1 << 24
"""Of larger grids so many blocks are looked at, evenly spread, that no more values than this are computed."""
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

    @property
    def corners(self) -> int:
        """Of the block's threads."""
        return 1 << sum(length > 1 for length in self.block)


def rare_blocks(code: Sequence[Instruction], shape: Shape, known: Mapping[Place, bytes], seed: int) -> RareBlocks:
    """``known`` is what the code loads (`symbols_of`)."""
    rng = np.random.default_rng(seed)
    count = min(shape.blocks, max(1, MOST_VALUES // (shape.corners * max(len(code), 1))))
    step = shape.blocks // count
    blocks = np.arange(count) * step + (rng.integers(0, step, count) if step > 1 else 0)
    groups = [each for each in _outcomes(code, shape, blocks, known) if each.min() != each.max()]
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
                made = computed(item, values, known)
                if item.opcode == "setp":
                    found += _signs(*(fetch(operand, item.mods[-1], values) for operand in item.operands[1:3]))
        except (LookupError, ValueError, TypeError, OverflowError):
            continue  # and what needs it is unknown too
        assert isinstance(item.operands[0], Reg)
        values[item.operands[0].name] = made
    return [each for each in found if each.size == blocks.size]


def _signs(left: Array, right: Array) -> list[Array]:
    """Less, equal or more at each corner, and whether the difference rises or falls from the first to the last."""
    left, right = np.broadcast_arrays(left, right)
    signs = (left > right).astype(np.int64) - (left < right) + 1
    first, last = left[0], left[-1]
    along = (last > first).astype(np.int64) - (last < first) + 1
    shifted = left.view(signed(left.dtype)) if left.dtype.kind == "u" else left
    ranges = (shifted < 0).astype(np.int64)  # ``a <= i && i < b`` is compared as one unsigned number
    return [*signs, along, *ranges]


def _numbered(groups: Sequence[Array]) -> Array:
    """All groups together as one, or the number of many for all blocks where they are too many."""
    total = groups[0]
    for group in groups[1:]:
        total = total * (int(group.max()) + 1) + group
        numbers = np.cumsum(np.bincount(total) > 0) - 1
        total = numbers[total]
        if numbers[-1] >= FEW_GROUPS:
            return np.full_like(total, FEW_GROUPS)
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


class RareBlocksOfLaunches:
    """Answers the runtime, which asks when a launch does not run whole.

    ``problem`` is an error of ours: a sample without rare blocks shows less than is said of it.
    """

    def __init__(self, library: ctypes.CDLL, codes: Mapping[int, KernelCode]) -> None:
        self._codes = codes
        self._constants: dict[tuple[int, str], tuple[int, int]] = {}
        self._found: dict[tuple[object, ...], Array] = {}
        self.problem: Exception | None = None
        self._callback = RARE_BLOCKS(self._words)  # ctypes callbacks must outlive their use
        library.vgc_rare_blocks(self._callback)

    def define(self, kernel: int, variables: Mapping[str, Variable], addresses: Sequence[int]) -> None:
        """Where a kernel's variables lie: those in constant memory may be read."""
        for name, address in zip(self._codes[kernel].variables, addresses, strict=True):
            if variables[name].space == "const":
                self._constants[kernel, name] = address, variables[name].bytes

    def _words(self, kernel: int, grid: Sequence[int], block: Sequence[int], params: int, seed: int) -> int | None:
        """Where these words lie: how many blocks are rare and picked; the rare ones, their levels, the picked ones."""
        try:
            code = self._codes[kernel].index_code
            shape = Shape((grid[0], grid[1], grid[2]), (block[0], block[1], block[2]))
            known = {place: self._content(kernel, place, params) for place in symbols_of(code)}
            key = (kernel, shape, tuple(known.items()), seed)
            if key not in self._found:
                self._found[key] = rare_blocks(code, shape, known, seed).as_words()
            return int(self._found[key].ctypes.data)
        except Exception as error:  # a callback must not raise into C
            self.problem = error
            return None

    def _content(self, kernel: int, place: Place, params: int) -> bytes:
        """Bytes of a parameter or of a constant; none of what is not there."""
        name, offset, size = place
        start, length = self._constants.get((kernel, name), (0, 0))
        param = self._codes[kernel].params.get(name)
        if param is not None:
            start, length = params + param.offset, param.bytes
        return ctypes.string_at(start + offset, size) if 0 <= offset <= length - size else b""
