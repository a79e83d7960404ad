"""What tools answer: structured, and short enough for an agent's window.

Times are in milliseconds, shares between 0 and 1.  Every time says whether it was modelled or measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from cupilot.records import Finding


@dataclass(frozen=True)
class Problem:
    """Why there is no (good) answer: at which stage, of what kind, and the beginning of what the tools said."""

    stage: str
    kind: str
    message: str
    findings: tuple[Finding, ...] = ()
    log: str = ""


@dataclass(frozen=True)
class Time:
    """``source`` is modelled or measured; nine of ten modelled times are within ``uncertainty`` of the truth."""

    time_ms: float
    source: str
    device: str
    uncertainty: float
    limit: str
    note: str = ""


@dataclass(frozen=True)
class Hint:
    """A card that relieves the limit; the tool strategies tells more about it."""

    card: str
    title: str


@dataclass(frozen=True)
class Standing:
    """Where a kernel stands on the roofline: its zone, what holds it back, its time over the least possible one."""

    zone: str
    limit: str
    headroom: float
    bound_ms: float


@dataclass(frozen=True)
class EvaluateAnswer:
    """``compared`` comparisons were made; the ``worst_error`` is a share of what was allowed."""

    task: str
    device: str
    precision: str
    correct: bool
    problem: Problem | None = None
    time: Time | None = None
    pytorch: Time | None = None
    speedup: float | None = None
    compared: int = 0
    worst_error: float = 0.0
    standing: Standing | None = None
    cards: tuple[Hint, ...] = ()


@dataclass(frozen=True)
class Part:
    """A part of a launch's time."""

    name: str
    share: float


@dataclass(frozen=True)
class HotLine:
    """A line of the source with its shares of the launch's time, instructions and memory sectors."""

    line: int
    text: str
    time_share: float
    instruction_share: float
    sector_share: float


@dataclass(frozen=True)
class Launch:
    """One launch; its time is modelled, registers and shared memory are those of ptxas."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    time_ms: float
    limit: str
    registers: int
    shared_bytes: int
    spilled_bytes: int
    occupancy: float
    occupancy_limit: str
    active_lanes: float
    parts: tuple[Part, ...]
    hottest_lines: tuple[HotLine, ...]


@dataclass(frozen=True)
class ProfileAnswer:
    """The longest launches of ``launches_in_all``; the kernel's results were not looked at."""

    task: str
    device: str
    verified: bool = False
    problem: Problem | None = None
    time: Time | None = None
    standing: Standing | None = None
    launches: tuple[Launch, ...] = ()
    launches_in_all: int = 0
    cards: tuple[Hint, ...] = ()


@dataclass(frozen=True)
class Ceilings:
    """What the GPU can do at most, by its data sheet."""

    flop_per_s: float
    tensor_flop_per_s: float
    l1_bytes_per_s: float
    l2_bytes_per_s: float
    dram_bytes_per_s: float
    ridge_flop_per_byte: float


@dataclass(frozen=True)
class Dot:
    """A launch, or the whole call, on the roofline; ``flop_per_byte`` is over DRAM, None where nothing was moved."""

    label: str
    zone: str
    limit: str
    time_ms: float
    flop_per_s: float
    flop_per_byte: float | None
    dram_share: float


@dataclass(frozen=True)
class RooflineAnswer:
    """The task's bound on a device, and where a kernel lies under it, if one was given."""

    task: str
    device: str
    precision: str
    ceilings: Ceilings
    task_zone: str
    flop_per_byte: float
    least_bytes: float
    least_flop: float
    bound_ms: float
    problem: Problem | None = None
    time: Time | None = None
    standing: Standing | None = None
    dots: tuple[Dot, ...] = ()


@dataclass(frozen=True)
class CardParameter:
    name: str
    choices: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Card:
    """A kind of move; ``text`` and ``parameters`` are left out of long lists."""

    name: str
    title: str
    zones: tuple[str, ...]
    relieves: tuple[str, ...]
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    text: str = ""
    parameters: tuple[CardParameter, ...] = ()


@dataclass(frozen=True)
class StrategiesAnswer:
    cards: tuple[Card, ...]


@dataclass(frozen=True)
class RunAnswer:
    """How a program ended: its status (negative: the signal that ended it) and the last of what it wrote."""

    device: str
    status: int
    clean: bool
    timed_out: bool = False
    output: str = ""
    problem: Problem | None = None
    findings: tuple[Finding, ...] = ()
    findings_in_all: int = 0
