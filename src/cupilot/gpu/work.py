"""How much arithmetic a task asks for, read off its graph of operators.

An estimate for the roofline: matrix products and convolutions are exact, everything else is a
few operations per element.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from cupilot.records import Op, Task, TensorSpec

PRODUCTS = frozenset({"mm", "bmm", "matmul", "addmm", "baddbmm", "linear", "mv", "dot", "einsum"})
VIEWS = frozenset({
    "view", "reshape", "_unsafe_view", "permute", "transpose", "t", "numpy_T", "squeeze", "unsqueeze", "expand",
    "flatten", "unflatten", "slice", "select", "alias", "detach", "contiguous", "narrow", "split", "chunk",
})  # fmt: skip
POINTWISE = frozenset({
    "relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish", "sigmoid", "log_sigmoid", "tanh",
    "hardtanh", "hardsigmoid", "hardswish", "softplus", "softsign", "softshrink", "add", "sub", "rsub", "mul", "div",
    "neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "pow", "square", "sin", "cos", "erf", "clamp",
    "clamp_min", "clamp_max", "maximum", "minimum", "where", "clone", "to", "_to_copy",
})  # fmt: skip
REDUCTIONS = frozenset({"sum", "mean", "amax", "amin", "max", "min", "prod", "argmax", "argmin"})
SOFTMAX = frozenset({"softmax", "_softmax", "log_softmax", "_log_softmax"})
CONVOLUTIONS = frozenset({"convolution", "_convolution", "conv1d", "conv2d", "conv3d"})
TRANSPOSED = frozenset({"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"})
ATTENTION = "scaled_dot_product_attention"
DENSE = frozenset({"relu", "gelu", "silu", "sigmoid", "tanh", "add", "mul", "layer_norm", "softmax", "clone", "to"})
WHOLE_VIEWS = frozenset({"view", "reshape", "permute", "transpose", "t", "numpy_T", "squeeze", "unsqueeze", "flatten"})
"""What leaves a dense operand dense, computing or not; after all else (a diagonal, a mask) fewer products may do."""

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


def _product_flop(op: Op, name: str, operands: Sequence[TensorSpec]) -> float:
    """Two operations for each result and inner step; of an einsum, for each combination of its letters."""
    if name == "einsum":
        terms = str(op.attribute("equation", "")).replace(" ", "").split("->")[0].split(",")
        named = [
            pair for term, spec in zip(terms, operands, strict=False) for pair in zip(term, spec.shape, strict=False)
        ]
        return 2.0 * prod(dict(named).values())
    left = operands[1] if name in ("addmm", "baddbmm") else operands[0]
    return 2.0 * op.output.elements * left.shape[-1]


def op_flop(op: Op, known: dict[str, TensorSpec]) -> float:
    """Floating-point operations of one operator."""
    name = base_name(op.target)
    operands = [known[o] for o in op.operands if o in known]
    if name in VIEWS or not operands:
        return 0.0
    if name in PRODUCTS:
        return _product_flop(op, name, operands)
    if name in CONVOLUTIONS:
        transposed = name.endswith("convolution") and bool(op.attribute("transposed", False))
        return 2.0 * (operands[0] if transposed else op.output).elements * prod(operands[1].shape[1:])
    if name in TRANSPOSED:
        return 2.0 * operands[0].elements * prod(operands[1].shape[1:])
    if name == ATTENTION:
        queries, keys = operands[:2]
        return 2.0 * keys.shape[-2] * (queries.elements + op.output.elements)
    elements = max(op.output.elements, *(o.elements for o in operands))
    return float(elements * (SOFTMAX_FLOP_PER_ELEMENT if name in SOFTMAX else 1))


def task_flop(task: Task) -> float:
    """Floating-point operations of the whole graph."""
    known = tensors(task)
    return sum(op_flop(op, known) for op in task.graph)


def dense_products(task: Task) -> tuple[tuple[Op, float], ...]:
    """Matrix products and convolutions of whole operands whose results go on whole, with their operations.

    Where an operand has known zeros (a diagonal, a mask) or only a part of a product goes on (a triangle of it, say),
    fewer operations do, so such products are not among them.
    """
    known = tensors(task)
    dense = {argument.name for argument in task.arguments}
    products = PRODUCTS | CONVOLUTIONS | TRANSPOSED | {ATTENTION}
    found = []
    for op in task.graph:
        name = base_name(op.target)
        if not all(operand in dense for operand in op.operands):
            continue
        if name in DENSE | WHOLE_VIEWS:
            dense.add(op.name)
        elif name in products and _goes_on_whole(task, op.name, products):
            dense.add(op.name)
            found.append((op, op_flop(op, known)))
    return tuple(found)


def _goes_on_whole(task: Task, name: str, products: frozenset[str]) -> bool:
    return all(base_name(op.target) in DENSE | WHOLE_VIEWS | products for op in task.graph if name in op.operands)


def sums_products(task: Task) -> bool:
    """Whether results are sums of products, in which large terms may cancel."""
    return any(base_name(op.target) in PRODUCTS | CONVOLUTIONS | TRANSPOSED | {ATTENTION} for op in task.graph)


def needed_flop(task: Task) -> float:
    """Operations that cannot be saved without a cleverer algorithm: those of dense products."""
    return sum(flop for _, flop in dense_products(task))
