"""What kernels must not do, and neighbours that do nearly the same and are fine."""

from __future__ import annotations

import numpy as np
import pytest
from ptxkit import INDEX, Address, Bench, Blank, Ran, pointer

from cupilot.records import Finding

WORDS = np.arange(64, dtype=np.uint32)
LOC = "\n .loc 1 {} 1\n"


def access(code: str, line: int = 33) -> str:
    """Code at a source line, with other lines around it; ``%rd0`` is the thread's word of the first buffer."""
    before, here, after = (LOC.format(n) for n in (line - 1, line, line + 1))
    return f"{INDEX}{pointer(0)}{before} mov.u32 %r9, %r0;{here} {code}{after} ret;"


def only(ran: Ran, kind: str) -> Finding:
    assert ran.kinds[0] == kind, ran.findings
    return ran.findings[0]


@pytest.mark.parametrize("verb", ["read", "write"])
@pytest.mark.parametrize("space", ["global", "generic"])
def test_out_of_bounds(bench: Bench, verb: str, space: str) -> None:
    dot = "" if space == "generic" else ".global"
    code = f"ld{dot}.u32 %r10, [%rd0];" if verb == "read" else f"st{dot}.u32 [%rd0], %r0;"
    assert bench.run(access(code), WORDS, threads=32, grid=2).findings == ()
    ran = bench.run(access(code), WORDS, threads=32, grid=3)
    found = only(ran, "out-of-bounds")
    assert (found.line, found.block, found.thread, found.threads) == (33, (2, 0, 0), (0, 0, 0), 32)
    assert found.kernel.startswith("k")
    assert found.access is not None
    assert (found.access.kind, found.access.space, found.access.bytes) == (verb, "global", 4)
    assert (found.access.offset, found.access.buffer_bytes) == (256, 256)
    assert found.text.startswith(f"{verb} of 4 bytes at 0x")
    assert found.text.endswith(", 0 bytes after the end of a 256-byte buffer")


@pytest.mark.parametrize(
    ("offset", "kind"), [(-16, "out-of-bounds"), (60 * 4, ""), (61 * 4, "out-of-bounds"), (2, "misaligned")]
)
def test_the_thread_at_fault_is_named(bench: Bench, offset: int, kind: str) -> None:
    """Only thread 3 of the block's second row goes astray."""
    code = f""" mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; ld.param.u64 %rd0, [p0]; setp.eq.u32 %p1, %r0, 3;
    setp.eq.and.u32 %p1, %r1, 1, %p1;
    mad.wide.u32 %rd1, %r0, 4, %rd0; add.s64 %rd2, %rd1, {offset}; selp.b64 %rd1, %rd2, %rd1, %p1;
    ld.global.u32 %r5, [%rd1]; ret;"""
    ran = bench.run(code, WORDS, block=(8, 2, 1))
    if kind:
        assert (only(ran, kind).thread, only(ran, kind).threads) == ((3, 1, 0), 1)
    else:
        assert ran.findings == ()


