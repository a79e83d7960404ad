"""How busy each unit of a GPU was during one launch: what it did per second, and the most that it could do.

Instructions are those of the machine code where they are known; of the PTX otherwise, with the share of bookkeeping
that the time model counts.  L1 and shared memory are one path: their shares add up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cupilot.gpu.roofline import SECTOR_BYTES, ceilings
from cupilot.gpu.spec import GpuSpec
from cupilot.gpu.timing.throughput import has_machine_code, issue_slots
from cupilot.records import Launch

WARP = 32
SOURCES = ("PTX", "SASS", "ncu", "model")


@dataclass(frozen=True)
class Unit:
    """A rate and its ceiling, both in ``unit`` per second; ``source`` says where the counters behind it are from."""

    name: str
    rate: float
    ceiling: float
    unit: str
    source: str

    @property
    def share(self) -> float:
        return self.rate / self.ceiling


def units(launch: Launch, spec: GpuSpec, time_s: float) -> tuple[Unit, ...]:
    """fp32, issue, L1, shared, L2 and DRAM always, other arithmetic where there was some."""
    wavefronts = spec.sms * spec.clock_hz * spec.lsu_lanes_per_sm / WARP

    def unit(name: str, ceiling: float, of: str, counters: Iterable[str], scale: float = 1.0) -> Unit:
        names = tuple(counters)
        total = scale * sum(launch.counter(counter) for counter in names)
        return Unit(name, total / time_s, ceiling, of, sources_of(launch, names))

    arithmetic = [unit("fp32", spec.fp32_flop_per_s, "flop", ("flop_fp32",))]
    for precision in ("fp64", "fp16", "bf16"):
        arithmetic.append(unit(precision, ceilings(spec, precision)[0], "flop", (f"flop_{precision}",)))
    for name in _tensor_types(launch):
        counter, word = f"flop_tensor_{name}", "op" if name.startswith("int") else "flop"
        arithmetic.append(unit(f"tensor {name}", ceilings(spec, name)[1], word, (counter,)))
    issued = "sass_instructions" if has_machine_code(launch) else "warp_instructions"
    slots = spec.sms * spec.clock_hz * spec.schedulers_per_sm
    memory = (
        Unit("issue", issue_slots(launch) / time_s, slots, "inst", sources_of(launch, (issued,))),
        unit("L1", wavefronts, "wavefronts", _named("global", "wavefronts") + _named("local", "wavefronts")),
        unit("shared", wavefronts, "wavefronts", _named("shared", "wavefronts")),
        unit("L2", spec.l2_bytes_per_s, "B", ("l2_read_sectors", "l2_write_sectors"), SECTOR_BYTES),
        unit("DRAM", spec.dram_bytes_per_s, "B", ("dram_read_bytes", "dram_write_bytes")),
    )
    return (*(u for u in arithmetic if u.rate > 0 or u.name == "fp32"), *memory)


def sources_of(launch: Launch, counters: Iterable[str]) -> str:
    """Where counters are from, such as ``PTX, SASS``; nothing where none was counted."""
    names = set(counters)
    found = {counter.source for counter in launch.counters if counter.name in names}
    return ", ".join(sorted(found, key=lambda s: (SOURCES.index(s) if s in SOURCES else len(SOURCES), s)))


def _named(space: str, what: str) -> tuple[str, ...]:
    return tuple(f"{space}_{kind}_{what}" for kind in ("load", "store", "atomic"))


def _tensor_types(launch: Launch) -> list[str]:
    prefix = "flop_tensor_"
    return sorted(c.name.removeprefix(prefix) for c in launch.counters if c.name.startswith(prefix))
