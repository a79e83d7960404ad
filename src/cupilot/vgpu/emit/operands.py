"""Operands and results of instructions as LLVM values."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from cupilot.vgpu import layout
from cupilot.vgpu.emit.groups import Group
from cupilot.vgpu.emit.program import function_value
from cupilot.vgpu.emit.special import CLOCKS, special_register
from cupilot.vgpu.emit.storage import Frame, Slots, declared_type
from cupilot.vgpu.emit.text import LANES, LLVM_TYPES, WIDTH, IrText
from cupilot.vgpu.emit.verify import verify_function
from cupilot.vgpu.lower.table import access_of, varies
from cupilot.vgpu.ptx.flow import TERMINATORS, Flow
from cupilot.vgpu.ptx.parse import PtxError
from cupilot.vgpu.ptx.syntax import Address, Function, Imm, Instruction, Module, Not, Operand, Reg, Symbol

RELAXED = ("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio")


@dataclass(frozen=True)
class Site:
    """One memory instruction, as the runtime needs to know it."""

    text: str
    line: int
    space: str
    bytes: int
    store: bool
    relaxed: bool = False  # volatile and the like: meant to meet other threads' accesses
    group: int = -1  # the site that counts for this one and its neighbours
    atomic: bool = False


@dataclass
class Held:
    """The current SSA value of a register inside a block."""

    value: str
    type: str
    vector: bool


class Operands(IrText):
    """What lowerings use: `fetch` an operand, `put` a result, know the guard and the active lanes."""

    # of the function that is being emitted
    function: Function
    flow: Flow
    slots: Slots
    frame: Frame

    def __init__(self, module: Module, shared_offsets: dict[str, int]) -> None:
        super().__init__()
        self.module = module
        self.shared_offsets = shared_offsets
        self.sites: list[Site] = []
        self.variables: list[str] = []
        self.held: dict[str, Held] = {}
        self.instruction: Instruction | None = None
        self.mask = ""
        self.groups: dict[int, tuple[Group, int]] = {}

    @staticmethod
    def flow_of(function: Function, reentrant: bool) -> Flow:
        """The function's flow; what is read from a frame may differ between lanes."""
        kernel_params = {param.name for param in function.params} if function.is_kernel else set()

        def differs(instruction: Instruction) -> bool:
            if instruction.opcode == "ld" and instruction.has("param"):
                address = instruction.operands[1]
                base = address.base if isinstance(address, Address) else None
                return not (isinstance(base, Symbol) and base.name in kernel_params)
            return varies(instruction)

        verify_function(function)
        return Flow(function, access_of, differs, reentrant=reentrant)

    def frame_base(self) -> str:
        """Where this function's frame starts in local memory; a kernel's is the first."""
        return "0" if self.function.is_kernel else self.load_field("%w", layout.WARP_FRAME, "i32")

    def is_vector(self, *names: str) -> bool:
        """Whether an instruction that writes these registers works on all lanes."""
        return any(not self.flow.uniform(name) for name in names if name in self.flow.bit)

    def operand_is_uniform(self, operand: Operand) -> bool:
        if isinstance(operand, Reg):
            if operand.name in self.flow.bit:
                return self.flow.uniform(operand.name)
            return not operand.name.startswith(("%tid", "%lane"))
        if isinstance(operand, Not):
            return self.operand_is_uniform(operand.register)
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
        if isinstance(operand, Not):
            value = self.fetch(operand.register, "i1", vector)
            return self.op(f"xor {self.shaped('i1', vector)} {value}, {self.constant(1, 'i1', vector)}")
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
        kind = LLVM_TYPES[declared_type(self.function, name)]
        vector = not self.flow.uniform(name)
        if name in self.slots:
            place = self.field_at("%w", self.slots[name])
            self.held[name] = self.load_slot(place, kind, vector)
        else:
            # read before any write: the value is undefined, and zero is as good as any
            self.held[name] = Held(self.constant(0, kind, vector), kind, vector)
        return self.held[name]

    def load_slot(self, place: str, kind: str, vector: bool) -> Held:
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
        value = special_register(self, name)
        if value is None:
            raise self.unsupported(f"the special register {name}")
        held = Held(*value)
        if name not in CLOCKS:
            self.held[name] = held
        return held

    def symbol_address(self, symbol: Symbol) -> str:
        """Address of a variable in its own space, as an i64."""
        if symbol.name in self.shared_offsets:
            return str(self.shared_offsets[symbol.name] + symbol.offset)
        if symbol.name in self.frame.offsets:
            offset = self.frame.offsets[symbol.name] + symbol.offset
            if self.function.is_kernel:
                return str(offset)
            return self.op(f"add i64 {self.op(f'zext i32 {self.frame_base()} to i64')}, {offset}")
        for param in self.function.params:
            if param.name == symbol.name:
                base = self.load_field("%c", layout.CTX_PARAMS, "i64")
                return self.op(f"add i64 {base}, {param.offset + symbol.offset}")
        if symbol.name in self.module.functions:
            return str(function_value(self.module, symbol.name))
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
        declared = LLVM_TYPES[declared_type(self.function, name)]
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

    def site(self, space: str, width: int, store: bool, atomic: bool = False) -> int:
        instruction = self.instruction
        assert instruction is not None
        relaxed = any(instruction.has(mod) for mod in RELAXED)
        self.sites.append(Site(instruction.text, instruction.line, space, width, store, relaxed, atomic=atomic))
        return len(self.sites) - 1

    def member_site(self, load: Instruction, width: int, leader: int) -> int:
        """A load that goes with others; what the leader counts counts for it."""
        self.sites.append(Site(load.text, load.line, "shared", width, store=False, group=leader))
        return len(self.sites) - 1

    def unsupported(self, what: str) -> PtxError:
        instruction = self.instruction
        text = instruction.text if instruction else "?"
        line = instruction.line if instruction else 0
        return PtxError(f"unsupported on the virtual GPU: {what}, opcode {text}", self.function.name, line)
