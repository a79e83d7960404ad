"""What a candidate's entry is called with."""

from __future__ import annotations

from cupilot.errors import UserError
from cupilot.languages import language_of
from cupilot.languages.contract import ModuleCall
from cupilot.records import Failure, Kernel, Task
from cupilot.tasks.case import AS_MODULE
from cupilot.tasks.process import bind_task


def bound_arguments(kernel: Kernel, task: Task) -> str | Failure:
    """Expressions over ``inputs`` and ``model``: the candidate's own, else bound by name and order."""
    convention = language_of(kernel).convention(kernel)
    if isinstance(convention, ModuleCall):
        return AS_MODULE
    if kernel.arguments:
        return kernel.arguments
    try:
        return bind_task(task, convention.parameters, entry=kernel.entry, fills_outputs=convention.fills_outputs).text
    except UserError as error:
        return Failure("guard", "arguments", str(error))
