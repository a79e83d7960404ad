"""How one warp goes through machine code: pipes, cycles, and the round trips to memory it waits for.

ptxas writes into every instruction how many cycles to wait before the next one is issued, which of six barriers is
released when its result is there, and which barriers it waits for itself.  Followed instruction by instruction, that is
the path of a warp that has an SM to itself.  Global loads are taken out of it: what they cost depends on where the data
is, so a wait for one counts as a round trip (``trips``), with the cycles since it was issued (``cover``).  What was
asked for before the warp last waited is taken to come with it.

A loop is followed twice, the second time with what the first left under way.  Code that PTX has once may stand here
several times (ptxas unrolls and peels); a basic block of the PTX then counts with the mean of its copies.

Not covered: slow paths of divisions and other routines of ptxas' own, warps that take different paths.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low

# by the first letters of the opcode; what is not named here is arithmetic on integers
PIPES = {
    "fp32": ("FFMA", "FADD", "FMUL", "FSWZ"),
    "imad": ("IMAD", "IDP"),
    "fp64": ("DFMA", "DADD", "DMUL", "DSETP", "DMNMX"),
    "fp16": ("HFMA", "HADD", "HMUL", "HSET", "HMNMX"),
    "sfu": ("MUFU", "F2I", "I2F", "F2F", "FRND", "POPC", "FLO", "BREV"),
    "tensor": ("HMMA", "IMMA", "DMMA", "BMMA", "QMMA"),
    "lsu": ("LD", "ST", "ATOM", "RED", "SHFL", "MATCH"),
    "control": ("BRA", "BRX", "BSSY", "BSYNC", "BREAK", "EXIT", "RET", "CALL", "JMP", "BAR", "NOP", "WARPSYNC", "YIELD",
                "DEPBAR", "LDGDEPBAR", "MEMBAR", "ERRBAR", "NANOSLEEP", "BMOV", "CCTL", "BPT", "KILL", "RPCMOV", "B2R"),
}  # fmt: skip
_ORDER = ("control", "tensor", "fp16", "fp64", "fp32", "imad", "sfu", "lsu")
# cycles from issue until a result of variable latency is there (A100, warps without company)
LATENCY = {"MUFU": 18, "LDS": 23, "LDSM": 29, "SHFL": 23, "S2R": 24, "LDC": 28, "LDL": 36, "HMMA": 33, "IMMA": 33,
           "DFMA": 8, "DADD": 8, "DMUL": 8, "ATOMS": 60, "REDUX": 30, "MATCH": 30}  # fmt: skip
OTHER_LATENCY = 20
# a store has read its registers
READ_LATENCY = 10
GLOBAL_LOADS = ("LDG", "LD", "ATOM", "ATOMG", "LDGSTS")
BARRIERS, NONE = 6, 7
# opcodes of the PTX that stand for one instruction, so that copies can be told from sequences
_SINGLE = re.compile(r"\s*(?:@!?[%\w]+\s+)?(?:(?:fma|add|mul|sub)(?:\.\w+)*\.(?:f32|[su]32)|ld|st|bar)\b")


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


@dataclass(frozen=True)
class Passed:
    """What one instruction added to the path."""

    cycles: int
    trips: int = 0
    cover: int = 0


@dataclass
class _Warp:
    """Time, when each barrier is released, and the loads that are under way by barrier, the oldest first."""

    now: int = 0
    released: list[int] = field(default_factory=lambda: [0] * BARRIERS)
    loads: list[list[int]] = field(default_factory=lambda: [[] for _ in range(BARRIERS)])
    copies: list[int] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    last_wait: int = -1

    def pass_through(self, step: Step) -> Passed:
        start, waited = self.now, []
        for barrier in range(BARRIERS):
            if step.control.waits >> barrier & 1:
                self.now = max(self.now, self.released[barrier])
                waited += self.loads[barrier]
                self.loads[barrier] = []
        waited = [load for load in (*waited, *self._copies_waited_for(step)) if load >= self.last_wait]
        cover = self.now - max(waited) if waited else 0
        issued = self.now
        if waited:
            self.last_wait = issued + 1
        for barrier, latency in self._sets(step):
            self.released[barrier] = max(self.released[barrier], issued + latency)
        if step.opcode in GLOBAL_LOADS and step.control.write_barrier != NONE:
            self.loads[step.control.write_barrier].append(issued)
        self.now += max(step.control.stall, 1)
        return Passed(self.now - start, int(bool(waited)), cover)

    @staticmethod
    def _sets(step: Step) -> Iterable[tuple[int, int]]:
        if step.control.write_barrier != NONE:
            loaded = step.opcode in GLOBAL_LOADS
            yield step.control.write_barrier, 0 if loaded else LATENCY.get(step.opcode, OTHER_LATENCY)
        if step.control.read_barrier != NONE:
            yield step.control.read_barrier, READ_LATENCY

    def _copies_waited_for(self, step: Step) -> list[int]:
        """Asynchronous copies come in groups; a wait leaves the newest of them under way."""
        if step.opcode == "LDGSTS":
            self.copies.append(self.now)
        elif step.opcode == "LDGDEPBAR":
            self.groups.append(self.copies[-1] if self.copies else -1)
            self.copies = []
        elif step.opcode == "DEPBAR" and self.groups:
            left = re.search(r"0x([0-9a-f]+)", step.operands)
            keep = int(left.group(1), 16) if left else 0
            done = self.groups[: len(self.groups) - keep] if keep < len(self.groups) else []
            self.groups = self.groups[len(done) :]
            return [issued for issued in done if issued >= 0]
        return []


def walk(steps: Sequence[Step]) -> list[Passed]:
    """What each instruction adds; of a loop's instructions, what the second time round adds."""
    warp = _Warp()
    at = {step.offset: number for number, step in enumerate(steps)}
    found: list[Passed] = []
    for number, step in enumerate(steps):
        found.append(warp.pass_through(step))
        if step.back in at and step.back != step.offset:  # a branch to itself is where code ends
            for again in range(at[step.back], number + 1):
                found[again] = warp.pass_through(steps[again])
    return found


