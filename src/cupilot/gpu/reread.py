"""What a task must read twice: elements whose results wait for a statistic of more data than a GPU can hold.

``x / norm(x)`` reads all of ``x`` before the norm is known and needs every element again after that.  At that moment at
most what the chip can hold of it is still there; the rest comes from DRAM a second time, whatever the kernel.
"""

from __future__ import annotations

from math import prod

from cupilot.gpu.spec import GpuSpec
from cupilot.gpu.work import POINTWISE, REDUCTIONS, VIEWS, base_name, tensors
from cupilot.records import Op, Task, TensorSpec

STATISTICS = REDUCTIONS | {"linalg_vector_norm", "norm", "frobenius_norm"}
ELEMENTWISE = POINTWISE | VIEWS | {"expand_as"}
REGISTER_BYTES = 4


def chip_bytes(spec: GpuSpec) -> int:
    """What registers, L1 and shared memory, and L2 hold together."""
    return spec.l2_bytes + spec.sms * (spec.registers_per_sm * REGISTER_BYTES + spec.l1_bytes_per_sm)


def reread_bytes(task: Task, spec: GpuSpec) -> float:
    """Bytes that come from DRAM a second time at least; zero where the graph is not read well enough to tell."""
    found = _statistic(task)
    if found is None:
        return 0.0
    x, elements = found
    share = max(0.0, 1.0 - chip_bytes(spec) / (elements * x.bytes / max(x.elements, 1)))
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
        name, operands = base_name(op.target), set(op.operands)
        if shared := _library(op, name) if operands & spread else 0:
            elements = shared
            waited.add(op.name)
        elif name in STATISTICS and operands & spread:
            elements = max(elements, known[x].elements // max(op.output.elements, 1))
            waited.add(op.name)
        elif name not in ELEMENTWISE:
            return None
        else:
            if operands & spread and op.output.shape == shape:
                spread.add(op.name)
            if operands & waited:
                waited.add(op.name)
    last = task.graph[-1].name if task.graph else ""
    again = last in waited and (last in spread or _library(task.graph[-1], base_name(task.graph[-1].target)))
    return (known[x], elements) if again and elements else None


def _library(op: Op, name: str) -> int:
    """Elements that share a statistic in a norm that is one operator; 0 for other operators."""
    shape = op.output.shape
    match name:
        case "softmax" | "log_softmax":
            dim = op.attribute("dim", -1)
            return shape[dim] if isinstance(dim, int) else 0
        case "layer_norm" | "rms_norm":
            axes = op.attribute("normalized_shape")
            return prod(axes) if isinstance(axes, tuple) else 0
        case "group_norm":
            groups = op.attribute("num_groups")
            return op.output.elements // (shape[0] * groups) if isinstance(groups, int) else 0
        case "instance_norm" if op.attribute("use_input_stats") is True:
            return prod(shape[2:])
        case "batch_norm" if op.attribute("training") is True:
            return op.output.elements // shape[1]
    return 0
