"""A small, fixed sample of mutated PTX; the large one is benchmarks/ptx_mutants.py itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ptxkit import HEAD, INDEX, Bench, pointer

from cupilot.cli.environment import cache_folder

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "ptx_mutants.py"
COUNT = 120


def test_mutants_never_take_the_process_down() -> None:
    command = (sys.executable, SCRIPT, str(COUNT), "--seed", "7", "--cache", cache_folder())
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["failures"] == 0, done.stdout
    assert sum(result["outcomes"].values()) == COUNT
    # a sample in which nothing runs, or everything does, shows nothing
    assert min(result["outcomes"].get(kind, 0) for kind in ("refused", "ran", "found")) >= COUNT // 20


# --- what mutants found, and what they could have --------------------------------------------------

INVALID = {
    "parameters end": (" ld.param.u64 %rd1, [p0+4];", "a read beyond the parameters"),
    "parameters start": (" ld.param.u32 %r1, [p0+-4];", "a read beyond the parameters"),
    "parameters of a vector": (" ld.param.v4.u32 {%r1, %r2, %r3, %r4}, [p0];", "a read beyond the parameters"),
    "too many registers": (" .reg .b32 %many<4294967295>;", "more than 1000000 registers"),
    "no such register": (" add.u32 %r1, %r2, %nosuch;", "special register %nosuch"),
    "no such destination": (" add.u32 %nosuch, %r2, %r3;", "%nosuch is not declared"),
    "a number as destination": (" add.u32 7, %r2, %r3;", "not a register"),
    "a guard that is no predicate": (" @%r1 add.u32 %r1, %r2, %r3;", "not a predicate"),
    "missing operands": (" mad.lo.s32 %r1, %r2;", "opcode mad.lo.s32"),
    "local memory": (" .local .b8 large[9000000];", "of local memory"),
    "shared memory": (" .shared .b8 large[99999999];", "of shared memory"),
    "alignment": (" .local .align 3 .b8 odd[16];", "power of two"),
    "a short result": (" .param .b64 n; .param .b8 r; call (r), malloc, (n);", "malloc with other parameters"),
    "too few arguments": (" .param .b64 n; .param .b32 r; call (r), vprintf, (n);", "vprintf with other parameters"),
    "results of an atomic": (" atom.global.add.u32 {%r1, %r2}, [%rd1], %r3;", "2 results"),
}


@pytest.mark.parametrize(("code", "message"), INVALID.values(), ids=INVALID)
def test_invalid_code_is_refused(bench: Bench, code: str, message: str) -> None:
    ran = bench.run(f"{code} ret;", np.zeros(4, np.uint32))
    assert ran.kinds == ["unsupported"]
    assert message in ran.findings[0].text
    assert "internal" not in ran.findings[0].text


INITIAL = {
    "longer than its variable": ".global .b8 v[2] = {1, 2, 3};",
    "a float that does not fit": ".global .b8 v[4] = {0f3F800000};",
    "an address that does not fit": ".global .u32 v = other; .global .u64 other;",
    "more than there is": ".global .b8 v[9999999999999];",
}


@pytest.mark.parametrize("declaration", INITIAL.values(), ids=INITIAL)
def test_invalid_variables_are_refused(bench: Bench, declaration: str) -> None:
    ran = bench.run(" mov.u64 %rd1, v; ret;", np.zeros(4, np.uint32), before=declaration)
    assert ran.kinds == ["unsupported"]
    assert "internal" not in ran.findings[0].text


def test_an_array_without_a_size_is_as_long_as_its_initial_value(bench: Bench) -> None:
    body = f"{INDEX}{pointer(0)} mov.u64 %rd1, v; ld.global.u32 %r1, [%rd1+4]; st.global.u32 [%rd0], %r1; ret;"
    (got,) = bench.clean(body, np.zeros(32, np.uint32), before=".global .u32 v[] = {5, 6};")
    assert (got == 6).all()


def test_recursion_ends_at_the_deadline(bench: Bench) -> None:
    """Calls that double at every level: no loop has a back edge that could look at the clock."""
    function = """.func (.param .b32 r0) twice(.param .b32 a0) {
     .reg .pred %p<3>; .reg .b32 %r<5>;
     ld.param.u32 %r1, [a0]; setp.eq.u32 %p1, %r1, 0; @%p1 bra $DONE; sub.u32 %r1, %r1, 1;
     { .param .b32 a; .param .b32 r; st.param.b32 [a], %r1; call (r), twice, (a); }
     { .param .b32 a; .param .b32 r; st.param.b32 [a], %r1; call (r), twice, (a); }
     $DONE: st.param.b32 [r0], %r1; ret; }"""
    body = " .param .b32 a; .param .b32 r; mov.u32 %r1, 60; st.param.b32 [a], %r1; call (r), twice, (a); ret;"
    ran = bench.run(body, np.zeros(4, np.uint32), before=function, seconds=0.2)
    assert ran.kinds == ["time-out"]


@pytest.mark.parametrize("size", [8000, 40000, 60000])
def test_large_frames_overflow_the_stack_without_harm(bench: Bench, size: int) -> None:
    function = f""".func down(.param .b32 a0) {{
     .reg .b32 %r<5>; .local .b8 own[{size}];
     ld.param.u32 %r1, [a0]; st.local.u32 [own+{size - 4}], %r1; add.u32 %r1, %r1, 1;
     {{ .param .b32 a; st.param.b32 [a], %r1; call down, (a); }}
     ld.local.u32 %r2, [own+{size - 4}]; ret; }}"""
    body = " .param .b32 a; mov.u32 %r1, 0; st.param.b32 [a], %r1; call down, (a); ret;"
    assert bench.run(body, np.zeros(4, np.uint32), before=function).kinds == ["stack-overflow"]


def test_text_that_is_no_ptx_is_refused(bench: Bench) -> None:
    machine = bench.machine
    for text in ("", "\0", ".version", HEAD, HEAD + ".visible .entry broken(", HEAD + "}}}}", "\u00e9" * 99):
        machine.begin(None, 1.0)
        assert machine.start(machine.load_ptx(text), "broken", (1, 1, 1), (32, 1, 1), []) != 0
        assert [f.kind for f in machine.findings()] == ["unsupported"]


@pytest.mark.parametrize("offset", [0, 4, 0x7FFFFFF0, -0x7FFFFFF0, 0x3FFFFFF0])
@pytest.mark.parametrize(
    "base", ["shl.b32 %r3, %r0, 27", "mov.u32 %r3, 0x80000000", "mad.lo.u32 %r3, %r0, 0x1000001, -64"]
)
def test_shared_addresses_far_apart(bench: Bench, base: str, offset: int) -> None:
    """Loads that go together must not, where lanes and offsets are further apart than a block has memory."""
    body = f""" .shared .align 16 .b8 tile[256]; {INDEX}{pointer(0)} mov.u32 %r9, tile; {base};
     ld.shared.u32 %r4, [%r3]; ld.shared.u32 %r5, [%r3+{offset}]; ld.shared.u32 %r6, [%r3+16];
     add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r6; st.global.u32 [%rd0], %r4; ret;"""
    ran = bench.run(body, np.zeros(32, np.uint32))
    assert "out-of-bounds" in ran.kinds


MALLOC = " .param .b64 n; .param .b64 r; st.param.b64 [n], {size}; call (r), malloc, (n); ld.param.b64 %rd1, [r];"


def test_every_thread_may_allocate(bench: Bench) -> None:
    """More buffers than a process may have mappings, on two host threads."""
    body = f"""{INDEX}{pointer(0)}{MALLOC.format(size=16)} setp.eq.u64 %p1, %rd1, 0; @%p1 bra $END;
     st.u32 [%rd1+4], %r0; ld.u32 %r3, [%rd1+4]; st.global.u32 [%rd0], %r3;
     st.param.b64 [n], %rd1; call free, (n);\n$END: ret;"""
    (got,) = bench.clean(body, np.zeros(64 * 512, np.uint32), threads=64, grid=512, workers=2)
    assert got.tolist() == list(range(64 * 512))


@pytest.mark.parametrize("size", [-1, 1 << 63, 1 << 48, -4096])
def test_too_large_an_allocation_is_null(bench: Bench, size: int) -> None:
    body = f"{INDEX}{pointer(0, size=8)}{MALLOC.format(size=size)} st.global.u64 [%rd0], %rd1; ret;"
    (got,) = bench.clean(body, np.ones(32, np.uint64))
    assert (got == 0).all()
