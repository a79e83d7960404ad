"""Products of a matrix and a vector: sums like others, of elements that are multiplied by the vector's.

A product of two matrices of which one has a single row or column counts as well.
"""

from __future__ import annotations

from cupilot.expert.form import Form, Graph, described
from cupilot.expert.forms import reduction
from cupilot.expert.forms._fused import Operand, behind, complete
from cupilot.expert.pointwise import Pointwise, chain
from cupilot.expert.storage import C_TYPES

FACTS = reduction.FACTS


def read(graph: Graph) -> Form | str:
    """A `reduction` of ``x``, the matrix, with ``x1``, the vector."""
    main = graph.only("mm", "matmul", "mv")
    if (
        main is None
        or not graph.all_floating()
        or len(main.operands) != 2
        or not all(map(graph.is_tensor, main.operands))
    ):
        return ""
    left, right = (graph.spec(name).shape for name in main.operands)
    if len(left) == 2 and (len(right) == 1 or (len(right) == 2 and right[1] == 1)):
        matrix, vector = main.operands
        facts = {"outer": left[0], "length": left[1], "inner": 1, "rows": True}
        rows, length, inner = "x.size(0)", "x.size(1)", "1"
        shape = "{x.size(0), 1}" if len(right) == 2 else "{x.size(0)}"
    elif len(right) == 2 and (len(left) == 1 or (len(left) == 2 and left[0] == 1)):
        vector, matrix = main.operands
        facts = {"outer": 1, "length": right[0], "inner": right[1], "rows": False}
        rows, length, inner = "1", "x.size(0)", "x.size(1)"
        shape = "{1, x.size(1)}" if len(left) == 2 else "{x.size(1)}"
    else:
        return ""
    steps = behind(graph, main.name)
    used = [main.name, *(op.name for op in steps or ())]
    if steps is None or matrix == vector or not complete(graph, used, main.operands) or 0 in (*left, *right):
        return ""
    code = {
        "operands": (
            Operand("x", C_TYPES[graph.spec(matrix).dtype]),
            Operand("x1", C_TYPES[graph.spec(vector).dtype], line=True),
        ),
        "before": Pointwise(("const float v1 = x * x1;",), "v1", "x * x1"),
        "pointwise": chain(steps, {main.name: "x"}),
        "sizes": {"outer": rows, "length": length, "inner": inner, "shape": shape},
        "rank": 2,
    }
    title = described("Product of a matrix and a vector", steps)
    return Form("reduction", title, {"operation": "sum", "vector": True, **facts}, {matrix: "x", vector: "x1"}, code)
