"""What a PTX module consists of, as plain records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePath

# Bytes of the PTX fundamental types (PTX ISA, "Types").
TYPE_BYTES = {
    "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
    "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "tf32": 4,
    "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16, "pred": 0,
}  # fmt: skip


Bytes = bytes  # a field below has the name of the type


@dataclass(frozen=True)
class Reg:
    """A register, or a special register such as ``%tid.x``."""

    name: str


@dataclass(frozen=True)
class Imm:
    """A literal: an int, or the bit pattern of a float with its width (32 or 64)."""

    value: int
    float_bits: int = 0


@dataclass(frozen=True)
class Symbol:
    """The address of a variable, parameter or function."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Address:
    """``[base+offset]``; base is a register, a symbol, or nothing (an absolute address)."""

    base: Reg | Symbol | None
    offset: int = 0


@dataclass(frozen=True)
class Vector:
    """``{a, b, c, d}``."""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Pair:
    """``a|b``: two destinations."""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Not:
    """``!p``: a predicate's opposite."""

    register: Reg


Operand = Reg | Imm | Symbol | Address | Vector | Pair | Not


def items_of(operand: Operand) -> tuple[Operand, ...]:
    """The items of a vector, or the operand itself."""
    return operand.items if isinstance(operand, Vector) else (operand,)


@dataclass(frozen=True)
class Instruction:
    """One instruction; ``opcode`` is the first word, ``mods`` the dotted rest, in order.

    ``line`` is that of the source, ``ptx_line`` the one of the PTX text on which it ends.
    """

    opcode: str
    mods: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: str = ""
    guard_negated: bool = False
    line: int = 0
    # the label a branch goes to; labels are not operands
    target: str = ""
    ptx_line: int = 0

    @property
    def text(self) -> str:
        return ".".join((self.opcode, *self.mods))

    def has(self, mod: str) -> bool:
        return mod in self.mods


@dataclass(frozen=True)
class Relocation:
    """A place in an initial value where the address of a symbol goes."""

    offset: int
    symbol: str
    addend: int = 0
    generic: bool = False


@dataclass(frozen=True)
class Variable:
    """A module- or function-scope variable in some state space."""

    name: str
    space: str
    align: int
    bytes: int  # 0 for an unsized extern array
    initial: Bytes = b""
    relocations: tuple[Relocation, ...] = ()


@dataclass(frozen=True)
class Param:
    """A parameter or result of a function, and its place in the parameter buffer."""

    name: str
    offset: int
    bytes: int
    align: int = 1


@dataclass(frozen=True)
class Prototype:
    """What an indirect call hands over and gets back."""

    results: tuple[Param, ...]
    params: tuple[Param, ...]


@dataclass
class Function:
    """A kernel or device function: registers by type, variables, and labelled statements."""

    name: str
    is_kernel: bool
    params: tuple[Param, ...] = ()
    param_bytes: int = 0
    results: tuple[Param, ...] = ()
    prototypes: dict[str, Prototype] = field(default_factory=dict)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    registers: dict[str, str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    body: list[Instruction | str] = field(default_factory=list)  # a str is a label
    max_threads: int = 0
    files: dict[int, int] = field(default_factory=dict)  # by line of the source; 0 where code of several files has it


@dataclass
class Module:
    """One PTX file."""

    version: str = ""
    target: str = ""
    functions: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)

    def file_names(self, functions: Iterable[Function]) -> dict[int, str]:
        """The file of each source line, without its folder, where all code of the line is of one file."""
        found: dict[int, str] = {}
        for function in functions:
            for line, number in function.files.items():
                name = PurePath(self.files.get(number, "")).name
                found[line] = name if found.get(line, name) == name else ""
        return {line: name for line, name in found.items() if name}
