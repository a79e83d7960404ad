"""What the parameters of a host function can be bound to: tensors of the task's module, and named values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cupilot.tasks.likeness import AXES, Place, TensorName, Words, place_of, scalar_likeness, words

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ModuleTensor:
    """A tensor of the module; ``value`` is None if the module has the name but no tensor."""

    expression: str
    name: TensorName
    value: torch.Tensor | None = None
    is_buffer: bool = False


@dataclass(frozen=True)
class NamedValue:
    """A named scalar, string or tuple of numbers; ``rank`` is 2 for the attributes of a ``2d`` module."""

    expression: str
    name: Words
    value: Any
    place: Place = field(default_factory=Place)
    rank: int = 0


class _DeferredValue(float):
    """A number that is known only when the module has values; it compares equal to nothing."""

    def __new__(cls, name: str) -> _DeferredValue:
        made = super().__new__(cls, "nan")
        made.name = name
        return made

    name: str

    def __repr__(self) -> str:
        return self.name


def module_tensors(model: torch.nn.Module) -> list[ModuleTensor]:
    """Parameters, then buffers; shared tensors are listed once."""
    found = []
    for is_buffer, named in ((False, model.named_parameters()), (True, model.named_buffers())):
        for path, tensor in named:
            owner, _, last = path.rpartition(".")
            name = TensorName(path, place_of(owner, model.get_submodule(owner)))
            found.append(ModuleTensor(_expression(model, owner, last), name, tensor, is_buffer))
    return found


def missing_tensors(model: torch.nn.Module, present: Sequence[ModuleTensor]) -> list[ModuleTensor]:
    """Tensors that a module was constructed without, such as a bias, while others of it are ``present``."""
    owners = {member.name.path.rpartition(".")[0] for member in present}
    return [
        ModuleTensor(_expression(model, path, last), TensorName(f"{path}.{last}", place_of(path, module)))
        for path, module in model.named_modules()
        for last, tensor in module._parameters.items()
        if tensor is None and path in owners
    ]


def _expression(model: torch.nn.Module, path: str, attribute: str) -> str:
    """The Python expression for an attribute of a module, such as ``model.net[0].weight``."""
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


def input_scalars(names: Sequence[str], inputs: Sequence[Any]) -> list[NamedValue]:
    """The inputs that are not tensors."""
    import torch

    return [
        NamedValue(f"inputs[{index}]", words(name), value)
        for index, (name, value) in enumerate(zip(names, inputs, strict=True))
        if not isinstance(value, torch.Tensor)
    ]


def constructor_scalars(init: Mapping[str, Any]) -> list[NamedValue]:
    return [NamedValue(f"init[{name!r}]", words(name), value) for name, value in init.items() if _is_number(value)]


def one_element_tensors(found: Sequence[ModuleTensor]) -> list[NamedValue]:
    """Floating-point tensors of one element, which can be passed as a number that follows the module's values."""
    return [
        NamedValue(f"{each.expression}.item()", words(each.name.last), _DeferredValue(each.expression), each.name.place)
        for each in found
        if each.value is not None and each.value.numel() == 1 and each.value.is_floating_point()
    ]


def module_attributes(model: torch.nn.Module) -> tuple[list[NamedValue], list[NamedValue]]:
    """The values that the model itself has, and those of its submodules."""
    found: tuple[list[NamedValue], list[NamedValue]] = ([], [])
    for path, module in model.named_modules():
        kept = dict(_class_attributes(type(module))) | vars(module) if not path else vars(module)
        suffix = type(module).__name__[-2:]
        rank = int(suffix[0]) if suffix in ("1d", "2d", "3d") else 0
        for name, value in kept.items():
            if name.startswith("_") or not _is_number(value) or (name == "training" and path):
                continue
            number = NamedValue(_expression(model, path, name), words(name), value, place_of(path, module), rank)
            found[bool(path)].append(number)
    return found


def _class_attributes(kind: type) -> Iterator[tuple[str, Any]]:
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("torch.") and base is not object:
            yield from vars(base).items()


def _is_number(value: Any) -> bool:
    items = value if isinstance(value, (list, tuple)) else (value,)
    return len(items) > 0 and all(isinstance(item, (bool, int, float, str)) for item in items)


def best_matches(
    source: list[NamedValue], name: Words, axis: str | None, rank: int, kind: str
) -> list[tuple[str, Any, NamedValue]]:
    """Expressions and values of the best matches for a name."""
    fitting = []
    for number in source:
        likeness = scalar_likeness(name, number.name, number.place)
        value = value_for(number, kind, axis) if likeness is not None and likeness[0] == rank else None
        if likeness is not None and value is not None:
            fitting.append((likeness[1], (*value, number)))
    best = max((score for score, _ in fitting), default=0)
    return [found for score, found in fitting if score == best]


def value_for(number: NamedValue, kind: str, axis: str | None) -> tuple[str, Any] | None:
    """The expression and value for a parameter of this type, if there is one.

    A tuple whose elements differ is passed unchanged to a parameter that wants one number: the name matches, but the
    element is ambiguous.
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
