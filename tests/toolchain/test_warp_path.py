"""A warp's way through machine code: control bits, waits, loops, pipes, copies that ptxas makes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cupilot.toolchain.cuda import Cuda
from cupilot.toolchain.process import run
from cupilot.toolchain.sass import SassInstruction, find_nvdisasm, read_sass
from cupilot.toolchain.warp_path import (
    LATENCY,
    NONE,
    OTHER_LATENCY,
    READ_LATENCY,
    Control,
    Passed,
    Step,
    line_costs,
    pipe_of,
    walk,
)

# --- control bits -------------------------------------------------------------------------------


def encoded(stall: int, yields: int, write: int, read: int, waits: int, reuse: int = 0) -> int:
    """The upper half of an encoding, by the places of its fields among all 128 bits."""
    fields = ((105, stall), (109, yields), (110, write), (113, read), (116, waits), (122, reuse))
    return sum(value << place - 64 for place, value in fields)


@pytest.mark.parametrize(
    ("high", "control"),
    [
        # of real code: bits 41 and up of the upper half, the fields from the right
        pytest.param(0x000FE400078E00FF, Control(2), id="...000000 111 111 1 0010"),
        pytest.param(0x000E220000002100, Control(1, write_barrier=0), id="...000000 111 000 1 0001"),
        pytest.param(0x001FCA00078E0205, Control(5, waits=0b000001), id="...000001 111 111 0 0101"),
        pytest.param(0x0000A2000C1E1900, Control(1, write_barrier=2, read_barrier=0), id="...000000 000 010 1 0001"),
        pytest.param(encoded(15, 0, 5, 4, 0b100101), Control(15, 5, 4, 0b100101), id="all fields"),
        pytest.param(encoded(0, 1, 7, 7, 0, reuse=15), Control(0), id="yield and reuse are no part"),
        pytest.param(encoded(7, 0, 7, 7, 0) | (1 << 41) - 1, Control(7), id="nor is what lies below"),
    ],
)
def test_control_bits(high: int, control: Control) -> None:
    assert Control.decode(high) == control


# --- one warp -----------------------------------------------------------------------------------


def step(
    opcode: str, stall: int = 1, write: int = NONE, read: int = NONE, waits: Sequence[int] = (), operands: str = "",
    line: int = 1,
) -> Step:  # fmt: skip
    """An instruction; its offset is given by `placed`."""
    return Step(0, opcode, operands, line, Control(stall, write, read, sum(1 << barrier for barrier in waits)))


def placed(code: Sequence[Step], back: dict[int, int] | None = None) -> list[Step]:
    """Code with offsets; ``back`` says which instruction goes back to which."""
    back = back or {}
    return [
        Step(16 * n, s.opcode, s.operands, s.ptx_line, s.control, 16 * back[n] if n in back else -1)
        for n, s in enumerate(code)
    ]


def passed(*code: Step, back: dict[int, int] | None = None) -> list[Passed]:
    return walk(placed(code, back))


def trips(found: Sequence[Passed]) -> list[float]:
    return [p.trips for p in found]


def test_stalls_add_up() -> None:
    assert [p.cycles for p in passed(step("MOV", 2), step("FFMA", 4), step("BAR", 0))] == [2, 4, 1]


@pytest.mark.parametrize("opcode", ["LDS", "MUFU", "SHFL", "S2R", "POPC"])
def test_results_of_variable_latency_are_waited_for(opcode: str) -> None:
    latency = LATENCY.get(opcode, OTHER_LATENCY)
    code = (step(opcode, 2, write=3), step("FADD", 4), step("FFMA", 4, waits=(3,)))
    assert [p.cycles for p in passed(*code)] == [2, 4, latency - 6 + 4]
    assert trips(passed(*code)) == [0, 0, 0]


def test_a_wait_for_what_is_there_costs_nothing() -> None:
    code = (step("LDS", 15, write=0), step("MOV", 15), step("FADD", 4, waits=(0,)))
    assert [p.cycles for p in passed(*code)] == [15, 15, 4]


def test_the_last_of_several_results_counts() -> None:
    code = (step("LDS", 1, write=0), step("MUFU", 1, write=1), step("LDS", 1, write=1), step("FADD", 4, waits=(0, 1)))
    assert passed(*code)[-1].cycles == LATENCY["LDS"] - 1 + 4


def test_a_store_must_have_read_its_registers() -> None:
    code = (step("STG", 1, read=0), step("MOV", 2, waits=(0,)))
    assert [p.cycles for p in passed(*code)] == [1, READ_LATENCY - 1 + 2]
    assert trips(passed(*code)) == [0, 0]


# --- round trips --------------------------------------------------------------------------------


def test_a_load_that_is_waited_for() -> None:
    found = passed(step("LDG", 4, write=0), step("IADD3", 6), step("FADD", 4, waits=(0,)))
    # the trip itself is no part of the path
    assert [(p.cycles, p.trips, p.cover) for p in found] == [(4, 0, 0), (6, 0, 0), (4, 1, 10)]


@pytest.mark.parametrize("opcode", ["LDG", "LD", "ATOMG", "ATOM"])
def test_what_goes_to_global_memory(opcode: str) -> None:
    assert trips(passed(step(opcode, write=0), step("FADD", waits=(0,)))) == [0, 1]


@pytest.mark.parametrize("opcode", ["LDG", "RED", "STG", "ATOMG"])
def test_nothing_is_waited_for_without_a_barrier(opcode: str) -> None:
    assert trips(passed(step(opcode), step("FADD", waits=(0, 1, 2, 3, 4, 5)))) == [0, 0]


def test_several_loads_before_one_wait() -> None:
    code = (step("LDG", 4, write=0), step("LDG", 2, write=0), step("LDG", 3, write=1), step("FADD", 4, waits=(0, 1)))
    last = passed(*code)[-1]
    assert (last.trips, last.cover) == (1, 3)  # since the newest


def test_loads_waited_for_one_after_another_come_together() -> None:
    loads = [step("LDG", 4, write=n) for n in range(4)]
    sums = [step("FADD", 4, waits=(n,)) for n in range(4)]
    assert trips(passed(*loads, *sums)) == [0, 0, 0, 0, 1, 0, 0, 0]


def test_a_chain_of_loads() -> None:
    code = (step("LDG", 2, write=0), step("LDG", 2, write=0, waits=(0,)), step("LDG", 2, write=1, waits=(0,)),
            step("FADD", 4, waits=(1,)))  # fmt: skip
    assert [(p.trips, p.cover) for p in passed(*code)] == [(0, 0), (1, 2), (1, 2), (1, 2)]


def test_a_load_and_a_short_result_behind_one_barrier() -> None:
    code = (step("LDS", 1, write=0), step("LDG", 1, write=0), step("FADD", 4, waits=(0,)))
    last = passed(*code)[-1]
    assert (last.cycles, last.trips, last.cover) == (LATENCY["LDS"] - 2 + 4, 1, LATENCY["LDS"] - 1)


# --- loops --------------------------------------------------------------------------------------


def test_a_loop_that_waits_in_each_round() -> None:
    found = passed(step("LDG", 2, write=0), step("FADD", 4, waits=(0,)), step("BRA", 5), back={2: 0})
    assert [(p.cycles, p.trips, p.cover) for p in found] == [(2, 0, 0), (4, 1, 2), (5, 0, 0)]


def test_a_loop_that_waits_for_the_round_before() -> None:
    """A chase: the first round waits for nothing, all others do."""
    code = (step("IMAD", 6, waits=(0,)), step("LDG", 1, write=0), step("BRA", 5), step("STG", waits=(0,)))
    assert trips(passed(*code, back={2: 0})) == [1, 0, 0, 1]


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_loads_ahead_of_their_use_share_round_trips(ahead: int) -> None:
    """With k loads under way besides the one waited for, a round trip serves k + 1 rounds."""
    first = [step("LDG", 4, write=n) for n in range(ahead)]
    body = [s for n in range(ahead + 1)
            for s in (step("LDG", 4, write=(n + ahead) % (ahead + 1)), step("FADD", 16, waits=(n,)))]  # fmt: skip
    found = passed(*first, *body, step("BRA", 5), back={ahead + 2 * (ahead + 1): ahead})
    assert sum(trips(found[ahead:])) == pytest.approx(1)


@pytest.mark.parametrize(("stages", "share"), [(1, 1.0), (2, 1 / 2), (3, 1 / 3), (4, 1 / 4)])
def test_asynchronous_copies_in_stages(stages: int, share: float) -> None:
    """A group is started, and all but the newest ``stages - 1`` are waited for."""
    copy = (step("LDGSTS", 4, read=1), step("LDGDEPBAR", 1, write=0))
    wait = step("DEPBAR", 4, operands=f"SB0, {stages - 1:#x}")
    before = copy * (stages - 1)
    found = passed(*before, *copy, wait, step("BAR", 6), step("BRA", 5), back={len(before) + 4: len(before)})
    assert sum(trips(found[len(before) :])) == pytest.approx(share)


def test_groups_of_asynchronous_copies() -> None:
    copies = (step("LDGSTS", 4), step("LDGSTS", 4), step("LDGDEPBAR", 2), step("LDGSTS", 4), step("LDGDEPBAR", 2))
    one, none = step("DEPBAR", 4, operands="SB0, 0x1"), step("DEPBAR", 4, operands="SB0, 0x0")
    # both groups were asked for before the first wait
    assert [(p.trips, p.cover) for p in passed(*copies, one, none)[5:]] == [(1, 12), (0, 0)]
    assert trips(passed(*copies, none, none)[5:]) == [1, 0]
    # a copy that no group has is not waited for, an empty group has nothing to wait for
    assert trips(passed(step("LDGSTS", 4), none, step("LDGDEPBAR", 2), none)) == [0, 0, 0, 1]
    assert trips(passed(step("LDGDEPBAR", 2), none)) == [0, 0]


def test_what_was_asked_for_before_a_loop_is_waited_for_once() -> None:
    code = (step("LDG", 2, write=0), step("FADD", 4, waits=(0,)), step("FFMA", 4), step("BRA", 5), step("EXIT", 5))
    assert [(p.trips, p.cover) for p in passed(*code, back={3: 1})] == [(1, 2), (0, 0), (0, 0), (0, 0), (0, 0)]


def test_a_loop_within_a_loop() -> None:
    """The inner loop's rounds count, not the way into it, and the outer loop asks before it."""
    inner = (step("LDG", 2, write=1), step("FADD", 4, waits=(1,)), step("FFMA", 4, waits=(0,)), step("BRA", 5))
    code = (step("MOV", 2), step("LDG", 2, write=0), *inner, step("BRA", 5))
    found = passed(*code, back={5: 2, 6: 0})
    # the first inner round waits for both at once, at its own load
    assert trips(found) == [0, 0, 0, 1, 0, 0, 0]


