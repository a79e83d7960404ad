"""What a task's module is, beyond what it computes: names of its parameters, whether its mode matters, a backward."""

from __future__ import annotations

from dataclasses import dataclass

from cupilot.errors import TaskError
from cupilot.records import Task
from cupilot.tasks.execute import build_model, draw_inputs, run_source
from cupilot.tasks.fake_tensors import on_fake_tensors

BACKWARD = "backward"


@dataclass(frozen=True)
class ModuleFacts:
    """``parameters`` and ``buffers`` are paths in the order of the task's arguments.

    ``training`` is the mode that the constructor leaves the module in, ``mode_matters`` whether it computes something
    else in the other one.  ``has_backward``: the task file defines the gradients.
    """

    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    training: bool
    mode_matters: bool
    has_backward: bool


def module_facts(task: Task) -> ModuleFacts:
    """Found on fake tensors, so that sizes do not matter, if the module runs on them."""
    from cupilot.tasks.graph import export_graph

    def found(is_fake: bool) -> ModuleFacts:
        namespace = run_source(task.source, task.name)
        model = build_model(namespace, task.name)
        inputs = draw_inputs(namespace, task.name)
        backward = namespace.get(BACKWARD)
        if backward is not None and not callable(backward):
            raise TaskError(f"{task.name}: backward is a {type(backward).__name__}, not a function")
        parameters = tuple(name for name, _ in model.named_parameters())
        buffers = tuple(name for name, _ in model.named_buffers())
        training = model.training
        # a module without a graph may do anything
        matters = not task.graph or export_graph(model.train(not training), inputs, task.arguments) != task.graph
        return ModuleFacts(parameters, buffers, training, matters, backward is not None)

    return on_fake_tensors(found)
