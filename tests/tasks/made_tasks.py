"""Tasks made of a few operators, without a source."""

from __future__ import annotations

from cupilot.records import Argument, Op, Task, TensorSpec


def make_task(inputs: list[tuple[int, ...]], *ops: tuple[str, tuple[str, ...], tuple[int, ...]], **more: str) -> Task:
    arguments = tuple(Argument(f"x{i}", "input", TensorSpec(shape)) for i, shape in enumerate(inputs))
    graph = tuple(Op(f"op{i}", t, operands, (), TensorSpec(shape)) for i, (t, operands, shape) in enumerate(ops))
    return Task("task", "", arguments, (graph[-1].output,), graph, **more)
