"""Calls of device functions: frames on the local stack, returns through the stack of waiting lanes.

A call puts the place behind it on the stack of waiting lanes, with the frame to go back to, and jumps.  Lanes that
return drop out; when the last of them has, the place behind the call is popped and all go on together.  Parameters and
results are copied between frames.  A function that may run again before a call returns keeps its registers in its frame
meanwhile.  Lanes that call different functions through a pointer go one function after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from cupilot.vgpu import layout
from cupilot.vgpu.emit.program import Program, call_parts, called_name, function_value
from cupilot.vgpu.emit.storage import Frame, place_handed
from cupilot.vgpu.emit.text import LANES
from cupilot.vgpu.emit.waiting import Waiting
from cupilot.vgpu.ptx.flow import RUNTIME_FUNCTIONS, Block
from cupilot.vgpu.ptx.syntax import Function, Instruction, Operand, Prototype


@dataclass(frozen=True)
class Signature:
    """Sizes and places of what a call hands over and gets back, in the called function's frame."""

    results: tuple[tuple[int, int], ...]
    params: tuple[tuple[int, int], ...]


class Calls(Waiting):
    """The part of the emitter that calls."""

    program: Program
    block: Block | None
    bases: dict[str, int]  # number of each function's first block
    frames: dict[str, Frame]
    frame_limit: int
    stack_depth: int

    def signature(self, instruction: Instruction) -> Signature:
        _, _, _, prototype = call_parts(instruction)
        name = called_name(instruction)
        shape: Function | Prototype | None
        shape = self.module.functions[name] if name else self.function.prototypes.get(prototype)
        if shape is None:
            raise self.unsupported("a call through a pointer without a prototype")
        results, params = shape.results, shape.params
        offsets, _ = place_handed(results, params)
        placed = [(o, p.bytes) for o, p in zip(offsets, (*results, *params), strict=True)]
        return Signature(tuple(placed[: len(results)]), tuple(placed[len(results) :]))

    def copy_frame(self, source: int, target: int, size: int) -> None:
        """Bytes of every lane from one place of the local stack to another; both are relative to this frame."""
        base = self.frame_base()
        start, end = (self.op(f"add i32 {base}, {offset}") for offset in (source, target))
        self.call("void", "vg_copy_frame", f"ptr %c, ptr %w, i32 {start}, i32 {end}, i32 {size}",
                  "ptr, ptr, i32, i32, i32")  # fmt: skip

    def emit_call(self, block: Block, instruction: Instruction) -> None:
        """Hand over arguments, remember the way back, and jump."""
        _, target, arguments, _ = call_parts(instruction)
        name = called_name(instruction)
        index, back = block.index, block.successors[0]
        mask, pointer = self.mask, ""
        if not name:
            mask, pointer = self._one_target(index, self.flow.blocks[back].successors[0], target)
        self._make_room(instruction, name)
        for (offset, size), argument in zip(self.signature(instruction).params, arguments, strict=True):
            self.copy_frame(self.frame.offsets[argument], self.frame.bytes + offset, size)
        if self.program.reenters(self.function.name, name):
            self._save(block)
        self.push(str(self.number(back)), mask, self.load_field("%w", layout.WARP_RPC, "i32"))
        self.store_field("%w", layout.WARP_MASK, "i32", mask)
        self.store_field("%w", layout.WARP_RPC, "i32", str(layout.NO_RECONVERGENCE))
        frame = self.op(f"add i32 {self.frame_base()}, {self.frame.bytes}")
        self.store_field("%w", layout.WARP_FRAME, "i32", frame)
        if name:
            self.line(f"br label %b{self.bases[name]}")
        else:
            self._dispatch(pointer)

    def _make_room(self, instruction: Instruction, name: str) -> None:
        """Stop the launch unless the called function's frame still fits behind this one."""
        assert self.block is not None
        called = [name] if name else self.program.pointed_at
        # what is handed over must fit, even if nothing is there to be called
        handed = max((offset + size for offset, size in self.signature(instruction).params), default=0)
        need = self.frame.bytes + max(handed, *(self.frames[one].bytes for one in called), 0)
        room = self.call("i32", "vg_enter", f"ptr %c, ptr %w, i32 {need}, i32 {self.frame_limit}, "
                         f"i32 {self.stack_depth}, i32 {instruction.line}", "ptr, ptr, i32, i32, i32, i32")  # fmt: skip
        full = self.op(f"icmp eq i32 {room}, 0")
        number = self.number(self.block.index)
        self.line(f"br i1 {full}, label %overflow, label %enter{number}")
        self.out.append(f"enter{number}:")

    def _one_target(self, index: int, meet: int, target: Operand) -> tuple[str, str]:
        """Lanes that call what the first active lane calls, and what that is; the others come here again later."""
        number = self.number(index)
        values = self.fetch(target, "i64", True)
        first = self.call("i32", "llvm.cttz.i32", f"i32 {self.mask}, i1 false", "i32, i1")
        pointer = self.op(f"extractelement <{LANES} x i64> {values}, i32 {first}")
        equal = self.op(f"icmp eq <{LANES} x i64> {values}, {self.splat(pointer, 'i64')}")
        same = self.op(f"and i32 {self.lane_bits(equal)}, {self.mask}")
        others = self.op(f"xor i32 {same}, {self.mask}")
        alone = self.op(f"icmp eq i32 {others}, 0")
        self.line(f"br i1 {alone}, label %together{number}, label %apart{number}")
        self.out.append(f"apart{number}:")
        self.push_meeting(number, self.number(meet))
        self.push(str(number), others, self.load_field("%w", layout.WARP_RPC, "i32"))
        self.line(f"br label %together{number}")
        self.out.append(f"together{number}:")
        return same, pointer

    def _dispatch(self, pointer: str) -> None:
        cases = " ".join(
            f"i64 {function_value(self.module, name)}, label %b{self.bases[name]}" for name in self.program.pointed_at
        )
        self.line(f"switch i64 {pointer}, label %bad_call [ {cases} ]")

    def _save(self, block: Block) -> None:
        for name in self.flow.members(self.flow.live_out[block.index]):
            self._move_saved("vg_save", name)

    def _move_saved(self, function: str, name: str) -> None:
        kind = 0 if self.slots.size(name) == 4 else self.slots.size(name) // LANES
        place = self.op(f"add i32 {self.frame_base()}, {self.frame.saved[name]}")
        self.call("void", function, f"ptr %c, ptr %w, i32 {self.slots[name]}, i32 {place}, i32 {kind}",
                  "ptr, ptr, i32, i32, i32")  # fmt: skip

    def emit_return(self, instruction: Instruction) -> None:
        """Behind a call: fetch the results, and the registers that were saved."""
        results, _, _, _ = call_parts(instruction)
        for (offset, size), result in zip(self.signature(instruction).results, results, strict=True):
            self.copy_frame(self.frame.bytes + offset, self.frame.offsets[result], size)
        if not self.program.reenters(self.function.name, called_name(instruction)):
            return
        assert self.block is not None
        for name in self.flow.members(self.flow.live_in[self.block.index]):
            if name in self.frame.saved:
                self._move_saved("vg_restore", name)


def runtime_call(e: Calls, i: Instruction) -> None:
    """Functions that the CUDA runtime provides to device code."""
    results, _, arguments, _ = call_parts(i)
    sizes = {param.name: param.bytes for param in (*e.function.params, *e.function.results)}
    sizes |= {variable.name: variable.bytes for variable in e.function.variables}
    given = tuple(tuple(sizes.get(name, 0) for name in names) for names in (results, arguments))
    if given != RUNTIME_FUNCTIONS[called_name(i)]:
        raise e.unsupported(f"a call of {called_name(i)} with other parameters")
    base = e.frame_base()
    places = [e.op(f"add i32 {base}, {e.frame.offsets[name]}") for name in (*arguments, *results)]
    words = [f"i32 {place}" for place in places]
    signature = ", ".join(["i32"] * (len(words) + 2))
    e.call(
        "void", f"vg_call_{called_name(i).strip('_')}",
        ", ".join(["ptr %c", "ptr %w", f"i32 {e.lane_mask()}", f"i32 {i.line}", *words]),
        f"ptr, ptr, {signature}",
    )  # fmt: skip
