"""Writing LLVM IR as text: names, constants, casts, calls.

Values are scalars, or vectors with one element per lane; every method that depends on it takes a
flag ``vector``.
"""

from __future__ import annotations

LANES = 32
LLVM_TYPES = {
    "b8": "i8", "u8": "i8", "s8": "i8", "b16": "i16", "u16": "i16", "s16": "i16",
    "b32": "i32", "u32": "i32", "s32": "i32", "b64": "i64", "u64": "i64", "s64": "i64",
    "f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double", "pred": "i1", "b128": "i128",
}  # fmt: skip
WIDTH = {
    "i1": 1,
    "i8": 8,
    "i16": 16,
    "half": 16,
    "bfloat": 16,
    "i32": 32,
    "float": 32,
    "i64": 64,
    "double": 64,
    "i128": 128,
}


class IrText:
    """The text of one function as it grows."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.declared: dict[str, str] = {}
        self.constants: list[str] = []
        self.buffers: list[str] = []
        self.count = 0

    def table(self, words: list[int]) -> str:
        """A constant array of 32-bit words."""
        name = f"@table{len(self.constants)}"
        values = ", ".join(f"i32 {word}" for word in words)
        self.constants.append(f"{name} = private unnamed_addr constant [{len(words)} x i32] [{values}], align 64")
        return name

    def buffer(self, size: int) -> str:
        """Scratch memory of the function."""
        name = f"%buffer{len(self.buffers)}"
        self.buffers.append(f"{name} = alloca [{size} x i8], align 64")
        return name

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
