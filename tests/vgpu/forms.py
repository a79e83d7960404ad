"""One opcode form at a time: a kernel for it, operands to try, and the comparison with a reference.

Every form runs twice: with loaded operands (one value per lane) and with parameters as operands (one value per
warp, which the engine keeps in scalars).
"""

from __future__ import annotations

import itertools
import math
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from ptxkit import INDEX, Address, Bench, pointer

Value = int | float | bool
BITS = {"pred": 32, "s8": 16, "u8": 16, "f16": 16, "bf16": 16, "f32": 32, "f64": 64} | {
    f"{sign}{bits}": bits for sign in "sub" for bits in (16, 32, 64)
}
CLASS = {"pred": "%p", "f32": "%f", "f64": "%fd", "s8": "%rs", "u8": "%rs", "f16": "%rs", "bf16": "%rs"} | {
    f"{sign}{bits}": name for sign in "sub" for bits, name in ((16, "%rs"), (32, "%r"), (64, "%rd"))
}
REGISTERS_PER_FORM, FORMS_PER_KERNEL = 6, 8
ENGINE = settings(
    derandomize=True, deadline=None, database=None, max_examples=3, suppress_health_check=list(HealthCheck)
)


@dataclass(frozen=True)
class Form:
    """``text`` is an opcode, or a whole instruction with ``{d} {e}`` as results and ``{a} {b} {c}`` (and ``{f}``)
    as operands; several instructions are separated by semicolons.

    ``matches(got, wanted, *operands)`` replaces bit equality where a result may be off by a documented error.
    """

    text: str
    out: str
    ins: tuple[str, ...]
    reference: Callable[..., Any]
    matches: Callable[..., bool] | None = None
    second_out: str = ""
    edges: tuple[Value, ...] = ()

    def __str__(self) -> str:
        return self.text

    @property
    def opcodes(self) -> set[str]:
        return {statement.split(".")[0].split()[-1] for statement in self.text.split(";")}

    @cached_property
    def outs(self) -> tuple[str, ...]:
        return (self.out, self.second_out) if self.second_out else (self.out,)

    def registers(self, first: int) -> tuple[list[str], list[str]]:
        """Of its operands and results, numbered from ``first``."""
        ins = [f"{CLASS[k]}{first + n}" for n, k in enumerate(self.ins)]
        return ins, [f"{CLASS[k]}{first + 4 + n}" for n, k in enumerate(self.outs)]

    def instruction(self, first: int) -> str:
        ins, outs = self.registers(first)
        if "{" in self.text:
            return self.text.format(**dict(zip("abcf", ins, strict=False)), **dict(zip("de", outs, strict=False))) + ";"
        return f"{self.text} {', '.join((*outs, *ins))};"


