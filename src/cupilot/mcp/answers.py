"""The tools' answers: structured, and short enough for an agent's context window.

Times are in milliseconds, shares between 0 and 1.  Every time says whether it is modelled or measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from cupilot.records import Finding


@dataclass(frozen=True)
class Problem:
    """Why a kernel failed: the stage, the kind, and the beginning of the tools' output."""

    stage: str
    kind: str
    message: str
    findings: tuple[Finding, ...] = ()
    log: str = ""


@dataclass(frozen=True)
class TimeAnswer:
    """``source`` is modelled or measured; nine of ten modelled times are within ``uncertainty`` of the measured one."""

    time_ms: float
    source: str
    device: str
    uncertainty: float
    limit: str
    note: str = ""


@dataclass(frozen=True)
class CardHint:
    """A card that suits operators, limit, zone, device and precision; the tool `strategies` has its text."""

    card: str
    title: str


@dataclass(frozen=True)
class PositionAnswer:
    """A kernel's position on the roofline: its zone, its limit, and its time over the least that is attainable.

    ``datasheet_ms`` is that at the datasheet's bandwidth, which no kernel reaches.
    """

    zone: str
    limit: str
    headroom: float
    bound_ms: float
    datasheet_ms: float


@dataclass(frozen=True)
class ShapeAnswer:
    """One shape of a task that has several."""

    task: str
    verdict: str
    time_ms: float | None = None
    pytorch_ms: float | None = None


@dataclass(frozen=True)
class EvaluateAnswer:
    """``verdict`` is the result in one sentence.

    Of a task with several shapes it holds for all of them, ``speedup`` is their geometric mean, and ``problem`` is that
    of the first shape that fails; ``shapes`` tells each by itself.

    ``differences`` are inputs and shapes on which a kernel that is right for the task is not as PyTorch.  ``compared``
    is the number of comparisons; ``worst_error`` is a share of the allowed error.
    """

    task: str
    device: str
    precision: str
    correct: bool
    verdict: str
    differences: tuple[str, ...] = ()
    problem: Problem | None = None
    time: TimeAnswer | None = None
    pytorch: TimeAnswer | None = None
    speedup: float | None = None
    compared: int = 0
    worst_error: float = 0.0
    standing: PositionAnswer | None = None
    cards: tuple[CardHint, ...] = ()
    shapes: tuple[ShapeAnswer, ...] = ()


@dataclass(frozen=True)
class TimeShare:
    """A part of a launch's time."""

    name: str
    share: float


@dataclass(frozen=True)
class HotLineAnswer:
    """A line of the source with its shares of the launch's time, instructions and memory sectors."""

    line: int
    text: str
    time_share: float
    instruction_share: float
    sector_share: float


@dataclass(frozen=True)
class UnitShare:
    """How much of a unit's peak rate a launch reaches."""

    name: str
    share: float


@dataclass(frozen=True)
class MemoryAnswer:
    """What lanes asked of a space, or what passed between two levels; sectors have 32 bytes, a request is a warp's."""

    name: str
    bytes: float
    sectors_per_request: float | None
    hit_rate: float | None


@dataclass(frozen=True)
class LaunchAnswer:
    """One launch; its time is modelled, ``share`` is that of the call, registers and shared memory are ptxas's.

    ``residence`` says in words how the launch fills the GPU, ``remarks`` what its lanes and warps wait for.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    time_ms: float
    share: float
    limit: str
    registers: int
    shared_bytes: int
    spilled_bytes: int
    occupancy: float
    occupancy_limit: str
    waves: float
    residence: str
    active_lanes: float
    parts: tuple[TimeShare, ...]
    units: tuple[UnitShare, ...]
    memory: tuple[MemoryAnswer, ...]
    remarks: tuple[str, ...]
    hottest_lines: tuple[HotLineAnswer, ...]


@dataclass(frozen=True)
class ProfileAnswer:
    """The longest of ``launches_in_all`` launches; the kernel's results are not verified."""

    task: str
    device: str
    verified: bool = False
    problem: Problem | None = None
    time: TimeAnswer | None = None
    standing: PositionAnswer | None = None
    launches: tuple[LaunchAnswer, ...] = ()
    launches_in_all: int = 0
    cards: tuple[CardHint, ...] = ()


@dataclass(frozen=True)
class Ceilings:
    """The GPU's peak rates, from its data sheet."""

    flop_per_s: float
    tensor_flop_per_s: float
    l1_bytes_per_s: float
    l2_bytes_per_s: float
    dram_bytes_per_s: float
    ridge_flop_per_byte: float


@dataclass(frozen=True)
class RooflineDot:
    """A launch, or the whole call, on the roofline; ``flop_per_byte`` is by DRAM bytes, None if none were moved."""

    label: str
    zone: str
    limit: str
    time_ms: float
    flop_per_s: float
    flop_per_byte: float | None
    dram_share: float


@dataclass(frozen=True)
class RooflineAnswer:
    """The least attainable time of the task on a device, and the position of the kernel, if one was given."""

    task: str
    device: str
    precision: str
    ceilings: Ceilings
    task_zone: str
    flop_per_byte: float
    least_bytes: float
    least_flop: float
    bound_ms: float
    datasheet_ms: float
    problem: Problem | None = None
    time: TimeAnswer | None = None
    standing: PositionAnswer | None = None
    dots: tuple[RooflineDot, ...] = ()


@dataclass(frozen=True)
class CardParameter:
    name: str
    choices: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class CardAnswer:
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
    cards: tuple[CardAnswer, ...]


@dataclass(frozen=True)
class RunAnswer:
    """How a program ended: its exit status (negative: a signal) and the end of its output."""

    device: str
    status: int
    clean: bool
    timed_out: bool = False
    output: str = ""
    problem: Problem | None = None
    findings: tuple[Finding, ...] = ()
    findings_in_all: int = 0