def test_several_branches_back_to_one_place_are_one_loop() -> None:
    code = (step("LDG", 2, write=0), step("BRA", 5), step("FADD", 4, waits=(0,)), step("BRA", 5))
    assert trips(passed(*code, back={1: 0, 3: 0})) == [0, 0, 1, 0]


def test_a_branch_to_itself_is_no_loop() -> None:
    assert [p.cycles for p in passed(step("EXIT", 5), step("BRA", 0), back={1: 1})] == [5, 1]


# --- pipes --------------------------------------------------------------------------------------

PIPES = {
    "fp32": "FFMA FADD FMUL FSWZADD",
    "imad": "IMAD IMUL IDP",
    "int": """IADD3 LOP3 SEL ISETP FSETP FSEL FMNMX MOV PRMT SHF LEA PLOP3 P2R R2P CS2R IABS IMNMX VOTE VOTEU SGXT BMSK
              F2FP I2FP F2IP VIADD VIMNMX VIADDMNMX VABSDIFF LEPC""",
    "fp64": "DFMA DADD DMUL DSETP DMNMX",
    "fp16": "HFMA2 HADD2 HMUL2 HSET2 HSETP2 HMNMX2",
    "sfu": "MUFU F2I I2F F2F FRND FCHK POPC FLO BREV",
    "tensor": "HMMA IMMA DMMA BMMA QMMA HGMMA IGMMA QGMMA UTCHMMA",
    "lsu": "LDG LDS LD LDL LDSM LDGSTS STG STS ST STL ATOM ATOMG ATOMS RED SHFL MATCH S2R SYNCS",
    "uniform": "ULDC UIADD3 UMOV USHF ULOP3 UISETP UIMAD ULEA USEL UFLO R2UR S2UR LDCU",
    "control": """BRA BRX BSSY BSYNC BREAK EXIT RET CALL BAR NOP WARPSYNC YIELD DEPBAR LDGDEPBAR MEMBAR ERRBAR CGAERRBAR
                  BMOV CCTL LDC WARPGROUP""",
}


