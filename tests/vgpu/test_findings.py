"""Every kind of finding with all its fields, and how they are handed over."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from ptxkit import INDEX, Address, Bench, Blank, pointer

from cupilot.errors import DataError
from cupilot.records import Access, Finding, OtherAccess
from cupilot.vgpu.findings import read_finding

WORDS = np.arange(64, dtype=np.uint32)
FILE = '.file 1 "/some/folder/kernel.cu"\n'
ALL, ORIGIN = 32, (0, 0, 0)
MINE = f"{INDEX}{pointer(0)}\n .loc 1 7 1\n "
TILE = f".shared .align 16 .b8 tile[256]; {INDEX} shl.b32 %r11, %r0, 2; xor.b32 %r12, %r11, 128;\n"


def one(bench: Bench, body: str, *arguments: np.ndarray | Blank | Address, **options: object) -> Finding:
    """The last finding of a launch, without what differs from run to run: the kernel's name and the address."""
    *_, found = bench.run(body, *arguments, before=FILE, **options).findings  # type: ignore[arg-type]
    assert found.kernel.startswith("k")
    access = found.access
    if access is not None and access.space == "global":
        access = replace(access, address=0)
    return replace(found, kernel="", text="", access=access)


def at(kind: str, line: int = 7, **fields: object) -> Finding:
    where = {"file": "kernel.cu", "line": line, "block": ORIGIN, "thread": ORIGIN, "threads": ALL}
    return Finding(kind, "", **{**where, **fields})  # type: ignore[arg-type]


GLOBAL = Access("read", "global", 4, 0, buffer_bytes=256, offset=0)
SHARED = Access("read", "shared", 4, 128, buffer_bytes=256, offset=128)


def test_accesses_to_global_memory(bench: Bench) -> None:
    outside = replace(GLOBAL, kind="write", offset=256)
    assert one(bench, f"{MINE} st.global.u32 [%rd0+256], 1; ret;", WORDS) == at("out-of-bounds", access=outside)
    before = replace(GLOBAL, offset=-128)
    assert one(bench, f"{MINE} ld.global.u32 %r9, [%rd0+-128]; ret;", WORDS) == at("out-of-bounds", access=before)
    split = replace(GLOBAL, bytes=8, offset=4)
    wide = f"{INDEX}{pointer(0, size=8)}\n .loc 1 7 1\n ld.global.u64 %rd9, [%rd0+4]; ret;"
    # the last thread reads beyond the end as well, which is another finding
    assert one(bench, wide, np.zeros(66, np.uint32)) == at(
        "misaligned", access=replace(split, buffer_bytes=264), threads=ALL
    )
    blank = f"{MINE} ld.global.u32 %r9, [%rd0]; ret;"
    assert one(bench, blank, Blank(256)) == at("uninitialized", access=GLOBAL)
    update = f"{MINE} red.global.add.u32 [%rd0+512], 1; ret;"
    assert one(bench, update, WORDS) == at("out-of-bounds", access=replace(outside, kind="atomic", offset=512))
    address = bench.machine.upload(WORDS)
    bench.machine.free(address)
    assert one(bench, blank, Address(address)) == at("use-after-free", access=replace(GLOBAL, freed=True))


def test_accesses_to_shared_and_local_memory(bench: Bench) -> None:
    write = replace(SHARED, kind="write", address=256, offset=256)
    past = f"{TILE} .loc 1 7 1\n st.shared.u32 [%r11+256], 1; ret;"
    assert one(bench, past) == at("out-of-bounds", access=write)
    odd = f"{TILE} .loc 1 7 1\n st.shared.u32 [%r11+2], 1; ret;"
    assert one(bench, odd) == at("misaligned", access=replace(write, address=2, offset=2))
    empty = f"{TILE} .loc 1 7 1\n ld.shared.u32 %r9, [%r11]; ret;"
    assert one(bench, empty) == at("uninitialized", access=replace(SHARED, address=0, offset=0))
    local = ".local .align 8 .b8 own[16]; mov.u64 %rd1, own;\n .loc 1 7 1\n st.local.u32 [%rd1+16], 1; ret;"
    found = one(bench, local)
    assert found.access is not None
    assert found == at("out-of-bounds", access=found.access)
    assert (found.access.kind, found.access.space, found.access.offset) == ("write", "local", found.access.address)
    assert found.access.offset == found.access.buffer_bytes