def body_of(forms: Sequence[Form], *, uniform: bool) -> str:
    """Operands from parameters, or from one buffer each; results to the buffers after them; form by form."""
    lines, place = [INDEX], 0
    address = "%rd100"
    for number, form in enumerate(forms):
        first = 10 + REGISTERS_PER_FORM * number
        ins, outs = form.registers(first)
        for register, kind in zip(ins, form.ins, strict=True):
            target, bits = "%r100" if kind == "pred" else register, BITS[kind]
            if uniform:
                lines.append(f" ld.param.b{bits} {target}, [p{place}];")
            else:
                lines.append(
                    pointer(place, size=bits // 8, register=address) + f" ld.global.b{bits} {target}, [{address}];"
                )
            if kind == "pred":
                lines.append(f" setp.ne.u32 {register}, {target}, 0;")
            place += 1
        lines.append(" " + form.instruction(first))
        for register, kind in zip(outs, form.outs, strict=True):
            source, bits = register, BITS[kind]
            if kind == "pred":
                lines.append(f" selp.u32 %r{first + 60}, 1, 0, {register};")
                source = f"%r{first + 60}"
            where = f" ld.param.u64 {address}, [p{place}];"
            lines.append(where if uniform else pointer(place, size=bits // 8, register=address))
            lines.append(f" st.global.b{bits} [{address}], {source};")
            place += 1
    return "\n".join((*lines, " ret;"))


# --- values and their bits ------------------------------------------------------------------


def encode(value: Value, kind: str) -> int:
    if kind in ("f16", "bf16"):
        if math.isnan(value):
            return 0x7FFF
        return encode(value, "f32") >> 16 if kind == "bf16" else int.from_bytes(struct.pack("<e", value), "little")
    if kind in ("f32", "f64"):
        return int.from_bytes(struct.pack("<f" if kind == "f32" else "<d", value), "little")
    return int(value) & (1 << BITS[kind]) - 1


def decode(bits: int, kind: str) -> Value:
    if kind == "bf16":
        return decode(bits << 16, "f32")
    if kind == "f16":
        return struct.unpack("<e", bits.to_bytes(2, "little"))[0]
    if kind in ("f32", "f64"):
        return struct.unpack("<f" if kind == "f32" else "<d", bits.to_bytes(BITS[kind] // 8, "little"))[0]
    width = 8 if kind in ("s8", "u8") else BITS[kind]
    bits &= (1 << width) - 1
    if kind == "pred":
        return bool(bits)
    return bits - (1 << width) if kind[0] == "s" and bits >> (width - 1) else bits


def bits_array(bits: Sequence[int], kind: str) -> np.ndarray:
    return np.array(bits, dtype=f"u{BITS[kind] // 8}")


FLOAT_EDGES = (
    0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 0.1, 0.5, 3.0, 2.0**-126, -(2.0**-126), 2.0**-127, 2.0**-149, -(2.0**-149),
    2.0**24 - 1, 2.0**31, -(2.0**31), 2.0**63, 3.4028234663852886e38, -3.4028234663852886e38, math.inf, -math.inf,
    math.nan,
)  # fmt: skip
HALF_EDGES = (
    0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 3.0, 0.5, 65504.0, -65504.0, 2.0**-14, -(2.0**-14), 2.0**-15, 2.0**-24,
    -(2.0**-24), 1 + 2.0**-10, 2049 * 2.0**-2, 32768.0, math.inf, -math.inf, math.nan,
)  # fmt: skip
BRAIN_EDGES = (
    0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 3.0, 0.5, 2.0**-126, -(2.0**-126), 2.0**-127, 2.0**-133, -(2.0**-133), 1 + 2.0**-7,
    2.0**-67 * 1.5, 2.0**127, 3.3895313892515355e38, -3.3895313892515355e38, 2.0**-100, math.inf, -math.inf, math.nan,
)  # fmt: skip
DOUBLE_EDGES = (*FLOAT_EDGES, 5e-324, -2.2250738585072014e-308, 1.7976931348623157e308, 1e-40, 1 + 2.0**-52, 1e39)


def edges_of(kind: str) -> list[int]:
    """Bit patterns of the values where mistakes show."""
    if kind == "pred":
        return [0, 1]
    edges = {"f32": FLOAT_EDGES, "f64": DOUBLE_EDGES, "f16": HALF_EDGES, "bf16": BRAIN_EDGES}.get(kind)
    if edges is not None:
        return [encode(v, kind) for v in edges]
    width = BITS[kind]
    top = 1 << (width - 1)
    small = (0, 1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 255, -1, -2, -7)
    numbers = (*small, top - 1, top, top + 1, 0x5A5A5A5A5A5A5A5A, 0x8080)
    return sorted({encode(v, kind) for v in numbers})


def edge_operands(form: Form, count: int) -> list[tuple[int, ...]]:
    """Every combination of edges when there are few, else a repeatable choice, filled up with random bits."""
    each = [[encode(v, k) for v in form.edges] if form.edges else edges_of(k) for k in form.ins]
    rng = random.Random(form.text)
    operands = list(itertools.product(*each)) if math.prod(map(len, each)) <= count else []
    while len(operands) < count:
        pairs = zip(each, form.ins, strict=True)
        operands.append(tuple(rng.choice(edges) if rng.random() < 0.6 else _random(rng, k) for edges, k in pairs))
    return operands


def _random(rng: random.Random, kind: str) -> int:
    if kind == "pred":
        return rng.randrange(2)
    if kind in ("f32", "f64") and rng.random() < 0.5:  # numbers of one size, so that sums round and cancel
        return encode(rng.uniform(-4, 4), kind)
    return rng.getrandbits(BITS[kind])


def drawn_operands(form: Form, count: int) -> st.SearchStrategy[list[tuple[int, ...]]]:
    """Operands for hypothesis; floats by value, so that it finds its own edges."""

    def one(kind: str) -> st.SearchStrategy[int]:
        if kind in ("f32", "f64"):
            return st.floats(width=int(kind[1:])).map(lambda v: encode(v, kind))
        return st.integers(0, 1 if kind == "pred" else (1 << BITS[kind]) - 1)

    return st.lists(st.tuples(*map(one, form.ins)), min_size=1, max_size=count)


# --- running and comparing ------------------------------------------------------------------


Operands = Sequence[tuple[int, ...]]


def run_lanes(bench: Bench, forms: Sequence[Form], operands: Sequence[Operands]) -> list[Operands]:
    """One value per lane; the last warp may be partly empty.  All forms get the same number of operands."""
    count = len(operands[0])
    threads = min(count, 128)
    buffers: list[np.ndarray] = []
    for form, given in zip(forms, operands, strict=True):
        full = [*given, *([given[-1]] * (-count % threads))]
        buffers += [bits_array([o[n] for o in full], kind) for n, kind in enumerate(form.ins)]
        buffers += [np.zeros(len(full), f"u{BITS[kind] // 8}") for kind in form.outs]
    grid = -(-count // threads)
    results = iter(bench.clean(body_of(forms, uniform=False), *buffers, threads=threads, grid=grid))
    found: list[Operands] = []
    for form in forms:
        got = [next(results).tolist() for _ in (*form.ins, *form.outs)]
        found.append(list(zip(*got[len(form.ins) :], strict=True))[:count])
    return found


def run_uniform(bench: Bench, forms: Sequence[Form], operands: Sequence[Operands]) -> list[Operands]:
    """One launch per tuple of operands, given as parameters."""
    body = body_of(forms, uniform=True)
    places = [[bench.machine.upload(np.zeros(1, np.uint64)) for _ in form.outs] for form in forms]
    results: list[list[tuple[int, ...]]] = [[] for _ in forms]
    for given in zip(*operands, strict=True):
        arguments: list[Any] = []
        for form, operand, out in zip(forms, given, places, strict=True):
            arguments += [bits_array([bits], kind)[0] for bits, kind in zip(operand, form.ins, strict=True)]
            arguments += [Address(p) for p in out]
        bench.clean(body, *arguments)
        for form, out, found in zip(forms, places, results, strict=True):
            kinds = [np.dtype(f"u{BITS[k] // 8}") for k in form.outs]
            found.append(tuple(int(bench.machine.view(p, (1,), k)[0]) for p, k in zip(out, kinds, strict=True)))
    for place in itertools.chain(*places):
        bench.machine.free(place)
    return list(results)


def bundles(forms: Sequence[Form]) -> Iterator[tuple[Form, ...]]:
    """Forms that share a kernel: translating one costs more than running it."""
    for count in sorted({len(form.ins) for form in forms}):
        alike = [form for form in forms if len(form.ins) == count]
        for start in range(0, len(alike), FORMS_PER_KERNEL):
            yield tuple(alike[start : start + FORMS_PER_KERNEL])


def check(form: Form, operands: Sequence[tuple[int, ...]], results: Sequence[tuple[int, ...]]) -> None:
    """Compare; the message of the first difference shows the operands."""
    for operand, got in zip(operands, results, strict=True):
        values = [decode(bits, kind) for bits, kind in zip(operand, form.ins, strict=True)]
        wanted = form.reference(*values)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for have, want, kind in zip(got, wanted, form.outs, strict=True):
            value = decode(have, kind)
            if form.matches is not None:
                fine = form.matches(value, want, *values)
            elif isinstance(want, float) and math.isnan(want):
                fine = math.isnan(value)
            else:
                fine = have == encode(want, kind)
            assert fine, f"{form.text}{tuple(values)} gave {value!r} (0x{have:x}), wanted {want!r}"


def tables(*groups: Sequence[Form]) -> Iterator[Form]:
    """All forms of some tables, each once."""
    seen: set[str] = set()
    for form in itertools.chain(*groups):
        assert form.text not in seen, form.text
        seen.add(form.text)
        yield form
