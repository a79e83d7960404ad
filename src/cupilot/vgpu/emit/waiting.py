"""The stack of waiting lanes: where they will go on, who they are, and where they meet the others."""

from __future__ import annotations

from cupilot.vgpu import layout
from cupilot.vgpu.emit.operands import Operands


class Waiting(Operands):
    """The part of the emitter that makes lanes wait."""

    base = 0  # number of the running function's first block
    has_calls = False

    def number(self, index: int) -> int:
        """A block's number among all blocks of the kernel's program."""
        return self.base + index

    def stack_entry(self, index: str) -> str:
        wide = self.op(f"zext i32 {index} to i64")
        offset = self.op(f"mul i64 {wide}, {layout.STACK_ENTRY}")
        stack = self.field_at("%w", layout.WARP_STACK)
        return self.op(f"getelementptr i8, ptr {stack}, i64 {offset}")

    def push(self, pc: str, mask: str, rpc: str) -> None:
        """Lanes that wait to go on at a block; in the frame that they have now."""
        sp = self.load_field("%w", layout.WARP_SP, "i32")
        entry = self.stack_entry(sp)
        self.store_field(entry, 0, "i32", pc)
        self.store_field(entry, 4, "i32", mask)
        self.store_field(entry, 8, "i32", rpc)
        if self.has_calls:
            self.store_field(entry, 12, "i32", self.frame_base())
        self.store_field("%w", layout.WARP_SP, "i32", self.op(f"add i32 {sp}, 1"))

    def push_meeting(self, number: int, meet: int) -> None:
        """Remember where all these lanes meet, unless an outer branch already waits there."""
        current = self.load_field("%w", layout.WARP_RPC, "i32")
        same = self.op(f"icmp eq i32 {current}, {meet}")
        self.line(f"br i1 {same}, label %split{number}_d, label %split{number}_c")
        self.out.append(f"split{number}_c:")
        self.push(str(meet), self.mask, current)
        self.store_field("%w", layout.WARP_RPC, "i32", str(meet))
        self.line(f"br label %split{number}_d")
        self.out.append(f"split{number}_d:")
