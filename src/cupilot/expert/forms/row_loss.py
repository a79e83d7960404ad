"""Losses that take whole rows, their mean or sum over rows: cross entropy with labels, and triplet margin losses.

Covered: labels that are to be ignored, distances of the norms 1 and 2, the swap of triplets.  Not covered: weights of
classes, smoothed labels, labels that are probabilities, classes that are not the last dimension, and losses that are
not reduced.
"""

from __future__ import annotations

from cupilot.expert.form import Form, Graph, described
from cupilot.expert.pointwise import Pointwise, chain, literal
from cupilot.expert.storage import FLOATING
from cupilot.records import Op

FACTS = {
    "loss": "cross-entropy or triplet",
    "rows": "number of rows",
    "cols": "elements of a row",
    "tensors": "number of tensors that are read whole",
}
_MEAN, _SUM = 1, 2


def read(graph: Graph) -> Form | str:
    """Templates see ``whole``, the tensors that are read whole, ``numbers`` of the loss, ``mean``, and ``after``."""
    main = graph.only("cross_entropy_loss", "triplet_margin_loss")
    if main is None or main is not graph.task.graph[0] or len(graph.task.outputs) != 1:
        return ""
    if sorted(main.operands) != sorted(graph.arguments) or not all(map(graph.is_tensor, main.operands)):
        return ""
    if main.attribute("reduction") not in (_MEAN, _SUM):
        return "losses of rows are known as their mean or sum only"
    form = _cross_entropy(graph, main) if "cross" in main.target else _triplet(graph, main)
    steps = graph.tail(main.name)
    if isinstance(form, str):
        return form
    if steps is None or graph.spec(main.name).dtype not in FLOATING:
        return ""
    after: Pointwise = chain(steps, {main.name: "x"})
    code = {**form.code, "after": after, "mean": main.attribute("reduction") == _MEAN}
    kind = "Mean" if code["mean"] else "Sum"
    return Form("row_loss", described(f"{kind} over rows of the {form.title}", steps), form.facts, form.names, code)


def _cross_entropy(graph: Graph, main: Op) -> Form | str:
    logits, labels = (graph.spec(name) for name in main.operands[:2])
    plain = len(main.operands) == 2 and len(logits.shape) == 2 and logits.dtype in FLOATING
    if not plain or main.attribute("label_smoothing") or labels.dtype != "int64" or labels.shape != logits.shape[:1]:
        return "cross entropy is known of rows of logits and one label for each, without weights and smoothing"
    facts = {"loss": "cross-entropy", "rows": logits.shape[0], "cols": logits.shape[1], "tensors": 1}
    names = dict(zip(main.operands, ("logits", "labels"), strict=True))
    code = {"whole": ("logits",), "numbers": {"ignored": int(str(main.attribute("ignore_index")))}}
    return Form("row_loss", "cross entropy", facts, names, code)


def _triplet(graph: Graph, main: Op) -> Form | str:
    specs = [graph.spec(name) for name in main.operands]
    if (
        len(set(main.operands)) != 3
        or len(set(specs)) != 1
        or specs[0].dtype not in FLOATING
        or len(specs[0].shape) != 2
    ):
        return "triplet losses are known of three different tensors of one two-dimensional shape"
    if main.attribute("p") not in (1.0, 2.0):
        return "triplet losses are known with the norms 1 and 2"
    rows, cols = specs[0].shape
    names = dict(zip(main.operands, ("anchor", "positive", "negative"), strict=True))
    numbers = {
        "margin": literal(float(str(main.attribute("margin")))),
        "eps": literal(float(str(main.attribute("eps")))),
        "squares": main.attribute("p") == 2.0,
        "swap": bool(main.attribute("swap")),
    }
    code = {"whole": tuple(names.values()), "numbers": numbers}
    facts = {"loss": "triplet", "rows": rows, "cols": cols, "tensors": 3}
    return Form("row_loss", "triplet margin loss", facts, names, code)