@pytest.mark.parametrize(
    ("opcode", "pipe"), [(opcode, pipe) for pipe, many in PIPES.items() for opcode in many.split()]
)
def test_pipes(opcode: str, pipe: str) -> None:
    assert pipe_of(opcode) == pipe


# --- code of one execution ----------------------------------------------------------------------


def costs(code: Sequence[Step], ptx: Sequence[str], blocks: Sequence[int], back: dict[int, int] | None = None
          ) -> dict[int, dict[str, float]]:  # fmt: skip
    """By line; ``blocks`` are those of the lines."""
    return line_costs(placed(code, back), dict(enumerate(blocks, start=1)), ptx)


def test_lines_and_their_pipes() -> None:
    code = (step("LDG", 2, write=0, line=1), step("IMAD", 5, line=2), step("FFMA", 4, waits=(0,), line=3),
            step("IADD3", 2, line=2))  # fmt: skip
    assert costs(code, ["ld.global.f32 %f1, [%rd1];", "mad.lo.s32 %r1, ...;", "fma.rn.f32 ...;"], [1, 1, 1]) == {
        1: {"lsu": 1, "path": 2},
        2: {"imad": 1, "int": 1, "path": 7},
        3: {"fp32": 1, "path": 4, "trips": 1, "cover": 7},
    }


