"""Parts put together: the time of a launch, where it goes, how sure it is.

Resources overlap, but not perfectly, and not all alike:

* the units of an SM run side by side, almost as if alone (`SM_NORM`): SGEMM steps 6 and 7 differ by a third in their
  wavefronts of shared memory, and were measured within 1 %;
* a warp that waits leaves them to others, but blocks that are resident together start together and do the same, and so
  mostly wait together: that is nearly added (`WAIT_NORM`);
* L2 and DRAM are shared by all SMs and are kept busy until the end (`CHIP_NORM`).

Each joint time is a norm of its members: infinity would be perfect overlap, one none at all.  Members share it in
proportion to their powers, so that the breakdown sums to the time.  Round trips are longer when DRAM is busy, and DRAM
is the busier the shorter everything else is: the time is where the two agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import hypot

from cupilot.gpu.spec import GpuSpec
from cupilot.gpu.timing.aside import serial_parts
from cupilot.gpu.timing.latency import waiting
from cupilot.gpu.timing.throughput import Parts, chip_times, has_machine_code, l1_cycles, shared_cycles, sm_times
from cupilot.records import Launch, LineCost, MemoryOperation, Profile, Timing

SM_NORM = 12.0
WAIT_NORM = 1.2
CHIP_NORM = 9.0
RAMP_S = 1.5e-6
"""Fixed time of a kernel on the device: start, fill, drain (small-kernel times)."""
GAP_S = 1.0e-6
"""Idle time between one launch and the next of a stream (small-kernel times)."""
COPY_S = 5e-6
"""What a copy over PCIe takes beside its bytes (5 to 7 us per call are reported for cudaMemcpyAsync: Wu et al. 2026,
arXiv 2602.21548, section 5.2)."""
WAIT_S = 5e-6
"""The device's idle time when the host waits for it and then goes on (judgement: the host sees the end some
microseconds late, and a launch takes as long to arrive)."""
HOST_S = {"synchronize": WAIT_S, "host-function": 2 * WAIT_S}
"""A function of the host in a stream is called by a thread that waits for the device, and the device for it."""
OVER_PCIE = ("host-to-device", "device-to-host", "migration")
STEPS = 24
"""Of the search for the time at which latency and DRAM agree; each halves what is left."""

SPREAD = {
    "dram": 0.08, "l2": 0.15, "l1": 0.15, "shared": 0.15, "fp32": 0.12, "issue": 0.15, "latency": 0.15, "int": 0.2,
    "dependency": 0.25, "launch": 0.2,
}  # fmt: skip
"""Relative error of a time that a part makes up, in nine of ten cases: from what is left over in the calibration."""
UNTRIED = 0.3
"""The same for parts that no measured kernel exercised."""
NINE_OF_TEN = 1.64
"""Standard errors that nine of ten means stay within."""
TELLING_ERROR = 0.02
"""From here on the standard error of a sample is named."""
WITHOUT_MACHINE_CODE = 1.5
"""How much less sure a time is that knows the PTX only."""


def model_time(profile: Profile, spec: GpuSpec, device: str) -> Timing:
    """Time of everything one call did: launches, fills and copies, and the gaps between them."""
    parts: Parts = {}
    steps = [launch_parts(launch, spec) for launch in profile.launches]
    steps += [operation_parts(operation, spec) for operation in profile.operations]
    for step in steps:
        for name, time_s in step.items():
            parts[name] = parts.get(name, 0.0) + time_s
    parts["launch"] = parts.get("launch", 0.0) + GAP_S * max(0, len(steps) - 1)
    if not steps:
        parts["launch"] = spec.launch_overhead_s
    breakdown = tuple(sorted(((n, t) for n, t in parts.items() if t > 0), key=lambda item: -item[1]))
    known = all(has_machine_code(launch) for launch in profile.launches)
    time_s = sum(t for _, t in breakdown)
    drawn = sampling_error(profile, [sum(step.values()) for step in steps])
    unsure = hypot(uncertainty(dict(breakdown), known), NINE_OF_TEN * drawn)
    return Timing(time_s, "modelled", device, breakdown[0][0], breakdown, sampling_note(profile, drawn), unsure)


def sampling_error(profile: Profile, times_s: Sequence[float]) -> float:
    """One standard error of the whole time, relative, because blocks differ and not all of them ran."""
    errors = [
        launch.counter("sample_error") * time_s for launch, time_s in zip(profile.launches, times_s, strict=False)
    ]
    total = sum(times_s)
    return hypot(*errors) / total if total > 0 else 0.0


def sampling_note(profile: Profile, error: float) -> str:
    if not profile.sampled:
        return ""
    note = "counters scaled up from sampled blocks"
    return f"{note}, which differ: give or take {100 * error:.0f} %" if error >= TELLING_ERROR else note


def uncertainty(parts: Mapping[str, float], machine_code: bool = True) -> float:
    """The relative error that nine of ten such times stay within: the mean of what their parts have."""
    total = sum(parts.values()) or 1.0
    mean = sum(time_s * SPREAD.get(name, UNTRIED) for name, time_s in parts.items()) / total
    return mean if machine_code else mean * WITHOUT_MACHINE_CODE


def launch_parts(launch: Launch, spec: GpuSpec) -> Parts:
    """Where one launch's time goes; sums to its time on the device, which has a minimum."""
    units, chip, waits = sm_times(launch, spec), chip_times(launch, spec), waiting(launch, spec)
    sm_s = sum(_joint(units, SM_NORM).values())

    def joint(time_s: float) -> tuple[Parts, Parts]:
        busy = min(1.0, chip["dram"] / time_s) if time_s > 0 else 1.0
        inner = _joint({"sm": sm_s, "latency": waits.seconds(busy)}, WAIT_NORM)
        return inner, _joint({"inside": sum(inner.values()), **chip}, CHIP_NORM)

    shortest, longest = (sum(joint(time_s)[1].values()) for time_s in (float("inf"), 0.0))
    for _ in range(STEPS):
        middle = (shortest + longest) / 2
        if sum(joint(middle)[1].values()) > middle:
            shortest = middle
        else:
            longest = middle
    inner, outer = joint(longest)
    inside = outer.pop("inside")
    parts = {**outer, "latency": inside * _share(inner, "latency")}
    for name, value in _joint(units, SM_NORM).items():
        parts[name] = inside * _share(inner, "sm") * (value / sm_s if sm_s > 0 else 0.0)
    # one path for two memories
    path_s, l1, shared = parts.pop("lsu"), l1_cycles(launch, spec), shared_cycles(launch, spec)
    if path_s > 0:
        parts |= {"l1": path_s * l1 / (l1 + shared), "shared": path_s * shared / (l1 + shared)}
    # blocks that wait for each other take as long as the longest chain of them, whatever the others do meanwhile
    chain_s = launch.counter("chain_cycles") / spec.clock_hz
    if chain_s > sum(parts.values()):
        parts["chain"] = chain_s - sum(parts.values())
    return with_minimum(parts, spec) | serial_parts(launch, spec)


