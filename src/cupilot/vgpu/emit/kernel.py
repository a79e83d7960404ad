"""One PTX kernel to LLVM IR: 32 lanes in lockstep.

A warp is a record in memory; the generated function advances one warp until it exits, reaches a
barrier or yields on a back edge, and returns which.  Registers that live longer than a basic block
have a slot in the warp's record (loaded on first use, stored at the block's end); everything else
is an SSA value.  Values that are the same in all lanes are scalars.

Lanes that part are kept on a stack of (block, mask, meeting point) entries: the ways run one after
the other, and a block where lanes meet pops the next entry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import error as StructError  # noqa: N812

from cupilot.vgpu import layout
from cupilot.vgpu.emit.calls import Calls
from cupilot.vgpu.emit.groups import find_groups
from cupilot.vgpu.emit.operands import Site
from cupilot.vgpu.emit.program import called_name, program_of
from cupilot.vgpu.emit.storage import Frame, Slots, place_shared
from cupilot.vgpu.emit.text import LANES, WIDTH
from cupilot.vgpu.emit.verify import verify_sizes
from cupilot.vgpu.lower.cost import cost_of
from cupilot.vgpu.lower.table import entry_of
from cupilot.vgpu.ptx.flow import EXIT, TERMINATORS, Block, Flow, may_spin, split_blocks
from cupilot.vgpu.ptx.indices import index_code
from cupilot.vgpu.ptx.syntax import Function, Instruction, Module, Param, Reg


@dataclass(frozen=True)
class BlockCost:
    """What one execution of a basic block by one warp costs: counters, and instructions by line.

    ``ptx_lines`` are the lines of the PTX text that it is.
    """

    counters: dict[str, float]
    lines: dict[int, int]
    ptx_lines: tuple[int, ...] = ()


@dataclass
class KernelCode:
    """LLVM IR of one kernel and what the runtime and the counters need beside it."""

    name: str
    ir: str
    symbol: str
    warp_bytes: int
    local_bytes: int  # of one thread
    shared_bytes: int
    param_bytes: int
    max_threads: int
    variables: tuple[str, ...]
    calls: tuple[str, ...]  # functions of the runtime
    takes_turns: bool  # lanes of a warp that part may go on in any order
    sites: list[Site] = field(default_factory=list)
    blocks: list[BlockCost] = field(default_factory=list)
    first_lines: list[int] = field(default_factory=list)
    files: dict[int, str] = field(default_factory=dict)  # by line of the source, where it is known
    params: dict[str, Param] = field(default_factory=dict)
    index_code: tuple[Instruction, ...] = ()


@dataclass(frozen=True)
class Body:
    """One function of a kernel's program, analysed and placed."""

    function: Function
    flow: Flow
    slots: Slots
    frame: Frame
    base: int  # number of its first block


# entries of the stack of waiting lanes: every split pushes at most two and leaves fewer lanes active, so 31 nest
SPLIT_ENTRIES = 64
# lanes that take turns go beyond where they would have met the others, with those still below them
TURN_ENTRIES = 256
CALL_ENTRIES = 4096
# of local memory, for functions that may call themselves
DEEP_BYTES = 65536


