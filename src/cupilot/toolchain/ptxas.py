"""What ptxas makes of a PTX module: registers, shared memory, spills, barriers of each kernel, and the cubin."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import astuple

from cupilot.records import Resources

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_BARRIERS = re.compile(r"used (\d+) barriers")
_ERROR = re.compile(r"^ptxas .*?;\s*error\s*:\s*(.*)$|^ptxas (?:error|fatal)\s*:\s*(.*)$", re.MULTILINE)


def read_report(log: str) -> tuple[tuple[str, Resources], ...]:
    """Kernels in the order of the report of ``ptxas -v``, under the names they have in the PTX.

    Spills are the bytes stored plus the bytes loaded, of the kernel itself; those of functions that it calls
    without inlining are not in the report of the kernel and are not counted.
    """
    found: list[tuple[str, Resources]] = []
    kernel, subject, spill_bytes = "", "", 0
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            kernel, subject, spill_bytes = entry.group(1), "", 0
        elif properties := _PROPERTIES.search(line):
            subject = properties.group(1)
        elif (spills := _SPILLS.search(line)) and subject == kernel:
            spill_bytes = int(spills.group(1)) + int(spills.group(2))
        elif (registers := _REGISTERS.search(line)) and kernel:
            found.append((kernel, _resources(int(registers.group(1)), line, spill_bytes)))
            kernel = ""
    return tuple(found)


def larger_resources(all_of: Iterable[tuple[str, Resources]]) -> tuple[tuple[str, Resources], ...]:
    """By kernel; where two kernels have one name, the larger of each number."""
    found: dict[str, Resources] = {}
    for name, resources in all_of:
        pairs = zip(astuple(resources), astuple(found.get(name, resources)), strict=True)
        found[name] = Resources(*(max(pair) for pair in pairs))
    return tuple(found.items())


def first_error(log: str) -> str:
    """The first complaint of ptxas, such as about inline assembly."""
    found = _ERROR.search(log)
    return (found.group(1) or found.group(2)).strip() if found is not None else log.strip().partition("\n")[0]


def _resources(registers: int, line: str, spill_bytes: int) -> Resources:
    shared, barriers = _SHARED.search(line), _BARRIERS.search(line)
    return Resources(
        registers=registers,
        static_shared_bytes=int(shared.group(1)) if shared is not None else 0,
        spill_bytes=spill_bytes,
        barriers=int(barriers.group(1)) if barriers is not None else 0,
    )
