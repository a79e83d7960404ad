"""Eager mode: every operator by itself."""

from __future__ import annotations

from cupilot.evaluation.pytorch.boards import board
from cupilot.evaluation.pytorch.kernels import Graph
from cupilot.evaluation.pytorch.rules import kernels_of
from cupilot.evaluation.pytorch.run import Run, Step, timeline
from cupilot.gpu.spec import GpuSpec
from cupilot.records import Task


def eager_run(task: Task, spec: GpuSpec) -> Run:
    """One call in eager mode."""
    on = board(spec)
    graph = Graph(task, spec, on)
    steps = [Step(on.host_weight(op) * on.host.op_s, tuple(kernels_of(graph, op))) for op in task.graph]
    return timeline(steps, on.host.call_s, spec)
