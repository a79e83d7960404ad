"""Integer, logic and comparison forms, with references over Python's integers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator

from forms import BITS, Form, Value

WIDER = {"s16": "s32", "u16": "u32", "s32": "s64", "u32": "u64"}
ALL = ("s16", "u16", "s32", "u32", "s64", "u64")


def quotient(a: int, b: int, kind: str) -> int:
    """Towards zero; a zero divisor gives all ones, as hardware does (PTX leaves it open)."""
    if b == 0:
        return -1
    size = abs(a) // abs(b)
    return size if (a < 0) == (b < 0) else -size


def remainder(a: int, b: int, kind: str) -> int:
    return a - quotient(a, b, kind) * b


def shifted_left(a: int, n: int, kind: str) -> int:
    return a << n if n < BITS[kind] else 0


def shifted_right(a: int, n: int, kind: str) -> int:
    return a >> min(n, BITS[kind])


def leading_zeros(a: int, kind: str) -> int:
    return BITS[kind] - a.bit_length()


def reversed_bits(a: int, kind: str) -> int:
    return int(f"{a:0{BITS[kind]}b}"[::-1], 2)


def _arithmetic() -> Iterator[Form]:
    simple: dict[str, Callable[..., int]] = {
        "add": lambda a, b, k: a + b, "sub": lambda a, b, k: a - b, "mul.lo": lambda a, b, k: a * b,
        "mul.hi": lambda a, b, k: a * b >> BITS[k], "div": quotient, "rem": remainder,
        "min": lambda a, b, k: min(a, b), "max": lambda a, b, k: max(a, b),
    }  # fmt: skip
    for kind in ALL:
        for name, reference in simple.items():
            yield Form(f"{name}.{kind}", kind, (kind, kind), _bound(reference, kind))
        yield Form(f"mad.lo.{kind}", kind, (kind,) * 3, lambda a, b, c: a * b + c)
        yield Form(f"mad.hi.{kind}", kind, (kind,) * 3, _bound(lambda a, b, c, k: (a * b >> BITS[k]) + c, kind))
        if wide := WIDER.get(kind):
            yield Form(f"mul.wide.{kind}", wide, (kind, kind), lambda a, b: a * b)
            yield Form(f"mad.wide.{kind}", wide, (kind, kind, wide), lambda a, b, c: a * b + c)
        if kind[0] == "s":
            yield Form(f"neg.{kind}", kind, (kind,), lambda a: -a)
            yield Form(f"abs.{kind}", kind, (kind,), abs)
    # literals: negative, hexadecimal, and one that is a shift for the compiler
    yield Form("add.s32 {d}, {a}, -5", "s32", ("s32",), lambda a: a - 5)
    yield Form("mul.lo.u32 {d}, {a}, 0x10", "u32", ("u32",), lambda a: 16 * a)
    yield Form("div.u32 {d}, {a}, 7", "u32", ("u32",), lambda a: a // 7)
    yield Form("rem.s32 {d}, {a}, -3", "s32", ("s32",), lambda a: remainder(a, -3, "s32"))


def clamped(x: int, bits: int = 32) -> int:
    return min(max(x, -(1 << (bits - 1))), (1 << (bits - 1)) - 1)


def signed(x: int, bits: int) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def fields(x: int, bits: int, is_signed: bool) -> list[int]:
    """The elements of a 32-bit value, lowest first."""
    parts = [x >> n & (1 << bits) - 1 for n in range(0, 32, bits)]
    return [signed(p, bits) for p in parts] if is_signed else parts


def joined(values: Iterable[int], bits: int) -> int:
    return sum((v & (1 << bits) - 1) << bits * n for n, v in enumerate(values))


def short_pairs(function: Callable[[int, int], int], is_signed: bool) -> Callable[[int, int], int]:
    def reference(a: int, b: int) -> int:
        return joined(map(function, fields(a, 16, is_signed), fields(b, 16, is_signed)), 16)

    return reference


def _saturating() -> Iterator[Form]:
    yield Form("add.sat.s32", "s32", ("s32",) * 2, lambda a, b: clamped(a + b))
    yield Form("sub.sat.s32", "s32", ("s32",) * 2, lambda a, b: clamped(a - b))
    yield Form("mad.hi.sat.s32", "s32", ("s32",) * 3, lambda a, b, c: clamped((a * b >> 32) + c))
    for name, function in (("min", min), ("max", max)):
        yield Form(f"{name}.relu.s32", "s32", ("s32",) * 2, lambda a, b, f=function: max(f(a, b), 0))
        yield Form(f"{name}.s32.relu", "s32", ("s32",) * 2, lambda a, b, f=function: max(f(a, b), 0))
        yield Form(
            f"{name}.s16x2.relu", "b32", ("b32",) * 2, short_pairs(lambda a, b, f=function: max(f(a, b), 0), True)
        )
        yield Form(f"{name}.s16x2", "b32", ("b32",) * 2, short_pairs(function, True))
        yield Form(f"{name}.u16x2", "b32", ("b32",) * 2, short_pairs(function, False))
    yield Form("add.s16x2", "b32", ("b32",) * 2, short_pairs(operator.add, True))
    yield Form("add.u16x2", "b32", ("b32",) * 2, short_pairs(operator.add, False))


def _products() -> Iterator[Form]:
    for kind in ("s32", "u32"):
        low = _bound(lambda a, s: signed(a, 24) if s else a & 0xFFFFFF, kind == "s32")
        yield Form(f"mul24.lo.{kind}", kind, (kind,) * 2, lambda a, b, f=low: f(a) * f(b))
        yield Form(f"mul24.hi.{kind}", kind, (kind,) * 2, lambda a, b, f=low: f(a) * f(b) >> 16)
        yield Form(f"mad24.lo.{kind}", kind, (kind,) * 3, lambda a, b, c, f=low: f(a) * f(b) + c)
        yield Form(f"mad24.hi.{kind}", kind, (kind,) * 3, lambda a, b, c, f=low: (f(a) * f(b) >> 16) + c)
    yield Form(
        "mad24.hi.sat.s32", "s32", ("s32",) * 3, lambda a, b, c: clamped((signed(a, 24) * signed(b, 24) >> 16) + c)
    )
    for kind in ALL:
        yield Form(f"sad.{kind}", kind, (kind,) * 3, lambda a, b, c: abs(a - b) + c)
    for left in "us":
        for right in "us":
            yield Form(
                f"dp4a.{left}32.{right}32", "b32", ("b32",) * 3,
                lambda a, b, c, x=left, y=right: c + _dot(fields(a, 8, x == "s"), fields(b, 8, y == "s")),
            )  # fmt: skip
            for part, first in (("lo", 0), ("hi", 2)):
                yield Form(
                    f"dp2a.{part}.{left}32.{right}32", "b32", ("b32",) * 3,
                    lambda a, b, c, x=left, y=right, n=first: (
                        c + _dot(fields(a, 16, x == "s"), fields(b, 8, y == "s")[n : n + 2])
                    ),
                )  # fmt: skip


def _dot(a: list[int], b: list[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _carries() -> Iterator[Form]:
    """Sums of twice the width, and the flag itself; the second result is the upper half."""
    for kind, bits in (("u32", 32), ("s32", 32), ("u64", 64), ("s64", 64)):
        name, wide = f"b{bits}", 1 << bits
        low = "%r90" if bits == 32 else "%rd90"

        def halves(x: int, w: int = wide) -> tuple[int, int]:
            return x % w, x // w % w

        def product(a: int, b: int, is_signed: bool = kind[0] == "s", n: int = bits) -> int:
            return signed(a, n) * signed(b, n) if is_signed else a * b

        yield Form(
            f"add.cc.{kind} {{d}}, {{a}}, {{b}}; addc.{kind} {{e}}, {{a}}, {{c}}", name, (name,) * 3,
            lambda a, b, c, w=wide, f=halves: f(a + a * w + b + c * w), second_out=name,
        )  # fmt: skip
        yield Form(
            f"sub.cc.{kind} {{d}}, {{a}}, {{b}}; subc.{kind} {{e}}, {{a}}, {{c}}", name, (name,) * 3,
            lambda a, b, c, w=wide, f=halves: f(a + a * w - b - c * w), second_out=name,
        )  # fmt: skip
        yield Form(
            f"mad.lo.cc.{kind} {{d}}, {{a}}, {{b}}, {{c}}; madc.hi.{kind} {{e}}, {{a}}, {{b}}, 5", name, (name,) * 3,
            lambda a, b, c, w=wide, f=halves, p=product: f(p(a, b) + c + 5 * w), second_out=name,
        )  # fmt: skip
        yield Form(
            f"add.cc.{kind} {low}, {{a}}, {{b}}; addc.cc.{kind} {{d}}, {{b}}, {{c}}; addc.{kind} {{e}}, 0, 0",
            name, (name,) * 3,
            lambda a, b, c, w=wide, f=halves: f((a + b + (b + c) * w) // w), second_out=name,
        )  # fmt: skip
        yield Form(
            f"sub.cc.{kind} {low}, {{a}}, {{b}}; subc.cc.{kind} {{d}}, {{b}}, {{c}}; subc.{kind} {{e}}, 0, 0",
            name, (name,) * 3,
            lambda a, b, c, w=wide, f=halves: f((a - b + (b - c) * w) // w), second_out=name,
        )  # fmt: skip
        yield Form(
            f"add.cc.{kind} {low}, {{a}}, {{b}}; madc.lo.cc.{kind} {{d}}, {{a}}, {{b}}, {{c}}; addc.{kind} {{e}}, 0, 0",
            name, (name,) * 3,
            lambda a, b, c, w=wide, f=halves, p=product: f(p(a, b) % w + c + (a + b >= w)), second_out=name,
        )  # fmt: skip
    yield Form(
        "setp.lt.u32 %p9, {a}, {c}; add.cc.u32 %r90, {a}, {b}; @%p9 add.cc.u32 %r90, {b}, {c}; addc.u32 {d}, 0, 0",
        "u32", ("u32",) * 3, lambda a, b, c: int((b + c if a < c else a + b) >> 32),
    )  # fmt: skip


def _field_of(a: int, b: int, c: int, kind: str) -> int:
    """bfe bit by bit, as the PTX ISA has it."""
    bits, start, length = BITS[kind], b & 0xFF, c & 0xFF
    sign = 0 if kind[0] == "u" or length == 0 else a >> min(start + length - 1, bits - 1) & 1
    result = 0
    for n in range(bits):
        inside = n < length and start + n < bits
        result |= (a >> start + n & 1 if inside else sign) << n
    return result


def _inserted(a: int, b: int, c: int, d: int, kind: str) -> int:
    start, length = c & 0xFF, d & 0xFF
    for n in range(min(length, BITS[kind])):
        if start + n < BITS[kind]:
            b = b & ~(1 << start + n) | (a >> n & 1) << start + n
    return b


def _nth_set(mask: int, base: int, offset: int) -> int:
    if offset == 0:
        return base if base < 32 and mask >> base & 1 else -1
    places = range(base, 32) if offset > 0 else range(min(base, 31), -1, -1) if base < 32 else ()
    found = [n for n in places if mask >> n & 1]
    return found[abs(offset) - 1] if len(found) >= abs(offset) else -1


def _permuted(a: int, b: int, c: int, mode: str) -> int:
    both = fields(a, 8, False) + fields(b, 8, False)
    n = c & 3
    chosen = {
        "": [c >> 4 * k & 15 for k in range(4)], "f4e": [n, n + 1, n + 2, n + 3],
        "b4e": [n, (n - 1) % 8, (n - 2) % 8, (n - 3) % 8], "rc8": [n] * 4, "ecl": [max(k, n) for k in range(4)],
        "ecr": [min(k, n) for k in range(4)], "rc16": [2 * (n & 1), 2 * (n & 1) + 1] * 2,
    }[mode]  # fmt: skip
    return joined((both[k] if k < 8 else (0xFF if both[k - 8] & 0x80 else 0) for k in chosen), 8)


def _bit_fields() -> Iterator[Form]:
    for kind in ("u32", "s32", "u64", "s64"):
        bits = BITS[kind]
        yield Form(f"bfe.{kind}", kind, (kind, "u32", "u32"), _bound(_field_of, kind))
        high = _bound(lambda a, n: (a ^ -(a < 0)).bit_length() - 1, bits)
        yield Form(f"bfind.{kind}", "u32", (kind,), high)
        yield Form(
            f"bfind.shiftamt.{kind}", "u32", (kind,), lambda a, f=high, n=bits: n - 1 - f(a) if f(a) >= 0 else -1
        )
    yield Form("bfe.u32 {d}, {a}, 8, 8", "u32", ("u32",), lambda a: a >> 8 & 0xFF)
    for kind in ("b32", "b64"):
        yield Form(
            f"bfi.{kind} {{d}}, {{a}}, {{b}}, {{c}}, {{f}}", kind, (kind, kind, "u32", "u32"), _bound(_inserted, kind)
        )
    yield Form("fns.b32", "u32", ("u32", "u32", "s32"), _nth_set)
    yield Form("fns.b32 {d}, {a}, 7, -2", "u32", ("u32",), lambda a: _nth_set(a, 7, -2))
    yield Form("fns.b32 {d}, {a}, 0, 3", "u32", ("u32",), lambda a: _nth_set(a, 0, 3))
    for mode, cut in (("clamp", lambda n: n), ("wrap", lambda n: n & 31)):
        yield Form(
            f"bmsk.{mode}.b32", "u32", ("u32", "u32"),
            lambda a, b, f=cut: ((1 << min(f(b), 32)) - 1) << f(a) if f(a) < 32 else 0,
        )  # fmt: skip
        for kind in ("u32", "s32"):
            yield Form(f"szext.{mode}.{kind}", kind, (kind, "u32"), _bound(_extended, kind, cut))


def _extended(a: int, b: int, kind: str, cut: Callable[[int], int]) -> int:
    count = cut(b)
    if count == 0 or count >= 32:
        return a if count else 0
    return signed(a, count) if kind == "s32" else a & (1 << count) - 1


def _bytes_and_words() -> Iterator[Form]:
    yield Form("prmt.b32", "b32", ("b32",) * 3, _bound(_permuted, ""))
    for selector in (0x5410, 0x7632, 0x0123, 0x4321, 0x89AB, 0x7F3C):
        yield Form(f"prmt.b32 {{d}}, {{a}}, {{b}}, {selector:#x}", "b32", ("b32",) * 2, _bound(_permuted, selector, ""))
    for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        yield Form(f"prmt.b32.{mode}", "b32", ("b32",) * 3, _bound(_permuted, mode))
        yield Form(f"prmt.b32.{mode} {{d}}, {{a}}, {{b}}, 2", "b32", ("b32",) * 2, _bound(_permuted, 2, mode))
    for mode, cut in (("clamp", lambda n: min(n, 32)), ("wrap", lambda n: n & 31)):
        yield Form(
            f"shf.l.{mode}.b32", "b32", ("b32", "b32", "u32"), lambda a, b, c, f=cut: ((b << 32 | a) << f(c)) >> 32
        )
        yield Form(f"shf.r.{mode}.b32", "b32", ("b32", "b32", "u32"), lambda a, b, c, f=cut: (b << 32 | a) >> f(c))
    yield Form("lop3.b32 {d}, {a}, {b}, {c}, 0x96", "b32", ("b32",) * 3, lambda a, b, c: a ^ b ^ c)
    yield Form("lop3.b32 {d}, {a}, {b}, {c}, 0xE8", "b32", ("b32",) * 3, lambda a, b, c: a & b | a & c | b & c)
    for name, combine in (("or", operator.or_), ("and", operator.and_)):
        yield Form(
            f"setp.ne.u32 %p9, {{c}}, 7; lop3.{name}.b32 {{d}}|{{e}}, {{a}}, {{b}}, {{c}}, 0x80, %p9", "b32",
            ("b32",) * 3, lambda a, b, c, f=combine: (a & b & c, f(a & b & c != 0, c != 7)), second_out="pred",
        )  # fmt: skip
    for kind in ("b16", "b32", "b64"):
        yield Form(f"cnot.{kind}", kind, (kind,), lambda a: int(a == 0))


def _video() -> Iterator[Form]:
    table: dict[str, Callable[[int, int], int]] = {
        "vadd": operator.add, "vsub": operator.sub, "vmin": min, "vmax": max, "vabsdiff": lambda a, b: abs(a - b),
        "vavrg": lambda a, b: (a + b + (a + b >= 0)) >> 1,
    }  # fmt: skip
    for name, function in table.items():
        for count in (2, 4):
            for kind in ("u32", "s32"):
                yield Form(
                    f"{name}{count}.{kind}.{kind}.{kind}", "b32", ("b32",) * 3,
                    _bound(_elementwise, function, 32 // count, kind == "s32"),
                )  # fmt: skip
    yield Form(
        "vabsdiff4.u32.u32.u32.add", "b32", ("b32",) * 3,
        lambda a, b, c: c + sum(abs(x - y) for x, y in zip(fields(a, 8, False), fields(b, 8, False), strict=True)),
    )  # fmt: skip
    yield Form(
        "vadd4.s32.s32.s32.sat", "b32", ("b32",) * 3,
        _bound(_elementwise, lambda a, b: clamped(a + b, 8), 8, True),
    )  # fmt: skip


def _elementwise(a: int, b: int, c: int, function: Callable[[int, int], int], bits: int, is_signed: bool) -> int:
    return joined(map(function, fields(a, bits, is_signed), fields(b, bits, is_signed)), bits)


def _logic() -> Iterator[Form]:
    for kind in ("b16", "b32", "b64", "pred"):
        for name, reference in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)):
            yield Form(f"{name}.{kind}", kind, (kind, kind), reference)
        yield Form(f"not.{kind}", kind, (kind,), operator.not_ if kind == "pred" else operator.invert)
        if kind == "pred":
            yield Form("mov.pred", kind, (kind,), bool)
            continue
        yield Form(f"shl.{kind}", kind, (kind, "u32"), _bound(shifted_left, kind))
        for shown in (kind, kind.replace("b", "u"), kind.replace("b", "s")):
            yield Form(f"shr.{shown}", shown, (shown, "u32"), _bound(shifted_right, kind))
        if kind != "b16":
            yield Form(f"popc.{kind}", "u32", (kind,), int.bit_count)
            yield Form(f"clz.{kind}", "u32", (kind,), _bound(leading_zeros, kind))
            yield Form(f"brev.{kind}", kind, (kind,), _bound(reversed_bits, kind))
    yield Form("shl.b32 {d}, {a}, 5", "b32", ("b32",), lambda a: a << 5)
    yield Form("shr.s32 {d}, {a}, 40", "s32", ("s32",), lambda a: -1 if a < 0 else 0)


COMPARISONS: dict[str, Callable[[Value, Value], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
UNSIGNED = {"lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge}


def _comparison() -> Iterator[Form]:
    for kind in ALL:
        for name, reference in (COMPARISONS | (UNSIGNED if kind[0] == "u" else {})).items():
            yield Form(f"setp.{name}.{kind}", "pred", (kind, kind), reference)
    for kind in ("b16", "b32", "b64"):
        yield Form(f"setp.eq.{kind}", "pred", (kind, kind), operator.eq)
        yield Form(f"setp.ne.{kind}", "pred", (kind, kind), operator.ne)
    for name, combine in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)):
        yield Form(
            f"setp.lt.{name}.s32 {{d}}|{{e}}, {{a}}, {{b}}, {{c}}", "pred", ("s32", "s32", "pred"),
            _bound(lambda a, b, c, f: (f(a < b, c), f(a >= b, c)), combine), second_out="pred",
        )  # fmt: skip
    yield Form("setp.le.s32 {d}|{e}, {a}, {b}", "pred", ("s32", "s32"), lambda a, b: (a <= b, a > b), second_out="pred")
    yield Form("setp.lt.s32 {d}|_, {a}, {b}", "pred", ("s32", "s32"), operator.lt)
    yield Form("setp.lt.s32 _|{d}, {a}, {b}", "pred", ("s32", "s32"), operator.ge)
    yield Form("setp.hi.u32 {d}, {a}, 0x80000000", "pred", ("u32",), lambda a: a > 1 << 31)
    yield Form(
        "setp.lt.and.s32 {d}|{e}, {a}, {b}, !{c}", "pred", ("s32", "s32", "pred"),
        lambda a, b, c: (a < b and not c, a >= b and not c), second_out="pred",
    )  # fmt: skip
    for kind in ("b16", "b32", "b64", "s32", "u64", "f32", "f64"):
        yield Form(f"selp.{kind}", kind, (kind, kind, "pred"), lambda a, b, c: a if c else b)
    for kind in ("b16", "u32", "s64", "f32", "f64"):
        yield Form(f"slct.{kind}.s32", kind, (kind, kind, "s32"), lambda a, b, c: a if c >= 0 else b)
        yield Form(f"slct.{kind}.f32", kind, (kind, kind, "f32"), lambda a, b, c: a if c >= 0 else b)
    for kind in ALL:
        yield Form(f"set.le.u32.{kind}", "u32", (kind, kind), lambda a, b: -(a <= b))
        yield Form(f"set.gt.f32.{kind}", "f32", (kind, kind), lambda a, b: float(a > b))
    yield Form("set.ne.xor.s32.u32 {d}, {a}, {b}, {c}", "s32", ("u32", "u32", "pred"), lambda a, b, c: -((a != b) ^ c))


def _bound(function: Callable[..., object], *last: object) -> Callable[..., object]:
    return lambda *arguments: function(*arguments, *last)


FORMS = (
    *_arithmetic(), *_saturating(), *_products(), *_carries(), *_bit_fields(), *_bytes_and_words(), *_video(),
    *_logic(), *_comparison(),
)  # fmt: skip