def test_the_end_of_the_code_is_not_executed() -> None:
    code = (step("NOP", 1), step("EXIT", 5), step("BRA", 0), step("NOP", 0), step("NOP", 0))
    assert costs(code, ["ret;"], [1], {2: 2}) == {1: {"control": 2, "path": 6}}


def test_code_of_no_line_is_passed_over() -> None:
    code = (step("MUFU", 2, write=0), step("MOV", 15, line=0), step("FADD", 4, waits=(0,)))
    assert costs(code, ["rcp.rn.f32 %f1, %f2;"], [1]) == {1: {"sfu": 1, "fp32": 1, "path": 2 + LATENCY["MUFU"] - 2 + 4}}


LOOP = ["ld.global.f32 %f1, [%rd1];", "add.f32 %f2, %f2, %f1;", "setp.lt.s32 %p1, %r1, %r2;", "@%p1 bra L;"]


def copy(stall: int = 4) -> tuple[Step, ...]:
    return step("LDG", stall, write=0, line=1), step("FADD", stall, waits=(0,), line=2)


def test_unrolled_code_counts_once() -> None:
    """Four copies of a round, and one test for all of them."""
    code = (*copy() * 4, step("ISETP", 2, line=3), step("BRA", 5, line=4))
    found = costs(code, LOOP, [1, 1, 1, 1], {9: 0})
    assert found[1] == {"lsu": 1, "path": 4}
    assert found[2] == {"fp32": 1, "path": 4, "trips": 1, "cover": 4}
    assert found[3] == {"int": 1 / 4, "path": 2 / 4}


def test_unrolled_matrix_products_count_once() -> None:
    """A loop of nothing else, so that they alone tell how many copies there are."""
    product = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {};"
    code = (*(step("HMMA", 24, line=1),) * 4, step("BRA", 5, line=2))
    assert costs(code, [product, "@%p1 bra L;"], [1, 1], {4: 0})[1] == {"tensor": 1, "path": 24}


