"""What a candidate's host function is called with: an expression over the task for each of its parameters.

Without the user's word (``--args``) parameters are bound by what their names say, then by order: inputs, then the
module's parameters, then its buffers; numbers by name from the inputs, the constructor's arguments and the
attributes of the module and its parts.  What is not certain is refused, in one sentence that the user can act on.
Not covered: numbers that are only written inside ``forward``, and sizes that a wrapper could ask its tensors for.
"""

from __future__ import annotations

import inspect
from ast import literal_eval
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cupilot.errors import UserError
from cupilot.records import Task
from cupilot.tasks.bindable_values import (
    ModuleTensor,
    best_matches,
    constructor_scalars,
    input_scalars,
    missing_tensors,
    module_attributes,
    module_tensors,
    one_element_tensors,
    value_for,
)
from cupilot.tasks.execute import build_model, draw_inputs, init_inputs, run_source
from cupilot.tasks.expressions import evaluate_expressions
from cupilot.tasks.fake_tensors import on_fake_tensors
from cupilot.tasks.likeness import Words, kind_of, numbered_first, place_of, tensor_words, without_axis, words
from cupilot.tasks.load import forward_names
from cupilot.toolchain.signature import Parameter

if TYPE_CHECKING:
    import torch

__all__ = ["Binding", "bind", "bind_task", "constructor_values", "evaluate_expressions"]

SCALARS = ("int", "float", "bool", "string", "ints", "floats")


@dataclass(frozen=True)
class Binding:
    """One expression per argument, and the module's tensors that none of them uses."""

    expressions: tuple[str, ...]
    unused: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """As ``--args`` takes it."""
        return ", ".join(self.expressions)


def bind_task(
    task: Task, parameters: Sequence[Parameter] | None, *, entry: str = "forward", fills_outputs: bool = False
) -> Binding:
    """The binding for a task, whose module and inputs are only imagined, so that their size does not matter.

    A function that fills its outputs takes them last; they are not bound.
    """
    if parameters is not None and fills_outputs:
        taken = max(len(parameters) - len(task.outputs), 0)
        if all(each.type == "Tensor" for each in parameters[taken:]):
            parameters = parameters[:taken]

    def bound(is_fake: bool) -> Binding:
        namespace = run_source(task.source, task.name)
        model = build_model(namespace, task.name)
        inputs = draw_inputs(namespace, task.name)
        return bind(parameters, inputs, model, constructor_values(namespace, task.name), entry=entry)

    return on_fake_tensors(bound)


