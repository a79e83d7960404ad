"""Widths of accesses in machine code: from texts as nvdisasm and nvcc write them, and from a real build."""

from __future__ import annotations

from pathlib import Path

import pytest

from cupilot.records.evaluation import SassAccess
from cupilot.toolchain.cuda import Cuda
from cupilot.toolchain.process import run
from cupilot.toolchain.sass import find_nvdisasm, kernel_sass, match, read_sass, source_lines
from cupilot.vgpu.ptx.parse import parse_module
from cupilot.vgpu.ptx.syntax import Instruction

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p)
{
	.reg .b32 %r<9>; .reg .f32 %f<9>; .reg .pred %p<3>;
	.loc	1 10 3
	mov.u32 %r1, %tid.x;
$L__BB0_1:
	.loc	1 12 5
	ld.shared.f32 	%f1, [%r1];
	.loc	2 90 1, function_name $L__info_string0, inlined_at 1 13 7
	ld.shared.f32 	%f5, [%r2+128];
	.loc	1 12 5
	ld.shared.f32 	%f2, [%r1+4];
	ld.shared.f32 	%f3, [%r1+8];
	.loc	1 0 5
	ld.shared.f32 	%f4, [%r1+12];
	@%p1 bra 	$L__BB0_1;
	.loc	1 14 5
	@%p2 st.shared.v2.f32 	[%r1], {%f1, %f2};
	ld.param.u32 	%r3, [p];
	ret;
}
"""
SASS = """	.target	sm_80
//--------------------- .text.k --------------------------
	.section	.text.k,"ax",@progbits
	.align	128
k:
.text.k:
	//## File ".nv_debug_ptx_txt", line 8
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_0:
	//## File ".nv_debug_ptx_txt", line 13
        /*0010*/                   LDS R8, [R6.X4+0x80] ;
	//## File ".nv_debug_ptx_txt", line 11
        /*0020*/                   LDS.128 R12, [R5.X16] ;
	//## File ".nv_debug_ptx_txt", line 19
        /*0030*/               @P0 BRA `(.L_x_0) ;
	//## File ".nv_debug_ptx_txt", line 21
        /*0040*/              @!P1 STS.64 [R5.X16], R12 ;
        /*0050*/                   EXIT ;
.L_x_1:
        /*0060*/                   BRA `(.L_x_1);
