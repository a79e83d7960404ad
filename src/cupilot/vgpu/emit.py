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

from cupilot.vgpu import layout
from cupilot.vgpu.lower.cost import cost_of
from cupilot.vgpu.lower.table import access_of, lowering_of, varies
from cupilot.vgpu.ptx.flow import EXIT, TERMINATORS, Block, Flow
from cupilot.vgpu.ptx.parse import PtxError
from cupilot.vgpu.ptx.syntax import Address, Function, Imm, Instruction, Module, Operand, Reg, Symbol

LANES = 32
LLVM_TYPES = {
    "b8": "i8", "u8": "i8", "s8": "i8", "b16": "i16", "u16": "i16", "s16": "i16",
    "b32": "i32", "u32": "i32", "s32": "i32", "b64": "i64", "u64": "i64", "s64": "i64",
    "f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double", "pred": "i1",
}  # fmt: skip
WIDTH = {"i1": 1, "i8": 8, "i16": 16, "half": 16, "bfloat": 16, "i32": 32, "float": 32, "i64": 64, "double": 64}


@dataclass(frozen=True)
class Site:
    """One memory instruction, as the runtime needs to know it."""

    text: str
    line: int
    space: str
    bytes: int
    store: bool


@dataclass(frozen=True)
class BlockCost:
    """What one execution of a basic block by one warp costs: counters, and instructions by line."""

    counters: dict[str, float]
    lines: dict[int, int]


@dataclass
class KernelCode:
    """LLVM IR of one kernel and what the runtime and the counters need beside it."""

    name: str
    ir: str
    symbol: str
    warp_bytes: int
    shared_bytes: int
    param_bytes: int
    max_threads: int
    variables: tuple[str, ...]
    sites: list[Site] = field(default_factory=list)
    blocks: list[BlockCost] = field(default_factory=list)
    first_lines: list[int] = field(default_factory=list)


@dataclass
class Held:
    """The current SSA value of a register inside a block."""

    value: str
    type: str
    vector: bool