@pytest.mark.parametrize(("kind", "size"), [("v4.f32", 16), ("v2.f32", 8), ("f64", 8), ("u16", 2)])
def test_an_access_must_be_aligned_to_all_its_bytes(bench: Bench, kind: str, size: int) -> None:
    register = {"v4.f32": "{%f1, %f2, %f3, %f4}", "v2.f32": "{%f1, %f2}", "f64": "%fd1", "u16": "%rs1"}[kind]
    for offset in (0, size // 2):
        body = f"{INDEX}{pointer(0, size=size)} ld.global.{kind} {register}, [%rd0+{offset}]; ret;"
        ran = bench.run(body, np.zeros(33 * size, np.uint8))
        assert ran.kinds == (["misaligned"] if offset else [])


def test_memory_that_nobody_wrote(bench: Bench) -> None:
    load = access("ld.global.u32 %r10, [%rd0];")
    assert only(bench.run(load, Blank(256)), "uninitialized").line == 33
    assert bench.run(load, WORDS).findings == ()
    # what the kernel wrote itself may be read, but no more than that
    own = "st.global.u32 [%rd0], 7; ld.global.u32 %r10, [%rd0];"
    assert bench.run(access(own), Blank(256)).findings == ()
    odd = "and.b32 %r10, %r0, 1; setp.eq.u32 %p1, %r10, 1; @%p1 st.global.u32 [%rd0], 7; ld.global.u32 %r10, [%rd0];"
    assert only(bench.run(access(odd), Blank(256)), "uninitialized").thread == (0, 0, 0)
    half = "st.global.u16 [%rd0], 7; ld.global.u32 %r10, [%rd0];"
    # a lane that reads more than was written means what was: structures have gaps
    assert bench.run(access(half), Blank(256)).findings == ()


def test_memory_that_was_given_back(bench: Bench) -> None:
    address = bench.machine.upload(WORDS)
    load = access("ld.global.u32 %r10, [%rd0];")
    assert bench.run(load, Address(address)).findings == ()
    bench.machine.free(address)
    assert only(bench.run(load, Address(address)), "use-after-free").line == 33


def test_a_null_pointer(bench: Bench) -> None:
    assert bench.run(access("st.global.u32 [%rd0], 1;"), Address(0)).kinds == ["out-of-bounds"]


@pytest.mark.parametrize("verb", ["ld.shared.u32 %r10, [%r11];", "st.shared.u32 [%r11], %r0;"])
def test_shared_memory_has_an_end(bench: Bench, verb: str) -> None:
    filled = "setp.lt.u32 %p1, %r0, 24; @%p1 st.shared.u32 [%r11], %r0;"
    filled = filled if "ld" in verb else ""
    body = f".shared .align 4 .b8 tile[96]; {INDEX}{LOC.format(5)} shl.b32 %r11, %r0, 2; {filled} {verb} ret;"
    assert bench.run(body, threads=24).findings == ()
    ran = bench.run(body, threads=25)
    found = only(ran, "out-of-bounds")
    assert (found.line, found.block, found.thread) == (5, (0, 0, 0), (24, 0, 0))
    assert found.text.endswith(" of 4 bytes at 0x60 of shared memory; the block has 96 bytes")
    # dynamic shared memory lies behind the static one
    assert "out-of-bounds" not in bench.run(body, threads=25, dynamic_shared=4).kinds


def test_shared_accesses_must_be_aligned(bench: Bench) -> None:
    body = (
        f".shared .align 16 .b8 tile[1024]; {INDEX} shl.b32 %r11, %r0, 3; "
        f"st.shared.v2.u32 [%r11+{{}}], {{%r1, %r2}}; ret;"
    )
    assert bench.run(body.replace("{}", "8")).findings == ()
    assert bench.run(body.replace("{}", "4")).kinds == ["misaligned"]


def test_a_barrier_that_only_some_lanes_reach(bench: Bench) -> None:
    body = (
        f"{INDEX} setp.lt.u32 %p1, %r0, {{}}; "
        f"@!%p1 bra A;{LOC.format(70)} mov.u32 %r5, 1;{LOC.format(71)} bar.sync 0; A: mov.u32 %r6, 1; ret;"
    )
    ran = bench.run(body.replace("{}", "40"), threads=64, grid=2)
    found = only(ran, "divergent-barrier")
    assert (found.line, found.block, found.thread, found.threads) == (71, (0, 0, 0), (32, 0, 0), 8)
    # whole warps may stay away when they have ended
    assert bench.run(body.replace("{}", "32"), threads=64).findings == ()
    assert bench.run(body.replace("{}", "64"), threads=64).findings == ()


def test_warps_at_different_barriers(bench: Bench) -> None:
    body = (
        f"{INDEX} setp.lt.u32 %p1, %r0, 32; @%p1 bra A;{LOC.format(8)} bar.sync 1; ret; "
        f"A:{LOC.format(9)} bar.sync 0; ret;"
    )
    ran = bench.run(body, threads=64)
    assert only(ran, "deadlock").line == 9
    assert bench.run(body, threads=32).findings == ()


@pytest.mark.parametrize(
    "code", ["setp.eq.u32 %p1, %r0, 70; @%p1 trap;", "setp.ne.u32 %p1, %r0, 70; @%p1 bra A; trap; A:"]
)
def test_trap(bench: Bench, code: str) -> None:
    body = f"{INDEX} {code} ret;"
    ran = bench.run(body, threads=40, grid=2)
    assert (only(ran, "trap").block, only(ran, "trap").thread) == ((1, 0, 0), (30, 0, 0))
    assert ran.status != 0
    assert bench.run(body, threads=40).findings == ()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("wgmma.fence.sync.aligned;", "opcode wgmma.fence.sync.aligned"),
        ("tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd0, {%r1}];", "tex"),
        ("vset.u32.u32.eq %r1, %r0, %r0;", "opcode vset.u32.u32.eq"),
        ("mov.u32 %r1, %nothing;", "the special register %nothing"),
        ("add.rn.sat.f128 %r1, %r0, 1;", "opcode add.rn.sat.f128"),
        ("call.uni (%r1), absent, (%r0);", "absent"),
    ],
)
def test_what_the_engine_cannot_do_is_named(bench: Bench, code: str, said: str) -> None:
    ran = bench.run(access(code, line=12), WORDS)
    (finding,) = ran.findings
    assert finding.kind == "unsupported"
    assert said in finding.text
    assert finding.line == 12
    assert finding.kernel.startswith("k")
    assert ran.status != 0


