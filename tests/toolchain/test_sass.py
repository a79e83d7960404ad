"""Machine code beside its PTX, widths of accesses and costs of lines: from texts as the tools write them, and real."""

from __future__ import annotations

from pathlib import Path

import pytest

from cupilot.records.evaluation import SassAccess
from cupilot.toolchain.cuda import Cuda
from cupilot.toolchain.process import run
from cupilot.toolchain.sass import find_nvdisasm, kernel_sass, match, read_sass, source_lines
from cupilot.toolchain.warp_path import PLAIN, Control
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


# --- lines --------------------------------------------------------------------------------------


def test_encodings_are_of_the_instruction_before() -> None:
    text = """	.section	.text.k,"ax",@progbits
	//## File ".nv_debug_ptx_txt", line 8
        /*0000*/                   S2R R0, SR_TID.X ;                    /* 0x0000000000007919 */
                                                                         /* 0x000e220000002100 */
.L_x_0:
        /*0010*/              @!P0 IMAD.WIDE R2, R0, R3, c[0x0][0x160] ; /* 0x0000580000027625 */
                                                                         /* 0x001fca00078e0203 */
        /*0020*/                   BRA `(.L_x_0) ;
"""
    code = read_sass(text)
    assert [i.control for i in code] == [Control(1, write_barrier=0), Control(5, waits=1), PLAIN]
    assert [i.operands for i in code] == ["R0, SR_TID.X", "R2, R0, R3, c[0x0][0x160]", "`(.L_x_0)"]
    assert [i.back for i in code] == [-1, -1, 0x10]


def sass_of(*rows: tuple[int, str] | str) -> str:
    """Rows are (line of the PTX, instruction) or labels."""
    text, offset = '\t.section\t.text.k,"ax",@progbits\n', 0
    for row in rows:
        if isinstance(row, str):
            text += f"{row}:\n"
            continue
        text += f'\t//## File ".nv_debug_ptx_txt", line {row[0]}\n        /*{offset:04x}*/    {row[1]} ;\n'
        offset += 16
    return text


def lines_of(ptx: str, sass: str) -> dict[int, dict[str, float]]:
    (function,) = (f for f in match(ptx, read_sass(sass)) if f.name == "k")
    return {line.ptx_line: dict(line.costs) for line in function.lines}


def test_lines_have_pipes_and_a_path() -> None:
    assert lines_of(PTX, SASS) == {
        8: {"lsu": 1, "path": 1},
        11: {"lsu": 1, "path": 1}, 13: {"lsu": 1, "path": 1}, 19: {"control": 1, "path": 1},
        21: {"lsu": 1, "control": 1, "path": 2},
    }  # fmt: skip


def test_lines_count_from_the_version() -> None:
    before = "//\n// Generated by a compiler\n//\n\n"
    moved = read_sass("\n".join(
        text if not text.startswith("\t//##") else text.rpartition(" ")[0] + f" {int(text.rpartition(' ')[2]) + 4}"
        for text in SASS.split("\n")
    ))  # fmt: skip
    assert match(before + PTX, moved) == match(PTX, read_sass(SASS))


ODD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(
	.param .u64 p
)
{
	.reg .f32 %f<9>; .reg .b32 %r<9>; .reg .pred %p<2>;
	.loc	1 3 1
	mov.u32
		%r1,
		%tid.x; add.u32 %r2, %r1, 1;
	/* no
	code; */ add.u32 %r3, %r1, %r2; // ret;
$L1: { .reg .f32 t;
	add.f32 t, %f1, %f2; mul.f32 %f1, t, t;
	}
	call.uni (retval0),
	f,
	(
	param0
	);
	st.global.v2.f32 [%rd1],
	{%f1, %f2};
	ret;

}
	.section	.debug_str
	{
.b8 102,0; $L2: .b8 3
	}
