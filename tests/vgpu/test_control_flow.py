"""Branches, loops, exits and barriers, against the same computation written thread by thread."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from ptxkit import INDEX, Bench, pointer

START = INDEX + pointer(0)
END = " st.global.u32 [%rd0], %r10; ret;"


def collatz(n: int) -> int:
    steps, n = 0, n + 1
    while n != 1:
        n, steps = (3 * n + 1 if n % 2 else n // 2), steps + 1
    return steps


def nested(i: int) -> int:
    if i % 2:
        return 100 + i if i % 3 == 0 else 200 + i
    return (300 if i % 5 == 0 else 400 if i < 20 else 500) + 1000


def skipping(i: int) -> int:
    total = 0
    for k in range(i % 9):
        if k == 6:
            break
        if (k + i) % 2:
            continue
        total += k + 1
    return total


CASES: dict[str, tuple[str, Callable[[int], int]]] = {
    "trip counts that differ": (
        """ add.u32 %r11, %r0, 1; mov.u32 %r10, 0; L: setp.eq.u32 %p1, %r11, 1; @%p1 bra E; and.b32 %r12, %r11, 1;
        setp.eq.u32 %p2, %r12, 0; @%p2 bra H; mad.lo.u32 %r11, %r11, 3, 1; bra N; H: shr.u32 %r11, %r11, 1;
        N: add.u32 %r10, %r10, 1; bra L; E:""",
        collatz,
    ),
    "branches inside branches": (
        """ and.b32 %r11, %r0, 1; setp.eq.u32 %p1, %r11, 1; @!%p1 bra EVEN; rem.u32 %r12, %r0, 3;
        setp.eq.u32 %p2, %r12, 0;
        @%p2 bra A; add.u32 %r10, %r0, 200; bra.uni E; A: add.u32 %r10, %r0, 100; bra E;
        EVEN: rem.u32 %r12, %r0, 5; setp.eq.u32 %p2, %r12, 0; @%p2 bra B; setp.lt.u32 %p3, %r0, 20; mov.u32 %r10, 500;
        @%p3 bra C; bra D; B: mov.u32 %r10, 300; bra D; C: mov.u32 %r10, 400; D: add.u32 %r10, %r10, 1000; E:""",
        nested,
    ),
    "break and continue": (
        """ rem.u32 %r11, %r0, 9; mov.u32 %r10, 0; mov.u32 %r12, 0; L: setp.ge.u32 %p1, %r12, %r11; @%p1 bra E;
        setp.eq.u32 %p2, %r12, 6; @%p2 bra E; add.u32 %r13, %r12, %r0; and.b32 %r13, %r13, 1; setp.eq.u32 %p3, %r13, 1;
        @%p3 bra N; add.u32 %r10, %r10, %r12; add.u32 %r10, %r10, 1; N: add.u32 %r12, %r12, 1; bra L; E:""",
        skipping,
    ),
    "a uniform branch inside a divergent one": (
        """ mov.u32 %r10, 1; setp.gt.u32 %p1, %r0, 5; mov.u32 %r11, %ntid.x; setp.gt.u32 %p2, %r11, 0; @%p1 bra A;
        @%p2 bra B;
        mov.u32 %r10, 2; B: add.u32 %r10, %r10, 10; A: add.u32 %r10, %r10, 100;""",
        lambda i: 101 if i > 5 else 111,
    ),
    "guards instead of branches": (
        """ setp.lt.u32 %p1|%p2, %r0, 10; mov.u32 %r10, 7; @%p1 add.u32 %r10, %r10, %r0; @!%p1 mul.lo.u32 %r10, %r10, 3;
        setp.gt.and.u32 %p3|%p4, %r0, 3, %p1; @%p3 add.u32 %r10, %r10, 1000; @%p4 add.u32 %r10, %r10, 2000;""",
        lambda i: (7 + i if i < 10 else 21) + (1000 if 3 < i < 10 else 2000 if i <= 3 else 0),
    ),
    "two results of which one lives longer": (
        """ mov.u32 %r10, 0; mov.b64 %rd5, 0x0000000700000005; mov.u32 %r12, %ntid.x; setp.lt.u32 %p1, %r0, 9;
        setp.eq.u32 %p2, %r0, %r0;
        @%p1 bra A; mov.b64 {%r10, %r11}, %rd5; add.u32 %r13, %r11, 1; setp.eq.u32 %p2|%p3, %r12, 0; @%p3 bra A;
        mov.u32 %r10, %r13;
        A: @%p2 add.u32 %r10, %r10, 100;""",
        lambda i: 100 if i < 9 else 5,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("threads", [1, 31, 32, 45, 96])
def test_every_thread_goes_its_own_way(bench: Bench, name: str, threads: int) -> None:
    body, thread = CASES[name]
    (out,) = bench.clean(START + body + END, np.zeros(2 * threads, np.uint32), threads=threads, grid=2)
    assert out.tolist() == [thread(i) for i in range(2 * threads)]


@pytest.mark.parametrize(
    ("body", "survivors"),
    [
        ("setp.ge.u32 %p1, %r0, 20; @%p1 ret;", lambda i: i < 20),
        ("setp.ge.u32 %p1, %r0, 20; @%p1 bra END;", lambda i: i < 20),
        ("setp.ge.u32 %p1, %r0, 40; @!%p1 bra X; exit; X:", lambda i: i < 40),
        (
            "setp.ge.u32 %p1, %r0, 40; @%p1 bra Y; setp.ge.u32 %p2, %r0, 10; @%p2 bra END; Y:",
            lambda i: i < 10 or i >= 40,
        ),
        (
            "mov.u32 %r11, 0; L: setp.eq.u32 %p1, %r11, %r0; @%p1 ret; add.u32 %r11, %r11, 1; "
            "setp.lt.u32 %p2, %r11, 40; @%p2 bra L;",
            lambda i: i >= 40,
        ),
        (
            "setp.lt.u32 %p1, %r0, 3; @!%p1 bra Y; st.global.u32 [%rd0], 0; setp.eq.u32 %p2, %r0, 1; "
            "@%p2 bra END; ret; Y:",
            lambda i: i >= 3,
        ),
    ],
)  # fmt: skip
def test_a_barrier_is_for_those_that_are_left(bench: Bench, body: str, survivors: Callable[[int], bool]) -> None:
    # everyone that is left counts the ones that are left, through shared memory
    code = f""".shared .align 4 .b8 here[256]; {START} mov.u32 %r12, here; mad.lo.u32 %r13, %r0, 4, %r12;
    st.shared.u32 [%r13], 0;
    bar.sync 0; {body} st.shared.u32 [%r13], 1; bar.sync 0; mov.u32 %r10, 0; mov.u32 %r14, 0;
    S: ld.shared.u32 %r15, [%r12]; add.u32 %r10, %r10, %r15; add.u32 %r12, %r12, 4; add.u32 %r14, %r14, 1;
    setp.lt.u32 %p5, %r14, 64; @%p5 bra S; st.global.u32 [%rd0], %r10; END: ret;"""
    (out,) = bench.clean(code, np.zeros(64, np.uint32), threads=64)
    left = sum(map(survivors, range(64)))
    assert out.tolist() == [left if survivors(i) else 0 for i in range(64)]


@pytest.mark.parametrize("barrier", ["bar.sync 0;", "barrier.sync.aligned 1;", "bar.sync %r16;"])
@pytest.mark.parametrize("threads", [64, 100, 256])
def test_a_loop_with_barriers(bench: Bench, barrier: str, threads: int) -> None:
    """A scan in shared memory: wrong as soon as one warp runs ahead."""
    code = f""".shared .align 4 .b8 row[1024]; {START} mov.u32 %r16, 3; mov.u32 %r12, row;
    mad.lo.u32 %r13, %r0, 4, %r12;
    ld.global.u32 %r10, [%rd0]; mov.u32 %r11, 1; mov.u32 %r17, %ntid.x;
    L: st.shared.u32 [%r13], %r10; {barrier} setp.lt.u32 %p1, %r0, %r11; @%p1 bra S; sub.u32 %r14, %r0, %r11;
    mad.lo.u32 %r14, %r14, 4, %r12; ld.shared.u32 %r15, [%r14]; add.u32 %r10, %r10, %r15; S: {barrier}
    shl.b32 %r11, %r11, 1; setp.lt.u32 %p2, %r11, %r17; @%p2 bra L; {END}"""
    data = np.arange(1, threads + 1, dtype=np.uint32)
    (out,) = bench.clean(code, data, threads=threads)
    assert out.tolist() == np.cumsum(data).tolist()


def test_a_warp_that_waits_lets_the_others_run(bench: Bench) -> None:
    code = f""".shared .align 4 .b8 flag[4]; {START} setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [flag], 0; bar.sync 0;
    setp.lt.u32 %p2, %r0, 32; @!%p2 bra SET; W: ld.volatile.shared.u32 %r10, [flag]; setp.eq.u32 %p3, %r10, 0;
    @%p3 bra W;
    bra DONE; SET: mov.u32 %r10, 5; st.volatile.shared.u32 [flag], %r10; DONE: {END}"""
    assert bench.clean(code, np.zeros(64, np.uint32), threads=64)[0].tolist() == [5] * 64


@pytest.mark.parametrize(("grid", "block"), [((2, 3, 2), (4, 3, 5)), ((1, 1, 3), (33, 2, 1)), ((5, 1, 1), (1, 1, 64))])
def test_threads_in_three_dimensions(bench: Bench, grid: tuple[int, int, int], block: tuple[int, int, int]) -> None:
    code = """ mov.u32 %r20, %ntid.x; mov.u32 %r21, %ntid.y; mov.u32 %r22, %ntid.z; mov.u32 %r23, %nctaid.x;
    mov.u32 %r24, %nctaid.y;
    mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ctaid.y;
    mov.u32 %r6, %ctaid.z;
    mad.lo.u32 %r10, %r3, %r21, %r2; mad.lo.u32 %r10, %r10, %r20, %r1; mad.lo.u32 %r11, %r6, %r24, %r5;
    mad.lo.u32 %r11, %r11, %r23, %r4;
    mul.lo.u32 %r12, %r20, %r21; mul.lo.u32 %r12, %r12, %r22; mad.lo.u32 %r0, %r11, %r12, %r10;
    mov.u32 %r7, %laneid; mov.u32 %r8, %warpid;
    ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd0, %r0, 32, %rd0; st.global.v4.u32 [%rd0], {%r1, %r2, %r3, %r4};
    st.global.v4.u32 [%rd0+16], {%r5, %r6, %r7, %r8}; ret;"""
    threads, blocks = np.prod(block), np.prod(grid)
    (out,) = bench.clean(code, np.zeros((threads * blocks, 8), np.uint32), grid=grid, block=block)
    wanted = []
    for cz, cy, cx in np.ndindex(grid[::-1]):
        for number, (tz, ty, tx) in enumerate(np.ndindex(block[::-1])):
            wanted.append([tx, ty, tz, cx, cy, cz, number % 32, number // 32])
    assert out.tolist() == wanted


def test_blocks_on_several_threads_give_the_same(bench: Bench) -> None:
    code = START + CASES["trip counts that differ"][0] + END
    runs = [
        bench.run(code, np.zeros(2048, np.uint32), threads=64, grid=32, workers=n, profile=True) for n in (1, 2)
    ]  # fmt: skip
    assert runs[0].buffers[0].tolist() == runs[1].buffers[0].tolist() == [collatz(i) for i in range(2048)]
    assert runs[0].launch == runs[1].launch


LOCK = """
 ld.param.u64 %rd0, [p0]; mov.u32 %r10, 0;
 NEXT: atom.global.cas.b32 %r11, [%rd0], 0, 1; setp.ne.u32 %p1, %r11, 0; @%p1 bra NEXT;
 ld.global.u32 %r12, [%rd0+4]; add.u32 %r12, %r12, 1; st.global.u32 [%rd0+4], %r12; membar.gl;
 atom.global.exch.b32 %r13, [%rd0], 0;
 add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 3; @%p2 bra NEXT; ret;
