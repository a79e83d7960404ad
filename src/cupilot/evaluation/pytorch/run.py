"""A call of a module: the host issues one operator after the other, the device runs their kernels in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cupilot.evaluation.pytorch.kernels import Kernel
from cupilot.gpu.spec import GpuSpec

GAP_S = 1.0e-6
"""Idle time between one kernel and the next of a stream."""


@dataclass(frozen=True)
class Run:
    """One call: its kernels and its two times.

    ``time_s`` counts from when the first kernel is issued to when the last one ends, which is what a kernel's own
    modelled time can be compared with.  ``call_s`` counts the host's work before that too, as recorded times do.
    ``doubt`` is the factor by which the run is less sure than its kernels are.
    """

    kernels: tuple[Kernel, ...]
    time_s: float
    call_s: float
    doubt: float = 1.0

    @property
    def device_share(self) -> float:
        """How much of the call is not the host's own time before the first kernel."""
        return self.time_s / self.call_s if self.call_s else 0.0


@dataclass(frozen=True)
class Step:
    """What the host issues at once: its time for that, and the kernels."""

    host_s: float
    kernels: tuple[Kernel, ...]


def timeline(steps: Sequence[Step], call_s: float, spec: GpuSpec) -> Run:
    """A kernel starts when it has been issued and the one before it has ended."""
    issued_s = end_s = 0.0
    first_s: float | None = None
    for step in steps:
        for kernel in step.kernels:
            issued_s += step.host_s / len(step.kernels)
            first_s = issued_s if first_s is None else first_s
            end_s = max(issued_s, end_s + GAP_S) + kernel.time_s
        if not step.kernels:
            issued_s += step.host_s
    kernels = tuple(kernel for step in steps for kernel in step.kernels)
    whole_s = max(end_s, issued_s)
    span_s = whole_s - first_s if first_s is not None else 0.0
    span_s = max(span_s, spec.launch_overhead_s * max(1, len(kernels)))
    return Run(kernels, span_s, call_s + whole_s)