"""
ENDS = (12, 14, 16, 22, 24, 25)


@pytest.mark.parametrize(
    ("line", "home"),
    [
        # what begins and ends on a line, or only ends there
        (12, 12), (14, 14), (16, 16), (25, 25),
        # a first line, one in the middle
        (10, 12), (11, 12), (18, 22), (20, 22), (23, 24),
        # brackets, headers, labels, comments: of what comes next
        (7, 12), (4, 12), (13, 14), (15, 16), (17, 22),
        # after the last
        (27, 25),
    ],
)  # fmt: skip
def test_an_instruction_has_all_lines_that_it_takes(line: int, home: int) -> None:
    """ptxas names the first line of some and the last of others."""
    assert set(lines_of(ODD, sass_of((line, "MOV R1, R2")))) == {home}


def test_lines_of_instructions_are_those_of_the_engine() -> None:
    body = parse_module(ODD).functions["k"].body
    assert tuple(dict.fromkeys(i.ptx_line for i in body if isinstance(i, Instruction))) == ENDS


SLOW = "$__internal_0_$__cuda_sm3x_div_rn_noftz_f32_slowpath"


def test_code_for_unusual_operands_is_of_no_line() -> None:
    code = read_sass(sass_of(
        (11, "MUFU.RCP R5, R12"), (11, "@!P0 BRA `(.L_x_1)"), (11, "MOV R8, 0x220"),
        (11, f"CALL.REL.NOINC `({SLOW})"), (11, "MOV R7, R5"), ".L_x_1", (11, "BSYNC B0"), (22, "EXIT"),
        SLOW, (22, "FFMA R1, R2, R3, R4"), ".L_x_2", (22, "RET.REL.NODEC R8 `(k)"),
    ))  # fmt: skip
    assert [(i.opcode, i.ptx_line) for i in code] == [
        ("MUFU", 11), ("BRA", 11), ("MOV", 0), ("CALL", 0), ("MOV", 0), ("BSYNC", 11), ("EXIT", 22), ("FFMA", 0),
        ("RET", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("branch", "called", "aside"),
    [
        ("@!P0 BRA `(.L_x_1)", SLOW, True),
        ("BRA.CONV ~URZ, `(.L_x_1)", "$__internal_0_$__cuda_sm70_warpsync", True),
        ("@P0 BRA `(.L_x_1)", "$__internal_1_$__cuda_sm20_div_rn_f64_full", True),
        # always called, or no routine of ptxas' own, or not behind a branch
        ("@!P0 BRA `(.L_x_1)", "$__internal_0_$__cuda_sm20_div_s64", False),
        ("@!P0 BRA `(.L_x_1)", "$__internal_3_$__cuda_sm20_rem_u64", False),
        ("@!P0 BRA `(.L_x_1)", "$k$_Z8far_awayf", False),
        ("FADD R1, R1, R2", SLOW, False),
    ],
)
def test_which_calls_are_unusual(branch: str, called: str, aside: bool) -> None:
    code = read_sass(sass_of((11, branch), (11, "MOV R8, 0x220"), (11, f"CALL.REL.NOINC `({called})"), ".L_x_1",
                             (11, "EXIT")))  # fmt: skip
    assert [i.ptx_line for i in code] == [11, 0 if aside else 11, 0 if aside else 11, 11]


DIVISION = "$__internal_0_$__cuda_sm20_div_s64"


def test_a_division_that_is_called_counts_at_its_calls() -> None:
    code = read_sass(sass_of(
        (11, f"CALL.REL.NOINC `({DIVISION})"), (12, "IADD3 R1, R2, R3, RZ"), (13, f"CALL.REL.NOINC `({DIVISION})"),
        (14, "EXIT"), DIVISION, (14, "I2F.U64.RP R5, R18"), (14, "MUFU.RCP R21, R5"), (14, "RET.REL.NODEC R8 `(k)"),
        ".L_x_3", (14, "BRA `(.L_x_3)"),
    ))  # fmt: skip
    assert [(i.opcode, i.ptx_line) for i in code if i.ptx_line] == [
        ("CALL", 11), ("I2F", 11), ("MUFU", 11), ("RET", 11), ("IADD3", 12),
        ("CALL", 13), ("I2F", 13), ("MUFU", 13), ("RET", 13), ("EXIT", 14),
    ]  # fmt: skip


def test_two_kernels_in_a_file() -> None:
    both = PTX + PTX.partition(".address_size 64\n")[2].replace("entry k", "entry l").replace("BB0", "BB1")
    moved = SASS.replace(".text.k", ".text.l").replace("\nk:", "\nl:")
    shift = PTX.count("\n") - 3
    moved = "\n".join(
        text if not text.startswith("\t//##") else text.rpartition(" ")[0] + f" {int(text.rpartition(' ')[2]) + shift}"
        for text in moved.split("\n")
    )
    first, second = match(both, read_sass(SASS + moved))
    assert (first.name, second.name) == ("k", "l")
    assert [line.ptx_line + shift for line in first.lines] == [line.ptx_line for line in second.lines]
    assert [line.costs for line in first.lines] == [line.costs for line in second.lines]


def test_a_kernel_without_accesses_has_lines() -> None:
    ptx = PTX.replace("ld.shared", "ex2.approx").replace("st.shared.v2", "ex2.approx")
    functions = match(ptx, read_sass(sass_of((8, "S2R R0, SR_TID.X"))))
    assert [(f.name, f.is_kernel, f.accesses) for f in functions] == [("k", True, ())]
    assert [line.ptx_line for line in functions[0].lines] == [8]
