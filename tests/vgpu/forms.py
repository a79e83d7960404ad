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
BITS = {"pred": 32, "s8": 16, "u8": 16, "f32": 32, "f64": 64} | {
    f"{sign}{bits}": bits for sign in "sub" for bits in (16, 32, 64)
}
CLASS = {"pred": "%p", "f32": "%f", "f64": "%fd", "s8": "%rs", "u8": "%rs"} | {
    f"{sign}{bits}": name for sign in "sub" for bits, name in ((16, "%rs"), (32, "%r"), (64, "%rd"))
}
ENGINE = settings(
    derandomize=True, deadline=None, database=None, max_examples=3, suppress_health_check=list(HealthCheck)
)


@dataclass(frozen=True)
class Form:
    """``text`` is an opcode, or a whole instruction with ``{d} {e}`` as results and ``{a} {b} {c}`` as operands.

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
    def opcode(self) -> str:
        return self.text.split(".")[0].split()[-1]

    @cached_property
    def outs(self) -> tuple[str, ...]:
        return (self.out, self.second_out) if self.second_out else (self.out,)

    def instruction(self) -> str:
        names = dict(zip("abc", (f"{CLASS[k]}{n + 10}" for n, k in enumerate(self.ins)), strict=False))
        results = dict(zip("de", (f"{CLASS[k]}{n + 20}" for n, k in enumerate(self.outs)), strict=False))
        if "{" in self.text:
            return self.text.format(**names, **results) + ";"
        return f"{self.text} {', '.join((*results.values(), *names.values()))};"


def body_of(form: Form, *, uniform: bool) -> str:
    """Operands from parameters, or from one buffer each; results to the buffers after them."""
    lines = [INDEX]
    for n, kind in enumerate(form.ins):
        register, bits = f"{CLASS[kind]}{n + 10}", BITS[kind]
        target = f"%r{n + 60}" if kind == "pred" else register
        if uniform:
            lines.append(f" ld.param.b{bits} {target}, [p{n}];")
        else:
            lines.append(pointer(n, size=bits // 8) + f" ld.global.b{bits} {target}, [%rd{n}];")
        if kind == "pred":
            lines.append(f" setp.ne.u32 {register}, {target}, 0;")
    lines.append(" " + form.instruction())
    for n, kind in enumerate(form.outs):
        source, place = f"{CLASS[kind]}{n + 20}", len(form.ins) + n
        if kind == "pred":
            lines.append(f" selp.u32 %r{n + 70}, 1, 0, {source};")
            source = f"%r{n + 70}"
        address = f" ld.param.u64 %rd{place}, [p{place}];" if uniform else pointer(place, size=BITS[kind] // 8)
        lines.append(address + f" st.global.b{BITS[kind]} [%rd{place}], {source};")
    return "\n".join((*lines, " ret;"))


# --- values and their bits ------------------------------------------------------------------


def encode(value: Value, kind: str) -> int:
    if kind in ("f32", "f64"):
        return int.from_bytes(struct.pack("<f" if kind == "f32" else "<d", value), "little")
    return int(value) & (1 << BITS[kind]) - 1


def decode(bits: int, kind: str) -> Value:
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
DOUBLE_EDGES = (*FLOAT_EDGES, 5e-324, -2.2250738585072014e-308, 1.7976931348623157e308, 1e-40, 1 + 2.0**-52, 1e39)


def edges_of(kind: str) -> list[int]:
    """Bit patterns of the values where mistakes show."""
    if kind == "pred":
        return [0, 1]
    if kind in ("f32", "f64"):
        return [encode(v, kind) for v in (FLOAT_EDGES if kind == "f32" else DOUBLE_EDGES)]
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


def run_lanes(bench: Bench, form: Form, operands: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """One value per lane; the last warp may be partly empty."""
    threads = min(len(operands), 128)
    full = [*operands, *([operands[-1]] * (-len(operands) % threads))]
    inputs = [bits_array([o[n] for o in full], kind) for n, kind in enumerate(form.ins)]
    outputs = [np.zeros(len(full), f"u{BITS[kind] // 8}") for kind in form.outs]
    buffers = bench.clean(
        body_of(form, uniform=False), *inputs, *outputs, threads=threads, grid=len(full) // threads
    )  # fmt: skip
    return list(zip(*(b.tolist() for b in buffers[len(inputs) :]), strict=True))[: len(operands)]


def run_uniform(bench: Bench, form: Form, operands: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """One launch per tuple of operands, given as parameters."""
    body, results = body_of(form, uniform=True), []
    places = [bench.machine.upload(np.zeros(1, np.uint64)) for _ in form.outs]
    for operand in operands:
        data = [bits_array([bits], kind)[0] for bits, kind in zip(operand, form.ins, strict=True)]
        bench.clean(body, *data, *(Address(p) for p in places))
        views = [
            bench.machine.view(p, (1,), np.dtype(f"u{BITS[k] // 8}")) for p, k in zip(places, form.outs, strict=True)
        ]
        results.append(tuple(int(view[0]) for view in views))
    for place in places:
        bench.machine.free(place)
    return results


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