"""


@pytest.mark.parametrize(("threads", "grid"), [(1, 1), (32, 1), (70, 1), (40, 3)])
def test_lanes_of_a_warp_that_wait_for_each_other(bench: Bench, threads: int, grid: int) -> None:
    """The lane that holds the lock stands behind the loop in which the others wait."""
    (out,) = bench.clean(LOCK, np.zeros(2, np.uint32), threads=threads, grid=grid)
    assert out.tolist() == [0, 3 * threads * grid]


def test_lanes_that_go_in_turn(bench: Bench) -> None:
    body = """ ld.param.u64 %rd0, [p0]; mov.u32 %r0, %tid.x; mov.u32 %r3, 100;
    WAIT: ld.volatile.global.u32 %r1, [%rd0]; setp.ne.u32 %p1, %r1, %r0; @%p1 bra WAIT;
    mad.wide.u32 %rd1, %r0, 4, %rd0; mad.lo.u32 %r2, %r0, 3, %r3; st.global.u32 [%rd1+4], %r2; membar.gl;
    add.u32 %r1, %r0, 1; st.volatile.global.u32 [%rd0], %r1; ret;"""
    (out,) = bench.clean(body, np.zeros(65, np.uint32), threads=64)
    assert out.tolist() == [64, *(100 + 3 * i for i in range(64))]
