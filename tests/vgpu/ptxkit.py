"""Running small PTX kernels on the virtual GPU: what the engine's tests share.

A kernel is written as its body only; registers of every class are declared (``%p %rs %r %rd %f %fd``), and
parameters are ``[p0]``, ``[p1]`` ... in the order of the arguments.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cupilot.records import Finding, Launch
from cupilot.vgpu.machine import Machine

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
REGISTERS = """
 .reg .pred %p<64>; .reg .b16 %rs<64>; .reg .b32 %r<128>; .reg .b64 %rd<128>; .reg .f32 %f<64>; .reg .f64 %fd<64>;
"""
# %r0 is the thread's number in the whole grid (one dimension)
INDEX = """
 mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.s32 %r0, %r1, %r2, %r0;
"""
Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Blank:
    """A buffer that nothing was written to."""

    bytes: int


@dataclass
class Address:
    """An address given as it is."""

    value: int


Argument = np.ndarray | np.generic | Blank | Address | bytes


@dataclass
class Ran:
    """What one launch did."""

    status: int
    findings: tuple[Finding, ...]
    buffers: list[np.ndarray] = field(default_factory=list)
    launch: Launch | None = None

    def __getitem__(self, name: str) -> float:
        """A counter; those that are zero are not recorded."""
        assert self.launch is not None
        return next((c.value for c in self.launch.counters if c.name == name), 0.0)

    @property
    def kinds(self) -> list[str]:
        return [finding.kind for finding in self.findings]


def pointer(number: int, index: str = "%r0", size: int = 4, register: str = "") -> str:
    """Code for the address of element ``index`` of buffer ``number``, in ``%rd<number>`` unless said otherwise."""
    register = register or f"%rd{number}"
    return f" ld.param.u64 {register}, [p{number}]; mad.wide.u32 {register}, {index}, {size}, {register};\n"


def module(body: str, name: str, params: Sequence[str], before: str = "") -> str:
    """A whole PTX file around a kernel's body; parameters are declarations such as ``.u64 {}``."""
    declared = ", ".join(".param " + kind.format(f"p{i}") for i, kind in enumerate(params))
    return f"{HEAD}{before}\n.visible .entry {name}({declared})\n{{{REGISTERS}{body}\n}}\n"


class Bench:
    """One machine and the kernels that were already given to it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._known: dict[str, tuple[int, str]] = {}

    def run(
        self,
        body: str,
        *arguments: Argument,
        threads: int = 32,
        grid: int | Triple = 1,
        block: Triple | None = None,
        dynamic_shared: int = 0,
        sample_budget: int | None = None,
        seconds: float = 20.0,
        workers: int = 1,
        before: str = "",
        profile: bool = False,
    ) -> Ran:
        """Launch; buffers come back in the order of the array and `Blank` arguments, and are freed."""
        kinds = [_kind(a) for a in arguments]
        number, name = self._load(body, kinds, before)
        addresses: list[tuple[int, np.ndarray | Blank]] = []
        data = []
        for argument in arguments:
            if isinstance(argument, np.ndarray | Blank):
                address = (
                    self.machine.allocate(argument.bytes)
                    if isinstance(argument, Blank)
                    else self.machine.upload(argument)
                )
                addresses.append((address, argument))
                data.append(struct.pack("<Q", address))
            elif isinstance(argument, Address):
                data.append(struct.pack("<Q", argument.value))
            else:
                data.append(argument if isinstance(argument, bytes) else argument.tobytes())
        self.machine.begin(sample_budget, seconds, workers)
        grid = grid if isinstance(grid, tuple) else (grid, 1, 1)
        status = self.machine.start(number, name, grid, block or (threads, 1, 1), data, dynamic_shared)
        ran = Ran(status, self.machine.findings())
        if profile:
            ran.launch = self.machine.launch(0)
        for address, argument in addresses:
            shape, dtype = (
                ((argument.bytes,), np.dtype(np.uint8))
                if isinstance(argument, Blank)
                else (argument.shape, argument.dtype)
            )
            ran.buffers.append(self.machine.view(address, shape, dtype).copy())
            self.machine.free(address)
        return ran

    def clean(self, body: str, *arguments: Argument, **options: object) -> list[np.ndarray]:
        """Launch a kernel that must have no findings; gives the buffers."""
        ran = self.run(body, *arguments, **options)  # type: ignore[arg-type]
        assert ran.findings == ()
        assert ran.status == 0
        return ran.buffers

    def _load(self, body: str, kinds: Sequence[str], before: str) -> tuple[int, str]:
        key = "\0".join((body, before, *kinds))
        if key not in self._known:
            # the machine knows kernels by name, so every one gets its own
            name = f"k{len(self._known)}"
            self._known[key] = (self.machine.load_ptx(module(body, name, kinds, before)), name)
        return self._known[key]


def _kind(argument: Argument) -> str:
    """A parameter's declaration with a place for its name; bytes stand for a struct passed by value."""
    if isinstance(argument, np.generic):
        return f".b{8 * argument.itemsize} {{}}"
    return f".align 8 .b8 {{}}[{len(argument)}]" if isinstance(argument, bytes) else ".u64 {}"
