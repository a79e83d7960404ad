"""What is exported: a kernel, the task it computes, how it is called, and what is known of it."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cupilot.errors import UserError
from cupilot.evaluation.binding import bound_arguments
from cupilot.evolution.recorded_result import RecordedResult
from cupilot.languages import language_of
from cupilot.records import Failure, Kernel, Task
from cupilot.tasks.inspect import ModuleFacts
from cupilot.tasks.process import module_facts
from cupilot.toolchain.functions import host_functions
from cupilot.toolchain.signature import fills_outputs, signature_of
from cupilot.toolchain.source import chosen_entry, defined_names, no_such_entry, without_comments

# PyTorch forbids them to extensions, and kernels are verified with them
NVCC_FLAGS = (
    "-O3", "-U__CUDA_NO_HALF_OPERATORS__", "-U__CUDA_NO_HALF_CONVERSIONS__", "-U__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-U__CUDA_NO_HALF2_OPERATORS__", "--expt-relaxed-constexpr", "--extended-lambda",
)  # fmt: skip


@dataclass(frozen=True)
class Argument:
    """An argument of the operator: a name that Python allows, its type, and where the module keeps it.

    ``path`` is that of a parameter or buffer (``conv.weight``), empty for an input.
    """

    name: str
    type: str
    path: str = ""
    is_parameter: bool = False

    @property
    def member(self) -> str:
        """The expression for it in a method of the module."""
        text = "self"
        for part in self.path.split("."):
            text = f"{text}.{part}" if part.isidentifier() else f"getattr({text}, {part!r})"
        return text


@dataclass(frozen=True)
class Subject:
    """Everything that templates need.

    ``source`` is the kernel's with a Python module at its end, ``call`` the expressions that its ``entry`` is called
    with, and ``recorded`` is None for a kernel that nobody has verified.
    """

    name: str
    task: Task
    kernel: Kernel
    source: str
    call: str
    facts: ModuleFacts
    arguments: tuple[Argument, ...]
    allocated: tuple[str, ...] = ()
    recorded: RecordedResult | None = None

    @property
    def entry(self) -> str:
        return self.kernel.entry

    @property
    def class_name(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def inputs(self) -> tuple[Argument, ...]:
        return tuple(argument for argument in self.arguments if not argument.path)

    @property
    def state(self) -> tuple[Argument, ...]:
        """Parameters, then buffers."""
        return tuple(argument for argument in self.arguments if argument.path)

    @property
    def uses_init(self) -> bool:
        return re.search(r"\binit\b", self.call) is not None

    @property
    def uses_math(self) -> bool:
        return re.search(r"\bmath\b", self.call) is not None

    @property
    def flags(self) -> tuple[str, ...]:
        return NVCC_FLAGS


def subject_of(task: Task, kernel: Kernel, recorded: RecordedResult | None = None) -> Subject:
    """How a kernel of a task is called from Python; a kernel that cannot be is a `UserError`."""
    extension = language_of(kernel).extension(kernel)
    if extension is None:
        raise UserError(f"a kernel in {kernel.language} cannot be exported: it is no torch extension")
    entry = chosen_entry(extension)
    if entry is None:
        raise UserError(no_such_entry(extension).message)
    kernel = replace(extension, entry=entry)
    call = bound_arguments(kernel, task)
    if isinstance(call, Failure):
        raise UserError(call.message)
    facts = module_facts(task)
    return Subject(
        identifier(task.name), task, kernel, with_module(kernel, call), call, facts, arguments_of(task, facts),
        allocated_outputs(task, kernel), recorded,
    )  # fmt: skip


def with_module(kernel: Kernel, call: str) -> str:
    """The source, with its entry in a Python module; a module of its own stays as it is."""
    code = without_comments(kernel.source)
    if "PYBIND11_MODULE" in code and kernel.entry in defined_names(code):
        return kernel.source
    if "PYBIND11_MODULE" in code:
        raise UserError(
            f"the kernel's own PYBIND11_MODULE does not have {kernel.entry}: add it, or take the module out"
        )
    left_out = [parameter.name for parameter in (signature_of(kernel.source, kernel.entry) or ())[expressions(call) :]]
    if left_out and not fills_outputs(kernel.source, kernel.entry):
        raise UserError(
            f"Python cannot leave out {', '.join(left_out)} of {kernel.entry}: say with --args what they are"
        )
    function = host_functions(code).get(kernel.entry, kernel.entry)
    module = f'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n    m.def("{kernel.entry}", &{function});\n}}\n'
    include = "" if "torch/extension.h" in code else "#include <torch/extension.h>\n"
    return f"{kernel.source.rstrip()}\n\n{include}{module}"


def expressions(call: str) -> int:
    """How many there are."""
    tree = ast.parse(f"[{call}\n]", mode="eval").body
    assert isinstance(tree, ast.List)
    return len(tree.elts)


def identifier(name: str) -> str:
    """A task's name as Python allows it, in lower case."""
    text = re.sub(r"\W+", "_", name.lower(), flags=re.ASCII).strip("_") or "task"
    return f"task_{text}" if not text[0].isalpha() or keyword.iskeyword(text) else text


def arguments_of(task: Task, facts: ModuleFacts) -> tuple[Argument, ...]:
    """Inputs, parameters, buffers, with names that are unlike each other."""
    found: list[Argument] = []
    paths = [*facts.parameters, *facts.buffers]
    for place, argument in enumerate(task.arguments):
        path = "" if argument.origin == "input" else paths[place - sum(a.origin == "input" for a in task.arguments)]
        name = argument.name if argument.name.isidentifier() and not keyword.iskeyword(argument.name) else f"a{place}"
        kind = "Tensor" if argument.tensor is not None else type(argument.value).__name__
        found.append(Argument(unlike(name, found), kind, path, argument.origin == "parameter"))
    return tuple(found)


def unlike(name: str, others: Sequence[Argument]) -> str:
    while any(other.name == name for other in others):
        name += "_"
    return name


def allocated_outputs(task: Task, kernel: Kernel) -> tuple[str, ...]:
    """Expressions that make the outputs of a function that returns nothing; nothing for all others."""
    if not fills_outputs(kernel.source, kernel.entry):
        return ()
    inputs = [argument.tensor for argument in task.arguments if argument.origin == "input"]
    found = []
    for output in task.outputs:
        if output in inputs:
            found.append(f"torch.empty_like(inputs[{inputs.index(output)}])")
        else:
            found.append(f"torch.empty({output.shape}, dtype=torch.{output.dtype}, device=inputs[0].device)")
    return tuple(found)
