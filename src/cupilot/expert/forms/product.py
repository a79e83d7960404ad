"""Products of two matrices, and what is done to the result pointwise."""

from __future__ import annotations

from cupilot.expert.form import Form, Graph, described
from cupilot.expert.pointwise import chain

FACTS = {"m": "rows of the result", "n": "columns of the result", "k": "length of the sums"}


def read(graph: Graph) -> Form | str:
    """Templates see ``pointwise``, what follows, as C of one float ``x``."""
    main = graph.only("mm", "matmul")
    if main is None or len(graph.arguments) != 2 or not all(map(graph.is_tensor, main.operands)):
        return ""
    left, right = (graph.spec(name).shape for name in main.operands)
    if len(left) != 2 or len(right) != 2:
        return "a product is known of two 2-D tensors only"
    steps = graph.tail(main.name)
    if steps is None or not graph.all_float32():
        return ""
    facts = {"m": left[0], "n": right[1], "k": left[1]}
    names = dict(zip(main.operands, ("a", "b"), strict=True))
    title = described("Product of two matrices in single precision", steps)
    return Form("product", title, facts, names, {"pointwise": chain(steps, {main.name: "x"})})
