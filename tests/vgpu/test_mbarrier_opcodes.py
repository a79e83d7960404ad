"""Barriers in shared memory against a model of their counts, and what they order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from forms import ENGINE
from hypothesis import given
from hypothesis import strategies as st
from ptxkit import INDEX, Bench, Ran, pointer

BAR = ".shared .align 8 .b8 bar[64]; .shared .align 16 .b8 tile[1024];"
FIRST = "setp.eq.u32 %p1, %r0, 0;"
START = f"{BAR}{INDEX}{FIRST} shl.b32 %r10, %r0, 2; add.u32 %r10, %r10, tile; mov.u32 %r9, bar;"
SYNC = "bar.sync 0;"
WORDS = np.arange(100, 164, dtype=np.uint32)


def init(count: int, place: str = "bar") -> str:
    return f"@%p1 mbarrier.init.shared.b64 [{place}], {count}; {SYNC}"


def wait(parity: int | str, label: str, place: str = "bar", form: str = "try_wait.parity.shared.b64") -> str:
    return f"${label}: mbarrier.{form} %p8, [{place}], {parity}; @!%p8 bra ${label};"


def run(bench: Bench, body: str, *arrays: np.ndarray, threads: int = 32, **options: object) -> Ran:
    return bench.run(f"{START}{body} ret;", *arrays, threads=threads, **options)  # type: ignore[arg-type]


# --- counts -----------------------------------------------------------------------------------


@dataclass
class Model:
    """A barrier as the ISA describes it."""

    expected: int
    pending: int = -1
    bytes: int = 0
    phase: int = 0

    def __post_init__(self) -> None:
        self.pending = self.expected

    def settle(self) -> None:
        if self.pending == 0 and self.bytes == 0:
            self.phase, self.pending = self.phase + 1, self.expected


STEPS = {
    "arrive": "mbarrier.arrive.shared.b64 %rd9, [bar], {n};",
    "drop": "mbarrier.arrive_drop.shared.b64 %rd9, [bar], {n};",
    "keep": "mbarrier.arrive.noComplete.shared.b64 %rd9, [bar], {n};",
    "arrive and expect": "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %rd9, [bar], {n};",
    "drop and expect": "mbarrier.arrive_drop.expect_tx.shared::cta.b64 %rd9, [bar], {n};",
    "expect": "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], {n};",
    "complete": "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], {n};",
}


def possible(model: Model, step: str, n: int) -> bool:
    if step in ("expect", "complete"):
        return True
    count = 1 if "expect" in step else n
    left = model.pending - count
    return (
        left >= 0
        and (step != "keep" or left > 0 or model.bytes != 0)
        and ("drop" not in step or model.expected > count)
    )


def apply(model: Model, step: str, n: int) -> None:
    if "expect" in step:
        model.bytes += n
    if step == "complete":
        model.bytes -= n
    if step not in ("expect", "complete"):
        count = 1 if "expect" in step else n
        model.pending -= count
        if "drop" in step:
            model.expected -= count
    model.settle()


@given(
    count=st.integers(1, 5),
    drawn=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(1, 4)), min_size=6, max_size=14),
)
@ENGINE
def test_any_order_of_steps(bench: Bench, count: int, drawn: list[tuple[str, int]]) -> None:
    """One thread does everything; after each step it tests both parities, and arrivals give the state before them."""
    model = Model(count)
    body, wanted = f"{START} mbarrier.init.shared.b64 [bar], {count}; ld.param.u64 %rd1, [p0]; mov.u64 %rd9, 0;", []
    for step, n in drawn:
        if not possible(model, step, n):
            continue
        before = model.pending, model.phase
        apply(model, step, n)
        body += STEPS[step].format(n=n)
        body += (
            "mbarrier.test_wait.parity.shared.b64 %p2, [bar], 0; mbarrier.test_wait.parity.shared.b64 %p3, [bar], 1;"
        )
        wanted += [model.phase % 2 == 1, model.phase % 2 == 0]
        words = ["%p2", "%p3"]
        if step not in ("expect", "complete"):
            body += "mbarrier.test_wait.shared.b64 %p4, [bar], %rd9; mbarrier.pending_count.b64 %r30, %rd9;"
            wanted += [model.phase != before[1], before[0]]
            words += ["%p4", "%r30"]
        for word in words:
            if word[1] == "p":
                body += f"selp.u32 %r31, 1, 0, {word};"
            body += f"st.global.u32 [%rd1], {word if word[1] == 'r' else '%r31'}; add.u64 %rd1, %rd1, 4;"
    out = bench.clean(f"{body} ret;", np.zeros(64, np.uint32), threads=1)[0]
    assert out[: len(wanted)].tolist() == wanted


def test_lanes_arrive_one_after_the_other(bench: Bench) -> None:
    """32 arrivals at a barrier for 20: the phase ends in between."""
    body = f"""{init(20)} {pointer(0)} mbarrier.arrive.shared.b64 %rd9, [bar]; mbarrier.pending_count.b64 %r20, %rd9;
     st.global.u32 [%rd0], %r20;"""
    out = run(bench, body, np.zeros(32, np.uint32)).buffers[0]
    assert out.tolist() == [20 - n for n in range(20)] + [20 - n for n in range(12)]


def test_generic_addresses_and_sinks(bench: Bench) -> None:
    body = f"{init(32)} mov.u64 %rd4, bar; cvta.shared.u64 %rd3, %rd4; mbarrier.arrive.b64 _, [%rd3];"
    body += wait(0, "w", "%rd3", "try_wait.parity.acquire.cta.b64") + wait("0, 100", "v")
    assert run(bench, body).kinds == []


def test_the_phase_before_the_first_is_over(bench: Bench) -> None:
    assert run(bench, f"{init(32)}{wait(1, 'w')}").kinds == []
    ran = run(bench, f"{init(32)}{wait(0, 'w')}", seconds=0.2)
    assert ran.kinds == ["time-out"]


@pytest.mark.parametrize(("body", "kind"), [
    ("mbarrier.arrive.shared.b64 %rd9, [bar];", "uninitialized"),
    ("st.shared.u64 [bar], 0; mbarrier.arrive.shared.b64 %rd9, [bar];", "invalid-barrier"),
    (f"{init(1)} @%p1 mbarrier.inval.shared.b64 [bar]; mbarrier.arrive.shared.b64 %rd9, [bar];", "invalid-barrier"),
    (f"{init(3)} @%p1 mbarrier.arrive.shared.b64 %rd9, [bar], 4;", "invalid-barrier"),
    (f"{init(3)} @%p1 mbarrier.arrive.noComplete.shared.b64 %rd9, [bar], 3;", "invalid-barrier"),
    ("@%p1 mbarrier.init.shared.b64 [bar], 0;", "invalid-barrier"),
    (f"{init(2)} @%p1 mbarrier.arrive.shared.b64 %rd9, [bar+4];", "misaligned"),
    (f"{init(2)} @%p1 mbarrier.arrive.shared.b64 %rd9, [bar+65536];", "out-of-bounds"),
    ("mov.u64 %rd3, 4096; mbarrier.arrive.b64 %rd9, [%rd3];", "out-of-bounds"),
    (f"st.shared.u64 [bar], 0; {wait(0, 'w')}", "invalid-barrier"),
])  # fmt: skip
def test_what_is_no_barrier(bench: Bench, body: str, kind: str) -> None:
    assert run(bench, body).kinds[:1] == [kind]


def test_others_use_a_barrier_after_a_barrier(bench: Bench) -> None:
    arrive = "mbarrier.arrive.shared.b64 _, [bar];"
    start = "@%p1 mbarrier.init.shared.b64 [bar], 64;"
    assert run(bench, f"{start}{arrive}", threads=64).kinds == ["shared-race"]
    assert run(bench, f"{start}{SYNC}{arrive}", threads=64).kinds == []


def test_a_fence_shows_a_new_barrier_to_others(bench: Bench) -> None:
    fences = "fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;"
    body = f"@%p1 mbarrier.init.shared.b64 [bar], 64; {fences} mbarrier.arrive.shared.b64 _, [bar];"
    assert run(bench, body, threads=64).kinds == []


# --- what a phase orders ----------------------------------------------------------------------

OTHER = "xor.b32 %r12, %r0, 32; shl.b32 %r12, %r12, 2; add.u32 %r12, %r12, tile; ld.shared.u32 %r20, [%r12];"
STORE = f"{pointer(1)} st.global.u32 [%rd1], %r20;"


def test_a_phase_orders_what_came_before_it(bench: Bench) -> None:
    zeros = np.zeros(64, np.uint32)
    body = f"{init(64)} st.shared.u32 [%r10], %r0; mbarrier.arrive.shared.b64 %rd9, [bar]; {{}} {OTHER}{STORE}"
    waited = run(bench, body.format(wait("%rd9", "w", form="try_wait.shared.b64")), WORDS, zeros, threads=64)
    assert waited.kinds == []
    assert np.array_equal(waited.buffers[1], np.arange(64) ^ 32)
    assert "shared-race" in run(bench, body.format(""), WORDS, zeros, threads=64).kinds


# two stages of 32 words: the first warp fills, the second one takes; full at bar+8*stage, empty at bar+16+8*stage
RING = f"""@%p1 mbarrier.init.shared.b64 [bar], 32; @%p1 mbarrier.init.shared.b64 [bar+8], 32;
 @%p1 mbarrier.init.shared.b64 [bar+16], 32; @%p1 mbarrier.init.shared.b64 [bar+24], 32; {SYNC}
 {pointer(0)} and.b32 %r13, %r0, 31; mov.u32 %r20, 0; mov.u32 %r30, 0; setp.ge.u32 %p2, %r0, 32;
