"""Asynchronous copies of threads, their groups, and bulk copies: what arrives, and what is found when nobody waits.

Barriers in shared memory have `test_mbarrier_opcodes.py`; CUDA's own classes have `test_async_compiled.py`.
"""

from __future__ import annotations

import numpy as np
import pytest
from ptxkit import INDEX, Address, Bench, Ran, pointer

from cupilot.records import OtherAccess

TILE = ".shared .align 16 .b8 tile[4096];"
# %r10: the thread's word of the tile; %r11: its 16 bytes; %rd0, %rd5: its word and its 16 bytes of the input
START = f"""{TILE}{INDEX} shl.b32 %r10, %r0, 2; shl.b32 %r11, %r0, 4; {pointer(0)}
 ld.param.u64 %rd5, [p0]; mad.wide.u32 %rd5, %r0, 16, %rd5; """
COPY = "cp.async.ca.shared.global [%r10], [%rd0], 4;"
COMMIT, WAIT, BARRIER = "cp.async.commit_group;", "cp.async.wait_all;", "bar.sync 0;"
# the word of the thread half a block further on
OTHER = "xor.b32 %r12, %r10, 128; ld.shared.u32 %r20, [%r12];"
READ = "ld.shared.u32 %r20, [%r10];"
WORDS = (np.arange(1024, dtype=np.uint64) * 2654435761 % 2**32).astype(np.uint32)


def store(number: int = 1, register: str = "%r20") -> str:
    return f"{pointer(number)} st.global.u32 [%rd{number}], {register};"


def read(bench: Bench, body: str, *more: np.ndarray, threads: int = 32, **options: object) -> np.ndarray:
    """Run a body that leaves a word in %r20; gives the words of the threads."""
    text = f"{START}{body}{store()} ret;"
    return bench.clean(text, WORDS, np.zeros(threads, np.uint32), *more, threads=threads, **options)[1]


def found(bench: Bench, body: str, threads: int = 32, **options: object) -> Ran:
    return bench.run(f"{START}{body} ret;", WORDS, threads=threads, **options)  # type: ignore[arg-type]


# --- what arrives -----------------------------------------------------------------------------


@pytest.mark.parametrize(("head", "size"), [
    ("cp.async.ca.shared.global", 4),
    ("cp.async.ca.shared::cta.global", 8),
    ("cp.async.ca.shared.global.L2::128B", 16),
    ("cp.async.cg.shared.global", 16),
    ("cp.async.cg.shared::cta.global.L2::256B", 16),
])  # fmt: skip
def test_sizes(bench: Bench, head: str, size: int) -> None:
    words = size // 4
    body = f"""{TILE}{INDEX}{pointer(0, size=size)}{pointer(1, size=size)} mad.lo.u32 %r10, %r0, {size}, 64;
     {head} [%r10], [%rd0+{size}], {size}; {WAIT}"""
    for word in range(words):
        body += f"ld.shared.u32 %r20, [%r10+{4 * word}]; st.global.u32 [%rd1+{4 * word}], %r20;"
    out = bench.clean(f"{body} ret;", WORDS, np.zeros(32 * words, np.uint32))[1]
    assert np.array_equal(out, WORDS[words : 33 * words])


