"""A chain of pointwise operators on one tensor."""

from __future__ import annotations

from cupilot.expert.form import Form, Graph, described
from cupilot.expert.pointwise import chain

FACTS = {"elements": "of the tensor"}


def read(graph: Graph) -> Form | str:
    """Templates see ``pointwise``, the chain as C of one float ``x``."""
    (first, *more) = graph.task.arguments
    if first.tensor is None or more:
        return ""
    steps = graph.tail(first.name)
    if not steps or not graph.all_float32():
        return ""
    title = f"Chain of pointwise operators on one tensor: {described('', steps)}"
    code = {"pointwise": chain(steps, {first.name: "x"})}
    return Form("pointwise", title, {"elements": first.tensor.elements}, {first.name: "x"}, code)
