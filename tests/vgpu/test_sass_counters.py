"""Counters that follow the machine code: merged accesses, instructions, paths; against values worked out by hand."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from ptxkit import INDEX, Bench, Ran, pointer

from cupilot.records import Launch
from cupilot.records.evaluation import SassAccess, SassFunction
from cupilot.toolchain.cuda import find_cuda
from cupilot.toolchain.process import run as run_command
from cupilot.toolchain.sass import SassInstruction, find_nvdisasm, kernel_sass, match, read_sass

DATA = np.zeros(8192, np.uint32)
FILLED = f""".shared .align 16 .b8 tile[8192]; {INDEX} shl.b32 %r10, %r0, 4;
 L: setp.ge.u32 %p1, %r10, 8192; @%p1 bra D; st.shared.v4.b32 [%r10], {{%r0, %r0, %r0, %r0}};
 add.u32 %r10, %r10, 512; bra L; D:
"""
Widths = tuple[tuple[int, int], ...]


@contextmanager
def built(bench: Bench, *accesses: SassAccess) -> Iterator[None]:
    """Kernels that are translated within have this machine code."""
    bench.machine.sass = (SassFunction("anywhere", False, accesses),)
    try:
        yield
    finally:
        bench.machine.sass = ()


def source_of(ran: Ran, name: str) -> str:
    assert ran.launch is not None
    return next(c.source for c in ran.launch.counters if c.name == name)


def run(bench: Bench, body: str, *arguments: np.ndarray) -> Ran:
    ran = bench.run(body, *arguments, profile=True)
    assert ran.findings == ()
    return ran


@pytest.mark.parametrize(
    ("line", "stride", "widths", "requests", "wavefronts", "conflicts"),
    [
        # 16 bytes between lanes: a word each hits every fourth bank, 16 bytes each use all banks in four passes
        pytest.param(201, 16, (), 4, 16, 12, id="not merged"),
        pytest.param(202, 16, ((4, 4),), 4, 16, 12, id="as in PTX"),
        pytest.param(203, 16, ((16, 1),), 1, 4, 0, id="four to one"),
        pytest.param(204, 16, ((16, 8),), 1, 4, 0, id="and unrolled"),
        # half warps of 16 times 8 bytes at a distance of 16: two passes each
        pytest.param(205, 16, ((8, 2),), 2, 8, 4, id="two to one"),
        pytest.param(206, 16, ((4, 2), (8, 1)), 3, 12, 8, id="two of four"),
        # 32 bytes apart: quarter warps span 256 bytes
        pytest.param(207, 32, ((16, 1),), 1, 8, 4, id="over twice the banks"),
        pytest.param(208, 0, ((16, 1),), 1, 2, 0, id="the same 16 bytes for all"),
    ],
)
@pytest.mark.parametrize("verb", ["load", "store"])
def test_merged_shared_accesses(
    bench: Bench, line: int, stride: int, widths: Widths, requests: int, wavefronts: int, conflicts: int, verb: str
) -> None:
    line += 100 * (verb == "store")
    each = "ld.shared.b32 %r2{0}, [%r11+{1}];" if verb == "load" else "st.shared.b32 [%r11+{1}], %r0;"
    four = " ".join(each.format(n, 4 * n) for n in range(4))
    body = f"{FILLED} mul.lo.u32 %r11, %r0, {stride};\n.loc 1 {line} 1\n {four} ret;"
    with built(bench, *(SassAccess(line, "shared", verb, 4, 0, widths) for _ in range(4))):
        ran = run(bench, body)
    before = (16, 64, 0) if verb == "store" else (0, 0, 0)  # what filled the memory
    names = ("requests", "wavefronts", "conflicts")
    got = tuple(ran[f"shared_{verb}_{name}"] - b for name, b in zip(names, before, strict=True))
    assert got == pytest.approx((requests, wavefronts, conflicts))
    assert ran["merged_requests"] == 4 - requests
    assert source_of(ran, f"shared_{verb}_requests") == ("SASS" if widths else "PTX")
    cost = next(c for c in ran.launch.lines if c.line == line) if ran.launch else None
    assert cost is not None
    assert (cost.shared_requests, cost.shared_wavefronts, cost.source) == (
        pytest.approx(requests), pytest.approx(wavefronts), "SASS" if widths else "PTX",
    )  # fmt: skip


def test_two_arrays_on_one_line(bench: Bench) -> None:
    """The loads of one are merged, those of the other are not; they alternate in the text."""
    loads = " ".join(f"ld.shared.b32 %r2{n}, [%r11+{4 * n}]; ld.shared.b32 %r3{n}, [%r12+{128 * n}];" for n in range(4))
    body = f"{FILLED} mul.lo.u32 %r11, %r0, 16; mul.lo.u32 %r12, %r0, 4;\n.loc 1 220 1\n {loads} ret;"
    first, second = (
        SassAccess(220, "shared", "load", 4, 7, ((16, 1),)),
        SassAccess(220, "shared", "load", 4, 8, ((4, 4),)),
    )
    with built(bench, *(first, second) * 4):
        ran = run(bench, body)
    assert (ran["shared_load_requests"], ran["shared_load_wavefronts"], ran["shared_load_conflicts"]) == (5, 8, 0)


def test_merged_stores_write_a_sector_once(bench: Bench) -> None:
    stores = " ".join(f"st.global.b32 [%rd0+{4 * n}], %r0;" for n in range(4))
    body = f"{INDEX}{pointer(0, size=16)}\n.loc 1 230 1\n {stores} ret;"
    with built(bench, *(SassAccess(230, "global", "store", 4, 0, ((16, 1),)) for _ in range(4))):
        ran = run(bench, body, DATA)
    assert [ran[f"global_store_{name}"] for name in ("requests", "sectors", "wavefronts", "bytes")] == [1, 16, 4, 512]
    assert ran["l2_write_sectors"] == 16
    assert source_of(ran, "global_store_sectors") == "SASS"
    assert source_of(ran, "global_store_bytes") == "PTX"


def test_merged_loads_ask_once(bench: Bench) -> None:
    loads = " ".join(f"ld.global.b32 %r1{n}, [%rd0+{4 * n}];" for n in range(4))
    body = f"{INDEX}{pointer(0, size=16)}\n.loc 1 240 1\n {loads} ret;"
    with built(bench, *(SassAccess(240, "global", "load", 4, 0, ((16, 1),)) for _ in range(4))):
        ran = run(bench, body, DATA)
    assert [ran[f"global_load_{name}"] for name in ("requests", "sectors", "wavefronts")] == [1, 16, 4]
    assert (ran["l2_read_sectors"], ran["l1_hit_sectors"], ran["independent_loads"]) == (16, 0, 1)


def test_arrays_that_became_registers(bench: Bench) -> None:
    body = f""".local .align 16 .b8 mine[64]; {INDEX}\n.loc 1 250 1\n st.local.u32 [mine], %r0;
    ld.local.u32 %r10, [mine]; ret;"""
    gone = [SassAccess(250, "local", kind, 4, 0, (), gone=True) for kind in ("store", "load")]
    with built(bench, *gone):
        ran = run(bench, body)
    assert (ran["local_store_requests"], ran["local_load_sectors"], ran["merged_requests"]) == (0, 0, 2)


def test_another_number_of_accesses_is_not_trusted(bench: Bench) -> None:
    body = f"{FILLED} mul.lo.u32 %r11, %r0, 16;\n.loc 1 260 1\n ld.shared.b32 %r20, [%r11]; ret;"
    mixed = (SassAccess(260, "shared", "load", 4, 0, ((16, 1),)), SassAccess(260, "shared", "load", 4, 0, ((4, 1),)))
    with built(bench, *mixed):
        ran = run(bench, body)
    assert (ran["shared_load_requests"], source_of(ran, "shared_load_requests")) == (1, "PTX")


# --- a real build -------------------------------------------------------------------------------

# 4 x 4 outputs per thread; a warp shares its four rows of A, and its lanes read 16 neighbouring bytes of B each
SGEMM = """extern "C" __global__ void sgemm(const float* A, const float* B, float* C, int K) {
  __shared__ float As[8][32], Bs[8][128];
  int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
  float acc[4][4] = {};
  for (int k0 = 0; k0 < K; k0 += 8) {
    As[threadIdx.x % 8][threadIdx.x / 8] = A[threadIdx.x / 8 * K + k0 + threadIdx.x % 8];
    for (int k = ty; k < 8; k += 8)
      for (int n = tx; n < 128; n += 32) Bs[k][n] = B[(k0 + k) * 128 + n];
    __syncthreads();
    for (int k = 0; k < 8; k++) {
      float a[4], b[4];
      for (int i = 0; i < 4; i++) a[i] = As[k][ty * 4 + i];
      for (int j = 0; j < 4; j++) b[j] = Bs[k][tx * 4 + j];
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) acc[i][j] += a[i] * b[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) C[(ty * 4 + i) * 128 + tx * 4 + j] = acc[i][j];
}
"""
A_LINE, B_LINE = 12, 13


def test_an_sgemm_with_scalar_shared_loads(bench: Bench, tmp_path: Path) -> None:
    cuda = find_cuda()
    (tmp_path / "k.cu").write_text(SGEMM)
    for command in (
        (cuda.nvcc, "-ccbin", cuda.host_compiler, "-ptx", "-arch=sm_80", "-lineinfo", "k.cu", "-o", "k.ptx"),
        (cuda.ptxas, "-lineinfo", "-arch=sm_80", "k.ptx", "-o", "k.cubin"),
    ):
        finished = run_command(command, tmp_path, 60)
        assert finished is not None
        assert finished.status == 0, finished.output
    ptx = (tmp_path / "k.ptx").read_text()
    depth, warps = 16, 8
    a, b, c = (np.ones(shape, np.float32) for shape in ((32, depth), (depth, 128), (32, 128)))
    launches = []
    machine = bench.machine
    for machine.sass in ((), kernel_sass(tmp_path / "k.cubin", ptx, cuda, tmp_path / "out")):
        addresses = [machine.upload(array) for array in (a, b, c)]
        machine.begin(None, 20.0)
        arguments = [struct.pack("<Q", address) for address in addresses] + [struct.pack("<i", depth)]
        assert machine.start(machine.load_ptx(ptx), "sgemm", (1, 1, 1), (32 * warps, 1, 1), arguments) == 0
        assert (machine.view(addresses[2], c.shape, c.dtype) == depth).all()
        launches.append(machine.launch(0))
        for address in addresses:
            machine.free(address)
    machine.sass = ()
    in_ptx, in_sass = ({cost.line: cost for cost in launch.lines} for launch in launches)
    products = depth * warps
    # B: 16 bytes between lanes are 4 passes for a word each, and 4 for all four words at once
    assert (in_ptx[B_LINE].shared_requests, in_ptx[B_LINE].shared_wavefronts) == (4 * products, 16 * products)
    assert (in_sass[B_LINE].shared_requests, in_sass[B_LINE].shared_wavefronts) == (products, 4 * products)
    # A: one word for all lanes is one pass; four registers for all lanes are two
    assert (in_ptx[A_LINE].shared_requests, in_ptx[A_LINE].shared_wavefronts) == (4 * products, 4 * products)
    assert (in_sass[A_LINE].shared_requests, in_sass[A_LINE].shared_wavefronts) == (products, 2 * products)
    assert [in_ptx[B_LINE].source, in_sass[B_LINE].source] == ["PTX", "SASS"]
    assert launches[1].counter("shared_load_conflicts") == 0 < launches[0].counter("shared_load_conflicts")
    assert launches[1].counter("merged_requests") == 6 * products


# --- instructions and the path of a warp --------------------------------------------------------

KNOWN = """.version 8.0
.target sm_80
.address_size 64
.visible .entry known(.param .u64 p, .param .u32 n)
{
	.reg .b64 %rd<9>; .reg .b32 %r<19>; .reg .f32 %f<9>; .reg .pred %p<3>;
	ld.param.u64 %rd1, [p];
	ld.param.u32 %r9, [n];
	mov.u32 %r1, %tid.x;
	mad.wide.u32 %rd2, %r1, 4, %rd1;
	mov.f32 %f1, 0f00000000;
$L1:
	ld.global.f32 %f2, [%rd2];
	fma.rn.f32 %f1, %f1, %f2, %f2;
	add.s32 %r9, %r9, -1;
	setp.ne.s32 %p1, %r9, 0;
	@%p1 bra $L1;
	st.global.f32 [%rd2+4096], %f1;
	ret;
}
"""
# line of the PTX, instruction, stall, barrier that it releases, barriers that it waits for
MACHINE_CODE: tuple[tuple[int, str, int, int, int] | str, ...] = (
    (5, "MOV R1, c[0x0][0x28]", 2, 7, 0),
    (9, "S2R R0, SR_TID.X", 1, 0, 0),
    (5, "ULDC.64 UR4, c[0x0][0x118]", 2, 7, 0),
    (10, "IMAD.WIDE.U32 R2, R0, R3, c[0x0][0x160]", 5, 7, 0b01),
    (8, "MOV R9, c[0x0][0x168]", 1, 7, 0),
    ".L_x_0",
    (13, "LDG.E R4, [R2.64]", 2, 1, 0),
    (15, "IADD3 R9, R9, -0x1, RZ", 4, 7, 0),
    (16, "ISETP.NE.AND P0, PT, R9, RZ, PT", 4, 7, 0),
    (14, "FFMA R5, R5, R4, R4", 4, 7, 0b10),
    (17, "@P0 BRA `(.L_x_0)", 5, 7, 0),
    (18, "STG.E [R2.64+0x1000], R5", 1, 7, 0),
    (19, "EXIT", 5, 7, 0),
    ".L_x_1",
    (19, "BRA `(.L_x_1)", 0, 7, 0),
    (19, "NOP", 0, 7, 0),
)


def disassembly(more: int = 0) -> str:
    """The machine code as nvdisasm writes it, of a PTX text that begins with so many more lines."""
    text, offset = '\t.section\t.text.known,"ax",@progbits\n', 0
    for row in MACHINE_CODE:
        if isinstance(row, str):
            text += f"{row}:\n"
            continue
        line, code, stall, write, waits = row
        high = stall << 41 | write << 46 | 7 << 49 | waits << 52
        text += f'\t//## File ".nv_debug_ptx_txt", line {line + more}\n        /*{offset:04x}*/  {code} ;  /* 0x0 */\n'
        text += f"                      /* {high:#018x} */\n"
        offset += 16
    return text


def launched(bench: Bench, ptx: str, sass: tuple[SassFunction, ...], name: str, rounds: int, threads: int = 32,
             grid: int = 1, sample_budget: int | None = None) -> Launch:  # fmt: skip
    """A kernel of a buffer and a number, with machine code."""
    machine = bench.machine
    address = machine.upload(np.ones(1 << 16, np.float32))
    machine.sass = sass
    machine.begin(sample_budget, 20.0)
    arguments = [struct.pack("<Q", address), struct.pack("<i", rounds)]
    assert machine.start(machine.load_ptx(ptx), name, (grid, 1, 1), (threads, 1, 1), arguments) == 0
    launch = machine.launch(0)
    assert machine.findings() == ()
    machine.free(address)
    machine.sass = ()
    return launch


def of_machine_code(launch: Launch) -> dict[str, float]:
    names = ("path_cycles", "round_trips", "covered_cycles")
    return {c.name: c.value for c in launch.counters if c.name.startswith("sass_") or c.name in names}


def test_a_known_body(bench: Bench) -> None:
    rounds, warps = 7, 6
    launch = launched(bench, KNOWN, match(KNOWN, read_sass(disassembly())), "known", rounds, threads=64, grid=3)
    # the third instruction is issued when the special register is there, 24 cycles after 2
    before, each, after = 2 + 1 + 2 + (26 - 5) + 5 + 1, 2 + 4 + 4 + 4 + 5, 1 + 5
    assert of_machine_code(launch) == {
        "sass_instructions": warps * (5 + 5 * rounds + 2),
        "sass_int": warps * (2 + 2 * rounds), "sass_imad": warps, "sass_uniform": warps, "sass_fp32": warps * rounds,
        "sass_lsu": warps * (1 + rounds + 1), "sass_control": warps * (rounds + 1),
        "path_cycles": warps * (before + each * rounds + after),
        "round_trips": warps * rounds, "covered_cycles": warps * 10 * rounds,
    }  # fmt: skip
    assert {c.source for c in launch.counters if c.name in of_machine_code(launch)} == {"SASS"}


def test_a_sample_stands_for_the_grid(bench: Bench) -> None:
    sass = match(KNOWN, read_sass(disassembly()))
    whole, part = (launched(bench, KNOWN, sass, "known", 7, 64, 512, budget) for budget in (None, 1))
    assert part.blocks_run < whole.blocks_run
    assert of_machine_code(part) == pytest.approx(of_machine_code(whole))


def test_comments_before_the_ptx_change_nothing(bench: Bench) -> None:
    before = "//\n// Generated by a compiler\n//\n\n"
    plain = launched(bench, KNOWN, match(KNOWN, read_sass(disassembly())), "known", 5)
    moved = match(before + KNOWN, read_sass(disassembly(more=4)))
    for text in (before + KNOWN, KNOWN):  # an image holds the text from its version on
        assert of_machine_code(launched(bench, text, moved, "known", 5)) == of_machine_code(plain)


def test_without_machine_code_nothing_is_said_about_it(bench: Bench) -> None:
    assert of_machine_code(launched(bench, KNOWN, (), "known", 5)) == {}
    other = match(KNOWN, read_sass(disassembly().replace(".text.known", ".text.other")))
    assert of_machine_code(launched(bench, KNOWN, other, "known", 5)) == {}


# --- what ptxas makes of loops, divisions and calls ---------------------------------------------

REAL = """.version 8.0
.target sm_80
.address_size 64
.func (.param .b32 r) far_away(.param .b32 a)
{{
	.reg .f32 %f<9>;
	ld.param.f32 %f1, [a];
	fma.rn.f32 %f2, %f1, 0f3F000000, 0f3F800000;
	fma.rn.f32 %f3, %f2, 0f3F000000, 0f3F800000;
	st.param.f32 [r], %f3;
	ret;
}}
.visible .entry real(.param .u64 p, .param .u32 n)
{{
	.reg .b64 %rd<9>; .reg .b32 %r<19>; .reg .f32 %f<19>; .reg .pred %p<9>;
	ld.param.u64 %rd1, [p];
	ld.param.u32 %r9, [n];
	mov.u32 %r1, %tid.x;
	mad.wide.u32 %rd2, %r1, 4, %rd1;
	mov.f32 %f1, 0f40000000;
	mov.u32 %r2, 0;
{body}
	st.global.f32 [%rd2], %f1;
	ret;
}}
"""
LOAD, ADD = "	ld.global.f32 %f2, [%rd2];", "	add.f32 %f1, %f1, %f2;"
CALL = """	{
	.param .b32 param0;
	st.param.f32 [param0+0], %f2;
	.param .b32 retval0;
	call.uni (retval0),
	far_away,
	(
	param0
	);
	ld.param.f32 %f3, [retval0+0];
	}"""
SEVERAL = "	{ .reg .f32 t; add.f32 t, %f1, %f2; mul.f32 %f1, t, t; }"


def loop(*code: str, unroll: bool = False) -> str:
    return "\n".join((
        "$L1:", *(() if unroll else ('	.pragma "nounroll";',)), *code, "	add.s64 %rd2, %rd2, 128;",
        "	add.s32 %r2, %r2, 1;", "	setp.lt.s32 %p1, %r2, %r9;", "	@%p1 bra $L1;",
    ))  # fmt: skip


def assembled(body: str, folder: Path) -> tuple[str, tuple[SassInstruction, ...]]:
    cuda, ptx = find_cuda(), REAL.format(body=body)
    tool = find_nvdisasm(cuda)
    assert tool is not None
    (folder / "k.ptx").write_text(ptx)
    for command in ((cuda.ptxas, "-lineinfo", "-arch=sm_80", "k.ptx", "-o", "k.cubin"),
                    (tool, "--no-dataflow", "-gp", "-hex", "-c", folder / "k.cubin")):  # fmt: skip
        finished = run_command(command, folder, 60)
        assert finished is not None
        assert finished.status == 0, finished.output
    return ptx, tuple(i for i in read_sass(finished.output) if i.function == "real")


def executed(code: tuple[SassInstruction, ...], rounds: int) -> int:
    """What a warp executes when all code outside the loop is executed once, and a function in each round."""
    ends = [n for n, i in enumerate(code) if i.opcode == "EXIT"]
    kernel, behind = code[: ends[-1] + 1], [i for i in code[ends[-1] + 1 :] if i.back != i.offset and i.opcode != "NOP"]
    of_function = sum(i.ptx_line > 0 for i in behind)
    return sum((rounds if i.in_loop else 1) for i in kernel if i.ptx_line) + rounds * of_function


@pytest.mark.parametrize(
    ("code", "trips"),
    [
        pytest.param((LOAD, ADD), 1, id="loop"),
        pytest.param((LOAD, "	div.rn.f32 %f1, %f2, %f1;"), 1, id="division"),
        pytest.param((LOAD, "	sqrt.rn.f32 %f3, %f2;", "	add.f32 %f1, %f1, %f3;"), 1, id="square root"),
        pytest.param((LOAD, SEVERAL), 1, id="several on a line"),
        pytest.param((LOAD, CALL, "	add.f32 %f1, %f1, %f3;"), 1, id="call"),
        pytest.param(("	fma.rn.f32 %f1, %f1, %f1, %f1;",), 0, id="no load"),
    ],
)
def test_every_instruction_of_a_loop_counts(bench: Bench, tmp_path: Path, code: tuple[str, ...], trips: int) -> None:
    ptx, made = assembled(loop(*code), tmp_path)
    for rounds in (1, 40):
        found = of_machine_code(launched(bench, ptx, match(ptx, made), "real", rounds, threads=64))
        assert found["sass_instructions"] == pytest.approx(2 * executed(made, rounds))
        assert found.get("round_trips", 0) == pytest.approx(2 * trips * rounds)


def test_a_loop_that_ptxas_unrolls(bench: Bench, tmp_path: Path) -> None:
    """Of each execution the additions and loads count once, and the copies in the loop share a round trip."""
    ptx, code = assembled(loop(LOAD, ADD, unroll=True), tmp_path)
    ends = [i for i in code if 0 <= i.back < i.offset]
    loads = [sum(i.opcode == "LDG" and end.back <= i.offset <= end.offset for i in code) for end in ends]
    assert sum(i.opcode == "LDG" for i in code) > max(loads) > 1
    rounds = 32 * max(loads)
    found = of_machine_code(launched(bench, ptx, match(ptx, code), "real", rounds))
    assert found["sass_fp32"] == pytest.approx(rounds)
    assert found["round_trips"] == pytest.approx(rounds / max(loads))
    # all that the loop executes, and what surrounds it
    body = max(sum(end.back <= i.offset <= end.offset for i in code) for end in ends)
    assert found["sass_instructions"] == pytest.approx(rounds / max(loads) * body, rel=0.1)
