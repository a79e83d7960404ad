"""How one warp goes through machine code: pipes, cycles, and the round trips to memory it waits for.

ptxas writes into every instruction how many cycles to wait before the next one is issued, which of six barriers is
released when its result is there, and which barriers it waits for itself.  Followed instruction by instruction, that is
the path of a warp that has an SM to itself.  Global loads are taken out of it: what they cost depends on where the data
is, so a wait for one counts as a round trip (``trips``), with the cycles since it was issued (``cover``).  What was
asked for before the warp last waited is taken to come with it.

A loop counts with the mean of some rounds after its first, because loads that are asked for rounds ahead are waited for
in one round out of several; what its first round waits for counts where it was asked for.  Code that PTX has once may
stand here several times (ptxas unrolls and peels).  A basic block of the PTX then counts with the mean of its copies;
of those in a loop where there are any, because what the loop leaves over is executed once.

Not covered: routines of ptxas' own for unusual operands, bulk copies of Hopper, warps that take different paths.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median_low
from typing import NamedTuple

# By the first letters of the opcode, as Nsight Compute counts them (A100); what is not named here is arithmetic on
# integers.  Constant memory and barriers belong to the unit that handles branches.
PIPES = {
    "fp32": ("FFMA", "FADD", "FMUL", "FSWZ"),
    "imad": ("IMAD", "IMUL", "IDP"),
    "fp64": ("DFMA", "DADD", "DMUL", "DSETP", "DMNMX"),
    "fp16": ("HFMA", "HADD", "HMUL", "HSET", "HMNMX"),
    "sfu": ("MUFU", "F2I", "I2F", "F2F", "FRND", "FCHK", "POPC", "FLO", "BREV"),
    "lsu": ("LD", "ST", "ATOM", "RED", "SHFL", "MATCH", "S2R", "SYNCS", "ARRIVES"),
    "control": ("BRA", "BRX", "BSSY", "BSYNC", "BREAK", "EXIT", "RET", "CALL", "JMP", "BAR", "NOP", "WARP", "YIELD",
                "DEPBAR", "LDGDEPBAR", "MEMBAR", "ERRBAR", "CGAERRBAR", "FENCE", "NANOSLEEP", "BMOV", "CCTL", "BPT",
                "KILL", "RPCMOV", "B2R", "R2B", "LDC"),
}  # fmt: skip
_ORDER = ("control", "fp16", "fp64", "fp32", "imad", "sfu", "lsu")
_UNIFORM = ("U", "R2UR", "S2UR", "LDCU")
# conversions that pack their result, which the integer pipe makes
_PACKED = ("F2FP", "F2IP", "I2FP")
# cycles from issue until a result of variable latency is there (A100, warps without company)
LATENCY = {"MUFU": 18, "LDS": 23, "LDSM": 29, "SHFL": 23, "S2R": 24, "LDC": 28, "LDL": 36, "HMMA": 33, "IMMA": 33,
           "DFMA": 8, "DADD": 8, "DMUL": 8, "ATOMS": 60, "REDUX": 30, "MATCH": 30}  # fmt: skip
OTHER_LATENCY = 20
# a store has read its registers
READ_LATENCY = 10
LOCAL, LANES = ("LDL", "STL"), 32
GLOBAL_LOADS = ("LDG", "LD", "ATOM", "ATOMG", "LDGSTS")
BARRIERS, NONE = 6, 7
# instructions of the PTX that become one of the machine code each, so that copies can be told from sequences
_SINGLE = (
    (re.compile(r"(?:fma|add|sub|mul)(?:\.\w+)*\.f(?:32|64)"), ("FFMA", "FADD", "FMUL", "DFMA", "DADD", "DMUL")),
    (re.compile(r"(?:add|sub)\.[su]32"), ("IADD3", "VIADD", "UIADD3")),
    (re.compile(r"ld(?!\.param)\b"), ("LDG", "LDS", "LDL", "LD")),
    (re.compile(r"st(?!\.param)\b"), ("STG", "STS", "STL", "ST")),
    (re.compile(r"ldmatrix\b"), ("LDSM",)),
    # the shapes that tensor cores have had since sm_80; others are made of several
    (re.compile(r"mma\.sync\.aligned\.m16n8k(?:8|16|32)\.[\w.]*\.(?:f16|bf16|tf32|s8|u8)\."), ("HMMA", "IMMA")),
    (re.compile(r"cp\.async\.c[ag]\b"), ("LDGSTS",)),
    (re.compile(r"bar(?:rier)?\.sync\b"), ("BAR",)),
)
_GUARD = re.compile(r"@!?[%\w]+\s+")
ROUNDS = 12
"""Rounds of a loop with loads of its own: whole periods of pipelines of up to four stages."""
DEEPEST = 3
"""Loops within loops that are followed again each time."""


@dataclass(frozen=True)
class Control:
    """What an instruction's encoding tells the scheduler; a barrier of 7 is none."""

    stall: int = 1
    write_barrier: int = NONE
    read_barrier: int = NONE
    waits: int = 0

    @staticmethod
    def decode(high: int) -> Control:
        """From the upper 64 bits of the encoding (since Volta)."""
        bits = high >> 41
        return Control(bits & 15, bits >> 5 & 7, bits >> 8 & 7, bits >> 11 & 63)