def operation_parts(operation: MemoryOperation, spec: GpuSpec) -> Parts:
    """A fill writes its bytes; a copy reads and writes them; one to or from the host goes over PCIe.

    While the host waits, or one of its functions runs in the stream, the device is idle.
    """
    if operation.kind in HOST_S:
        return {"host": HOST_S[operation.kind]}
    if operation.kind in OVER_PCIE:
        waited_s = WAIT_S if operation.kind == "device-to-host" else 0.0
        return with_minimum({"pcie": operation.bytes / spec.pcie_bytes_per_s}, spec) | {"host": COPY_S + waited_s}
    read = 0.0 if operation.kind in ("fill", "memset") else float(operation.bytes)
    # what PyTorch computes, at the speed of the vendor's library
    times = {"dram": spec.dram_s(read, operation.bytes), "fp32": operation.flop / spec.sgemm_flop_per_s}
    return with_minimum(combine({name: time_s for name, time_s in times.items() if time_s > 0}), spec)


def with_minimum(parts: Parts, spec: GpuSpec) -> Parts:
    """Add the fixed time of a kernel, and fill up to the shortest interval at which a stream launches."""
    work_s = sum(parts.values())
    return parts | {"launch": max(RAMP_S, spec.launch_overhead_s - work_s)}


def combine(times: Mapping[str, float]) -> Parts:
    """The joint time of parts of which nothing but their own times is known, as their shares of it."""
    return _joint(times, CHIP_NORM)


def _joint(times: Mapping[str, float], norm: float) -> Parts:
    longest = max(times.values(), default=0.0)
    if longest <= 0:
        return dict.fromkeys(times, 0.0)
    powers = {name: (value / longest) ** norm for name, value in times.items()}
    total = sum(powers.values())
    return {name: longest * total ** (1.0 / norm) * power / total for name, power in powers.items()}


def _share(parts: Parts, name: str) -> float:
    total = sum(parts.values())
    return parts[name] / total if total > 0 else 0.0


# --- source lines -------------------------------------------------------------------------------

BY_SECTORS = ("l1", "l2", "dram", "latency", "pcie", "migration")
"""Parts that the lines which move the most data take."""


def line_seconds(launch: Launch, spec: GpuSpec) -> tuple[tuple[int, float], ...]:
    """The launch's time by source line, the longest first; what belongs to no line is left out.

    Memory goes by sectors, shared memory by wavefronts, arithmetic by instructions.
    """
    found: dict[int, float] = {}
    for part, time_s in launch_parts(launch, spec).items():
        if part == "launch" or time_s <= 0:
            continue
        weights = {line.line: _weight(part, line) for line in launch.lines}
        total = sum(weights.values())
        for number, weight in weights.items():
            if weight > 0:
                found[number] = found.get(number, 0.0) + time_s * weight / total
    return tuple(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _weight(part: str, line: LineCost) -> float:
    if part in BY_SECTORS:
        return line.global_sectors + line.local_sectors
    if part == "shared":
        return line.shared_wavefronts
    return line.atomic_requests if part == "atomic" else line.warp_instructions
