"""Matrices between memory and registers: wmma with its loads and stores, ldmatrix, stmatrix, movmatrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from ptxkit import Bench, Blank
from tensor_code import encode_float, move_registers, vector
from tensor_layouts import BITS, a_fragment, b_fragment, c_fragment, decode, sizes

# --- wmma -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wmma:
    shape: str
    d: str
    a: str
    c: str
    extra: str = ""

    def __str__(self) -> str:
        return f"{self.shape}.{self.d}.{self.a}.{self.c}{self.extra}"

    def registers(self, fragment: str) -> int:
        m, n, k = sizes(self.shape)
        if fragment in "cd":
            return m * n // 32 // (2 if getattr(self, fragment) == "f16" else 1)
        if self.a == "f16":
            return 8
        return (m if fragment == "a" else n) * k * BITS[self.a] // 32 // (64 if self.a == "f64" else 32)


SIXTEEN = ("m16n16k16", "m32n8k16", "m8n32k16")
WMMA = [
    *(Wmma(s, d, "f16", c) for s in SIXTEEN for d in ("f32", "f16") for c in ("f32", "f16")),
    *(Wmma(s, "f32", "bf16", "f32") for s in SIXTEEN),
    *(Wmma(s, "s32", a, "s32") for s in SIXTEEN for a in ("s8", "u8")),
    Wmma("m16n16k16", "s32", "s8", "s32", ".satfinite"),
    Wmma("m16n16k8", "f32", "tf32", "f32"),
    Wmma("m8n8k4", "f64", "f64", "f64", ".rn"),
]  # fmt: skip
NUMPY = {"f16": np.float16, "f32": np.float32, "tf32": np.float32, "f64": np.float64, "s8": np.int8, "u8": np.uint8,
         "s32": np.int32, "bf16": np.uint16}  # fmt: skip


def in_memory(matrix: np.ndarray, kind: str, layout: str, stride: int) -> np.ndarray:
    """A matrix as it lies in memory, with gaps after every row (column)."""
    lines = matrix if layout == "row" else matrix.T
    if kind == "bf16":
        lines = encode_float(lines, kind)
    out = np.zeros((lines.shape[0], stride), NUMPY[kind])
    out[:, : lines.shape[1]] = lines
    return out


def wmma_body(form: Wmma, space: str, layouts: Sequence[str], strides: Sequence[int]) -> str:
    """Load three fragments, multiply, store; in shared memory the operands are copied there first."""
    la, lb, lc = layouts
    kinds = (form.a, form.a, form.c)
    types = f"{form.d}.{form.c}" if form.a == "f16" else f"{form.d}.{form.a}.{form.a}.{form.c}"
    names = [vector(k, first, form.registers(f)) for f, k, first in
             (("d", form.d, 10), ("a", form.a, 30), ("b", form.a, 40), ("c", form.c, 50))]  # fmt: skip
    lines = [" ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; ld.param.u64 %rd2, [p2]; ld.param.u64 %rd3, [p3];"]
    where = "" if space == "generic" else f".{space}"
    for n, (fragment, layout) in enumerate(zip("abc", (la, lb, lc), strict=True)):
        opcode = f"wmma.load.{fragment}.sync.aligned.{layout}.{form.shape}{where}.{kinds[n]}"
        stride = f", {strides[n]}" if strides[n] else ""
        lines.append(f" {opcode} {names[n + 1]}, [%rd{n}]{stride};")
    lines.append(f" wmma.mma.sync.aligned.{la}.{lb}.{form.shape}.{types}{form.extra} {', '.join(names)};")
    stride = f", {strides[2]}" if strides[2] else ""
    lines.append(f" wmma.store.d.sync.aligned.{lc}.{form.shape}{where}.{form.d} [%rd3], {names[0]}{stride}; ret;")
    return "\n".join(lines)


@pytest.mark.parametrize("layouts", [("row", "col", "row"), ("col", "row", "col"), ("row", "row", "row")], ids="-".join)
@pytest.mark.parametrize("form", WMMA, ids=str)
def test_wmma(bench: Bench, form: Wmma, layouts: tuple[str, str, str]) -> None:
    rng = np.random.default_rng(6)
    m, n, k = sizes(form.shape)
    low = 0 if form.a == "u8" else -4
    a, b, c = (rng.integers(low, 5, s).astype(np.float64) for s in ((m, k), (k, n), (m, n)))
    # without gaps the stride may be left out; with gaps it is given
    gap = 0 if layouts[1] == "row" else 8
    lines = [x.shape[1] if layout == "row" else x.shape[0] for x, layout in zip((a, b, c), layouts, strict=True)]
    strides = [size + gap for size in lines]
    space = "global" if gap else "generic"
    arrays = [in_memory(x, kind, layout, s) for x, kind, layout, s in
              zip((a, b, c), (form.a, form.a, form.c), layouts, strides, strict=True)]  # fmt: skip
    out = np.zeros(arrays[2].shape, NUMPY[form.d])
    body = wmma_body(form, space, layouts, strides if gap else (0, 0, 0))
    got = bench.clean(body, *arrays, out)[3][:, : lines[2]]
    got = got if layouts[2] == "row" else got.T
    assert np.array_equal(got, (a @ b + c).astype(NUMPY[form.d]))


@pytest.mark.parametrize(("kind", "shape"), [("s4", "m8n8k32"), ("u4", "m8n8k32"), ("b1", "m8n8k128")])
def test_wmma_below_a_byte(bench: Bench, kind: str, shape: str) -> None:
    rng = np.random.default_rng(7)
    m, n, k = sizes(shape)
    a, b = (rng.integers(0, 1 << BITS[kind], s).astype(np.uint64) for s in ((m, k), (k, n)))
    c = rng.integers(-1000, 1000, (m, n)).astype(np.int32)

    def packed(lines: np.ndarray) -> np.ndarray:
        per_word = 32 // BITS[kind]
        words = lines.reshape(lines.shape[0], -1, per_word) << (np.arange(per_word, dtype=np.uint64) * BITS[kind])
        return words.sum(-1).astype(np.uint32)

    operation = ".xor.popc" if kind == "b1" else ""
    body = f"""
 ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; ld.param.u64 %rd2, [p2]; ld.param.u64 %rd3, [p3];
 wmma.load.a.sync.aligned.row.{shape}.global.{kind} {{%r1}}, [%rd0], {k};
 wmma.load.b.sync.aligned.col.{shape}.global.{kind} {{%r2}}, [%rd1], {k};
 wmma.load.c.sync.aligned.row.{shape}.global.s32 {{%r3, %r4}}, [%rd2], {n};
 wmma.mma{operation}.sync.aligned.row.col.{shape}.s32.{kind}.{kind}.s32 {{%r5, %r6}}, {{%r1}}, {{%r2}}, {{%r3, %r4}};
 wmma.store.d.sync.aligned.row.{shape}.global.s32 [%rd3], {{%r5, %r6}}, {n}; ret;"""
    got = bench.clean(body, packed(a), packed(np.ascontiguousarray(b.T)), c, np.zeros((m, n), np.int32))[3]
    if kind == "b1":
        wanted = (a[:, :, None] ^ b[None]).sum(1).astype(np.int64) + c
    else:
        wanted = decode(a, kind) @ decode(b, kind) + c
    assert np.array_equal(got, wanted)


@pytest.mark.parametrize("layout", ["row", "col"])
@pytest.mark.parametrize("fragment", ["a", "b", "c"])
@pytest.mark.parametrize(("kind", "shape", "inner"), [
    ("f16", "m16n16k16", "m16n8k16"), ("bf16", "m16n16k16", "m16n8k16"), ("tf32", "m16n16k8", "m16n8k8"),
    ("s8", "m16n16k16", "m16n8k16"),
])  # fmt: skip
def test_wmma_fragments_are_pairs_of_mma_fragments(
    bench: Bench, fragment: str, layout: str, kind: str, shape: str, inner: str
) -> None:
    """What ``frag.x[i]`` is: A as for `mma`, B and C twice side by side, and halves repeated."""
    m, n, k = sizes(shape)
    own = kind if fragment != "c" else "s32" if kind == "s8" else "f32"
    rows, columns = {"a": (m, k), "b": (k, n), "c": (m, n)}[fragment]
    numbers = np.arange(rows * columns).reshape(rows, columns).astype(np.uint64)
    if BITS[own] == 8:
        numbers &= np.uint64(255)
    halves = [numbers] if fragment == "a" else [numbers[:, :8], numbers[:, 8:]]
    inner_fragment = {"a": a_fragment, "b": b_fragment, "c": c_fragment}[fragment](own, inner)
    wanted = np.concatenate([inner_fragment.pack(half) for half in halves])
    if kind == "f16" and fragment != "c":
        wanted = np.concatenate([wanted, wanted])
    count = len(wanted)
    memory = numbers if layout == "row" else numbers.T
    body = f""" mov.u32 %r0, %laneid; ld.param.u64 %rd9, [p0];
 wmma.load.{fragment}.sync.aligned.{layout}.{shape}.global.{own} {vector(own, 10, count)}, [%rd9];
 {move_registers("st", 1, own, 10, count)} ret;"""
    data = np.ascontiguousarray(memory).astype(f"u{BITS[own] // 8}")
    assert np.array_equal(bench.clean(body, data, np.zeros((count, 32), np.uint32))[1], wanted)


@pytest.mark.parametrize("layout", ["row", "col"])
@pytest.mark.parametrize("place", ["shared", "generic"])
def test_wmma_from_shared_memory(bench: Bench, layout: str, place: str) -> None:
    """Fragments from shared memory are those from global memory; rows across are taken as `ldmatrix` does."""
    data = np.arange(16 * 24, dtype=np.uint16)
    where, address = (".shared", "%r2") if place == "shared" else ("", "%rd2")
    body = f""" .shared .align 32 .b8 tile[768];
 mov.u32 %r0, %laneid; ld.param.u64 %rd0, [p0]; mov.u32 %r3, 0; mov.u32 %r4, tile; cvt.u64.u32 %rd2, %r4;
 cvta.shared.u64 %rd2, %rd2; mov.u32 %r2, tile;