PLAIN = Control()


@dataclass(frozen=True)
class Step:
    """An instruction on the path: ``back`` is the offset that a branch at it goes back to, or negative."""

    offset: int
    opcode: str
    operands: str
    ptx_line: int
    control: Control
    back: int = -1
    bytes: int = 4


@dataclass(frozen=True)
class Passed:
    """What one instruction added to the path; ``asked`` is the number of the one that it waited for."""

    cycles: float
    trips: float = 0.0
    cover: float = 0.0
    asked: int = -1


class _Load(NamedTuple):
    """A load under way: when it was issued, and the number of the instruction."""

    issued: int
    number: int


@dataclass
class _Warp:
    """Time, when each barrier is released, and the loads that are under way by barrier, the oldest first."""

    now: int = 0
    released: list[int] = field(default_factory=lambda: [0] * BARRIERS)
    loads: list[list[_Load]] = field(default_factory=lambda: [[] for _ in range(BARRIERS)])
    copies: list[_Load] = field(default_factory=list)
    groups: list[list[_Load]] = field(default_factory=list)
    last_wait: int = -1

    def pass_through(self, number: int, step: Step) -> Passed:
        start, waited = self.now, []
        for barrier in range(BARRIERS):
            if step.control.waits >> barrier & 1:
                self.now = max(self.now, self.released[barrier])
                waited += self.loads[barrier]
                self.loads[barrier] = []
        waited += self._copies_waited_for(number, step)
        issued = self.now
        for barrier, latency in self._sets(step):
            self.released[barrier] = max(self.released[barrier], issued + latency)
        if step.opcode in GLOBAL_LOADS and step.control.write_barrier != NONE:
            self.loads[step.control.write_barrier].append(_Load(issued, number))
        self.now += max(step.control.stall, 1)
        newest = max(waited, default=_Load(-1, -1))
        if newest.issued < self.last_wait or not waited:
            return Passed(self.now - start)
        self.last_wait = issued
        return Passed(self.now - start, 1, issued - newest.issued, newest.number)

    @staticmethod
    def _sets(step: Step) -> Iterable[tuple[int, int]]:
        if step.control.write_barrier != NONE:
            loaded = step.opcode in GLOBAL_LOADS
            yield step.control.write_barrier, 0 if loaded else LATENCY.get(step.opcode, OTHER_LATENCY)
        if step.control.read_barrier != NONE:
            yield step.control.read_barrier, READ_LATENCY

    def _copies_waited_for(self, number: int, step: Step) -> list[_Load]:
        """Asynchronous copies come in groups; a wait leaves the newest of them under way."""
        if step.opcode == "LDGSTS":
            self.copies.append(_Load(self.now, number))
        elif step.opcode == "LDGDEPBAR":
            self.groups.append(self.copies)
            self.copies = []
        elif step.opcode == "DEPBAR":
            left = re.search(r"0x([0-9a-f]+)", step.operands)
            kept = int(left.group(1), 16) if left else 0
            done = self.groups[: max(0, len(self.groups) - kept)]
            self.groups = self.groups[len(done) :]
            return [copy for group in done for copy in group]
        return []


def _loops(steps: Sequence[Step]) -> dict[int, int]:
    """The number of the first instruction of each loop, by that of its last."""
    at = {step.offset: number for number, step in enumerate(steps)}
    # several branches may go back to one place: the loop ends with the last
    ends = {at[step.back]: number for number, step in enumerate(steps) if step.back in at}
    return {end: start for start, end in ends.items() if start < end}  # a branch to itself is where code ends


def _innermost(loops: Mapping[int, int]) -> dict[int, int]:
    """The loop, by its last instruction, that each instruction is in; of loops within each other, the inner one."""
    return {number: end for end in sorted(loops, reverse=True) for number in range(loops[end], end + 1)}


