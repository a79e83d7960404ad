"""What a candidate's host function is called with."""

from __future__ import annotations

from cupilot.errors import UserError
from cupilot.records import Failure, Kernel, Task
from cupilot.tasks.bind import bind_task
from cupilot.tasks.case import MODELNEW
from cupilot.toolchain.signature import fills_outputs, signature_of


def bound_arguments(kernel: Kernel, task: Task) -> str | Failure:
    """Expressions over ``inputs`` and ``model``: the candidate's own, else found by names and order."""
    if kernel.form != "extension":
        return MODELNEW
    if kernel.arguments:
        return kernel.arguments
    parameters = signature_of(kernel.source, kernel.entry)
    try:
        fills = fills_outputs(kernel.source, kernel.entry)
        return bind_task(task, parameters, entry=kernel.entry, fills_outputs=fills).text
    except UserError as error:
        return Failure("guard", "arguments", str(error))