def test_loads_of_copies_share_a_round_trip() -> None:
    code = (*(copy()[0],) * 4, *(copy()[1],) * 4, step("BRA", 5, line=4))
    assert costs(code, LOOP, [1, 1, 1, 1], {8: 0})[2]["trips"] == pytest.approx(1 / 4)


def test_what_a_loop_leaves_over_does_not_count() -> None:
    """The loop has four copies, what is left of the rounds is done by two and one."""
    code = (*(copy()[0],) * 4, *(copy()[1],) * 4, step("BRA", 5, line=4), *copy(15) * 2, *copy(15))
    found = costs(code, LOOP, [1, 1, 1, 1], {8: 0})
    assert found[1] == {"lsu": 1, "path": 4}
    assert found[2]["trips"] == pytest.approx(1 / 4)


def test_copies_without_a_loop() -> None:
    assert costs(copy() * 3, LOOP, [1, 1, 1, 1])[1] == {"lsu": 1, "path": 4}


def test_a_block_that_is_only_partly_in_a_loop_counts_whole() -> None:
    """A branch back from code that is out of the way is no loop of the block's own."""
    code = (step("LDG", 4, write=0, line=1), step("FADD", 4, waits=(0,), line=2), step("BRA", 5, line=4))
    assert set(costs(code, LOOP, [1, 1, 1, 1], {2: 1})) == {1, 2, 4}


def test_other_blocks_keep_their_count() -> None:
    code = (step("FMUL", 4, line=5), *copy() * 4, step("BRA", 5, line=4))
    found = costs(code, [*LOOP, "mul.f32 %f3, %f4, %f5;"], [2, 2, 2, 2, 1], {9: 1})
    assert (found[5]["fp32"], found[2]["fp32"]) == (1, 1)


@pytest.mark.parametrize(
    ("line", "opcodes", "copies"),
    [
        ("add.f32 %f1, %f1, %f2;", ["FADD"] * 3, 3),
        ("\t@!%p1 add.f32 \t%f1, %f1, %f2; // twice", ["FADD"] * 2, 2),
        # several instructions are no copies of one
        ("add.f32 a, a, b; add.f32 a, a, b; add.f32 a, a, b;", ["FADD"] * 3, 1),
        ("{ .reg .f32 t; add.f32 t, a, a; mul.f32 a, t, t; }", ["FADD", "FMUL"] * 4, 4),
        # one instruction may become several
        ("div.rn.f32 %f1, %f2, %f3;", ["FFMA"] * 5, 1),
        ("mul.wide.s32 %rd1, %r1, 4;", ["IMAD"] * 2, 1),
        ("ld.param.u64 %rd1, [p];", ["LDC"] * 2, 1),
        ("ld.shared.v4.f32 {a, b, c, d}, [%r1];", ["LDS"] * 2, 2),
        # moves beside it say nothing
        ("add.s32 %r1, %r1, 1;", ["IMAD", "IMAD", "IADD3"], 1),
        ("{%f1, %f2},", ["FADD"] * 2, 1),
    ],
)
def test_what_counts_as_a_copy(line: str, opcodes: list[str], copies: int) -> None:
    found = costs([step(opcode) for opcode in opcodes], [line], [1])
    assert found[1]["path"] == pytest.approx(len(opcodes) / copies)


# --- what ptxas writes --------------------------------------------------------------------------

