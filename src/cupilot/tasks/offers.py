"""What a task has to offer to a host function: tensors of its module, and numbers that have a name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cupilot.tasks.likeness import AXES, Place, TensorName, Words, place_of, scalar_likeness, words

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Member:
    """A tensor of the module; ``value`` is None where the module has the name but no tensor."""

    expression: str
    name: TensorName
    value: torch.Tensor | None = None
    is_buffer: bool = False


@dataclass(frozen=True)
class Number:
    """A scalar, a string or a tuple of numbers that has a name; ``rank`` of a ``2d`` module's attributes is 2."""

    expression: str
    name: Words
    value: Any
    place: Place = field(default_factory=Place)
    rank: int = 0


class _Later(float):
    """A number that is known only when the module has values; equal to nothing else."""

    def __new__(cls, name: str) -> _Later:
        made = super().__new__(cls, "nan")
        made.name = name
        return made

    name: str

    def __repr__(self) -> str:
        return self.name


def members(model: torch.nn.Module) -> list[Member]:
    """Parameters, then buffers; what is shared is there once."""
    found = []
    for is_buffer, named in ((False, model.named_parameters()), (True, model.named_buffers())):
        for path, tensor in named:
            owner, _, last = path.rpartition(".")
            name = TensorName(path, place_of(owner, model.get_submodule(owner)))
            found.append(Member(_expression(model, owner, last), name, tensor, is_buffer))
    return found


def absent_members(model: torch.nn.Module, present: Sequence[Member]) -> list[Member]:
    """Such as the bias of a module that was made without one, when others of its tensors are present."""
    owners = {member.name.path.rpartition(".")[0] for member in present}
    return [
        Member(_expression(model, path, last), TensorName(f"{path}.{last}", place_of(path, module)))
        for path, module in model.named_modules()
        for last, tensor in module._parameters.items()
        if tensor is None and path in owners
    ]


def _expression(model: torch.nn.Module, path: str, attribute: str) -> str:
    """Python for a member of a module: ``model.net[0].weight``."""
    import torch

    text = "model"
    module: Any = model
    for part in (*(path.split(".") if path else ()), attribute):
        if isinstance(module, (torch.nn.ModuleDict, torch.nn.ParameterDict)):
            text += f"[{part!r}]"
        elif part.isdigit() and hasattr(module, "__getitem__"):
            text += f"[{part}]"
        else:
            text = f"{text}.{part}" if part.isidentifier() else f"getattr({text}, {part!r})"
        module = getattr(module, part)
    return text


def scalars(names: Sequence[str], inputs: Sequence[Any]) -> list[Number]:
    """Inputs that are no tensors."""
    import torch

    return [
        Number(f"inputs[{index}]", words(name), value)
        for index, (name, value) in enumerate(zip(names, inputs, strict=True))
        if not isinstance(value, torch.Tensor)
    ]


def constructor_numbers(init: Mapping[str, Any]) -> list[Number]:
    return [Number(f"init[{name!r}]", words(name), value) for name, value in init.items() if _is_number(value)]


def single_elements(found: Sequence[Member]) -> list[Number]:
    """Floating tensors of one element: they can be passed as a number, and keep track of the module's values."""
    return [
        Number(f"{each.expression}.item()", words(each.name.last), _Later(each.expression), each.name.place)
        for each in found
        if each.value is not None and each.value.numel() == 1 and each.value.is_floating_point()
    ]


def attributes(model: torch.nn.Module) -> tuple[list[Number], list[Number]]:
    """Numbers that the model itself keeps, and those that its parts keep."""
    found: tuple[list[Number], list[Number]] = ([], [])
    for path, module in model.named_modules():
        kept = dict(_class_attributes(type(module))) | vars(module) if not path else vars(module)
        suffix = type(module).__name__[-2:]
        rank = int(suffix[0]) if suffix in ("1d", "2d", "3d") else 0
        for name, value in kept.items():
            if name.startswith("_") or not _is_number(value) or (name == "training" and path):
                continue
            number = Number(_expression(model, path, name), words(name), value, place_of(path, module), rank)
            found[bool(path)].append(number)
    return found


def _class_attributes(kind: type) -> Iterator[tuple[str, Any]]:
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("torch.") and base is not object:
            yield from vars(base).items()


def _is_number(value: Any) -> bool:
    items = value if isinstance(value, (list, tuple)) else (value,)
    return len(items) > 0 and all(isinstance(item, (bool, int, float, str)) for item in items)


def best_fits(
    source: list[Number], name: Words, axis: str | None, rank: int, kind: str
) -> list[tuple[str, Any, Number]]:
    """Expressions and values of those that fit the name best."""
    fitting = []
    for number in source:
        likeness = scalar_likeness(name, number.name, number.place)
        value = fitted(number, kind, axis) if likeness is not None and likeness[0] == rank else None
        if likeness is not None and value is not None:
            fitting.append((likeness[1], (*value, number)))
    best = max((score for score, _ in fitting), default=0)
    return [found for score, found in fitting if score == best]


def fitted(number: Number, kind: str, axis: str | None) -> tuple[str, Any] | None:
    """The expression and value that a parameter of this type takes, if there is one.

    A tuple whose elements differ is given as it is to a parameter that wants one number: the name is right, and
    nobody can say which element is meant.
    """
    value, text = number.value, number.expression
    listed = isinstance(value, (list, tuple))
    if kind in ("ints", "floats"):
        if not listed and number.rank:
            value, text = (value,) * number.rank, f"[{text}] * {number.rank}"
        items = tuple(value) if isinstance(value, (list, tuple)) else ()
        fits = len(items) > 0 and all(_fits(item, kind.removesuffix("s")) for item in items) and axis is None
        return (text, items) if fits else None
    if listed and axis is None and any(item != value[0] for item in value):
        return text, tuple(value)
    if listed:
        index = 0 if axis is None else int(axis) if axis.isdigit() else AXES[axis] - 3 + len(value)
        if not 0 <= index < len(value):
            return None
        value, text = value[index], f"{text}[{index}]"
    elif axis is not None and axis.isdigit():
        return None
    return (text, value) if _fits(value, kind) else None


def _fits(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind in ("bool", "int")
    kinds: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "string": (str,)}
    return isinstance(value, kinds.get(kind, ()))
