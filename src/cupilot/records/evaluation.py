"""What is known about a candidate: right or wrong, how fast, and where that is known from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import hypot

from cupilot.records.finding import Finding
from cupilot.records.measurement import Interval, Measurement
from cupilot.records.proof import Proof
from cupilot.records.scope import Scope

SOURCES = ("modelled", "measured", "recorded")


@dataclass(frozen=True)
class Failure:
    """Why a candidate was rejected; a value, never an exception.

    ``stage`` is one of translate, guard, build, load, run, verify, time; ``kind`` a short slug such as
    ``compile-error``, ``wrong-result``, ``time-out``, ``out-of-bounds``, ``unsupported``, ``crash``.  ``findings`` say
    where, if that is known; ``log`` is what a compiler or the candidate printed.
    """

    stage: str
    kind: str
    message: str
    log: str = ""
    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, stage: str, findings: Sequence[Finding], log: str = "", *, before: str = "") -> Failure:
        """The failure of a candidate with findings; its message is the first of them, after ``before``."""
        more, noun = len(findings) - 1, "error" if stage == "build" else "finding"
        others = f"; {more} more {noun}{'s' * (more > 1)}" if more else ""
        return cls(stage, findings[0].kind, f"{before}{findings[0]}{others}", log, tuple(findings))

    @property
    def details(self) -> str:
        """What the message leaves out: the log, or else the findings, one per line, if there are several."""
        lines = [str(finding) for finding in self.findings]
        return self.log or "\n".join(lines if len(lines) > 1 else ())


@dataclass(frozen=True)
class Timing:
    """A time and where it is from: ``modelled``, ``measured`` or ``recorded``.

    ``limit`` names what binds; ``breakdown`` are (part, seconds) pairs that sum to ``time_s``.  ``uncertainty`` is
    the relative error that nine of ten modelled times stay within, zero where nothing is said.
    """

    time_s: float
    source: str
    device: str
    limit: str = ""
    breakdown: tuple[tuple[str, float], ...] = ()
    note: str = ""
    uncertainty: float = 0.0

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise ValueError(f"timing source {self.source!r} is not one of {SOURCES}")
        if not self.time_s > 0:
            raise ValueError(f"time_s must be positive, not {self.time_s}")

    def __str__(self) -> str:
        return f"{self.time_s * 1e3:.4g} ms ({self.source}, {self.device})"


INTENSIVE = frozenset({
    "independent_loads", "critical_loads", "heaviest_block", "local_frame_bytes", "longest_sleep_ns",
    "longest_clock_cycles", "longest_clock_ns", "kept_waves", "busiest_sm_blocks", "busiest_sm_wavefronts",
    "busiest_sm_sectors", "block_spread", "sample_error", "stored_error", "sampled_store_bytes", "chain_cycles",
    "chain_hops",
})  # fmt: skip
"""Counters that are means, maxima or ratios of warps or blocks: they neither grow with the grid nor add up over
launches."""


@dataclass(frozen=True)
class Counter:
    """One count of a launch, whole grid, and its source: ``PTX``, ``SASS`` or ``model``."""

    name: str
    value: float
    source: str


@dataclass(frozen=True)
class Resources:
    """What ptxas says a kernel uses; limits its occupancy."""

    registers: int
    static_shared_bytes: int = 0
    spill_bytes: int = 0
    barriers: int = 0


@dataclass(frozen=True)
class SassAccess:
    """A load or store of the PTX and how the machine code of the same build makes it.

    ``kind`` is load or store, ``bytes`` are those of one lane in PTX.  ``widths`` are pairs of bytes per lane and
    number of machine instructions; none means that they are not known.  ``gone``: it became register moves.
    Accesses of one basic block with one base register have the same ``base``, the number of the first of them.
    """

    line: int
    space: str
    kind: str
    bytes: int
    base: int
    widths: tuple[tuple[int, int], ...] = ()
    gone: bool = False


@dataclass(frozen=True)
class SassLine:
    """What the machine code of one line of the PTX text costs a warp: instructions by pipe, and its path.

    Lines are counted from that of ``.version``.  ``path`` are cycles without waiting for global memory, ``trips`` the
    waits, ``cover`` the cycles that were done since what is waited for was asked for.
    """

    ptx_line: int
    costs: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class SassFunction:
    """The loads and stores of one function of the PTX, in the order of its text; of a kernel, its lines."""

    name: str
    is_kernel: bool
    accesses: tuple[SassAccess, ...]
    lines: tuple[SassLine, ...] = ()


@dataclass(frozen=True)
class LineCost:
    """What one source line cost, whole grid; see docs/counters.md for the meanings.

    ``source`` is ``SASS`` where the widths of the line's accesses are those of the machine code, otherwise ``PTX``.
    """

    line: int
    warp_instructions: float
    global_sectors: float = 0.0
    lane_instructions: float = 0.0
    flop: float = 0.0
    global_requests: float = 0.0
    global_bytes: float = 0.0
    shared_requests: float = 0.0
    shared_wavefronts: float = 0.0
    shared_conflicts: float = 0.0
    local_sectors: float = 0.0
    atomic_requests: float = 0.0
    source: str = "PTX"

    @property
    def active_lanes(self) -> float:
        """Mean lanes that executed an instruction of this line; 32 without divergence."""
        return self.lane_instructions / self.warp_instructions if self.warp_instructions else 0.0


@dataclass(frozen=True)
class Launch:
    """One kernel launch: configuration, resources, and counters scaled to the whole grid.

    ``incomplete``: some of the blocks that ran read what blocks of an earlier launch, which did not run, would have
    written, so that what they stored is not known.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int
    resources: Resources
    blocks_run: int
    counters: tuple[Counter, ...]
    lines: tuple[LineCost, ...] = ()
    incomplete: bool = False

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def active_lanes(self) -> float:
        """Mean lanes that executed an instruction; 32 without divergence, 0 when nothing was counted."""
        instructions = self.counter("warp_instructions")
        return self.counter("lane_instructions") / instructions if instructions else 0.0

    def counter(self, name: str) -> float:
        """Value of a counter; absent counters are zero (nothing of that kind was executed)."""
        for counter in self.counters:
            if counter.name == name:
                return counter.value
        return 0.0