COPY: mad.lo.u32 %r5, %r3, 32, %r0; mul.lo.u32 %r5, %r5, 2; cvt.u64.u32 %rd5, %r5; add.u64 %rd6, %rd0, %rd5;
 ld.global.u16 %rs1, [%rd6]; add.u32 %r6, %r4, %r5; st.shared.u16 [%r6], %rs1;
 add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 12; @%p1 bra COPY;
 bar.sync 0;
 wmma.load.a.sync.aligned.{layout}.m16n16k16{where}.f16 {vector("f16", 10, 8)}, [{address}], 24;
 wmma.load.a.sync.aligned.{layout}.m16n16k16.global.f16 {vector("f16", 20, 8)}, [%rd0], 24;
 {move_registers("st", 1, "f16", 10, 8)}
 {move_registers("st", 2, "f16", 20, 8)} ret;"""
    _, shared, direct = bench.clean(body, data, np.zeros((8, 32), np.uint32), np.ones((8, 32), np.uint32))
    assert np.array_equal(shared, direct)
    assert len(np.unique(direct)) == 4 * 32


# --- ldmatrix, stmatrix, movmatrix ------------------------------------------------------------

# rows of 16 bytes, one per lane, copied to shared memory; %r4 is the lane's row there
STAGE = """ .shared .align 16 .b8 rows[4096];
 mov.u32 %r0, %laneid; ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd0, %r0, 16, %rd0;
 ld.global.v4.b32 {%r60, %r61, %r62, %r63}, [%rd0]; mov.u32 %r3, rows; mad.lo.u32 %r4, %r0, PITCH, %r3;
