"""Bytes that a task must read from DRAM a second time, whatever the kernel.

``x / norm(x)`` reads all of ``x`` before the norm is known and needs every element again after that.  At that moment
at most what the chip can hold of it is still there; the rest comes from DRAM once more.
"""

from __future__ import annotations

from math import prod

from cupilot.gpu.spec import GpuSpec
from cupilot.records import Op, Task, TensorSpec
from cupilot.tasks.flop import tensors
from cupilot.tasks.operators import operator


def second_read_bytes(task: Task, spec: GpuSpec) -> float:
    """Bytes that come from DRAM a second time at least; zero where the graph is not understood well enough to tell."""
    found = _statistic(task)
    if found is None:
        return 0.0
    x, elements = found
    share = max(0.0, 1.0 - spec.on_chip_bytes / (elements * x.bytes / max(x.elements, 1)))
    return share * x.bytes


def _statistic(task: Task) -> tuple[TensorSpec, int] | None:
    """The tensor that is needed again, and how many of its elements share a statistic."""
    known = tensors(task)
    shape = task.outputs[0].shape
    whole = {a.name for a in task.arguments if a.tensor is not None and a.tensor.shape == shape}
    if len(task.outputs) != 1 or len(whole) != 1:
        return None
    (x,) = whole
    spread, waited = {x}, set[str]()  # made from x element by element; made from the statistic
    elements = 0
    for op in task.graph:
        about, operands = operator(op.target), set(op.operands)
        if shared := _normalized_elements(op) if operands & spread else 0:
            elements = shared
            waited.add(op.name)
        elif about.is_statistic and operands & spread:
            elements = max(elements, known[x].elements // max(op.output.elements, 1))
            waited.add(op.name)
        elif not about.is_elementwise:
            return None
        else:
            if operands & spread and op.output.shape == shape:
                spread.add(op.name)
            if operands & waited:
                waited.add(op.name)
    last = task.graph[-1].name if task.graph else ""
    again = last in waited and (last in spread or _normalized_elements(task.graph[-1]))
    return (known[x], elements) if again and elements else None


def _normalized_elements(op: Op) -> int:
    """Elements that share a statistic in a normalization that is one operator; 0 for other operators."""
    shape = op.output.shape
    match operator(op.target).normalizes_over:
        case "dim":
            dim = op.attribute("dim", -1)
            return shape[dim] if isinstance(dim, int) else 0
        case "normalized_shape":
            axes = op.attribute("normalized_shape")
            return prod(axes) if isinstance(axes, tuple) else 0
        case "group":
            groups = op.attribute("num_groups")
            return op.output.elements // (shape[0] * groups) if isinstance(groups, int) else 0
        case "instance" if op.attribute("use_input_stats") is True:
            return prod(shape[2:])
        case "batch" if op.attribute("training") is True:
            return op.output.elements // shape[1]
    return 0