@dataclass(frozen=True)
class MemoryOperation:
    """A fill or copy that the wrapper asked the runtime for; it costs time like a launch.

    ``aten.NAME``: an operator that PyTorch computes for a solution; it reads and writes ``bytes`` and makes ``flop``.
    """

    kind: str
    bytes: int
    flop: float = 0.0


@dataclass(frozen=True)
class Profile:
    """Everything one call of the wrapper did on the device.

    ``sampled`` says that only some blocks ran and counters were scaled up.  ``host_seconds`` is the processor time that
    the wrapper's own host code took on this machine, outside of calls to the CUDA runtime; 0 where it is not measured.
    """

    device: str
    launches: tuple[Launch, ...]
    operations: tuple[MemoryOperation, ...] = ()
    sampled: bool = False
    host_seconds: float = 0.0

    def total(self, counter: str) -> float:
        return sum(launch.counter(counter) for launch in self.launches)


@dataclass(frozen=True)
class Check:
    """One comparison that was made: on which inputs, how large the error was, what was allowed.

    ``strain`` is the share of what is allowed that was used up, by an element or by all together; above one it fails.
    """

    inputs: str
    shapes: str
    error: float
    allowed: float
    note: str = ""
    strain: float = 0.0


@dataclass(frozen=True)
class Evaluation:
    """The verdict on one kernel for one task on one device.

    ``scope`` says what a kernel that is right for its task holds for beside it, ``elapsed_s`` how long it took to find
    out.  ``baseline`` is PyTorch's time in eager mode, ``compiled`` the module's after ``torch.compile``; without them,
    PyTorch's time is unknown.
    ``resources`` are those of each kernel by its name, where only a build was asked for.
    """

    kernel: str
    task: str
    device: str
    failure: Failure | None = None
    timing: Timing | None = None
    baseline: Timing | None = None
    profile: Profile | None = None
    checks: tuple[Check, ...] = ()
    precision: str = "fp32"
    proof: Proof | None = None
    measurement: Measurement | None = None
    scope: Scope | None = None
    resources: tuple[tuple[str, Resources], ...] = ()
    compiled: Timing | None = None
    elapsed_s: float = field(default=0.0, compare=False)

    @property
    def correct(self) -> bool:
        """Right for the task, and for what else was required."""
        return self.failure is None

    @property
    def speedup(self) -> float | None:
        """Baseline over candidate; None between a measured and a modelled time, where a ratio means nothing."""
        if self.timing is None or self.baseline is None:
            return None
        if {self.timing.source, self.baseline.source} == {"measured", "modelled"}:
            return None
        if self.measurement is not None and self.measurement.comparisons:
            return self.measurement.comparisons[0].speedup
        return self.baseline.time_s / self.timing.time_s

    @property
    def speedup_over_compiled(self) -> float | None:
        """The module's time after ``torch.compile`` over the candidate's; None where they cannot be compared."""
        if self.timing is None or self.compiled is None:
            return None
        if {self.timing.source, self.compiled.source} == {"measured", "modelled"}:
            return None
        return self.compiled.time_s / self.timing.time_s

    @property
    def compiled_over_eager(self) -> float | None:
        """What ``torch.compile`` gains; None between a measured and a modelled time."""
        if self.baseline is None or self.compiled is None:
            return None
        if {self.baseline.source, self.compiled.source} == {"measured", "modelled"}:
            return None
        return self.baseline.time_s / self.compiled.time_s

    @property
    def speedup_interval(self) -> Interval | None:
        """Where the speedup lies in nine of ten cases, by the uncertainties of both times."""
        if self.speedup is None or self.timing is None or self.baseline is None:
            return None
        if self.measurement is not None and self.measurement.comparisons:
            return self.measurement.comparisons[0].interval
        spread = 1.0 + hypot(self.timing.uncertainty, self.baseline.uncertainty)
        return Interval(self.speedup / spread, self.speedup * spread)

    @property
    def standing(self) -> str:
        """Beside PyTorch: ``faster``, ``tie``, ``slower``, or ``unknown``; a difference within both times' uncertainty
        is a tie."""
        interval = self.speedup_interval
        if not self.correct or interval is None:
            return "unknown"
        return "faster" if interval.low > 1 else "slower" if interval.high < 1 else "tie"
