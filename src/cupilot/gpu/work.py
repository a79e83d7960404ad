"""How much arithmetic a task asks for, read off its graph of operators.

An estimate for the roofline: matrix products and convolutions are exact, everything else is a
few operations per element.
"""

from __future__ import annotations

from math import prod

from cupilot.records import Op, Task, TensorSpec

PRODUCTS = frozenset({"mm", "bmm", "matmul", "addmm", "baddbmm", "linear", "mv", "dot"})
VIEWS = frozenset({
    "view", "reshape", "_unsafe_view", "permute", "transpose", "t", "numpy_T", "squeeze", "unsqueeze", "expand",
    "flatten", "unflatten", "slice", "select", "alias", "detach", "contiguous", "narrow", "split", "chunk",
})  # fmt: skip
SOFTMAX = frozenset({"softmax", "_softmax", "log_softmax", "_log_softmax"})
CONVOLUTIONS = frozenset({"convolution", "_convolution", "conv1d", "conv2d", "conv3d"})

SOFTMAX_FLOP_PER_ELEMENT = 5
"""Maximum, difference, exponential, sum, quotient."""


def base_name(target: str) -> str:
    """``aten.softmax.int`` and ``aten.softmax`` are both ``softmax``; ``relu_`` counts as ``relu``."""
    parts = target.split(".")
    return (parts[1] if len(parts) > 1 else parts[0]).rstrip("_")


def tensors(task: Task) -> dict[str, TensorSpec]:
    """Every tensor of the graph by name: arguments and results of operators."""
    named = {a.name: a.tensor for a in task.arguments if a.tensor is not None}
    return named | {op.name: op.output for op in task.graph}


def op_flop(op: Op, known: dict[str, TensorSpec]) -> float:
    """Floating-point operations of one operator."""
    name = base_name(op.target)
    operands = [known[o] for o in op.operands if o in known]
    if name in VIEWS or not operands:
        return 0.0
    if name in PRODUCTS:
        left = operands[1] if name in ("addmm", "baddbmm") else operands[0]
        return 2.0 * op.output.elements * left.shape[-1]
    if name in CONVOLUTIONS:
        return 2.0 * op.output.elements * prod(operands[1].shape[1:])
    elements = max(op.output.elements, *(o.elements for o in operands))
    return float(elements * (SOFTMAX_FLOP_PER_ELEMENT if name in SOFTMAX else 1))


def task_flop(task: Task) -> float:
    """Floating-point operations of the whole graph."""
    known = tensors(task)
    return sum(op_flop(op, known) for op in task.graph)