def test_races_name_both_accesses(bench: Bench) -> None:
    store, load = "\n .loc 1 5 1\n st.shared.u32 [%r11], %r0;", "\n .loc 1 7 1\n ld.shared.u32 %r9, [%r12];"
    second = {"thread": (32, 0, 0), "access": replace(SHARED, address=0, offset=0)}
    wrote = OtherAccess("write", "barrier", block=ORIGIN, warp=0, line=5)
    assert one(bench, f"{TILE}{store}{load} ret;", threads=64) == at("shared-race", other=wrote, **second)
    # with a second store on another line it is not known which of them it was
    twice = f"{TILE}\n .loc 1 4 1\n st.shared.u32 [%r11], %r1;{store}{load} ret;"
    assert one(bench, twice, threads=64) == at("shared-race", other=replace(wrote, line=0), **second)
    # a store that is not executed cannot be the one
    never = f"{TILE} setp.gt.u32 %p1, %r0, 99;\n .loc 1 4 1\n @%p1 st.shared.u32 [%r11], %r1;{store}{load} ret;"
    assert one(bench, never, threads=64) == at("shared-race", other=wrote, **second)
    others = f"{INDEX}{pointer(0)} xor.b32 %r20, %r0, 32;" + pointer(0, "%r20", register="%rd5")
    body = f"{others}\n .loc 1 5 1\n st.global.u32 [%rd0], %r0;\n .loc 1 7 1\n ld.global.u32 %r9, [%rd5]; ret;"
    wrote = OtherAccess("write", "fence", block=ORIGIN, line=5)
    assert one(bench, body, WORDS, grid=2) == at("global-race", block=(1, 0, 0), access=GLOBAL, other=wrote)
    copy = "\n .loc 1 5 1\n cp.async.ca.shared.global [%r11], [%rd0], 4;"
    async_body = f"{TILE}{pointer(0)}{copy}{load.replace('%r12', '%r11')} ret;"
    copied = OtherAccess("copy", "wait", ORIGIN, ORIGIN, 0, 5)
    access = replace(SHARED, address=0, offset=0)
    assert one(bench, async_body, WORDS) == at("async-race", access=access, other=copied)


def test_a_block_is_named_only_where_its_mark_is_its_own(bench: Bench) -> None:
    """Marks are bytes: of a thousand blocks several have the same."""
    flag = f"{INDEX} ld.param.u64 %rd0, [p0]; mov.u32 %r3, %ctaid.x; setp.ge.u32 %p1, %r3, {{}};\n"
    flag += " @%p1 st.global.u32 [%rd0], %r3; ret;"
    (found,) = bench.run(flag.replace("{}", "0"), WORDS, grid=4).findings
    assert found.other is not None
    assert (found.other.block, found.block) == ((0, 0, 0), (1, 0, 0))
    (found,) = bench.run(flag.replace("{}", "998"), WORDS, grid=1000).findings
    assert found.other is not None
    assert (found.other.block, found.block) == (None, (999, 0, 0))


def test_threads_are_counted_once_each(bench: Bench) -> None:
    loop = "mov.u32 %r9, 0; L: st.global.u32 [%rd0+4096], 1; add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, 9; @%p1 bra L;"
    for workers in (1, 2):
        (found,) = bench.run(f"{MINE}{loop} ret;", WORDS, threads=96, grid=5, workers=workers).findings
        assert found.threads == 5 * 96
    # other lanes come to the same fault later
    half = "setp.lt.u32 %p1, %r0, 16; @%p1 bra A; add.s64 %rd0, %rd0, 4096; A: ld.global.u32 %r9, [%rd0]; ret;"
    (found,) = bench.run(f"{MINE}{half}", WORDS).findings
    assert (found.thread, found.threads) == ((16, 0, 0), 16)
    spread = f"{INDEX}{pointer(0, size=16)} ld.global.u32 %r9, [%rd0]; ret;"
    (found,) = bench.run(spread, Blank(1024)).findings
    assert (found.kind, found.threads) == ("uninitialized", 32)


