"""How far off a modelled time of PyTorch may be: by the kernels that take the time, and by the board."""

from __future__ import annotations

from math import exp

from cupilot.evaluation.pytorch.boards import Board
from cupilot.evaluation.pytorch.run import Run


def log_spread(run: Run, on: Board, whole_s: float) -> float:
    """The mean of what its kernels have, by their times; the rest of the whole is the host's."""
    device_s = sum(kernel.time_s for kernel in run.kernels)
    host_s = max(0.0, whole_s - device_s)
    total = host_s * on.spread("host") + sum(kernel.time_s * on.spread(kernel.family) for kernel in run.kernels)
    return run.doubt * total / (host_s + device_s) if host_s + device_s else on.spread("other")


def uncertainty(run: Run, on: Board) -> float:
    """As `Timing` has it: nine of ten true times lie between time / (1 + u) and time * (1 + u)."""
    return exp(log_spread(run, on, run.time_s)) - 1.0