@pytest.mark.parametrize("size", [4, 8, 16])
def test_bytes_that_are_not_read_are_zeros(bench: Bench, size: int) -> None:
    body = f"""{TILE}{INDEX}{pointer(0, size=size)}{pointer(1, size=size)} mul.lo.u32 %r10, %r0, {size};
     rem.u32 %r12, %r0, {size + 1}; cp.async.ca.shared.global [%r10], [%rd0], {size}, %r12; {WAIT}"""
    for word in range(size // 4):
        body += f"ld.shared.u32 %r20, [%r10+{4 * word}]; st.global.u32 [%rd1+{4 * word}], %r20;"
    data = np.arange(1, 32 * size + 1, dtype=np.uint8) | 1
    # the last lane's bytes may lie beyond the end as far as they are not read
    last = 31 % (size + 1)
    out = bench.clean(f"{body} ret;", data[: 31 * size + last], np.zeros(32 * size, np.uint8))[1]
    kept = np.arange(size)[None, :] < (np.arange(32) % (size + 1))[:, None]
    assert np.array_equal(out.reshape(32, size), np.where(kept, data.reshape(32, size), 0))


def test_a_source_that_is_not_read_may_be_anywhere(bench: Bench) -> None:
    body = f"mov.u32 %r9, 0; mov.u64 %rd9, 3; cp.async.ca.shared.global [%r10], [%rd9], 4, %r9; {WAIT}{READ}"
    assert not read(bench, body).any()


def test_a_source_that_is_ignored(bench: Bench) -> None:
    rule = "and.b32 %r9, %r0, 1; setp.eq.u32 %p1, %r9, 1;"
    odd = np.arange(32) % 2 == 1
    body = f"{rule} cp.async.ca.shared.global [%r10], [%rd0], 4, {{}}; {WAIT}{READ}"
    assert np.array_equal(read(bench, body.format("%p1")), np.where(odd, 0, WORDS[:32]))
    assert np.array_equal(read(bench, body.format("!%p1")), np.where(odd, WORDS[:32], 0))


@pytest.mark.parametrize("form", ["16, %rd9", "16, %r9, %rd9", "16, %p1, %rd9"])
def test_a_cache_policy_is_read_over(bench: Bench, form: str) -> None:
    copy = f"mov.u32 %r9, 16; setp.eq.u32 %p1, %r9, 0; cp.async.cg.shared.global.L2::cache_hint [%r11], [%rd5], {form};"
    body = f"mov.u64 %rd9, 0; {copy} {WAIT} ld.shared.u32 %r20, [%r11];"
    assert np.array_equal(read(bench, body), WORDS[:128:4])


def test_guards(bench: Bench) -> None:
    body = f"setp.lt.u32 %p1, %r0, 9; st.shared.u32 [%r10], 7; @%p1 {COPY} @!%p1 {WAIT} @%p1 {WAIT} {READ}"
    assert np.array_equal(read(bench, body), np.where(np.arange(32) < 9, WORDS[:32], 7))


def test_data_is_that_of_the_wait(bench: Bench) -> None:
    """Hardware may read the source as late as that."""
    body = f"{START}{COPY} st.global.u32 [%rd0], 5; {WAIT}{READ}{store()} ret;"
    assert (bench.clean(body, WORDS[:32].copy(), np.zeros(32, np.uint32))[1] == 5).all()


# --- waiting ----------------------------------------------------------------------------------


@pytest.mark.parametrize("touch", [
    pytest.param(READ, id="read"),
    pytest.param("st.shared.u32 [%r10], 1;", id="written"),
    pytest.param(COPY, id="copied to again"),
    pytest.param("atom.shared.add.u32 %r20, [%r10], 1;", id="updated"),
])  # fmt: skip
@pytest.mark.parametrize("between", ["", COMMIT, BARRIER, f"{COMMIT} cp.async.wait_group 1;", "cp.async.wait_group 0;"])
def test_memory_that_was_not_waited_for(bench: Bench, touch: str, between: str) -> None:
    ran = found(bench, f"\n.loc 1 32 1\n{COPY}{between}\n.loc 1 33 1\n{touch}")
    assert ran.kinds == ["async-race"]
    (finding,) = ran.findings
    assert finding.line == 33
    # a copy is known to the thread: here each thread races with itself
    assert finding.other == OtherAccess("copy", "wait", (0, 0, 0), finding.thread, warp=0, line=32)
    assert found(bench, f"{COPY}{between}{WAIT}{touch}").kinds == []


def test_other_warps_need_a_barrier_too(bench: Bench) -> None:
    assert "shared-race" in found(bench, f"{COPY}{WAIT}{OTHER}", threads=64).kinds
    assert "async-race" in found(bench, f"{COPY}{BARRIER}{OTHER}{WAIT}", threads=64).kinds
    wanted = WORDS[np.arange(64) ^ 32]
    assert np.array_equal(read(bench, f"{COPY}{WAIT}{BARRIER}{OTHER}", threads=64), wanted)


def test_what_others_still_read_is_not_copied_to(bench: Bench) -> None:
    body = f"st.shared.u32 [%r10], %r0; {BARRIER}{OTHER}{{}} {COPY}{WAIT}"
    assert "shared-race" in found(bench, body.format(""), threads=64).kinds
    assert found(bench, body.format(BARRIER), threads=64).kinds == []


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_older_groups_arrive_first(bench: Bench, groups: int) -> None:
    """Several groups; all but some were waited for."""
    copies = "".join(
        f"cp.async.ca.shared.global [%r10+{128 * g}], [%rd0+{128 * g}], 4; {COMMIT}" for g in range(groups)
    )
    for allowed in range(groups + 2):
        body = f"{copies} cp.async.wait_group {allowed};"
        for group in range(groups):
            ran = found(bench, f"{body} ld.shared.u32 %r20, [%r10+{128 * group}];")
            assert ran.kinds == ([] if group < groups - allowed else ["async-race"])
    ends = read(bench, f"{copies} cp.async.wait_group 0; ld.shared.u32 %r20, [%r10+{128 * (groups - 1)}];")
    assert np.array_equal(ends, WORDS[32 * (groups - 1) : 32 * groups])


def test_groups_are_those_of_a_thread(bench: Bench) -> None:
    """Odd threads commit an empty group more, so their copy is older."""
    body = f"and.b32 %r9, %r0, 1; setp.eq.u32 %p1, %r9, 1; {COPY}{COMMIT} @%p1 {COMMIT} cp.async.wait_group 1;"
    assert found(bench, f"{body} @%p1 {READ}").kinds == []
    assert found(bench, f"{body} @!%p1 {READ}").kinds == ["async-race"]


def test_many_groups_under_way(bench: Bench) -> None:
    """A ring of eight stages and 200 steps: the queue forgets what arrived."""
    loop = f"""mov.u32 %r30, 0; mov.u32 %r31, 0; mov.u64 %rd8, %rd0;
    $fill: and.b32 %r32, %r30, 7; shl.b32 %r32, %r32, 7; add.u32 %r33, %r10, %r32;
     cp.async.ca.shared.global [%r33], [%rd8], 4; {COMMIT} add.u64 %rd8, %rd8, 4;
     setp.lt.u32 %p2, %r30, 7; @%p2 bra $next;
     cp.async.wait_group 7; sub.u32 %r34, %r30, 7; and.b32 %r34, %r34, 7; shl.b32 %r34, %r34, 7;
     add.u32 %r34, %r34, %r10; ld.shared.u32 %r35, [%r34]; add.u32 %r31, %r31, %r35;
    $next: add.u32 %r30, %r30, 1; setp.lt.u32 %p3, %r30, 200; @%p3 bra $fill; mov.u32 %r20, %r31;"""
    sums = [int(WORDS[lane : lane + 193].sum(dtype=np.uint64)) % 2**32 for lane in range(32)]
    assert read(bench, loop).tolist() == sums


def test_the_end_of_a_block_waits_for_nobody(bench: Bench) -> None:
    body = f"mov.u32 %r3, %ctaid.x; setp.eq.u32 %p1, %r3, 0; mov.u32 %r10, %tid.x; shl.b32 %r10, %r10, 2; @%p1 {COPY}"
    ran = found(bench, body, grid=2)
    assert (ran.status, ran.kinds) == (0, [])
    # the next block has no copies under way, and nothing in its shared memory
    assert found(bench, f"{body} @!%p1 {WAIT} @!%p1 {READ}", grid=2).kinds == ["uninitialized"]


# --- what must not be copied ------------------------------------------------------------------


@pytest.mark.parametrize(("copy", "kind", "side"), [
    ("[%r10], [%rd0+2], 4", "misaligned", "read of 4 bytes"),
    ("[%r11+8], [%rd5], 16", "misaligned", "write of 16 bytes"),
    ("[%r11+4080], [%rd5], 16", "out-of-bounds", "write of 16 bytes"),
    ("[%r10], [%rd0+4096], 4", "out-of-bounds", "read of 4 bytes"),
    ("[%r11], [%rd5+4096], 16, 3", "out-of-bounds", "read of 3 bytes"),
    ("[%r11], [%rd5+4], 16, 3", "misaligned", "read of 3 bytes"),
])  # fmt: skip
def test_addresses(bench: Bench, copy: str, kind: str, side: str) -> None:
    text = f"\n.loc 1 50 1\n cp.async.ca.shared.global {copy}; {WAIT}"
    ran = found(bench, text)
    assert ran.kinds == [kind]
    (finding,) = ran.findings
    assert finding.access is not None
    assert f"{finding.access.kind} of {finding.access.bytes} bytes" == side
    assert finding.access.space == ("shared" if "write" in side else "global")
    assert finding.line == 50
    assert ran.status in (700, 716)


def test_sources_that_nobody_wrote(bench: Bench) -> None:
    address = bench.machine.allocate(256)
    for copy in (COPY, "cp.async.ca.shared.global [%r10], [%rd0], 4, 2;"):
        assert bench.run(f"{START}{copy}{WAIT} ret;", Address(address)).kinds == ["uninitialized"]
    bench.machine.free(address)


@pytest.mark.parametrize("text", [
    "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%rd0], [%r11];",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [tile], [%rd0], 16, [0], 1;",
    "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd0], [%r10], 16, %rs1;",
    "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r10], %r0, [%r11];",
    "cp.async.ca.shared.global [%r10], [%rd0], 12;",
    "wgmma.fence.sync.aligned;",
    "tcgen05.wait::ld.sync.aligned;",
])  # fmt: skip
def test_what_is_not_covered_says_so(bench: Bench, text: str) -> None:
    ran = found(bench, text)
    assert ran.kinds == ["unsupported"]
    assert text.split(" ", maxsplit=1)[0].rstrip(";") in ran.findings[0].text


# --- counters ---------------------------------------------------------------------------------


def test_a_copy_is_a_load_and_a_store(bench: Bench) -> None:
    ran = found(bench, f"cp.async.cg.shared.global [%r11], [%rd5], 16; {WAIT}", profile=True)
    loads = [ran[f"global_load_{name}"] for name in ("requests", "sectors", "bytes")]
    stores = [ran[f"shared_store_{name}"] for name in ("requests", "wavefronts", "bytes")]
    assert (loads, stores) == ([1, 16, 512], [1, 4, 512])
    assert ran["dram_read_bytes"] == 512


def test_bytes_that_are_not_read_are_no_traffic(bench: Bench) -> None:
    rule = "setp.lt.u32 %p1, %r0, 8; selp.u32 %r9, 4, 0, %p1;"
    ran = found(bench, f"{rule} cp.async.ca.shared.global [%r10], [%rd0], 4, %r9; {WAIT}", profile=True)
    assert (ran["global_load_sectors"], ran["global_load_bytes"], ran["shared_store_bytes"]) == (1, 32, 128)


# --- bulk copies ------------------------------------------------------------------------------

ONE = "setp.eq.u32 %p1, %r0, 0;"
FILL = "st.shared.u32 [%r10], %r0; bar.sync 0;"
OUT = "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [tile], 256;"
BULK_COMMIT = "cp.async.bulk.commit_group;"


def out_of_shared(bench: Bench, body: str) -> np.ndarray:
    text = f"{START}{ONE} ld.param.u64 %rd1, [p1]; {body} ret;"
    return bench.clean(text, WORDS, np.full(96, 9, np.uint32), threads=64)[1]


@pytest.mark.parametrize("wait", ["wait_group 0", "wait_group.read 0", ""])
def test_bulk_copies_to_global_memory(bench: Bench, wait: str) -> None:
    rest = f"@%p1 cp.async.bulk.{wait};" if wait else ""  # the end of the block does as well
    got = out_of_shared(bench, f"{FILL} @%p1 {OUT} @%p1 {BULK_COMMIT} {rest}")
    assert np.array_equal(got, np.r_[0:64, [9] * 32])


def test_bulk_groups_wait_for_older_ones(bench: Bench) -> None:
    """The first group is copied before the tile changes, the second one after."""
    second = OUT.replace("[%rd1], [tile], 256", "[%rd1+256], [tile], 128")
    body = f"""{FILL} @%p1 {OUT} @%p1 {BULK_COMMIT} @%p1 {second} @%p1 {BULK_COMMIT}
     @%p1 cp.async.bulk.wait_group.read 1; bar.sync 0; st.shared.u32 [%r10], 77; bar.sync 0;"""
    assert np.array_equal(out_of_shared(bench, body), np.r_[0:64, [77] * 32])


def test_bulk_copies_are_checked(bench: Bench) -> None:
    base = f"{START}{ONE} ld.param.u64 %rd1, [p0]; {{}} ret;"

    def kinds(body: str) -> list[str]:
        return bench.run(base.format(body), np.zeros(64, np.uint32), threads=64).kinds

    # the second warp writes while the first one's copy reads
    assert kinds(f"st.shared.u32 [%r10], %r0; @%p1 {OUT}") == ["uninitialized", "shared-race"]
    assert kinds(f"{FILL} @%p1 {OUT}") == []
    assert kinds(f"{FILL} @%p1 {OUT.replace('256', '264')}") == ["misaligned"]
    assert kinds(f"{FILL} @%p1 {OUT.replace('256', '272')}")[-1] == "out-of-bounds"
    assert kinds(f"{FILL} @%p1 {OUT.replace('[tile]', '[tile+8]')}") == ["misaligned"]
    assert kinds(f"{FILL} @%p1 {OUT.replace('[tile]', '[tile+4080]')}") == ["out-of-bounds"]


@pytest.mark.parametrize(("operation", "dtype", "fold"), [
    ("add.u32", np.uint32, lambda a, b: a + b),
    ("add.noftz.f16", np.float16, lambda a, b: a + b),
    ("add.f32", np.float32, lambda a, b: a + b),
    ("add.f64", np.float64, lambda a, b: a + b),
    ("min.s32", np.int32, np.minimum),
    ("max.u64", np.uint64, np.maximum),
    ("xor.b32", np.uint32, np.bitwise_xor),
])  # fmt: skip
def test_bulk_reductions(bench: Bench, operation: str, dtype: type, fold: object) -> None:
    rng = np.random.default_rng(3)
    low = 0 if np.issubdtype(dtype, np.unsignedinteger) else -50
    first, second = (rng.integers(low, 50, 512 // dtype().itemsize).astype(dtype) for _ in range(2))
    text = f"""{START}{ONE} ld.param.u64 %rd1, [p1];
     cp.async.cg.shared.global [%r11], [%rd5], 16; {WAIT} bar.warp.sync -1;
     @%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation} [%rd1], [tile], 512;
     @%p1 {BULK_COMMIT} @%p1 cp.async.bulk.wait_group 0; ret;"""
    got = bench.clean(text, first, second)[1]
    assert np.array_equal(got, fold(second, first))  # type: ignore[operator]


def test_bulk_prefetch_is_a_hint(bench: Bench) -> None:
    assert found(bench, "cp.async.bulk.prefetch.L2.global [%rd0], 128;").kinds == []


def test_bulk_counters(bench: Bench) -> None:
    text = f"{START}{ONE} ld.param.u64 %rd1, [p0]; {FILL} @%p1 {OUT.replace('256', '768')} ret;"
    fill = text.replace(FILL, "st.shared.u32 [%r10], %r0; bar.sync 0;")
    ran = bench.run(fill, np.zeros(192, np.uint32), threads=192, profile=True)
    assert ran.kinds == []
    assert [ran[f"global_store_{name}"] for name in ("requests", "sectors", "bytes")] == [2, 24, 768]
    assert ran["shared_load_bytes"] == 768