def test_barriers_traps_and_calls(bench: Bench) -> None:
    some = f"{INDEX} setp.lt.u32 %p1, %r0, 8; @!%p1 bra A;\n .loc 1 7 1\n bar.sync 0; A: add.u32 %r6, %r0, 1; ret;"
    assert one(bench, some) == at("divergent-barrier", threads=8)
    apart = f"{INDEX} setp.lt.u32 %p1, %r0, 64; @%p1 bra A; bar.sync 1; ret; A:\n .loc 1 7 1\n bar.sync 0; ret;"
    assert one(bench, apart, threads=96) == at("deadlock", threads=64)
    trap = f"{INDEX} setp.gt.u32 %p1, %r0, 29;\n .loc 1 7 1\n @%p1 trap; ret;"
    assert one(bench, trap) == at("trap", thread=(30, 0, 0), threads=2)
    free = ".param .b64 n; mov.u64 %rd1, 77;\n .loc 1 7 1\n st.param.b64 [n], %rd1; call free, (n); ret;"
    assert one(bench, free, threads=40) == at("bad-free", threads=40)
    loop = f"{INDEX}\n .loc 1 7 1\n L: add.u32 %r0, %r0, 1; bra L;"
    assert one(bench, loop, seconds=0.05) == at("time-out", threads=1)


def test_code_that_cannot_be_translated(bench: Bench) -> None:
    found = one(bench, "\n .loc 1 7 1\n wgmma.fence.sync.aligned; ret;")
    assert found == Finding("unsupported", "", file="kernel.cu", line=7)


def test_a_line_of_two_files_is_of_neither(bench: Bench) -> None:
    files = f'{FILE}.file 2 "/include/header.h"\n'
    body = f"{INDEX}{pointer(0)}\n .loc {{}} 7 1\n mov.u32 %r1, 1;\n .loc 1 7 1\n st.global.u32 [%rd0+256], 1; ret;"
    names = [bench.run(body.replace("{}", n), WORDS, before=files).findings[0].file for n in ("1", "2")]
    assert names == ["kernel.cu", ""]


# --- what is handed over ----------------------------------------------------------------------------

HANDED = {"kind": "assert", "text": "", "kernel": "_Z4reluPfi"}


def test_names_are_those_of_the_source() -> None:
    assert read_finding(json.dumps(HANDED).encode()).kernel == "relu"


def test_texts_may_hold_anything(bench: Bench) -> None:
    """File names of line tables are the candidate's; a byte that is no text is replaced."""
    name = 'a"b\\\\c\t\x01\x7f{}[]é,\N{SNOWMAN}.cu'.replace('"', "'")
    body = f"{INDEX}{pointer(0)}\n .loc 1 7 1\n st.global.u32 [%rd0+256], 1; ret;"
    (found,) = bench.run(body, WORDS, before=f'.file 1 "{name}"\n').findings
    assert found.file == name
    assert read_finding(json.dumps(HANDED | {"text": '"\\\n'}).encode()).text == '"\\\n'
    assert read_finding(b'{"kind": "\xff", "text": ""}').kind == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b'{"kind": "trap", "text": 1}',
        b'{"kind": "trap", "text": "", "line": ' + b"9" * 10_000 + b"}",
        json.dumps(HANDED).encode()[:-4],
        json.dumps(HANDED | {"other": {"kind": "read"}}).encode(),
        json.dumps(HANDED | {"block": [1, 2]}).encode(),
    ],
)
def test_what_is_no_finding_is_refused(line: bytes) -> None:
    with pytest.raises(DataError):
        read_finding(line)


def test_odd_accesses_have_a_text() -> None:
    """A confined program can write findings of its own; they must do no harm."""
    access = {"kind": "?", "space": "?", "bytes": -1, "address": -5, "buffer_bytes": 0, "offset": -1}
    other = {"kind": "?", "missing": "?"}
    assert read_finding(json.dumps(HANDED | {"access": access, "other": other}).encode()).text


def test_the_order_of_findings_is_that_of_the_launch(bench: Bench) -> None:
    lines = "".join(f"\n .loc 1 {line} 1\n st.global.u32 [%rd0+{256 * line}], 1;" for line in range(3, 15))
    ran = bench.run(f"{MINE}{lines} ret;", WORDS)
    assert len(ran.findings) == 8
    assert all(a.line < b.line for a, b in pairwise(ran.findings))