KERNEL = """.version 7.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 n)
{
	.reg .b64 %rd<9>; .reg .b32 %r<19>; .reg .f32 %f<19>; .reg .f64 %fd<9>; .reg .pred %p<5>; .reg .b16 %h<9>;
	.shared .align 16 .b8 tile[4096];
	ld.param.u64 %rd1, [p]; ld.param.u32 %r9, [n];
	cvta.to.global.u64 %rd1, %rd1; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1; shl.b32 %r2, %r1, 2;
	mov.u32 %r3, tile; add.s32 %r3, %r3, %r2; mov.f32 %f1, 0f00000000; mov.u32 %r4, 0;
$L1:
	ld.global.f32 %f2, [%rd2];
	st.shared.f32 [%r3], %f2;
	bar.sync 0;
	ld.shared.f32 %f3, [%r3+128];
	div.rn.f32 %f4, %f2, %f3;
	ex2.approx.ftz.f32 %f5, %f4;
	shfl.sync.bfly.b32 %r5, %r1, 1, 31, -1;
	cvt.rn.f32.s32 %f6, %r5;
	cvt.rn.f16.f32 %h1, %f6; cvt.f32.f16 %f7, %h1;
	cvt.f64.f32 %fd1, %f5; fma.rn.f64 %fd1, %fd1, %fd1, %fd1; cvt.rn.f32.f64 %f8, %fd1;
	popc.b32 %r6, %r5; prmt.b32 %r7, %r5, %r6, 0x3120; lop3.b32 %r7, %r7, %r5, %r6, 0x96; max.s32 %r7, %r7, %r6;
	vote.sync.ballot.b32 %r8, %p1, -1; add.s32 %r7, %r7, %r8; cvt.rn.f32.s32 %f9, %r7;
	fma.rn.f32 %f1, %f1, %f7, %f8; add.f32 %f1, %f1, %f9;
	bar.sync 0;
	add.s64 %rd2, %rd2, 128; add.s32 %r4, %r4, 1; setp.lt.s32 %p1, %r4, %r9;
	@%p1 bra $L1;
	st.global.f32 [%rd2], %f1;
	red.global.add.f32 [%rd2], %f1;
	ret;
}
"""
PIPES_SEEN = {"LDG": "lsu", "STS": "lsu", "LDS": "lsu", "SHFL": "lsu", "S2R": "lsu", "FFMA": "fp32", "MUFU": "sfu",
              "FCHK": "sfu", "POPC": "sfu", "DFMA": "fp64", "BAR": "control", "EXIT": "control", "IMAD": "imad",
              "LOP3": "int", "PRMT": "int"}  # fmt: skip


def assembled(ptx: str, arch: str, cuda: Cuda, folder: Path) -> tuple[SassInstruction, ...]:
    tool = find_nvdisasm(cuda)
    assert tool is not None
    (folder / "k.ptx").write_text(ptx)
    for command in ((cuda.ptxas, "-lineinfo", f"-arch={arch}", "k.ptx", "-o", "k.cubin"),
                    (tool, "--no-dataflow", "-gp", "-hex", "-c", folder / "k.cubin")):  # fmt: skip
        finished = run(command, folder, 60)
        assert finished is not None
        assert finished.status == 0, finished.output
    return read_sass(finished.output)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_90"])
def test_real_encodings(cuda: Cuda, tmp_path: Path, arch: str) -> None:
    code = assembled(KERNEL, arch, cuda, tmp_path)
    code = code[: next(n for n, i in enumerate(code) if i.back == i.offset)]
    assert {i.opcode: pipe_of(i.opcode) for i in code if i.opcode in PIPES_SEEN} == PIPES_SEEN
    # fields that are read from the wrong bits would not keep to these rules
    assert {i.opcode for i in code if i.control.stall == 0} <= {"NOP", "ERRBAR"}
    barriers = {b for i in code for b in (i.control.write_barrier, i.control.read_barrier)}
    assert barriers <= {0, 1, 2, 3, 4, 5, NONE}
    assert all(i.control.write_barrier != NONE for i in code if i.opcode in ("LDG", "S2R", "MUFU", "SHFL", "POPC"))
    assert all(i.control.write_barrier == NONE for i in code if i.opcode in ("FFMA", "IADD3", "LOP3", "STS", "BRA"))
    waited = {b for i in code for b in range(6) if i.control.waits >> b & 1}
    assert waited
    assert waited <= barriers
    assert next(i for i in code if i.opcode == "LDS").in_loop


def test_real_code_makes_its_round_trips(cuda: Cuda, tmp_path: Path) -> None:
    """One load in each round, and its value is needed at once."""
    code = [i for i in assembled(KERNEL, "sm_80", cuda, tmp_path) if i.ptx_line]
    found = walk([Step(i.offset, i.opcode, i.operands, i.ptx_line, i.control, i.back) for i in code])
    assert [i.opcode for i, p in zip(code, found, strict=True) if p.trips] == ["STS"]
    assert sum(p.trips for p in found) == pytest.approx(1)