class Emitter:
    """Emits one kernel; lowerings call `fetch`, `put`, `op` and `call`."""

    def __init__(self, module: Module, function: Function) -> None:
        self.module = module
        self.function = function
        self.flow = Flow(function, access_of, varies)
        self.out: list[str] = []
        self.declared: dict[str, str] = {}
        self.sites: list[Site] = []
        self.variables: list[str] = []
        self.held: dict[str, Held] = {}
        self.instruction: Instruction | None = None
        self.count = 0
        self.symbol = "kernel"
        self.shared_offsets, self.shared_bytes = self._place_shared()
        self.slots, self.slot_bytes = self._allocate_slots()
        self.masked = self.flow.masked()
        self.mask = ""
        self._mask_vector = ""

    # --- storage ---------------------------------------------------------------------------

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
        kind = LLVM_TYPES[self._declared_type(name)]
        if kind == "i1":
            return 4  # a mask, or 0 / 1
        return 8 if self.flow.uniform(name) else LANES * WIDTH[kind] // 8

    def _declared_type(self, name: str) -> str:
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

    # --- writing IR ------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.out.append("  " + text)

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def op(self, text: str) -> str:
        """Emit ``%new = text`` and give the new name."""
        value = self.name()
        self.line(f"{value} = {text}")
        return value

    @staticmethod
    def shaped(kind: str, vector: bool) -> str:
        return f"<{LANES} x {kind}>" if vector else kind

    def constant(self, bits: int, kind: str, vector: bool) -> str:
        """A constant given by its bits, for integer and float types alike."""
        if kind == "i1":
            text = "true" if bits & 1 else "false"
            return f"splat (i1 {text})" if vector else text
        width = WIDTH[kind]
        bits &= (1 << width) - 1
        if kind.startswith("i"):
            return f"splat ({kind} {bits})" if vector else str(bits)
        integer = f"i{width}"
        if vector:
            return f"bitcast (<{LANES} x {integer}> splat ({integer} {bits}) to <{LANES} x {kind}>)"
        return f"bitcast ({integer} {bits} to {kind})"

    def splat(self, value: str, kind: str) -> str:
        first = self.op(f"insertelement <{LANES} x {kind}> poison, {kind} {value}, i32 0")
        full = self.shaped(kind, True)
        return self.op(f"shufflevector {full} {first}, {full} poison, <{LANES} x i32> zeroinitializer")

    def cast(self, value: str, have: str, want: str, vector: bool) -> str:
        """Between types of the same width by bits; between widths by truncation or zero extension."""
        if have == want:
            return value
        if WIDTH[have] == WIDTH[want]:
            verb = "bitcast"
        else:
            plain = f"i{WIDTH[have]}"
            value = self.cast(value, have, plain, vector)
            have = plain
            target = f"i{WIDTH[want]}"
            verb = "trunc" if WIDTH[want] < WIDTH[have] else "zext"
            value = self.op(f"{verb} {self.shaped(have, vector)} {value} to {self.shaped(target, vector)}")
            return self.cast(value, target, want, vector)
        return self.op(f"{verb} {self.shaped(have, vector)} {value} to {self.shaped(want, vector)}")

    def call(self, result: str, function: str, arguments: str, signature: str) -> str:
        """Call an external or intrinsic function; declared once per module."""
        self.declared.setdefault(function, f"declare {result} @{function}({signature})")
        if result == "void":
            self.line(f"call void @{function}({arguments})")
            return ""
        return self.op(f"call {result} @{function}({arguments})")

    def intrinsic(self, base: str, kind: str, vector: bool, *values: str) -> str:
        """Call ``llvm.<base>`` over one type for all arguments."""
        suffix = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16"}.get(kind, kind)
        full = self.shaped(kind, vector)
        name = f"llvm.{base}.v{LANES}{suffix}" if vector else f"llvm.{base}.{suffix}"
        return self.call(full, name, ", ".join(f"{full} {v}" for v in values), ", ".join([full] * len(values)))

    def field_at(self, base: str, offset: int) -> str:
        return self.op(f"getelementptr i8, ptr {base}, i64 {offset}") if offset else base

    def load_field(self, base: str, offset: int, kind: str) -> str:
        return self.op(f"load {kind}, ptr {self.field_at(base, offset)}, align {min(WIDTH.get(kind, 64) // 8, 8) or 1}")

    def store_field(self, base: str, offset: int, kind: str, value: str) -> None:
        self.line(f"store {kind} {value}, ptr {self.field_at(base, offset)}")

    # --- operands --------------------------------------------------------------------------

    def is_vector(self, *names: str) -> bool:
        """Whether an instruction that writes these registers works on all lanes."""
        return any(not self.flow.uniform(name) for name in names if name in self.flow.bit)

    def operand_is_uniform(self, operand: Operand) -> bool:
        if isinstance(operand, Reg):
            if operand.name in self.flow.bit:
                return self.flow.uniform(operand.name)
            return not operand.name.startswith(("%tid", "%laneid"))
        if isinstance(operand, Address) and operand.base is not None:
            return self.operand_is_uniform(operand.base)
        return isinstance(operand, (Imm, Symbol, Address))

    def fetch(self, operand: Operand, kind: str, vector: bool) -> str:
        """The value of an operand as an LLVM value of the given element type and shape."""
        if isinstance(operand, Imm):
            return self.constant(self._literal(operand, kind), kind, vector)
        if isinstance(operand, Symbol):
            value = self.symbol_address(operand)
            value = self.cast(value, "i64", kind, False)
            return self.splat(value, kind) if vector else value
        if not isinstance(operand, Reg):
            raise self.unsupported("an operand of this form")
        held = self.register(operand.name)
        value = self.cast(held.value, held.type, kind, held.vector)
        if vector and not held.vector:
            return self.splat(value, kind)
        if held.vector and not vector:
            raise AssertionError(f"{operand.name} differs between lanes where one value is needed")
        return value

    @staticmethod
    def _literal(operand: Imm, kind: str) -> int:
        import struct

        if operand.float_bits == 64 and kind in ("float", "i32"):
            number = struct.unpack("<d", operand.value.to_bytes(8, "little"))[0]
            return int(struct.unpack("<I", struct.pack("<f", number))[0])
        if operand.float_bits == 0 and kind == "float":
            return int(struct.unpack("<I", struct.pack("<f", float(operand.value)))[0])
        if operand.float_bits == 0 and kind == "double":
            return int(struct.unpack("<Q", struct.pack("<d", float(operand.value)))[0])
        return operand.value

    def register(self, name: str) -> Held:
        if name in self.held:
            return self.held[name]
        if name not in self.function.registers:
            return self._special(name)
        kind = LLVM_TYPES[self._declared_type(name)]
        vector = not self.flow.uniform(name)
        if name in self.slots:
            place = self.field_at("%w", self.slots_start + self.slots[name])
            self.held[name] = self._load_slot(place, kind, vector)
        else:
            # read before any write: the value is undefined, and zero is as good as any
            self.held[name] = Held(self.constant(0, kind, vector), kind, vector)
        return self.held[name]

    def _load_slot(self, place: str, kind: str, vector: bool) -> Held:
        if kind == "i1":
            word = self.op(f"load i32, ptr {place}, align 4")
            if vector:
                return Held(self.op(f"bitcast i32 {word} to <{LANES} x i1>"), kind, True)
            return Held(self.op(f"trunc i32 {word} to i1"), kind, False)
        if vector:
            align = min(LANES * WIDTH[kind] // 8, 64)
            return Held(self.op(f"load <{LANES} x {kind}>, ptr {place}, align {align}"), kind, True)
        return Held(self.op(f"load {kind}, ptr {place}, align 8"), kind, False)

    def _special(self, name: str) -> Held:
        axis = {"x": 0, "y": 1, "z": 2}.get(name[-1], 0)
        base = name.rsplit(".", 1)[0]
        if base == "%tid":
            place = self.field_at("%w", layout.WARP_TID + 128 * axis)
            held = Held(self.op(f"load <{LANES} x i32>, ptr {place}, align 64"), "i32", True)
        elif name == "%laneid":
            lanes = ", ".join(f"i32 {i}" for i in range(LANES))
            held = Held(f"<{lanes}>", "i32", True)
        elif base in ("%ctaid", "%nctaid", "%ntid"):
            offset = {"%ctaid": layout.CTX_CTAID, "%nctaid": layout.CTX_NCTAID, "%ntid": layout.CTX_NTID}[base]
            held = Held(self.load_field("%c", offset + 4 * axis, "i32"), "i32", False)
        elif name == "%warpid":
            held = Held(self.load_field("%w", layout.WARP_INDEX, "i32"), "i32", False)
        elif name == "WARP_SZ":
            held = Held("32", "i32", False)
        elif name == "%dynamic_smem_size":
            held = Held(self.load_field("%c", layout.CTX_DYNAMIC_SHARED_BYTES, "i32"), "i32", False)
        else:
            raise self.unsupported(f"the special register {name}")
        self.held[name] = held
        return held

    def symbol_address(self, symbol: Symbol) -> str:
        """Address of a variable in its own space, as an i64."""
        if symbol.name in self.shared_offsets:
            return str(self.shared_offsets[symbol.name] + symbol.offset)
        for param in self.function.params:
            if param.name == symbol.name:
                base = self.load_field("%c", layout.CTX_PARAMS, "i64")
                return self.op(f"add i64 {base}, {param.offset + symbol.offset}")
        variable = self.module.variables.get(symbol.name)
        if variable is None or variable.space not in ("global", "const"):
            raise self.unsupported(f"the address of {symbol.name}")
        if symbol.name not in self.variables:
            self.variables.append(symbol.name)
        table = self.load_field("%c", layout.CTX_VARIABLES, "ptr")
        base = self.load_field(table, 8 * self.variables.index(symbol.name), "i64")
        return self.op(f"add i64 {base}, {symbol.offset}") if symbol.offset else base

    def address(self, operand: Operand, kind: str, vector: bool) -> str:
        """The address ``[base+offset]`` as i64 (global, generic) or i32 (shared)."""
        if not isinstance(operand, Address):
            raise self.unsupported("this address form")
        if operand.base is None:
            return self.constant(operand.offset, kind, vector)
        if isinstance(operand.base, Symbol):
            return self.fetch(Symbol(operand.base.name, operand.base.offset + operand.offset), kind, vector)
        base = self.fetch(operand.base, kind, vector)
        if not operand.offset:
            return base
        return self.op(f"add {self.shaped(kind, vector)} {base}, {self.constant(operand.offset, kind, vector)}")

    # --- results ---------------------------------------------------------------------------

    def put(self, destination: Operand, value: str, kind: str, vector: bool) -> None:
        """Set a register; under the instruction's guard the old value stays in the other lanes."""
        if not isinstance(destination, Reg):
            raise self.unsupported("a destination of this form")
        name = destination.name
        if name == "_":
            return
        declared = LLVM_TYPES[self._declared_type(name)]
        value = self.cast(value, kind, declared, vector)
        wants_vector = not self.flow.uniform(name)
        if wants_vector and not vector:
            value = self.splat(value, declared)
        guard = self.guard(wants_vector)
        if guard:
            old = self.register(name)
            full, bits = self.shaped(declared, wants_vector), self.shaped("i1", wants_vector)
            value = self.op(f"select {bits} {guard}, {full} {value}, {full} {old.value}")
        self.held[name] = Held(value, declared, wants_vector)

    def guard(self, vector: bool) -> str:
        """The current instruction's guard as i1 values, or nothing."""
        instruction = self.instruction
        if instruction is None or not instruction.guard or instruction.opcode in TERMINATORS:
            return ""
        value = self.fetch(Reg(instruction.guard), "i1", vector)
        if instruction.guard_negated:
            value = self.op(f"xor {self.shaped('i1', vector)} {value}, {self.constant(1, 'i1', vector)}")
        return value

    def lane_bits(self, value: str) -> str:
        """<32 x i1> as an i32 mask."""
        return self.op(f"bitcast <{LANES} x i1> {value} to i32")

    def lane_mask(self) -> str:
        """The lanes for which the current instruction acts, as an i32."""
        instruction = self.instruction
        if instruction is None or not instruction.guard:
            return self.mask
        if self.flow.uniform(instruction.guard):
            return self.op(f"select i1 {self.guard(False)}, i32 {self.mask}, i32 0")
        return self.op(f"and i32 {self.mask}, {self.lane_bits(self.guard(True))}")

    def site(self, space: str, width: int, store: bool) -> int:
        instruction = self.instruction
        assert instruction is not None
        self.sites.append(Site(instruction.text, instruction.line, space, width, store))
        return len(self.sites) - 1

    def unsupported(self, what: str) -> PtxError:
        instruction = self.instruction
        text = instruction.text if instruction else "?"
        line = instruction.line if instruction else 0
        return PtxError(
            f"unsupported on the virtual GPU: {what}, opcode {text}, kernel {self.function.name}, line {line}"
        )

    # --- blocks ----------------------------------------------------------------------------

    def kernel(self) -> KernelCode:
        """Emit the whole function."""
        costs, first_lines = [], []
        for block in self.flow.blocks:
            self._block(block)
            costs.append(cost_of(block.code))
            first_lines.append(next((i.line for i in block.code if i.line), 0))
        body, self.out = self.out, []
        self._entry()
        text = "\n".join(
            [
                *sorted(self.declared.values()),
                f"define i32 @{self.symbol}(ptr noalias %w, ptr noalias %c) {{",
                *self.out,
                *body,
                "}",
            ]
        )
        return KernelCode(
            self.function.name, text, self.symbol, self.slots_start + self.slot_bytes + 64, self.shared_bytes,
            self.function.param_bytes, self.function.max_threads, tuple(self.variables), self.sites,
            [BlockCost(*cost) for cost in costs], first_lines,
        )  # fmt: skip

    def _entry(self) -> None:
        """Dispatch on the stored pc; pop the stack of waiting lanes."""
        cases = " ".join(f"i32 {b.index}, label %b{b.index}" for b in self.flow.blocks)
        w = "%w"
        self.out.append("entry:")
        self.line(f"%addresses = alloca [{LANES} x i64], align 64")
        self.line(f"%data = alloca [{4 * LANES} x i64], align 64")
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
        entry = self._stack_entry(lower)
        self.line(f"%popped_pc = load i32, ptr {entry}, align 4")
        waiting = self.load_field(entry, 4, "i32")
        meeting = self.load_field(entry, 8, "i32")
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

    def _stack_entry(self, index: str) -> str:
        wide = self.op(f"zext i32 {index} to i64")
        offset = self.op(f"mul i64 {wide}, {layout.STACK_ENTRY}")
        stack = self.field_at("%w", layout.WARP_STACK)
        return self.op(f"getelementptr i8, ptr {stack}, i64 {offset}")

    def _block(self, block: Block) -> None:
        self.held = {}
        self._mask_vector = ""
        meets = {self.flow.post_dominator[i] for i in self.flow.splitting}
        self.out.append(f"b{block.index}:")
        if block.index in meets:
            waiting = self.load_field("%w", layout.WARP_RPC, "i32")
            here = self.op(f"icmp eq i32 {waiting}, {block.index}")
            self.line(f"br i1 {here}, label %pop, label %b{block.index}_run")
            self.out.append(f"b{block.index}_run:")
        self.mask = self.load_field("%w", layout.WARP_MASK, "i32")
        self._count(block.index)
        for instruction in block.code:
            self.instruction = instruction
            if instruction.opcode in TERMINATORS or (block.ends_in_barrier and instruction is block.code[-1]):
                break
            lowering_of(instruction, self.function.name)(self, instruction)
        else:
            self.instruction = None
        self._terminate(block)

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
            place = self.field_at("%w", self.slots_start + self.slots[name])
            value, full = held.value, self.shaped(held.type, held.vector)
            if masked & self.flow.bit[name] and held.vector:
                old = self._load_slot(place, held.type, True)
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
                condition = self.op(
                    f"xor {self.shaped('i1', vector)} {condition}, {self.constant(1, 'i1', vector)}"
                )
        barrier = lowering_of(last, self.function.name) if block.ends_in_barrier and last is not None else None
        identifier = barrier(self, last) if barrier is not None else None
        self._store_live(block)
        if last is not None and last.opcode == "trap":
            self.line(f"ret i32 {layout.RETURN_TRAP}")
        elif identifier is not None:
            self._barrier(block, identifier)
        elif len(block.successors) == 1:
            self.line(f"br label %{self._edge(block, block.successors[0])}")
        elif block.index in self.flow.splitting:
            self._split(block, condition)
        else:
            taken, other = (self._edge(block, s) for s in block.successors)
            self.line(f"br i1 {condition}, label %{taken}, label %{other}")
        self._flush_edges()

    def _barrier(self, block: Block, identifier: str) -> None:
        self.store_field("%w", layout.WARP_BARRIER, "i32", identifier)
        successor = block.successors[0]
        if successor == EXIT:
            raise self.unsupported("a barrier that nothing follows")
        self.store_field("%w", layout.WARP_PC, "i32", str(successor))
        self.line(f"ret i32 {layout.RETURN_BARRIER}")

    _pending: tuple[tuple[str, int], ...] = ()

    def _edge(self, block: Block, successor: int) -> str:
        """Label to go to; a back edge passes through code that lets other warps run."""
        if successor == EXIT:
            return "leave"
        if successor > block.index:
            return f"b{successor}"
        label = f"back{block.index}_{successor}"
        self._pending = (*self._pending, (label, successor))
        return label

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
        self._pending = ()

    def _split(self, block: Block, condition: str) -> None:
        """A branch that lanes may take differently."""
        index, (taken, other) = block.index, block.successors
        meet = self.flow.post_dominator[index]
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
            self._push_meeting(index, meet)
        if other == meet and other != EXIT:
            self.store_field("%w", layout.WARP_MASK, "i32", yes)
            self.line(f"br label %{taken_label}")
        elif taken == meet and taken != EXIT:
            self.store_field("%w", layout.WARP_MASK, "i32", no)
            self.line(f"br label %{other_label}")
        elif taken == EXIT or other == EXIT:
            self._leave_some(yes if taken == EXIT else no, no if taken == EXIT else yes)
            self.line(f"br label %{other_label if taken == EXIT else taken_label}")
        else:
            self._push(str(other), no, self.load_field("%w", layout.WARP_RPC, "i32"))
            self.store_field("%w", layout.WARP_MASK, "i32", yes)
            self.line(f"br label %{taken_label}")

    def _leave_some(self, leaving: str, staying: str) -> None:
        gone = self.load_field("%w", layout.WARP_EXITED, "i32")
        self.store_field("%w", layout.WARP_EXITED, "i32", self.op(f"or i32 {gone}, {leaving}"))
        self.store_field("%w", layout.WARP_MASK, "i32", staying)

    def _push_meeting(self, index: int, meet: int) -> None:
        """Remember where all these lanes meet, unless an outer branch already waits there."""
        current = self.load_field("%w", layout.WARP_RPC, "i32")
        same = self.op(f"icmp eq i32 {current}, {meet}")
        self.line(f"br i1 {same}, label %split{index}_d, label %split{index}_c")
        self.out.append(f"split{index}_c:")
        self._push(str(meet), self.mask, current)
        self.store_field("%w", layout.WARP_RPC, "i32", str(meet))
        self.line(f"br label %split{index}_d")
        self.out.append(f"split{index}_d:")

    def _push(self, pc: str, mask: str, rpc: str) -> None:
        sp = self.load_field("%w", layout.WARP_SP, "i32")
        entry = self._stack_entry(sp)
        self.store_field(entry, 0, "i32", pc)
        self.store_field(entry, 4, "i32", mask)
        self.store_field(entry, 8, "i32", rpc)
        self.store_field("%w", layout.WARP_SP, "i32", self.op(f"add i32 {sp}, 1"))
