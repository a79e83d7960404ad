"""The module's ATen graph as `Op` records, from ``torch.export``.

Operators stay as the module calls them (``aten.linear``, ``aten.softmax.int``); nothing is decomposed.
A module that cannot be exported, or whose graph uses tensors that are neither arguments nor
results, has the empty graph: it can still be evaluated, only not matched by operators.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from cupilot.records import Argument, Op, Scalar, TensorSpec

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Node

ASSERTIONS = frozenset(
    {"aten._assert_tensor_metadata.default", "aten._assert_scalar.default", "aten.sym_constrain_range.default"}
)
"""What the exporter adds to be sure of what it saw; it computes nothing."""
Constant = Scalar | tuple[int, ...] | None


class _InexpressibleError(Exception):
    """The graph holds something that `Op` cannot say."""


def export_graph(model: torch.nn.Module, inputs: tuple[Any, ...], arguments: tuple[Argument, ...]) -> tuple[Op, ...]:
    """Operators in order; to be called inside the fake mode that ``model`` and ``inputs`` live in."""
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(model, inputs, strict=False)
        names = _argument_names(program, model, arguments)
        ops: list[Op] = []
        for node in program.graph.nodes:
            if node.op == "call_function" and _target(node) not in ASSERTIONS:
                ops.append(_op(node, names))
                names[node.name] = node.name
        return tuple(ops)
    except Exception:  # export knows many ways to give up, and none of them is the user's mistake
        return ()


def _argument_names(
    program: ExportedProgram, model: torch.nn.Module, arguments: tuple[Argument, ...]
) -> dict[str, str]:
    """Placeholder -> argument; parameters that share one tensor share one argument."""
    from torch.export.graph_signature import InputKind

    by_identity: dict[int, str] = {}
    state = [argument.name for argument in arguments if argument.origin != "input"]
    tensors = [tensor for _, tensor in (*model.named_parameters(), *model.named_buffers())]
    for name, tensor in zip(state, tensors, strict=True):
        by_identity[id(tensor)] = name
    by_path = {
        path: by_identity[id(tensor)]
        for path, tensor in (
            *model.named_parameters(remove_duplicate=False),
            *model.named_buffers(remove_duplicate=False),
        )
    }
    inputs = iter([argument.name for argument in arguments if argument.origin == "input"])
    names: dict[str, str] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            names[spec.arg.name] = next(inputs)
        elif spec.target in by_path:
            names[spec.arg.name] = by_path[spec.target]
    return names


def _op(node: Node, names: dict[str, str]) -> Op:
    operands: list[str] = []
    attributes: list[tuple[str, Constant]] = []
    for label, value in _labelled(node):
        nodes = _nodes(value)
        if nodes:
            operands += [names[operand.name] for operand in nodes]
        else:
            known, constant = _constant(value)
            if known:
                attributes.append((label, constant))
    return Op(node.name, _target(node), tuple(operands), tuple(attributes), _output(node))


def _target(node: Node) -> str:
    return str(node.target) if hasattr(node.target, "_schema") else getattr(node.target, "__name__", str(node.target))


def _labelled(node: Node) -> list[tuple[str, Any]]:
    """Every argument by the schema's name, defaults included; Python functions go by position."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return [("index" if place else "self", value) for place, value in enumerate(node.args)]
    found: list[tuple[str, Any]] = []
    for place, argument in enumerate(schema.arguments):
        if place < len(node.args):
            found.append((argument.name, node.args[place]))
        elif argument.name in node.kwargs:
            found.append((argument.name, node.kwargs[argument.name]))
        elif argument.has_default_value():
            found.append((argument.name, argument.default_value))
    return found


def _nodes(value: Any) -> list[Node]:
    from torch.fx import Node

    if isinstance(value, Node):
        return [value]
    if isinstance(value, (list, tuple)):
        return [item for item in value if isinstance(item, Node)]
    return []


def _constant(value: Any) -> tuple[bool, Constant]:
    """Whether the record can hold the value, and the value as it holds it."""
    import torch

    if value is None or isinstance(value, (bool, int, float, str)):
        return True, value
    if isinstance(value, torch.dtype):
        return True, str(value).removeprefix("torch.")
    if isinstance(value, (list, tuple)) and all(type(item) is int for item in value):
        return True, tuple(value)
    return False, None


def _output(node: Node) -> TensorSpec:
    """The result's form; of several results, the first (``getitem`` operators give the others)."""
    import torch

    value = node.meta.get("val")
    if isinstance(value, (list, tuple)):
        value = next((item for item in value if isinstance(item, torch.Tensor)), None)
    if not isinstance(value, torch.Tensor):
        raise _InexpressibleError(node.name)
    return TensorSpec(tuple(int(size) for size in value.shape), str(value.dtype).removeprefix("torch."))
