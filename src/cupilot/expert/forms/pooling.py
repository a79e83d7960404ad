"""Maxima and means over windows of one to three dimensions, and what is done to the result pointwise.

Every pooling is seen as a three-dimensional one, whose missing leading dimensions are 1.  Covered: stride, padding,
dilation of maxima, means with and without the padding, a divisor of one's own, inputs with and without a batch.
Not covered: ``ceil_mode``, positions of the maxima, and sizes of zero.
"""

from __future__ import annotations

from math import prod
from typing import Any

from cupilot.expert.form import Form, Graph, described
from cupilot.expert.pointwise import chain
from cupilot.records import Op
from cupilot.tasks.operators import base_name

FACTS = {
    "dims": "spatial dimensions of the operator: 1, 2 or 3; every triple below is (depth, height, width)",
    "operation": "max or mean",
    "planes": "images, channels included",
    "kernel": "size of the window along each dimension",
    "stride": "step of the window",
    "padding": "rim around the input, on each side",
    "dilation": "distance of neighbouring elements of a window",
    "in_size": "spatial sizes of the input",
    "out_size": "spatial sizes of the result",
    "divisor": "of a mean; 0 when only elements inside the input count",
}
_MAXIMA = {f"max_pool{dims}d": dims for dims in (1, 2, 3)}
_MEANS = {f"avg_pool{dims}d": dims for dims in (1, 2, 3)}
Triple = tuple[int, int, int]


def read(graph: Graph) -> Form | str:
    """Templates see ``pointwise``, what follows, as C of one float ``x``."""
    if graph.only(*(f"{name}_with_indices" for name in _MAXIMA)) is not None:
        return "pooling is not known with the positions of the maxima"
    main = graph.only(*_MAXIMA, *_MEANS)
    if main is None or main is not graph.task.graph[0] or main.operands != tuple(graph.arguments):
        return ""
    steps = graph.tail(main.name)
    if steps is None or not graph.all_floating():
        return ""
    facts = _facts(main, graph.spec(main.operands[0]).shape)
    if isinstance(facts, str):
        return facts
    words = "Maxima" if facts["operation"] == "max" else "Means"
    title = described(f"{words} over {'x'.join(map(str, facts['kernel'][-facts['dims'] :]))} windows", steps)
    return Form("pooling", title, facts, {main.operands[0]: "x"}, {"pointwise": chain(steps, {main.name: "x"})})


def _facts(main: Op, shape: tuple[int, ...]) -> dict[str, Any] | str:
    name, result = base_name(main.target), main.output.shape
    dims = {**_MAXIMA, **_MEANS}[name]
    if main.attribute("ceil_mode"):
        return "pooling is not known with ceil_mode"
    if not prod(shape) or not prod(result):
        return "pooling of nothing is not known"
    kernel = _triple(main.attribute("kernel_size"), dims, 1)
    include, override = main.attribute("count_include_pad", True), main.attribute("divisor_override")
    return {
        "dims": dims,
        "operation": "max" if name in _MAXIMA else "mean",
        "planes": prod(shape[:-dims]),
        "kernel": kernel,
        "stride": _triple(main.attribute("stride") or main.attribute("kernel_size"), dims, 1),
        "padding": _triple(main.attribute("padding"), dims, 0),
        "dilation": _triple(main.attribute("dilation"), dims, 1),
        "in_size": _triple(shape[-dims:], dims, 1),
        "out_size": _triple(result[-dims:], dims, 1),
        "divisor": override or (prod(kernel) if include else 0),
    }


def _triple(given: Any, dims: int, missing: int) -> Triple:
    """A number per dimension as ATen has it: one for each, one for all, or none."""
    numbers = [int(number) for number in given] if isinstance(given, (tuple, list)) else []
    numbers = numbers or [missing if given is None or isinstance(given, (tuple, list)) else int(given)]
    if len(numbers) == 1:
        numbers *= dims
    first, second, third = [missing] * (3 - dims) + numbers
    return first, second, third
