"""What PyTorch reaches on a board and on the machine it was timed on: few numbers for each GPU, read from a file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cupilot.gpu.spec import GpuSpec
from cupilot.records import Op, from_plain
from cupilot.tasks.operators import base_name, operator

DATA = Path(__file__).with_name("boards.toml")


@dataclass(frozen=True, kw_only=True)
class Host:
    """The machine's own time: of a call of the module, eager or compiled, and of issuing a pointwise operator."""

    call_s: float
    op_s: float
    compiled_s: float


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What cuDNN reaches on one generation of GPUs; the data file says which number is what."""

    tensor2d: float
    plain2d: float
    layout2d: float
    tensor3d: float
    plain3d: float
    layout3d: float
    tensor2d_transposed: float
    plain2d_transposed: float
    layout2d_transposed: float
    tensor3d_transposed: float
    plain3d_transposed: float
    layout3d_transposed: float
    few_channels: float

    def of(self, dimensions: int, transposed: bool) -> tuple[float, float, float]:
        """Shares of the tensor cores' peak and of the fp32 product rate, and how much of the layout is converted."""
        end = f"{3 if dimensions == 3 else 2}d{'_transposed' * transposed}"
        return getattr(self, f"tensor{end}"), getattr(self, f"plain{end}"), getattr(self, f"layout{end}")


@dataclass(frozen=True)
class Board:
    """The constants for one GPU."""

    spec: GpuSpec
    host: Host
    rates: Rates
    weights: Mapping[str, float]
    spreads: Mapping[str, float]
    spread_factor: float = 1.0

    def spread(self, family: str) -> float:
        """The logarithm of the ratio that nine of ten times of this family stay within."""
        return self.spreads.get(family, self.spreads["other"]) * self.spread_factor

    def host_weight(self, op: Op) -> float:
        """The host's time for an operator, in pointwise ones."""
        name = base_name(op.target)
        groups = op.attribute("groups", 1)
        if operator(op.target).is_convolution and isinstance(groups, int) and groups > 1:
            name = "depthwise"
        return self.weights.get(name, self.weights.get(operator(op.target).kind, 1.0))

    def dram_s(self, read_bytes: float, write_bytes: float) -> float:
        return self.spec.dram_s(read_bytes, write_bytes)


def board(spec: GpuSpec) -> Board:
    """The board's constants; those of its generation where PyTorch was never timed on it."""
    data = _data()
    name = spec.name.partition("@")[0]
    host = from_plain(Host, data["hosts"].get(name, data["hosts"]["other"]), f"{DATA.name}: hosts.{name}")
    generation = f"{spec.capability:g}"
    known = data["rates"]
    found = (
        known.get(name)
        or known.get(generation)
        or known[
            max((key for key in known if key[0].isdigit() and float(key) <= spec.capability), key=float, default="7.5")
        ]
    )
    return Board(
        spec, host, from_plain(Rates, found, f"{DATA.name}: rates.{generation}"), data["weights"],
        data["spreads"], float(data["spread_factors"].get(name, 1.0)),
    )  # fmt: skip


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(DATA.read_text(encoding="utf-8"))
