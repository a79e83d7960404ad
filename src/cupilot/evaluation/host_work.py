"""Work of the host beside the device's: what share of the task's data went there, and how long its code ran.

The worker process rejects amounts that no wrapper needs, at any shape (`cupilot.devices.host_use`).  At the task's own
shape a share counts too: of a small operator a kilobyte may be everything.
"""

from __future__ import annotations

from cupilot.devices.host_use import taken_bytes
from cupilot.records import Failure, Profile, Task, Timing

FEW_BYTES = 16
"""A number or two, which a wrapper may look at however small the task is."""
SHARE = 1 / 8
"""Of the inputs' bytes that may go to the host."""
HOST_S, HOST_RATIO = 5e-3, 10.0
"""Processor time of the wrapper outside of CUDA calls that is too much, if it is also that many times the kernels'
time.  Honest wrappers need tens of microseconds; a busy machine makes that longer, so both must hold."""


def host_work_failure(task: Task, profile: Profile, timing: Timing) -> Failure | None:
    inputs = sum(argument.tensor.bytes for argument in task.arguments if argument.tensor is not None)
    taken, allowed = taken_bytes(profile), max(FEW_BYTES, SHARE * inputs)
    if taken > allowed:
        message = f"the wrapper takes {taken:.0f} of the inputs' {inputs} bytes to the host (at most {allowed:.0f})"
        return Failure("verify", "computed-on-host", message)
    spent = profile.host_seconds
    if spent > HOST_S and spent > HOST_RATIO * timing.time_s:
        message = (
            f"the wrapper's own code computes for {spent * 1e3:.1f} ms, its kernels for {timing.time_s * 1e3:.3g} ms"
        )
        return Failure("verify", "computed-on-host", message)
    return None