def pipe_of(opcode: str) -> str:
    """The pipe that executes a machine instruction; ``uniform`` is the one for values that all lanes share."""
    if opcode.startswith("U") or opcode in ("R2UR", "S2UR"):
        return "uniform"
    return next((pipe for pipe in _ORDER if opcode.startswith(PIPES[pipe])), "int")


def line_costs(steps: Sequence[Step], blocks: Mapping[int, int], text: Sequence[str]) -> dict[int, dict[str, float]]:
    """Pipes, ``path``, ``trips`` and ``cover`` of one execution, by line of the PTX.

    ``blocks`` says which basic block of the PTX a line is in, ``text`` is the PTX by lines.
    """
    found: dict[int, dict[str, float]] = {}
    for step, passed in zip(steps, walk(steps), strict=True):
        if step.ptx_line not in blocks or step.opcode == "NOP":
            continue
        of_line = found.setdefault(step.ptx_line, {})
        parts = {pipe_of(step.opcode): 1, "path": passed.cycles, "trips": passed.trips, "cover": passed.cover}
        for name, amount in parts.items():
            if amount:
                of_line[name] = of_line.get(name, 0.0) + amount
    copies = _copies(steps, blocks, text)
    return {
        line: {name: amount / copies.get(blocks[line], 1) for name, amount in parts.items()}
        for line, parts in found.items()
    }


def _copies(steps: Sequence[Step], blocks: Mapping[int, int], text: Sequence[str]) -> dict[int, int]:
    """How often the code of each basic block stands in the machine code, where it does more than once."""
    times: dict[tuple[int, str], int] = {}
    for step in steps:
        if step.ptx_line in blocks and _SINGLE.match(text[step.ptx_line - 1]):
            times[step.ptx_line, step.opcode] = times.get((step.ptx_line, step.opcode), 0) + 1
    by_line: dict[int, int] = {}
    for (line, _), count in times.items():
        by_line[line] = max(by_line.get(line, 0), count)
    by_block: dict[int, list[int]] = {}
    for line, count in by_line.items():
        by_block.setdefault(blocks[line], []).append(count)
    return {block: median_low(counts) for block, counts in by_block.items() if median_low(counts) > 1}
