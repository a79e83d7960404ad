"""How much arithmetic a task asks for, read off its graph of operators.

An estimate for the roofline: matrix products and convolutions are exact, everything else is a
few operations per element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from cupilot.records import Op, Task, TensorSpec
from cupilot.tasks.operators import operator


def tensors(task: Task) -> dict[str, TensorSpec]:
    """Every tensor of the graph by name: arguments and results of operators."""
    named = {a.name: a.tensor for a in task.arguments if a.tensor is not None}
    return named | {op.name: op.output for op in task.graph}


def _product(op: Op, operands: Sequence[TensorSpec]) -> float:
    """Two operations for each result and inner step."""
    left = operands[1] if operator(op.target).bias_first else operands[0]
    return 2.0 * op.output.elements * left.shape[-1]


def _einsum(op: Op, operands: Sequence[TensorSpec]) -> float:
    """Two operations for each combination of the letters."""
    terms = str(op.attribute("equation", "")).replace(" ", "").split("->")[0].split(",")
    named = [pair for term, spec in zip(terms, operands, strict=False) for pair in zip(term, spec.shape, strict=False)]
    return 2.0 * prod(dict(named).values())


def _convolution(op: Op, operands: Sequence[TensorSpec]) -> float:
    if op.attribute("transposed", False):
        return _transposed_convolution(op, operands)
    return 2.0 * op.output.elements * prod(operands[1].shape[1:])


def _transposed_convolution(op: Op, operands: Sequence[TensorSpec]) -> float:
    return 2.0 * operands[0].elements * prod(operands[1].shape[1:])


def _attention(op: Op, operands: Sequence[TensorSpec]) -> float:
    queries, keys = operands[:2]
    return 2.0 * keys.shape[-2] * (queries.elements + op.output.elements)


RULES: Mapping[str, Callable[[Op, Sequence[TensorSpec]], float]] = {
    "product": _product,
    "einsum": _einsum,
    "convolution": _convolution,
    "transposed convolution": _transposed_convolution,
    "attention": _attention,
}


def op_flop(op: Op, known: dict[str, TensorSpec]) -> float:
    """Floating-point operations of one operator."""
    rule = operator(op.target).flop
    operands = [known[o] for o in op.operands if o in known]
    if not operands:
        return 0.0
    if isinstance(rule, str):
        return RULES[rule](op, operands)
    return float(rule * max(op.output.elements, *(o.elements for o in operands)))


def task_flop(task: Task) -> float:
    """Floating-point operations of the whole graph."""
    known = tensors(task)
    return sum(op_flop(op, known) for op in task.graph)


def dense_products(task: Task) -> tuple[tuple[Op, float], ...]:
    """Matrix products and convolutions of whole operands whose results are used whole, with their operations.

    Where an operand has known zeros (a diagonal, a mask) or only a part of a product is used (a triangle of it, say),
    fewer operations do, so such products are not among them.
    """
    known = tensors(task)
    dense = {argument.name for argument in task.arguments}
    found = []
    for op in task.graph:
        about = operator(op.target)
        if not all(operand in dense for operand in op.operands):
            continue
        if about.dense:
            dense.add(op.name)
        elif about.sums_products and _is_used_whole(task, op.name):
            dense.add(op.name)
            found.append((op, op_flop(op, known)))
    return tuple(found)


def _is_used_whole(task: Task, name: str) -> bool:
    readers = [operator(op.target) for op in task.graph if name in op.operands]
    return all(about.dense or about.sums_products for about in readers)


def sums_products(task: Task) -> bool:
    """Whether results are sums of products, in which large terms may cancel."""
    return any(operator(op.target).sums_products for op in task.graph)


def needed_flop(task: Task) -> float:
    """Operations that cannot be saved without a cleverer algorithm: those of dense products."""
    return sum(flop for _, flop in dense_products(task))