"""
FILL = " st.shared.v4.b32 [%r4], {%r60, %r61, %r62, %r63}; bar.sync 0;\n"


@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(bench: Bench, count: int, trans: str) -> None:
    data = np.arange(256, dtype=np.uint16).reshape(4, 8, 8)
    body = (
        STAGE.replace("PITCH", "16")
        + FILL
        + f""" ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {vector("f16", 10, count)}, [%r4];
 {move_registers("st", 1, "f16", 10, count)} ret;"""
    )
    got = bench.clean(body, data, np.zeros((count, 32), np.uint32))[1]
    matrices = data.transpose(0, 2, 1) if trans else data
    assert np.array_equal(got.view(np.uint16).reshape(count, 8, 8), matrices[:count])


@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix(bench: Bench, count: int, trans: str) -> None:
    data = np.arange(256, dtype=np.uint16).reshape(4, 8, 8)
    body = (
        STAGE.replace("PITCH", "16")
        + f""" mad.wide.u32 %rd1, %r0, 4, 0; ld.param.u64 %rd0, [p0]; add.u64 %rd0, %rd0, %rd1;
 {" ".join(f"ld.global.b32 %r{10 + n}, [%rd0+{128 * n}];" for n in range(4))}
 st.shared.v4.b32 [%r4], {{%r60, %r60, %r60, %r60}}; bar.sync 0;
 stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%r4], {vector("f16", 10, count)}; bar.sync 0;
 ld.shared.v4.b32 {{%r60, %r61, %r62, %r63}}, [%r4];
 ld.param.u64 %rd1, [p1]; mad.wide.u32 %rd1, %r0, 16, %rd1; st.global.v4.b32 [%rd1], {{%r60, %r61, %r62, %r63}}; ret;"""
    )
    got = bench.clean(body, data, Blank(512))[1].view(np.uint16).reshape(4, 8, 8)
    matrices = data.transpose(0, 2, 1) if trans else data
    assert np.array_equal(got[:count], matrices[:count])


def test_movmatrix(bench: Bench) -> None:
    data = np.arange(64, dtype=np.uint16).reshape(8, 8)
    body = f""" mov.u32 %r0, %laneid; {move_registers("ld", 0, "f16", 1, 1)}
 movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1; {move_registers("st", 1, "f16", 2, 1)} ret;"""
    got = bench.clean(body, data, np.zeros((8, 8), np.uint16))[1]
    assert np.array_equal(got, data.T)


@pytest.mark.parametrize(("pitch", "passes"), [(16, 4), (144, 4), (128, 32)], ids=str)
def test_ldmatrix_counts_bank_conflicts(bench: Bench, pitch: int, passes: int) -> None:
    """Eight rows of 16 bytes each fill the banks once, unless rows start in the same banks."""
    load = " ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r4];\n"
    out = f"{move_registers('st', 1, 'f16', 10, 4)} ret;"
    prepare = STAGE.replace("PITCH", str(pitch)).replace("4096", "8192") + FILL
    data, result = np.zeros(256, np.uint16), np.zeros((4, 32), np.uint32)
    nothing = " mov.b32 %r10, 0; mov.b32 %r11, 0; mov.b32 %r12, 0; mov.b32 %r13, 0;\n"
    bare = bench.run(prepare + nothing + out, data, result, profile=True)
    ran = bench.run(prepare + load + out, data, result, profile=True)
    assert ran.findings == bare.findings == ()
    assert ran["shared_load_wavefronts"] - bare["shared_load_wavefronts"] == passes


def test_rows_outside_shared_memory(bench: Bench) -> None:
    body = """ .shared .align 16 .b8 rows[256];
 mov.u32 %r0, %laneid; mov.u32 %r3, rows; mad.lo.u32 %r4, %r0, 16, %r3; st.shared.u32 [%r3], %r0;
 ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r4]; ret;"""
    assert "out-of-bounds" in bench.run(body).kinds
    assert "misaligned" in bench.run(body.replace("[%r4]", "[%r4+8]").replace("rows[256]", "rows[1024]")).kinds


def test_matrix_outside_its_buffer(bench: Bench) -> None:
    body = """ ld.param.u64 %rd0, [p0];
 wmma.load.a.sync.aligned.row.m16n16k16.global.bf16 {%r1, %r2, %r3, %r4}, [%rd0], 16;
 wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, [%rd0], 8; ret;"""
    assert set(bench.run(body, np.zeros(255, np.uint16)).kinds) == {"out-of-bounds"}
