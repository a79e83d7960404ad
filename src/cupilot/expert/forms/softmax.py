"""Softmax over the last dimension, and what is done to it pointwise."""

from __future__ import annotations

from cupilot.expert.form import Form, Graph, axis, described
from cupilot.expert.pointwise import chain

FACTS = {"rows": "number of rows", "cols": "elements of a row"}


def read(graph: Graph) -> Form | str:
    """Templates see ``pointwise``, what follows, as C of one float ``x``."""
    main = graph.only("softmax")
    if main is None or len(graph.arguments) != 1 or not graph.is_tensor(main.operands[0]):
        return ""
    shape = main.output.shape
    if axis(main.attribute("dim"), len(shape)) != len(shape) - 1:
        return "softmax is known over the last dimension only"
    if main.attribute("dtype") not in (None, "float32"):
        return "softmax with a conversion of the element type is not known"
    steps = graph.tail(main.name)
    if steps is None or not graph.all_float32():
        return ""
    facts = {"rows": main.output.elements // max(shape[-1], 1), "cols": shape[-1]}
    title = described("Softmax over the last dimension", steps)
    return Form("softmax", title, facts, {main.operands[0]: "x"}, {"pointwise": chain(steps, {main.name: "x"})})
