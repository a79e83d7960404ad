"""How much of a call's data went through the host: a wrapper may look at a number or two and pass a few on.

Whoever takes whole tensors to the host, or brings whole tables from there, has computed on the host, now or in an
earlier call.  What counts are copies, and what kernels read and write in memory that the host sees.
"""

from __future__ import annotations

from cupilot.records import Failure, Profile

TAKEN_BYTES = 1024
"""To the host: flags, lengths, a handful of sums."""
GIVEN_BYTES = 16 << 10
"""From the host: tables of pointers, shapes and strides of many tensors."""


def taken_bytes(profile: Profile) -> float:
    """What the host got to see; of managed memory it is not known, its pages are paid for instead."""
    copied = sum(operation.bytes for operation in profile.operations if operation.kind == "device-to-host")
    return copied + profile.total("to_host_bytes")


def given_bytes(profile: Profile) -> float:
    copied = sum(operation.bytes for operation in profile.operations if operation.kind == "host-to-device")
    return copied + profile.total("from_host_bytes")


def host_failure(profile: Profile) -> Failure | None:
    taken, given = taken_bytes(profile), given_bytes(profile)
    if taken > TAKEN_BYTES:
        what = f"takes {taken:.0f} bytes to the host (at most {TAKEN_BYTES} are for looking at)"
    elif given > GIVEN_BYTES:
        what = f"brings {given:.0f} bytes from the host (at most {GIVEN_BYTES} are for pointers and sizes)"
    else:
        return None
    return Failure("run", "computed-on-host", f"the wrapper {what}: a candidate must compute on the device")
