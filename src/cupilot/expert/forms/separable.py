"""Depthwise-separable convolutions of images: a filter per channel, a mix of the channels, and pointwise operators.

Covered: stride, padding and dilation of the filters, biases of both.  Not covered: several filters per channel,
operators between the two convolutions, other numbers of dimensions, inputs without a batch dimension.
"""

from __future__ import annotations

from typing import Any

from cupilot.expert.form import Form, Graph, described
from cupilot.expert.pointwise import chain
from cupilot.expert.storage import PRECISIONS
from cupilot.records import Op
from cupilot.tasks.operators import base_name

FACTS = {
    "batch": "images",
    "channels": "of the input, each with a filter of its own",
    "out_channels": "mixed from them",
    "kernel": "height and width of the filters",
    "stride": "of the filters, along height and width",
    "padding": "zeros around the input, on each side",
    "dilation": "distance of neighbouring taps",
    "in_size": "height and width of the input",
    "out_size": "height and width of the result",
    "filter_bias": "whether a number is added to each filtered channel",
    "mix_bias": "whether a number is added to each channel of the result",
}
Pair = tuple[int, int]


def read(graph: Graph) -> Form | str:
    """Templates see ``pointwise``, what follows, as C of one float ``x``."""
    ops = graph.task.graph
    if len(ops) < 2 or any(base_name(op.target) != "conv2d" for op in ops[:2]):
        return ""
    filters, mix = ops[:2]
    inputs = (*filters.operands, *mix.operands[1:])
    if mix.operands[0] != filters.name or sorted(inputs) != sorted(graph.arguments):
        return ""
    steps = graph.tail(mix.name)
    if steps is None or not graph.all_floating() or not all(map(graph.is_tensor, inputs)):
        return ""
    facts = _facts(graph, filters, mix)
    if isinstance(facts, str):
        return facts
    if graph.spec(filters.operands[0]).dtype in PRECISIONS:
        facts["precision"] = "tf32"  # it has all bits of 16-bit weights, and of what PyTorch keeps of filtered channels
    names = dict(zip(filters.operands, ("x", "filters", "filter_bias"), strict=False))
    names |= dict(zip(mix.operands[1:], ("mix", "mix_bias"), strict=False))
    size = "x".join(map(str, facts["kernel"]))
    title = described(f"Filters of {size} on each channel, then a mix of the channels", steps)
    return Form("separable", title, facts, names, {"pointwise": chain(steps, {mix.name: "x"})})


def _facts(graph: Graph, filters: Op, mix: Op) -> dict[str, Any] | str:
    source, taps = (graph.spec(name).shape for name in filters.operands[:2])
    if len(source) != 4 or graph.spec(mix.operands[1]).shape[2:] != (1, 1) or not _plain(mix):
        return ""
    channels = source[1]
    if filters.attribute("groups") != channels or taps[0] != channels or channels < 2:
        return "two convolutions are known when the first has one filter for each channel"
    if isinstance(filters.attribute("padding"), str):
        return "the padding of the filters must be given in numbers"
    return {
        "batch": source[0],
        "channels": channels,
        "out_channels": mix.output.shape[1],
        "kernel": taps[2:],
        "stride": _pair(filters.attribute("stride")),
        "padding": _pair(filters.attribute("padding")),
        "dilation": _pair(filters.attribute("dilation")),
        "in_size": source[2:],
        "out_size": mix.output.shape[2:],
        "filter_bias": len(filters.operands) == 3,
        "mix_bias": len(mix.operands) == 3,
    }


def _plain(mix: Op) -> bool:
    """Whether the second convolution looks at nothing but the channels of one place."""
    steps = _pair(mix.attribute("stride")), _pair(mix.attribute("padding") or 0)
    return mix.attribute("groups") == 1 and steps == ((1, 1), (0, 0))


def _pair(given: Any) -> Pair:
    numbers = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    first, second = numbers if len(numbers) == 2 else numbers * 2
    return int(first), int(second)