def walk(steps: Sequence[Step]) -> list[Passed]:
    """What each instruction adds; of a loop's instructions, the mean of its rounds after the first."""
    warp = _Warp()
    loops = _loops(steps)
    loop_of = _innermost(loops)
    asking = {loop_of.get(number) for number, step in enumerate(steps) if step.opcode in GLOBAL_LOADS}
    found = [Passed(0)] * len(steps)

    def pass_through(number: int) -> None:
        passed = warp.pass_through(number, steps[number])
        end, asked = loop_of.get(number), passed.asked
        if end is not None and 0 <= asked < loops[end]:  # before the loop, so once for all of its rounds
            there = found[asked]
            found[asked] = replace(there, trips=there.trips + passed.trips, cover=there.cover + passed.cover)
            passed = Passed(passed.cycles)
        found[number] = passed

    def follow(first: int, end: int, depth: int) -> None:
        for number in range(first, end):
            pass_through(number)
            if number in loops and depth < DEEPEST:
                repeat(loops[number], number, depth + 1)

    def repeat(start: int, last: int, depth: int) -> None:
        rounds = []
        for _ in range(ROUNDS if last in asking else 1):
            follow(start, last, depth)
            pass_through(last)
            rounds.append(found[start : last + 1])
        found[start : last + 1] = [_mean(passed) for passed in zip(*rounds, strict=True)]

    follow(0, len(steps), 0)
    return found


def _mean(passed: Sequence[Passed]) -> Passed:
    cycles, trips, cover = zip(*((p.cycles, p.trips, p.cover) for p in passed), strict=True)
    return Passed(fmean(cycles), fmean(trips), fmean(cover))


def pipe_of(opcode: str) -> str:
    """The pipe that executes a machine instruction; ``uniform`` is the one for values that all lanes share."""
    if "MMA" in opcode:
        return "tensor"
    if opcode.startswith(_UNIFORM):
        return "uniform"
    if opcode in _PACKED:
        return "int"
    return next((pipe for pipe in _ORDER if opcode.startswith(PIPES[pipe])), "int")


def line_costs(steps: Sequence[Step], blocks: Mapping[int, int], text: Sequence[str]) -> dict[int, dict[str, float]]:
    """Pipes, ``path``, ``trips``, ``cover`` and bytes of ``local`` memory of one execution, by line of the PTX.

    ``blocks`` says which basic block of the PTX a line is in, ``text`` is the PTX by lines.  Code of no line is not
    followed, nor what comes after a branch to itself, which fills up the space behind the code.
    """
    end = next((number for number, step in enumerate(steps) if step.back == step.offset), len(steps))
    steps = [step for step in steps[:end] if step.ptx_line in blocks]
    loop_of = _innermost(_loops(steps))
    places = _places(steps, loop_of, blocks, text)
    found: dict[int, dict[str, float]] = {}
    for number, passed in enumerate(walk(steps)):
        step = steps[number]
        loop, copies = places.get(blocks[step.ptx_line], (None, 1))
        if loop is not None and loop_of.get(number) != loop:
            continue
        of_line = found.setdefault(step.ptx_line, {})
        parts = {pipe_of(step.opcode): 1, "path": passed.cycles, "trips": passed.trips, "cover": passed.cover}
        if step.opcode in LOCAL:
            parts["local"] = LANES * step.bytes
        for name, amount in parts.items():
            if amount:
                of_line[name] = of_line.get(name, 0.0) + amount / copies
    return found


def _places(
    steps: Sequence[Step], loop_of: Mapping[int, int], blocks: Mapping[int, int], text: Sequence[str]
) -> dict[int, tuple[int | None, int]]:
    """Of each basic block of the PTX, the loop whose code counts (None: all code), and how many copies are there."""
    made: dict[tuple[int, int | None], Counter[str]] = {}
    for number, step in enumerate(steps):
        for loop in {loop_of.get(number), None}:
            made.setdefault((step.ptx_line, loop), Counter())[step.opcode] += 1
    copies: dict[int, dict[int | None, list[int]]] = {}
    for (line, loop), opcodes in made.items():
        if times := _times(text[line - 1], opcodes):
            copies.setdefault(blocks[line], {}).setdefault(loop, []).append(times)
    found: dict[int, tuple[int | None, int]] = {}
    for block, by_loop in copies.items():
        everywhere = by_loop.pop(None)
        # a loop that has all lines of the block, so that other code of it can only be copies
        inside = {loop: median_low(times) for loop, times in by_loop.items() if len(times) == len(everywhere)}
        most = max(inside, key=inside.__getitem__, default=None)
        found[block] = (most, median_low(everywhere) if most is None else inside[most])
    return found


def _times(line: str, opcodes: Counter[str]) -> int:
    """How often the instructions on a line of PTX stand among opcodes made from it; zero when that is not clear."""
    times = (sum(opcodes[opcode] for opcode in become) // number for become, number in _plain(line).items())
    return max(times, default=0)


def _plain(line: str) -> Counter[tuple[str, ...]]:
    """What the instructions on a line of PTX become, and how many of each; nothing unless all are single ones."""
    *statements, rest = line.partition("//")[0].split(";")
    found: Counter[tuple[str, ...]] = Counter()
    for statement in statements:
        code = _GUARD.sub("", statement.strip(" \t{}"), count=1)
        if not code.startswith("."):
            found[next((become for pattern, become in _SINGLE if pattern.match(code)), ())] += 1
    return Counter() if () in found or rest.strip(" \t{}") else found