$step: and.b32 %r31, %r30, 1; shr.u32 %r32, %r30, 1; and.b32 %r32, %r32, 1; mad.lo.u32 %r33, %r31, 8, bar;
 mad.lo.u32 %r34, %r31, 128, tile; mad.lo.u32 %r34, %r13, 4, %r34; @%p2 bra $take;
 xor.b32 %r35, %r32, 1;
 {{wait_empty}}
 mad.lo.u32 %r36, %r30, 3, %r0; {{fill}}
 bra.uni $next;
$take:
 {{wait_full}}
 sub.u32 %r37, 31, %r13; mul.lo.u32 %r37, %r37, 4; mad.lo.u32 %r38, %r31, 128, tile; add.u32 %r37, %r37, %r38;
 ld.shared.u32 %r36, [%r37]; mad.lo.u32 %r20, %r20, 5, %r36;
 mbarrier.arrive.shared.b64 _, [%r33+16];
$next: add.u32 %r30, %r30, 1; setp.lt.u32 %p3, %r30, 9; @%p3 bra $step; {STORE}"""
WAIT_EMPTY, WAIT_FULL = wait("%r35", "empty", "%r33+16"), wait("%r32", "full", "%r33")
PLAIN = "st.shared.u32 [%r34], %r36; mbarrier.arrive.shared.b64 _, [%r33];"


def ring(bench: Bench, fill: str = PLAIN, wait_empty: str = WAIT_EMPTY, wait_full: str = WAIT_FULL) -> Ran:
    body = RING.format(wait_empty=wait_empty, wait_full=wait_full, fill=fill)
    return run(bench, body, WORDS, np.zeros(64, np.uint32), threads=64)


def test_a_producer_and_a_consumer(bench: Bench) -> None:
    ran = ring(bench)
    wanted = np.zeros(32, np.uint32)
    for step in range(9):
        wanted = wanted * 5 + (step * 3 + np.arange(32, dtype=np.uint32))[::-1]
    assert ran.kinds == []
    assert np.array_equal(ran.buffers[1][32:], wanted)
    assert "shared-race" in ring(bench, wait_full="").kinds
    assert "shared-race" in ring(bench, wait_empty="").kinds


@pytest.mark.parametrize("noinc", [False, True])
def test_copies_that_arrive_at_a_barrier(bench: Bench, noinc: bool) -> None:
    """The producer does not wait: its copies arrive for it."""
    copy = "cp.async.ca.shared.global [%r34], [%rd0], 4;"
    arrive = "cp.async.mbarrier.arrive.noinc.shared.b64 [%r33];"
    both = f"{arrive.replace('.noinc', '')} mbarrier.arrive.shared.b64 _, [%r33];"
    ran = ring(bench, f"{copy} {arrive if noinc else both}")
    wanted = np.zeros(32, np.uint32)
    for _ in range(9):
        wanted = wanted * 5 + WORDS[:32][::-1]
    assert ran.kinds == []
    assert np.array_equal(ran.buffers[1][32:], wanted)
    assert "async-race" in ring(bench, f"{copy} {arrive if noinc else both}", wait_full="").kinds
    # an arrival of one's own says nothing of the copies
    assert "async-race" in ring(bench, f"{copy} mbarrier.arrive.shared.b64 _, [%r33];").kinds


def test_copies_are_complete_or_they_do_not_arrive(bench: Bench) -> None:
    """Without .noinc the count is as before when the copies are there, so one phase needs all its arrivals."""
    body = f"""{init(33)} {pointer(0)} cp.async.ca.shared.global [%r10], [%rd0], 4;
     cp.async.mbarrier.arrive.shared.b64 [bar];"""
    test = "mbarrier.test_wait.parity.shared.b64 %p2, [bar], 0; selp.u32 %r20, 1, 0, %p2;"
    out = np.zeros(32, np.uint32)
    assert not run(bench, f"{body}{test}{STORE}", WORDS, out).buffers[1].any()
    arrive = "mbarrier.arrive.shared.b64 _, [bar]; @%p1 mbarrier.arrive.shared.b64 _, [bar];"
    assert run(bench, f"{body}{arrive}{test}{STORE}", WORDS, out).buffers[1].all()


# --- bytes that a barrier is told of ----------------------------------------------------------

BULK = "cp.async.bulk.{}.global.mbarrier::complete_tx::bytes [tile], [%rd0], 256, [bar];"
FETCH = f"""{init(1)} ld.param.u64 %rd0, [p0]; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], {{expected}};
 @%p1 {{copy}} {{wait}} {OTHER}{STORE}"""


def fetch(bench: Bench, copy: str = BULK.format("shared::cluster"), expected: int = 256, waits: bool = True) -> Ran:
    body = FETCH.format(copy=copy, expected=expected, wait=wait(0, "w") if waits else "")
    return run(bench, body, WORDS, np.zeros(64, np.uint32), threads=64, seconds=2.0 if expected == 256 else 0.2)


@pytest.mark.parametrize("space", ["shared::cluster", "shared::cta"])
def test_bulk_copies_to_shared_memory(bench: Bench, space: str) -> None:
    ran = fetch(bench, BULK.format(space))
    assert ran.kinds == []
    assert np.array_equal(ran.buffers[1], WORDS[np.arange(64) ^ 32])


def test_bulk_copies_are_waited_for(bench: Bench) -> None:
    assert "async-race" in fetch(bench, waits=False).kinds
    assert fetch(bench, expected=272).kinds == ["time-out"]
    assert fetch(bench, expected=240).kinds == ["time-out"]


@pytest.mark.parametrize(("operands", "expected", "kind"), [
    ("[tile+8], [%rd0], 256, [bar]", 256, "misaligned"),
    ("[tile], [%rd0+8], 128, [bar]", 128, "misaligned"),
    ("[tile], [%rd0], 248, [bar]", 248, "misaligned"),
    ("[tile], [%rd0+16], 256, [bar]", 256, "out-of-bounds"),
    ("[tile+1008], [%rd0], 256, [bar]", 256, "out-of-bounds"),
    ("[tile], [%rd0], 256, [bar+8]", 0, "uninitialized"),
])  # fmt: skip
def test_bulk_addresses(bench: Bench, operands: str, expected: int, kind: str) -> None:
    head = BULK.format("shared::cluster").split(" ")[0]
    assert fetch(bench, f"{head} {operands};", expected).kinds[0] == kind


def test_bulk_copies_within_shared_memory(bench: Bench) -> None:
    copy = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [tile], [tile+256], 256, [bar];"
    body = f"st.shared.u32 [%r10+256], %r0; {FETCH.format(copy=copy, expected=256, wait=wait(0, 'w'))}"
    ran = run(bench, body, WORDS, np.zeros(64, np.uint32), threads=64)
    assert ran.kinds == []
    assert np.array_equal(ran.buffers[1], np.arange(64) ^ 32)


def test_bulk_reductions_in_shared_memory(bench: Bench) -> None:
    copy = """cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32
     [tile], [tile+256], 256, [bar];""".replace("\n", "")
    body = f"""st.shared.u32 [%r10], 1000; st.shared.u32 [%r10+256], %r0;
     {FETCH.format(copy=copy, expected=256, wait=wait(0, "w"))}"""
    ran = run(bench, body, WORDS, np.zeros(64, np.uint32), threads=64)
    assert ran.kinds == []
    assert np.array_equal(ran.buffers[1], 1000 + (np.arange(64) ^ 32))
