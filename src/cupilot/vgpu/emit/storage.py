"""Where values live: static shared variables, the slots of a warp's registers, a thread's local frame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cupilot.vgpu.emit.text import LANES, LLVM_TYPES, WIDTH
from cupilot.vgpu.ptx.flow import Flow
from cupilot.vgpu.ptx.parse import PtxError
from cupilot.vgpu.ptx.syntax import Function, Module, Param, Variable


def _up(position: int, align: int) -> int:
    return -(-position // align) * align


def place_shared(module: Module, functions: Iterable[Function]) -> tuple[dict[str, int], int]:
    """Static shared variables in order; the unsized extern array starts after them all."""
    offsets: dict[str, int] = {}
    position = 0
    dynamic = []
    wanted = [*(v for f in functions for v in f.variables), *module.variables.values()]
    for variable in (v for v in wanted if v.space == "shared"):
        if variable.bytes == 0:
            dynamic.append(variable.name)
            continue
        position = _up(position, variable.align)
        offsets[variable.name] = position
        position += variable.bytes
    position = _up(position, 16)
    offsets.update(dict.fromkeys(dynamic, position))
    return offsets, position


def place_handed(results: Sequence[Param], params: Sequence[Param]) -> tuple[list[int], int]:
    """Where a called function finds its results and parameters, from the start of its frame: callers know it too."""
    offsets, position = [], 0
    for param in (*results, *params):
        position = _up(position, max(param.align, 4))
        offsets.append(position)
        position += param.bytes
    return offsets, position


class Frame:
    """A function's part of the local stack: what it was handed, its variables, what it hands on, saved registers."""

    def __init__(self, function: Function) -> None:
        self.offsets: dict[str, int] = {}
        self.bytes = 0
        if not function.is_kernel:
            handed = (*function.results, *function.params)
            places, self.bytes = place_handed(function.results, function.params)
            self.offsets.update({param.name: place for param, place in zip(handed, places, strict=True)})
        for variable in function.variables:
            if variable.space in ("local", "param"):
                self._add(variable)
        self.saved: dict[str, int] = {}
        self.bytes = _up(self.bytes, 16)

    def _add(self, variable: Variable) -> None:
        self.bytes = _up(self.bytes, max(variable.align, 4))
        self.offsets[variable.name] = self.bytes
        self.bytes += variable.bytes

    def save(self, name: str, size: int) -> None:
        """Room for a register whose function may run again before a call returns."""
        if name not in self.saved:
            self.saved[name] = _up(self.bytes, 16)
            self.bytes = _up(self.saved[name] + size, 16)


class Slots:
    """Places in the warp's record of the registers that outlive a block: greedy colouring, by size of slot."""

    def __init__(self, function: Function, flow: Flow, start: int) -> None:
        self.function = function
        self.flow = flow
        self.start = start
        crossing = 0
        for bits in (*flow.live_in, *flow.live_out):
            crossing |= bits
        conflicts = flow.conflicts()
        taken: dict[int, list[int]] = {}  # slot size -> for each slot of it, the registers inside
        place: dict[str, tuple[int, int]] = {}
        for name in flow.members(crossing):
            size = self.size(name)
            slots = taken.setdefault(size, [])
            for number, inside in enumerate(slots):
                if not inside & conflicts[name]:
                    slots[number] |= flow.bit[name]
                    place[name] = (size, number)
                    break
            else:
                place[name] = (size, len(slots))
                slots.append(flow.bit[name])
        starts, position = {}, start
        for size in sorted(taken, reverse=True):
            starts[size] = position
            position += size * len(taken[size])
        self.places = {name: starts[size] + size * number for name, (size, number) in place.items()}
        self.end = _up(position, 64)

    def __contains__(self, name: str) -> bool:
        return name in self.places

    def __getitem__(self, name: str) -> int:
        """Offset of a register's slot in the warp's record."""
        return self.places[name]

    def size(self, name: str) -> int:
        kind = LLVM_TYPES[declared_type(self.function, name)]
        if kind == "i1":
            return 4  # a mask, or 0 / 1
        return 8 if self.flow.uniform(name) and WIDTH[kind] <= 64 else LANES * WIDTH[kind] // 8


def declared_type(function: Function, name: str) -> str:
    kind = function.registers[name]
    if kind not in LLVM_TYPES:
        raise PtxError(f"registers of type .{kind} are not supported ({name} in {function.name})")
    return kind
