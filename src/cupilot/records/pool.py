"""What the pool remembers of a search: a strategy that paid off, where, by how much, and how that is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from json import dumps
from math import isfinite

from cupilot.records.evaluation import SOURCES
from cupilot.records.proof import Proof
from cupilot.records.strategy import Strategy


@dataclass(frozen=True)
class Sizes:
    """The sizes of a task that decide which strategies suit it.

    ``elements`` are those of the largest tensor; ``row`` is the length that is reduced over (softmax,
    norms, sums), None where nothing is; ``product`` is (M, N, K) of the first matrix product.
    """

    elements: int
    row: int | None = None
    product: tuple[int, int, int] | None = None

    def __post_init__(self) -> None:
        if self.elements < 1 or (self.row is not None and self.row < 1) or min(self.product or (1,)) < 1:
            raise ValueError("sizes must be positive")


@dataclass(frozen=True)
class PoolRecord:
    """One strategy that made one task faster on one device.

    ``operators`` are normalised tags, ``zone`` and ``limit`` those of the first (plain) kernel, ``gain`` is
    the plain kernel's time over ``time_s``, ``speedup`` the baseline's; ``source`` says whether these times
    were modelled or measured, ``kernel`` is the digest of the kernel and ``version`` cupilot's.
    """

    task: str
    operators: tuple[str, ...]
    dtype: str
    precision: str
    shapes: str
    sizes: Sizes
    zone: str
    limit: str
    device: str
    strategy: Strategy
    time_s: float
    gain: float
    speedup: float | None
    source: str
    kernel: str
    proof: Proof
    version: str
    text: str = field(default="")

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise ValueError(f"the source of times {self.source!r} is none of {', '.join(SOURCES)}")
        for name, value in (("time_s", self.time_s), ("gain", self.gain), ("speedup", self.speedup)):
            if value is not None and not (isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a positive number, not {value}")

    @property
    def problem(self) -> str:
        """Digest of what was solved: only within one of these can times be compared."""
        return _digest(self.proof.task, self.precision, self.device, self.source)

    @property
    def worth(self) -> float:
        """The gain over PyTorch; where that is not known, over the plain kernel."""
        return self.speedup if self.speedup is not None else self.gain

    @property
    def worth_text(self) -> str:
        """Such as ``gained 1.32x over PyTorch``."""
        over = "PyTorch" if self.speedup is not None else "its plain kernel (PyTorch's time is not known)"
        return f"gained {self.worth:.2f}x over {over}"

    @property
    def id(self) -> str:
        """Digest of what was solved and by which moves; the same on every machine."""
        moves = sorted((move.card, sorted(move.parameters)) for move in self.strategy.moves)
        return _digest(self.problem, moves)


def _digest(*parts: object) -> str:
    return sha256(dumps(parts).encode()).hexdigest()[:12]