def test_a_kernel_that_does_not_exist(bench: Bench) -> None:
    bench.machine.begin(None, 5.0)
    number = bench.machine.load_ptx(".version 8.0\n.target sm_80\n.visible .entry one() { ret; }")
    assert bench.machine.start(number, "two", (1, 1, 1), (32, 1, 1), []) != 0
    assert str(bench.machine.findings()[0]) == "the module has no such kernel, kernel two"


def test_an_endless_loop_ends_at_the_deadline(bench: Bench) -> None:
    body = f"{INDEX} setp.ge.u32 %p1, %r0, 7; @!%p1 ret;{LOC.format(21)} L: add.u32 %r0, %r0, 1; bra L;"
    ran = bench.run(body, seconds=0.05)
    found = only(ran, "time-out")
    assert (found.line, found.block, found.thread) == (21, (0, 0, 0), (7, 0, 0))
    assert ran.status != 0
    assert bench.run(body, threads=7, seconds=0.05).findings == ()


def test_an_instruction_that_keeps_failing_is_reported_once(bench: Bench) -> None:
    ran = bench.run(access("st.global.u32 [%rd0+4096], 1;"), WORDS, grid=4)
    assert (ran.kinds, ran.findings[0].threads) == (["out-of-bounds"], 4 * 32)
    assert ran.status == 700
    assert bench.run(access("st.global.u32 [%rd0+2], 1;"), WORDS).status == 716


@pytest.mark.parametrize(
    ("options", "fine"),
    [
        ({"threads": 1024}, True),
        ({"threads": 1025}, False),
        ({"grid": (1, 65536, 1)}, False),
        ({"block": (1, 1, 65)}, False),
        ({"grid": 0}, False),
        ({"dynamic_shared": 48 << 10}, True),
        ({"dynamic_shared": (48 << 10) + 4}, False),
    ],
)
def test_launches_beyond_the_device_do_not_run(bench: Bench, options: dict[str, object], fine: bool) -> None:
    ran = bench.run(f"{INDEX}{pointer(0, '0')} st.global.u32 [%rd0], 77; ret;", np.zeros(1, np.uint32), **options)  # type: ignore[arg-type]
    assert (ran.status == 0) == fine
    assert ran.buffers[0].tolist() == [77 if fine else 0]