class Emitter(Calls):
    """Emits one kernel with all that it calls."""

    symbol = "kernel"

    def __init__(self, module: Module, kernel: Function) -> None:
        self.program = program_of(module, kernel)
        functions = self.program.functions
        offsets, self.shared_bytes = place_shared(module, functions)
        super().__init__(module, offsets)
        self.bodies = self._bodies()
        self.bases = {body.function.name: body.base for body in self.bodies}
        self.frames = {body.function.name: body.frame for body in self.bodies}
        self.frame_limit = self._local_bytes()
        verify_sizes(self.warp_bytes, self.frame_limit, self.shared_bytes)
        self._mask_vector = ""
        self._pending: list[tuple[str, int]] = []
        self._enter(self.bodies[0])

    def _bodies(self) -> list[Body]:
        # lanes that wait for others of their warp take turns, and then any register may be written while some wait
        self.takes_turns = any(may_spin(split_blocks(f)) for f in self.program.functions)
        flows = [self.flow_of(f, self.takes_turns or self.program.recursive(f.name)) for f in self.program.functions]
        self.has_calls = len(flows) > 1
        self.stack_depth = self._entries(flows[0])
        start = -(-(layout.WARP_STACK + layout.STACK_ENTRY * self.stack_depth) // 64) * 64
        bodies: list[Body] = []
        base = 0
        for function, flow in zip(self.program.functions, flows, strict=True):
            slots, frame = Slots(function, flow, start), Frame(function)
            for block in flow.blocks:
                if block.ends_in_call and self.program.reenters(function.name, called_name(block.code[-1])):
                    for name in flow.members(flow.live_out[block.index]):
                        frame.save(name, -(-slots.size(name) // LANES))
            bodies.append(Body(function, flow, slots, frame, base))
            start, base = slots.end, base + len(flow.blocks)
        self.warp_bytes = start + 64
        return bodies

    def _entries(self, kernel: Flow) -> int:
        if self.has_calls:
            return CALL_ENTRIES
        return TURN_ENTRIES if self.takes_turns else SPLIT_ENTRIES if kernel.splitting else 0

    def _local_bytes(self) -> int:
        """Of one thread: all frames in a row, which is enough for calls that do not come back to where they were."""
        total = sum(frame.bytes for frame in self.frames.values())
        recursive = any(self.program.recursive(body.function.name) for body in self.bodies)
        return max(total, DEEP_BYTES) if recursive else total

    def _enter(self, body: Body) -> None:
        self.function, self.flow, self.slots, self.frame = body.function, body.flow, body.slots, body.frame
        self.base = body.base
        self.masked = self.flow.masked()
        self._meets = {self.flow.post_dominator[i] for i in self.flow.splitting} - {EXIT}
        for block in self.flow.blocks:
            if block.ends_in_call and not called_name(block.code[-1]):
                self._meets.add(self.flow.blocks[block.successors[0]].successors[0])

    # --- blocks ----------------------------------------------------------------------------

    def kernel(self) -> KernelCode:
        """Emit the kernel and all functions it reaches as one."""
        kernel = self.function
        costs, first_lines = [], []
        for body in self.bodies:
            self._enter(body)
            for block in self.flow.blocks:
                self._block(block)
                costs.append(BlockCost(*cost_of(block.code), tuple(dict.fromkeys(i.ptx_line for i in block.code))))
                first_lines.append(next((i.line for i in block.code if i.line), 0))
        code, self.out = self.out, []
        self._entry(len(costs))
        text = "\n".join(
            [
                *self.constants,
                *sorted(self.declared.values()),
                f"define i32 @{self.symbol}(ptr noalias %w, ptr noalias %c) {{",
                *self.out,
                *code,
                "}",
            ]
        )
        return KernelCode(
            kernel.name, text, self.symbol, self.warp_bytes, self.frame_limit, self.shared_bytes,
            kernel.param_bytes, kernel.max_threads, tuple(self.variables),
            tuple(name for name in sorted(self.declared) if name.startswith("vg_")), self.takes_turns, self.sites,
            costs, first_lines, self.module.file_names(self.program.functions),
            {param.name: param for param in kernel.params}, index_code(kernel),
        )  # fmt: skip

    def _entry(self, blocks: int) -> None:
        """Dispatch on the stored pc; pop the stack of waiting lanes."""
        cases = " ".join(f"i32 {b}, label %b{b}" for b in range(blocks))
        w = "%w"
        self.out.append("entry:")
        self.line(f"%addresses = alloca [{LANES} x i64], align 64")
        self.line(f"%data = alloca [{16 * LANES} x i64], align 64")
        for buffer in self.buffers:
            self.line(buffer)
        start = self.load_field(w, layout.WARP_PC, "i32")
        self.line("br label %dispatch")
        self.out.append("dispatch:")
        self.line(f"%pc = phi i32 [ {start}, %entry ], [ %popped_pc, %resume ]")
        self.line(f"switch i32 %pc, label %finished [ {cases} ]")
        self.out.append("pop:")
        sp = self.load_field(w, layout.WARP_SP, "i32")
        empty = self.op(f"icmp eq i32 {sp}, 0")
        self.line(f"br i1 {empty}, label %finished, label %take")
        self.out.append("take:")
        lower = self.op(f"sub i32 {sp}, 1")
        self.store_field(w, layout.WARP_SP, "i32", lower)
        entry = self.stack_entry(lower)
        self.line(f"%popped_pc = load i32, ptr {entry}, align 4")
        waiting = self.load_field(entry, 4, "i32")
        meeting = self.load_field(entry, 8, "i32")
        if self.has_calls:
            self.store_field(w, layout.WARP_FRAME, "i32", self.load_field(entry, 12, "i32"))
        exited = self.load_field(w, layout.WARP_EXITED, "i32")
        left = self.op(f"xor i32 {exited}, -1")
        mask = self.op(f"and i32 {waiting}, {left}")
        self.store_field(w, layout.WARP_MASK, "i32", mask)
        self.store_field(w, layout.WARP_RPC, "i32", meeting)
        nobody = self.op(f"icmp eq i32 {mask}, 0")
        self.line(f"br i1 {nobody}, label %pop, label %resume")
        self.out.append("resume:")
        self.line("br label %dispatch")
        self.out.append("leave:")
        now = self.load_field(w, layout.WARP_MASK, "i32")
        gone = self.load_field(w, layout.WARP_EXITED, "i32")
        self.store_field(w, layout.WARP_EXITED, "i32", self.op(f"or i32 {gone}, {now}"))
        self.line("br label %pop")
        self.out.append("finished:")
        self.line(f"ret i32 {layout.RETURN_EXIT}")
        if self.has_calls:
            self.out.append("overflow:")
            self.line(f"ret i32 {layout.RETURN_TRAP}")
            self.out.append("bad_call:")
            self.call("void", "vg_bad_call", "ptr %c, ptr %w", "ptr, ptr")
            self.line("br label %overflow")

    def _block(self, block: Block) -> None:
        self.held = {}
        self._mask_vector = ""
        self.block = block
        self.groups = find_groups(block.code)
        number = self.number(block.index)
        self.out.append(f"b{number}:")
        if block.index in self._meets:
            waiting = self.load_field("%w", layout.WARP_RPC, "i32")
            here = self.op(f"icmp eq i32 {waiting}, {number}")
            self.line(f"br i1 {here}, label %pop, label %b{number}_run")
            self.out.append(f"b{number}_run:")
        self.mask = self.load_field("%w", layout.WARP_MASK, "i32")
        self._count(number)
        for instruction in block.code:
            self.instruction = instruction
            waits = (block.ends_in_barrier or block.ends_in_call) and instruction is block.code[-1]
            if instruction.opcode in TERMINATORS or waits:
                break
            self._lower(instruction)
        else:
            self.instruction = None
        self._terminate(block)

    def _lower(self, instruction: Instruction) -> bool:
        """Emit one instruction; true when the warp must wait.  Operands that no form has are the PTX's fault."""
        try:
            return bool(entry_of(instruction).lower(self, instruction))
        except (
            ArithmeticError,
            AssertionError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
            StructError,
        ) as error:
            raise self.unsupported(f"operands or modifiers of this kind ({error})") from error

    def _count(self, index: int) -> None:
        counts = self.load_field("%c", layout.CTX_COUNTS, "ptr")
        for offset, amount in ((16 * index, "1"), (16 * index + 8, self._population())):
            place = self.field_at(counts, offset)
            old = self.op(f"load i64, ptr {place}, align 8")
            self.line(f"store i64 {self.op(f'add i64 {old}, {amount}')}, ptr {place}, align 8")

    def _population(self) -> str:
        lanes = self.intrinsic("ctpop", "i32", False, self.mask)
        return self.op(f"zext i32 {lanes} to i64")

    def _store_live(self, block: Block) -> None:
        masked = self.masked[block.index]
        live = self.flow.live_out[block.index] & self.flow.defined[block.index]
        for name in self.flow.members(live):
            held = self.held[name]
            place = self.field_at("%w", self.slots[name])
            value, full = held.value, self.shaped(held.type, held.vector)
            if masked & self.flow.bit[name] and held.vector:
                old = self.load_slot(place, held.type, True)
                bits = self._active()
                value = self.op(f"select <{LANES} x i1> {bits}, {full} {value}, {full} {old.value}")
            if held.type == "i1":
                word = self.lane_bits(value) if held.vector else self.op(f"zext i1 {value} to i32")
                self.line(f"store i32 {word}, ptr {place}, align 4")
            else:
                align = min(LANES * WIDTH[held.type] // 8, 64) if held.vector else 8
                self.line(f"store {full} {value}, ptr {place}, align {align}")

    def _active(self) -> str:
        if not self._mask_vector:
            self._mask_vector = self.op(f"bitcast i32 {self.mask} to <{LANES} x i1>")
        return self._mask_vector

    # --- leaving a block -------------------------------------------------------------------

    def _terminate(self, block: Block) -> None:
        last = self.instruction
        condition = ""
        if last is not None and len(block.successors) > 1:
            vector = block.index in self.flow.splitting
            condition = self.fetch(Reg(last.guard), "i1", vector)
            if last.guard_negated:
                condition = self.op(f"xor {self.shaped('i1', vector)} {condition}, {self.constant(1, 'i1', vector)}")
        waits = False
        if last is not None and block.ends_in_barrier:
            waits = self._lower(last)
        self._store_live(block)
        if last is not None and block.ends_in_call:
            self.emit_call(block, last)
        elif last is not None and last.opcode == "trap":
            self.store_field("%w", layout.WARP_PC, "i32", str(self.number(block.index)))
            self.line(f"ret i32 {layout.RETURN_TRAP}")
        elif waits:
            self._barrier(block)
        elif len(block.successors) == 1:
            self.line(f"br label %{self._edge(block, block.successors[0])}")
        elif block.index in self.flow.splitting:
            self._split(block, condition)
        else:
            taken, other = (self._edge(block, s) for s in block.successors)
            self.line(f"br i1 {condition}, label %{taken}, label %{other}")
        self._flush_edges()

    def _barrier(self, block: Block) -> None:
        successor = block.successors[0]
        if successor == EXIT:
            raise self.unsupported("a barrier that nothing follows")
        self.store_field("%w", layout.WARP_PC, "i32", str(self.number(successor)))
        self.line(f"ret i32 {layout.RETURN_BARRIER}")

    def _edge(self, block: Block, successor: int) -> str:
        """Label to go to; a back edge passes through code that lets other warps run."""
        if successor == EXIT:
            return "leave" if self._ends_threads(block) else "pop"
        if successor > block.index:
            return f"b{self.number(successor)}"
        label = f"back{self.number(block.index)}_{self.number(successor)}"
        self._pending.append((label, self.number(successor)))
        return label

    def _ends_threads(self, block: Block) -> bool:
        """Whether lanes that leave here are done; from a called function they only return."""
        return self.function.is_kernel or (bool(block.code) and block.code[-1].opcode == "exit")

    def _flush_edges(self) -> None:
        for label, successor in dict.fromkeys(self._pending):
            self.out.append(f"{label}:")
            fuel = self.load_field("%w", layout.WARP_FUEL, "i32")
            left = self.op(f"sub i32 {fuel}, 1")
            self.store_field("%w", layout.WARP_FUEL, "i32", left)
            spent = self.op(f"icmp sle i32 {left}, 0")
            self.line(f"br i1 {spent}, label %{label}_yield, label %b{successor}")
            self.out.append(f"{label}_yield:")
            self.store_field("%w", layout.WARP_PC, "i32", str(successor))
            self.line(f"ret i32 {layout.RETURN_YIELD}")
        self._pending.clear()

    def _split(self, block: Block, condition: str) -> None:
        """A branch that lanes may take differently."""
        index, (taken, other) = self.number(block.index), block.successors
        meet = self.flow.post_dominator[block.index]
        bits = self.lane_bits(condition)
        yes = self.op(f"and i32 {bits}, {self.mask}")
        no = self.op(f"xor i32 {yes}, {self.mask}")
        all_yes, all_no = self.op(f"icmp eq i32 {no}, 0"), self.op(f"icmp eq i32 {yes}, 0")
        taken_label, other_label = self._edge(block, taken), self._edge(block, other)
        self.line(f"br i1 {all_yes}, label %{taken_label}, label %split{index}_a")
        self.out.append(f"split{index}_a:")
        self.line(f"br i1 {all_no}, label %{other_label}, label %split{index}_b")
        self.out.append(f"split{index}_b:")
        if meet != EXIT:
            self.push_meeting(index, self.number(meet))
        if other == meet and other != EXIT:
            self.store_field("%w", layout.WARP_MASK, "i32", yes)
            self.line(f"br label %{taken_label}")
        elif taken == meet and taken != EXIT:
            self.store_field("%w", layout.WARP_MASK, "i32", no)
            self.line(f"br label %{other_label}")
        elif EXIT in (taken, other):
            staying = no if taken == EXIT else yes
            if self._ends_threads(block):
                self._leave(yes if taken == EXIT else no)
            self.store_field("%w", layout.WARP_MASK, "i32", staying)
            self.line(f"br label %{other_label if taken == EXIT else taken_label}")
        else:
            self.push(str(self.number(other)), no, self.load_field("%w", layout.WARP_RPC, "i32"))
            self.store_field("%w", layout.WARP_MASK, "i32", yes)
            self.line(f"br label %{taken_label}")

    def _leave(self, leaving: str) -> None:
        gone = self.load_field("%w", layout.WARP_EXITED, "i32")
        self.store_field("%w", layout.WARP_EXITED, "i32", self.op(f"or i32 {gone}, {leaving}"))
