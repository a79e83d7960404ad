"""Softmax and its logarithm over the last dimension, and what is done to it pointwise.

Other dimensions are norms: their elements lie apart.
"""

from __future__ import annotations

from cupilot.expert.form import Form, Graph, axis, described
from cupilot.expert.forms._stages import FACTS as STAGED
from cupilot.expert.forms._stages import Layout, exponentials, followed
from cupilot.expert.pointwise import chain
from cupilot.expert.storage import FLOATING
from cupilot.tasks.operators import base_name

FACTS = STAGED | {"log": "whether the logarithm is wanted"}


def read(graph: Graph) -> Form | str:
    """Templates see ``pointwise``, what follows, as C of one float ``x``, and what `_stages` says."""
    main = graph.only("softmax", "log_softmax")
    if main is None or len(graph.arguments) != 1 or not graph.is_tensor(main.operands[0]):
        return ""
    shape, log = main.output.shape, base_name(main.target) == "log_softmax"
    if axis(main.attribute("dim"), len(shape)) != len(shape) - 1:
        return ""
    if main.attribute("dtype") not in (None, *FLOATING):
        return "softmax with a conversion of the element type is not known"
    steps = graph.tail(main.name)
    if steps is None or not graph.all_floating() or not shape:
        return ""
    layout = Layout(len(shape) - 1, len(shape) - 1)
    facts = {**layout.facts(shape), "kind": "softmax", "stages": 2, "weights": 0, "log": log}
    title = described(f"{'Logarithm of softmax' if log else 'Softmax'} over the last dimension", steps)
    final = followed("x - s0 - s1" if log else "expf(x - s0) * s1", main.name, steps)
    pointwise = chain(steps, {main.name: "x"})
    code = {"pointwise": pointwise, "steps": exponentials(log), "final": final, "layout": layout, "spreads": ()}
    return Form("softmax", title, facts, {main.operands[0]: "x"}, code)
