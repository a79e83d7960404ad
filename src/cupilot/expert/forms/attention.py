"""Attention: softmax(scale * queries keys^T) values, as one operator or written out, and what is done to it pointwise.

Covered: queries, keys and values with the same leading dimensions, in float32, float16 or bfloat16, each length and
head dimension its own; masks of causal attention.  Not covered: other masks, dropout, heads shared by several queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from cupilot.expert.form import Form, Graph, axis, described
from cupilot.expert.pointwise import chain, literal
from cupilot.records import Op, TensorSpec
from cupilot.tasks.operators import base_name

FACTS = {
    "dtype": "of all tensors: float32, float16 or bfloat16",
    "heads": "number of independent problems: the product of the leading dimensions",
    "queries": "number of queries of each",
    "keys": "number of keys and values of each",
    "dim": "length of a query and of a key",
    "value_dim": "length of a value, and of a result",
    "rank": "of all tensors",
    "rounded_weights": "whether PyTorch rounds the weights to the tensors' type before it multiplies them with values",
    "causal": "whether a query sees only the keys up to its own place",
}
OPERATOR = "scaled_dot_product_attention"
PRODUCTS = ("matmul", "bmm", "mm")
TYPES = ("float32", "float16", "bfloat16")


def read(graph: Graph) -> Form | str:
    """Templates see ``scale``, a C expression of the int64 ``dim``, and ``pointwise``, what follows, of a float ``x``.

    ``zero_rows``: where all scores are -inf the operator gives zeros, while softmax written out gives NaN.
    """
    found = _operator(graph) if graph.only(OPERATOR) else _written_out(graph)
    if isinstance(found, str):
        return found
    main, names, scale, causal = found
    if len(set(names)) != 3 or len(graph.arguments) != 3 or not all(map(graph.is_tensor, names)):
        return "attention is known of three tensors that are the task's arguments"
    queries, keys, values = map(graph.spec, names)
    wrong = _unfitting(queries, keys, values)
    if wrong:
        return wrong
    steps = graph.tail(main.name)
    if steps is None or len(graph.task.outputs) != 1:
        return "attention is known with pointwise operators behind it only"
    if graph.last.output.dtype != queries.dtype:
        return "attention is known with a result in the type of the queries only"
    dim = queries.shape[-1]
    # its fused operator does, which takes four dimensions and heads of one length; otherwise it computes in float32
    fused = len(queries.shape) == 4 and dim == values.shape[-1]
    facts = {
        "dtype": queries.dtype,
        "heads": math.prod(queries.shape[:-2]),
        "queries": queries.shape[-2],
        "keys": keys.shape[-2],
        "dim": dim,
        "value_dim": values.shape[-1],
        "rank": len(queries.shape),
        "rounded_weights": base_name(main.target) != OPERATOR or fused,
        "causal": causal,
    }
    title = described(f"{'Causal attention' if causal else 'Attention'} in {queries.dtype}", steps)
    code = {
        "scale": _scale(scale, dim),
        "pointwise": chain(steps, {main.name: "x"}),
        "zero_rows": base_name(main.target) == OPERATOR,
    }
    return Form("attention", title, facts, dict(zip(names, ("q", "k", "v"), strict=True)), code)


Found = tuple[Op, tuple[str, str, str], float | None, bool]
"""The last operator, the names of queries, keys and values, the scale unless it is the usual one, and causal or not."""


def _operator(graph: Graph) -> Found | str:
    main = graph.only(OPERATOR)
    assert main is not None
    if len(main.operands) != 3 or main.attribute("attn_mask") is not None:
        return "attention with a mask tensor is not known"
    if main.attribute("dropout_p"):
        return "attention with dropout is not known"
    if main.attribute("enable_gqa"):
        return "attention with heads that share keys is not known"
    query, key, value = main.operands
    scale = main.attribute("scale")
    causal = bool(main.attribute("is_causal"))
    return main, (query, key, value), None if scale is None else _number(scale), causal


def _written_out(graph: Graph) -> Found | str:
    """softmax((q k^T) * number) v, the number also in front of q or k^T, or a divisor."""
    softmax = graph.only("softmax")
    products = [op for op in graph.task.graph if base_name(op.target) in PRODUCTS]
    if softmax is None or len(products) != 2:
        return ""
    first, second = products
    scores, scale = _unscaled(graph, softmax.operands[0])
    if scores != first.name or second.operands[0] != softmax.name:
        return ""
    query, front = _unscaled(graph, first.operands[0])
    turned, behind = _unscaled(graph, first.operands[1])
    key, inside = _unscaled(graph, _transposed(graph, turned))
    wrong = "" if key else "attention is known with keys that are transposed in the product only"
    wrong = wrong or _odd_softmax(softmax)
    tail = {op.name for op in graph.tail(second.name) or ()}
    if set(graph.ops) - tail != _made_of(graph, second.name):
        wrong = wrong or "attention is known as two products with a softmax between them only"
    return wrong or (second, (query, key, second.operands[1]), scale * front * behind * inside, False)


def _odd_softmax(op: Op) -> str:
    rank = len(op.output.shape)
    if axis(op.attribute("dim"), rank) != rank - 1:
        return "attention is known with softmax over the keys only"
    if op.attribute("dtype") not in (None, op.output.dtype):
        return "attention with a conversion of the element type is not known"
    return ""


def _unscaled(graph: Graph, name: str) -> tuple[str, float]:
    """The tensor in front of multiplications and divisions by numbers, and the factor they make together."""
    factor = 1.0
    ops: Mapping[str, Op] = graph.ops
    while name in ops and base_name(ops[name].target) in ("mul", "div") and len(ops[name].operands) == 1:
        op = ops[name]
        number = op.attribute("other")
        if not isinstance(number, (int, float)) or op.attribute("rounding_mode") is not None:
            break
        factor = factor * number if base_name(op.target) == "mul" else factor / number
        name = op.operands[0]
    return name, factor


def _transposed(graph: Graph, name: str) -> str:
    """The tensor whose last two dimensions an operator exchanges; nothing where it does something else."""
    op = graph.ops.get(name)
    if op is None or len(op.operands) != 1:
        return ""
    rank = len(op.output.shape)
    kind = base_name(op.target)
    if kind == "transpose":
        swapped = {axis(op.attribute("dim0"), rank), axis(op.attribute("dim1"), rank)} == {rank - 2, rank - 1}
    elif kind == "permute":
        dims = op.attribute("dims")
        places = [axis(place, rank) for place in dims] if isinstance(dims, (list, tuple)) else []
        swapped = places == [*range(rank - 2), rank - 1, rank - 2]
    else:
        swapped = kind in ("mT", "t", "numpy_T") and (kind == "mT" or rank == 2)
    return op.operands[0] if swapped else ""


def _made_of(graph: Graph, last: str) -> set[str]:
    """The operators that a result is made of."""
    found: set[str] = set()
    waiting = [last]
    while waiting:
        name = waiting.pop()
        if name in graph.ops and name not in found:
            found.add(name)
            waiting += graph.ops[name].operands
    return found


def _unfitting(queries: TensorSpec, keys: TensorSpec, values: TensorSpec) -> str:
    if queries.dtype not in TYPES or {keys.dtype, values.dtype} != {queries.dtype}:
        return "attention is known in float32, float16 and bfloat16, one type for all tensors"
    rank = len(queries.shape)
    if rank < 2 or not queries.shape[:-2] == keys.shape[:-2] == values.shape[:-2]:
        return "attention is known of tensors with the same leading dimensions"
    if keys.shape[-1] != queries.shape[-1] or values.shape[-2] != keys.shape[-2]:
        return "attention is known of one key for each value, as long as the queries"
    if 0 in (*queries.shape, *keys.shape, *values.shape):
        return "attention is known of tensors with elements only"
    return ""


def _scale(given: float | None, dim: int) -> str:
    """As C.  A number that is the usual scale for this head dimension is taken for it, so that it follows the shape."""
    if given is None or math.isclose(given, dim**-0.5, rel_tol=1e-6):
        return "float(1.0 / std::sqrt(double(dim)))"
    return literal(given)


def _number(value: object) -> float:
    assert isinstance(value, (int, float))
    return float(value)