def constructor_values(namespace: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What the task's module is constructed with, by the names of its parameters; defaults included."""
    values = init_inputs(namespace, where)
    try:
        bound = inspect.signature(namespace["Model"]).bind(*values)
    except (TypeError, ValueError):
        return {}  # the constructor says itself what is wrong
    bound.apply_defaults()
    return dict(bound.arguments)


def bind(
    parameters: Sequence[Parameter] | None,
    inputs: Sequence[Any],
    model: torch.nn.Module,
    init: Mapping[str, Any],
    *,
    entry: str = "forward",
) -> Binding:
    """Expressions over ``inputs``, ``model`` and ``init`` for every parameter, or a `UserError`.

    When the parameters are not known: all inputs, then all parameters and buffers of the module.
    """
    if parameters is None:
        own = (member.expression for member in module_tensors(model))
        return Binding((*(f"inputs[{index}]" for index in range(len(inputs))), *own))
    return _Binder(tuple(parameters), inputs, model, init).binding(entry)


class _Binder:
    """Binds the parameters of one function, from what is certain to what is left over."""

    def __init__(
        self, parameters: tuple[Parameter, ...], inputs: Sequence[Any], model: torch.nn.Module, init: Mapping[str, Any]
    ) -> None:
        names = forward_names(model, len(inputs))
        self._parameters, self._model = parameters, model
        self._bound: dict[int, str] = {}
        self._used: set[str] = set()
        self._unclear: dict[int, str] = {}
        self._module_tensors = module_tensors(model)
        self._scalars = input_scalars(names, inputs)
        taken = {number.expression for number in self._scalars}
        inputs_by_name = {f"inputs[{index}]": name for index, name in enumerate(names)}
        self._tensors = {text: name for text, name in inputs_by_name.items() if text not in taken}
        own, of_parts = module_attributes(model)
        # a tensor of one element goes before the number that it was made from, because it may change
        self._sources = (
            self._scalars,
            one_element_tensors(self._module_tensors),
            constructor_scalars(init),
            own,
            of_parts,
        )

    def binding(self, entry: str) -> Binding:
        self._bind_inputs_by_name()
        self._bind_tensors_by_name()
        self._bind_lists_of_tensors()
        self._bind_inputs_in_order()
        self._bind_tensors_in_order()
        self._bind_numbers_by_name()
        self._bind_inputs_that_are_numbers()
        expressions, problems = self._in_order()
        given = (*self._tensors, *(number.expression for number in self._scalars))
        problems += [f"{expression} would not be used" for expression in given if expression not in self._used]
        if problems:
            raise self._refusal(entry, problems)
        unused = (member.expression for member in self._module_tensors if member.expression not in self._used)
        return Binding(tuple(expressions), tuple(unused))

    def _bind(self, place: int, expression: str, *uses: str) -> None:
        self._bound[place] = expression
        self._used.update(uses or (expression,))

    def _open(self, *types: str) -> list[int]:
        """Places of these types that are not bound yet."""
        return [i for i, each in enumerate(self._parameters) if each.type in types and i not in self._bound]

    # --- tensors

    def _bind_inputs_by_name(self) -> None:
        """Only when every input is named; else the names are the kernel's own, and order is all there is."""
        given = {words(name): expression for expression, name in self._tensors.items()}
        asked = {words(self._parameters[place].name): place for place in self._open("Tensor", "Tensor?")}
        if set(given) <= set(asked):
            for name, expression in given.items():
                self._bind(asked[name], expression)

    def _bind_tensors_by_name(self) -> None:
        """The best fits first, as long as a parameter is left for every input."""
        places = self._open("Tensor", "Tensor?")
        room = len(places) - (0 if self._open("tensors") else len(self._free_inputs()))
        scores = sorted(
            (-member.name.likeness(self._meaning(place)), place, number)
            for place in places
            for number, member in enumerate(self._module_tensors)
        )
        taken: set[int] = set()
        for score, place, number in scores:
            if score and place not in self._bound and number not in taken and len(taken) < room:
                taken.add(number)
                self._bind(place, self._module_tensors[number].expression)

    def _meaning(self, place: int) -> str:
        """The name of a tensor, unless it is only a letter of the alphabet: ``b`` is no bias beside ``a``."""
        name = self._parameters[place].name
        letters = {each.name.lower() for each in self._parameters if each.type == "Tensor"}
        return "" if name.lower() == "b" and "a" in letters else name

    def _bind_lists_of_tensors(self) -> None:
        """``weights`` are all weights, ``params`` everything that is learned."""
        for place in self._open("tensors"):
            name = self._parameters[place].name
            learned = [member for member in self._module_tensors if not member.is_buffer]
            if name.lower() not in ("params", "parameters"):
                learned = [member for member in learned if (member.name.kind,) == tensor_words(name)]
            chosen = [member.expression for member in learned]
            if chosen:
                self._bind(place, f"[{', '.join(chosen)}]", *chosen)

    def _free_inputs(self) -> list[str]:
        return [expression for expression in self._tensors if expression not in self._used]

    def _bind_inputs_in_order(self) -> None:
        """To parameters that must have a value, to others when those are too few; a list takes what these leave."""
        free = self._free_inputs()
        places = [place for place in self._open("Tensor", "tensors") if self._parameters[place].default is None]
        lists = [place for place in places if self._parameters[place].type == "tensors"]
        if len(places) < len(free) and not lists:
            places = self._open("Tensor", "Tensor?")
        singles = len(places) - len(lists)
        for place in places:
            singles -= place not in lists
            count = max(len(free) - singles, 0) if place in lists else 1
            taken, free = free[:count], free[count:]
            if taken:
                self._bind(place, f"[{', '.join(taken)}]" if place in lists else taken[0], *taken)

    def _bind_tensors_in_order(self) -> None:
        for place in self._open("Tensor"):
            name = self._meaning(place)
            if self._parameters[place].default is not None:
                continue
            free = [member for member in self._module_tensors if member.expression not in self._used]
            fitting = [member for member in free if self._may_stand_for(member, name)]
            taken = [member for member in self._module_tensors if member.expression in self._used]
            absent = missing_tensors(self._model, taken)
            fitting = fitting or [member for member in absent if member.name.likeness(name)]
            if fitting:
                self._bind(place, fitting[0].expression)

    def _may_stand_for(self, member: ModuleTensor, name: str) -> bool:
        """Whether the names do not contradict: a bias is no weight, and that of a norm is not that of a conv."""
        if member.name.last == "num_batches_tracked":
            return False
        meant = kind_of(name)
        if meant is not None and member.name.kind is not None and meant != member.name.kind:
            return False
        context = tuple(word for word in tensor_words(name) if word != meant and not word.isdigit())
        elsewhere = any(place_of(*named).likeness(context) for named in self._model.named_modules())
        return not elsewhere or member.name.place.likeness(context) > 0

    # --- numbers

    def _bind_numbers_by_name(self) -> None:
        for place in self._open(*SCALARS):
            name = words(self._parameters[place].name)
            whole = (name, numbered_first(name))
            readings: list[tuple[Words, str | None]] = [(read, None) for read in whole if read]
            one_axis = without_axis(name)
            readings += [one_axis] if one_axis else []
            for rank, (read, axis) in ((rank, reading) for rank in (0, 1) for reading in readings):
                if place not in self._bound and place not in self._unclear:
                    self._bind_number(place, read, axis, rank)

    def _bind_number(self, place: int, read: Words, axis: str | None, rank: int) -> None:
        """The first source that knows the name decides."""
        kind = self._parameters[place].type
        per_source = [best_matches(source, read, axis, rank, kind) for source in self._sources]
        found = next((fits for fits in per_source if fits), [])
        differing = kind not in ("ints", "floats") and any(isinstance(value, tuple) for _, value, _ in found)
        if differing or len({repr(value) for _, value, _ in found}) > 1:
            several = ", ".join(f"{text} is {value}" for text, value, _ in found)
            self._unclear[place] = f"{self._parameters[place].name} is ambiguous ({several})"
        elif found:
            text, value, number = found[0]
            if number.expression.startswith("init["):  # say it as the model's where the model keeps it
                kept = (other for fits in per_source[3:] for other, same, _ in fits if repr(same) == repr(value))
                text = next(kept, text)
            self._bind(place, text, number.expression.removesuffix(".item()"))

    def _bind_inputs_that_are_numbers(self) -> None:
        """Those that no name speaks of go where they fit, first to parameters without a default."""
        for number in self._scalars:
            places = sorted(self._open(*SCALARS), key=lambda i: (self._parameters[i].default is not None, i))
            fitting = [(place, value_for(number, self._parameters[place].type, None)) for place in places]
            place, found = next(((place, found) for place, found in fitting if found), (0, None))
            if number.expression not in self._used and found is not None:
                self._bind(place, found[0], number.expression)

    # --- the outcome

    def _in_order(self) -> tuple[list[str], list[str]]:
        """All expressions, and what is wrong.

        Defaults that are no Python literals are left to the function, which it allows only at the end.
        """
        found: list[str] = []
        problems: list[str] = []
        left_out = ""
        for place, parameter in enumerate(self._parameters):
            name = parameter.name or f"parameter {place + 1}"
            expression = self._bound.get(place) or _fallback(parameter)
            if place in self._unclear:
                problems.append(self._unclear[place])
            elif expression is None and parameter.default is None:
                problems.append(f"{name} cannot be bound")
            elif left_out and place in self._bound:
                problems.append(f"the default of {left_out} cannot be written before {name}")
            elif expression is None or left_out:
                left_out = left_out or name
            else:
                found.append(expression)
        return found, problems

    def _refusal(self, entry: str, problems: list[str]) -> UserError:
        places = list(enumerate(self._parameters))
        known = [f"{each.name or place + 1} = {self._bound[place]}" for place, each in places if place in self._bound]
        draft = [
            self._bound.get(place)
            or (None if place in self._unclear else _fallback(each))
            or f"<{each.name or place + 1}>"
            for place, each in places
        ]
        return UserError(
            f"the task does not fit {entry}({', '.join(map(str, self._parameters))}): {', '.join(problems)}; "
            f'bound: {", ".join(known) or "nothing"}; complete --args "{", ".join(draft)}"'
        )


def _fallback(parameter: Parameter) -> str | None:
    """What is passed when nothing of the task fits: None for an optional tensor, or the default if it is a literal."""
    try:
        literal_eval(parameter.default or "")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return "None" if parameter.type == "Tensor?" else None
    return parameter.default
