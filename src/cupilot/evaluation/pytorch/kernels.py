"""One library kernel of PyTorch and its time on a GPU: bytes, arithmetic, parallelism, and what stays in the L2."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cupilot.evaluation.pytorch.boards import Board
from cupilot.gpu.spec import GpuSpec
from cupilot.records import ITEM_BYTES, Op, Task, TensorSpec
from cupilot.tasks.flop import tensors
from cupilot.tasks.operators import operator

RAMP_S = 1.6e-6
"""What a kernel takes beside its work: its launch reaches the SMs, its last blocks run out."""
L2_SHARE = 0.7
"""Share of the L2's bandwidth that streaming operators reach on what it holds (recorded: eight operators on 16 MB)."""
NORM = 4.0
"""Memory and arithmetic overlap: the joint time is this norm of both."""


@dataclass(frozen=True)
class Kernel:
    """One launch: the operator it belongs to, the family whose rule made it, its time and what binds it."""

    op: str
    family: str
    time_s: float
    limit: str


@dataclass
class Graph:
    """A task's tensors on one GPU, and which of them the L2 still holds while its kernels are listed."""

    task: Task
    spec: GpuSpec
    board: Board
    known: dict[str, TensorSpec] = field(init=False)
    sources: dict[str, str] = field(init=False)
    held: dict[str, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.known = tensors(self.task)
        self.sources = {}
        for op in self.task.graph:
            is_view = operator(op.target).is_view and op.operands
            self.sources[op.name] = self.sources.get(op.operands[0], op.operands[0]) if is_view else op.name

    def bytes(self, name: str) -> float:
        """What reading a tensor costs: a view has no more bytes than the tensor it looks at."""
        own = float(self.known[name].bytes)
        source = self.sources.get(name, name)
        return min(own, float(self.known[source].bytes)) if source in self.known else own

    def operands(self, op: Op) -> dict[str, float]:
        """The tensors that an operator reads, each once, with their bytes."""
        return {name: self.bytes(name) for name in dict.fromkeys(op.operands) if name in self.known}

    def kernel(
        self, op: Op, family: str, reads: Mapping[str, float], writes: float, *,
        busy: Mapping[str, float] | None = None, output: str = "", passes: float = 0.0,
        norm: float = NORM,
    ) -> Kernel:  # fmt: skip
        """A launch that reads tensors (bytes by name) and writes some; ``busy`` are the times of other limits.

        ``passes`` are bytes that are moved beside the tensors', as reads of what was read before.
        """
        capacity = float(self.spec.l2_near_bytes)
        total = sum(reads.values()) + writes
        fits = total <= capacity
        hit = sum(size for name, size in reads.items() if fits and self.sources.get(name, name) in self.held)
        near = hit + (writes if fits else 0.0)
        far = sum(reads.values()) - hit, writes if not fits else 0.0
        dram_s = self.board.dram_s(far[0] + passes, far[1])
        times = {"dram": dram_s + near / (L2_SHARE * self.spec.l2_bytes_per_s), **(busy or {})}
        self._remember(output or op.name, writes, total)
        work_s = joint(times.values(), norm)
        limit = max(times, key=lambda name: times[name]) if work_s > RAMP_S else "launch"
        return Kernel(op.name, family, RAMP_S + work_s, limit)

    def _remember(self, name: str, size: float, total: float) -> None:
        """What was written is held until as much as fits has gone through the L2."""
        capacity = float(self.spec.l2_near_bytes)
        self.held = {each: left - total for each, left in self.held.items() if left - total > 0}
        if size <= capacity:
            self.held[name] = capacity


def integers(op: Op, name: str) -> tuple[int, ...]:
    """An attribute that is a list of sizes; a single one counts as one of one."""
    value = op.attribute(name)
    if isinstance(value, tuple):
        return value
    return (value,) if isinstance(value, int) and not isinstance(value, bool) else ()


def integer(op: Op, name: str, default: int) -> int:
    value = op.attribute(name)
    return value if isinstance(value, int) else default


def joint(times: Iterable[float], norm: float = NORM) -> float:
    found = [time for time in times if time > 0]
    return sum(time**norm for time in found) ** (1.0 / norm) if found else 0.0


def item_bytes(tensor: TensorSpec) -> int:
    return ITEM_BYTES[tensor.dtype]
