"""What the engine knows of each byte of global memory, against a model that keeps it byte by byte.

The engine keeps one state for 32 bytes as long as they agree; random accesses of all widths, in and across sectors and
pages, must not show that.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field, replace

import pytest
from ptxkit import Bench, module

LANES = 32
BATCH = 6
PAGE = 4096
BLOCKS = 3
LIMIT = 8  # findings of a call
WIDTHS = {1: "u8", 2: "u16", 4: "u32", 8: "v2.u32", 16: "v4.u32"}
VECTORS = {8: "{%r10, %r10}", 16: "{%r10, %r10, %r10, %r10}"}
RESULTS = {8: "{%r20, %r21}", 16: "{%r20, %r21, %r22, %r23}"}


@dataclass(frozen=True)
class Access:
    """One instruction of one block; lane n is at ``start + n * step``."""

    block: int
    store: bool
    width: int
    start: int
    step: int
    lanes: int

    def runs(self) -> list[list[int]]:
        """The bytes, run by run in ascending order."""
        covered = sorted({self.start + n * self.step + b for n in range(self.lanes) for b in range(self.width)})
        found: list[list[int]] = []
        for byte in covered:
            if not found or byte != found[-1][-1] + 1:
                found.append([])
            found[-1].append(byte)
        return found

    def ptx(self, value: int) -> str:
        kind, address = WIDTHS[self.width], f"[%rd2+{self.start}]"
        code = (
            f"st.global.{kind} {address}, {VECTORS.get(self.width, '%r10')};"
            if self.store
            else f"ld.global.{kind} {RESULTS.get(self.width, '%r20')}, {address};"
        )
        return f""" mov.u32 %r10, {value}; setp.eq.u32 %p1, %r1, {self.block};
 setp.lt.and.u32 %p1, %r3, {self.lanes}, %p1;
 mad.wide.s32 %rd2, %r3, {self.step}, %rd1; @%p1 {code}
"""


@dataclass
class Model:
    """What should be known: who wrote a byte in this launch, who read it, and whether it was written at all."""

    written: set[int] = field(default_factory=set)
    writer: dict[int, int] = field(default_factory=dict)
    readers: dict[int, set[int]] = field(default_factory=dict)
    stored: bool = False

    def launch(self) -> None:
        self.writer, self.readers, self.stored = {}, {}, False

    def finding(self, access: Access) -> list[str]:
        return self._store(access) if access.store else self._load(access)

    def _load(self, access: Access) -> list[str]:
        for run in access.runs():
            for byte in run:
                if byte not in self.written:
                    lane = next(
                        n for n in range(access.lanes) if 0 <= byte - access.start - n * access.step < access.width
                    )
                    first = access.start + lane * access.step
                    if not self.written & set(range(first, first + access.width)):
                        return ["uninitialized"]
                elif self.writer.get(byte, access.block) != access.block:
                    return ["global-race"]
            # who reads matters once somebody has stored
            for byte in run if self.stored else ():
                self.readers.setdefault(byte, set()).add(access.block)
        return []

    def _store(self, access: Access) -> list[str]:
        self.stored, found = True, []
        for run in access.runs():
            others = (self.readers.get(byte, set()) | {self.writer.get(byte, access.block)} for byte in run)
            if any(blocks - {access.block} for blocks in others):
                found = ["global-race"]
            self.written.update(run)
            self.writer.update(dict.fromkeys(run, access.block))
        return found


def draw(rng: random.Random, block: int, size: int, earlier: list[Access]) -> Access:
    """Loads are mostly from where something was stored, by this block or an earlier launch."""
    if earlier and rng.random() < 0.4:
        place = rng.choice([a for a in earlier if a.block == block or rng.random() < 0.03] or earlier)
        return replace(place, block=block, store=False, lanes=rng.randint(1, place.lanes))
    width = rng.choice(tuple(WIDTHS))
    step = width * rng.choice((1, 1, 1, 1, 2, 3, -1))
    lanes = rng.choice((LANES, LANES, 8, 1, 27))
    low, high = min(0, step * (lanes - 1)), max(0, step * (lanes - 1)) + width
    start = rng.choice((rng.randrange(600), rng.randrange(4) * 128, PAGE - rng.randrange(200)))
    start += 1600 * block if rng.random() < 0.97 else 0
    return Access(block, rng.random() < 0.97, width, min(max(start, -low), size - high) // width * width, step, lanes)


def run(bench: Bench, launches: list[list[Access]]) -> list[str]:
    """Launches on one buffer, each compared with the model; gives the kinds of all findings."""
    machine, model, size = bench.machine, Model(), 2 * PAGE
    buffer = machine.allocate(size)
    machine.begin(None, 20.0)
    for launch, accesses in enumerate(launches):
        body = " mov.u32 %r3, %tid.x; mov.u32 %r1, %ctaid.x; ld.param.u64 %rd1, [p0];\n"
        body += "".join(a.ptx(16 * launch + n + 1) for n, a in enumerate(accesses)) + " ret;"
        known = len(machine.findings())
        loaded = machine.load_ptx(module(body, "marks", [".u64 {}"]))
        machine.start(loaded, "marks", (BLOCKS, 1, 1), (LANES, 1, 1), [struct.pack("<Q", buffer)])
        model.launch()
        wanted = [kind for access in accesses for kind in model.finding(access)]
        got = [finding.kind for finding in machine.findings()[known:]]
        assert got == wanted[: LIMIT - known], f"launch {launch}: {accesses}"
        if known + len(got) == LIMIT:
            break  # the last launch was ended
        stored = machine.stored_elements(buffer, size, 1)
        assert (set(range(size)) if stored is None else set(stored.tolist())) == model.written
    machine.free(buffer)
    return [finding.kind for finding in machine.findings()]


@pytest.mark.parametrize("seed", range(0, 36, BATCH))
def test_each_byte_is_known_by_itself(bench: Bench, seed: int) -> None:
    for number in range(seed, seed + BATCH):
        rng = random.Random(number)
        launches: list[list[Access]] = [[], [], []]
        stores: list[Access] = []
        for accesses in launches:
            for n in range(5 * BLOCKS):
                accesses.append(draw(rng, n // 5, 2 * PAGE, stores))
                stores += accesses[-1:] if accesses[-1].store else []
        run(bench, launches)


def test_a_store_across_pages_meets_readers_of_the_second(bench: Bench) -> None:
    across = Access(0, True, 4, PAGE - 64, 4, LANES)
    elsewhere, read = Access(0, True, 4, 0, 4, 1), Access(0, False, 4, PAGE, 4, 16)
    assert run(bench, [[across], [elsewhere, read, replace(across, block=1)]]) == ["global-race"]
    # what was read in an earlier launch does not matter
    assert run(bench, [[across], [elsewhere, read], [elsewhere, replace(across, block=1)]]) == []
