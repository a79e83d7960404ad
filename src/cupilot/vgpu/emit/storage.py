"""Where a kernel's values live between basic blocks: shared variables and the slots of a warp."""

from __future__ import annotations

from cupilot.vgpu import layout
from cupilot.vgpu.emit.text import LANES, LLVM_TYPES, WIDTH
from cupilot.vgpu.ptx.flow import Flow
from cupilot.vgpu.ptx.parse import PtxError
from cupilot.vgpu.ptx.syntax import Function, Module


class Storage:
    """Places of a kernel's static shared variables, and of the registers that outlive a block."""

    def __init__(self, module: Module, function: Function, flow: Flow) -> None:
        self.module = module
        self.function = function
        self.flow = flow
        self.shared_offsets, self.shared_bytes = self._place_shared()
        self.local_offsets, self.local_bytes = self._place_local()
        self.slots, self.slot_bytes = self._allocate_slots()

    def _place_shared(self) -> tuple[dict[str, int], int]:
        """Static shared variables in order; the unsized extern array starts after them all."""
        offsets, position, dynamic = {}, 0, []
        wanted = [*self.function.variables, *self.module.variables.values()]
        for variable in (v for v in wanted if v.space == "shared"):
            if variable.bytes == 0:
                dynamic.append(variable.name)
                continue
            position = -(-position // variable.align) * variable.align
            offsets[variable.name] = position
            position += variable.bytes
        position = -(-position // 16) * 16
        offsets.update(dict.fromkeys(dynamic, position))
        return offsets, position

    def _place_local(self) -> tuple[dict[str, int], int]:
        """The function's own local variables in its frame."""
        offsets, position = {}, 0
        for variable in (v for v in self.function.variables if v.space == "local"):
            position = -(-position // variable.align) * variable.align
            offsets[variable.name] = position
            position += variable.bytes
        return offsets, -(-position // 16) * 16

    def _allocate_slots(self) -> tuple[dict[str, int], int]:
        """Greedy colouring of the registers that live across blocks, by size of slot."""
        crossing = 0
        for bits in (*self.flow.live_in, *self.flow.live_out):
            crossing |= bits
        conflicts = self.flow.conflicts()
        taken: dict[int, list[int]] = {}  # slot size -> for each slot of it, the registers inside
        place: dict[str, tuple[int, int]] = {}
        for name in self.flow.members(crossing):
            size = self._slot_size(name)
            slots = taken.setdefault(size, [])
            for number, inside in enumerate(slots):
                if not inside & conflicts[name]:
                    slots[number] |= self.flow.bit[name]
                    place[name] = (size, number)
                    break
            else:
                place[name] = (size, len(slots))
                slots.append(self.flow.bit[name])
        starts, position = {}, 0
        for size in sorted(taken, reverse=True):
            starts[size] = position
            position += size * len(taken[size])
        return {name: starts[size] + size * number for name, (size, number) in place.items()}, position

    def _slot_size(self, name: str) -> int:
        kind = LLVM_TYPES[self.declared_type(name)]
        if kind == "i1":
            return 4  # a mask, or 0 / 1
        return 8 if self.flow.uniform(name) else LANES * WIDTH[kind] // 8

    def declared_type(self, name: str) -> str:
        kind = self.function.registers[name]
        if kind not in LLVM_TYPES:
            raise PtxError(f"registers of type .{kind} are not supported ({name} in kernel {self.function.name})")
        return kind

    @property
    def stack_depth(self) -> int:
        # every split pushes at most two entries and leaves fewer lanes active, so 31 splits nest
        return 64 if self.flow.splitting else 0

    @property
    def slots_start(self) -> int:
        return -(-(layout.WARP_STACK + layout.STACK_ENTRY * self.stack_depth) // 64) * 64

    def slot(self, name: str) -> int:
        """Offset of a register's slot in the warp's record."""
        return self.slots_start + self.slots[name]

    @property
    def warp_bytes(self) -> int:
        return self.slots_start + self.slot_bytes + 64
