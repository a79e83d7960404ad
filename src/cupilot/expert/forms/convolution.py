"""Convolutions and transposed convolutions of one to three dimensions, and what is done to the result pointwise.

Every convolution is seen as a three-dimensional one, whose missing leading dimensions are 1.  Covered: stride, padding
(also ``same`` and ``valid``), dilation, groups, padding of the output, bias.  Not covered: inputs without a batch
dimension, dimensions of size zero, and padding with anything but zeros, which is an operator of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod
from typing import Any

from cupilot.expert.form import Form, Graph, described
from cupilot.expert.pointwise import chain
from cupilot.expert.storage import PRECISIONS
from cupilot.records import Op

FACTS = {
    "dims": "spatial dimensions of the operator: 1, 2 or 3; every triple below is (depth, height, width)",
    "batch": "images",
    "groups": "groups of channels that do not mix",
    "in_channels": "of the input, all groups together",
    "out_channels": "of the result, all groups together",
    "kernel": "taps along each dimension",
    "stride": "step of the window along the result (of the result along the input when transposed)",
    "padding": "zeros before the input; when transposed, what is cut off from the start of the result",
    "padding_end": "the same at the end of each dimension",
    "dilation": "distance of neighbouring taps",
    "output_padding": "what a transposed convolution adds at the end of each dimension of the result",
    "transposed": "whether inputs are spread over the result",
    "in_size": "spatial sizes of the input",
    "out_size": "spatial sizes of the result",
    "has_bias": "whether a number is added per output channel",
    "depthwise": "whether every input channel is a group of its own",
    "taps": "of the whole window",
    "pixels": "results per output channel, all images together",
    "depth": "length of the sums: input channels of a group times taps",
    "stored": "whether inputs and weights are 16-bit numbers of one type, which tensor cores take as they are",
}
_PLAIN = {"conv1d": 1, "conv2d": 2, "conv3d": 3}
_TRANSPOSED = {"conv_transpose1d": 1, "conv_transpose2d": 2, "conv_transpose3d": 3}
Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Axis:
    """One dimension as a convolution of phases, each without holes.

    The places p, p + n, p + 2n, ... of the result, n being the number of phases, are phase p: (taps, first, start).
    The j-th of its taps is number first + j * tap_step, and for the q-th place it reads the input at
    q * move + start + j * next.  Only a transposed convolution with a stride has more than one phase.
    """

    name: str
    phases: tuple[Triple, ...]
    tap_step: int
    move: int
    next: int


def read(graph: Graph) -> Form | str:
    """Templates see ``pointwise``, what follows, as C of one float ``x``, and ``axes``, an `Axis` each."""
    main = graph.only(*_PLAIN, *_TRANSPOSED)
    if main is None or main is not graph.task.graph[0]:
        return ""
    if sorted(main.operands) != sorted(graph.arguments) or not all(map(graph.is_tensor, main.operands)):
        return ""
    facts = _facts(graph, main)
    if isinstance(facts, str):
        return facts
    steps = graph.tail(main.name)
    if steps is None or not graph.all_floating():
        return ""
    types = {graph.spec(name).dtype for name in main.operands[:2]}
    stored = PRECISIONS.get(types.pop(), "") if len(types) == 1 else ""
    facts |= {"stored": bool(stored)} | ({"precision": stored} if stored else {})
    names = dict(zip(main.operands, ("x", "weight", "bias"), strict=False))
    title = described(_title(facts), steps)
    axes = tuple(_axis(name, at, facts) for at, name in enumerate("DHW"))
    return Form("convolution", title, facts, names, {"pointwise": chain(steps, {main.name: "x"}), "axes": axes})


def _axis(name: str, at: int, facts: dict[str, Any]) -> Axis:
    kernel, stride, padding, dilation = (facts[fact][at] for fact in ("kernel", "stride", "padding", "dilation"))
    if not facts["transposed"]:
        return Axis(name, ((kernel, 0, -padding),), 1, stride, dilation)
    common = gcd(stride, dilation)
    phases: list[Triple] = []
    for place in range(stride):
        # a tap meets this place if it lies a multiple of the stride away from it
        taps = [tap for tap in range(kernel) if (place + padding - tap * dilation) % stride == 0]
        first = taps[0] if taps else 0
        phases.append((len(taps), first, (place + padding - first * dilation) // stride))
    return Axis(name, tuple(phases), stride // common, 1, -dilation // common)


def _facts(graph: Graph, main: Op) -> dict[str, Any] | str:
    name = main.target.split(".")[1]
    transposed = name in _TRANSPOSED
    dims = {**_PLAIN, **_TRANSPOSED}[name]
    source, weight = (graph.spec(operand).shape for operand in main.operands[:2])
    if len(source) != dims + 2:
        return "convolutions are known of inputs with a batch dimension only"
    groups = int(_number(main.attribute("groups"), 1))
    kernel, stride, dilation = (_triple(given, dims) for given in (weight[2:], *_steps(main)))
    cut = _padding(main, dims, kernel, dilation)
    facts: dict[str, Any] = {
        "dims": dims,
        "batch": source[0],
        "groups": groups,
        "in_channels": source[1],
        "out_channels": main.output.shape[1],
        "kernel": kernel,
        "stride": stride,
        "padding": cut[0],
        "padding_end": cut[1],
        "dilation": dilation,
        "output_padding": _triple(main.attribute("output_padding"), dims, 0),
        "transposed": transposed,
        "in_size": _triple(source[2:], dims),
        "out_size": _triple(main.output.shape[2:], dims),
        "has_bias": len(main.operands) == 3,
        "depthwise": groups == source[1] and groups > 1,
        "taps": prod(kernel),
        "pixels": source[0] * prod(main.output.shape[2:]),
        "depth": source[1] // groups * prod(kernel),
    }
    return facts if prod(source) and main.output.elements else "a convolution of nothing is not known"


def _steps(main: Op) -> tuple[Any, Any]:
    return main.attribute("stride"), main.attribute("dilation")


def _padding(main: Op, dims: int, kernel: Triple, dilation: Triple) -> tuple[Triple, Triple]:
    """Zeros before and after each dimension; ``same`` puts the odd one behind."""
    given = main.attribute("padding")
    if given == "same":
        total = [tap_step * (taps - 1) for taps, tap_step in zip(kernel, dilation, strict=True)]
        return _triple([each // 2 for each in total], 3), _triple([each - each // 2 for each in total], 3)
    before = _triple(None if given == "valid" else given, dims, 0)
    return before, before


def _triple(given: Any, dims: int, missing: int = 1) -> Triple:
    """A number per dimension as ATen has it: one for each, one for all, or none."""
    numbers = [int(number) for number in given] if isinstance(given, (tuple, list)) else []
    numbers = numbers or [_number(given, missing)]
    if len(numbers) == 1:
        numbers *= dims
    first, second, third = [missing] * (3 - dims) + numbers
    return first, second, third


def _number(given: Any, default: int) -> int:
    return default if given is None or isinstance(given, (str, tuple, list)) else int(given)


def _title(facts: dict[str, Any]) -> str:
    words = ["Transposed convolution" if facts["transposed"] else "Convolution", f"in {facts['dims']}-D"]
    words += [f"in {facts['groups']} groups"] if facts["groups"] > 1 else []
    words += ["with bias"] if facts["has_bias"] else []
    return " ".join([*words, "in single precision"])