.L_x_2:
"""


def test_instructions_lines_and_loops() -> None:
    code = read_sass(SASS)
    assert [(i.opcode, i.modifiers, i.ptx_line, i.in_loop) for i in code] == [
        ("S2R", (), 8, False), ("LDS", (), 13, True), ("LDS", ("128",), 11, True), ("BRA", (), 19, True),
        ("STS", ("64",), 21, False), ("EXIT", (), 21, False), ("BRA", (), 21, True),
    ]  # fmt: skip
    assert [i.bytes for i in code if i.opcode in ("LDS", "STS")] == [4, 16, 8]
    assert {i.function for i in code} == {"k"}


def test_merged_loads_stand_at_one_of_them() -> None:
    (function,) = match(PTX, read_sass(SASS))
    assert (function.name, function.is_kernel) == ("k", True)
    merged, single = ((16, 1),), ((4, 1),)
    assert function.accesses == (
        SassAccess(12, "shared", "load", 4, 0, merged), SassAccess(13, "shared", "load", 4, 1, single),
        *(SassAccess(12, "shared", "load", 4, 0, merged) for _ in range(3)),
        SassAccess(14, "shared", "store", 8, 5, ((8, 1),)),
    )  # fmt: skip


def is_code(text: str) -> bool:
    return text.startswith("\t") and not text.startswith("\t.")


def test_lines_are_those_of_the_engine() -> None:
    lines = source_lines(PTX)
    body = [i for i in parse_module(PTX).functions["k"].body if isinstance(i, Instruction)]
    texts = [(number, text) for number, text in enumerate(PTX.split("\n")) if is_code(text)]
    assert [i.line for i in body] == [lines[number] for number, _ in texts]


@pytest.mark.parametrize(
    ("instructions", "expected"),
    [
        # (PTX line, opcode): what becomes of the four loads of line 12
        (((11, "LDS.64"), (15, "LDS.64")), ((8, 2),)),
        (((11, "LDS.64"), (15, "LDS"), (16, "LDS")), ((4, 2), (8, 1))),
        # unrolled twice
        (((11, "LDS.128"), (11, "LDS.128")), ((16, 2),)),
        # bytes that are no multiple: unclear
        (((11, "LDS.64"), (15, "LDS")), ()),
        # narrower than in PTX, or not there: unclear
        (((11, "LDS.U16"), (15, "LDS")), ()),
        ((), ()),
        # of another space
        (((11, "LDG.E.128"),), ()),
    ],
)
def test_what_is_clear(instructions: tuple[tuple[int, str], ...], expected: tuple[tuple[int, int], ...]) -> None:
    rows = "".join(
        f'\t//## File ".nv_debug_ptx_txt", line {line}\n        /*{16 * n:04x}*/   {opcode} R8, [R6] ;\n'
        for n, (line, opcode) in enumerate(instructions)
    )
    (function,) = match(PTX, read_sass(f'\t.section\t.text.k,"ax",@progbits\n{rows}'))
    assert [a.widths for a in function.accesses if a.line == 12] == [expected] * 4


def test_local_arrays_in_registers() -> None:
    ptx = PTX.replace("ld.shared.f32 	%f1, [%r1]", "ld.local.f32 	%f1, [%r1]")
    (function,) = match(ptx, read_sass(SASS))
    assert [a.gone for a in function.accesses if a.space == "local"] == [True]
    (function,) = match(ptx, read_sass(SASS.replace("LDS R8", "LDL R8")))
    assert [a.gone for a in function.accesses if a.space == "local"] == [False]


def test_without_a_disassembler_nothing_is_said(cuda: Cuda, tmp_path: Path) -> None:
    elsewhere = Cuda(tmp_path, cuda.nvcc, cuda.ptxas, cuda.include, cuda.version, cuda.host_compiler)
    (tmp_path / "some.cubin").write_bytes(b"no cubin")
    assert find_nvdisasm(elsewhere) is None
    assert kernel_sass(tmp_path / "some.cubin", PTX, elsewhere, tmp_path / "out") == ()


def test_a_tool_that_fails_costs_nothing(cuda: Cuda, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "nvdisasm"
    tool.write_text("#!/bin/sh\nexit 3\n")
    tool.chmod(0o755)
    elsewhere = Cuda(tmp_path, cuda.nvcc, cuda.ptxas, cuda.include, cuda.version, cuda.host_compiler)
    (tmp_path / "some.cubin").write_bytes(b"no cubin")
    assert kernel_sass(tmp_path / "some.cubin", PTX, elsewhere, tmp_path / "out") == ()
    # one that works is asked once
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{SASS}\nEND\n")
    first = kernel_sass(tmp_path / "some.cubin", PTX, elsewhere, tmp_path / "out")
    assert first == match(PTX, read_sass(SASS))
    kept = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert kernel_sass(tmp_path / "some.cubin", PTX, elsewhere, tmp_path / "out") == first
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == kept
    assert len(kept) == 1


SOURCE = """__global__ void k(float* out) {
  __shared__ float tile[4096];
  for (int i = threadIdx.x; i < 4096; i += blockDim.x) tile[i] = i;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; i++)
    sum = sum * 3 + tile[threadIdx.x * 4 + i];
  out[threadIdx.x] = sum;
}
"""


def test_a_real_build(cuda: Cuda, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(SOURCE)
    for command in (
        (cuda.nvcc, "-ccbin", cuda.host_compiler, "-ptx", "-arch=sm_80", "-lineinfo", "k.cu", "-o", "k.ptx"),
        (cuda.ptxas, "-lineinfo", "-arch=sm_80", "k.ptx", "-o", "k.cubin"),
    ):
        finished = run(command, tmp_path, 60)
        assert finished is not None
        assert finished.status == 0, finished.output
    (function,) = kernel_sass(tmp_path / "k.cubin", (tmp_path / "k.ptx").read_text(), cuda, tmp_path / "out")
    loads = [a for a in function.accesses if a.line == 8]
    assert [(a.space, a.kind, a.bytes) for a in loads] == [("shared", "load", 4)] * 4
    assert {a.widths for a in loads} == {((16, 1),)}
    stores = [a for a in function.accesses if a.space == "global"]
    assert [a.widths for a in stores] == [((4, 1),)]


def test_a_tool_that_does_not_start_costs_nothing(cuda: Cuda, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvdisasm").write_text("no program")
    elsewhere = Cuda(tmp_path, cuda.nvcc, cuda.ptxas, cuda.include, cuda.version, cuda.host_compiler)
    (tmp_path / "some.cubin").write_bytes(b"no cubin")
    assert kernel_sass(tmp_path / "some.cubin", PTX, elsewhere, tmp_path / "out") == ()
